"""What a code stands for. Infinity, NaN and zero are recognised here and nowhere else."""

from typing import NamedTuple

from .. import formats
from .._jit import njit
from ..formats import Format
from .bits import bit_length, mask, where

FINITE, INFINITE, NAN = 0, 1, 2
FP32, FP64 = formats.FORMATS["fp32"], formats.FORMATS["fp64"]

magnitude_bits = njit(formats.magnitude_bits)
top_magnitude = njit(formats.top_magnitude)
max_finite = njit(formats.max_finite)
min_exp = njit(formats.min_exp)


class Number(NamedTuple):
    """value = (-1)^sign * sig * 2^exp if kind is FINITE. For NaN, sig is the payload as binary64 holds it."""

    kind: int
    sign: int
    exp: int
    sig: int


@njit
def unpack(code, fmt):
    """The Number that a code stands for; exact.

    code: int64, container form (padding included; padding bits are ignored). fmt: Format, not fp64.
    Source: IEEE 754-2019 3.4, with the counts of special codes taken from the row.
    """
    code = code >> fmt.pad
    trailing = fmt.precision - 1
    sign = (code >> magnitude_bits(fmt)) & fmt.signed
    magnitude = code & top_magnitude(fmt)
    field = magnitude >> trailing
    fraction = magnitude & mask(trailing)
    lowest = where(field == 0, fmt.subnormals, 0)
    sig = fraction + ((1 - lowest) << trailing)
    exp = field + lowest - fmt.exponent_bias - trailing

    first_nan = top_magnitude(fmt) - fmt.nans + 1
    unsigned_nan = (magnitude == 0) & (sign > fmt.negative_zero)
    is_nan = (magnitude >= first_nan) | unsigned_nan
    is_infinite = (magnitude == first_nan - 1) & (fmt.infinity > 0)
    kind = where(is_nan, NAN, where(is_infinite, INFINITE, FINITE))
    sign = where(unsigned_nan, 0, sign)
    sig = where(is_nan, fraction << (52 - trailing), where(is_infinite, 0, sig))
    return Number(kind, sign, exp, sig)


@njit
def unpack_f64(bits):
    """The Number in the 64 bits of a binary64, given as int64."""
    sign = where(bits < 0, 1, 0)
    field = (bits >> 52) & 0x7FF
    fraction = bits & mask(52)
    special = field == 0x7FF
    kind = where(special, where(fraction > 0, NAN, INFINITE), FINITE)
    sig = where(special | (field == 0), fraction, fraction + (1 << 52))
    return Number(kind, sign, where(field == 0, 1, field) - 1075, sig)


@njit
def pack_f64(kind, sign, exp, sig):
    """int64 bits of the binary64 with this value, which must be normal or zero; sig < 2^53. NaN is made quiet."""
    n = bit_length(sig)
    finite = ((n + exp + 1022) << 52) + ((sig << (53 - n)) & mask(52))
    finite = where(sig == 0, 0, finite)
    nan = (0x7FF << 52) | (1 << 51) | sig
    magnitude = where(kind == NAN, nan, where(kind == INFINITE, 0x7FF << 52, finite))
    return magnitude | where(sign > 0, -1 << 63, 0)


@njit
def infinity_code(sign, fmt):
    """Code of infinity, padding not included; the format must have one."""
    return (top_magnitude(fmt) - fmt.nans) | (sign << magnitude_bits(fmt))


def codes(fmt: Format) -> range:
    """All container codes of a format of at most 16 bits, for exhaustive loops."""
    return range(0, 1 << (fmt.bits + fmt.pad), 1 << fmt.pad)

"""Number formats as rows of integers. The arithmetic never knows a format's name.

A format is read off its row: codes count upwards from zero, magnitude by magnitude; the last `nans`
magnitudes are NaN, the one before them is infinity if there is one, all others are finite.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from .errors import unknown


class Format(NamedTuple):
    """One binary format. Plain integers, so that Numba and Triton take it as it is."""

    bits: int  #: bits of a code, padding not counted
    precision: int  #: bits of the significand, the implicit one included
    exponent_bias: int  #: value of a normal code = significand * 2^(field - exponent_bias)
    nans: int = 0  #: how many magnitudes at the top are NaN
    infinity: int = 0  #: 1 if the magnitude below the NaNs is infinity
    signed: int = 1  #: 1 if the top bit is a sign
    zero: int = 1  #: 1 if magnitude 0 is zero; 0 if it is an ordinary power of two (e8m0)
    negative_zero: int = 1  #: 1 if sign 1, magnitude 0 is -0; 0 if it is the one NaN (fnuz, P3109)
    subnormals: int = 1  #: 1 if exponent field 0 has no implicit bit
    pad: int = 0  #: zero bits below the code in its container (tf32: 13)


def ieee(bits: int, precision: int) -> Format:
    """The IEEE 754 pattern: bias 2^(w-1) - 1, field all ones for infinity and NaN."""
    bias = (1 << (bits - precision - 1)) - 1
    return Format(bits, precision, bias, nans=(1 << (precision - 1)) - 1, infinity=1)


def p3109(bits: int, precision: int, signed: bool = True, extended: bool = True) -> Format:
    """IEEE P3109's binaryKpP: one zero, one NaN (at -0 if signed, else the last code), infinities if extended.

    bits 3 to 15; precision 1 to bits - 1 if signed, to bits if not. ValueError otherwise.
    Source: IEEE P3109 interim report 3.2.2, 4.1.
    """
    if not (3 <= bits <= 15 and 1 <= precision <= bits - signed):
        raise ValueError(f"binary{bits}p{precision} is not a P3109 format: 3 <= K <= 15, 1 <= P <= K - {int(signed)}.")
    bias = 1 << (bits - precision - signed)
    return Format(
        bits, precision, bias, nans=int(not signed), infinity=int(extended), signed=int(signed), negative_zero=0
    )  # fmt: skip


#: name -> (row, where it is defined)
REGISTRY: dict[str, tuple[Format, str]] = {
    "bf16": (ieee(16, 8), "bfloat16: the upper half of IEEE 754 binary32"),
    "fp16": (ieee(16, 11), "IEEE 754-2019 binary16"),
    "fp32": (ieee(32, 24), "IEEE 754-2019 binary32"),
    "fp64": (ieee(64, 53), "IEEE 754-2019 binary64 (a source of values, not a target)"),
    "tf32": (ieee(19, 11)._replace(pad=13), "NVIDIA TF32: PTX ISA, wgmma and mma .tf32"),
    "e4m3fn": (Format(8, 4, 7, nans=1), "OCP OFP8 1.0, E4M3"),
    "e5m2": (ieee(8, 3), "OCP OFP8 1.0, E5M2"),
    "e4m3fnuz": (Format(8, 4, 8, negative_zero=0), "AMD CDNA3: bias 8, NaN is 0x80"),
    "e5m2fnuz": (Format(8, 3, 16, negative_zero=0), "AMD CDNA3: bias 16, NaN is 0x80"),
    "e4m3b11fnuz": (Format(8, 4, 11, negative_zero=0), "ml_dtypes float8_e4m3b11fnuz: bias 11, NaN is 0x80"),
    "e4m3": (
        ieee(8, 4),
        "ml_dtypes float8_e4m3: IEEE 754 pattern, with infinity (not OCP's E4M3, which is e4m3fn)",
    ),
    "e3m4": (ieee(8, 5), "ml_dtypes float8_e3m4: IEEE 754 pattern"),
    "e3m2": (Format(6, 3, 3), "OCP MX 1.0, FP6 E3M2: no infinity, no NaN"),
    "e2m3": (Format(6, 4, 1), "OCP MX 1.0, FP6 E2M3: no infinity, no NaN"),
    "e2m1": (Format(4, 2, 1), "OCP MX 1.0, FP4 E2M1: no infinity, no NaN"),
    "e8m0": (
        Format(8, 1, 127, nans=1, signed=0, zero=0, negative_zero=0, subnormals=0),
        "OCP MX 1.0, E8M0 scale: powers of two, no sign, no zero",
    ),
    "ue4m3": (
        Format(7, 4, 7, nans=1, signed=0, negative_zero=0),
        "NVIDIA NVFP4 block scale: e4m3fn without its sign",
    ),
}
FORMATS: dict[str, Format] = {name: row for name, (row, _) in REGISTRY.items()}

#: other people's names for the same formats (ml_dtypes, torch, NumPy)
ALIASES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "e4m3fn",
    "float8_e5m2": "e5m2",
    "float8_e4m3fnuz": "e4m3fnuz",
    "float8_e5m2fnuz": "e5m2fnuz",
    "float8_e4m3b11fnuz": "e4m3b11fnuz",
    "float8_e4m3": "e4m3",
    "float8_e3m4": "e3m4",
    "float6_e3m2fn": "e3m2",
    "float6_e2m3fn": "e2m3",
    "float4_e2m1fn": "e2m1",
    "float8_e8m0fnu": "e8m0",
}
P3109_NAME = re.compile(r"binary(\d+)p(\d+)(s|u)?(e|f)?")


def check(row: Format) -> Format:
    """The row itself, if its integers describe a format; otherwise TypeError or ValueError."""
    for field, value in zip(Format._fields, row, strict=True):
        if type(value) is not int:
            raise TypeError(f"Format.{field} must be an int, got {value!r} of type {type(value).__name__}")
    if row == FORMATS["fp64"]:
        return row
    width = row.bits - row.signed - row.precision + 1
    rules = {
        "flags are 0 or 1": all(
            flag in (0, 1) for flag in (row.infinity, row.signed, row.zero, row.negative_zero, row.subnormals)
        ),
        "2 <= bits and bits + pad <= 32, pad >= 0": 2 <= row.bits <= 32 - row.pad and row.pad >= 0,
        "precision >= 1 with at least one exponent bit": row.precision >= 1 and width >= 1,
        "a -0 needs a sign and a zero": not row.negative_zero or (row.signed and row.zero),
        "zero and subnormals go together": row.zero == row.subnormals,
        "nans >= 0 and a finite non-zero code is left": row.nans >= 0
        and (row.bits < 2 or (1 << (row.bits - row.signed)) - row.nans - row.infinity >= 1 + row.zero),
    }
    for rule, holds in rules.items():
        if not holds:
            raise ValueError(f"{row} is not a format: {rule}")
    return row


def fmt_name(row: Format) -> str:
    """The registered or P3109 name of a row, or its fields."""
    for name, known in FORMATS.items():
        if known == row:
            return name
    allowed = row.precision <= row.bits - row.signed and 3 <= row.bits <= 15
    if allowed and row == p3109(row.bits, row.precision, bool(row.signed), bool(row.infinity)):
        return f"binary{row.bits}p{row.precision}{'us'[row.signed]}{'fe'[row.infinity]}"
    return str(row)


def lookup(fmt, argument: str = "fmt") -> Format:
    """A checked row from a row, a name, or a dtype (or dtype name) of NumPy, ml_dtypes or torch.

    Names are those of FORMATS and P3109's binary8p3se: s or u for signed or unsigned, e or f for extended or
    finite, s and e if left out. Raises ValueError for unknown names, with the near ones.
    """
    if isinstance(fmt, Format):
        return check(fmt)
    name = fmt if isinstance(fmt, str) else dtype_name(fmt)
    name = ALIASES.get(name, name)
    if name in FORMATS:
        return FORMATS[name]
    if found := P3109_NAME.fullmatch(name):
        return p3109(int(found[1]), int(found[2]), found[3] != "u", found[4] != "f")
    raise unknown(argument, fmt, FORMATS)


def dtype_name(dtype) -> str:
    """'float8_e5m2' from np.dtype, an ml_dtypes scalar type, or torch.float8_e5m2."""
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return str(name).removeprefix("torch.")


# What follows from a row. core/codec compiles the first four as they stand, so they call nothing.


def magnitude_bits(fmt):
    """Bits of a code without its sign."""
    return fmt.bits - fmt.signed


def top_magnitude(fmt):
    """The largest magnitude a code can hold, whatever it means."""
    return (1 << (fmt.bits - fmt.signed)) - 1


def max_finite(fmt):
    """Magnitude of the largest finite code."""
    return (1 << (fmt.bits - fmt.signed)) - 1 - fmt.nans - fmt.infinity


def min_exp(fmt):
    """Weight, as a power of two, of the last significand bit in the lowest binade."""
    return fmt.subnormals - fmt.exponent_bias - (fmt.precision - 1)


def has_nan(fmt):
    """1 if some code is NaN."""
    return 1 if fmt.nans > 0 or (fmt.signed and not fmt.negative_zero) else 0


def exponent_bits(fmt: Format) -> int:
    """Width of the exponent field."""
    return magnitude_bits(fmt) - fmt.precision + 1


def magnitude_value(fmt: Format, magnitude: int) -> Fraction:
    """Value of a finite magnitude, exact."""
    field, fraction = magnitude >> (fmt.precision - 1), magnitude & ((1 << (fmt.precision - 1)) - 1)
    implicit = 1 if field > 0 or not fmt.subnormals else 0
    exp = max(field, fmt.subnormals) - fmt.exponent_bias - (fmt.precision - 1)
    return ((implicit << (fmt.precision - 1)) + fraction) * Fraction(2) ** exp


def max_value(fmt: Format) -> Fraction:
    """The largest finite value."""
    return magnitude_value(fmt, max_finite(fmt))


def min_normal(fmt: Format) -> Fraction:
    """The smallest value with an implicit bit."""
    return magnitude_value(fmt, fmt.subnormals << (fmt.precision - 1))


def min_positive(fmt: Format) -> Fraction:
    """The smallest value above zero."""
    return magnitude_value(fmt, fmt.zero)


def container_bits(fmt: Format) -> int:
    """8, 16 or 32: the unsigned integer that holds a code and its padding."""
    return next(width for width in (8, 16, 32, 64) if fmt.bits + fmt.pad <= width)


def fits(inner: Format, outer: Format) -> bool:
    """True if every finite value of `inner` is a value of `outer`."""
    return bool(
        inner.precision <= outer.precision
        and min_exp(inner) >= min_exp(outer)
        and max_value(inner) <= max_value(outer)
        and (outer.signed or not inner.signed)
    )

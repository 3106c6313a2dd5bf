"""Comparisons, minimum and maximum, negation and absolute value on codes that know their format.

Codes of one format count upwards with the magnitude, so no value is ever formed. Container codes, int64.
Source: IEEE 754-2019 5.5.1 (negate, abs, copySign), 5.11 and 5.6.1 (comparisons), 9.6 (minimum, maximum).
"""

from .._jit import njit
from ..policies import CANONICAL
from .bits import where
from .codec import magnitude_bits, top_magnitude, unpack
from .rounding import nan_code


@njit
def magnitude(code, fmt):
    """The code without sign and padding."""
    return (code >> fmt.pad) & top_magnitude(fmt)


@njit
def sign(code, fmt):
    """1 if the sign bit is set; 0 in formats without."""
    return (code >> (fmt.pad + magnitude_bits(fmt))) & fmt.signed


@njit
def is_nan(code, fmt):
    """1 for every NaN of the format, the one at -0 included."""
    m = magnitude(code, fmt)
    at_the_top = m > top_magnitude(fmt) - fmt.nans
    return where(at_the_top | ((m == 0) & (sign(code, fmt) > fmt.negative_zero)), 1, 0)


@njit
def is_infinite(code, fmt):
    """1 for an infinity."""
    return where((magnitude(code, fmt) == top_magnitude(fmt) - fmt.nans) & (fmt.infinity > 0), 1, 0)


@njit
def neg(code, fmt):
    """The code of -x; the sign of a NaN flips too, unless the format has one NaN only, or one zero. Signed formats."""
    m = magnitude(code, fmt)
    alone = (m == 0) & (fmt.negative_zero == 0)
    return where(alone, code, code ^ (1 << (magnitude_bits(fmt) + fmt.pad)))


@njit
def absolute(code, fmt):
    """The code of |x|; the sign of a NaN is cleared, unless the format has one NaN only. Any format."""
    return where(sign(code, fmt) > 0, neg(code, fmt), code)


@njit
def copysign(code, signs, fmt):
    """x with the sign of the other code; NaN and zero where they have one code only stay. Signed formats."""
    return where(sign(code, fmt) != sign(signs, fmt), neg(code, fmt), code)


@njit
def key(code, fmt):
    """An integer in the order of the values; -0 lies just below +0. Not for NaN."""
    m = magnitude(code, fmt)
    return where(sign(code, fmt) > 0, -1 - m, m)


@njit
def order(a, b, fmt):
    """-1, 0 or 1 as a is below, equal to or above b; 2 if one is NaN. The zeros are equal."""
    ma, mb = magnitude(a, fmt), magnitude(b, fmt)
    ka, kb = where(sign(a, fmt) > 0, 0 - ma, ma), where(sign(b, fmt) > 0, 0 - mb, mb)
    found = where(ka < kb, -1, where(ka > kb, 1, 0))
    return where((is_nan(a, fmt) > 0) | (is_nan(b, fmt) > 0), 2, found)


@njit
def quiet(code, fmt):
    """The NaN that an operation makes of this NaN: quiet, sign kept, payload dropped (policy "canonical")."""
    x = unpack(code, fmt)
    return nan_code(x.sign, x.sig, fmt, CANONICAL) << fmt.pad


@njit
def _select(a, b, fmt, take_a, number):
    """a or b, with the rule for NaN: the first NaN, or with `number` > 0 the other operand, if it is a number."""
    nan_a, nan_b = is_nan(a, fmt), is_nan(b, fmt)
    either = where(nan_a > 0, quiet(a, fmt), quiet(b, fmt))
    one = where(number > 0, where(nan_a > 0, b, a), either)
    found = where((nan_a | nan_b) > 0, one, where(take_a, a, b))
    return where((nan_a & nan_b) > 0, quiet(a, fmt), found)


@njit
def minimum(a, b, fmt):
    """The smaller, -0 below +0; NaN if one is NaN."""
    return _select(a, b, fmt, key(a, fmt) <= key(b, fmt), 0)


@njit
def maximum(a, b, fmt):
    """The larger, +0 above -0; NaN if one is NaN."""
    return _select(a, b, fmt, key(a, fmt) >= key(b, fmt), 0)


@njit
def minimum_number(a, b, fmt):
    """The smaller, -0 below +0; the number if only one is NaN."""
    return _select(a, b, fmt, key(a, fmt) <= key(b, fmt), 1)


@njit
def maximum_number(a, b, fmt):
    """The larger, +0 above -0; the number if only one is NaN."""
    return _select(a, b, fmt, key(a, fmt) >= key(b, fmt), 1)

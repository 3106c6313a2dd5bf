"""The special function unit of NVIDIA GPUs: MUFU.EX2, RCP, RSQ, SQRT on binary32 codes, in integers.

int64 code in, int64 code out. This is the body to read; `core.special_lanes` computes the same faster.
All four: cut the fraction into a segment and xl, add c0 + c1*xl + c2*xl^2 with a truncating squarer and a
bias that stands for rounding, truncate. Subnormal operands count as zero of their sign, subnormal results
become zero; NaN, and the square root of a negative number, give 0x7FFFFFFF.
Source: Oberman and Siu, ARITH-17 (2005), for the structure; the tables and every result are measured on an
H200 (sm_90), all 2^32 inputs of each function. The PTX names are ex2, rcp, rsqrt, sqrt .approx.ftz.f32.
"""

from .._jit import njit
from .bits import clamp, mask, where
from .special_squarer import squarer
from .special_tables import TABLES, columns

EX2, RCP = columns("ex2_1_2"), columns("rcp_1_2")
RSQRT, SQRT = columns("rsqrt_1_2", "rsqrt_2_4"), columns("sqrt_1_2", "sqrt_2_4")
EX2_BIAS, RCP_BIAS = TABLES["ex2_1_2"]["bias"], TABLES["rcp_1_2"]["bias"]
RSQRT_BIAS, SQRT_BIAS = TABLES["rsqrt_1_2"]["bias"], TABLES["sqrt_1_2"]["bias"]
MAGNITUDE, INFINITY, NAN = 0x7FFFFFFF, 0x7F800000, 0x7FFFFFFF
MIN_NORMAL = 1 << 23


@njit
def _ex2_fraction(fraction):
    """2^23 * 2^(fraction / 2^23), truncated. 0 <= fraction < 2^23."""
    row, xl = fraction >> 17, fraction & mask(17)
    return ((EX2[row, 0] << 13) + EX2[row, 1] * xl + EX2[row, 2] * squarer(xl) + EX2_BIAS) >> 15


@njit
def _rcp_fraction(fraction):
    """2^24 / (1 + fraction / 2^23), truncated: 2^23 < result <= 2^24."""
    row, xl = fraction >> 16, fraction & mask(16)
    return ((RCP[row, 0] << 13) - RCP[row, 1] * xl + RCP[row, 2] * squarer(2 * xl) + RCP_BIAS) >> 15


@njit
def _rsqrt_fraction(odd, fraction):
    """2^24 / sqrt(v), truncated; v = 1 + fraction / 2^23, doubled if odd. v = 1 is answered apart."""
    row, xl = (odd << 6) | (fraction >> 17), fraction & mask(17)
    y = ((RSQRT[row, 0] << 14) - RSQRT[row, 1] * xl + 4 * RSQRT[row, 2] * squarer(xl) + RSQRT_BIAS) >> 16
    return where((odd | fraction) == 0, 1 << 24, y)


@njit
def _sqrt_fraction(odd, fraction):
    """2^23 * sqrt(v), truncated; v = 1 + fraction / 2^23, doubled if odd."""
    row, xl = (odd << 6) | (fraction >> 17), fraction & mask(17)
    return ((SQRT[row, 0] << 15) + SQRT[row, 1] * xl - 2 * SQRT[row, 2] * squarer(xl) + SQRT_BIAS) >> 17


@njit
def ex2_approx_ftz(code):
    """2^x.

    NaN -> NaN; +-0, subnormal -> 1; 2^n for whole n is exact; above 2^127 -> +Inf; below 2^-126 -> +0.
    |x| is truncated to 23 fraction bits; for x < 0 the unit takes the ones' complement of a fraction that is
    not zero, not the two's: it reads x as 2^-23 lower.
    """
    magnitude = code & MAGNITUDE
    negative = (code >> 31) & 1
    exponent = clamp((magnitude >> 23) - 127, -24, 8)  # at 2^8 the answer is settled, below 2^-23 it is 1
    sig = (magnitude & mask(23)) | MIN_NORMAL
    fixed = where(exponent >= 0, sig << clamp(exponent, 0, 8), sig >> clamp(0 - exponent, 0, 24))
    whole = where((fixed & mask(23)) == 0, 1, 0)
    fixed = where(negative > 0, whole - 1 - fixed, fixed)
    power = fixed >> 23
    result = (clamp(power + 127, 0, 254) << 23) | (_ex2_fraction(fixed & mask(23)) & mask(23))
    result = where(power < -126, 0, result)
    result = where(power > 127, INFINITY, result)
    return where(magnitude > INFINITY, NAN, result)


@njit
def rcp_approx_ftz(code):
    """1 / x.

    NaN -> NaN; +-0, subnormal -> +-Inf; +-Inf, |x| > 2^126 -> +-0.
    """
    magnitude = code & MAGNITUDE
    sign = code & (MAGNITUDE + 1)
    result = ((252 - (magnitude >> 23)) << 23) + _rcp_fraction(magnitude & mask(23))  # y has its implicit bit
    result = where(result < MIN_NORMAL, 0, result)
    result = where(magnitude < MIN_NORMAL, INFINITY, result) | sign
    return where(magnitude > INFINITY, NAN, result)


@njit
def rsqrt_approx_ftz(code):
    """1 / sqrt(x).

    NaN -> NaN; +-0, subnormal -> +-Inf; x < 0 -> NaN; +Inf -> +0.
    """
    magnitude = code & MAGNITUDE
    sign = code & (MAGNITUDE + 1)
    exponent = (magnitude >> 23) - 127
    result = ((125 - (exponent >> 1)) << 23) + _rsqrt_fraction(exponent & 1, magnitude & mask(23))
    result = where(magnitude == INFINITY, 0, result)
    result = where(sign > 0, NAN, result)
    result = where(magnitude < MIN_NORMAL, INFINITY | sign, result)
    return where(magnitude > INFINITY, NAN, result)


@njit
def sqrt_approx_ftz(code):
    """sqrt(x).

    NaN -> NaN; +-0, subnormal -> +-0; x < 0 -> NaN; +Inf -> +Inf.
    """
    magnitude = code & MAGNITUDE
    sign = code & (MAGNITUDE + 1)
    exponent = (magnitude >> 23) - 127
    result = ((126 + (exponent >> 1)) << 23) + _sqrt_fraction(exponent & 1, magnitude & mask(23))
    result = where(magnitude == INFINITY, INFINITY, result)
    result = where(sign > 0, NAN, result)
    result = where(magnitude < MIN_NORMAL, sign, result)
    return where(magnitude > INFINITY, NAN, result)

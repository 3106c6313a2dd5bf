"""MUFU.LG2, SIN, COS and TANH on binary32 codes, in integers: interpolation, then a float cut to 24 bits.

int64 code in, int64 code out. Like the functions of `core.special_mufu` they add c0 + c1*xl + c2*S(xl), but the sum f
is a fixed-point number that is normalised and truncated. Every NaN result is 0x7FFFFFFF.
Source: Oberman and Siu, ARITH-17 (2005), for the structure; segments, widths, tables (data/mufu_normalised.json) and
every result are measured on an H200 (sm_90), all 2^32 inputs of the PTX functions that are these units.
"""

import json

import numpy as np

from .._jit import PACKAGE, njit
from .bits import clamp, mask, where
from .intrinsics import bits_to_f64, f32_to_bits, f64_to_bits
from .special_squarer import squarer

TABLES: dict[str, dict] = json.loads((PACKAGE / "data" / "mufu_normalised.json").read_text())["tables"]
MAGNITUDE, INFINITY, NAN, ONE = 0x7FFFFFFF, 0x7F800000, 0x7FFFFFFF, 0x3F800000
MIN_NORMAL = 1 << 23
LG2_UNIT, LG2_BIAS = TABLES["lg2"]["unit"], TABLES["lg2"]["bias"]
SIN_UNIT, TANH_UNIT = TABLES["sin"]["unit"], TABLES["tanh"]["unit"]
TURN = 25  # the angle is a fixed-point fraction of a revolution with so many bits; the upper two are the quarter
TANH_FIRST, TANH_LAST = -8, 2  # exponents of the binades in tanh's table


def columns(name: str) -> np.ndarray:
    """int64 (segments, 3): c0 << s0 with the bias, k1*c1, k2*c2."""
    table = TABLES[name]
    c0, c1, c2 = (np.array(table[c], np.int64) for c in ("c0", "c1", "c2"))
    return np.stack([(c0 << table["s0"]) + table["bias"], table["k1"] * c1, table["k2"] * c2], axis=1)


def binades() -> np.ndarray:
    """int64 (11, 2): for each binade of tanh's table its first segment, and the fraction bits below xl."""
    parts = np.array(TABLES["tanh"]["parts"])
    below = [23 - TABLES["tanh"]["xl_bits"] - int(n).bit_length() + 1 for n in parts]
    return np.stack([np.cumsum(parts) - parts, below], axis=1).astype(np.int64)


LG2, SIN, TANH, BINADES = columns("lg2"), columns("sin"), columns("tanh"), binades()


@njit
def _interpolated(table, row, xl):
    """f of a segment. 0 <= xl < 2^17."""
    return table[row, 0] + table[row, 1] * xl + table[row, 2] * squarer(xl)


@njit
def _truncated(f, unit):
    """The code of f * 2^-unit, truncated to 24 bits; zero for f = 0. 0 <= f < 2^48; the result is normal.

    Through binary64, which holds f: cutting 29 of its bits leaves a binary32.
    """
    cut = bits_to_f64(f64_to_bits(np.float64(f)) & ~mask(29))
    code = np.int64(f32_to_bits(np.float32(cut)))
    return where(f == 0, 0, code - (unit << 23))


@njit
def lg2_approx_ftz(code):
    """log2(x): MUFU.LG2 (lg2.approx.ftz.f32).

    NaN -> NaN; +-0, subnormal -> -Inf; x < 0 -> NaN; +Inf -> +Inf; 1 -> +0. The sum of exponent and fraction has 36
    bits below the point: small results are exact multiples of 2^-36.
    """
    magnitude = code & MAGNITUDE
    exponent, fraction = (magnitude >> 23) - 127, magnitude & mask(23)
    total = (exponent << LG2_UNIT) + _interpolated(LG2, fraction >> 17, fraction & mask(17))
    size = where(total < 0, 0 - total, total) >> 3
    result = _truncated(size, LG2_UNIT - 3) | where(total < 0, 1 << 31, 0)
    result = where(magnitude == ONE, 0, result)
    result = where(magnitude == INFINITY, INFINITY, result)
    result = where(code > MAGNITUDE, NAN, result)
    result = where(magnitude < MIN_NORMAL, INFINITY | (1 << 31), result)
    return where(magnitude > INFINITY, NAN, result)


@njit
def _turned(code):
    """(fixed, sign): |x| modulo one revolution, x in revolutions, truncated to 2^-25 of one; the sign bit of x."""
    magnitude = code & MAGNITUDE
    shift = (magnitude >> 23) - 127 - 23 + TURN
    sig = (magnitude & mask(23)) | MIN_NORMAL
    fixed = where(shift >= 0, sig << clamp(shift, 0, TURN), sig >> clamp(0 - shift, 0, 24)) & mask(TURN)
    return fixed, (code >> 31) & 1


@njit
def _wave(fixed, sign):
    """The code of the sine of an angle of fixed * 2^-25 revolutions, negated if sign."""
    backwards = (fixed >> 23) & 1
    place = where(backwards > 0, ~fixed, fixed) & mask(23)  # ones' complement
    result = _truncated(_interpolated(SIN, place >> 17, place & mask(17)), SIN_UNIT)
    return result | ((((fixed >> 24) ^ sign) & 1) << 31)


@njit
def sin_of_turns(code):
    """sin(2 pi x): MUFU.SIN. NaN, +-Inf -> NaN; sine is odd, its zeros included."""
    fixed, sign = _turned(code)
    return where((code & MAGNITUDE) >= INFINITY, NAN, _wave(fixed, sign))


@njit
def cos_of_turns(code):
    """cos(2 pi x): MUFU.COS, the sine a quarter of a revolution further. NaN, +-Inf -> NaN; cosine is even."""
    fixed, _ = _turned(code)
    further = (fixed + (1 << (TURN - 2))) & mask(TURN)
    return where((code & MAGNITUDE) >= INFINITY, NAN, _wave(further, 0))


@njit
def tanh_approx(code):
    """tanh(x): MUFU.TANH (tanh.approx.f32).

    NaN -> NaN; |x| < 2^-8, subnormals too -> x itself; |x| >= 8 -> +-1; odd.
    """
    magnitude = code & MAGNITUDE
    exponent, fraction = (magnitude >> 23) - 127, magnitude & mask(23)
    row = clamp(exponent, TANH_FIRST, TANH_LAST) - TANH_FIRST
    place = fraction >> BINADES[row, 1]
    f = _interpolated(TANH, BINADES[row, 0] + (place >> 17), place & mask(17))
    result = where(exponent < TANH_FIRST, magnitude, _truncated(f, TANH_UNIT))
    result = where(exponent > TANH_LAST, ONE, result) | (code & (MAGNITUDE + 1))
    return where(magnitude > INFINITY, NAN, result)

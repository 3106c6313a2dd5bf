"""Correctly rounded binary32 exp: the same bits on every host, whatever its C library.

The library's binary64 exp is off by less than an ulp or so, 2^-50 to be safe. Where both ends of that interval
round to one float32, it is the answer; elsewhere (a few dozen of all float32 arguments) exp is computed again in
pairs of binary64, about 2^-95, far closer than any float32 argument comes to a rounding border.
"""

import math

import numpy as np

from .._jit import njit
from .exactsum import to_f32, two_sum
from .intrinsics import fma_f64

DOUBT = 2.0**-50
LN2_HIGH = float.fromhex("0x1.62e42fefa0000p-1")  # ln 2 cut to 37 bits, so k * LN2_HIGH is exact for |k| < 2^16
LN2_MIDDLE = float.fromhex("0x1.cf79abc9e3b3ap-40")  # RN(ln 2 - LN2_HIGH)
LN2_LOW = float.fromhex("-0x1.ff0342542fc33p-94")  # RN(ln 2 - LN2_HIGH - LN2_MIDDLE)


@njit
def _multiply(ah, al, bh, bl):
    """(ah + al) * (bh + bl) as a pair; relative error below 2^-100."""
    high = ah * bh
    low = fma_f64(ah, bh, -high) + (ah * bl + al * bh)
    return two_sum(high, low)


@njit
def _add(ah, al, bh, bl):
    """(ah + al) + (bh + bl) as a pair."""
    high, low = two_sum(ah, bh)
    return two_sum(high, low + (al + bl))


@njit
def _exp_pair(x):
    """(high, low), high + low = exp(x) to about 2^-95 relative, scaled by 2^-k; and k. x: float64, |x| < 120."""
    k = np.floor(x / LN2_HIGH + 0.5)
    rh, rl = two_sum(x - k * LN2_HIGH, -k * LN2_MIDDLE)  # the first difference is exact
    rl += fma_f64(-k, LN2_MIDDLE, k * LN2_MIDDLE) - k * LN2_LOW
    rh, rl = two_sum(rh, rl)
    rh, rl = rh / 256.0, rl / 256.0
    high, low = 1.0, 0.0
    for n in range(12, 0, -1):  # 1 + r/1 (1 + r/2 (1 + ..)), |r| < 0.0014
        ph, pl = _multiply(high, low, rh, rl)
        quotient = ph / n
        rest = fma_f64(-quotient, float(n), ph) + pl
        high, low = _add(1.0, 0.0, quotient, rest / n)
    for _ in range(8):
        high, low = _multiply(high, low, high, low)
    return high, low, k


@njit
def exp_f32(x):
    """float32 nearest to e^x; x: float32. NaN stays NaN, -Inf gives 0, subnormal results are kept."""
    wide = np.float64(x)
    y = math.exp(wide)
    below, above = np.float32(y * (1.0 - DOUBT)), np.float32(y * (1.0 + DOUBT))
    if below == above or not (abs(wide) < 120.0):
        return np.float32(y)
    high, low, k = _exp_pair(wide)
    scale = math.ldexp(1.0, int(k))
    return to_f32(high * scale, low * scale)


@njit
def exp_all(x, out):
    """out[i] = exp_f32(x[i]); float32, one-dimensional."""
    for i in range(x.size):
        out[i] = exp_f32(x[i])

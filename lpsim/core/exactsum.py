"""Exact sums and dot products, rounded once to binary32: what "fp32 accumulation" would give with no error at all.

Terms are binary64; products of two binary32 with at most 24 bits each are exact there. Two error levels are
carried: as long as the second stays zero, total + error is the sum exactly. Where it does not, the terms
are added again into non-overlapping partial sums, which hold any sum exactly (Shewchuk 1997, section 2).
"""

import numpy as np

from .._jit import njit
from .intrinsics import bits_to_f64, f64_to_bits

PARTIALS = 640  # non-overlapping numbers hold a bit or more each; products of binary32 span 2^-298 to 2^256 a term


@njit
def two_sum(a, b):
    """(s, e) with s = RN(a + b) and s + e = a + b exactly. Source: Knuth, TAOCP 2, 4.2.2."""
    s = a + b
    b_part = s - a
    return s, (a - (s - b_part)) + (b - b_part)


@njit
def to_f32(high, low):
    """float32 nearest to high + low, |low| <= ulp(high)/2: to odd first, so that the second rounding is harmless."""
    if low != 0.0 and np.isfinite(high):
        bits = f64_to_bits(high)
        if bits & 1 == 0:
            away = (low > 0.0) == (high > 0.0)
            high = bits_to_f64(bits + (1 if away else -1))
    return np.float32(high)


@njit
def _grow(partials, count, x):
    """Add x to the non-overlapping partials, smallest first; the new count."""
    kept = 0
    for i in range(count):
        x, error = two_sum(x, partials[i]) if abs(x) >= abs(partials[i]) else two_sum(partials[i], x)
        if error != 0.0:
            partials[kept] = error
            kept += 1
    partials[kept] = x
    return kept + 1


@njit
def _round_partials(partials, count):
    """float32 nearest to the sum of the partials: the top two, the second made odd if anything lies below."""
    high, low = partials[count - 1], 0.0
    i = count - 2
    while i >= 0 and low == 0.0:  # exact until an error appears
        high, low = two_sum(high, partials[i])
        i -= 1
    return to_f32(high, low)


@njit
def dot_f32(a, b):
    """float32 nearest to sum(a[k] * b[k]); a, b: float32 (K,). An empty or zero sum is +0; Inf and NaN as IEEE."""
    total, error, second = 0.0, 0.0, 0.0
    for k in range(a.size):
        total, e1 = two_sum(total, np.float64(a[k]) * np.float64(b[k]))
        error, e2 = two_sum(error, e1)
        second += abs(e2)
    if not np.isfinite(total):
        return np.float32(total)
    if second == 0.0:
        high, low = two_sum(total, error)
        return to_f32(high, low)
    partials, count = np.empty(PARTIALS), 0
    for k in range(a.size):
        count = _grow(partials, count, np.float64(a[k]) * np.float64(b[k]))
    return _round_partials(partials, count)


@njit
def matmul_f32(a, b, out):
    """out[i, j] = dot_f32(a[i], b[j]); a: float32 (M, K), b: float32 (N, K), both C-contiguous, out: float32 (M, N)."""
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            out[i, j] = dot_f32(a[i], b[j])


@njit
def rows_f32(x, ones, out):
    """out[i] = float32 nearest to the exact sum of row i; x: float32 (M, N), ones: float32 (N,), all 1."""
    for i in range(x.shape[0]):
        out[i] = dot_f32(x[i], ones)

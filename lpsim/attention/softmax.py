"""The running maximum, weights and sum of one key tile, as a Triton kernel for sm_90 computes them.

Base 2; scores come unscaled from the dot, `scale` is RN(softmax scale * log2 e). float32 throughout, one operation
a line, in the order of the compiled kernel: the bits depend on it.
"""

import numpy as np

from .._jit import njit
from ..core.intrinsics import fma_f32
from ..core.special import div_full_f32, ex2_f32, log2_f32

f32 = np.float32
MINUS_INFINITY = f32(-np.inf)


@njit
def max_f32(a, b):
    """max.f32: a NaN operand is ignored, +0 is larger than -0. Source: PTX ISA, max."""
    if a != a:
        return b
    if b != b or a > b:
        return a
    if a == b:
        return a + b if a == f32(0.0) else a  # only two -0 give -0
    return b


@njit
def row_sum(p):
    """Sum of one row of an accumulator tile, in the order of its registers and lanes.

    Thread t holds columns 8j + 2t and 8j + 2t + 1 and adds them for ascending j; then lanes 2 apart are added,
    then lanes 1 apart. p: float32 (keys,), a multiple of 8. Source: wgmma accumulator layout, Triton 3.6 tl.sum.
    """
    t0, t1, t2, t3 = p[0] + p[1], p[2] + p[3], p[4] + p[5], p[6] + p[7]
    for j in range(8, p.size, 8):
        t0 = (t0 + p[j]) + p[j + 1]
        t1 = (t1 + p[j + 2]) + p[j + 3]
        t2 = (t2 + p[j + 4]) + p[j + 5]
        t3 = (t3 + p[j + 6]) + p[j + 7]
    return (t0 + t2) + (t1 + t3)


@njit
def tile_maximum(s, scale, beta, tolerance):
    """RN(max(s) * scale), or what the dynamic maximum puts in its place. s: float32 (keys,).

    beta 0: plain. A tie is an entry with max * scale - s * scale <= tolerance (log2 units), one fma.
    """
    largest = s[0]
    for k in range(1, s.size):
        largest = max_f32(largest, s[k])
    r = largest * scale
    if beta == f32(0.0) or not (r > MINUS_INFINITY):
        return r
    ties = 0
    for k in range(s.size):
        if -fma_f32(s[k], scale, -r) <= tolerance:
            ties += 1
    if ties > 1 and r > f32(0.0):
        return r * beta
    return f32(0.0) if ties > 1 and r < f32(0.0) else r


@njit
def maxima(s, scale, beta, tolerance, m):
    """m[i] = max(m[i], the tile maximum of row i). s: float32 (rows, keys), masked scores -inf; m: float32 (rows,)."""
    for i in range(s.shape[0]):
        m[i] = max_f32(m[i], tile_maximum(s[i], scale, beta, tolerance))


@njit
def weights(s, scale, m_old, m, alpha, p):
    """p = EX2(fma(s, scale, -m)) and alpha = EX2(m_old - m). s, p: (rows, keys); m_old, m, alpha: (rows,); float32."""
    for i in range(s.shape[0]):
        for k in range(s.shape[1]):
            p[i, k] = ex2_f32(fma_f32(s[i, k], scale, -m[i]))
        alpha[i] = ex2_f32(m_old[i] - m[i])


@njit
def sums(p, alpha, l):
    """l = fma(l, alpha, rowsum(p)); p: float32 (rows, keys), keys a multiple of 8; alpha, l: float32 (rows,)."""
    for i in range(p.shape[0]):
        l[i] = fma_f32(l[i], alpha[i], row_sum(p[i]))


@njit
def normalise(acc, l, o):
    """o = acc / l, as div.full; acc, o: float32 (rows, d), l: float32 (rows,)."""
    for i in range(acc.shape[0]):
        for c in range(acc.shape[1]):
            o[i, c] = div_full_f32(acc[i, c], l[i])


@njit
def log_sums(m, l, lse):
    """lse = m + tl.log2(l), base 2; float32 (rows,)."""
    for i in range(m.size):
        lse[i] = m[i] + log2_f32(l[i])

"""The running maximum, weights and sum of one key tile, as a Triton kernel for sm_90 computes them.

Base 2; scores come unscaled from the dot, `scale` is RN(softmax scale * log2 e). float32 throughout, one operation
a line, in the order of the compiled kernel: the bits depend on it.
"""

from typing import NamedTuple

import numpy as np

from .._jit import njit
from ..core.intrinsics import fma_f32
from ..core.special import div_full_f32, ex2_f32, log2_f32
from ..softmax_shift import Maximum

f32 = np.float32
MINUS_INFINITY = f32(-np.inf)
LOG2_E = f32(1.4426950408889634)  # 0x3FB8AA3B
LN_2 = f32(0.6931471805599453)
LARGEST_SHIFT = f32(1 << 23)  #: from here on float32 has no fraction


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


class Rule(NamedTuple):
    """`recipes.Maximum` in this arithmetic's types: float32, log2 units."""

    beta: np.float32
    tolerance: np.float32
    guard: bool
    across: bool  #: count ties over all tiles of a row
    every: bool  #: no ties needed
    threshold: np.float32


def rule(maximum: Maximum, unit: np.float32) -> Rule:
    """The rule in units of which one natural unit holds `unit`: log2 e in base 2, 1 in base e."""
    threshold = np.float32(maximum.threshold) * (unit / LOG2_E)
    tolerance = np.float32(maximum.tolerance) * unit
    scope = maximum.scope
    return Rule(np.float32(maximum.beta), tolerance, maximum.guard, scope == "row", scope == "every", threshold)


@njit
def displaced(r, beta, guard, binade):
    """What is subtracted in place of a tied maximum r: beta r above zero, 0 below (arXiv 2510.04212, section 4).

    guard: r plus that rule's shift modulo one binade (1 in base 2, ln 2 in base e). A shift by a whole binade
    changes no significand, so rounding sees the same weights; and no weight underflows that did not before.
    """
    if not guard:
        return r * beta if r > f32(0.0) else (f32(0.0) if r < f32(0.0) else r)
    shift = f32(r * f32(beta - f32(1.0))) if r > f32(0.0) else f32(-r)
    if not (shift < f32(LARGEST_SHIFT)):
        return r  # no fraction is left in float32
    binades = f32(np.floor(f32(shift / binade)))
    return f32(r + f32(shift - f32(binades * binade)))


@njit
def tile_maximum(s, scale, rule, seen, ties_seen):
    """(what m is compared with, the largest score of the row so far, how many scores tie with it).

    s: float32 (keys,); seen, ties_seen: the last two after the tile before. The first is RN(max(s) * scale) for the
    plain rule, beta 0. A tie is an entry with max * scale - s * scale <= tolerance (log2 units), one fma.
    """
    largest = s[0]
    for k in range(1, s.size):
        largest = max_f32(largest, s[k])
    r = f32(largest * scale)
    if rule.beta == f32(0.0) or not (r > MINUS_INFINITY):
        return r, seen, ties_seen
    if rule.every:
        return displaced(r, rule.beta, rule.guard, f32(1.0)), seen, ties_seen
    ties = 0
    if rule.across:
        ties = ties_seen if f32(r - seen) <= rule.tolerance else 0
        r = max_f32(r, seen)
    for k in range(s.size):
        if -fma_f32(s[k], scale, -r) <= rule.tolerance:
            ties += 1
    return displaced(r, rule.beta, rule.guard, f32(1.0)) if ties > 1 else r, r, ties


@njit
def maxima(s, scale, rule, seen, ties, m):
    """m[i] = max(m[i], the tile maximum of row i), if that is more than the threshold larger. In place, rows of s.

    s: float32 (rows, keys), masked scores -inf; m, seen: float32 (rows,); ties: int64 (rows,).
    """
    for i in range(s.shape[0]):
        r, seen[i], ties[i] = tile_maximum(s[i], scale, rule, seen[i], ties[i])
        if rule.threshold == f32(0.0) or not (f32(r - m[i]) <= rule.threshold):
            m[i] = max_f32(m[i], r)


@njit
def nearest_maxima(s, rule, seen, ties, m):
    """`maxima` in base e on scores that are scaled already: differences instead of fma, ln 2 for a binade."""
    for i in range(s.shape[0]):
        r = s[i, 0]
        for k in range(1, s.shape[1]):
            r = max_f32(r, s[i, k])
        if rule.beta != f32(0.0) and rule.every and r > MINUS_INFINITY:
            r = displaced(r, rule.beta, rule.guard, LN_2)
        elif rule.beta != f32(0.0) and r > MINUS_INFINITY:
            count = 0
            if rule.across:
                count = ties[i] if f32(r - seen[i]) <= rule.tolerance else 0
                r = max_f32(r, seen[i])
            for k in range(s.shape[1]):
                if f32(r - s[i, k]) <= rule.tolerance:
                    count += 1
            seen[i], ties[i] = r, count
            if count > 1:
                r = displaced(r, rule.beta, rule.guard, LN_2)
        if rule.threshold == f32(0.0) or not (f32(r - m[i]) <= rule.threshold):
            m[i] = max_f32(m[i], r)


@njit
def subtrahends(m, offset, out):
    """out = m - offset, and 0 for rows that have seen no key: their scores, -inf, then give weight 0, not NaN."""
    for i in range(m.size):
        out[i] = f32(m[i] - offset) if m[i] != MINUS_INFINITY else f32(0.0)


@njit
def biased(s, scale, bias, per_row):
    """s = fma(s, scale, RN(bias * log2 e)) in place, float32; s: (batch, rows, keys), bias: the same or 1, 1, keys."""
    for b in range(s.shape[0]):
        from_b = b if bias.shape[0] > 1 else 0
        for i in range(s.shape[1]):
            from_i = i if per_row else 0
            for k in range(s.shape[2]):
                s[b, i, k] = fma_f32(s[b, i, k], scale, f32(bias[from_b, from_i, k] * LOG2_E))


@njit
def weights(s, scale, taken, p):
    """p = EX2(fma(s, scale, -taken)). s, p: float32 (rows, keys); taken: float32 (rows,), from `subtrahends`."""
    for i in range(s.shape[0]):
        for k in range(s.shape[1]):
            p[i, k] = ex2_f32(fma_f32(s[i, k], scale, -taken[i]))


@njit
def rescalings(m_old, m, alpha):
    """alpha = EX2(m_old - m), 0 where no key was seen before; float32 (rows,)."""
    for i in range(m.size):
        alpha[i] = ex2_f32(f32(m_old[i] - m[i])) if m_old[i] != MINUS_INFINITY else f32(0.0)


@njit
def sums(p, alpha, l):
    """l = fma(l, alpha, rowsum(p)); p: float32 (rows, keys), keys a multiple of 8; alpha, l: float32 (rows,)."""
    for i in range(p.shape[0]):
        l[i] = fma_f32(l[i], alpha[i], row_sum(p[i]))


@njit
def normalise(acc, m, l, o):
    """o = acc / l, as div.full, and 0 for rows that saw no key; acc, o: float32 (rows, d), m, l: float32 (rows,)."""
    for i in range(acc.shape[0]):
        blind = m[i] == MINUS_INFINITY and l[i] == f32(0.0)
        for c in range(acc.shape[1]):
            o[i, c] = div_full_f32(acc[i, c], l[i]) if not blind else f32(0.0)


@njit
def log_sums(m, l, lse):
    """lse = m + tl.log2(l), base 2, -inf for rows that saw no key; float32 (rows,)."""
    for i in range(m.size):
        lse[i] = f32(m[i] + log2_f32(l[i]))

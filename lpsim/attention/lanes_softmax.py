"""`softmax` for many rows side by side: arrays (keys, lanes), lane j a query row. The same bits.

Each function does for all lanes, key by key, what its namesake in `softmax` does for one row after the other.
"""

from typing import NamedTuple

import numpy as np

from .._jit import merged, njit
from ..core.intrinsics import fma_f32, select
from ..core.special import rcp_f32
from ..core.special_loops import ex2_array
from ..core.special_recipes import canonical, divisor_scale
from .lanes import rounded
from .softmax import MINUS_INFINITY, displaced, max_f32

u64, f32 = np.uint64, np.float32


class Lanes(NamedTuple):
    """The softmax of some query rows while key tiles go by, arrays (lanes,), and work space."""

    m: np.ndarray  #: float32
    l: np.ndarray  #: float32
    seen: np.ndarray  #: float32: the largest score of the row so far (dynamic maximum)
    ties: np.ndarray  #: int64
    r: np.ndarray  #: float32: what m is compared with in this tile
    taken: np.ndarray  #: float32: what is subtracted from the scores
    change: np.ndarray  #: float32: m before less m after
    alpha: np.ndarray  #: float32
    sums: np.ndarray  #: float32 (4, lanes): what the four threads of a row hold


@merged
def new_lanes(width):
    """Lanes that have seen no key. The last vector may be larger than the lanes in use."""
    floats = np.zeros((6, width), f32)
    m, seen = np.full(width, MINUS_INFINITY), np.full(width, MINUS_INFINITY)
    ties, sums = np.zeros(width, np.int64), np.zeros((4, width), f32)
    return Lanes(m, floats[0], seen, ties, floats[1], floats[2], floats[3], floats[4], sums)


@merged
def _maxima(s, keys, n, scale, rule, x):
    """x.r = what m is compared with: the scaled largest score of the tile, or what the dynamic rule has instead.

    A NaN score is ignored: in `s > r` it is not the larger. A row of NaN gives -inf, which changes m no more than
    NaN does. Scores are never -0.
    """
    for j in range(u64(n)):
        x.r[j] = MINUS_INFINITY
    for k in range(u64(keys)):
        for j in range(u64(n)):
            x.r[j] = select(s[k, j] > x.r[j], s[k, j], x.r[j])
    for j in range(u64(n)):
        x.r[j] = f32(x.r[j] * scale)
    if rule.beta != f32(0.0):
        _dynamic(s, keys, n, scale, rule, x)


@merged
def _dynamic(s, keys, n, scale, rule, x):
    """`softmax.tile_maximum` once the largest score is known."""
    if rule.every:
        for j in range(n):
            if x.r[j] > MINUS_INFINITY:
                x.r[j] = displaced(x.r[j], rule.beta, rule.guard, f32(1.0))
        return
    largest, ties = np.empty(n, f32), np.zeros(n, np.int64)
    for j in range(n):
        largest[j] = x.r[j]
        if rule.across:
            ties[j] = x.ties[j] if f32(x.r[j] - x.seen[j]) <= rule.tolerance else 0
            largest[j] = max_f32(x.r[j], x.seen[j])
    for k in range(u64(keys)):
        for j in range(u64(n)):
            ties[j] += -fma_f32(s[k, j], scale, -largest[j]) <= rule.tolerance
    for j in range(n):
        if x.r[j] > MINUS_INFINITY:
            r = largest[j]
            x.seen[j], x.ties[j] = r, ties[j]
            x.r[j] = displaced(r, rule.beta, rule.guard, f32(1.0)) if ties[j] > 1 else r


@merged
def _update(n, offset, rule, x):
    """m after this tile, what is subtracted from the scores, and the rescaling factor alpha."""
    for j in range(n):
        m = x.m[j]
        if rule.threshold == f32(0.0) or not (f32(x.r[j] - m) <= rule.threshold):
            m = max_f32(m, x.r[j])
        x.change[j] = f32(x.m[j] - m)
        # A row that has seen no key: its scores, -inf, then give weight 0, and what it held, nothing, stays 0.
        x.change[j] = x.change[j] if x.m[j] != MINUS_INFINITY else MINUS_INFINITY
        x.taken[j] = f32(m - offset) if m != MINUS_INFINITY else f32(0.0)
        x.m[j] = m
    ex2_array(x.change[:n], x.alpha[:n])


@merged
def _weights(s, exponents, keys, n, scale, x):
    """s = EX2(fma(s, scale, -taken)); exponents: work space, both of s's shape, contiguous."""
    for k in range(u64(keys)):
        for j in range(u64(n)):
            exponents[k, j] = fma_f32(s[k, j], scale, -x.taken[j])
    ex2_array(exponents.reshape(exponents.size), s.reshape(s.size))


@merged
def _sums(p, keys, n, x):
    """l = fma(l, alpha, rowsum(p)); keys a multiple of 8. Thread t of four holds keys 8j + 2t and 8j + 2t + 1."""
    for t in range(u64(4)):
        for j in range(u64(n)):
            x.sums[t, j] = f32(0.0)
    for k in range(u64(keys)):
        t = (k & u64(7)) >> u64(1)
        for j in range(u64(n)):
            x.sums[t, j] = f32(x.sums[t, j] + p[k, j])
    t0, t1, t2, t3 = x.sums[0], x.sums[1], x.sums[2], x.sums[3]
    for j in range(u64(n)):
        total = f32(f32(t0[j] + t2[j]) + f32(t1[j] + t3[j]))
        x.l[j] = fma_f32(x.l[j], x.alpha[j], total)


@njit
def advance(s, p, keys, n, scale, offset, rule, l_rounded, cast, x):
    """One key tile: s holds its scores, -inf where there is no key, and then the exact weights, p those rounded.

    s, p: float32 (keys, lanes), contiguous, keys a multiple of 8; the first n lanes count. x: Lanes, changed.
    """
    _maxima(s, keys, n, scale, rule, x)
    _update(n, offset, rule, x)
    _weights(s, p, keys, n, scale, x)
    rounded(s, p, cast)
    _sums(p if l_rounded else s, keys, n, x)


@merged
def rescale(acc, n, x):
    """acc = acc * alpha; float32 (features, lanes)."""
    for c in range(u64(acc.shape[0])):
        for j in range(u64(n)):
            acc[c, j] = f32(acc[c, j] * x.alpha[j])


@merged
def normalise(acc, n, x, stop, o):
    """o[stop - 1 - j] = acc[:, j] / l[j], as div.full, and 0 for rows that saw no key; o: float32 (rows, features)."""
    for j in range(n):
        row, l = u64(stop - 1 - j), x.l[j]
        blind = x.m[j] == MINUS_INFINITY and l == f32(0.0)
        scale = divisor_scale(l)
        reciprocal = rcp_f32(f32(l * scale))
        for c in range(u64(acc.shape[0])):
            y = canonical(f32(f32(acc[c, u64(j)] * scale) * reciprocal))
            o[row, c] = f32(0.0) if blind else y

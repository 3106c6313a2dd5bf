"""Sums and dot products in a named order, every addition one rounding: plain loops over bits of binary64.

An array of leaves is joined to one number; a join works in place. Leaves are exact values and are not rounded
before they are added. Three arrays travel along: `words`, one random integer for each rounding, in the order in
which they happen, or empty; `steps` (n, 6), what each rounding saw, or (0, 6); `state`, how many there were, and
whether one had no answer.
"""

from typing import NamedTuple

import numpy as np

from .._jit import njit
from ..formats import Format
from ..policies import Policy
from . import arith
from .bits import mask
from .codec import pack_f64, unpack, unpack_f64
from .exactsum import two_sum
from .intrinsics import bits_to_f64, f64_to_bits
from .rounding import round_to

SEQUENTIAL, KAHAN, PAIRWISE, TREE, HALVES = range(5)
CAST, ADD, SUB, MUL, FMA = range(5)
SIGN = np.int64(-1 << 63)
WITHIN, ACROSS, PARTIAL, FINAL = range(4)  # which of a plan's four formats a rounding went to


class Target(NamedTuple):
    """What a rounding goes to."""

    fmt: Format
    policy: Policy
    level: int
    drop: int  #: bits of a binary64 that are cut off where `_quick` applies; 0: it never does
    lowest: int  #: binary64 exponent fields of the results to which it applies
    highest: int


class Plan(NamedTuple):
    """One reduction of n leaves, resolved: blocks of `size`, joined inside, stored, joined across, cast."""

    inner: int
    outer: int
    size: int  #: leaves of a block; the last block may have fewer
    stores: int  #: 1 if the sum of a block is rounded to `partial` when it is done
    casts: int  #: 1 if the total is rounded to `final`
    within: Target
    across: Target
    partial: Target
    final: Target


@njit
def _quick(bits, to):
    """(1, bits of binary64 rounded to nearest even), or (0, bits) outside the normal range of to.fmt."""
    field = (bits >> 52) & 0x7FF
    if field < to.lowest or field > to.highest:
        return 0, bits
    return 1, ((bits + (1 << (to.drop - 1)) - 1 + ((bits >> to.drop) & 1)) >> to.drop) << to.drop


@njit
def _odd_sum(a, b):
    """Bits of a + b rounded to odd in binary64, which no later rounding to 51 bits or fewer can tell from the sum."""
    high, low = two_sum(bits_to_f64(a), bits_to_f64(b))
    bits = np.int64(f64_to_bits(high))
    if low != 0.0 and (bits & 1) == 0:
        bits += 1 if (low > 0.0) == (high > 0.0) else -1
    return bits


@njit
def _note(op, a, b, c, result, to, steps, state):
    """The result; the step is counted, and written down if there is room."""
    k = state[0]
    if k < steps.shape[0]:
        steps[k, 0], steps[k, 1], steps[k, 2], steps[k, 3], steps[k, 4], steps[k, 5] = op, a, b, c, result, to.level
    state[0] = k + 1
    return result


@njit
def _done(op, a, b, c, step, to, steps, state):
    """The rounded result as bits of binary64."""
    n = unpack(step.code, to.fmt)
    state[1] |= step.lost
    return _note(op, a, b, c, pack_f64(n.kind, n.sign, n.exp, n.sig), to, steps, state)


@njit
def _word(words, state):
    return words[state[0]] if words.size > 0 else 0


@njit
def cast(a, to, words, steps, state):
    """a rounded."""
    x = arith.flush(unpack_f64(a), to.fmt, to.policy)
    step = round_to(x.kind, x.sign, x.exp, x.sig, to.fmt, to.policy, _word(words, state))
    return _done(CAST, a, 0, 0, step, to, steps, state)


@njit
def _quick_sum(a, b, to):
    """`_quick` of a + b; a sum of zero is exact, and binary64 knows its sign."""
    total = _odd_sum(a, b)
    if (total << 1) == 0:
        return 1, total if to.fmt.negative_zero else total & 0
    return _quick(total, to)


@njit
def add(a, b, to, words, steps, state):
    """a + b rounded."""
    if to.drop > 0:
        done, result = _quick_sum(a, b, to)
        if done:
            return _note(ADD, a, b, 0, result, to, steps, state)
    step = arith.add(unpack_f64(a), unpack_f64(b), to.fmt, to.policy, _word(words, state))
    return _done(ADD, a, b, 0, step, to, steps, state)


@njit
def sub(a, b, to, words, steps, state):
    """a - b rounded."""
    if to.drop > 0:
        done, result = _quick_sum(a, b ^ SIGN, to)
        if done:
            return _note(SUB, a, b, 0, result, to, steps, state)
    step = arith.sub(unpack_f64(a), unpack_f64(b), to.fmt, to.policy, _word(words, state))
    return _done(SUB, a, b, 0, step, to, steps, state)


@njit
def mul(a, b, to, words, steps, state):
    """a * b rounded."""
    if to.drop > 0 and ((a | b) & mask(27)) == 0:  # at most 26 bits each: the product is exact
        done, result = _quick(np.int64(f64_to_bits(bits_to_f64(a) * bits_to_f64(b))), to)
        if done:
            return _note(MUL, a, b, 0, result, to, steps, state)
    step = arith.mul(unpack_f64(a), unpack_f64(b), to.fmt, to.policy, _word(words, state))
    return _done(MUL, a, b, 0, step, to, steps, state)


@njit
def fma(a, b, c, to, words, steps, state):
    """a * b + c rounded once."""
    step = arith.fma(unpack_f64(a), unpack_f64(b), unpack_f64(c), to.fmt, to.policy, _word(words, state))
    return _done(FMA, a, b, c, step, to, steps, state)


@njit
def _sequential(v, to, words, steps, state):
    """((v0 + v1) + v2) + ..."""
    total = v[0]
    for i in range(1, v.size):
        total = add(total, v[i], to, words, steps, state)
    return total


@njit
def _kahan(v, to, words, steps, state):
    """y = v - c, t = s + y, c = (t - s) - y, s = t; s begins as v0 rounded, c as +0. Source: Kahan 1965."""
    total = cast(v[0], to, words, steps, state)
    lost = total & 0
    for i in range(1, v.size):
        y = sub(v[i], lost, to, words, steps, state)
        t = add(total, y, to, words, steps, state)
        lost = sub(sub(t, total, to, words, steps, state), y, to, words, steps, state)
        total = t
    return total


@njit
def _pairwise(v, to, words, steps, state):
    """(sum of the first n // 2) + (sum of the rest), each in the same way; the left half is added first."""
    stack = np.zeros((4, 64), np.int64)
    low, high, phase, left = stack[0], stack[1], stack[2], stack[3]
    top, result = 0, v[0]
    high[0] = v.size
    while top >= 0:
        middle = low[top] + (high[top] - low[top]) // 2
        if high[top] - low[top] == 1:
            result = v[low[top]]
            top -= 1
        elif phase[top] < 2:  # go into one half
            begin, end = low[top], middle
            if phase[top] == 1:
                left[top], begin, end = result, middle, high[top]
            phase[top] += 1
            top += 1
            low[top], high[top], phase[top] = begin, end, 0
        else:
            result = add(left[top], result, to, words, steps, state)
            top -= 1
    return result


@njit
def _tree(v, to, words, steps, state):
    """Neighbours v0 + v1, v2 + v3, ..., level by level; an odd last one moves up as it is."""
    n = v.size
    while n > 1:
        for i in range(n // 2):
            v[i] = add(v[2 * i], v[2 * i + 1], to, words, steps, state)
        if n & 1:
            v[n // 2] = v[n - 1]
        n = (n + 1) // 2
    return v[0]


@njit
def _halves(v, to, words, steps, state):
    """v0 + v[h], v1 + v[h + 1], ... with h half of the length, rounded up, until one is left: a butterfly of lanes."""
    n = v.size
    while n > 1:
        half = (n + 1) // 2
        for i in range(n - half):
            v[i] = add(v[i], v[i + half], to, words, steps, state)
        n = half
    return v[0]


@njit
def _join(v, how, to, words, steps, state):
    if how == SEQUENTIAL:
        return _sequential(v, to, words, steps, state)
    if how == KAHAN:
        return _kahan(v, to, words, steps, state)
    if how == PAIRWISE:
        return _pairwise(v, to, words, steps, state)
    if how == TREE:
        return _tree(v, to, words, steps, state)
    return _halves(v, to, words, steps, state)


@njit
def _fma_chain(a, b, to, words, steps, state):
    """fma(a2, b2, fma(a1, b1, a0 * b0)), the first product rounded."""
    total = mul(a[0], b[0], to, words, steps, state)
    for i in range(1, a.size):
        total = fma(a[i], b[i], total, to, words, steps, state)
    return total


@njit
def reduce(a, b, kind, plan, words, steps, state, partials):
    """The sum of a (kind CAST), of the rounded products a * b (MUL), or of a * b by fma (FMA); a is overwritten."""
    blocks = (a.size + plan.size - 1) // plan.size
    for block in range(blocks):
        start = block * plan.size
        stop = min(start + plan.size, a.size)
        if kind == FMA:
            total = _fma_chain(a[start:stop], b[start:stop], plan.within, words, steps, state)
        else:
            if kind == MUL:
                for i in range(start, stop):
                    a[i] = mul(a[i], b[i], plan.within, words, steps, state)
            total = _join(a[start:stop], plan.inner, plan.within, words, steps, state)
        partials[block] = cast(total, plan.partial, words, steps, state) if plan.stores else total
    total = _join(partials[:blocks], plan.outer, plan.across, words, steps, state)
    return cast(total, plan.final, words, steps, state) if plan.casts else total


@njit
def reduce_rows(a, b, kind, plan, words, steps, state, partials, out):
    """out[i] = `reduce` of row i; a, b int64 (rows, n), words (rows, roundings) or (rows, 0). steps: the last row."""
    for i in range(out.size):
        state[0] = 0
        out[i] = reduce(a[i], b[i], kind, plan, words[i], steps, state, partials)

"""Attention in the arithmetic `nearest`, written down once more: one row, one number at a time, in Fractions.

Only the oracle rounds. It reads a recipe's sites and switches; it shares no code with the package. Source:
Qiu and Yao, arXiv 2510.04212, Algorithms 1 and 2, with every dot, row sum and exponential the float32 nearest
to the exact one.
"""

from fractions import Fraction

import numpy as np

import oracle
from exact_exp import nearest_exp
from lpsim.formats import FORMATS

FP32 = FORMATS["fp32"]


def rounded(x: Fraction, fmt=FP32, rounding="rne") -> Fraction:
    """x as a value of fmt; it must not overflow."""
    code = oracle.encode(oracle.number(x), fmt, rounding)
    assert code is not None
    value = oracle.decode(code, fmt)
    assert isinstance(value.magnitude, Fraction), x
    return (-1) ** value.sign * value.magnitude


def at(site, x: Fraction) -> Fraction:
    """A float32 at a site of a recipe whose inputs are bf16."""
    if site is None:
        return x
    return rounded(x, FORMATS["bf16" if site.fmt == "input" else site.fmt], site.rounding)


def exp(x: Fraction) -> Fraction:
    value = oracle.decode(nearest_exp(x), FP32)
    assert isinstance(value.magnitude, Fraction)
    return value.magnitude


def tile_maximum(scores: list[Fraction], maximum) -> Fraction:
    """The largest score, or the dynamic maximum in its place."""
    r = max(scores)
    beta, tolerance = Fraction(maximum.beta), Fraction(maximum.tolerance)
    tied = sum(r - s <= tolerance for s in scores) > 1
    if beta == 0 or not tied or r == 0:
        return r
    return rounded(r * beta) if r > 0 else Fraction(0)


def row(q, k, v, recipe, scale: Fraction, keys: int, visible: int):
    """(o, m, l) of one query row that sees the keys 0..visible-1 in tiles of `keys`; lists of Fractions in and out."""
    d = len(q)
    m, l, acc = None, Fraction(0), [Fraction(0)] * d
    for first in range(0, visible, keys):
        seen = range(first, min(first + keys, visible))
        dots = [rounded(sum((a * b for a, b in zip(q, k[j], strict=True)), Fraction(0))) for j in seen]
        scores = [at(recipe.S, rounded(dot * scale)) for dot in dots]
        top = tile_maximum(scores, recipe.maximum)
        new = at(recipe.m, top if m is None else max(m, top))
        weights = [exp(at(recipe.shift, rounded(s - new))) for s in scores]
        stored = [at(recipe.P, p) for p in weights]
        alpha = Fraction(0) if m is None else exp(rounded(m - new))
        total = rounded(sum(stored if recipe.l_from == "rounded" else weights, Fraction(0)))
        l = at(recipe.l, rounded(rounded(alpha * l) + total))
        for c in range(d):
            pv = rounded(sum((p * v[j][c] for p, j in zip(stored, seen, strict=True)), Fraction(0)))
            kept = at(recipe.acc, rounded(acc[c] * alpha))
            acc[c] = at(recipe.acc, rounded(kept + at(recipe.PV, pv)))
        m = new
    fmt, rounding = (FP32, "rne") if recipe.O is None else (FORMATS[recipe.O.fmt], recipe.O.rounding)
    return [rounded(x / l, fmt, rounding) for x in acc], m, l


def forward(q, k, v, recipe, keys: int, causal: bool):
    """o (n, d), m, l (n,) as float64 arrays; q, k, v: (n, d) and (n_keys, d) floats on bf16's grid."""
    q, k, v = ([[Fraction(float(x)) for x in line] for line in np.asarray(x)] for x in (q, k, v))
    scale = rounded(Fraction(1.0 / float(np.sqrt(len(q[0])))))
    rows = [row(line, k, v, recipe, scale, keys, i + 1 if causal else len(k)) for i, line in enumerate(q)]
    return tuple(np.array([[float(x) for x in o] if isinstance(o, list) else float(o) for o in column])
                 for column in zip(*rows, strict=True))  # fmt: skip

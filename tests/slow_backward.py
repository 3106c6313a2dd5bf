"""The backward pass in the arithmetic `nearest`, written down once more in Fractions: see slow_attention."""

from fractions import Fraction

import numpy as np

from slow_attention import at, exp, rounded


def _dot(a, b) -> Fraction:
    return rounded(sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0)))


def _scores(q, k, recipe, scale):
    return [[at(recipe.S, rounded(at(recipe.QK, _dot(a, b)) * scale)) for b in k] for a in q]


def _tiled(terms: list[Fraction], size: int, order) -> Fraction:
    """RN(total + RN(tile)) over tiles of `size`; order: which elements there are, ascending."""
    total, count = Fraction(0), len(terms)
    for first in range(0, count, size):
        part = [terms[i] for i in range(first, min(first + size, count)) if i in order]
        if part:
            total = rounded(total + rounded(sum(part, Fraction(0))))
    return total


def backward(q, k, v, o, lse, do, recipe, tile: tuple[int, int], causal: bool):
    """dq, dk, dv before their sites, and delta, as float64 arrays; all inputs (n, d) floats, lse (n,)."""
    q, k, v, o, do = ([[Fraction(float(x)) for x in line] for line in np.asarray(x)] for x in (q, k, v, o, do))
    n, n_keys, d = len(q), len(k), len(q[0])
    lse = [Fraction(float(x)) for x in lse]
    scale = rounded(Fraction(1.0 / float(np.sqrt(d))))
    seen = [[j for j in range(n_keys) if not causal or j <= i] for i in range(n)]
    s = _scores(q, k, recipe, scale)
    p = [[exp(rounded(s[i][j] - lse[i])) if j in seen[i] else Fraction(0) for j in range(n_keys)] for i in range(n)]
    dp = [[at(recipe.dP, _dot(do[i], v[j])) for j in range(n_keys)] for i in range(n)]
    delta = []
    for i in range(n):
        if recipe.delta_from == "O":
            x = _dot(o[i], do[i])
        elif recipe.delta_from == "P":
            x = _tiled([a * b for a, b in zip(p[i], dp[i], strict=True)], tile[1], seen[i])
        else:
            again = [_tiled([p[i][j] * v[j][c] for j in range(n_keys)], tile[1], seen[i]) for c in range(d)]
            x = _dot(again, do[i])
        delta.append(at(recipe.delta, x))
    ds = [[at(recipe.dS, rounded(p[i][j] * rounded(dp[i][j] - delta[i]))) for j in range(n_keys)] for i in range(n)]
    kept = [[at(recipe.PdV, x) for x in line] for line in p]
    everywhere = range(n)
    dq = [[rounded(scale * _tiled([ds[i][j] * k[j][c] for j in range(n_keys)], tile[1], seen[i])) for c in range(d)]
          for i in range(n)]  # fmt: skip
    dk = [[rounded(scale * _tiled([ds[i][j] * q[i][c] for i in range(n)], tile[0], everywhere)) for c in range(d)]
          for j in range(n_keys)]  # fmt: skip
    dv = [[_tiled([kept[i][j] * do[i][c] for i in range(n)], tile[0], everywhere) for c in range(d)]
          for j in range(n_keys)]  # fmt: skip
    return tuple(np.array([[float(x) for x in line] for line in table]) for table in (dq, dk, dv)) + (
        np.array([float(x) for x in delta]),
    )

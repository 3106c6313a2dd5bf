"""How the signed error of O builds up, key by key, on rows whose maximum is tied.

All query rows of a batch are one and the same vector. Then row t of causal attention is attention over the
keys 0..t, and one call gives the output after every key. Two keys share the maximum; the others hold a small
residual weight; V is negative, as in the paper's feature 20 (arXiv 2510.04212, figure 6).
"""

from typing import NamedTuple

import numpy as np

from .. import arrays, attention, recipes
from ..formats import FORMATS

KEYS, FEATURES, ROWS = 128, 16, 96
TIED = (24, 48)  #: the two keys with the maximal score; before the second there is no tie
TOP = (2.0, 10.0)  #: their score, another in every row: both weights are exactly 1 with the plain maximum
GAP = (11.0, 14.0)  #: how far the other scores lie below
SEED = 20251005


class Curve(NamedTuple):
    """Mean signed error of O after each key, in bf16 ulps of the exact O; its standard error over the rows."""

    mean: np.ndarray
    deviation: np.ndarray


class Series(NamedTuple):
    """What one curve is computed from."""

    recipe: recipes.Recipe
    residual_v: float  #: V of the keys that are not tied, times this


def inputs(residual_v: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, k, v, float32 on the bf16 grid, (ROWS, KEYS, FEATURES).

    residual_v scales V of the keys that are not tied. The scores stand in k's first feature.
    """
    rng = np.random.default_rng(SEED)
    top = rng.uniform(*TOP, (ROWS, 1))
    scores = top - rng.uniform(*GAP, (ROWS, KEYS))
    scores[:, TIED] = top
    q = np.zeros((ROWS, KEYS, FEATURES), np.float32)
    q[:, :, 0] = np.sqrt(FEATURES)  # 1 / scale, so that k's first feature is the score
    k = np.zeros_like(q)
    k[:, :, 0] = scores
    v = rng.normal(-2.5, 0.4, q.shape)
    untied = np.setdiff1d(np.arange(KEYS), TIED)
    v[:, untied] *= residual_v
    return q, np.asarray(arrays.round(k, "bf16")), np.asarray(arrays.round(v.astype(np.float32), "bf16"))


def curve(series: Series) -> Curve:
    """The build-up of one series, against `exact`."""
    qkv = inputs(series.residual_v)
    exact = attention.forward(*qkv, recipe="exact", causal=True, fmt="bf16").o
    o = attention.forward(*qkv, recipe=series.recipe, causal=True, fmt="bf16").o
    errors = (np.asarray(o, np.float64) - exact) / ulp(exact)
    by_row = errors.mean(axis=2)  # features of a row share its rounding of P and l: rows are what is independent
    return Curve(by_row.mean(axis=0), by_row.std(axis=0, ddof=1) / np.sqrt(ROWS))


def ulp(x: np.ndarray) -> np.ndarray:
    """Spacing of bf16 at x, for normal magnitudes."""
    return np.exp2(np.floor(np.log2(np.abs(x))) + 1 - FORMATS["bf16"].precision)


def compared() -> dict[str, Series]:
    """Recipe paper, and recipe triton with small and with large V of the other keys; each with the remedy too."""
    remedy = recipes.dynamic(beta=2.0, tolerance=1e-3)
    found = {}
    for name, factor in (("paper", 1.0), ("triton", 0.2), ("triton", 1.5)):
        label = name if factor == 1.0 else f"{name}, other V x {factor}"
        found[label] = Series(recipes.RECIPES[name], factor)
        found[f"{label}, dynamic maximum"] = Series(recipes.with_switch(name, maximum=remedy), factor)
    return found


def residual_mass() -> float:
    """Mean weight of the keys that are not tied, over that of the tied ones, after the last key."""
    _, k, _ = inputs()
    scores = k[:, :, 0].astype(np.float64)
    weights = np.exp(scores - scores[:, TIED[:1]])
    weights[:, TIED] = 0.0
    return float(weights.sum(axis=1).mean() / len(TIED))

"""How the signed error of O builds up, key by key, on rows whose maximum is tied.

All query rows of a batch are one and the same vector. Then row t of causal attention is attention over the
keys 0..t, and one call gives the output after every key. Two keys share the maximum; the others hold a small
residual weight; V is negative, as in the paper's feature 20 (arXiv 2510.04212, figure 6).
"""

from typing import NamedTuple

import numpy as np

from .. import arrays, attention, recipes
from ..formats import FORMATS

KEYS, FEATURES, BATCH = 128, 64, 24
TIED = (40, 80)  #: the two keys with the maximal score; before the second there is no tie
TOP = 6.0  #: their score: both weights are exactly 1
GAP = (7.0, 11.0)  #: how far the other scores lie below, so that their weights are small
SEED = 20251005


class Curve(NamedTuple):
    """Mean signed error of O after each key, in bf16 ulps of the exact O, with its standard error."""

    name: str
    mean: np.ndarray
    deviation: np.ndarray


def inputs(residual_v: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, k, v, float32 on the bf16 grid, (BATCH, KEYS, FEATURES).

    residual_v scales V of the keys that are not tied. The scores stand in k's first feature.
    """
    rng = np.random.default_rng(SEED)
    scores = TOP - rng.uniform(*GAP, (BATCH, KEYS))
    scores[:, TIED] = TOP
    q = np.zeros((BATCH, KEYS, FEATURES), np.float32)
    q[:, :, 0] = 8.0  # 1 / scale, so that k's first feature is the score
    k = np.zeros_like(q)
    k[:, :, 0] = scores
    v = rng.normal(-2.5, 0.4, q.shape)
    untied = np.setdiff1d(np.arange(KEYS), TIED)
    v[:, untied] *= residual_v
    return q, np.asarray(arrays.round(k, "bf16")), np.asarray(arrays.round(v.astype(np.float32), "bf16"))


def curve(name: str, recipe, qkv: tuple) -> Curve:
    """The build-up in one recipe, against `exact`."""
    exact = attention.forward(*qkv, recipe="exact", causal=True, fmt="bf16").o
    o = attention.forward(*qkv, recipe=recipe, causal=True, fmt="bf16").o
    errors = (np.asarray(o, np.float64) - exact) / ulp(exact)
    by_key = np.moveaxis(errors, 1, 0).reshape(KEYS, -1)
    return Curve(name, by_key.mean(axis=1), by_key.std(axis=1, ddof=1) / np.sqrt(by_key.shape[1]))


def ulp(x: np.ndarray) -> np.ndarray:
    """Spacing of bf16 at x, for normal magnitudes."""
    return np.exp2(np.floor(np.log2(np.abs(x))) + 1 - FORMATS["bf16"].precision)


def recipes_compared() -> dict[str, recipes.Recipe]:
    """The four curves: both rounding plans, with the plain and the dynamic maximum."""
    remedy = recipes.dynamic(beta=2.0, tolerance=1e-3)
    compared = {}
    for name in ("paper", "triton"):
        compared[name] = recipes.RECIPES[name]
        compared[f"{name}, dynamic maximum"] = recipes.with_switch(name, maximum=remedy)
    return compared


def residual_mass(qkv: tuple) -> float:
    """Mean weight of the keys that are not tied, over that of the tied ones, after the last key."""
    scores = qkv[1][:, :, 0].astype(np.float64)
    weights = np.exp(scores - TOP)
    weights[:, TIED] = 0.0
    return float(weights.sum(axis=1).mean() / len(TIED))

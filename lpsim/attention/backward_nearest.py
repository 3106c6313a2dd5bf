"""Flash attention backward in which every dot and sum is the fp32 nearest to the exact one. Base e.

P = exp(RN32(S - lse)), with S computed again as in the forward pass, at the same sites QK and S: the identity
rowsum(P o dP) = dO . O, on which delta rests, needs the same S. Sums over tiles are RN32(sum + tile's dot),
tiles ascending; dS = RN32(P * RN32(dP - delta)), +0 where masked; dQ and dK are multiplied by the softmax scale at
the end, RN32.
"""

import numpy as np

from ..recipes import Recipe
from . import reductions
from .exact import Gradients
from .inputs import Call, Operand
from .on_nearest import exp, matmul, scores
from .sites import passed
from .visible import Tile, tiles


def _weights(call: Call, recipe: Recipe, tile: Tile, lse: np.ndarray, do: Operand) -> tuple[np.ndarray, np.ndarray]:
    """P, +0 where masked, and dP at its site; float32 (batch, rows, keys)."""
    p = exp(scores(call, recipe, tile) - lse[:, tile.rows, None])
    v = call.spread(call.v.values[:, tile.keys])
    return tile.cleared(p), passed(call, recipe, "dP", matmul(do.values[:, tile.rows], v), "rk", tile)


def _delta(call: Call, recipe: Recipe, o: np.ndarray, lse: np.ndarray, do: Operand) -> np.ndarray:
    if recipe.delta_from == "O":
        return passed(call, recipe, "delta", reductions.nearest(o, do.values), "r", None)
    delta, again = np.zeros(lse.shape, np.float32), np.zeros(call.q.values.shape, np.float32)
    for tile in tiles(call):
        p, dp = _weights(call, recipe, tile, lse, do)
        if recipe.delta_from == "P":
            delta[:, tile.rows] = delta[:, tile.rows] + reductions.nearest(p, tile.cleared(dp))
        else:
            v = call.spread(call.v.values[:, tile.keys])
            again[:, tile.rows] = again[:, tile.rows] + matmul(p, np.swapaxes(v, 1, 2))
    if recipe.delta_from == "PV":
        delta = reductions.nearest(again, do.values)
    return passed(call, recipe, "delta", delta, "r", None)


def backward(call: Call, recipe: Recipe, machine: str, o: np.ndarray, lse: np.ndarray, do: Operand) -> Gradients:
    """dq, dk, dv as float32, not yet at their sites, and delta. o: float32 (batch, n, d); lse: (batch, n), base e."""
    del machine  # named here so that every arithmetic is called alike
    delta = _delta(call, recipe, o, lse, do)
    dq = np.zeros(call.q.values.shape, np.float32)
    dk, dv = np.zeros(call.k.values.shape, np.float32), np.zeros(call.v.values.shape, np.float32)
    for tile in tiles(call):
        rows, keys = tile.rows, tile.keys
        p, dp = _weights(call, recipe, tile, lse, do)
        ds = passed(call, recipe, "dS", tile.cleared(p * (dp - delta[:, rows, None])), "rk", tile)
        _add_tiles(dv[:, keys], passed(call, recipe, "PdV", p, "rk", tile), do.values[:, rows], call)
        _add_tiles(dk[:, keys], ds, call.q.values[:, rows], call)
        k = call.spread(call.k.values[:, keys])
        dq[:, rows] = dq[:, rows] + matmul(ds, np.swapaxes(k, 1, 2))
    scale = np.float32(call.scale)
    return Gradients(dq * scale, dk * scale, dv, delta)


def _add_tiles(total: np.ndarray, a: np.ndarray, b: np.ndarray, call: Call) -> None:
    """total += a^T b, in place, one query tile after the other, query heads of a group in turn."""
    a, b = a.reshape(-1, call.group, *a.shape[1:]), b.reshape(-1, call.group, *b.shape[1:])
    for head in range(call.group):
        for first in range(0, a.shape[2], call.rows):
            rows = slice(first, first + call.rows)
            total += matmul(np.swapaxes(a[:, head, rows], 1, 2), np.swapaxes(b[:, head, rows], 1, 2))

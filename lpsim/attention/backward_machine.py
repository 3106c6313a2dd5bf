"""Flash attention backward with the rows of a machine: three kernels as Triton compiles them, no atomics.

delta: one row sum. dK and dV: a program a key tile, query tiles ascending on live accumulators (those of grouped
query heads one after the other). dQ: a program a query tile, key tiles ascending. The dots are symmetric in their
operands, so S, P, dP and dS are the same in both and are computed once here; for several key tiles at once, and
with gradients kept transposed, since dots are fastest with many columns. No bit hangs on that: P and dS of a masked
pair are +0, whatever dP and delta are, and zero times a finite q, k or dO adds nothing to a live accumulator. Zero
times a NaN or infinite one is NaN in every row or key whose tile meets it: then tiles are kept.
"""

import numpy as np

from .. import dots
from ..arrays import decode
from ..recipes import Recipe, Site
from . import reductions, softmax
from .exact import Gradients
from .inputs import Call, Operand
from .lanes import unit_of
from .on_machine import WIDE, scores, turned
from .sites import operand_codes, passed
from .visible import Tile, tiles


class Backward:
    """What the tiles share: the call, dO, lse and, once computed, delta."""

    def __init__(self, call: Call, recipe: Recipe, machine: str, lse: np.ndarray, do: Operand):
        self.call, self.recipe, self.lse, self.do = call, recipe, lse, do
        self.unit = unit_of(call, machine)

    def dot(self, a: np.ndarray, b: np.ndarray, c=None, a_fmt=None, b_fmt=None) -> np.ndarray:
        """The chained dot of codes, a (batch, M, K) and b (batch, K, N), on the accumulator c."""
        return dots.dot(a, b, c, self.unit, a_fmt or self.call.fmt, b_fmt or self.call.fmt)

    def weights(self, tile: Tile) -> tuple[np.ndarray, np.ndarray]:
        """P = EX2(fma(S, scale, -lse)), +0 where masked, and dP = dO v^T; float32 (batch, rows, keys)."""
        call, recipe = self.call, self.recipe
        s, scale = scores(call, recipe, self.unit, tile)
        p, flat = np.empty_like(s), s.reshape(-1, s.shape[2])
        softmax.weights(flat, scale, self.lse[:, tile.rows].reshape(-1), p.reshape(flat.shape))
        v = call.spread(call.v.codes[:, tile.keys])
        dp = self.dot(self.do.codes[:, tile.rows], np.swapaxes(v, 1, 2))
        return tile.cleared(p), passed(call, recipe, "dP", dp, "rk", tile)

    def delta(self, o: np.ndarray) -> np.ndarray:
        """delta (batch, n), float32, at its site. "P" and "PV" walk over the key tiles once more."""
        call, recipe = self.call, self.recipe
        if recipe.delta_from == "O":
            return passed(call, recipe, "delta", reductions.loaded(o, self.do.values), "r", None)
        delta, again = np.zeros(self.lse.shape, np.float32), np.zeros(call.q.codes.shape, np.float32)
        for tile in tiles(call):
            p, dp = self.weights(tile)
            if recipe.delta_from == "P":
                delta[:, tile.rows] = delta[:, tile.rows] + reductions.accumulated(p, tile.cleared(dp))
            else:
                codes, fmt = operand_codes(recipe.P, p, call.fmt)
                again[:, tile.rows] = self.dot(
                    codes, call.spread(call.v.codes[:, tile.keys]), again[:, tile.rows], a_fmt=fmt
                )
        if recipe.delta_from == "PV":
            delta = reductions.accumulated(again, self.do.values)
        return passed(call, recipe, "delta", delta, "r", None)


def backward(call: Call, recipe: Recipe, machine: str, o: np.ndarray, lse: np.ndarray, do: Operand) -> Gradients:
    """dq, dk, dv as float32, not yet at their sites, and delta. o: float32 (batch, n, d); lse: (batch, n), base 2.

    dS = RN(P * RN(dP - delta)), +0 where masked; dQ and dK are multiplied by the softmax scale at the end, RN.
    """
    work = Backward(call, recipe, machine, lse, do)
    delta = work.delta(o)
    dq = np.zeros(turned(call.q.codes).shape, np.float32)
    dk, dv = (np.zeros(turned(x.codes).shape, np.float32) for x in (call.k, call.v))
    wide = call._replace(keys=max(call.keys, WIDE // call.keys * call.keys)) if _finite(call, do) else call
    for tile in tiles(wide):
        rows, keys = tile.rows, tile.keys
        p, dp = work.weights(tile)
        p_codes, p_fmt = operand_codes(recipe.PdV, p, call.fmt)
        ds = tile.cleared(p * (dp - delta[:, rows, None]))
        ds_codes, ds_fmt = operand_codes(recipe.dS, ds, call.fmt)
        if call.watch is not None:
            for name, x, codes, fmt in (("PdV", p, p_codes, p_fmt), ("dS", ds, ds_codes, ds_fmt)):
                call.see(name, getattr(recipe, name) or Site("input"), "rk", tile, x, np.asarray(decode(codes, fmt)))
        dv[:, :, keys] = _over_group(work, do.codes[:, rows], p_codes, dv[:, :, keys], p_fmt)
        dk[:, :, keys] = _over_group(work, call.q.codes[:, rows], ds_codes, dk[:, :, keys], ds_fmt)
        k = call.spread(call.k.codes[:, keys])
        dq[:, :, rows] = work.dot(turned(k), turned(ds_codes), dq[:, :, rows], b_fmt=ds_fmt)
    scale = np.float32(call.scale)
    return Gradients(turned(dq) * scale, turned(dk) * scale, turned(dv), delta)


def _finite(call: Call, do: Operand) -> bool:
    """True if q, k and dO, what P and dS are multiplied by, hold no NaN and no infinity: then 0 times any is 0."""
    return all(bool(np.isfinite(np.abs(x.values).max())) for x in (call.q, call.k, do))


def _over_group(work: Backward, a: np.ndarray, b: np.ndarray, c: np.ndarray, fmt) -> np.ndarray:
    """c plus a^T b of every query head of the group, one after the other on the accumulator; b has format fmt."""
    group = work.call.group
    a, b = a.reshape(-1, group, *a.shape[1:]), b.reshape(-1, group, *b.shape[1:])
    for head in range(group):
        c = work.dot(turned(a[:, head]), b[:, head], c, b_fmt=fmt)
    return c

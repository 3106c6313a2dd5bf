"""Flash attention forward in which every dot and sum is the fp32 nearest to the exact one: no machine's row enters.

The recipe's sites then decide everything; `paper` rounds at each. Base e. Where a site takes a value from
more than one fp32 operation, it is said here: the scaled score is RN32(RN32(q.k) * scale), plus the bias if there is
one, RN32; l is RN32(RN32(alpha * l) + rowsum); the accumulator is rounded after the rescaling and again after the
addition, as an in-place multiply and add on a stored tensor are. Weights normalised before the dot are RN32(P / l).
"""

import numpy as np

from ..core import exactsum
from ..core.exp import exp_all
from ..recipes import Recipe
from ..threads import parallel_for
from . import softmax
from .inputs import Call
from .sites import at, passed
from .visible import Tile


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """float32 nearest to the exact a[i] b[i]^T; a (batch, M, K), b (batch, N, K), float32."""
    out = np.empty((a.shape[0], a.shape[1], b.shape[1]), np.float32)
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)

    def body(start: int, stop: int) -> None:
        for which in range(start, stop):
            exactsum.matmul_f32(a[which], b[which], out[which])

    parallel_for(body, a.shape[0], 1)
    return out


def exp(x: np.ndarray) -> np.ndarray:
    """Correctly rounded float32 e^x."""
    flat = np.ascontiguousarray(x).reshape(-1)
    out = np.empty_like(flat)
    exp_all(flat, out)
    return out.reshape(x.shape)


def scores(call: Call, recipe: Recipe, tile: Tile) -> np.ndarray:
    """S of a tile, float32 (batch, rows, keys), at its site; masked entries as they are."""
    q, k = call.q.values[:, tile.rows], call.spread(call.k.values[:, tile.keys])
    s = passed(call, recipe, "QK", matmul(q, k), "rk", tile) * np.float32(call.scale)
    if tile.bias is not None:
        s = s + tile.bias
    return passed(call, recipe, "S", s, "rk", tile)


class State:
    """m, l (batch, rows) and acc (batch, rows, d), float32, of every query row, while tiles of keys go by."""

    def __init__(self, call: Call, recipe: Recipe, machine: str):
        del machine  # named here so that every arithmetic is made alike
        batch, n, d = call.q.codes.shape
        self.call, self.recipe = call, recipe
        self.m = np.full((batch, n), -np.inf, np.float32)
        self.l = np.zeros((batch, n), np.float32)
        self.seen, self.ties = self.m.copy(), np.zeros((batch, n), np.int64)
        self.acc = np.zeros((batch, n, d), np.float32)

    def step(self, tile: Tile) -> None:
        """One tile of keys for the query rows that reach it."""
        call, recipe, fmt, rows = self.call, self.recipe, self.call.fmt, tile.rows
        s = scores(call, recipe, tile)
        if tile.hidden is not None:
            np.copyto(s, -np.inf, where=tile.hidden)
        m_old = self.m[:, rows]
        m = passed(call, recipe, "m", self._maximum(m_old, s, rows), "r", tile, True)
        safe = np.where(m == -np.inf, np.float32(0), m)  # rows that have seen no key
        p = exp(passed(call, recipe, "shift", s - safe[..., None], "rk", tile))
        alpha = exp(m_old - safe)
        if recipe.normalise == "before":
            total = matmul(p, np.ones((len(p), 1, p.shape[2]), np.float32))
            p = np.where(m[..., None] == -np.inf, np.float32(0), p / total)
        rounded = passed(call, recipe, "P", p, "rk", tile)

        summed = rounded if recipe.l_from == "rounded" else p
        tile_sum = matmul(summed, np.ones((len(p), 1, p.shape[2]), np.float32))[..., 0]
        if recipe.normalise == "before":
            tile_sum = total[..., 0]
        self.l[:, rows] = passed(call, recipe, "l", alpha * self.l[:, rows] + tile_sum, "r", tile, True)
        v = call.spread(call.v.values[:, tile.keys])
        pv = passed(call, recipe, "PV", matmul(rounded, np.swapaxes(v, 1, 2)), "rf", tile, True)
        scaled = at(recipe.acc, self.acc[:, rows] * alpha[..., None], fmt)
        self.acc[:, rows] = passed(call, recipe, "acc", scaled + pv, "rf", tile, True)
        self.m[:, rows] = m

    def _maximum(self, m_old: np.ndarray, s: np.ndarray, rows: slice) -> np.ndarray:
        """(batch, rows): the running maximum after this tile, by the recipe's rule."""
        rule = softmax.rule(self.recipe.maximum, np.float32(1.0))
        seen, ties = self.seen[:, rows].reshape(-1), self.ties[:, rows].reshape(-1)
        m = m_old.reshape(-1).copy()
        softmax.nearest_maxima(s.reshape(-1, s.shape[2]), rule, seen, ties, m)
        self.seen[:, rows], self.ties[:, rows] = seen.reshape(m_old.shape), ties.reshape(m_old.shape)
        return m.reshape(m_old.shape)

    def output(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """o as float64 quotients (the site rounds them once), m, l and lse = RN32(m + log l), flattened to rows."""
        m, l = self.m.reshape(-1), self.l.reshape(-1)
        o = self.acc.reshape(m.size, -1).astype(np.float64)
        if self.recipe.normalise == "after":
            o = np.where(((m == -np.inf) & (l == 0))[:, None], 0.0, o / l[:, None])
        with np.errstate(divide="ignore"):
            lse = (m + np.log(l.astype(np.float64))).astype(np.float32)
        return o * self.call.v_scale, m, l, lse

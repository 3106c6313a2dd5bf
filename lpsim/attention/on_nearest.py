"""Flash attention forward in which every dot and sum is the fp32 nearest to the exact one: no machine's row enters.

The recipe's sites then decide everything; `paper` rounds at each. Base e. Where a site takes a value from
more than one fp32 operation, it is said here: the scaled score is RN32(RN32(q.k) * scale); l is
RN32(RN32(alpha * l) + rowsum); the accumulator is rounded after the rescaling and again after the addition,
as an in-place multiply and add on a stored tensor are.
"""

import numpy as np

from ..core import exactsum
from ..core.exp import exp_all
from ..recipes import Recipe
from ..threads import parallel_for
from .inputs import Call
from .sites import at


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


class State:
    """m, l (batch, rows) and acc (batch, rows, d), float32, of every query row, while tiles of keys go by."""

    def __init__(self, call: Call, recipe: Recipe, machine: str):
        del machine  # named here so that every arithmetic is made alike
        batch, n, d = call.q.codes.shape
        self.call, self.recipe, self.scale = call, recipe, np.float32(call.scale)
        self.m = np.full((batch, n), -np.inf, np.float32)
        self.l = np.zeros((batch, n), np.float32)
        self.acc = np.zeros((batch, n, d), np.float32)

    def step(self, rows: slice, keys: slice, hidden: np.ndarray | None) -> None:
        """One tile of keys for the query rows that reach it. hidden: (rows, keys) bool, True where masked."""
        call, recipe, fmt = self.call, self.recipe, self.call.fmt
        q, k, v = call.q.values[:, rows], call.k.values[:, keys], call.v.values[:, keys]
        s = at(recipe.S, matmul(q, k) * self.scale, fmt)
        if hidden is not None:
            s[:, hidden] = -np.inf
        m_old = self.m[:, rows]
        m = at(recipe.m, np.fmax(m_old, self._tile_maximum(s)), fmt)
        p = exp(at(recipe.shift, s - m[..., None], fmt))
        rounded = at(recipe.P, p, fmt)
        alpha = exp(m_old - m)

        summed = rounded if recipe.l_from == "rounded" else p
        tile_sum = matmul(summed, np.ones((len(p), 1, p.shape[2]), np.float32))[..., 0]
        self.l[:, rows] = at(recipe.l, alpha * self.l[:, rows] + tile_sum, fmt)
        pv = at(recipe.PV, matmul(rounded, np.swapaxes(v, 1, 2)), fmt)
        scaled = at(recipe.acc, self.acc[:, rows] * alpha[..., None], fmt)
        self.acc[:, rows] = at(recipe.acc, scaled + pv, fmt)
        self.m[:, rows] = m

    def _tile_maximum(self, s: np.ndarray) -> np.ndarray:
        """(batch, rows): the row maximum, or the dynamic maximum in its place (arXiv 2510.04212, Algorithm 1)."""
        beta, tolerance = self.recipe.maximum
        r = np.fmax.reduce(s, axis=-1)
        if beta == 0.0:
            return r
        ties = np.count_nonzero(r[..., None] - s <= np.float32(tolerance), axis=-1) > 1
        r = np.where(ties & (r > 0), r * np.float32(beta), r)
        return np.where(ties & (r < 0), np.float32(0), r)

    def output(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """o as float64 quotients (the site rounds them once), m, l and lse = RN32(m + log l), flattened to rows."""
        m, l = self.m.reshape(-1), self.l.reshape(-1)
        o = self.acc.reshape(m.size, -1).astype(np.float64) / l[:, None]
        with np.errstate(divide="ignore"):
            lse = (m + np.log(l.astype(np.float64))).astype(np.float32)
        return o, m, l, lse

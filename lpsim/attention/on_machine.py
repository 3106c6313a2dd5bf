"""Flash attention forward with the rows of a machine: the arithmetic of a compiled Triton kernel."""

import numpy as np

from .. import dots
from ..arrays import decode, encode
from ..machines import dot_row
from ..recipes import Recipe, Site
from . import softmax
from .inputs import Call
from .sites import at, site_format

LOG2_E = np.float32(1.4426950408889634)  # 0x3FB8AA3B


class State:
    """m, l (rows,) and acc (rows, d), float32, of every query row, while tiles of keys go by."""

    def __init__(self, call: Call, recipe: Recipe, machine: str):
        batch, n, d = call.q.codes.shape
        if call.keys % 8:
            raise ValueError(f"recipe {recipe.name!r} needs key tiles of a multiple of 8, got {call.keys}.")
        self.call, self.recipe = call, recipe
        self.unit = dot_row(machine, "wgmma", call.fmt).unit
        self.scale = np.float32(call.scale) * LOG2_E
        self.beta = np.float32(recipe.maximum.beta)
        self.tolerance = np.float32(recipe.maximum.tolerance) * LOG2_E
        self.p_site = recipe.P or Site("input")  # the dot takes no float32: P is always rounded
        self.m = np.full((batch, n), -np.inf, np.float32)
        self.l = np.zeros((batch, n), np.float32)
        self.acc = np.zeros((batch, n, d), np.float32)

    def step(self, rows: slice, keys: slice, hidden: np.ndarray | None) -> None:
        """One tile of keys for the query rows that reach it. hidden: (rows, keys) bool, True where masked."""
        call, recipe, fmt = self.call, self.recipe, self.call.fmt
        q, k, v = call.q.codes[:, rows], call.k.codes[:, keys], call.v.codes[:, keys]
        s = at(recipe.S, dots.dot(q, np.swapaxes(k, 1, 2), None, self.unit, fmt, fmt), fmt)
        if hidden is not None:
            s[:, hidden] = -np.inf
        shape = s.shape[:2]
        s = s.reshape(-1, s.shape[2])
        m_old, l = self.m[:, rows].reshape(-1), self.l[:, rows].reshape(-1)

        m = m_old.copy()
        softmax.maxima(s, self.scale, self.beta, self.tolerance, m)
        m = at(recipe.m, m, fmt)
        p, alpha = np.empty_like(s), np.empty_like(m)
        softmax.weights(s, self.scale, m_old, m, alpha, p)
        p_fmt = site_format(self.p_site, fmt)
        codes = np.asarray(encode(p, p_fmt, rounding=self.p_site.rounding, nan="nvidia"))
        softmax.sums(np.asarray(decode(codes, p_fmt)) if recipe.l_from == "rounded" else p, alpha, l)

        self.m[:, rows], self.l[:, rows] = m.reshape(shape), at(recipe.l, l, fmt).reshape(shape)
        scaled = self.acc[:, rows] * alpha.reshape(*shape, 1)
        acc = dots.dot(codes.reshape(*shape, -1), v, scaled, self.unit, p_fmt, fmt)
        self.acc[:, rows] = at(recipe.acc, acc, fmt)

    def output(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """o, not yet rounded, m, l and lse, float32."""
        m, l = self.m.reshape(-1), self.l.reshape(-1)
        o, lse = np.empty((m.size, self.acc.shape[2]), np.float32), np.empty_like(m)
        softmax.normalise(self.acc.reshape(o.shape), l, o)
        softmax.log_sums(m, l, lse)
        return o, m, l, lse

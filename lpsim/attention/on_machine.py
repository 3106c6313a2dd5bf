"""Flash attention forward with the rows of a machine: the arithmetic of a compiled Triton kernel.

Dots are fastest with many columns. So S is computed for several key tiles at once, and the output is kept
transposed, query rows as columns: O^T = V^T P^T. A dot is symmetric in its operands: that changes no bit.
"""

import numpy as np

from .. import dots
from ..arrays import decode
from ..recipes import Recipe, Site
from . import softmax
from .inputs import Call
from .lanes import unit_of
from .sites import operand_codes, passed
from .softmax import LOG2_E
from .visible import Tile


def turned(x: np.ndarray) -> np.ndarray:
    """The matrices transposed."""
    return np.swapaxes(x, 1, 2)


def scores(call: Call, recipe: Recipe, unit, tile: Tile) -> tuple[np.ndarray, np.float32]:
    """S of a tile, float32 (batch, rows, keys), nothing masked yet, and the factor that brings it to log2 units."""
    q, k = call.q.codes[:, tile.rows], call.spread(call.k.codes[:, tile.keys])
    s = passed(call, recipe, "S", dots.dot(q, turned(k), None, unit, call.fmt, call.fmt), "rk", tile)
    scale = np.float32(call.scale) * LOG2_E
    if tile.bias is None:
        return s, scale
    softmax.biased(s, scale, tile.bias, tile.bias.shape[1] > 1)
    return s, np.float32(1.0)


WIDE = 256  #: keys whose scores are computed at once


def within(tile: Tile, wide: Tile) -> bool:
    """True if the wide tile has the rows and keys of the tile."""
    rows = wide.rows.start <= tile.rows.start and tile.rows.stop <= wide.rows.stop
    return rows and wide.keys.start <= tile.keys.start and tile.keys.stop <= wide.keys.stop


class State:
    """m, l (batch, rows) and acc (batch, d, rows), float32, of every query row, while tiles of keys go by."""

    def __init__(self, call: Call, recipe: Recipe, machine: str):
        batch, n, d = call.q.codes.shape
        self.call, self.recipe = call, recipe
        self.unit = unit_of(call, machine)
        self.rule = softmax.rule(recipe.maximum, LOG2_E)
        self.offset = np.float32(recipe.maximum.offset)
        self.m = np.full((batch, n), -np.inf, np.float32)
        self.l = np.zeros((batch, n), np.float32)
        self.seen, self.ties = self.m.copy(), np.zeros((batch, n), np.int64)
        self.acc = np.zeros((batch, d, n), np.float32)
        self.ahead: tuple[Tile, np.ndarray, np.float32] | None = None  # the scores of several tiles

    def step(self, tile: Tile) -> None:
        """One tile of keys for the query rows that reach it."""
        call, recipe, fmt, rows = self.call, self.recipe, self.call.fmt, tile.rows
        s, scale = self._scores(tile)
        if tile.hidden is not None:
            np.copyto(s, -np.inf, where=tile.hidden)
        v = call.spread(call.v.codes[:, tile.keys])
        short = -s.shape[2] % 8  # the last tile of a sequence is filled up with masked keys
        if short:
            s = np.pad(s, ((0, 0), (0, 0), (0, short)), constant_values=-np.inf)
            v = np.pad(v, ((0, 0), (0, short), (0, 0)))
        shape = s.shape[:2]
        s = s.reshape(-1, s.shape[2])
        m, alpha = self._maxima(s, scale, tile)
        taken, p = np.empty_like(m), np.empty_like(s)
        softmax.subtrahends(m, self.offset, taken)
        softmax.weights(s, scale, taken, p)
        codes, p_fmt = operand_codes(recipe.P, p, fmt)
        if call.watch is not None:
            before, after = p.reshape(*shape, -1), np.asarray(decode(codes, p_fmt)).reshape(*shape, -1)
            call.see("P", recipe.P or Site("input"), "rk", tile, before, after)
        l = self.l[:, rows].reshape(-1)
        softmax.sums(np.asarray(decode(codes, p_fmt)) if recipe.l_from == "rounded" else p, alpha, l)

        self.m[:, rows] = m.reshape(shape)
        self.l[:, rows] = passed(call, recipe, "l", l.reshape(shape), "r", tile, True)
        scaled = self.acc[:, :, rows] * alpha.reshape(shape[0], 1, shape[1])
        acc = dots.dot(turned(v), turned(codes.reshape(*shape, -1)), scaled, self.unit, fmt, p_fmt)
        self.acc[:, :, rows] = passed(call, recipe, "acc", acc, "fr", tile, True)

    def _scores(self, tile: Tile) -> tuple[np.ndarray, np.float32]:
        """`scores` of the tile, cut from those of a wider one."""
        call = self.call
        if self.ahead is None or not within(tile, self.ahead[0]):
            keys = slice(tile.keys.start, min(tile.keys.start + WIDE // call.keys * call.keys, call.visible.n_keys))
            if tile.bias is not None or keys.stop <= tile.keys.stop:
                return scores(call, self.recipe, self.unit, tile)
            wide = Tile(tile.rows, keys, None, None)
            self.ahead = wide, *scores(call, self.recipe, self.unit, wide)
        wide, s, scale = self.ahead
        row, key = tile.rows.start - wide.rows.start, tile.keys.start - wide.keys.start
        width = tile.keys.stop - tile.keys.start
        return s[:, row : row + tile.rows.stop - tile.rows.start, key : key + width].copy(), scale

    def _maxima(self, s: np.ndarray, scale, tile: Tile) -> tuple[np.ndarray, np.ndarray]:
        """The running maximum after this tile, and the factor to it from before: float32, flattened to rows of s."""
        rows, shape = tile.rows, (len(self.m), -1)
        m_old = self.m[:, rows].reshape(-1)
        m, seen, ties = m_old.copy(), self.seen[:, rows].reshape(-1), self.ties[:, rows].reshape(-1)
        softmax.maxima(s, scale, self.rule, seen, ties, m)
        m = passed(self.call, self.recipe, "m", m.reshape(shape), "r", tile, True).reshape(-1)
        alpha = np.empty_like(m)
        softmax.rescalings(m_old, m, alpha)
        self.seen[:, rows], self.ties[:, rows] = seen.reshape(shape), ties.reshape(shape)
        return m, alpha

    def output(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """o, not yet rounded, m, l and lse, float32."""
        m, l = self.m.reshape(-1), self.l.reshape(-1)
        acc = np.ascontiguousarray(turned(self.acc)).reshape(m.size, -1)
        o, lse = np.empty_like(acc), np.empty_like(m)
        softmax.normalise(acc, m, l, o)
        softmax.log_sums(m - self.offset, l, lse)
        return o * np.float32(self.call.v_scale), m, l, lse

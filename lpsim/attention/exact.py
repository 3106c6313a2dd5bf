"""The reading version: attention in float64, as the formulas say, with no tiles and no rounding sites."""

from typing import NamedTuple

import numpy as np

from ..softmax_shift import PLAIN, Maximum
from .inputs import Call


def scores(call: Call) -> np.ndarray:
    """S = scale q k^T + bias, -inf where a row does not see a key; float64 (batch, n, n_keys)."""
    q, k = (x.values.astype(np.float64) for x in (call.q, call.k))
    s = call.scale * (q @ np.swapaxes(call.spread(k), 1, 2))
    if call.visible.bias is not None:
        s = s + call.visible.bias
    return np.where(_hidden(call), -np.inf, s)


def _hidden(call: Call) -> np.ndarray:
    """Where a row does not see a key; bool (batch or 1, n, n_keys)."""
    shown = call.visible
    i, c = np.arange(shown.n)[:, None], np.arange(shown.n_keys)[None, :]
    outside = ((c < i - shown.left) | (c > i + shown.right))[None]
    return outside if shown.hidden is None else outside | shown.hidden


@np.errstate(invalid="ignore", over="ignore", divide="ignore")  # NaN and infinity go through
def forward(call: Call, maximum: Maximum = PLAIN) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """o (batch, n, d), m, l, lse (batch, n), float64, base e.

    m = rowmax S; P = exp(S - m); l = rowsum P; o = P v / l; lse = m + log l. A row that sees no key has
    m = lse = -inf, l = 0 and o = 0. Another rule for m changes m and l, not o and lse: `tiled`.
    """
    s = scores(call)
    v = call.v_scale * call.spread(call.v.values.astype(np.float64))
    if maximum == PLAIN:
        m = s.max(axis=-1)
        p = np.exp(s - _finite(m)[..., None])
        l, acc = p.sum(axis=-1), p @ v
    else:
        m, l, acc = tiled(s, v, call.keys, maximum)
    blind = (m == -np.inf) & (l == 0)
    return np.where(blind[..., None], 0.0, acc / l[..., None]), m, l, m + np.log(l)


def _finite(m: np.ndarray) -> np.ndarray:
    """m, and 0 for rows that have seen no key."""
    return np.where(m == -np.inf, 0.0, m)


def tiled(s: np.ndarray, v: np.ndarray, keys: int, maximum: Maximum) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """m, l and the sum of P v when tiles of keys go by and m follows the rule; float64, base e.

    s: (batch, n, n_keys), v: (batch, n_keys, d).
    """
    m = seen = np.full(s.shape[:2], -np.inf)
    l, ties = np.zeros(m.shape), np.zeros(m.shape, np.int64)
    acc = np.zeros((*m.shape, v.shape[2]))
    for first in range(0, s.shape[2], keys):
        tile = s[:, :, first : first + keys]
        r = tile.max(axis=-1)
        if maximum.scope == "row":
            ties = np.where(r - seen <= maximum.tolerance, ties, 0)
            r = seen = np.maximum(r, seen)
        count = (r[..., None] - tile <= maximum.tolerance).sum(axis=-1)
        ties = ties + count if maximum.scope == "row" else count
        tied = (ties > 1) | (maximum.scope == "every")
        raised = np.where(tied & (maximum.beta > 0) & (r > -np.inf), displaced(r, maximum), r)
        new = np.where(raised - m <= maximum.threshold * np.log(2.0), m, np.maximum(m, raised))
        p = np.exp(tile - _finite(new)[..., None])
        alpha = np.exp(m - _finite(new))
        l = l * alpha + p.sum(axis=-1)
        acc = acc * alpha[..., None] + p @ v[:, first : first + keys]
        m = new
    return m, l, acc


def displaced(r: np.ndarray, maximum: Maximum) -> np.ndarray:
    """What is subtracted in place of a tied maximum r: `softmax.displaced` in float64."""
    if not maximum.guard:
        return np.where(r > 0, maximum.beta * r, np.minimum(r, 0.0) * 0.0)
    shift = np.where(r > 0, (maximum.beta - 1.0) * r, -r)
    return r + np.where(shift < 2.0**52, shift % np.log(2.0), 0.0)


class Gradients(NamedTuple):
    """dq (batch, n, d), dk, dv (batch / group, n_keys, d), delta (batch, n)."""

    dq: np.ndarray
    dk: np.ndarray
    dv: np.ndarray
    delta: np.ndarray


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def backward(call: Call, o: np.ndarray, lse: np.ndarray, do: np.ndarray, delta_from: str) -> Gradients:
    """All float64. delta = rowsum(dO o O), from the o that is given; P = exp(S - lse); dV = P^T dO; dP = dO v^T;
    dS = P o (dP - delta); dQ = scale dS k; dK = scale dS^T q. Source: FlashAttention-2, Algorithm 2.
    P and dS of a masked pair are 0, whatever dP and delta are.

    delta_from "P": rowsum(dP o P); "PV": rowsum(dO o (P v)). Both equal the first if o is the exact output.
    """
    q, k, v = (x.values.astype(np.float64) for x in (call.q, call.k, call.v))
    k, v = call.spread(k), call.spread(v)
    s = scores(call)
    p = np.where(s == -np.inf, 0.0, np.exp(s - lse[..., None]))
    hidden = _hidden(call)
    dp = np.where(hidden, 0.0, do @ np.swapaxes(v, 1, 2))
    given = {"O": lambda: do * o, "P": lambda: dp * p, "PV": lambda: do * (p @ v)}
    delta = given[delta_from]().sum(axis=-1)
    ds = np.where(hidden, 0.0, p * (dp - delta[..., None]))
    dq = call.scale * (ds @ k)
    dk = call.scale * (np.swapaxes(ds, 1, 2) @ q)
    dv = np.swapaxes(p, 1, 2) @ do
    return Gradients(dq, gathered(dk, call.group), gathered(dv, call.group), delta)


def gathered(x: np.ndarray, group: int) -> np.ndarray:
    """The gradients of a key head: those that its query heads give, added."""
    return x.reshape(-1, group, *x.shape[1:]).sum(axis=1)

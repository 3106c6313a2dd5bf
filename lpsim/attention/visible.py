"""Which keys a query row sees: causal, sliding window, mask, additive bias; and the tiles that follow from it."""

import operator
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .. import border

EVERYWHERE = 1 << 40


class Options(NamedTuple):
    """The arguments `window`, `mask` and `bias` as the user gave them."""

    window: object = None
    mask: object = None
    bias: object = None


class Visible(NamedTuple):
    """Row i sees key c if i - left <= c <= i + right and hidden[i, c] is False."""

    left: int
    right: int
    hidden: np.ndarray | None  #: bool (batch or 1, n or 1, n_keys): masked
    bias: np.ndarray | None  #: float32 (batch or 1, n or 1, n_keys): added to the scaled scores, natural units
    n: int
    n_keys: int

    @property
    def banded(self) -> bool:
        return self.left < EVERYWHERE or self.right < EVERYWHERE


class Tile(NamedTuple):
    """One tile of keys, and the query rows whose tiles reach it."""

    rows: slice
    keys: slice
    hidden: np.ndarray | None  #: bool (batch or 1, rows, keys)
    bias: np.ndarray | None  #: float32 (batch or 1, rows or 1, keys)

    def cleared(self, x: np.ndarray) -> np.ndarray:
        """x (batch, rows, keys), in place, +0 where a row does not see a key: whatever was there, NaN too."""
        if self.hidden is not None:
            np.copyto(x, np.float32(0), where=self.hidden)
        return x


def prepare(causal: bool, given: Options, batch: tuple, n: int, n_keys: int) -> Visible:
    """Check the options. Raises TypeError and ValueError."""
    left, right = _window(given.window)
    if causal:
        right = min(right, 0)
    hidden = bias = None
    if given.mask is not None:
        mask = border.raw(given.mask, "mask").array
        if mask.dtype != bool:
            raise TypeError(f"mask has dtype {mask.dtype}; it must be bool, True where a row may see a key.")
        hidden = ~_broadcast(mask, "mask", batch, n, n_keys)
    if given.bias is not None:
        bias = _broadcast(_float32(given.bias), "bias", batch, n, n_keys)
        if (bias == -np.inf).any():  # such a score has weight zero whatever else the row holds: it is masked
            hidden = bias == -np.inf if hidden is None else hidden | (bias == -np.inf)
    return Visible(left, right, hidden, bias, n, n_keys)


def is_int(x) -> bool:
    """True for Python's and NumPy's integers; no bool is one."""
    return isinstance(x, int | np.integer) and not isinstance(x, bool)


def _window(window) -> tuple[int, int]:
    if window is None:
        return EVERYWHERE, EVERYWHERE
    sides = (window, window) if is_int(window) else window
    if not (isinstance(sides, tuple | list) and len(sides) == 2 and all(is_int(side) for side in sides)):
        raise TypeError(f"window={window!r} must be an int or two ints: how many keys to the left and right.")
    if min(sides) < 0:
        raise ValueError(f"window={window!r} must not be negative.")
    return operator.index(sides[0]), operator.index(sides[1])


def _float32(bias) -> np.ndarray:
    array = border.values(bias, "bias").array
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    if not np.array_equal(narrow.astype(array.dtype), array, equal_nan=True):
        raise ValueError("bias has values that are no float32: round it first, bias.astype(np.float32).")
    return narrow


def _broadcast(x: np.ndarray, name: str, batch: tuple, n: int, n_keys: int) -> np.ndarray:
    """x as (batch or 1, n or 1, n_keys)."""
    full = (*batch, n, n_keys)
    try:
        np.broadcast_shapes(x.shape, full)
        fits = np.broadcast_shapes(x.shape, full) == full
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{name} has shape {x.shape}, which does not broadcast to {full}.")
    x = x.reshape((1,) * (len(full) - x.ndim) + x.shape)
    rows = n if x.shape[-2] == n else 1
    leading = batch if any(size > 1 for size in x.shape[:-2]) else (1,) * len(batch)
    return np.ascontiguousarray(np.broadcast_to(x, (*leading, rows, n_keys))).reshape(-1, rows, n_keys)


def tiles(call) -> Iterator[Tile]:
    """The key tiles that some row sees, ascending; of call.only's rows, if that says so."""
    shown: Visible = call.visible
    for first in range(0, shown.n_keys, call.keys):
        keys = slice(first, min(first + call.keys, shown.n_keys))
        start = max(0, keys.start - shown.right) // call.rows * call.rows
        stop = min(shown.n, ((keys.stop - 1 + shown.left) // call.rows + 1) * call.rows)
        if call.only is not None:
            start, stop = max(start, call.only.start), min(stop, call.only.stop)
        if start < stop:
            rows = slice(start, stop)
            yield Tile(rows, keys, _hidden(shown, rows, keys), _part(shown.bias, rows, keys))


def _part(x: np.ndarray | None, rows: slice, keys: slice) -> np.ndarray | None:
    if x is None:
        return None
    return x[:, :, keys] if x.shape[1] == 1 else x[:, rows, keys]


def _hidden(shown: Visible, rows: slice, keys: slice) -> np.ndarray | None:
    masked = _part(shown.hidden, rows, keys)
    if not shown.banded:
        return masked
    i = np.arange(rows.start, rows.stop)[:, None]
    c = np.arange(keys.start, keys.stop)[None, :]
    outside = ((c < i - shown.left) | (c > i + shown.right))[None]
    return outside if masked is None else outside | masked

"""The arguments of an attention call, checked: q, k, v as codes and as exact float32 values."""

import math
import operator
from typing import Any, NamedTuple

import numpy as np

from .. import border
from ..dots import operand_values
from ..errors import NotModelled
from ..formats import Format, fmt_name, lookup
from ..operands import operand
from ..recipes import Recipe
from . import visible
from .softmax import LOG2_E
from .visible import Visible


class Operand(NamedTuple):
    """One of q, k, v, dO: (batch, n, d) codes and the float32 values they stand for."""

    codes: np.ndarray
    values: np.ndarray


class Call(NamedTuple):
    """Everything a pass needs. Leading dimensions are flattened to one, `batch` remembers them.

    Query heads share key heads: k and v have batch / group matrices, one for each `group` consecutive ones of q.
    """

    q: Operand
    k: Operand
    v: Operand
    fmt: Format
    scale: float  #: of the scores, the scales of q and k included
    v_scale: float
    visible: Visible  #: causal, window, mask and bias
    rows: int  #: query rows of a tile
    keys: int  #: keys of a tile
    batch: tuple[int, ...]
    kv_batch: tuple[int, ...]
    group: int  #: query heads for each key head
    torch: bool
    dtype: np.dtype  #: of q as the user passed it, and of the output
    watch: Any = None  #: attention.watch.Watch, where the sites are traced
    only: slice | None = None  #: whole query tiles that `visible.tiles` gives; None: all

    def see(self, name: str, site, axes: str, tile, before, after, each_tile: bool = False) -> None:
        """A site was passed: `Watch.see`."""
        if self.watch is not None:
            self.watch.see(name, site, axes, tile, before, after, each_tile)

    def spread(self, x: np.ndarray) -> np.ndarray:
        """x of the key heads, (batch / group, ...), once for every query head."""
        return x if self.group == 1 else np.repeat(x, self.group, axis=0)


MODELLED = ("bf16", "fp16")
MODELLED_BY_MACHINES = (*MODELLED, "e4m3fn")  #: P of e4m3fn attention is e4m3fn too; its gradients are not modelled


def read_operand(codes: np.ndarray, row: Format) -> Operand:
    """(..., n, d) codes, flattened to (batch, n, d), and their values."""
    codes = np.ascontiguousarray(codes).reshape(-1, *codes.shape[-2:])
    return Operand(codes, operand_values(codes, row))


def read(x, name: str, fmt) -> tuple[border.Given, np.ndarray, Format]:
    """As `operands.operand`, but without a search for values off the grid in an array of the format's own dtype."""
    given = border.raw(x, name)
    own = border.float_format(given.array.dtype)
    if own is None or fmt_name(own) not in MODELLED_BY_MACHINES or (fmt is not None and lookup(fmt) != own):
        return operand(x, name, fmt)
    return given, np.ascontiguousarray(given.array).view(f"u{given.array.dtype.itemsize}"), own


def prepare(q, k, v, recipe: Recipe, causal, scale, block, fmt, seen: visible.Options, scales=None) -> Call:
    """Check and flatten the arguments of `forward`. Raises TypeError, ValueError and NotModelled."""
    if not isinstance(causal, bool | np.bool_):
        raise TypeError(f"causal={causal!r} must be True or False.")
    given_all = [read(x, name, fmt) for x, name in ((q, "q"), (k, "k"), (v, "v"))]
    rows = {row for _, _, row in given_all}
    if len(rows) > 1:
        raise ValueError(
            f"q, k and v have formats {', '.join(fmt_name(row) for _, _, row in given_all)}; they must agree."
        )
    row = rows.pop()
    modelled = MODELLED if recipe.arithmetic == "nearest" else MODELLED_BY_MACHINES
    if fmt_name(row) not in modelled:
        raise NotModelled(
            f"attention in {fmt_name(row)} with recipe {recipe.name!r} is not modelled; "
            f"modelled: {', '.join(modelled)}."
        )
    shapes = [codes.shape for _, codes, _ in given_all]
    group = _check_shapes(shapes[0], shapes[1], shapes[2], bool(causal))
    batch, (n, d), n_keys = shapes[0][:-2], shapes[0][-2:], shapes[1][-2]
    tile = _check_block(recipe.block if block is None else block, n, n_keys)
    if recipe.normalise == "before" and tile[1] < n_keys:
        raise ValueError(f"recipe {recipe.name!r} normalises before the dot with v: its key tile must hold all keys.")
    q, k, v = (read_operand(codes, row) for _, codes, _ in given_all)
    given = given_all[0][0]
    torch = any(g.torch for g, _, _ in given_all)
    scale_q, scale_k, scale_v = _check_scales(scales)
    factor = _check_scale(scale, d) * scale_q * scale_k
    if recipe.arithmetic != "exact":
        _check_float32_scale(factor, scale, scales)
    shown = visible.prepare(bool(causal), seen, batch, n, n_keys)
    return Call(
        q, k, v, row, factor, scale_v, shown, tile[0], tile[1], batch, shapes[1][:-2], group, torch, given.array.dtype
    )  # fmt: skip


def _check_shapes(q: tuple, k: tuple, v: tuple, causal: bool) -> int:
    """How many query heads share a key head."""
    named = f"q {q}, k {k}, v {v}"
    if len(q) < 2 or len(k) < 2 or k != v:
        raise ValueError(f"{named}: q must be (..., n, d), k and v (..., n_keys, d) and of one shape.")
    heads = (q[-3], k[-3]) if len(q) == len(k) >= 3 else (1, 1)
    grouped = 0 < heads[1] < heads[0] and heads[0] % heads[1] == 0
    same = q[:-3] == k[:-3] if grouped else q[:-2] == k[:-2]
    if not same or q[-1] != k[-1]:
        raise ValueError(
            f"{named}: leading dimensions and the head size d must agree (or the last leading dimension of q, the "
            "query heads, be a multiple of that of k and v)."
        )
    if 0 in q or 0 in k:
        raise ValueError(f"{named}: empty attention has no row to normalise.")
    if q[-1] % 16 or not 16 <= q[-1] <= 256:
        raise ValueError(f"{named}: the head size must be a multiple of 16 from 16 to 256, got {q[-1]}.")
    if causal and q[-2] != k[-2]:
        raise ValueError(f"{named}: causal attention needs as many keys as query rows.")
    return heads[0] // heads[1] if grouped else 1


def _check_block(block, n: int, n_keys: int) -> tuple[int, int]:
    """The tile, cut to the sequence. It need not divide it: the last tiles may be smaller."""
    if not (isinstance(block, tuple | list) and len(block) == 2 and all(visible.is_int(size) for size in block)):
        raise TypeError(f"block={block!r} must be two ints: (query rows, keys) of a tile.")
    rows, keys = (operator.index(size) for size in block)
    if min(rows, keys) < 1:
        raise ValueError(f"block={(rows, keys)}: a tile needs at least one query row and one key.")
    return min(rows, n), min(keys, n_keys)


def check_multiples(call: Call, recipe: Recipe, direction: str, rows: int, keys: int) -> None:
    """ValueError unless the tiles of a machine recipe are multiples of these; one tile that holds all is filled up."""
    if recipe.arithmetic != "machine":
        return
    sizes = (("query", call.rows, call.visible.n, rows), ("key", call.keys, call.visible.n_keys, keys))
    for name, size, whole, multiple in sizes:
        if size % multiple and size < whole:
            raise ValueError(
                f"block={(call.rows, call.keys)}: the {direction} pass of recipe {recipe.name!r} needs {name} tiles "
                f"of a multiple of {multiple}, got {size}; or a single one that holds all {whole}."
            )


def _check_scale(scale, d: int) -> float:
    return 1.0 / math.sqrt(d) if scale is None else _positive(scale, "scale")


def _check_float32_scale(factor: float, scale, scales) -> None:
    """ValueError where the scores' factor, to base 2 and float32, is 0 or infinite: times some score that is NaN."""
    with np.errstate(over="ignore", under="ignore"):
        narrow = np.float32(factor) * LOG2_E
    if not 0 < narrow < np.inf:
        product = "" if scales is None else f", times scales[0] and scales[1] {factor!r},"
        raise ValueError(
            f"scale={scale!r}{product} is {narrow} as float32 in log2 units; allowed: about 1e-45 to 2.3e38 "
            "(recipe 'exact' takes any)."
        )


def _check_scales(scales) -> tuple[float, float, float]:
    if scales is None:
        return 1.0, 1.0, 1.0
    if not (isinstance(scales, tuple | list) and len(scales) == 3):
        raise TypeError(f"scales={scales!r} must be three numbers, what q, k and v are multiplied by.")
    q, k, v = (_positive(x, f"scales[{i}]") for i, x in enumerate(scales))
    return q, k, v


def _positive(x, name: str) -> float:
    if isinstance(x, bool) or not isinstance(x, int | float | np.floating | np.integer):
        raise TypeError(f"{name}={x!r} must be a number.")
    if not (math.isfinite(x) and x > 0):
        raise ValueError(f"{name}={x!r} must be positive and finite.")
    return float(x)


def of_shape(x, name: str, shape: tuple, dtype) -> np.ndarray:
    """x as an array of this shape and float dtype. TypeError and ValueError otherwise."""
    array = border.values(x, name).array
    if array.dtype != dtype:
        raise TypeError(f"{name} has dtype {array.dtype}; this recipe takes {np.dtype(dtype)}.")
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; it must be {shape}.")
    return array

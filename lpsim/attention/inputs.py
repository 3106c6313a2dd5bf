"""The arguments of an attention call, checked: q, k, v as codes and as exact float32 values."""

import math
from typing import NamedTuple

import numpy as np

from ..core import loops
from ..errors import NotModelled
from ..formats import Format, fmt_name
from ..operands import operand
from ..recipes import Recipe


class Operand(NamedTuple):
    """One of q, k, v: (batch, n, d) codes (uint16) and the float32 values they stand for."""

    codes: np.ndarray
    values: np.ndarray


class Call(NamedTuple):
    """Everything a forward pass needs. Leading dimensions are flattened to one, `batch` remembers them."""

    q: Operand
    k: Operand
    v: Operand
    fmt: Format
    scale: float
    causal: bool
    rows: int  #: query rows of a tile
    keys: int  #: keys of a tile
    batch: tuple[int, ...]
    torch: bool
    dtype: np.dtype  #: of q as the user passed it, and of the output


MODELLED = ("bf16", "fp16")


def _operand(codes: np.ndarray, row: Format) -> Operand:
    bits = codes.astype(np.int64)
    flat = bits.reshape(-1)
    loops.decode(flat, flat, row)
    with np.errstate(invalid="ignore"):
        values = bits.view(np.float64).astype(np.float32)
    return Operand(codes, values)


def prepare(q, k, v, recipe: Recipe, causal, scale, block, fmt) -> Call:
    """Check and flatten the arguments of `forward`. Raises TypeError, ValueError and NotModelled."""
    if not isinstance(causal, bool | np.bool_):
        raise TypeError(f"causal={causal!r} must be True or False.")
    read = [operand(x, name, fmt) for x, name in ((q, "q"), (k, "k"), (v, "v"))]
    rows = {row for _, _, row in read}
    if len(rows) > 1:
        raise ValueError(f"q, k and v have formats {', '.join(fmt_name(row) for _, _, row in read)}; they must agree.")
    row = rows.pop()
    if fmt_name(row) not in MODELLED:
        raise NotModelled(f"attention in {fmt_name(row)} is not modelled; modelled: {', '.join(MODELLED)}.")
    shapes = [codes.shape for _, codes, _ in read]
    _check_shapes(shapes[0], shapes[1], shapes[2], bool(causal))
    batch, (n, d), n_keys = shapes[0][:-2], shapes[0][-2:], shapes[1][-2]
    tile = _check_block(recipe.block if block is None else block, n, n_keys)
    q_, k_, v_ = (_operand(np.ascontiguousarray(codes).reshape(-1, *codes.shape[-2:]), row) for _, codes, _ in read)
    given = read[0][0]
    torch = any(g.torch for g, _, _ in read)
    scale = _check_scale(scale, d)
    return Call(q_, k_, v_, row, scale, bool(causal), tile[0], tile[1], batch, torch, given.array.dtype)


def _check_shapes(q: tuple, k: tuple, v: tuple, causal: bool) -> None:
    named = f"q {q}, k {k}, v {v}"
    if len(q) < 2 or len(k) < 2 or k != v:
        raise ValueError(f"{named}: q must be (..., n, d), k and v (..., n_keys, d) and of one shape.")
    if q[:-2] != k[:-2] or q[-1] != k[-1]:
        raise ValueError(f"{named}: leading dimensions and the head size d must agree.")
    if 0 in q or 0 in k:
        raise ValueError(f"{named}: empty attention has no row to normalise.")
    if q[-1] % 16 or not 16 <= q[-1] <= 256:
        raise ValueError(f"{named}: the head size must be a multiple of 16 from 16 to 256, got {q[-1]}.")
    if causal and q[-2] != k[-2]:
        raise ValueError(f"{named}: causal attention needs as many keys as query rows.")


def _check_block(block, n: int, n_keys: int) -> tuple[int, int]:
    if not (isinstance(block, tuple | list) and len(block) == 2 and all(type(size) is int for size in block)):
        raise TypeError(f"block={block!r} must be two ints: (query rows, keys) of a tile.")
    if min(block) < 1:
        raise ValueError(f"block={tuple(block)}: a tile needs at least one query row and one key.")
    rows, keys = min(block[0], n), min(block[1], n_keys)
    if n % rows or n_keys % keys:
        raise ValueError(
            f"block={tuple(block)} does not divide the sequence: {n} query rows and {n_keys} keys. "
            "Pass block=(rows, keys) with divisors of these, or pad the sequence."
        )
    return rows, keys


def _check_scale(scale, d: int) -> float:
    if scale is None:
        return 1.0 / math.sqrt(d)
    if isinstance(scale, bool) or not isinstance(scale, int | float | np.floating | np.integer):
        raise TypeError(f"scale={scale!r} must be a number.")
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale={scale!r} must be positive and finite.")
    return float(scale)

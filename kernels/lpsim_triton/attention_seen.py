"""Which pairs of a query row and a key count: causal, window, mask; and scores with an additive bias.

`lpsim.attention.visible` on a GPU. A bias is added as fma(s, scale, RN(bias * log2 e)), after which scores are in log2
units; a bias of -inf masks. What is masked has weight 0, whatever its score is.

A mask comes through the copy engine, as tiles do. Read through pointers it would bring the layout of its loads to the
scores, and rows would be summed in that layout's order instead of the accumulator's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from .attention_tiles import Rule

if TYPE_CHECKING:
    import torch

LOG2_E = tl.constexpr(1.4426950408889634)


class Pairs(NamedTuple):
    """What is compiled into a kernel: which of the conditions there are."""

    causal: bool
    window: bool = False
    mask: str = ""  #: "bool" or "bias"
    batches: bool = False  #: the mask has a size of its own in batch, heads, rows; else it is one for all
    heads: bool = False
    rows: bool = False


@triton.jit
def mask_tile(seen, place, first_row, first_key, ROWS: tl.constexpr, KEYS: tl.constexpr, PAIRS: tl.constexpr):
    """The mask of a tile, (ROWS, KEYS) or (1, KEYS)."""
    batch = place[0] if PAIRS.batches else 0
    head = place[1] if PAIRS.heads else 0
    row = first_row if PAIRS.rows else 0
    return seen[2].load([batch, head, row, first_key]).reshape(ROWS if PAIRS.rows else 1, KEYS)


@triton.jit
def seen_scores(
    s, place, first_row, first_key, scale, seen, ROWS: tl.constexpr, KEYS: tl.constexpr, TURNED: tl.constexpr,
    PAIRS: tl.constexpr,
):  # fmt: skip
    """(scores, which of them count), (ROWS, KEYS), or (KEYS, ROWS) if TURNED.

    place: (batch, head, n_keys). seen: (left, right, mask). The scores are biased and in log2 units if there is a bias,
    else as given.
    """
    rows, keys = first_row + tl.arange(0, ROWS), first_key + tl.arange(0, KEYS)
    if TURNED:
        rows, keys = rows[None, :], keys[:, None]
    else:
        rows, keys = rows[:, None], keys[None, :]
    visible = keys < place[2]
    if PAIRS.causal:
        visible = visible & (rows >= keys)
    if PAIRS.window:
        visible = visible & (keys >= rows - seen[0]) & (keys <= rows + seen[1])
    if PAIRS.mask != "":
        given = mask_tile(seen, place, first_row, first_key, ROWS, KEYS, PAIRS)
        if TURNED:
            given = given.T
        if PAIRS.mask == "bias":
            bias = given.to(tl.float32)
            visible = visible & (bias != float("-inf"))
            s = tl.fma(s, scale, bias * LOG2_E)
        else:
            visible = visible & (given != 0)
    return s, visible


@triton.jit
def keys_of_rows(first_row, n_keys, seen, ROWS: tl.constexpr, KEYS: tl.constexpr, PAIRS: tl.constexpr):
    """start, clear, stop: key tiles before `start` and from `stop` on count for no row of the tile; those from start
    to `clear` for all of them."""
    start = 0
    stop = tl.minimum(first_row + ROWS, n_keys) if PAIRS.causal else n_keys
    clear = (tl.minimum(first_row + 1, n_keys) if PAIRS.causal else n_keys) // KEYS * KEYS
    if PAIRS.window:
        start = tl.maximum(first_row - seen[0], 0) // KEYS * KEYS
        stop = tl.minimum(first_row + ROWS + seen[1], n_keys)
    if PAIRS.window or PAIRS.mask != "":
        clear = start
    return start, clear, stop


def described_mask(mask: torch.Tensor, rows: int, keys: int) -> TensorDescriptor:
    """mask (batch, heads, n, n_keys), sizes of 1 but the last, for the copy engine; a copy where it cannot read it in
    place. rows: of a tile, 1 if there is one row for all."""
    import torch

    x = mask.view(torch.uint8) if mask.dtype == torch.bool else mask
    whole = 16 // x.element_size()
    steps = [step if size > 1 else whole for step, size in zip(x.stride(), x.shape, strict=True)]
    if x.stride(-1) != 1 or x.data_ptr() % 16 or any(step <= 0 or step % whole for step in steps[:-1]):
        room = x.new_empty((*x.shape[:-1], triton.cdiv(x.shape[-1], whole) * whole))
        room[..., : x.shape[-1]].copy_(x)
        x, steps = room[..., : x.shape[-1]], list(room.stride())
    return TensorDescriptor(x, list(x.shape), [*steps[:-1], 1], [1, 1, rows, keys])


def one_for_all(mask: torch.Tensor, n_keys: int) -> torch.Tensor:
    """mask, of size 1 where it is spelt out by repetition (stride 0), and of n_keys keys."""
    for axis in range(3):
        if mask.stride(axis) == 0:
            mask = mask.narrow(axis, 0, 1)
    return mask.expand(-1, -1, -1, n_keys)


def described_pairs(
    rule: Rule, mask: torch.Tensor | None, shape: tuple[int, int], rows: int, keys: int
) -> tuple[Pairs, tuple]:
    """The compiled part, and two arguments: the mask, None for none, and (left, right).

    mask: bool, or a float bias, (batch, heads, n, n_keys) or 1 where it is the same for all. shape: (n, n_keys).
    rows, keys: of the kernel's tiles.
    """
    left, right = rule.window or (0, 0)
    causal, window = rule.causal and rule.window is None, rule.window is not None
    reach = sum(shape)  # no window sees farther
    sides = min(left, reach), min(0 if rule.causal else right, reach)
    if mask is None:
        return Pairs(causal, window), (None, sides)
    narrow = one_for_all(mask, shape[1])
    own = [size > 1 for size in narrow.shape[:3]]
    kind = "bias" if narrow.is_floating_point() else "bool"
    return Pairs(causal, window, kind, *own), (described_mask(narrow, rows if own[2] else 1, keys), sides)

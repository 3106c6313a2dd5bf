"""What the attention kernels share on the side of the host: the rule that fixes bits, and tiles for the copy engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from lpsim.policies import Stochastic
from lpsim.recipes import PLAIN, Maximum

if TYPE_CHECKING:
    import torch

LOG2_E = 1.4426950408889634
HEADS_TOGETHER = 4  # q, k, v and do of so many heads are 4 x 4 x n x d x 2 bytes: 17 MB for n = 4096, d = 128


class Rule(NamedTuple):
    """What changes bits, and is not in q, k, v and the mask."""

    causal: bool
    scale: float  #: of the scores, those of fp8 q and k included
    keys: int = 128  #: of a tile
    maximum: Maximum = PLAIN
    l_from: str = "exact"  #: the weights that l sums: exact, or rounded (as the second dot takes them)
    delta_from: str = "O"  #: as Remedy has it
    rounding: Stochastic | None = None  #: of o; None: to nearest
    window: tuple[int, int] | None = None  #: row i sees the keys i - left .. i + right
    v_scale: float = 1.0  #: what an fp8 v is multiplied by


class Variant(NamedTuple):
    """What is compiled into a forward kernel besides sizes and which pairs count."""

    dynamic: bool
    guard: bool
    every: bool  #: no ties needed, and none counted
    across: bool  #: ties are counted over all tiles of the row so far
    rounded_l: bool
    kept: str  #: beside o: "" nothing, "O32" o in float32, "pair" what o lost; "32": o in float32 in place of o
    turned: bool  #: v comes as (d, keys): 8-bit inputs


def variant(rule: Rule, small: bool) -> Variant:
    """The rule's Variant; small: 8-bit inputs."""
    maximum = rule.maximum
    kept = "32" if rule.rounding else {"O32": "O32", "pair": "pair"}.get(rule.delta_from, "")
    return Variant(
        maximum.beta != 0.0, maximum.guard, maximum.scope == "every", maximum.scope == "row",
        rule.l_from == "rounded", kept, small,
    )  # fmt: skip


def log2_scale(scale: float) -> float:
    """RN32(RN32(scale) * RN32(log2 e)), what scores are multiplied by."""
    return float(np.float32(scale) * np.float32(LOG2_E))


def described(x: torch.Tensor, rows: int) -> TensorDescriptor:
    """x (batch, heads, n, d) for the copy engine, a block being `rows` of one head; a copy of x where it cannot
    read x in place: features not contiguous, rows or the start not aligned to 16 bytes, or a repeated dimension."""
    whole = 16 // x.element_size()
    steps = [step if size > 1 else whole for step, size in zip(x.stride(), x.shape, strict=True)]
    if x.stride(-1) != 1 or x.data_ptr() % 16 or any(step <= 0 or step % whole for step in steps[:-1]):
        x = x.contiguous()
        steps = list(x.stride())
    return TensorDescriptor(x, list(x.shape), [*steps[:-1], 1], [1, 1, rows, x.shape[-1]])


def described_turned(x: torch.Tensor, columns: int) -> TensorDescriptor:
    """x (batch, heads, n, d), 8 bits, turned to (batch, heads, d, n), a block being all of d and `columns` of n: an
    8-bit dot wants its second operand with the summed index contiguous. Always a copy."""
    batch, heads, n, d = x.shape
    room = x.new_empty((batch, heads, d, triton.cdiv(n, 16) * 16))
    room[..., :n].copy_(x.transpose(-1, -2))
    return TensorDescriptor(room, [batch, heads, d, n], list(room.stride()), [1, 1, d, columns])

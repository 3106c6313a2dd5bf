"""What the attention kernels share on the side of the host: the rule that fixes bits, and tiles for the copy engine."""

from typing import NamedTuple

import numpy as np
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from lpsim.recipes import PLAIN, Maximum

LOG2_E = 1.4426950408889634
HEADS_TOGETHER = 4  # q, k, v and do of so many heads are 4 x 4 x n x d x 2 bytes: 17 MB for n = 4096, d = 128


class Rule(NamedTuple):
    """What changes bits, and is not in q, k and v."""

    causal: bool
    scale: float  #: of the scores
    keys: int = 128  #: of a tile
    maximum: Maximum = PLAIN
    l_from: str = "exact"  #: the weights that l sums: exact, or rounded (as the second dot takes them)


def log2_scale(scale: float) -> float:
    """RN32(RN32(scale) * RN32(log2 e)), what scores are multiplied by."""
    return float(np.float32(scale) * np.float32(LOG2_E))


def described(x: torch.Tensor, rows: int) -> TensorDescriptor:
    """x (batch, heads, n, d) for the copy engine, a block being `rows` of one head; a copy of x where it cannot
    read x in place: features not contiguous, rows or the start not aligned to 16 bytes, or a repeated dimension."""
    steps = [step if size > 1 else 16 for step, size in zip(x.stride(), x.shape, strict=True)]
    if x.stride(-1) != 1 or x.data_ptr() % 16 or any(step <= 0 or step % 8 for step in steps[:-1]):
        x = x.contiguous()
        steps = list(x.stride())
    return TensorDescriptor(x, list(x.shape), [*steps[:-1], 1], [1, 1, rows, x.shape[-1]])

"""delta = rowsum(o * do), as a Triton kernel, bit for bit what `lpsim.attention.backward` says.

Arithmetic, fp32, the order in which tl.sum adds a row of 16-bit values on sm_90: of each 8 features x = RN(o1 do1),
then x = fma(oj, doj, x) for j = 0, 2, .., 7; then the eighths of the row in a butterfly, the farthest first. Here the
order is spelt out, so that it does not hang on how the compiler lays out the loads, and is the same for a float32 o,
and for an o of two 16-bit values, whose sum float32 holds. For delta without o see attention_delta_again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch


@triton.jit
def eighths(x, HEAD: tl.constexpr, ROWS: tl.constexpr):
    """Features 8i .. 8i + 7 of x (ROWS, HEAD) as eight (ROWS, HEAD // 8)."""
    even, odd = tl.split(x.to(tl.float32).reshape(ROWS, HEAD // 8, 4, 2))
    x04, x26 = tl.split(even.reshape(ROWS, HEAD // 8, 2, 2))
    x15, x37 = tl.split(odd.reshape(ROWS, HEAD // 8, 2, 2))
    x0, x4 = tl.split(x04)
    x1, x5 = tl.split(x15)
    x2, x6 = tl.split(x26)
    x3, x7 = tl.split(x37)
    return x0, x1, x2, x3, x4, x5, x6, x7


@triton.jit
def delta_kernel(
    o, low, do, delta, heads, n, do_batch, do_head, do_row, do_feature, HEAD: tl.constexpr, ROWS: tl.constexpr,
    PAIR: tl.constexpr,
):  # fmt: skip
    """delta (batch, heads, n). o and, if PAIR, low contiguous, 16 bits or float32; do with any strides."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    batch_head = tl.program_id(1).to(tl.int64)
    features = tl.arange(0, HEAD)[None, :]
    inside = rows[:, None] < n
    do_at = batch_head // heads * do_batch + batch_head % heads * do_head
    at = (batch_head * n + rows[:, None]) * HEAD + features
    x = tl.load(o + at, mask=inside, other=0.0).to(tl.float32)
    if PAIR:
        x = x + tl.load(low + at, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(do + do_at + rows[:, None].to(tl.int64) * do_row + features * do_feature, mask=inside, other=0.0)
    x0, x1, x2, x3, x4, x5, x6, x7 = eighths(x, HEAD, ROWS)
    y0, y1, y2, y3, y4, y5, y6, y7 = eighths(y, HEAD, ROWS)
    total = tl.fma(x0, y0, x1 * y1)
    total = tl.fma(x2, y2, total)
    total = tl.fma(x3, y3, total)
    total = tl.fma(x4, y4, total)
    total = tl.fma(x5, y5, total)
    total = tl.fma(x6, y6, total)
    total = tl.fma(x7, y7, total)
    tl.store(delta + batch_head * n + rows, tl.sum(total, 1), mask=rows < n)


def delta_of(o: torch.Tensor, low: torch.Tensor | None, do: torch.Tensor) -> torch.Tensor:
    """delta (batch, heads, n), float32: rowsum(o * do), or rowsum((o + low) * do). o contiguous, 16 bits or float32;
    low as o, or None; do 16 bits."""
    import torch

    batch, heads, n, d = do.shape
    delta = do.new_empty((batch, heads, n), dtype=torch.float32)
    rows = max(16, 4096 // d)
    delta_kernel[(triton.cdiv(n, rows), batch * heads)](  # pyright: ignore[reportIndexIssue]
        o, low, do, delta, heads, n, *do.stride(), HEAD=d, ROWS=rows, PAIR=low is not None, num_warps=4,
        enable_fp_fusion=True,
    )  # fmt: skip
    return delta

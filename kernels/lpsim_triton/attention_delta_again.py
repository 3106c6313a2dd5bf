"""delta without the stored output, bit for bit what `lpsim.attention.backward` says: from the weights, computed again.

  "P"   delta = rowsum(dp * p), key tiles ascending: delta = RN(delta + the tile's sum). So the keys of a tile matter.
  "PV"  o = RN16(p) v on one accumulator, float32; delta = rowsum(o * do)
with p = EX2(fma(s, scale, -lse)) and dp = do v^T, both 0 where masked, even if dp is NaN. A row sum goes in the order
of an accumulator's registers: x = RN(a1 b1), fma(a0, b0, x), then the row's other elements of the thread, ascending,
fma each; then the four threads in a butterfly, 2 apart and 1 apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from .attention_forward import tile_position
from .attention_seen import described_pairs, keys_of_rows, seen_scores
from .attention_tiles import HEADS_TOGETHER, Rule, described, log2_scale

if TYPE_CHECKING:
    import torch


@triton.jit
def delta_again_kernel(
    q_desc, k_desc, v_desc, do_desc, lse, delta, scale, mask_desc, sides, heads, kv_group, n, n_keys, tiles,
    batch_heads,
    HEAD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PAIRS: tl.constexpr, FROM_P: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """delta (batch, heads, n), contiguous; lse the same."""
    tile, batch_head = tile_position(tl.program_id(0), tiles, batch_heads, GROUP, PAIRS.causal)
    batch, head = batch_head // heads, batch_head % heads
    first_row = tile * ROWS
    rows = first_row + tl.arange(0, ROWS)
    q = q_desc.load([batch, head, first_row, 0]).reshape(ROWS, HEAD)
    do = do_desc.load([batch, head, first_row, 0]).reshape(ROWS, HEAD)
    row_lse = tl.load(lse + batch_head.to(tl.int64) * n + rows, mask=rows < n, other=float("inf"))
    seen = (sides[0], sides[1], mask_desc)
    start, _, stop = keys_of_rows(first_row, n_keys, seen, ROWS, KEYS, PAIRS)
    factor = 1.0 if PAIRS.mask == "bias" else scale
    total = tl.zeros([ROWS], tl.float32)
    o = tl.zeros([ROWS, HEAD], tl.float32)
    for first_key in tl.range(start, stop, KEYS):
        k = k_desc.load([batch, head // kv_group, first_key, 0]).reshape(KEYS, HEAD)
        v = v_desc.load([batch, head // kv_group, first_key, 0]).reshape(KEYS, HEAD)
        s, visible = seen_scores(
            tl.dot(q, k.T), (batch, head, n_keys), first_row, first_key, scale, seen, ROWS, KEYS, False, PAIRS
        )  # fmt: skip
        # Masked: 2^-inf = 0. A select of p and one of dp would be moved behind their product, out of reach of an fma.
        p = tl.math.exp2(tl.where(visible, tl.fma(s, factor, -row_lse[:, None]), float("-inf")))
        if FROM_P:
            total = total + tl.sum(p * tl.where(visible, tl.dot(do, v.T), 0.0), 1)
        else:
            o = tl.dot(p.to(q.dtype), v, o)
    if not FROM_P:
        total = tl.sum(o * do.to(tl.float32), 1)
    tl.store(delta + batch_head.to(tl.int64) * n + rows, total, mask=rows < n)


def delta_again(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lse: torch.Tensor, do: torch.Tensor, rule: Rule,
    mask: torch.Tensor | None,
) -> torch.Tensor:  # fmt: skip
    """delta (batch, heads, n), float32, as rule.delta_from, "P" or "PV", has it; arguments as attention_backward's."""
    batch, heads, n, d = q.shape
    n_keys = k.shape[2]
    delta = lse.new_empty(lse.shape)
    rows, keys, warps = 64, rule.keys, 4
    pairs, seen = described_pairs(rule, mask, (n, n_keys), rows, keys)
    tiles = triton.cdiv(n, rows)
    delta_again_kernel[(tiles * batch * heads,)](  # pyright: ignore[reportIndexIssue]
        described(q, rows), described(k, keys), described(v, keys), described(do, rows), lse, delta,
        log2_scale(rule.scale), *seen, heads, heads // k.shape[1], n, n_keys, tiles, batch * heads,
        HEAD=d, ROWS=rows, KEYS=keys, PAIRS=pairs, FROM_P=rule.delta_from == "P", GROUP=HEADS_TOGETHER,
        num_warps=warps, num_stages=2 if d <= 64 else 1, enable_fp_fusion=True,
    )  # fmt: skip
    return delta

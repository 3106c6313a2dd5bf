"""Flash attention backward as Triton kernels for sm_90: no atomics, so the order of every sum is fixed.

Arithmetic (fp32, base 2; emulated by `lpsim.attention.backward`, recipe triton):
  delta   rowsum(o * do): see attention_delta
  dv, dk  per tile of keys, query rows ascending on live accumulators: p = EX2(fma(s, scale, -lse)), 0 where masked;
          dv += RN16(p) do; ds = RN(p * RN(dp - delta)); dk += RN16(ds) q; at the end RN16(RN(dk * softmax scale))
  dq      per tile of query rows, keys ascending, the same ds: dq += RN16(ds) k; at the end as dk
Query heads that share a key head add to dk and dv in ascending order, on the same accumulator.

A dot adds 16 products at a time, in order, and a masked product adds nothing: so no tile changes a bit, and all of
them are free to be tuned. Nor does it matter whether dq computes ds again or reads what the dk, dv kernel stored.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from . import attention_backward_async as overlapping
from .attention_delta import delta_of
from .attention_forward import tile_position
from .attention_tiles import HEADS_TOGETHER, Rule, described, log2_scale

DS_BYTES = 1 << 31  # if ds is larger than this, it is computed twice instead of stored


@triton.jit
def key_tile_rows(
    dk, dv, k, v, q_desc, do_desc, ds_desc, lse, delta, batch, head, batch_head, first_key, start, stop, n, scale,
    HEAD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, MASKED: tl.constexpr, STORE: tl.constexpr,
):  # fmt: skip
    """Query rows start .. stop go by one tile of keys; MASKED: rows above the diagonal among them."""
    for first_row in tl.range(start, stop, ROWS):
        q = q_desc.load([batch, head, first_row, 0]).reshape(ROWS, HEAD)
        rows = first_row + tl.arange(0, ROWS)
        # Beyond the last row q and do read as 0 and lse as infinity, so that p and ds are 0.
        row_lse = tl.load(lse + batch_head.to(tl.int64) * n + rows, mask=rows < n, other=float("inf"))
        row_delta = tl.load(delta + batch_head.to(tl.int64) * n + rows, mask=rows < n, other=0.0)
        p = tl.math.exp2(tl.fma(tl.dot(k, q.T), scale, -row_lse[None, :]))
        if MASKED:
            p = tl.where(rows[None, :] >= first_key + tl.arange(0, KEYS)[:, None], p, 0.0)
        do = do_desc.load([batch, head, first_row, 0]).reshape(ROWS, HEAD)
        dv = tl.dot(p.to(k.dtype), do, dv)
        ds = (p * (tl.dot(v, do.T) - row_delta[None, :])).to(k.dtype)
        dk = tl.dot(ds, q, dk)
        if STORE:
            ds_desc.store([batch_head, first_key, first_row], ds.reshape(1, KEYS, ROWS))
    return dk, dv


@triton.jit
def dk_dv_kernel(
    q_desc, k_desc, v_desc, do_desc, ds_desc, lse, delta, dk_out, dv_out, scale, softmax_scale, kv_heads, kv_group,
    n, n_keys, tiles, batch_heads,
    HEAD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr, STORE: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """dk, dv (batch, kv_heads, n_keys, HEAD), contiguous; and ds^T (batch * heads, n_keys, n) if STORE."""
    tile, batch_head = tile_position(tl.program_id(0), tiles, batch_heads, GROUP, False)
    batch, kv_head = batch_head // kv_heads, batch_head % kv_heads
    first_key = tile * KEYS
    k = k_desc.load([batch, kv_head, first_key, 0]).reshape(KEYS, HEAD)
    v = v_desc.load([batch, kv_head, first_key, 0]).reshape(KEYS, HEAD)
    dk = tl.zeros([KEYS, HEAD], tl.float32)
    dv = tl.zeros([KEYS, HEAD], tl.float32)
    # From `clear` on every row sees every key of the tile; rows before `start` see none.
    start = first_key // ROWS * ROWS if CAUSAL else 0
    clear = tl.minimum(tl.cdiv(first_key + KEYS - 1, ROWS) * ROWS, tl.cdiv(n, ROWS) * ROWS) if CAUSAL else 0
    for member in tl.range(0, kv_group, num_stages=1):
        head = kv_head * kv_group + member
        row_head = (batch * kv_heads + kv_head) * kv_group + member
        if CAUSAL:
            dk, dv = key_tile_rows(
                dk, dv, k, v, q_desc, do_desc, ds_desc, lse, delta, batch, head, row_head, first_key, start, clear, n,
                scale, HEAD, ROWS, KEYS, True, STORE,
            )  # fmt: skip
        dk, dv = key_tile_rows(
            dk, dv, k, v, q_desc, do_desc, ds_desc, lse, delta, batch, head, row_head, first_key, clear, n, n,
            scale, HEAD, ROWS, KEYS, False, STORE,
        )  # fmt: skip
    keys = first_key + tl.arange(0, KEYS)
    at = (batch_head.to(tl.int64) * n_keys + keys[:, None]) * HEAD + tl.arange(0, HEAD)[None, :]
    tl.store(dv_out + at, dv.to(dv_out.dtype.element_ty), mask=keys[:, None] < n_keys)
    tl.store(dk_out + at, (dk * softmax_scale).to(dk_out.dtype.element_ty), mask=keys[:, None] < n_keys)


@triton.jit
def row_tile_keys(
    dq, q, do, row_lse, row_delta, k_desc, v_desc, batch, kv_head, first_row, start, stop, n_keys, scale,
    HEAD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Keys start .. stop go by one tile of query rows; MASKED: some of the pairs are hidden."""
    for first_key in tl.range(start, stop, KEYS):
        k = k_desc.load([batch, kv_head, first_key, 0]).reshape(KEYS, HEAD)
        v = v_desc.load([batch, kv_head, first_key, 0]).reshape(KEYS, HEAD)
        p = tl.math.exp2(tl.fma(tl.dot(q, k.T), scale, -row_lse[:, None]))
        if MASKED:
            keys = first_key + tl.arange(0, KEYS)
            visible = (keys < n_keys)[None, :]
            if CAUSAL:
                visible = visible & (first_row + tl.arange(0, ROWS)[:, None] >= keys[None, :])
            p = tl.where(visible, p, 0.0)
        ds = p * (tl.dot(do, v.T) - row_delta[:, None])
        dq = tl.dot(ds.to(q.dtype), k, dq)
    return dq


@triton.jit
def dq_kernel(
    q_desc, k_desc, v_desc, do_desc, lse, delta, dq_out, scale, softmax_scale, heads, kv_group, n, n_keys, tiles,
    batch_heads, HEAD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """dq (batch, heads, n, HEAD), contiguous; ds is computed again."""
    tile, batch_head = tile_position(tl.program_id(0), tiles, batch_heads, GROUP, CAUSAL)
    batch, head = batch_head // heads, batch_head % heads
    first_row = tile * ROWS
    rows = first_row + tl.arange(0, ROWS)
    q = q_desc.load([batch, head, first_row, 0]).reshape(ROWS, HEAD)
    do = do_desc.load([batch, head, first_row, 0]).reshape(ROWS, HEAD)
    row_lse = tl.load(lse + batch_head.to(tl.int64) * n + rows, mask=rows < n, other=float("inf"))
    row_delta = tl.load(delta + batch_head.to(tl.int64) * n + rows, mask=rows < n, other=0.0)
    stop = tl.minimum(first_row + ROWS, n_keys) if CAUSAL else n_keys
    clear = (tl.minimum(first_row + 1, n_keys) if CAUSAL else n_keys) // KEYS * KEYS
    dq = tl.zeros([ROWS, HEAD], tl.float32)
    dq = row_tile_keys(
        dq, q, do, row_lse, row_delta, k_desc, v_desc, batch, head // kv_group, first_row, 0, clear, n_keys, scale,
        HEAD, ROWS, KEYS, False, CAUSAL,
    )  # fmt: skip
    dq = row_tile_keys(
        dq, q, do, row_lse, row_delta, k_desc, v_desc, batch, head // kv_group, first_row, clear, stop, n_keys, scale,
        HEAD, ROWS, KEYS, True, CAUSAL,
    )  # fmt: skip
    at = (batch_head.to(tl.int64) * n + rows[:, None]) * HEAD + tl.arange(0, HEAD)[None, :]
    tl.store(dq_out + at, (dq * softmax_scale).to(dq_out.dtype.element_ty), mask=rows[:, None] < n)


@triton.jit
def dq_from_ds_kernel(
    ds_desc, k_desc, dq_out, softmax_scale, heads, kv_group, n, n_keys, tiles, batch_heads,
    HEAD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """dq (batch, heads, n, HEAD) = RN(ds k * softmax scale), ds^T as the dk, dv kernel stored it.

    Causal: ROWS must be that kernel's keys of a tile, so that only stored parts of ds are read.
    """
    tile, batch_head = tile_position(tl.program_id(0), tiles, batch_heads, GROUP, CAUSAL)
    batch, head = batch_head // heads, batch_head % heads
    first_row = tile * ROWS
    stop = tl.minimum(first_row + ROWS, n_keys) if CAUSAL else n_keys
    dq = tl.zeros([ROWS, HEAD], tl.float32)
    for first_key in tl.range(0, stop, KEYS):
        ds = ds_desc.load([batch_head, first_key, first_row]).reshape(KEYS, ROWS)
        k = k_desc.load([batch, head // kv_group, first_key, 0]).reshape(KEYS, HEAD)
        dq = tl.dot(ds.T, k, dq)
    rows = first_row + tl.arange(0, ROWS)
    at = (batch_head.to(tl.int64) * n + rows[:, None]) * HEAD + tl.arange(0, HEAD)[None, :]
    tl.store(dq_out + at, (dq * softmax_scale).to(dq_out.dtype.element_ty), mask=rows[:, None] < n)


class Tile(NamedTuple):
    """How one of the two kernels runs. Nothing here changes a bit."""

    rows: int  #: query rows of a tile
    keys: int  #: keys of a tile
    warps: int
    stages: int
    overlapped: bool = False  #: attention_backward_async, `stages` buffers, 128 rows or keys of its own


class Tuning(NamedTuple):
    """What is free to choose: no bit depends on it."""

    dk_dv: Tile
    dq: Tile
    store_ds: bool  #: the dq kernel reads ds, which the dk, dv kernel stored, instead of computing it again


def default_tuning(head: int, shape: tuple[int, int, int]) -> Tuning:
    """For an H200; see docs/gpu-attention.md. shape: (batch * heads, n, n_keys)."""
    matrices, n, n_keys = shape
    if head > 128:
        return Tuning(Tile(32, 64, 8, 1), Tile(64, 32, 4, 1), False)
    if min(n, n_keys) < 128:
        return Tuning(Tile(64, 64, 4, 1), Tile(64, 64, 4, 1), False)
    if head <= 64:  # few operations for each ds: to store it would cost more than to compute it again
        return Tuning(Tile(128, 128, 4, 2, overlapped=True), Tile(64, 64, 4, 2), False)
    store = 2 * matrices * n * n_keys <= DS_BYTES
    dq = Tile(128, 64, 4, 3) if store else Tile(128, 64, 4, 2, overlapped=True)
    return Tuning(Tile(64, 128, 4, 2, overlapped=True), dq, store)


def backward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, do: torch.Tensor,
    rule: Rule, *, tuning: Tuning | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """(dq, dk, dv, delta): gradients of `attention_forward.forward`, in q's dtype, contiguous; delta float32.

    o and lse as the forward gave them, o possibly its o_wide; do as q. The rule's maximum does not matter here:
    lse holds it. The caller has checked the arguments.
    """
    batch, heads, n, d = q.shape
    tuned = tuning or default_tuning(d, (batch * heads, n, k.shape[2]))
    delta = delta_of(o, do)
    dq, dk, dv = (torch.empty(x.shape, dtype=q.dtype, device=q.device) for x in (q, k, v))
    stored = room_for_ds(q, k.shape[2]) if tuned.store_ds else None
    fill_dk_dv(q, k, v, do, stored, lse, delta, dk, dv, rule, tuned.dk_dv)
    if stored is not None:
        if rule.causal and tuned.dq.rows != tuned.dk_dv.keys:
            raise ValueError(f"{tuned}: causal with stored ds needs dq.rows equal to dk_dv.keys.")
        fill_dq_from(stored, k, dq, rule, tuned.dq)
    else:
        fill_dq(q, k, v, do, lse, delta, dq, rule, tuned.dq)
    return dq, dk, dv, delta


def fill_dk_dv(q, k, v, do, stored, lse, delta, dk, dv, rule: Rule, tile: Tile) -> None:
    """dk and dv, and ds^T if there is room for it."""
    batch, heads, n, d = q.shape
    kv_heads, n_keys = k.shape[1], k.shape[2]
    rows, keys, warps, stages, overlapped = tile
    if overlapped:
        ds = None if stored is None else ds_tiles(stored, n, overlapping.OWN.value, rows)
        overlapping.launch_dk_dv(q, k, v, do, ds, lse, delta, dk, dv, rule, rows, stages)
        return
    ds = None if stored is None else ds_tiles(stored, n, keys, rows)
    tiles = triton.cdiv(n_keys, keys)
    dk_dv_kernel[(tiles * batch * kv_heads,)](  # pyright: ignore[reportIndexIssue]
        described(q, rows), described(k, keys), described(v, keys), described(do, rows), ds, lse, delta, dk, dv,
        log2_scale(rule.scale), rule.scale, kv_heads, heads // kv_heads, n, n_keys, tiles, batch * kv_heads,
        HEAD=d, ROWS=rows, KEYS=keys, CAUSAL=rule.causal, STORE=stored is not None, GROUP=HEADS_TOGETHER,
        num_warps=warps, num_stages=stages, enable_fp_fusion=True,
    )  # fmt: skip


def fill_dq(q, k, v, do, lse, delta, dq, rule: Rule, tile: Tile) -> None:
    """dq, with ds computed again."""
    batch, heads, n, d = q.shape
    rows, keys, warps, stages, overlapped = tile
    if overlapped:
        overlapping.launch_dq(q, k, v, do, lse, delta, dq, rule, keys, stages)
        return
    tiles = triton.cdiv(n, rows)
    dq_kernel[(tiles * batch * heads,)](  # pyright: ignore[reportIndexIssue]
        described(q, rows), described(k, keys), described(v, keys), described(do, rows), lse, delta, dq,
        log2_scale(rule.scale), rule.scale, heads, heads // k.shape[1], n, k.shape[2], tiles, batch * heads,
        HEAD=d, ROWS=rows, KEYS=keys, CAUSAL=rule.causal, GROUP=HEADS_TOGETHER,
        num_warps=warps, num_stages=stages, enable_fp_fusion=True,
    )  # fmt: skip


def fill_dq_from(stored, k, dq, rule: Rule, tile: Tile) -> None:
    """dq from stored ds^T."""
    batch, heads, n, d = dq.shape
    tiles = triton.cdiv(n, tile.rows)
    dq_from_ds_kernel[(tiles * batch * heads,)](  # pyright: ignore[reportIndexIssue]
        ds_tiles(stored, n, tile.keys, tile.rows), described(k, tile.keys), dq, rule.scale, heads,
        heads // k.shape[1], n, k.shape[2], tiles, batch * heads,
        HEAD=d, ROWS=tile.rows, KEYS=tile.keys, CAUSAL=rule.causal, GROUP=HEADS_TOGETHER,
        num_warps=tile.warps, num_stages=tile.stages, enable_fp_fusion=True,
    )  # fmt: skip


def room_for_ds(q: torch.Tensor, n_keys: int) -> torch.Tensor:
    """Uninitialised (batch * heads, n_keys, n), its rows padded to 16 bytes."""
    batch, heads, n, _ = q.shape
    return torch.empty((batch * heads, n_keys, triton.cdiv(n, 8) * 8), dtype=q.dtype, device=q.device)


def ds_tiles(stored: torch.Tensor, n: int, keys: int, rows: int) -> TensorDescriptor:
    """`room_for_ds` for the copy engine, without its padding."""
    return TensorDescriptor(stored, [*stored.shape[:2], n], list(stored.stride()), [1, keys, rows])

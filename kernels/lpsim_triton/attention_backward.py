"""Flash attention backward as Triton kernels for sm_90: no atomics, so the order of every sum is fixed.

Arithmetic (fp32, base 2; emulated by `lpsim.attention.backward`, recipe triton):
  delta   rowsum(o * do): see attention_delta; or without o: see attention_delta_again
  dv, dk  per tile of keys, query rows ascending on live accumulators: p = EX2(fma(s, scale, -lse)), 0 where masked;
          dv += RN16(p) do; ds = RN(p * RN(dp - delta)), 0 where masked, even if dp or delta is NaN;
          dk += RN16(ds) q; at the end RN16(RN(dk * softmax scale))
  dq      per tile of query rows, keys ascending, the same ds: dq += RN16(ds) k; at the end as dk
Query heads that share a key head add to dk and dv in ascending order, on the same accumulator.

A dot adds 16 products at a time, in order, and a masked product adds nothing: so no tile changes a bit, and all of
them are free to be tuned. Nor does it matter whether dq computes ds again or reads what the dk, dv kernel stored. But 0
times a NaN or infinite q, k or do is NaN, for all rows and keys of the tile that holds it: docs/gpu-attention.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from . import attention_backward_async, attention_dq_async
from .attention_backward_kernels import dk_dv_kernel, dq_from_ds_kernel, dq_kernel
from .attention_delta import delta_of
from .attention_delta_again import delta_again
from .attention_seen import described_pairs
from .attention_tiles import HEADS_TOGETHER, Rule, described, log2_scale

if TYPE_CHECKING:
    import torch

DS_BYTES = 1 << 31  # if ds is larger than this, it is computed twice instead of stored


class Tile(NamedTuple):
    """How one of the two kernels runs. Nothing here changes a bit."""

    rows: int  #: query rows of a tile
    keys: int  #: keys of a tile
    warps: int
    stages: int
    overlapped: bool = False  #: the _async kernels: `stages` buffers, 128 rows or keys of their own


class Tuning(NamedTuple):
    """What is free to choose: no bit depends on it."""

    dk_dv: Tile
    dq: Tile
    store_ds: bool  #: the dq kernel reads ds, which the dk, dv kernel stored, instead of computing it again


def default_tuning(head: int, shape: tuple[int, int, int], plain: bool) -> Tuning:
    """For an H200; see docs/gpu-attention.md. shape: (batch * heads, n, n_keys); plain: no mask and no window."""
    matrices, n, n_keys = shape
    if head > 128:
        return Tuning(Tile(32, 64, 8, 1), Tile(64, 32, 4, 1), False)
    if min(n, n_keys) < 128 or not plain:
        return Tuning(Tile(64, 64, 4, 1), Tile(64, 64, 4, 1), False)
    if head <= 64:  # few operations for each ds: to store it would cost more than to compute it again
        return Tuning(Tile(128, 128, 4, 2, overlapped=True), Tile(64, 64, 4, 2), False)
    store = 2 * matrices * n * n_keys <= DS_BYTES
    dq = Tile(128, 64, 4, 3) if store else Tile(128, 64, 4, 2, overlapped=True)
    return Tuning(Tile(64, 128, 4, 2, overlapped=True), dq, store)


class Given(NamedTuple):
    """What the kernels read."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    do: torch.Tensor
    lse: torch.Tensor
    delta: torch.Tensor
    mask: torch.Tensor | None
    rule: Rule


def backward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, more: torch.Tensor, lse: torch.Tensor,
    do: torch.Tensor, rule: Rule, *, mask: torch.Tensor | None = None, tuning: Tuning | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """(dq, dk, dv, delta): gradients of `attention_forward.forward`, in q's dtype, contiguous; delta float32.

    q, k, v, rule, mask: as the forward had them; o, more, lse: as it gave them, of which rule.delta_from decides what
    is read: o, more ("O32"), both ("pair") or none ("P", "PV"). do as q. The rule's maximum does not matter here:
    lse holds it. No gradient of a bias. The caller has checked the arguments.
    """
    batch, heads, n, d = q.shape
    plain = mask is None and rule.window is None
    tuned = tuning or default_tuning(d, (batch * heads, n, k.shape[2]), plain)
    if rule.delta_from in ("P", "PV"):
        delta = delta_again(q, k, v, lse, do, rule, mask)
    else:
        pair = rule.delta_from == "pair"
        delta = delta_of(more if rule.delta_from == "O32" else o, more if pair else None, do)
    dq, dk, dv = (x.new_empty(x.shape) for x in (q, k, v))
    given = Given(q, k, v, do, lse, delta, mask, rule)
    stored = room_for_ds(q, k.shape[2]) if tuned.store_ds else None
    fill_dk_dv(given, stored, dk, dv, tuned.dk_dv)
    if stored is not None:
        if rule.causal and tuned.dq.rows != tuned.dk_dv.keys:
            raise ValueError(f"{tuned}: causal with stored ds needs dq.rows equal to dk_dv.keys.")
        fill_dq_from(stored, k, dq, rule, tuned.dq)
    else:
        fill_dq(given, dq, tuned.dq)
    return dq, dk, dv, delta


def fill_dk_dv(given: Given, stored: torch.Tensor | None, dk: torch.Tensor, dv: torch.Tensor, tile: Tile) -> None:
    """dk and dv, and ds^T if there is room for it."""
    q, k, v, do, lse, delta, mask, rule = given
    batch, heads, n, d = q.shape
    kv_heads, n_keys = k.shape[1], k.shape[2]
    rows, keys, warps, stages, overlapped = tile
    if overlapped:
        ds = None if stored is None else ds_tiles(stored, n, attention_backward_async.OWN.value, rows)
        attention_backward_async.launch_dk_dv(q, k, v, do, ds, lse, delta, dk, dv, rule, rows, stages)
        return
    ds = None if stored is None else ds_tiles(stored, n, keys, rows)
    tiles = triton.cdiv(n_keys, keys)
    pairs, seen = described_pairs(rule, mask, (n, n_keys), rows, keys)
    dk_dv_kernel[(tiles * batch * kv_heads,)](  # pyright: ignore[reportIndexIssue]
        described(q, rows), described(k, keys), described(v, keys), described(do, rows), ds, lse, delta, dk, dv,
        log2_scale(rule.scale), rule.scale, *seen, kv_heads, heads // kv_heads, n, n_keys, tiles, batch * kv_heads,
        HEAD=d, ROWS=rows, KEYS=keys, PAIRS=pairs, STORE=stored is not None, GROUP=HEADS_TOGETHER,
        RAGGED=n % rows != 0, num_warps=warps, num_stages=stages, enable_fp_fusion=True,
    )  # fmt: skip


def fill_dq(given: Given, dq: torch.Tensor, tile: Tile) -> None:
    """dq, with ds computed again."""
    q, k, v, do, lse, delta, mask, rule = given
    batch, heads, n, d = q.shape
    rows, keys, warps, stages, overlapped = tile
    if overlapped:
        attention_dq_async.launch_dq(q, k, v, do, lse, delta, dq, rule, keys, stages)
        return
    tiles = triton.cdiv(n, rows)
    pairs, seen = described_pairs(rule, mask, (n, k.shape[2]), rows, keys)
    dq_kernel[(tiles * batch * heads,)](  # pyright: ignore[reportIndexIssue]
        described(q, rows), described(k, keys), described(v, keys), described(do, rows), lse, delta, dq,
        log2_scale(rule.scale), rule.scale, *seen, heads, heads // k.shape[1], n, k.shape[2], tiles, batch * heads,
        HEAD=d, ROWS=rows, KEYS=keys, PAIRS=pairs, GROUP=HEADS_TOGETHER,
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
    return q.new_empty((batch * heads, n_keys, triton.cdiv(n, 8) * 8))


def ds_tiles(stored: torch.Tensor, n: int, keys: int, rows: int) -> TensorDescriptor:
    """`room_for_ds` for the copy engine, without its padding."""
    return TensorDescriptor(stored, [*stored.shape[:2], n], list(stored.stride()), [1, keys, rows])

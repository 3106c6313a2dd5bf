"""The kernels of `attention_backward`: dk and dv by key tile, dq by tile of query rows, dq from stored ds.

What each computes is said there. `seen`, PAIRS and the biased scores: attention_seen. p and ds of a pair that is
masked, or whose row or key does not exist, are cleared by a select: 0 times a dp or delta that is NaN would be NaN.
"""

import triton
import triton.language as tl

from .attention_forward import tile_position
from .attention_seen import keys_of_rows, seen_scores


@triton.jit
def key_tile_rows(
    dk, dv, k, v, q_desc, do_desc, ds_desc, lse, delta, place, n, batch_head, first_key, start, stop, scale, seen,
    HEAD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, MASKED: tl.constexpr, STORE: tl.constexpr,
    PAIRS: tl.constexpr,
):  # fmt: skip
    """Query rows start .. stop go by one tile of keys; MASKED: some of the pairs are hidden, or rows beyond the last.
    place: (batch, head, n_keys)."""
    batch, head, _ = place
    factor = 1.0 if PAIRS.mask == "bias" else scale
    for first_row in tl.range(start, stop, ROWS):
        q = q_desc.load([batch, head, first_row, 0]).reshape(ROWS, HEAD)
        rows = first_row + tl.arange(0, ROWS)
        # Beyond the last row q and do read as 0 and lse as infinity, so that p and ds are 0.
        row_lse = tl.load(lse + batch_head.to(tl.int64) * n + rows, mask=rows < n, other=float("inf"))
        row_delta = tl.load(delta + batch_head.to(tl.int64) * n + rows, mask=rows < n, other=0.0)
        s = tl.dot(k, q.T)
        if MASKED:
            s, visible = seen_scores(s, place, first_row, first_key, scale, seen, ROWS, KEYS, True, PAIRS)
            visible = visible & (rows < n)[None, :]
        p = tl.math.exp2(tl.fma(s, factor, -row_lse[None, :]))
        if MASKED:
            p = tl.where(visible, p, 0.0)
        do = do_desc.load([batch, head, first_row, 0]).reshape(ROWS, HEAD)
        dv = tl.dot(p.to(k.dtype), do, dv)
        ds = p * (tl.dot(v, do.T) - row_delta[None, :])
        if MASKED:
            ds = tl.where(visible, ds, 0.0)
        ds = ds.to(k.dtype)
        dk = tl.dot(ds, q, dk)
        if STORE:
            ds_desc.store([batch_head, first_key, first_row], ds.reshape(1, KEYS, ROWS))
    return dk, dv


@triton.jit
def rows_of_keys(first_key, n, seen, ROWS: tl.constexpr, KEYS: tl.constexpr, PAIRS: tl.constexpr):
    """start, clear, whole, stop: rows before `start` and from `stop` on see no key of the tile; those from `clear` on
    see every one; the tiles before `whole` have all their rows."""
    start = first_key // ROWS * ROWS if PAIRS.causal else 0
    clear = tl.minimum(tl.cdiv(first_key + KEYS - 1, ROWS) * ROWS, tl.cdiv(n, ROWS) * ROWS) if PAIRS.causal else 0
    stop = n
    if PAIRS.window:
        start = tl.maximum(first_key - seen[1], 0) // ROWS * ROWS
        stop = tl.minimum(first_key + KEYS + seen[0], n)
    if PAIRS.window or PAIRS.mask != "":
        clear = stop
    return start, clear, n // ROWS * ROWS, stop


@triton.jit
def dk_dv_kernel(
    q_desc, k_desc, v_desc, do_desc, ds_desc, lse, delta, dk_out, dv_out, scale, softmax_scale, mask_desc, sides,
    kv_heads, kv_group, n, n_keys, tiles, batch_heads,
    HEAD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PAIRS: tl.constexpr, STORE: tl.constexpr,
    GROUP: tl.constexpr, RAGGED: tl.constexpr,
):  # fmt: skip
    """dk, dv (batch, kv_heads, n_keys, HEAD), contiguous; and ds^T (batch * heads, n_keys, n) if STORE.

    RAGGED: ROWS does not divide n.
    """
    tile, batch_head = tile_position(tl.program_id(0), tiles, batch_heads, GROUP, False)
    batch, kv_head = batch_head // kv_heads, batch_head % kv_heads
    first_key = tile * KEYS
    k = k_desc.load([batch, kv_head, first_key, 0]).reshape(KEYS, HEAD)
    v = v_desc.load([batch, kv_head, first_key, 0]).reshape(KEYS, HEAD)
    dk = tl.zeros([KEYS, HEAD], tl.float32)
    dv = tl.zeros([KEYS, HEAD], tl.float32)
    seen = (sides[0], sides[1], mask_desc)
    start, clear, whole, stop = rows_of_keys(first_key, n, seen, ROWS, KEYS, PAIRS)
    for member in tl.range(0, kv_group, num_stages=1):
        place = (batch, kv_head * kv_group + member, n_keys)
        row_head = (batch * kv_heads + kv_head) * kv_group + member
        if PAIRS.causal or PAIRS.window or PAIRS.mask != "":
            dk, dv = key_tile_rows(
                dk, dv, k, v, q_desc, do_desc, ds_desc, lse, delta, place, n, row_head, first_key, start, clear,
                scale, seen, HEAD, ROWS, KEYS, True, STORE, PAIRS,
            )  # fmt: skip
        if not (PAIRS.window or PAIRS.mask != ""):
            dk, dv = key_tile_rows(
                dk, dv, k, v, q_desc, do_desc, ds_desc, lse, delta, place, n, row_head, first_key, clear, whole,
                scale, seen, HEAD, ROWS, KEYS, False, STORE, PAIRS,
            )  # fmt: skip
            if RAGGED:
                dk, dv = key_tile_rows(
                    dk, dv, k, v, q_desc, do_desc, ds_desc, lse, delta, place, n, row_head, first_key,
                    tl.maximum(clear, whole), stop, scale, seen, HEAD, ROWS, KEYS, True, STORE, PAIRS,
                )  # fmt: skip
    keys = first_key + tl.arange(0, KEYS)
    at = (batch_head.to(tl.int64) * n_keys + keys[:, None]) * HEAD + tl.arange(0, HEAD)[None, :]
    tl.store(dv_out + at, dv.to(dv_out.dtype.element_ty), mask=keys[:, None] < n_keys)
    tl.store(dk_out + at, (dk * softmax_scale).to(dk_out.dtype.element_ty), mask=keys[:, None] < n_keys)


@triton.jit
def row_tile_keys(
    dq, q, do, row_lse, row_delta, k_desc, v_desc, place, kv_head, first_row, start, stop, scale, seen,
    HEAD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, MASKED: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    """Keys start .. stop go by one tile of query rows; MASKED: some of the pairs are hidden. place: as above."""
    batch = place[0]
    factor = 1.0 if PAIRS.mask == "bias" else scale
    for first_key in tl.range(start, stop, KEYS):
        k = k_desc.load([batch, kv_head, first_key, 0]).reshape(KEYS, HEAD)
        v = v_desc.load([batch, kv_head, first_key, 0]).reshape(KEYS, HEAD)
        s = tl.dot(q, k.T)
        if MASKED:
            s, visible = seen_scores(s, place, first_row, first_key, scale, seen, ROWS, KEYS, False, PAIRS)
        p = tl.math.exp2(tl.fma(s, factor, -row_lse[:, None]))
        ds = p * (tl.dot(do, v.T) - row_delta[:, None])
        if MASKED:
            ds = tl.where(visible, ds, 0.0)
        dq = tl.dot(ds.to(q.dtype), k, dq)
    return dq


@triton.jit
def dq_kernel(
    q_desc, k_desc, v_desc, do_desc, lse, delta, dq_out, scale, softmax_scale, mask_desc, sides, heads, kv_group, n,
    n_keys, tiles, batch_heads, HEAD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PAIRS: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """dq (batch, heads, n, HEAD), contiguous; ds is computed again."""
    tile, batch_head = tile_position(tl.program_id(0), tiles, batch_heads, GROUP, PAIRS.causal)
    batch, head = batch_head // heads, batch_head % heads
    first_row = tile * ROWS
    rows = first_row + tl.arange(0, ROWS)
    q = q_desc.load([batch, head, first_row, 0]).reshape(ROWS, HEAD)
    do = do_desc.load([batch, head, first_row, 0]).reshape(ROWS, HEAD)
    row_lse = tl.load(lse + batch_head.to(tl.int64) * n + rows, mask=rows < n, other=float("inf"))
    row_delta = tl.load(delta + batch_head.to(tl.int64) * n + rows, mask=rows < n, other=0.0)
    seen = (sides[0], sides[1], mask_desc)
    start, clear, stop = keys_of_rows(first_row, n_keys, seen, ROWS, KEYS, PAIRS)
    place = (batch, head, n_keys)
    dq = tl.zeros([ROWS, HEAD], tl.float32)
    if not (PAIRS.window or PAIRS.mask != ""):
        dq = row_tile_keys(
            dq, q, do, row_lse, row_delta, k_desc, v_desc, place, head // kv_group, first_row, start, clear, scale,
            seen, HEAD, ROWS, KEYS, False, PAIRS,
        )  # fmt: skip
    dq = row_tile_keys(
        dq, q, do, row_lse, row_delta, k_desc, v_desc, place, head // kv_group, first_row, clear, stop, scale,
        seen, HEAD, ROWS, KEYS, True, PAIRS,
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

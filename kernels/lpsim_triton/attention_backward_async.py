"""The dk, dv kernel once more, with roles for the warps, as in `attention_forward_async`: one warp asks the copy engine
for tiles, two groups of four warps compute, and each group has its dots overlap its softmax. dq: attention_dq_async.

The same arithmetic as `attention_backward`, bit for bit; that one stays the oracle. Written in Gluon.
"""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from .attention_forward_async import barriers, described_here, position, with_layout
from .attention_tiles import HEADS_TOGETHER, Rule, log2_scale

OWN = gl.constexpr(64)  # keys of a group of warps in the dk, dv kernel, query rows in the dq kernel


@gluon.jit
def fetch(desc, buffer, barrier, batch, head, row):
    """Ask for one tile of a (batch, heads, n, d) tensor."""
    mbarrier.expect(barrier, desc.block_type.nbytes)
    tma.async_copy_global_to_shared(desc, [batch, head, row, 0], barrier, buffer)


@gluon.jit
def load_pairs(own_a_desc, own_b_desc, a_desc, b_desc, own_a, own_b, a, b, ready, place, TILE: gl.constexpr,
               STAGES: gl.constexpr):  # fmt: skip
    """The loading warp: the groups' own two tiles once, then pairs of tiles of a and b.

    ready: barriers (own, a full, a free, b full, b free). place: (batch, own head, own first row, first head of a and
    b, heads of them, first row of their first tile, tiles a head).
    """
    own_full, a_full, a_free, b_full, b_free = ready
    batch, own_head, own_row, first_head, heads, first_row, tiles = place
    for group in gl.static_range(2):
        row, full = own_row + group * OWN, own_full.index(group)
        mbarrier.expect(full, own_a_desc.block_type.nbytes + own_b_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(own_a_desc, [batch, own_head, row, 0], full, own_a.index(group))
        tma.async_copy_global_to_shared(own_b_desc, [batch, own_head, row, 0], full, own_b.index(group))
    for step in range(heads * tiles):
        stage, lap = step % STAGES, step // STAGES & 1
        head, row = first_head + step // tiles, first_row + step % tiles * TILE
        mbarrier.wait(a_free.index(stage), lap ^ 1)  # nobody waits on the first lap
        fetch(a_desc, a.index(stage), a_full.index(stage), batch, head, row)
        mbarrier.wait(b_free.index(stage), lap ^ 1)
        fetch(b_desc, b.index(stage), b_full.index(stage), batch, head, row)


@gluon.jit
def row_numbers(lse, delta, head, first_row, n, ROWS: gl.constexpr, wanted=True):
    """(2 ROWS,) float32: lse of a tile of query rows, then their delta. 0 beyond the last row."""
    i = gl.arange(0, 2 * ROWS, layout=gl.BlockedLayout([2 * ROWS // 128], [32], [4], [0]))
    row = first_row + i % ROWS
    at = head * n + row
    return gl.load(gl.where(i < ROWS, lse + at, delta + at), mask=(row < n) & wanted, other=0.0)


@gluon.jit
def key_step(
    step, dk, dv, own_key, k, v, q, do, mine, ds_room, ds_desc, ready, place, out, statistics, numbers,
    HEAD: gl.constexpr, ROWS: gl.constexpr, STAGES: gl.constexpr, MASKED: gl.constexpr, CAUSAL: gl.constexpr,
    STORE: gl.constexpr,
):  # fmt: skip
    """dk and dv after one more tile of query rows, whose lse and delta are in `mine`; arguments as in key_gradients.

    MASKED: some rows do not exist or do not see some of the keys; there p and ds are 0, whatever dp and delta are. Both
    are cleared at once, because one comparison then serves both.
    """
    _, q_full, q_free, do_full, do_free = ready
    _, _, _, _, heads, first_row, tiles = place
    lse, delta = statistics
    scale, _, n, _ = numbers
    dtype: gl.constexpr = q.dtype
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    P: gl.constexpr = gl.DotOperandLayout(0, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD, 16]), 2)
    nothing = gl.full([OWN, ROWS], 0.0, gl.float32, layout=S)
    stage, lap = step % STAGES, step // STAGES & 1
    head, row = step // tiles, first_row + step % tiles * ROWS
    mbarrier.wait(q_full.index(stage), lap)
    s = warpgroup_mma(k, q.index(stage).permute((1, 0)), nothing, use_acc=False, is_async=True)
    mbarrier.wait(do_full.index(stage), lap)
    dp = warpgroup_mma(v, do.index(stage).permute((1, 0)), nothing, use_acc=False, is_async=True)
    coming = row_numbers(lse, delta, (step + 1) // tiles, first_row + (step + 1) % tiles * ROWS, n, ROWS,
                         step + 1 < heads * tiles)  # fmt: skip
    s = warpgroup_mma_wait(1, deps=[s])
    p = gl.exp2(gl.fma(s, scale, -mine.slice(0, ROWS).load(gl.SliceLayout(0, S))[None, :]))
    if MASKED:
        dp = warpgroup_mma_wait(0, deps=[dp])
        ds = p * (dp - mine.slice(ROWS, ROWS).load(gl.SliceLayout(0, S))[None, :])
        rows = row + gl.arange(0, ROWS, layout=gl.SliceLayout(0, S))[None, :]
        visible = rows < n
        if CAUSAL:
            visible = visible & (rows >= own_key + gl.arange(0, OWN, layout=gl.SliceLayout(1, S))[:, None])
        p, ds = gl.where(visible, p, 0.0), gl.where(visible, ds, 0.0).to(dtype)
    dv = warpgroup_mma(gl.convert_layout(p.to(dtype), P), do.index(stage), dv, is_async=True)
    if not MASKED:
        dp = warpgroup_mma_wait(1, deps=[dp])
        ds = (p * (dp - mine.slice(ROWS, ROWS).load(gl.SliceLayout(0, S))[None, :])).to(dtype)
    dk = warpgroup_mma(gl.convert_layout(ds, P), q.index(stage), dk, is_async=True)
    mine.store(coming)
    if STORE:
        tma.store_wait(0)
        ds_room.store(ds)
        fence_async_shared()
        tma.async_copy_shared_to_global(ds_desc, [out[2] + head, own_key, row], ds_room)
    dv = warpgroup_mma_wait(1, deps=[dv])
    mbarrier.arrive(do_free.index(stage), count=1)
    dk = warpgroup_mma_wait(0, deps=[dk])
    mbarrier.arrive(q_free.index(stage), count=1)
    return dk, dv


@gluon.jit
def key_gradients(
    group: gl.constexpr, k, v, q, do, rows_room, ds_room, ds_desc, ready, place, out, statistics, numbers,
    HEAD: gl.constexpr, ROWS: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, RAGGED: gl.constexpr,
    STORE: gl.constexpr,
):  # fmt: skip
    """A computing group: dk and dv of its 64 keys. out: (dk, dv, first query head) of this key head; statistics: (lse,
    delta) of the first query head; numbers: (scale, softmax scale, n, n_keys). RAGGED: ROWS does not divide n.

    Tiles of rows that need a mask have loops of their own, so that the others spend nothing on it: the first of a head
    if CAUSAL, the last if RAGGED."""
    _, _, first_key, _, heads, first_row, tiles = place
    lse, delta = statistics
    _, softmax_scale, n, n_keys = numbers
    D: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD, 16])
    dk = gl.full([OWN, HEAD], 0.0, gl.float32, layout=D)
    dv = gl.full([OWN, HEAD], 0.0, gl.float32, layout=D)
    own_key = first_key + group * OWN
    clear = gl.minimum(gl.cdiv(own_key + OWN - first_row, ROWS), tiles) if CAUSAL else 0
    whole = gl.maximum((n - first_row) // ROWS, clear) if RAGGED else tiles
    bounds = (0, clear, whole, tiles)
    mine = rows_room.index(group)
    mine.store(row_numbers(lse, delta, 0, first_row, n, ROWS))
    mbarrier.wait(ready[0].index(group), 0)
    for head in range(heads):
        for part in gl.static_range(3):
            if part == 1 or (CAUSAL if part == 0 else RAGGED):
                for step in range(head * tiles + bounds[part], head * tiles + bounds[part + 1]):
                    dk, dv = key_step(
                        step, dk, dv, own_key, k.index(group), v.index(group), q, do, mine, ds_room.index(group),
                        ds_desc, ready, place, out, statistics, numbers, HEAD, ROWS, STAGES, part != 1, CAUSAL, STORE,
                    )  # fmt: skip
    if STORE:
        tma.store_wait(0)
    keys = own_key + gl.arange(0, OWN, layout=gl.SliceLayout(1, D))
    at = keys[:, None] * HEAD + gl.arange(0, HEAD, layout=gl.SliceLayout(0, D))[None, :]
    gl.store(out[1] + at, dv.to(q.dtype), mask=keys[:, None] < n_keys)
    gl.store(out[0] + at, (dk * softmax_scale).to(q.dtype), mask=keys[:, None] < n_keys)


@gluon.jit
def dk_dv_kernel(
    q_desc, k_desc, v_desc, do_desc, ds_desc, lse, delta, dk, dv, scale, softmax_scale, kv_heads, kv_group, n, n_keys,
    key_tiles, batch_heads,
    HEAD: gl.constexpr, ROWS: gl.constexpr, CAUSAL: gl.constexpr, RAGGED: gl.constexpr, STORE: gl.constexpr,
    GROUP: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """As attention_backward.dk_dv_kernel, for 128 keys."""
    tile, batch_head = position(gl.program_id(0), key_tiles, batch_heads, GROUP, False)
    batch, kv_head = batch_head // kv_heads, batch_head % kv_heads
    first_key = tile * 2 * OWN
    first_row = gl.minimum(first_key // ROWS * ROWS, n) if CAUSAL else 0
    tiles = gl.cdiv(n - first_row, ROWS)

    shared: gl.constexpr = gl.NVMMASharedLayout(min(HEAD * 2, 128), 16, rank=2)
    k = gl.allocate_shared_memory(q_desc.dtype, [2, OWN, HEAD], shared)
    v = gl.allocate_shared_memory(q_desc.dtype, [2, OWN, HEAD], shared)
    q = gl.allocate_shared_memory(q_desc.dtype, [STAGES, ROWS, HEAD], shared)
    do = gl.allocate_shared_memory(q_desc.dtype, [STAGES, ROWS, HEAD], shared)
    ds_room = gl.allocate_shared_memory(
        q_desc.dtype, [2, OWN if STORE else 1, ROWS], gl.NVMMASharedLayout(min(ROWS * 2, 128), 16, rank=2)
    )
    rows_room = gl.allocate_shared_memory(gl.float32, [2, 2 * ROWS], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    ready = (barriers(2, 1), barriers(STAGES, 1), barriers(STAGES, 2), barriers(STAGES, 1), barriers(STAGES, 2))
    fence_async_shared()
    place = (batch, kv_head, first_key, kv_head * kv_group, kv_group, first_row, tiles)
    first_query_head = batch_head.to(gl.int64) * kv_group
    of_keys = batch_head.to(gl.int64) * n_keys * HEAD
    out = (dk + of_keys, dv + of_keys, batch_head * kv_group)
    statistics = (lse + first_query_head * n, delta + first_query_head * n)
    numbers = (scale, softmax_scale, n, n_keys)
    gl.warp_specialize(
        [
            (key_gradients, (0, k, v, q, do, rows_room, ds_room, ds_desc, ready, place, out, statistics, numbers, HEAD,
                             ROWS, STAGES, CAUSAL, RAGGED, STORE)),
            (key_gradients, (1, k, v, q, do, rows_room, ds_room, ds_desc, ready, place, out, statistics, numbers, HEAD,
                             ROWS, STAGES, CAUSAL, RAGGED, STORE)),
            (load_pairs, (k_desc, v_desc, q_desc, do_desc, k, v, q, do, ready, place, ROWS, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


def launch_dk_dv(q, k, v, do, ds, lse, delta, dk, dv, rule: Rule, rows: int, stages: int) -> None:
    """Fill dk and dv, and what the descriptor ds (or None) names with ds^T; rows: of a tile of queries."""
    batch, heads, n, d = q.shape
    kv_heads, n_keys = k.shape[1], k.shape[2]
    tiles = triton.cdiv(n_keys, 2 * OWN.value)
    dk_dv_kernel[(tiles * batch * kv_heads,)](  # pyright: ignore[reportIndexIssue]
        described_here(q, rows), described_here(k, OWN.value), described_here(v, OWN.value), described_here(do, rows),
        None if ds is None else with_layout(ds), lse, delta, dk, dv, log2_scale(rule.scale), rule.scale, kv_heads,
        heads // kv_heads, n, n_keys, tiles, batch * kv_heads, HEAD=d, ROWS=rows, CAUSAL=rule.causal,
        RAGGED=n % rows != 0, STORE=ds is not None, GROUP=HEADS_TOGETHER, STAGES=stages, num_warps=4,
        enable_fp_fusion=True,
    )  # fmt: skip

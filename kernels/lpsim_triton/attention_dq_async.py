"""The dq kernel once more, with the roles that the warps have in `attention_backward_async`.

The same arithmetic as `attention_backward`, bit for bit; that one stays the oracle. Written in Gluon.
"""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from .attention_backward_async import OWN, load_pairs
from .attention_forward_async import barriers, described_here, position
from .attention_tiles import HEADS_TOGETHER, Rule, log2_scale


@gluon.jit
def row_gradients(
    group: gl.constexpr, q, do, k, v, ready, place, dq_out, statistics, numbers, HEAD: gl.constexpr,
    KEYS: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """A computing group: dq of its 64 query rows. dq_out, statistics (lse, delta): of this head; numbers as above."""
    own_full, k_full, k_free, v_full, v_free = ready
    lse, delta = statistics
    scale, softmax_scale, n, n_keys = numbers
    dtype: gl.constexpr = q.dtype
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    D: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD, 16])
    P: gl.constexpr = gl.DotOperandLayout(0, D, 2)
    first_row = place[2] + group * OWN
    rows = first_row + gl.arange(0, OWN, layout=gl.SliceLayout(1, S))
    row_lse = gl.load(lse + rows, mask=rows < n, other=0.0)
    row_delta = gl.load(delta + rows, mask=rows < n, other=0.0)
    stop = gl.minimum(first_row + OWN, n_keys) if CAUSAL else n_keys
    clear = gl.minimum(first_row + 1, n_keys) if CAUSAL else n_keys
    dq = gl.full([OWN, HEAD], 0.0, gl.float32, layout=D)
    nothing = gl.full([OWN, KEYS], 0.0, gl.float32, layout=S)
    mbarrier.wait(own_full.index(group), 0)
    for step in range(gl.cdiv(stop, KEYS)):
        stage, lap = step % STAGES, step // STAGES & 1
        mbarrier.wait(k_full.index(stage), lap)
        s = warpgroup_mma(q.index(group), k.index(stage).permute((1, 0)), nothing, use_acc=False, is_async=True)
        mbarrier.wait(v_full.index(stage), lap)
        dp = warpgroup_mma(do.index(group), v.index(stage).permute((1, 0)), nothing, use_acc=False, is_async=True)
        s = warpgroup_mma_wait(1, deps=[s])
        p = gl.exp2(gl.fma(s, scale, -row_lse[:, None]))
        dp = warpgroup_mma_wait(0, deps=[dp])
        mbarrier.arrive(v_free.index(stage), count=1)
        ds = p * (dp - row_delta[:, None])
        if step * KEYS + KEYS > clear:
            keys = step * KEYS + gl.arange(0, KEYS, layout=gl.SliceLayout(0, S))
            visible = (keys < n_keys)[None, :]
            if CAUSAL:
                visible = visible & (rows[:, None] >= keys[None, :])
            ds = gl.where(visible, ds, 0.0)
        dq = warpgroup_mma_wait(
            0, deps=[warpgroup_mma(gl.convert_layout(ds.to(dtype), P), k.index(stage), dq, is_async=True)]
        )  # fmt: skip
        mbarrier.arrive(k_free.index(stage), count=1)
    rows = first_row + gl.arange(0, OWN, layout=gl.SliceLayout(1, D))
    at = rows[:, None] * HEAD + gl.arange(0, HEAD, layout=gl.SliceLayout(0, D))[None, :]
    gl.store(dq_out + at, (dq * softmax_scale).to(dtype), mask=rows[:, None] < n)


@gluon.jit
def dq_kernel(
    q_desc, k_desc, v_desc, do_desc, lse, delta, dq, scale, softmax_scale, heads, kv_group, n, n_keys, row_tiles,
    batch_heads, HEAD: gl.constexpr, KEYS: gl.constexpr, CAUSAL: gl.constexpr, GROUP: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """As attention_backward.dq_kernel, for 128 query rows."""
    tile, batch_head = position(gl.program_id(0), row_tiles, batch_heads, GROUP, CAUSAL)
    head = batch_head % heads
    first_row = tile * 2 * OWN
    stop = gl.minimum(first_row + 2 * OWN, n_keys) if CAUSAL else n_keys

    shared: gl.constexpr = gl.NVMMASharedLayout(min(HEAD * 2, 128), 16, rank=2)
    q = gl.allocate_shared_memory(q_desc.dtype, [2, OWN, HEAD], shared)
    do = gl.allocate_shared_memory(q_desc.dtype, [2, OWN, HEAD], shared)
    k = gl.allocate_shared_memory(q_desc.dtype, [STAGES, KEYS, HEAD], shared)
    v = gl.allocate_shared_memory(q_desc.dtype, [STAGES, KEYS, HEAD], shared)
    ready = (barriers(2, 1), barriers(STAGES, 1), barriers(STAGES, 2), barriers(STAGES, 1), barriers(STAGES, 2))
    fence_async_shared()
    place = (batch_head // heads, head, first_row, head // kv_group, 1, 0, gl.cdiv(stop, KEYS))
    first = batch_head.to(gl.int64) * n
    statistics = (lse + first, delta + first)
    numbers = (scale, softmax_scale, n, n_keys)
    dq_out = dq + first * HEAD
    gl.warp_specialize(
        [
            (row_gradients, (0, q, do, k, v, ready, place, dq_out, statistics, numbers, HEAD, KEYS, STAGES, CAUSAL)),
            (row_gradients, (1, q, do, k, v, ready, place, dq_out, statistics, numbers, HEAD, KEYS, STAGES, CAUSAL)),
            (load_pairs, (q_desc, do_desc, k_desc, v_desc, q, do, k, v, ready, place, KEYS, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


def launch_dq(q, k, v, do, lse, delta, dq, rule: Rule, keys: int, stages: int) -> None:
    """Fill dq; keys: of a tile."""
    batch, heads, n, d = q.shape
    tiles = triton.cdiv(n, 2 * OWN.value)
    dq_kernel[(tiles * batch * heads,)](  # pyright: ignore[reportIndexIssue]
        described_here(q, OWN.value), described_here(k, keys), described_here(v, keys), described_here(do, OWN.value),
        lse, delta, dq, log2_scale(rule.scale), rule.scale, heads, heads // k.shape[1], n, k.shape[2], tiles,
        batch * heads, HEAD=d, KEYS=keys, CAUSAL=rule.causal, GROUP=HEADS_TOGETHER, STAGES=stages, num_warps=4,
        enable_fp_fusion=True,
    )  # fmt: skip

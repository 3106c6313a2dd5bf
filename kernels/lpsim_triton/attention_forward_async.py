"""The forward kernel once more, with roles for the warps: one warp asks the copy engine for keys and values, two or
three groups of four warps compute, each 64 query rows, and drift apart, so that one's softmax runs beside another's
dots; and within a group the softmax of a tile runs beside the dot of the tile before it with v.

The same arithmetic as `attention_forward.forward_kernel`, bit for bit; that one stays its oracle. Written in Gluon,
Triton's lower level: Triton itself waits for a dot as soon as it is issued if anything but another dot reads it.
"""

from typing import NamedTuple

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
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from .attention_softmax_async import rounded_pairs, weigh
from .attention_tiles import HEADS_TOGETHER, Rule, Variant, described, log2_scale

ROWS = gl.constexpr(64)  # of a group of warps
LOWEST = gl.constexpr(-3.4028234663852886e38)  # where m starts: see attention_forward


class Sizes(NamedTuple):
    """What is compiled into the kernel besides the `Variant`."""

    head: int
    keys: int  #: of a tile
    stages: int  #: buffers for tiles of keys, and as many for values
    groups: int  #: of computing warps
    causal: bool


@gluon.jit
def load(q_desc, k_desc, v_desc, q, k, v, ready, place, SIZES: gl.constexpr):
    """The loading warp. ready: barriers (q, k full, k free, v full, v free); place: (batch, head, kv head, first row,
    key tiles)."""
    q_full, k_full, k_free, v_full, v_free = ready
    batch, head, kv_head, first_row, key_tiles = place
    GROUPS: gl.constexpr = SIZES.groups
    for group in gl.static_range(GROUPS):
        mbarrier.expect(q_full.index(group), q_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(
            q_desc, [batch, head, first_row + group * ROWS, 0], q_full.index(group), q.index(group)
        )
    for tile in range(key_tiles):
        stage, lap = tile % SIZES.stages, tile // SIZES.stages & 1
        mbarrier.wait(k_free.index(stage), lap ^ 1)  # nobody waits on the first lap
        mbarrier.expect(k_full.index(stage), k_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(
            k_desc, [batch, kv_head, tile * SIZES.keys, 0], k_full.index(stage), k.index(stage)
        )  # fmt: skip
        mbarrier.wait(v_free.index(stage), lap ^ 1)
        mbarrier.expect(v_full.index(stage), v_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(
            v_desc, [batch, kv_head, tile * SIZES.keys, 0], v_full.index(stage), v.index(stage)
        )  # fmt: skip


@gluon.jit
def scores(q, k, tile, nothing, STAGES: gl.constexpr):
    """q k^T of a key tile that is there, under way."""
    return warpgroup_mma(q, k.index(tile % STAGES).permute((1, 0)), nothing, use_acc=False, is_async=True)


@gluon.jit
def times_v(weights, v, v_full, tile, acc, STAGES: gl.constexpr):
    """acc + weights v of a key tile, under way."""
    mbarrier.wait(v_full.index(tile % STAGES), tile // STAGES & 1)
    return warpgroup_mma(weights, v.index(tile % STAGES), acc, is_async=True)


@gluon.jit
def store(acc, l, m, out, first_row, n, WITH: gl.constexpr):
    """What a group's rows have come to, into out: (o, o_more, lse) of this head."""
    O: gl.constexpr = acc.type.layout
    o, o_more, lse = out
    rows = first_row + gl.arange(0, ROWS, layout=m.type.layout)
    gl.store(lse + rows, m + gl.log2(l), mask=rows < n)
    l = gl.where((m == LOWEST) & (l == 0.0), 1.0, l)
    acc = acc / gl.convert_layout(l, gl.SliceLayout(1, O))[:, None]
    rows = first_row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, O))
    at = rows[:, None] * acc.shape[1] + gl.arange(0, acc.shape[1], layout=gl.SliceLayout(0, O))[None, :]
    rounded = acc.to(o.dtype.element_ty)
    if WITH.kept != "32":
        gl.store(o + at, rounded, mask=rows[:, None] < n)
    if WITH.kept == "pair":
        gl.store(o_more + at, (acc - rounded.to(gl.float32)).to(o.dtype.element_ty), mask=rows[:, None] < n)
    elif WITH.kept != "":
        gl.store(o_more + at, acc, mask=rows[:, None] < n)


@gluon.jit
def attend(group: gl.constexpr, q, k, v, ready, place, out, numbers, SIZES: gl.constexpr, WITH: gl.constexpr):
    """A computing group of warps: its 64 query rows, all keys that they see. out: (o, o_more, lse) of this head;
    numbers: (scale, beta, tolerance, n, n_keys)."""
    KEYS: gl.constexpr = SIZES.keys
    STAGES: gl.constexpr = SIZES.stages
    CAUSAL: gl.constexpr = SIZES.causal
    q_full, k_full, k_free, v_full, v_free = ready
    n, n_keys = numbers[3], numbers[4]
    dtype: gl.constexpr = q.dtype
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, SIZES.head, 16])
    P: gl.constexpr = gl.DotOperandLayout(0, O, 2)

    # Key tiles before `clear` are visible to every row of this group, those from `tiles` on to none.
    first_row = place[3] + group * ROWS
    stop = gl.minimum(first_row + ROWS, n_keys) if CAUSAL else n_keys
    tiles = gl.cdiv(stop, KEYS)
    clear = gl.maximum((gl.minimum(first_row + 1, n_keys) if CAUSAL else n_keys) // KEYS, 1)
    m = gl.full([ROWS], LOWEST, gl.float32, layout=gl.SliceLayout(1, S))
    l = gl.full([ROWS], 0.0, gl.float32, layout=gl.SliceLayout(1, S))
    acc = gl.full([ROWS, SIZES.head], 0.0, gl.float32, layout=O)
    nothing = gl.full([ROWS, KEYS], 0.0, gl.float32, layout=S)

    mine = q.index(group)
    mbarrier.wait(q_full.index(group), 0)
    mbarrier.wait(k_full.index(0), 0)
    s = warpgroup_mma_wait(0, deps=[scores(mine, k, 0, nothing, STAGES)])
    mbarrier.arrive(k_free.index(0), count=1)
    p, alpha, l, m = weigh(s, l, m, numbers, first_row, 0, dtype, True, CAUSAL, WITH)
    weights = gl.convert_layout(rounded_pairs(p, dtype), P)
    mbarrier.wait(k_full.index(1 % STAGES), 1 // STAGES & 1, pred=tiles > 1)
    for MASKED in gl.static_range(2):
        begin = clear if MASKED else 1
        end = tiles if MASKED else gl.minimum(clear, tiles)
        for tile in range(begin, end):
            s_coming = scores(mine, k, tile, nothing, STAGES)
            acc_coming = times_v(weights, v, v_full, tile - 1, acc, STAGES)
            s = warpgroup_mma_wait(1, deps=[s_coming])
            mbarrier.arrive(k_free.index(tile % STAGES), count=1)
            p, alpha, l, m = weigh(s, l, m, numbers, first_row, tile * KEYS, dtype, MASKED == 1, CAUSAL, WITH)
            # This wait is a loop, over which the compiler can't move the next one up: the softmax stays before it.
            mbarrier.wait(k_full.index((tile + 1) % STAGES), (tile + 1) // STAGES & 1, pred=tile + 1 < tiles)
            acc = warpgroup_mma_wait(0, deps=[acc_coming])
            # Not before that wait: the dot under way reads the registers of the weights.
            weights = gl.convert_layout(rounded_pairs(p, dtype), P)
            mbarrier.arrive(v_free.index((tile - 1) % STAGES), count=1)
            acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, O))[:, None]
    acc = warpgroup_mma_wait(0, deps=[times_v(weights, v, v_full, tiles - 1, acc, STAGES)])

    store(acc, l, m, out, first_row, n, WITH)


@gluon.jit
def barriers(COUNT: gl.constexpr, arrivals: gl.constexpr):
    """COUNT barriers that open when `arrivals` have arrived."""
    made = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(made.index(i), count=arrivals)
    return made


@gluon.jit
def position(program, tiles, heads, GROUP: gl.constexpr, LONGEST_LAST: gl.constexpr):
    """attention_forward.tile_position."""
    first = program // (GROUP * tiles) * GROUP
    width = gl.minimum(heads - first, GROUP)
    inside = program - first * tiles
    tile = inside // width
    if LONGEST_LAST:
        tile = tiles - 1 - tile
    return tile, first + inside % width


@gluon.jit
def forward_kernel(
    q_desc, k_desc, v_desc, o, o_more, lse, scale, beta, tolerance, heads, kv_group, n, n_keys, row_tiles, batch_heads,
    SIZES: gl.constexpr, WITH: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """As attention_forward.forward_kernel, for 64 query rows a group of warps."""
    GROUPS: gl.constexpr = SIZES.groups
    row_tile, batch_head = position(gl.program_id(0), row_tiles, batch_heads, GROUP, SIZES.causal)
    head = batch_head % heads
    first_row = row_tile * GROUPS * ROWS
    key_tiles = gl.cdiv(gl.minimum(first_row + GROUPS * ROWS, n_keys) if SIZES.causal else n_keys, SIZES.keys)

    shared: gl.constexpr = gl.NVMMASharedLayout(min(SIZES.head * 2, 128), 16, rank=2)
    q = gl.allocate_shared_memory(q_desc.dtype, [GROUPS, ROWS, SIZES.head], shared)
    k = gl.allocate_shared_memory(q_desc.dtype, [SIZES.stages, SIZES.keys, SIZES.head], shared)
    v = gl.allocate_shared_memory(q_desc.dtype, [SIZES.stages, SIZES.keys, SIZES.head], shared)
    k_full, k_free = barriers(SIZES.stages, 1), barriers(SIZES.stages, GROUPS)
    v_full, v_free = barriers(SIZES.stages, 1), barriers(SIZES.stages, GROUPS)
    ready = (barriers(GROUPS, 1), k_full, k_free, v_full, v_free)
    fence_async_shared()

    first = batch_head.to(gl.int64) * n
    out = (o + first * SIZES.head, o_more + first * SIZES.head if WITH.kept != "" else o_more, lse + first)
    place = (batch_head // heads, head, head // kv_group, first_row, key_tiles)
    numbers = (scale, beta, tolerance, n, n_keys)
    if GROUPS == 2:
        gl.warp_specialize(
            [
                (attend, (0, q, k, v, ready, place, out, numbers, SIZES, WITH)),
                (attend, (1, q, k, v, ready, place, out, numbers, SIZES, WITH)),
                (load, (q_desc, k_desc, v_desc, q, k, v, ready, place, SIZES)),
            ],
            [4, 1],
            [240, 24],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (attend, (0, q, k, v, ready, place, out, numbers, SIZES, WITH)),
                (attend, (1, q, k, v, ready, place, out, numbers, SIZES, WITH)),
                (attend, (2, q, k, v, ready, place, out, numbers, SIZES, WITH)),
                (load, (q_desc, k_desc, v_desc, q, k, v, ready, place, SIZES)),
            ],
            [4, 4, 1],
            [160, 160, 24],
        )  # fmt: skip


def described_here(x, rows: int) -> TensorDescriptor:
    """attention_forward.described, with the layout that tiles have in shared memory."""
    return with_layout(described(x, rows))


def with_layout(plain) -> TensorDescriptor:
    """A descriptor of Triton's as Gluon's."""
    block = plain.block_shape
    layout = gl.NVMMASharedLayout(min(2 * block[-1], 128), 16, rank=len(block))
    return TensorDescriptor(plain.base, plain.shape, plain.strides, block, layout)


def launch(q, k, v, o, o_more, lse, rule: Rule, with_: Variant, rows: int, stages: int) -> None:
    """Fill o, o_more and lse: attention_forward.forward; rows: of a program, 128 or 192."""
    batch, heads, n, d = q.shape
    tiles = triton.cdiv(n, rows)
    sizes = Sizes(d, rule.keys, stages, rows // ROWS.value, rule.causal)
    forward_kernel[(tiles * batch * heads,)](  # pyright: ignore[reportIndexIssue]
        described_here(q, ROWS.value), described_here(k, rule.keys), described_here(v, rule.keys), o, o_more, lse,
        log2_scale(rule.scale), rule.maximum.beta, log2_scale(rule.maximum.tolerance), heads, heads // k.shape[1], n,
        k.shape[2], tiles, batch * heads, SIZES=sizes, WITH=with_, GROUP=HEADS_TOGETHER, num_warps=4,
        enable_fp_fusion=True,
    )  # fmt: skip

"""The forward kernel once more, with roles for the warps: one warp asks the copy engine for keys and values, two
groups of four warps compute, each 64 query rows, and drift apart, so that one's softmax runs beside the other's dots;
and within a group the softmax of a tile runs beside the dot of the tile before it with v.

The same arithmetic as `attention_forward.forward_kernel`, bit for bit; that one stays its oracle. Written in Gluon,
Triton's lower level: Triton itself waits for a dot as soon as it is issued if anything but another dot reads it.
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
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from .attention_tiles import HEADS_TOGETHER, Rule, described, log2_scale

ROWS = gl.constexpr(64)  # of a group of warps
LOWEST = gl.constexpr(-3.4028234663852886e38)  # where m starts: see attention_forward


@gluon.jit
def rounded_product(x, y):
    """RN(x * y) that stays a product: see attention_forward."""
    return gl.inline_asm_elementwise("mul.rn.f32 $0, $1, $2;", "=f,f,f", [x, y], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def larger_two(a, a_next, b, b_next):
    """See attention_forward."""
    return gl.maximum(a, b), gl.maximum(gl.minimum(a, b), gl.maximum(a_next, b_next))


@gluon.jit
def two_largest(s):
    """See attention_forward."""
    rows: gl.constexpr = gl.SliceLayout(1, s.type.layout)
    a, b = gl.split(s.reshape([s.shape[0], s.shape[1] // 2, 2]))  # neighbours, which one thread holds
    first, second = gl.reduce((gl.maximum(a, b), gl.minimum(a, b)), 1, larger_two)
    return gl.convert_layout(first, rows), gl.convert_layout(second, rows)


@gluon.jit
def displaced(r, beta, GUARD: gl.constexpr):
    """attention_forward.displaced."""
    if GUARD:
        shift = gl.where(r > 0, rounded_product(r, beta - 1), -r)
        return gl.where(shift < 8388608.0, r + (shift - gl.floor(shift)), r)
    return gl.where(r > 0, r * beta, gl.where(r < 0, 0.0, r))


@gluon.jit
def tile_maximum(s, scale, beta, tolerance, DYNAMIC: gl.constexpr, GUARD: gl.constexpr):
    """attention_forward.tile_maximum."""
    if not DYNAMIC:
        return rounded_product(gl.max(s, 1), scale)
    first, second = two_largest(s)
    r = rounded_product(first, scale)
    return gl.where(gl.fma(second, scale, -r) >= -tolerance, displaced(r, beta, GUARD), r)


@gluon.jit
def weigh(s, l, m, scale, beta, tolerance, first_row, first_key, n_keys, dtype: gl.constexpr,
          MASKED: gl.constexpr, CAUSAL: gl.constexpr, DYNAMIC: gl.constexpr, GUARD: gl.constexpr,
          ROUNDED_L: gl.constexpr):  # fmt: skip
    """Softmax of one tile of scores: (weights, alpha, l, m), float32."""
    layout: gl.constexpr = s.type.layout
    if MASKED:
        keys = first_key + gl.arange(0, s.shape[1], layout=gl.SliceLayout(0, layout))
        visible = (keys < n_keys)[None, :]
        if CAUSAL:
            rows = first_row + gl.arange(0, s.shape[0], layout=gl.SliceLayout(1, layout))
            visible = visible & (rows[:, None] >= keys[None, :])
        s = gl.where(visible, s, float("-inf"))
    m_new = gl.maximum(m, tile_maximum(s, scale, beta, tolerance, DYNAMIC, GUARD))
    p = gl.exp2(gl.fma(s, scale, -m_new[:, None]))
    alpha = gl.exp2(m - m_new)
    summed = p.to(dtype).to(gl.float32) if ROUNDED_L else p
    return p, alpha, gl.fma(l, alpha, gl.sum(summed, 1)), m_new


@gluon.jit
def as_operand(p, P: gl.constexpr, dtype: gl.constexpr):
    """p rounded to 16 bits, as the first operand of a dot."""
    return gl.convert_layout(p.to(dtype), P)


@gluon.jit
def load(q_desc, k_desc, v_desc, q, k, v, ready, place, KEYS: gl.constexpr, STAGES: gl.constexpr):
    """The loading warp. ready: barriers (q, k full, k free, v full, v free); place: (batch, head, kv head, first row,
    key tiles)."""
    q_full, k_full, k_free, v_full, v_free = ready
    batch, head, kv_head, first_row, key_tiles = place
    for group in gl.static_range(2):
        mbarrier.expect(q_full.index(group), q_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(
            q_desc, [batch, head, first_row + group * ROWS, 0], q_full.index(group), q.index(group)
        )
    for tile in range(key_tiles):
        stage, lap = tile % STAGES, tile // STAGES & 1
        mbarrier.wait(k_free.index(stage), lap ^ 1)  # nobody waits on the first lap
        mbarrier.expect(k_full.index(stage), k_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(
            k_desc, [batch, kv_head, tile * KEYS, 0], k_full.index(stage), k.index(stage)
        )  # fmt: skip
        mbarrier.wait(v_free.index(stage), lap ^ 1)
        mbarrier.expect(v_full.index(stage), v_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(
            v_desc, [batch, kv_head, tile * KEYS, 0], v_full.index(stage), v.index(stage)
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
def store(acc, l, m, out, first_row, n, HEAD: gl.constexpr, KEPT: gl.constexpr):
    """What a group's rows have come to, into out: (o, o_more, lse) of this head."""
    O: gl.constexpr = acc.type.layout
    o, o_more, lse = out
    rows = first_row + gl.arange(0, ROWS, layout=m.type.layout)
    gl.store(lse + rows, m + gl.log2(l), mask=rows < n)
    l = gl.where((m == LOWEST) & (l == 0.0), 1.0, l)
    acc = acc / gl.convert_layout(l, gl.SliceLayout(1, O))[:, None]
    rows = first_row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, O))
    at = rows[:, None] * HEAD + gl.arange(0, HEAD, layout=gl.SliceLayout(0, O))[None, :]
    rounded = acc.to(o.dtype.element_ty)
    if KEPT != "32":
        gl.store(o + at, rounded, mask=rows[:, None] < n)
    if KEPT == "pair":
        gl.store(o_more + at, (acc - rounded.to(gl.float32)).to(o.dtype.element_ty), mask=rows[:, None] < n)
    elif KEPT != "":
        gl.store(o_more + at, acc, mask=rows[:, None] < n)


@gluon.jit
def attend(group: gl.constexpr, q, k, v, ready, place, out, numbers, KEYS: gl.constexpr, HEAD: gl.constexpr,
           STAGES: gl.constexpr, CAUSAL: gl.constexpr, DYNAMIC: gl.constexpr, GUARD: gl.constexpr,
           ROUNDED_L: gl.constexpr, KEPT: gl.constexpr):  # fmt: skip
    """A computing group of warps: its 64 query rows, all keys that they see. out: (o, o_more, lse) of this head;
    numbers: (scale, beta, tolerance, n, n_keys)."""
    q_full, k_full, k_free, v_full, v_free = ready
    scale, beta, tolerance, n, n_keys = numbers
    dtype: gl.constexpr = q.dtype
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, KEYS, 16])
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD, 16])
    P: gl.constexpr = gl.DotOperandLayout(0, O, 2)

    # Key tiles before `clear` are visible to every row of this group, those from `tiles` on to none.
    first_row = place[3] + group * ROWS
    stop = gl.minimum(first_row + ROWS, n_keys) if CAUSAL else n_keys
    tiles = gl.cdiv(stop, KEYS)
    clear = gl.maximum((gl.minimum(first_row + 1, n_keys) if CAUSAL else n_keys) // KEYS, 1)
    m = gl.full([ROWS], LOWEST, gl.float32, layout=gl.SliceLayout(1, S))
    l = gl.full([ROWS], 0.0, gl.float32, layout=gl.SliceLayout(1, S))
    acc = gl.full([ROWS, HEAD], 0.0, gl.float32, layout=O)
    nothing = gl.full([ROWS, KEYS], 0.0, gl.float32, layout=S)

    mine = q.index(group)
    mbarrier.wait(q_full.index(group), 0)
    mbarrier.wait(k_full.index(0), 0)
    s = warpgroup_mma_wait(0, deps=[scores(mine, k, 0, nothing, STAGES)])
    mbarrier.arrive(k_free.index(0), count=1)
    p, alpha, l, m = weigh(
        s, l, m, scale, beta, tolerance, first_row, 0, n_keys, dtype, True, CAUSAL, DYNAMIC, GUARD, ROUNDED_L
    )
    weights = as_operand(p, P, dtype)
    mbarrier.wait(k_full.index(1 % STAGES), 1 // STAGES & 1, pred=tiles > 1)
    for MASKED in gl.static_range(2):
        begin = clear if MASKED else 1
        end = tiles if MASKED else gl.minimum(clear, tiles)
        for tile in range(begin, end):
            s_coming = scores(mine, k, tile, nothing, STAGES)
            acc_coming = times_v(weights, v, v_full, tile - 1, acc, STAGES)
            s = warpgroup_mma_wait(1, deps=[s_coming])
            mbarrier.arrive(k_free.index(tile % STAGES), count=1)
            p, alpha, l, m = weigh(
                s, l, m, scale, beta, tolerance, first_row, tile * KEYS, n_keys, dtype, MASKED == 1, CAUSAL,
                DYNAMIC, GUARD, ROUNDED_L,
            )  # fmt: skip
            # This wait is a loop, over which the compiler can't move the next one up: the softmax stays before it.
            mbarrier.wait(k_full.index((tile + 1) % STAGES), (tile + 1) // STAGES & 1, pred=tile + 1 < tiles)
            acc = warpgroup_mma_wait(0, deps=[acc_coming])
            weights = as_operand(p, P, dtype)  # not before that wait: the dot under way reads these registers
            mbarrier.arrive(v_free.index((tile - 1) % STAGES), count=1)
            acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, O))[:, None]
    acc = warpgroup_mma_wait(0, deps=[times_v(weights, v, v_full, tiles - 1, acc, STAGES)])

    store(acc, l, m, out, first_row, n, HEAD, KEPT)


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
    HEAD: gl.constexpr, KEYS: gl.constexpr, CAUSAL: gl.constexpr, DYNAMIC: gl.constexpr, GUARD: gl.constexpr,
    ROUNDED_L: gl.constexpr, KEPT: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """As attention_forward.forward_kernel, for 128 query rows; KEPT: its WITH.kept. STAGES: buffers for keys, and as
    many for values."""
    row_tile, batch_head = position(gl.program_id(0), row_tiles, batch_heads, GROUP, CAUSAL)
    head = batch_head % heads
    first_row = row_tile * 2 * ROWS
    key_tiles = gl.cdiv(gl.minimum(first_row + 2 * ROWS, n_keys) if CAUSAL else n_keys, KEYS)

    shared: gl.constexpr = gl.NVMMASharedLayout(min(HEAD * 2, 128), 16, rank=2)
    q = gl.allocate_shared_memory(q_desc.dtype, [2, ROWS, HEAD], shared)
    k = gl.allocate_shared_memory(q_desc.dtype, [STAGES, KEYS, HEAD], shared)
    v = gl.allocate_shared_memory(q_desc.dtype, [STAGES, KEYS, HEAD], shared)
    ready = (barriers(2, 1), barriers(STAGES, 1), barriers(STAGES, 2), barriers(STAGES, 1), barriers(STAGES, 2))
    fence_async_shared()

    first = batch_head.to(gl.int64) * n
    out = (o + first * HEAD, o_more + first * HEAD if KEPT != "" else o_more, lse + first)
    place = (batch_head // heads, head, head // kv_group, first_row, key_tiles)
    numbers = (scale, beta, tolerance, n, n_keys)
    gl.warp_specialize(
        [
            (attend, (0, q, k, v, ready, place, out, numbers, KEYS, HEAD, STAGES, CAUSAL, DYNAMIC, GUARD, ROUNDED_L,
                      KEPT)),
            (attend, (1, q, k, v, ready, place, out, numbers, KEYS, HEAD, STAGES, CAUSAL, DYNAMIC, GUARD, ROUNDED_L,
                      KEPT)),
            (load, (q_desc, k_desc, v_desc, q, k, v, ready, place, KEYS, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


def described_here(x, rows: int) -> TensorDescriptor:
    """attention_forward.described, with the layout that tiles have in shared memory."""
    return with_layout(described(x, rows))


def with_layout(plain) -> TensorDescriptor:
    """A descriptor of Triton's as Gluon's."""
    block = plain.block_shape
    layout = gl.NVMMASharedLayout(min(2 * block[-1], 128), 16, rank=len(block))
    return TensorDescriptor(plain.base, plain.shape, plain.strides, block, layout)


def launch(q, k, v, o, o_more, lse, rule: Rule, kept: str, stages: int) -> None:
    """Fill o, o_more and lse: attention_forward.forward; kept: its Variant's."""
    batch, heads, n, d = q.shape
    tiles = triton.cdiv(n, 2 * ROWS.value)
    maximum = rule.maximum
    forward_kernel[(tiles * batch * heads,)](  # pyright: ignore[reportIndexIssue]
        described_here(q, ROWS.value), described_here(k, rule.keys), described_here(v, rule.keys), o, o_more, lse,
        log2_scale(rule.scale), maximum.beta, log2_scale(maximum.tolerance), heads, heads // k.shape[1], n, k.shape[2],
        tiles, batch * heads, HEAD=d, KEYS=rule.keys, CAUSAL=rule.causal, DYNAMIC=maximum.beta != 0.0,
        GUARD=maximum.guard, ROUNDED_L=rule.l_from == "rounded", KEPT=kept, GROUP=HEADS_TOGETHER, STAGES=stages,
        num_warps=4, enable_fp_fusion=True,
    )  # fmt: skip

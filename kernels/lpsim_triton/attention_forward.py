"""Flash attention forward as a Triton kernel for sm_90, bit for bit what `lpsim.attention.forward` says.

Arithmetic, per query row and tile of keys, fp32 and base 2 throughout: scores from a chained dot that starts at
zero; r = RN(max * scale); m = max(m, r); p = EX2(fma(s, scale, -m)); alpha = EX2(m_old - m); l = fma(l, alpha,
rowsum p); the output is multiplied by alpha and is the live accumulator of the second dot, whose weights are p
rounded to 16 bits; o = div.full(acc, l), rounded once; lse = m + log2(l).

What changes bits: the keys of a tile, and the remedy. What does not, and is therefore free to be tuned: the query
rows of a tile, warps, stages, the order of the tiles. (With an Inf or NaN in v the rows of a tile matter as well:
a masked weight of 0 times Inf is NaN, as in every tiled kernel.)
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from .attention_forward_async import launch
from .attention_tiles import HEADS_TOGETHER, Rule, described, log2_scale


@triton.jit
def tile_position(program, tiles, heads, GROUP: tl.constexpr, LONGEST_LAST: tl.constexpr):
    """(tile, head) of a program: GROUP heads at a time, so that their keys and values stay in the L2 cache, and
    within a group the tiles with most work first, so that the short ones fill the end."""
    group = program // (GROUP * tiles)
    first = group * GROUP
    width = tl.minimum(heads - first, GROUP)
    inside = program - first * tiles
    tile = inside // width
    if LONGEST_LAST:
        tile = tiles - 1 - tile
    return tile, first + inside % width


@triton.jit
def rounded_product(x, y):
    """RN(x * y) that stays a product: no compiler contracts it into an fma with what it is added to."""
    return tl.inline_asm_elementwise("mul.rn.f32 $0, $1, $2;", "=f,f,f", [x, y], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def minus_one_if_at_least(x, y):
    """-1 where x >= y, else 0, NaN too: one instruction, and two such results are added by another."""
    return tl.inline_asm_elementwise(
        "set.ge.s32.f32 $0, $1, $2;", "=r,f,f", [x, y], dtype=tl.int32, is_pure=True, pack=1
    )  # fmt: skip


@triton.jit
def displaced(r, beta, GUARD: tl.constexpr):
    """What is subtracted in place of a tied maximum r: beta r above zero, 0 below. GUARD: r plus that rule's shift
    modulo 1, which is a factor of two, so that no weight underflows; none where the shift has no fraction."""
    if GUARD:
        shift = tl.where(r > 0, rounded_product(r, beta - 1), -r)
        return tl.where(shift < 8388608.0, r + (shift - tl.floor(shift)), r)
    return tl.where(r > 0, r * beta, tl.where(r < 0, 0.0, r))


@triton.jit
def tile_maximum(s, scale, beta, tolerance, DYNAMIC: tl.constexpr, GUARD: tl.constexpr):
    """RN(rowmax * scale), or what the dynamic maximum puts in its place: lpsim.attention.softmax.tile_maximum."""
    r = rounded_product(tl.max(s, 1), scale)
    if DYNAMIC:
        # Nearness is -x <= tolerance. A masked score gives -inf, a masked row NaN: neither is near.
        near = minus_one_if_at_least(tl.fma(s, scale, -r[:, None]), -tolerance)
        r = tl.where(tl.sum(near, 1) < -1, displaced(r, beta, GUARD), r)
    return r


@triton.jit
def forward_tiles(
    acc, l, m, q, k_desc, v_desc, batch, head, first_row, start, stop, n_keys, scale, beta, tolerance,
    HEAD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr,
    DYNAMIC: tl.constexpr, GUARD: tl.constexpr, ROUNDED_L: tl.constexpr,
):  # fmt: skip
    """The tiles of keys start .. stop go by; MASKED: some of their scores are hidden."""
    for first_key in tl.range(start, stop, KEYS):
        k = k_desc.load([batch, head, first_key, 0]).reshape(KEYS, HEAD)
        s = tl.dot(q, k.T)
        if MASKED:
            keys = first_key + tl.arange(0, KEYS)
            visible = (keys < n_keys)[None, :]
            if CAUSAL:
                visible = visible & (first_row + tl.arange(0, ROWS)[:, None] >= keys[None, :])
            s = tl.where(visible, s, float("-inf"))
        m_new = tl.maximum(m, tile_maximum(s, scale, beta, tolerance, DYNAMIC, GUARD))
        p = tl.math.exp2(tl.fma(s, scale, -m_new[:, None]))
        alpha = tl.math.exp2(m - m_new)
        weights = p.to(q.dtype)
        summed = weights.to(tl.float32) if ROUNDED_L else p
        l = tl.fma(l, alpha, tl.sum(summed, 1))
        acc = acc * alpha[:, None]
        v = v_desc.load([batch, head, first_key, 0]).reshape(KEYS, HEAD)
        acc = tl.dot(weights, v, acc)
        m = m_new
    return acc, l, m


@triton.jit
def forward_kernel(
    q_desc, k_desc, v_desc, o, o_wide, lse, scale, beta, tolerance, heads, kv_group, n, n_keys, tiles, batch_heads,
    HEAD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr, DYNAMIC: tl.constexpr,
    GUARD: tl.constexpr, ROUNDED_L: tl.constexpr, WIDE_O: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """o (batch, heads, n, HEAD), lse (batch, heads, n), contiguous; o_wide the same as o in float32 if WIDE_O."""
    tile, batch_head = tile_position(tl.program_id(0), tiles, batch_heads, GROUP, CAUSAL)
    batch, head = batch_head // heads, batch_head % heads
    kv_head = head // kv_group
    first_row = tile * ROWS
    q = q_desc.load([batch, head, first_row, 0]).reshape(ROWS, HEAD)

    # Key tiles before `clear` are visible to every row of this tile, those from `stop` on to none.
    stop = tl.minimum(first_row + ROWS, n_keys) if CAUSAL else n_keys
    clear = (tl.minimum(first_row + 1, n_keys) if CAUSAL else n_keys) // KEYS * KEYS
    m = tl.full([ROWS], float("-inf"), tl.float32)
    l = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, HEAD], tl.float32)
    acc, l, m = forward_tiles(
        acc, l, m, q, k_desc, v_desc, batch, kv_head, first_row, 0, clear, n_keys, scale, beta, tolerance,
        HEAD, ROWS, KEYS, False, CAUSAL, DYNAMIC, GUARD, ROUNDED_L,
    )  # fmt: skip
    acc, l, m = forward_tiles(
        acc, l, m, q, k_desc, v_desc, batch, kv_head, first_row, clear, stop, n_keys, scale, beta, tolerance,
        HEAD, ROWS, KEYS, True, CAUSAL, DYNAMIC, GUARD, ROUNDED_L,
    )  # fmt: skip

    rows = first_row + tl.arange(0, ROWS)
    acc = acc / l[:, None]
    at = (batch_head.to(tl.int64) * n + rows[:, None]) * HEAD + tl.arange(0, HEAD)[None, :]
    tl.store(o + at, acc.to(o.dtype.element_ty), mask=rows[:, None] < n)
    if WIDE_O:
        tl.store(o_wide + at, acc, mask=rows[:, None] < n)
    tl.store(lse + batch_head.to(tl.int64) * n + rows, m + tl.log2(l), mask=rows < n)


class Tuning(NamedTuple):
    """What is free to choose: no bit depends on it."""

    rows: int  #: query rows of a tile, at least 16 a warp: else warps share a row, and its sum has another order
    warps: int
    stages: int
    overlapped: bool = False  #: attention_forward_async, with `stages` buffers; rows and warps are its own then


def default_tuning(head: int, keys: int, n: int, n_keys: int) -> Tuning:
    """For an H200; see docs/gpu-attention.md."""
    if head >= 128 and keys >= 64 and head * keys <= 128 * 128 and min(n, n_keys) >= 128:
        return Tuning(128, 4, 3 if head * keys <= 128 * 64 else 2, overlapped=True)
    return Tuning(128, 8, 1) if head * keys > 128 * 128 else Tuning(64, 4, 2)


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rule: Rule, *, wide_o: bool = False,
    tuning: Tuning | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """(o, o_wide, lse) of q (batch, heads, n, d), k and v (batch, kv_heads, n_keys, d): bf16 or fp16 on a GPU.

    o as q, contiguous; o_wide the same unrounded, float32, empty without wide_o; lse float32 (batch, heads, n),
    base 2. Query head h reads key head h // (heads // kv_heads). Causal: row i sees keys 0 .. i.
    The caller has checked the arguments: `functional` does.
    """
    batch, heads, n, d = q.shape
    kv_heads, n_keys = k.shape[1], k.shape[2]
    rows, warps, stages, overlapped = tuning or default_tuning(d, rule.keys, n, n_keys)
    o = torch.empty((batch, heads, n, d), dtype=q.dtype, device=q.device)
    o_wide = torch.empty(o.shape if wide_o else (0,), dtype=torch.float32, device=q.device)
    lse = torch.empty((batch, heads, n), dtype=torch.float32, device=q.device)
    if overlapped:
        launch(q, k, v, o, o_wide, lse, rule, wide_o, stages)
        return o, o_wide, lse
    tiles = triton.cdiv(n, rows)
    beta, tolerance, guard = rule.maximum.beta, rule.maximum.tolerance, rule.maximum.guard
    forward_kernel[(tiles * batch * heads,)](  # pyright: ignore[reportIndexIssue]
        described(q, rows), described(k, rule.keys), described(v, rule.keys), o, o_wide, lse,
        log2_scale(rule.scale), beta, log2_scale(tolerance), heads, heads // kv_heads, n, n_keys, tiles, batch * heads,
        HEAD=d, ROWS=rows, KEYS=rule.keys, CAUSAL=rule.causal, DYNAMIC=beta != 0.0, GUARD=guard,
        ROUNDED_L=rule.l_from == "rounded", WIDE_O=wide_o, GROUP=HEADS_TOGETHER,
        num_warps=warps, num_stages=stages, enable_fp_fusion=True,
    )  # fmt: skip
    return o, o_wide, lse

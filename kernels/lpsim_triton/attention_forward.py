"""Flash attention forward as a Triton kernel for sm_90, bit for bit what `lpsim.attention.forward` says.

Arithmetic, per query row and tile of keys, fp32 and base 2 throughout: scores from a chained dot that starts at
zero; r = RN(max * scale); m = max(m, r), at first the lowest float32 in place of -inf, which gives the same weights
but no NaN while a row has seen no key; p = EX2(fma(s, scale, -m)); alpha = EX2(m_old - m); l = fma(l, alpha,
rowsum p); the output is multiplied by alpha and is the live accumulator of the second dot, whose weights are p
rounded to the inputs' format; o = div.full(acc, l), rounded once, or 0 for a row that saw no key; lse = m + log2(l).
A bias: see attention_seen. fp8: o is multiplied by the scale of v, and is bf16.

What changes bits: the keys of a tile, and the remedy. What does not, and is therefore free to be tuned: the query
rows of a tile, warps, stages, the order of the tiles. (With an Inf or NaN in v the rows of a tile matter as well:
a masked weight of 0 times Inf is NaN, as in every tiled kernel.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import triton
import triton.language as tl

from .attention_forward_async import launch
from .attention_output import round_output
from .attention_seen import described_pairs, keys_of_rows, seen_scores
from .attention_tiles import HEADS_TOGETHER, Rule, described, described_turned, log2_scale, variant

if TYPE_CHECKING:
    import torch

LOWEST = tl.constexpr(-3.4028234663852886e38)  # of float32


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
def rounded_pairs(p, dtype: tl.constexpr):
    """p as bf16 or fp16, two values an instruction, by hand: what is used twice the compiler rounds one by one."""
    if dtype == tl.bfloat16:
        pairs = tl.inline_asm_elementwise(
            "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,r,r", [p], dtype=tl.bfloat16, is_pure=True, pack=2
        )
    else:
        pairs = tl.inline_asm_elementwise(
            "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,r,r", [p], dtype=tl.float16, is_pure=True, pack=2
        )
    return pairs


@triton.jit
def larger_two(a, a_next, b, b_next):
    """The two largest of two ordered pairs."""
    return tl.maximum(a, b), tl.maximum(tl.minimum(a, b), tl.maximum(a_next, b_next))


@triton.jit
def two_largest(s, SPLIT: tl.constexpr):
    """The largest score of each row and the next one, which is equal to it if it occurs twice. (ROWS,) each.

    SPLIT: neighbours are ordered first, which saves a quarter of the work. Beside a mask it might bring another layout
    to the scores, and rows would be summed in that layout's order.
    """
    if SPLIT:
        a, b = tl.split(s.reshape(s.shape[0], s.shape[1] // 2, 2))
        first, second = tl.maximum(a, b), tl.minimum(a, b)
    else:
        first, second = s, tl.full(s.shape, float("-inf"), tl.float32)
    return tl.reduce((first, second), 1, larger_two)


@triton.jit
def displaced(r, beta, GUARD: tl.constexpr):
    """What is subtracted in place of a tied maximum r: beta r above zero, 0 below. GUARD: r plus that rule's shift
    modulo 1, which is a factor of two, so that no weight underflows; none where the shift has no fraction."""
    if GUARD:
        shift = tl.where(r > 0, rounded_product(r, beta - 1), -r)
        return tl.where(shift < 8388608.0, r + (shift - tl.floor(shift)), r)
    return tl.where(r > 0, r * beta, tl.where((r < 0) & (r > float("-inf")), 0.0, r))


@triton.jit
def tile_maximum(s, scale, numbers, largest, ties, MASKED: tl.constexpr, WITH: tl.constexpr):
    """RN(rowmax * scale), or what the dynamic maximum puts in its place, and the row's largest score and its ties so
    far: lpsim.attention.softmax.tile_maximum."""
    beta, tolerance = numbers
    if not WITH.dynamic:
        return rounded_product(tl.max(s, 1), scale), largest, ties
    if WITH.every:
        return displaced(rounded_product(tl.max(s, 1), scale), beta, WITH.guard), largest, ties
    # A score x is near if fma(x, scale, -r) >= -tolerance, which grows with x: so two are if the second largest is.
    # A masked score gives -inf, a masked row NaN: neither is near.
    first, second = two_largest(s, not MASKED)
    r = rounded_product(first, scale)
    if WITH.across:
        top = tl.maximum(r, largest)
        near = (tl.fma(first, scale, -top) >= -tolerance).to(tl.int32)
        near += (tl.fma(second, scale, -top) >= -tolerance).to(tl.int32)
        near += tl.where(r - largest <= tolerance, ties, 0)
        some = r > float("-inf")
        r = tl.where(some, tl.where(near > 1, displaced(top, beta, WITH.guard), top), r)
        return r, tl.where(some, top, largest), tl.where(some, near, ties)
    return tl.where(tl.fma(second, scale, -r) >= -tolerance, displaced(r, beta, WITH.guard), r), largest, ties


@triton.jit
def forward_tiles(
    acc, l, m, largest, ties, q, k_desc, v_desc, place, start, stop, scale, numbers, seen,
    HEAD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, MASKED: tl.constexpr, PAIRS: tl.constexpr,
    WITH: tl.constexpr,
):  # fmt: skip
    """The tiles of keys start .. stop go by; MASKED: some of their scores are hidden. place: (batch, head, key head,
    first row, n_keys)."""
    batch, head, kv_head, first_row, n_keys = place
    factor = 1.0 if PAIRS.mask == "bias" else scale
    for first_key in tl.range(start, stop, KEYS):
        k = k_desc.load([batch, kv_head, first_key, 0]).reshape(KEYS, HEAD)
        s = tl.dot(q, k.T)
        if MASKED:
            s, visible = seen_scores(
                s, (batch, head, n_keys), first_row, first_key, scale, seen, ROWS, KEYS, False, PAIRS
            )  # fmt: skip
            s = tl.where(visible, s, float("-inf"))
        r, largest, ties = tile_maximum(s, factor, numbers, largest, ties, PAIRS.mask != "", WITH)
        m_new = tl.maximum(m, r)
        p = tl.math.exp2(tl.fma(s, factor, -m_new[:, None]))
        alpha = tl.math.exp2(m - m_new)
        weights = rounded_pairs(p, q.dtype) if WITH.rounded_l and not WITH.turned else p.to(q.dtype)
        summed = weights.to(tl.float32) if WITH.rounded_l else p
        l = tl.fma(l, alpha, tl.sum(summed, 1))
        acc = acc * alpha[:, None]
        if WITH.turned:
            v = v_desc.load([batch, kv_head, 0, first_key]).reshape(HEAD, KEYS).T
        else:
            v = v_desc.load([batch, kv_head, first_key, 0]).reshape(KEYS, HEAD)
        acc = tl.dot(weights, v, acc)
        m = m_new
    return acc, l, m, largest, ties


@triton.jit
def forward_kernel(
    q_desc, k_desc, v_desc, o, o_more, lse, scale, numbers, v_scale, mask_desc, sides, heads, kv_group, n, n_keys,
    tiles, batch_heads,
    HEAD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PAIRS: tl.constexpr, WITH: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """o (batch, heads, n, HEAD), lse (batch, heads, n), contiguous; o_more: as o, what WITH.kept says.
    numbers: (beta, tolerance); mask_desc, sides: attention_seen.described_pairs."""
    tile, batch_head = tile_position(tl.program_id(0), tiles, batch_heads, GROUP, PAIRS.causal)
    batch, head = batch_head // heads, batch_head % heads
    first_row = tile * ROWS
    q = q_desc.load([batch, head, first_row, 0]).reshape(ROWS, HEAD)
    place = (batch, head, head // kv_group, first_row, n_keys)
    seen = (sides[0], sides[1], mask_desc)
    start, clear, stop = keys_of_rows(first_row, n_keys, seen, ROWS, KEYS, PAIRS)
    m = tl.full([ROWS], LOWEST, tl.float32)
    l = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, HEAD], tl.float32)
    largest, ties = m, tl.zeros([ROWS], tl.int32)
    if not (PAIRS.window or PAIRS.mask != ""):
        acc, l, m, largest, ties = forward_tiles(
            acc, l, m, largest, ties, q, k_desc, v_desc, place, start, clear, scale, numbers, seen,
            HEAD, ROWS, KEYS, False, PAIRS, WITH,
        )  # fmt: skip
    acc, l, m, largest, ties = forward_tiles(
        acc, l, m, largest, ties, q, k_desc, v_desc, place, clear, stop, scale, numbers, seen,
        HEAD, ROWS, KEYS, True, PAIRS, WITH,
    )  # fmt: skip

    rows = first_row + tl.arange(0, ROWS)
    blind = (m == LOWEST) & (l == 0.0)
    acc = acc / tl.where(blind, 1.0, l)[:, None]
    if PAIRS.window or PAIRS.mask != "":
        acc = tl.where(blind[:, None], 0.0, acc)  # a hidden v may be infinite, and acc be 0 times it
    if WITH.turned:
        acc = acc * v_scale
    at = (batch_head.to(tl.int64) * n + rows[:, None]) * HEAD + tl.arange(0, HEAD)[None, :]
    rounded = acc.to(o.dtype.element_ty)
    if WITH.kept != "32":
        tl.store(o + at, rounded, mask=rows[:, None] < n)
    if WITH.kept == "pair":
        tl.store(o_more + at, (acc - rounded.to(tl.float32)).to(o.dtype.element_ty), mask=rows[:, None] < n)
    elif WITH.kept != "":
        tl.store(o_more + at, acc, mask=rows[:, None] < n)
    tl.store(lse + batch_head.to(tl.int64) * n + rows, m + tl.log2(l), mask=rows < n)


class Tuning(NamedTuple):
    """What is free to choose: no bit depends on it."""

    rows: int  #: query rows of a tile, at least 16 a warp: else warps share a row, and its sum has another order
    warps: int
    stages: int  #: 1 beside a mask: with more the compiler may lay rows out, and so sum them, in another order
    overlapped: bool = False  #: attention_forward_async, `stages` buffers; rows: 128 or 192, four warps for each 64


def default_tuning(q: torch.Tensor, n_keys: int, rule: Rule, plain: bool) -> Tuning:
    """For an H200; see docs/gpu-attention.md. plain: no mask and no window."""
    n, head, keys, maximum = q.shape[2], q.shape[3], rule.keys, rule.maximum
    usual = plain and q.element_size() == 2 and maximum.scope != "row"
    counts = maximum.beta != 0.0 and maximum.scope == "tile"
    shortest = min(n, n_keys)
    if usual and head >= 128 and keys >= 64 and head * keys <= 128 * 128 and shortest >= 128:
        return Tuning(128, 4, 3 if head * keys <= 128 * 64 else 2, overlapped=True)
    light = rule.l_from == "exact" and not counts  # else registers do not suffice for three groups of warps
    if usual and light and head == 64 and keys == 128 and shortest >= 192 and not rule.causal:
        return Tuning(192, 4, 4, overlapped=True)
    if head * keys > 128 * 128:
        return Tuning(128, 8, 1)
    return Tuning(64, 4, 2 if plain else 1)


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rule: Rule, *, mask: torch.Tensor | None = None,
    tuning: Tuning | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """(o, more, lse) of q (batch, heads, n, d), k and v (batch, kv_heads, n_keys, d): bf16, fp16 or e4m3 on a GPU.

    o as q (bf16 for e4m3), contiguous; more: with rule.delta_from "O32" the same unrounded, float32; with "pair" what
    rounding took from o, in o's dtype; else empty. lse float32 (batch, heads, n), base 2. Query head h reads key
    head h // (heads // kv_heads). Causal: row i sees keys 0 .. i. mask: as attention_seen.described_pairs has it.
    A row that sees no key has o = 0 and lse = -inf. The caller has checked the arguments: `functional` does.
    """
    import torch

    batch, heads, n, d = q.shape
    n_keys = k.shape[2]
    plain = mask is None and rule.window is None
    tuned = tuning or default_tuning(q, n_keys, rule, plain)
    if not plain and (tuned.overlapped or (mask is not None and tuned.stages > 1)):
        raise ValueError(f"{tuned}: masks and windows run in the plain kernel, and masks with one stage.")
    small = q.element_size() == 1
    o = q.new_empty(q.shape, dtype=torch.bfloat16 if small else q.dtype)
    with_ = variant(rule, small)
    more_dtype = o.dtype if with_.kept == "pair" else torch.float32
    more = q.new_empty(o.shape if with_.kept else (0,), dtype=more_dtype)
    lse = q.new_empty((batch, heads, n), dtype=torch.float32)
    if tuned.overlapped:
        launch(q, k, v, o, more, lse, rule, with_, tuned.rows, tuned.stages)
    else:
        maximum = rule.maximum
        pairs, seen = described_pairs(rule, mask, (n, n_keys), tuned.rows, rule.keys)
        tiles = triton.cdiv(n, tuned.rows)
        forward_kernel[(tiles * batch * heads,)](  # pyright: ignore[reportIndexIssue]
            described(q, tuned.rows), described(k, rule.keys),
            described_turned(v, rule.keys) if small else described(v, rule.keys), o, more, lse, log2_scale(rule.scale),
            (maximum.beta, log2_scale(maximum.tolerance)), rule.v_scale, *seen, heads, heads // k.shape[1], n, n_keys,
            tiles, batch * heads,
            HEAD=d, ROWS=tuned.rows, KEYS=rule.keys, PAIRS=pairs, WITH=with_, GROUP=HEADS_TOGETHER,
            num_warps=tuned.warps, num_stages=tuned.stages, enable_fp_fusion=True,
        )  # fmt: skip
    if rule.rounding is not None:
        more = round_output(more, o, rule.rounding, rule.delta_from)
    return o, more, lse

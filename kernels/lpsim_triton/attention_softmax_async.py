"""The softmax of one tile of scores in Gluon: what `attention_forward` does in Triton, bit for bit."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


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
    return gl.where(r > 0, r * beta, gl.where((r < 0) & (r > float("-inf")), 0.0, r))


@gluon.jit
def tile_maximum(s, scale, beta, tolerance, WITH: gl.constexpr):
    """attention_forward.tile_maximum."""
    if not WITH.dynamic:
        return rounded_product(gl.max(s, 1), scale)
    if WITH.every:
        return displaced(rounded_product(gl.max(s, 1), scale), beta, WITH.guard)
    first, second = two_largest(s)
    r = rounded_product(first, scale)
    return gl.where(gl.fma(second, scale, -r) >= -tolerance, displaced(r, beta, WITH.guard), r)


@gluon.jit
def rounded_pairs(p, dtype: gl.constexpr):
    """p as dtype, two values an instruction, by hand: the compiler packs them the other way round, and then swaps the
    halves of every register before a dot."""
    if dtype == gl.bfloat16:
        pairs = gl.inline_asm_elementwise(
            "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,r,r", [p], dtype=gl.bfloat16, is_pure=True, pack=2
        )
    else:
        pairs = gl.inline_asm_elementwise(
            "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,r,r", [p], dtype=gl.float16, is_pure=True, pack=2
        )
    return pairs


@gluon.jit
def weigh(s, l, m, numbers, first_row, first_key, dtype: gl.constexpr, MASKED: gl.constexpr, CAUSAL: gl.constexpr,
          WITH: gl.constexpr):  # fmt: skip
    """Softmax of one tile of scores: (weights, alpha, l, m), float32."""
    scale, beta, tolerance, _, n_keys = numbers
    layout: gl.constexpr = s.type.layout
    if MASKED:
        keys = first_key + gl.arange(0, s.shape[1], layout=gl.SliceLayout(0, layout))
        visible = (keys < n_keys)[None, :]
        if CAUSAL:
            rows = first_row + gl.arange(0, s.shape[0], layout=gl.SliceLayout(1, layout))
            visible = visible & (rows[:, None] >= keys[None, :])
        s = gl.where(visible, s, float("-inf"))
    m_new = gl.maximum(m, tile_maximum(s, scale, beta, tolerance, WITH))
    p = gl.exp2(gl.fma(s, scale, -m_new[:, None]))
    alpha = gl.exp2(m - m_new)
    summed = rounded_pairs(p, dtype).to(gl.float32) if WITH.rounded_l else p
    return p, alpha, gl.fma(l, alpha, gl.sum(summed, 1)), m_new

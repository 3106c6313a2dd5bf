"""Vectorised operations to bf16, or to a narrower upper part of binary32, in binary32 itself.

Operands on the target's grid: binary32 does the operation, and its result is rounded once more, harmlessly:
24 >= 2 p + 2 (Figueroa, SIGNUM 1995), and for p <= 8 in the subnormal range too: a product has 2 p bits, and
binary32 keeps all of those that reach a midpoint; a quotient stays 2^-142 away from every midpoint.
Sums of any float32, and fma where the product is exact, are rounded to odd first, which is harmless too.
All 2^32 pairs of bf16 are walked by tests/test_exhaustive.py.

plan: fast_plan.prefix, nearest, overflow to infinity; wide: fast_plan.grid(..., 53) of the same format and policy.
"""

import numpy as np
from llvmlite import ir
from numba.core import types

from .._jit import njit
from .fast_lanes import shift_left, shift_right
from .fast_operations import div32, fma32, mul32, sqrt32
from .fast_prefix import INFINITY, MAGNITUDE
from .intrinsics import _intrinsic, bits_to_f32, f32_to_bits, inlined, select

u32, u64, i32, f32 = np.uint32, np.uint64, np.int32, np.float32
BLOCK = 2048  # elements looked at, then computed: they stay in the first-level cache


@_intrinsic
def _load(typingctx, x):
    """A float32 as it is; a uint16 as the float32 whose upper half it is."""
    if x == types.float32:
        return x(x), lambda context, builder, signature, args: args[0]
    if x == types.uint16:

        def widen(context, builder, signature, args):
            word = builder.shl(builder.zext(args[0], ir.IntType(32)), ir.Constant(ir.IntType(32), 16))
            return builder.bitcast(word, ir.FloatType())

        return types.float32(x), widen


@_intrinsic
def _store(typingctx, word, like):
    """A uint32 pattern as an element of the type of `like`: a float32, or its upper half as uint16."""
    if word == types.uint32 and like == types.float32:
        return like(word, like), lambda context, builder, signature, args: builder.bitcast(args[0], ir.FloatType())
    if word == types.uint32 and like == types.uint16:

        def narrow(context, builder, signature, args):
            return builder.trunc(builder.lshr(args[0], ir.Constant(ir.IntType(32), 16)), ir.IntType(16))

        return like(word, like), narrow


@inlined
def _nearest(r, a, b, plan):
    """Bits of float32 r rounded to the plan's format. A NaN takes the sign of the first NaN operand, or plus."""
    drop = u32(plan.drop)
    w = f32_to_bits(r)
    rounded = u32(w + u32(u32(plan.even) + u32(shift_right(w, drop) & u32(1))))
    nan_word = select(a != a, f32_to_bits(a), select(b != b, f32_to_bits(b), u32(0)))
    nan = u32(u32(plan.nan) | u32(nan_word & u32(plan.nan_keep)))
    word = select(i32(w & u32(MAGNITUDE)) > i32(INFINITY), nan, rounded)
    return shift_left(shift_right(word, drop), drop)


@inlined
def _sum_to_odd(a, b):
    """float32 a + b rounded to odd, as `fast_operations._sum` in binary64: exact for any operands."""
    s = f32(a + b)
    t = f32(s - a)
    rest = f32(f32(a - f32(s - t)) + f32(b - t))
    bits = i32(f32_to_bits(s))
    toward = select((rest > f32(0.0)) == (s > f32(0.0)), i32(1), i32(-1))
    inexact = (rest != f32(0.0)) & (i32(bits & i32(1)) == i32(0)) & (f32(rest - rest) == f32(0.0))
    return bits_to_f32(i32(bits + select(inexact, toward, i32(0))))


# Operands on the grid: float32, or uint16 holding codes of bf16; operands and out alike.


@njit
def on_grid(x, plan):
    """True if all of x lies on the grid of the plan's format; NaN counts as on it if its payload does."""
    below, seen = u32((1 << plan.drop) - 1), u32(0)
    for i in range(u64(x.size)):
        seen |= u32(f32_to_bits(x[i]) & below)
    return seen == u32(0)


@njit
def add(a, b, out, plan):
    """out = a + b rounded once; on-grid operands."""
    for i in range(u64(out.size)):
        x, y = _load(a[i]), _load(b[i])
        out[i] = _store(_nearest(x + y, x, y, plan), a[i])


@njit
def sub(a, b, out, plan):
    """out = a - b rounded once; on-grid operands."""
    for i in range(u64(out.size)):
        x, y = _load(a[i]), _load(b[i])
        out[i] = _store(_nearest(x - y, x, y, plan), a[i])


@njit
def mul(a, b, out, plan):
    """out = a * b rounded once; on-grid operands."""
    for i in range(u64(out.size)):
        x, y = _load(a[i]), _load(b[i])
        out[i] = _store(_nearest(x * y, x, y, plan), a[i])


@njit
def div(a, b, out, plan):
    """out = a / b rounded once; on-grid operands."""
    for i in range(u64(out.size)):
        x, y = _load(a[i]), _load(b[i])
        out[i] = _store(_nearest(x / y, x, y, plan), a[i])


@njit
def sqrt(a, out, plan):
    """out = the square root of a, rounded once; on-grid operands."""
    for i in range(u64(out.size)):
        x = _load(a[i])
        out[i] = _store(_nearest(f32(np.sqrt(x)), x, x, plan), a[i])


# Any float32.


@njit
def add_any(a, b, out, plan, wide):
    """out = float32 a + b rounded once."""
    for i in range(u64(out.size)):
        out[i] = _store(_nearest(_sum_to_odd(a[i], b[i]), a[i], b[i], plan), a[i])


@njit
def sub_any(a, b, out, plan, wide):
    """out = float32 a - b rounded once."""
    for i in range(u64(out.size)):
        out[i] = _store(_nearest(_sum_to_odd(a[i], -b[i]), a[i], b[i], plan), a[i])


@njit
def exact_products(a, b, plan):
    """True if all of a and b lie on the grid and binary32 holds their products: none overflows or is subnormal."""
    below, seen = u32((1 << plan.drop) - 1), u32(0)
    smallest, largest = bits_to_f32(1 << 23), bits_to_f32(INFINITY - 1)
    for i in range(u64(a.size)):
        product = bits_to_f32(u32(f32_to_bits(f32(a[i] * b[i])) & u32(MAGNITUDE)))
        held = (product >= smallest) & (product <= largest) | (a[i] == f32(0.0)) | (b[i] == f32(0.0))
        seen |= select(held, u32(u32(f32_to_bits(a[i]) | f32_to_bits(b[i])) & below), u32(1))
    return seen == u32(0)


@njit
def _fma(a, b, c, out, plan):
    for i in range(u64(out.size)):
        product = f32(a[i] * b[i])
        out[i] = _store(_nearest(_sum_to_odd(product, c[i]), product, c[i], plan), a[i])


# Any float32, block by block: the quick way where the operands lie on the grid.


@njit
def fma_any(a, b, c, out, plan, wide):
    """out = float32 a * b + c rounded once."""
    for start in range(0, out.size, BLOCK):
        stop = min(start + BLOCK, out.size)
        x, y, z, r = a[start:stop], b[start:stop], c[start:stop], out[start:stop]
        if exact_products(x, y, plan):
            _fma(x, y, z, r, plan)
        else:
            fma32(x, y, z, r, wide)


@njit
def mul_any(a, b, out, plan, wide):
    """out = float32 a * b rounded once."""
    for start in range(0, out.size, BLOCK):
        stop = min(start + BLOCK, out.size)
        x, y, z = a[start:stop], b[start:stop], out[start:stop]
        if on_grid(x, plan) and on_grid(y, plan):
            mul(x, y, z, plan)
        else:
            mul32(x, y, z, wide)


@njit
def div_any(a, b, out, plan, wide):
    """out = float32 a / b rounded once."""
    for start in range(0, out.size, BLOCK):
        stop = min(start + BLOCK, out.size)
        x, y, z = a[start:stop], b[start:stop], out[start:stop]
        if on_grid(x, plan) and on_grid(y, plan):
            div(x, y, z, plan)
        else:
            div32(x, y, z, wide)


@njit
def sqrt_any(a, out, plan, wide):
    """out = the square root of float32 a, rounded once."""
    for start in range(0, out.size, BLOCK):
        stop = min(start + BLOCK, out.size)
        x, z = a[start:stop], out[start:stop]
        if on_grid(x, plan):
            sqrt(x, z, plan)
        else:
            sqrt32(x, z, wide)

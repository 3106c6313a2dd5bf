"""Vectorised operations whose operands lie on the grid of bf16, or of a narrower upper part of binary32.

binary32 then does the operation, and its result is rounded once more, harmlessly: 24 >= 2 p + 2 (Figueroa, SIGNUM
1995), and for p <= 8 in the subnormal range too: a product has 2 p bits, and binary32 keeps all of those that
reach a midpoint; a quotient stays 2^-142 away from every midpoint. All 2^32 pairs of bf16 are checked by
`scripts/exhaustive_report.py`. fma is not among these: its sum has too many bits.

Arrays: float32, or uint16 holding codes of bf16; operands and out alike. plan: fast_plan.prefix, nearest, to infinity.
"""

import numpy as np
from llvmlite import ir
from numba.core import types

from .._jit import njit
from .fast_lanes import shift_left, shift_right
from .fast_operations import add32, div32, mul32, sqrt32, sub32
from .fast_prefix import INFINITY, MAGNITUDE
from .intrinsics import _intrinsic, f32_to_bits, inlined, select

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


# float32 operands that may or may not lie on the grid: block by block, the quick way where they do.


@njit
def add_any(a, b, out, plan, wide):
    """out = float32 a + b rounded once. wide: fast_plan.grid(..., 53) of the same format and policy."""
    for start in range(0, out.size, BLOCK):
        stop = min(start + BLOCK, out.size)
        x, y, z = a[start:stop], b[start:stop], out[start:stop]
        if on_grid(x, plan) and on_grid(y, plan):
            add(x, y, z, plan)
        else:
            add32(x, y, z, wide)


@njit
def sub_any(a, b, out, plan, wide):
    """out = float32 a - b rounded once."""
    for start in range(0, out.size, BLOCK):
        stop = min(start + BLOCK, out.size)
        x, y, z = a[start:stop], b[start:stop], out[start:stop]
        if on_grid(x, plan) and on_grid(y, plan):
            sub(x, y, z, plan)
        else:
            sub32(x, y, z, wide)


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

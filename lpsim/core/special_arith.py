"""float32 arithmetic of a GPU over arrays: the host's own operations, with the GPU's NaN and minimum.

out[i] = the operation on x[i], y[i], ..; float32 (n,), contiguous; out may be an operand. Subnormals are kept (Triton
emits no ftz here), a NaN result is 0x7FFFFFFF. Numba neither contracts nor reorders: what is fused is written as fma.
Source: IEEE 754-2019 5.4.1; PTX ISA, min and max; results: H200 recordings of drawn operands.
"""

import numpy as np

from .._jit import njit
from .intrinsics import bits_to_f32, f32_to_bits, fma_f32, inlined, select
from .special_lanes import MAGNITUDE, NAN, i32
from .special_recipes import canonical, f32

u64 = np.uint64


@inlined
def _ordered(x):
    """int32 that orders float32 as its values are ordered, -0 below +0. Not for NaN."""
    bits = i32(f32_to_bits(x))
    return select(bits < i32(0), i32(bits ^ i32(MAGNITUDE)), bits)


@inlined
def _extreme(x, y, x_wins, keep_nan):
    """x or y as x_wins says if both are numbers; else the number, or NaN if keep_nan or if there is none."""
    nan = bits_to_f32(NAN)
    number = select(x == x, x, y)
    number = select(number == number, number, nan)
    either = (x != x) | (y != y)
    return select(either, select(keep_nan, nan, number), select(x_wins, x, y))


@inlined
def minimum_f32(x, y):
    """min.f32 (tl.minimum): NaN only if both are NaN; -0 below +0."""
    return _extreme(x, y, _ordered(x) < _ordered(y), False)


@inlined
def maximum_f32(x, y):
    """max.f32 (tl.maximum): NaN only if both are NaN; +0 above -0."""
    return _extreme(x, y, _ordered(x) > _ordered(y), False)


@inlined
def minimum_nan_f32(x, y):
    """min.NaN.f32 (tl.minimum with propagate_nan): NaN if either is NaN."""
    return _extreme(x, y, _ordered(x) < _ordered(y), True)


@inlined
def maximum_nan_f32(x, y):
    """max.NaN.f32 (tl.maximum with propagate_nan): NaN if either is NaN."""
    return _extreme(x, y, _ordered(x) > _ordered(y), True)


@njit
def add_array(x, y, out):
    """RN(x + y)."""
    for i in range(u64(out.size)):
        out[i] = canonical(f32(x[i] + y[i]))


@njit
def sub_array(x, y, out):
    """RN(x - y)."""
    for i in range(u64(out.size)):
        out[i] = canonical(f32(x[i] - y[i]))


@njit
def mul_array(x, y, out):
    """RN(x * y)."""
    for i in range(u64(out.size)):
        out[i] = canonical(f32(x[i] * y[i]))


@njit
def minimum_array(x, y, out):
    """minimum_f32."""
    for i in range(u64(out.size)):
        out[i] = minimum_f32(x[i], y[i])


@njit
def maximum_array(x, y, out):
    """maximum_f32."""
    for i in range(u64(out.size)):
        out[i] = maximum_f32(x[i], y[i])


@njit
def minimum_nan_array(x, y, out):
    """minimum_nan_f32."""
    for i in range(u64(out.size)):
        out[i] = minimum_nan_f32(x[i], y[i])


@njit
def maximum_nan_array(x, y, out):
    """maximum_nan_f32."""
    for i in range(u64(out.size)):
        out[i] = maximum_nan_f32(x[i], y[i])


@njit
def fma_array(x, y, z, out):
    """RN(x * y + z)."""
    for i in range(u64(out.size)):
        out[i] = canonical(fma_f32(x[i], y[i], z[i]))


@njit
def mul_sub_array(x, y, z, out):
    """RN(x * y - z): x * y - z contracted."""
    for i in range(u64(out.size)):
        out[i] = canonical(fma_f32(x[i], y[i], f32(-z[i])))


@njit
def mul_add_apart_array(x, y, z, out):
    """RN(RN(x * y) + z)."""
    for i in range(u64(out.size)):
        out[i] = canonical(f32(f32(x[i] * y[i]) + z[i]))


@njit
def mul_sub_apart_array(x, y, z, out):
    """RN(RN(x * y) - z)."""
    for i in range(u64(out.size)):
        out[i] = canonical(f32(f32(x[i] * y[i]) - z[i]))


@njit
def mul_add_mul_array(x, y, z, w, out):
    """RN(x * y + RN(z * w)): of a sum of products, the left one stays exact."""
    for i in range(u64(out.size)):
        out[i] = canonical(fma_f32(x[i], y[i], f32(z[i] * w[i])))


@njit
def mul_sub_mul_array(x, y, z, w, out):
    """RN(x * y - RN(z * w))."""
    for i in range(u64(out.size)):
        out[i] = canonical(fma_f32(x[i], y[i], f32(-f32(z[i] * w[i]))))


@njit
def mul_add_mul_apart_array(x, y, z, w, out):
    """RN(RN(x * y) + RN(z * w))."""
    for i in range(u64(out.size)):
        out[i] = canonical(f32(f32(x[i] * y[i]) + f32(z[i] * w[i])))


@njit
def mul_sub_mul_apart_array(x, y, z, w, out):
    """RN(RN(x * y) - RN(z * w))."""
    for i in range(u64(out.size)):
        out[i] = canonical(f32(f32(x[i] * y[i]) - f32(z[i] * w[i])))

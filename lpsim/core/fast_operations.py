"""Vectorised operations on float32 with one rounding to nearest, ties to even.

In binary64 the sum, quotient or root is rounded to odd, the product is exact; then one step to the grid, as in
`core/fast_loops`. tests/test_fast.py compares with the plain loops. plan: fast_plan.grid(..., 53).
"""

import numpy as np

from .._jit import njit
from .fast_loops import INF64, to_grid
from .intrinsics import bits_to_f64, f64_to_bits, fma_f64, inlined, select

u64, i64, f64 = np.uint64, np.int64, np.float64


@inlined
def _odd(total, rest):
    """total + rest rounded to odd, |rest| below an ulp of total: rounding that to at most 51 bits is as good as once.

    Source: Boldo and Melquiond, IEEE TC 2008. rest is not finite only where total is not.
    """
    bits = f64_to_bits(total)
    toward = select((rest > 0.0) == (total > 0.0), i64(1), i64(-1))
    inexact = (rest != 0.0) & ((bits & i64(1)) == i64(0)) & (rest - rest == 0.0)
    return bits_to_f64(bits + select(inexact, toward, i64(0)))


@inlined
def _sum(a, b):
    """float64 a + b rounded to odd. Source: TwoSum, Knuth TAOCP 2, 4.2.2."""
    s = a + b
    t = s - a
    return _odd(s, (a - (s - t)) + (b - t))


@inlined
def _nan_of(x, a, b):
    """x, but as NaN the first NaN operand, or +NaN if there is none: hosts differ in the sign they give."""
    positive = bits_to_f64(u64(INF64 | (1 << 51)))
    nan = select(a != a, a, select(b != b, b, positive))
    return select(x != x, nan, x)


@njit
def add32(a, b, out, plan):
    """out = float32 a + b rounded once to the grid, as float32 values."""
    for i in range(u64(out.size)):
        x, y = f64(a[i]), f64(b[i])
        out[i] = to_grid(_nan_of(_sum(x, y), x, y), plan)


@njit
def sub32(a, b, out, plan):
    """out = float32 a - b rounded once to the grid, as float32 values."""
    for i in range(u64(out.size)):
        x, y = f64(a[i]), f64(b[i])
        out[i] = to_grid(_nan_of(_sum(x, -y), x, y), plan)


@njit
def mul32(a, b, out, plan):
    """out = float32 a * b rounded once to the grid: the product of two binary32 is exact in binary64."""
    for i in range(u64(out.size)):
        x, y = f64(a[i]), f64(b[i])
        out[i] = to_grid(_nan_of(x * y, x, y), plan)


@njit
def div32(a, b, out, plan):
    """out = float32 a / b rounded once to the grid: a quotient's remainder is exact, and tells the side it lies on."""
    for i in range(u64(out.size)):
        x, y = f64(a[i]), f64(b[i])
        q = x / y
        rest = fma_f64(-q, y, x)
        out[i] = to_grid(_nan_of(_odd(q, select(y < 0.0, -rest, rest)), x, y), plan)


@njit
def sqrt32(a, out, plan):
    """out = square root of float32 a, rounded once to the grid."""
    for i in range(u64(out.size)):
        x = f64(a[i])
        root = np.sqrt(x)
        out[i] = to_grid(_nan_of(_odd(root, fma_f64(-root, root, x)), x, x), plan)


@njit
def fma32(a, b, c, out, plan):
    """out = float32 a * b + c rounded once to the grid: the product is exact, the sum is rounded to odd."""
    for i in range(u64(out.size)):
        x, y, z = f64(a[i]), f64(b[i]), f64(c[i])
        product = _nan_of(x * y, x, y)
        out[i] = to_grid(_nan_of(_sum(product, z), product, z), plan)

"""Vectorised roundings to nearest, ties to even: second bodies of what `core/loops` does, at memory speed.

Rounding by the host's own adder: with M a power of two whose ulp is the target's ulp at x, the sum |x| + M is
|x| rounded on the target's grid. bits(|x| + M) - bits(M) counts grid points, and adding the binade's number
in the right place gives the code: a carry walks into the exponent by itself. Subnormals need no case of their
own: M never falls below the lowest binade. Exact by IEEE 754-2019 5.4.1 (addition rounds once).

`core/fast_plan` says which formats and policies are covered; tests/test_fast.py compares with the plain loops.
All arrays are one-dimensional and contiguous. u32() around every step: Numba widens small integers otherwise.
"""

import numpy as np

from .._jit import njit
from .intrinsics import bits_to_f32, bits_to_f64, f32_to_bits, f64_to_bits, fma_f64, inlined, select

u32, u64, i64, f32, f64 = np.uint32, np.uint64, np.int64, np.float32, np.float64
MAGNITUDE32, SIGN32, INF32 = 0x7FFFFFFF, 0x80000000, 0x7F800000
MAGNITUDE64, SIGN64, INF64 = (1 << 63) - 1, 1 << 63, 0x7FF << 52


@njit
def encode32(x, out, plan):
    """out = codes (uint8, uint16 or uint32) of float32 x."""
    drop, lowest, cap, limit = u32(plan.drop), u32(plan.lowest), u32(plan.cap), u32(plan.limit)
    nan_above, nan_from, infinity, nan = u32(plan.nan_above), u32(plan.nan_from), u32(plan.infinity), u32(plan.nan)
    nan_sign, zero_sign, shift = u32(0 - plan.nan_sign), u32(0 - plan.zero_sign), u32(plan.sign_shift)
    exponent_drop = u32(plan.drop << 23)
    for i in range(u64(x.size)):
        w = f32_to_bits(x[i])
        a = u32(w & u32(MAGNITUDE32))
        b = min(a, cap)
        e = u32(max(b, lowest) & u32(INF32))
        m = u32(e + exponent_drop)
        points = u32(f32_to_bits(f32(bits_to_f32(b) + bits_to_f32(m))) - m)
        code = u32(points + u32(u32(e - lowest) >> drop))
        is_nan = (a > nan_from) | (code > nan_above)
        code = select(a == u32(INF32), infinity, min(code, limit))
        code = select(is_nan, nan, code)
        sign = u32(u32(w & u32(SIGN32)) >> shift)
        sign = select(is_nan, u32(sign & nan_sign), sign)
        sign = select(code == u32(0), u32(sign & zero_sign), sign)
        out[i] = u32(code | sign)


@njit
def encode64(x, out, plan):
    """out = codes (uint8, uint16 or uint32) of float32 or float64 x, by way of binary64."""
    drop, lowest, cap, limit = u64(plan.drop), u64(plan.lowest), u64(plan.cap), u64(plan.limit)
    nan_above, nan_from, infinity, nan = u64(plan.nan_above), u64(plan.nan_from), u64(plan.infinity), u64(plan.nan)
    nan_sign, zero_sign, shift = u64(0 - plan.nan_sign), u64(0 - plan.zero_sign), u64(plan.sign_shift)
    pad = u64(plan.pad)
    for i in range(u64(x.size)):
        w = u64(f64_to_bits(f64(x[i])))
        a = w & u64(MAGNITUDE64)
        b = min(a, cap)
        e = max(b, lowest) & u64(INF64)
        m = e + (drop << u64(52))
        points = u64(f64_to_bits(bits_to_f64(b) + bits_to_f64(m))) - m
        code = points + ((e - lowest) >> drop)
        is_nan = (a > nan_from) | (code > nan_above)
        code = select(a == u64(INF64), infinity, min(code, limit))
        code = select(is_nan, nan, code)
        sign = (w & u64(SIGN64)) >> shift
        sign = select(is_nan, sign & nan_sign, sign)
        sign = select(code == u64(0), sign & zero_sign, sign)
        out[i] = (code | sign) << pad


@njit
def round32(x, out, plan):
    """out = float32 x rounded to the grid, as values."""
    lowest, cap, shift = u32(plan.lowest), u32(plan.cap), u32(plan.drop << 23)
    largest, overflow = bits_to_f32(plan.largest), bits_to_f32(plan.overflow)
    infinity, nan = bits_to_f32(plan.infinity), bits_to_f32(plan.nan)
    overflow_nan, infinity_nan = overflow != overflow, infinity != infinity
    nan_sign, zero_sign = u32(0 - plan.nan_sign), u32(0 - plan.zero_sign)
    for i in range(u64(x.size)):
        w = f32_to_bits(x[i])
        a = u32(w & u32(MAGNITUDE32))
        b = min(a, cap)
        m = bits_to_f32(u32(u32(max(b, lowest) & u32(INF32)) + shift))
        r = f32(f32(bits_to_f32(b) + m) - m)
        above = r > largest
        r = select(above, overflow, r)
        r = select(a == u32(INF32), infinity, r)
        is_nan = (a > u32(INF32)) | (above & overflow_nan) | ((a == u32(INF32)) & infinity_nan)
        r = select(is_nan, nan, r)
        sign = u32(w & u32(SIGN32))
        sign = select(is_nan, u32(sign & nan_sign), sign)
        sign = select(r == f32(0.0), u32(sign & zero_sign), sign)
        out[i] = bits_to_f32(u32(f32_to_bits(r) | sign))


@inlined
def _round64(x, plan):
    """float64 x rounded to the grid, as a value."""
    lowest, cap = u64(plan.lowest), u64(plan.cap)
    largest, overflow = bits_to_f64(u64(plan.largest)), bits_to_f64(u64(plan.overflow))
    infinity, nan = bits_to_f64(u64(plan.infinity)), bits_to_f64(u64(plan.nan))
    w = u64(f64_to_bits(x))
    a = w & u64(MAGNITUDE64)
    b = min(a, cap)
    m = bits_to_f64((max(b, lowest) & u64(INF64)) + (u64(plan.drop) << u64(52)))
    r = (bits_to_f64(b) + m) - m
    above = r > largest
    r = select(above, overflow, r)
    r = select(a == u64(INF64), infinity, r)
    is_nan = (a > u64(INF64)) | (r != r)
    r = select(is_nan, nan, r)
    sign = w & u64(SIGN64)
    sign = select(is_nan, sign & u64(0 - plan.nan_sign), sign)
    sign = select(r == 0.0, sign & u64(0 - plan.zero_sign), sign)
    return bits_to_f64(u64(f64_to_bits(r)) | sign)


@njit
def round64(x, out, plan):
    """out = float64 x rounded to the grid, as values of out's dtype (float32 or float64), which holds them."""
    for i in range(u64(x.size)):
        out[i] = _round64(f64(x[i]), plan)


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
        out[i] = _round64(_nan_of(_sum(x, y), x, y), plan)


@njit
def sub32(a, b, out, plan):
    """out = float32 a - b rounded once to the grid, as float32 values."""
    for i in range(u64(out.size)):
        x, y = f64(a[i]), f64(b[i])
        out[i] = _round64(_nan_of(_sum(x, -y), x, y), plan)


@njit
def mul32(a, b, out, plan):
    """out = float32 a * b rounded once to the grid: the product of two binary32 is exact in binary64."""
    for i in range(u64(out.size)):
        x, y = f64(a[i]), f64(b[i])
        out[i] = _round64(_nan_of(x * y, x, y), plan)


@njit
def div32(a, b, out, plan):
    """out = float32 a / b rounded once to the grid: a quotient's remainder is exact, and tells the side it lies on."""
    for i in range(u64(out.size)):
        x, y = f64(a[i]), f64(b[i])
        q = x / y
        rest = fma_f64(-q, y, x)
        out[i] = _round64(_nan_of(_odd(q, select(y < 0.0, -rest, rest)), x, y), plan)


@njit
def sqrt32(a, out, plan):
    """out = square root of float32 a, rounded once to the grid."""
    for i in range(u64(out.size)):
        x = f64(a[i])
        root = np.sqrt(x)
        out[i] = _round64(_nan_of(_odd(root, fma_f64(-root, root, x)), x, x), plan)


@njit
def fma32(a, b, c, out, plan):
    """out = float32 a * b + c rounded once to the grid: the product is exact, the sum is rounded to odd."""
    for i in range(u64(out.size)):
        x, y, z = f64(a[i]), f64(b[i]), f64(c[i])
        product = _nan_of(x * y, x, y)
        out[i] = _round64(_nan_of(_sum(product, z), product, z), plan)

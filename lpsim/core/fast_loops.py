"""Vectorised roundings to nearest, ties to even: second bodies of what `core/loops` does, at memory speed.

Rounding by the host's own adder: with M a power of two whose ulp is the target's ulp at x, the sum |x| + M is
|x| rounded on the target's grid. bits(|x| + M) - bits(M) counts grid points, and adding the binade's number
in the right place gives the code: a carry walks into the exponent by itself. Subnormals need no case of their
own: M never falls below the lowest binade. Exact by IEEE 754-2019 5.4.1 (addition rounds once).

`core/fast_plan` says which formats and policies are covered; tests/test_fast.py compares with the plain loops.
All arrays are one-dimensional and contiguous. u32() around every step: Numba widens small integers otherwise.
Magnitudes are compared as floats, which every vector unit can; a NaN fails each comparison.
"""

import numpy as np

from .._jit import njit
from .fast_lanes import shift_left, shift_right
from .intrinsics import bits_to_f32, bits_to_f64, f32_to_bits, f64_to_bits, inlined, select

u32, u64, i64, f32, f64 = np.uint32, np.uint64, np.int64, np.float32, np.float64
MAGNITUDE32, SIGN32, INF32 = 0x7FFFFFFF, 0x80000000, 0x7F800000
MAGNITUDE64, SIGN64, INF64 = (1 << 63) - 1, 1 << 63, 0x7FF << 52


@njit
def encode32(x, out, plan):
    """out = codes (uint8, uint16 or uint32) of float32 x. plan: fast_plan.grid(..., 24)."""
    side, drop, first, shift = plan.positive, u32(plan.drop), u32(plan.lowest), u32(plan.sign_shift)
    cap, lowest, exponent_drop = bits_to_f32(side.cap), bits_to_f32(plan.lowest), u32(plan.drop << 23)
    infinity_from, nan_from = bits_to_f32(side.infinity_from), bits_to_f32(side.nan_from)
    infinity, nan = u32(plan.infinity), u32(plan.nan)
    nan_keep, zero_keep = u32(plan.nan_sign << 31), u32(plan.zero_sign << 31)
    for i in range(u64(x.size)):
        w = f32_to_bits(x[i])
        a = bits_to_f32(u32(w & u32(MAGNITUDE32)))
        b = select(a < cap, a, cap)
        e = u32(f32_to_bits(select(b > lowest, b, lowest)) & u32(INF32))
        m = u32(e + exponent_drop)
        points = u32(f32_to_bits(f32(b + bits_to_f32(m))) - m)
        code = u32(points + shift_right(u32(e - first), drop))
        keep = select(code == u32(0), zero_keep, u32(SIGN32))
        code = select(a > infinity_from, infinity, code)
        finite = a <= nan_from
        code = select(finite, code, nan)
        keep = select(finite, keep, nan_keep)
        out[i] = u32(code | shift_right(u32(w & keep), shift))


@njit
def encode64(x, out, plan):
    """out = codes (uint8, uint16 or uint32) of float32 or float64 x. plan: fast_plan.grid(..., 53)."""
    side, drop, first, shift = plan.positive, u64(plan.drop), u64(plan.lowest), u64(plan.sign_shift)
    cap, lowest = bits_to_f64(u64(side.cap)), bits_to_f64(u64(plan.lowest))
    infinity_from, nan_from = bits_to_f64(u64(side.infinity_from)), bits_to_f64(u64(side.nan_from))
    infinity, nan, pad = u64(plan.infinity), u64(plan.nan), u64(plan.pad)
    nan_keep, zero_keep = u64(plan.nan_sign) << u64(63), u64(plan.zero_sign) << u64(63)
    for i in range(u64(x.size)):
        w = u64(f64_to_bits(f64(x[i])))
        a = bits_to_f64(w & u64(MAGNITUDE64))
        b = select(a < cap, a, cap)
        e = u64(f64_to_bits(select(b > lowest, b, lowest))) & u64(INF64)
        m = e + (drop << u64(52))
        points = u64(f64_to_bits(b + bits_to_f64(m))) - m
        code = points + shift_right(e - first, drop)
        keep = select(code == u64(0), zero_keep, u64(SIGN64))
        code = select(a > infinity_from, infinity, code)
        finite = a <= nan_from
        code = select(finite, code, nan)
        keep = select(finite, keep, nan_keep)
        out[i] = shift_left(code | shift_right(w & keep, shift), pad)


@njit
def round32(x, out, plan):
    """out = float32 x rounded to the grid, as values. plan: fast_plan.grid(..., 24)."""
    side, exponent_drop = plan.positive, u32(plan.drop << 23)
    cap, lowest = bits_to_f32(side.cap), bits_to_f32(plan.lowest)
    infinity_from, nan_from = bits_to_f32(side.infinity_from), bits_to_f32(side.nan_from)
    infinity, nan = bits_to_f32(plan.infinity_value), bits_to_f32(plan.nan_value)
    nan_keep, zero_keep = u32(plan.nan_sign << 31), u32(plan.zero_sign << 31)
    for i in range(u64(x.size)):
        w = f32_to_bits(x[i])
        a = bits_to_f32(u32(w & u32(MAGNITUDE32)))
        b = select(a < cap, a, cap)
        e = u32(f32_to_bits(select(b > lowest, b, lowest)) & u32(INF32))
        m = bits_to_f32(u32(e + exponent_drop))
        r = f32(f32(b + m) - m)
        keep = select(r == f32(0.0), zero_keep, u32(SIGN32))
        r = select(a > infinity_from, infinity, r)
        finite = a <= nan_from
        r = select(finite, r, nan)
        keep = select(finite, keep, nan_keep)
        out[i] = bits_to_f32(u32(f32_to_bits(r) | u32(w & keep)))


@inlined
def to_grid(x, plan):
    """float64 x rounded to the grid, as a value. plan: fast_plan.grid(..., 53)."""
    side = plan.positive
    cap, lowest = bits_to_f64(u64(side.cap)), bits_to_f64(u64(plan.lowest))
    infinity_from, nan_from = bits_to_f64(u64(side.infinity_from)), bits_to_f64(u64(side.nan_from))
    infinity, nan = bits_to_f64(u64(plan.infinity_value)), bits_to_f64(u64(plan.nan_value))
    nan_keep, zero_keep = u64(plan.nan_sign) << u64(63), u64(plan.zero_sign) << u64(63)
    w = u64(f64_to_bits(x))
    a = bits_to_f64(w & u64(MAGNITUDE64))
    b = select(a < cap, a, cap)
    e = u64(f64_to_bits(select(b > lowest, b, lowest))) & u64(INF64)
    m = bits_to_f64(e + (u64(plan.drop) << u64(52)))
    r = (b + m) - m
    keep = select(r == 0.0, zero_keep, u64(SIGN64))
    r = select(a > infinity_from, infinity, r)
    finite = a <= nan_from
    r = select(finite, r, nan)
    keep = select(finite, keep, nan_keep)
    return bits_to_f64(u64(f64_to_bits(r)) | (w & keep))


@njit
def round64(x, out, plan):
    """out = float64 x rounded to the grid, as values of out's dtype (float32 or float64), which holds them."""
    for i in range(u64(x.size)):
        out[i] = to_grid(f64(x[i]), plan)

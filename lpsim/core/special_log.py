"""tl.log and tl.log2 as libdevice computes them: a polynomial in fused multiply-adds, no MUFU.

float32 -> float32, operation by operation and constant by constant as in the PTX that Triton 3.6.0 emits for
sm_90 (__nv_logf, __nv_log2f). x = m * 2^e with m from about 2/3 to 4/3; the logarithm of m is a polynomial in
r = m - 1. The fma's are marked ftz there; none of them meets or makes a subnormal, so it makes no difference.
Results: H200 recordings of all 2^32 inputs.
"""

import numpy as np

from .intrinsics import bits_to_f32, f32_to_bits, fma_f32, inlined, select
from .special_lanes import i32, u32
from .special_recipes import canonical

f32 = np.float32


def _float(bits: int) -> np.float32:
    return np.uint32(bits).view(np.float32)


MIN_NORMAL_F, TWO_23, TWO_M23 = _float(0x00800000), _float(0x4B000000), _float(0x34000000)
MINUS_23, ZERO_F, MINUS_1 = _float(0xC1B80000), _float(0), _float(0xBF800000)
INFINITY_BITS, INFINITY_F, MINUS_INFINITY = u32(0x7F800000), _float(0x7F800000), _float(0xFF800000)
EXPONENT = u32(0xFF800000)

LOG_CENTRE, LOG2_CENTRE = (
    u32(0x3F2AAAAB),
    u32(0x3F3504F3),
)  # 2/3 and sqrt(1/2): m lies between it and its double
LN_2, LOG2_E = _float(0x3F317218), _float(0x3FB8AA3B)

#: Coefficients of r^9 (log) and r^10 (log2) downwards.
L0, L1, L2 = _float(0xBE055027), _float(0x3E1039F6), _float(0xBDF8CDCC)
L3, L4, L5 = _float(0x3E0F2955), _float(0xBE2AD8B9), _float(0x3E4CED0B)
L6, L7, L8 = _float(0xBE7FFF22), _float(0x3EAAAA78), _float(0xBF000000)
B0, B1, B2, B3 = _float(0x3DC6B27F), _float(0xBE2C7F30), _float(0x3E2FCF2A), _float(0xBE374E43)
B4, B5, B6 = _float(0x3E520BF4), _float(0xBE763C8B), _float(0x3E93BF99)
B7, B8, B9 = _float(0xBEB8AA49), _float(0x3EF6384A), _float(0xBF38AA3B)


@inlined
def _normal(x):
    """x, or x * 2^23 if it is below the normal range (negative numbers too)."""
    return select(x < MIN_NORMAL_F, f32(x * TWO_23), x)


@inlined
def _exponent(x, a, centre):
    """float32 e of a = m * 2^e, less 23 if `_normal` scaled x: fma(e * 2^23 as a float, 2^-23, 0 or -23)."""
    field = i32(u32(u32(f32_to_bits(a) - centre) & EXPONENT))
    return fma_f32(f32(field), TWO_M23, select(x < MIN_NORMAL_F, MINUS_23, ZERO_F))


@inlined
def _reduced(a, centre):
    """float32 r = m - 1 of a = m * 2^e; exact."""
    bits = f32_to_bits(a)
    field = u32(u32(bits - centre) & EXPONENT)
    return f32(bits_to_f32(u32(bits - field)) + MINUS_1)


@inlined
def _finish(a, y):
    """y; fma(a, Inf, Inf) for Inf, NaN and negative a; -Inf for zero."""
    y = select(f32_to_bits(a) >= INFINITY_BITS, fma_f32(a, INFINITY_F, INFINITY_F), y)
    return canonical(select(a == ZERO_F, MINUS_INFINITY, y))


@inlined
def log_f32(x):
    """tl.log: the natural logarithm."""
    a = _normal(x)
    e = _exponent(x, a, LOG_CENTRE)
    r = _reduced(a, LOG_CENTRE)
    p = fma_f32(L0, r, L1)
    p = fma_f32(p, r, L2)
    p = fma_f32(p, r, L3)
    p = fma_f32(p, r, L4)
    p = fma_f32(p, r, L5)
    p = fma_f32(p, r, L6)
    p = fma_f32(p, r, L7)
    p = fma_f32(p, r, L8)
    p = fma_f32(f32(r * p), r, r)
    return _finish(a, fma_f32(e, LN_2, p))


@inlined
def log2_f32(x):
    """tl.log2: the logarithm to base 2."""
    a = _normal(x)
    e = _exponent(x, a, LOG2_CENTRE)
    r = _reduced(a, LOG2_CENTRE)
    p = fma_f32(B0, r, B1)
    p = fma_f32(p, r, B2)
    p = fma_f32(p, r, B3)
    p = fma_f32(p, r, B4)
    p = fma_f32(p, r, B5)
    p = fma_f32(p, r, B6)
    p = fma_f32(p, r, B7)
    p = fma_f32(p, r, B8)
    p = fma_f32(p, r, B9)
    p = f32(r * f32(r * p))
    return _finish(a, f32(e + fma_f32(r, LOG2_E, p)))

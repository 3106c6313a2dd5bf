"""What ptxas and Triton make of one special function: IEEE operations of binary32 around the MUFU functions.

float32 -> float32, for any compiled code. IEEE operations are the host's own: Numba computes float32
operations in binary32 and never contracts or reorders them. A NaN result is 0x7FFFFFFF, as the GPU's is.
Constants are written as bits where the instruction stream has them so.
Source: PTX and SASS of Triton 3.6.0 for sm_90; results: H200 recordings of all 2^32 inputs of each unary one.
"""

import numpy as np

from .intrinsics import bits_to_f32, f32_to_bits, inlined, select
from .special_lanes import INFINITY, MAGNITUDE, NAN, ex2_f32, rcp_f32, u32

f32 = np.float32
ZERO_F, HALF, QUARTER, ONE_F, TWO_24_F = f32(0), f32(0.5), f32(0.25), f32(1), f32(1 << 24)
LOG2_E = np.uint32(0x3FB8AA3B).view(f32)
MIN_EX2 = f32(-126)
LARGE_DIVISOR, SMALL_DIVISOR = u32((126 + 127) << 23), u32((127 - 126) << 23)  # 2^126, 2^-126


@inlined
def canonical(x):
    """x, with every NaN replaced by 0x7FFFFFFF."""
    bits = f32_to_bits(x)
    return bits_to_f32(select(u32(bits & MAGNITUDE) > INFINITY, NAN, bits))


@inlined
def ex2_operand(x):
    """What ex2.approx.f32 hands to MUFU.EX2: x, or half of it where 2^x is subnormal."""
    return select(x < MIN_EX2, f32(x * HALF), x)


@inlined
def ex2_result(x, y):
    """ex2.approx.f32 of x, with y the MUFU.EX2 of `ex2_operand(x)`: squared where x was halved."""
    return select(x < MIN_EX2, f32(y * y), y)


@inlined
def ex2_approx_f32(x):
    """ex2.approx.f32: 2^x, subnormal results kept."""
    return ex2_result(x, ex2_f32(ex2_operand(x)))


@inlined
def exp_f32(x):
    """tl.exp: ex2.approx.f32 of RN(x * log2 e)."""
    return ex2_approx_f32(f32(x * LOG2_E))


@inlined
def divisor_scale(y):
    """What div.full.f32 multiplies both operands by: 1/4 if |y| > 2^126, 2^24 if |y| < 2^-126, else 1."""
    magnitude = u32(f32_to_bits(y) & MAGNITUDE)
    scale = select(magnitude > LARGE_DIVISOR, QUARTER, ONE_F)
    return select(magnitude < SMALL_DIVISOR, TWO_24_F, scale)


@inlined
def div_full_f32(x, y):
    """div.full.f32 (x / y in Triton, tl.fdiv): RN(x * MUFU.RCP(y)), both scaled first where y asks for it."""
    scale = divisor_scale(y)
    return canonical(f32(f32(x * scale) * rcp_f32(f32(y * scale))))


@inlined
def sigmoid_operand(x):
    """The exponent to base 2 in tl.sigmoid: RN((0 - x) * log2 e)."""
    return f32(f32(ZERO_F - x) * LOG2_E)


@inlined
def sigmoid_f32(x):
    """tl.sigmoid: div.full(1, 1 + ex2.approx.f32(-x * log2 e))."""
    return div_full_f32(ONE_F, f32(ONE_F + ex2_approx_f32(sigmoid_operand(x))))


@inlined
def div_rn_f32(x, y):
    """div.rn.f32 (tl.div_rn): x / y correctly rounded."""
    return canonical(f32(x / y))


@inlined
def rcp_rn_f32(x):
    """rcp.rn.f32: 1 / x correctly rounded."""
    return canonical(f32(ONE_F / x))


@inlined
def sqrt_rn_f32(x):
    """sqrt.rn.f32 (tl.sqrt_rn): sqrt(x) correctly rounded."""
    return canonical(f32(np.sqrt(x)))

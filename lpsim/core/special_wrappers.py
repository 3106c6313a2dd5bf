"""PTX instructions that ptxas builds from one MUFU function: scaled around it, flushed, or as they are.

float32 -> float32, for any compiled code. Where ftz stands in the name, subnormal operands and results are zeros of
their sign. A NaN result is 0x7FFFFFFF.
Source: SASS that ptxas 12.8 makes for sm_90; results: H200 recordings of all 2^32 inputs of each unary one, and of
drawn operands of the divisions.
"""

import numpy as np

from .intrinsics import bits_to_f32, bits_to_f64, f32_to_bits, f64_to_bits, inlined, select
from .special_lanes import MAGNITUDE, MIN_NORMAL, rcp_f32, rsqrt_f32, sqrt_f32, u32
from .special_normalised import cos_of_turns, lg2_approx_ftz, sin_of_turns, tanh_approx
from .special_recipes import (
    LARGE_DIVISOR,
    ONE_F,
    QUARTER,
    TWO_24_F,
    canonical,
    divisor_scale,
    f32,
    rcp_rn_f32,
    sqrt_rn_f32,
)

i64, f64 = np.int64, np.float64
TWO_12, TWO_M12, TWENTY_FOUR = f32(1 << 12), f32(1 / (1 << 12)), f32(24)
TWO_PI_INVERSE = f64(np.uint32(0x3E22F983).view(f32))
ROUNDS_TO_NORMAL = f64(2.0**-126 - 2.0**-151)  # a tie, and so rounded up, on a grid of 24 bits without a least exponent
BELOW_24_BITS = i64((1 << 29) - 1)  # of a binary64 significand


@inlined
def flushed(x):
    """x, or the zero of its sign if it is subnormal."""
    bits = f32_to_bits(x)
    magnitude = u32(bits & MAGNITUDE)
    return bits_to_f32(select(magnitude < MIN_NORMAL, u32(bits ^ magnitude), bits))


@inlined
def is_small(x):
    """|x| < 2^-126: zeros too."""
    return u32(f32_to_bits(x) & MAGNITUDE) < MIN_NORMAL


@inlined
def mul_ftz(x, y):
    """FMUL.FTZ: zero of its sign where the product, rounded to 24 bits, is below 2^-126."""
    exact = f64(flushed(x)) * f64(flushed(y))
    result = f32(exact)
    tiny = select(exact < f64(0), -exact, exact) < ROUNDS_TO_NORMAL
    zero = bits_to_f32(u32(f32_to_bits(result) & u32(~MAGNITUDE)))
    return canonical(select(tiny, zero, result))


@inlined
def lg2_ftz_f32(x):
    """lg2.approx.ftz.f32: MUFU.LG2."""
    return bits_to_f32(lg2_approx_ftz(i64(f32_to_bits(x))))


@inlined
def lg2_approx_f32(x):
    """lg2.approx.f32: MUFU.LG2 of x * 2^24 less 24 where x is subnormal."""
    small = is_small(x)
    y = lg2_ftz_f32(select(small, f32(x * TWO_24_F), x))
    return canonical(select(small, f32(y - TWENTY_FOUR), y))


@inlined
def rcp_approx_f32(x):
    """rcp.approx.f32: scaled as in div.full.f32, so that subnormal operands and results are kept."""
    scale = divisor_scale(x)
    return canonical(f32(scale * rcp_f32(f32(x * scale))))


@inlined
def rsqrt_approx_f32(x):
    """rsqrt.approx.f32: MUFU.RSQ of x * 2^24 times 2^12 where x is subnormal."""
    small = is_small(x)
    y = rsqrt_f32(select(small, f32(x * TWO_24_F), x))
    return canonical(select(small, f32(y * TWO_12), y))


@inlined
def sqrt_approx_f32(x):
    """sqrt.approx.f32: MUFU.SQRT of x * 2^24 times 2^-12 where x is subnormal."""
    small = is_small(x)
    y = sqrt_f32(select(small, f32(x * TWO_24_F), x))
    return canonical(select(small, f32(y * TWO_M12), y))


@inlined
def _turns(x):
    """int64 code of x / (2 pi): FMUL.RZ by the constant 0x3E22F983. (Subnormal results are too small to matter.)"""
    bits = f64_to_bits(f64(x) * TWO_PI_INVERSE)
    return i64(f32_to_bits(f32(bits_to_f64(i64(bits & ~BELOW_24_BITS)))))


@inlined
def sin_approx_f32(x):
    """sin.approx.f32, with ftz or without: MUFU.SIN of x in revolutions, truncated."""
    return bits_to_f32(sin_of_turns(_turns(x)))


@inlined
def cos_approx_f32(x):
    """cos.approx.f32, with ftz or without: MUFU.COS of x in revolutions, truncated."""
    return bits_to_f32(cos_of_turns(_turns(x)))


@inlined
def tanh_approx_f32(x):
    """tanh.approx.f32: MUFU.TANH."""
    return bits_to_f32(tanh_approx(i64(f32_to_bits(x))))


@inlined
def rcp_rn_ftz_f32(x):
    """rcp.rn.ftz.f32: 1 / x correctly rounded, then flushed."""
    return flushed(rcp_rn_f32(flushed(x)))


@inlined
def sqrt_rn_ftz_f32(x):
    """sqrt.rn.ftz.f32: sqrt(x) correctly rounded."""
    return sqrt_rn_f32(flushed(x))


@inlined
def div_full_ftz_f32(x, y):
    """div.full.ftz.f32: x * MUFU.RCP(y), both a quarter of themselves where |y| > 2^126."""
    large = u32(f32_to_bits(y) & MAGNITUDE) > LARGE_DIVISOR
    scale = select(large, QUARTER, ONE_F)
    return mul_ftz(mul_ftz(x, scale), rcp_f32(mul_ftz(y, scale)))


@inlined
def div_approx_f32(x, y):
    """div.approx.f32: x * MUFU.RCP(y), both times 2^24 where y is subnormal; +-0 where |y| > 2^126."""
    scale = select(is_small(y), TWO_24_F, ONE_F)
    return canonical(f32(f32(x * scale) * rcp_f32(f32(y * scale))))


@inlined
def div_approx_ftz_f32(x, y):
    """div.approx.ftz.f32: x * MUFU.RCP(y)."""
    return mul_ftz(x, rcp_f32(y))

"""tl.erf, libdevice's exp and tanh, tl.floor and tl.ceil, and float32 to integers, as Triton 3.6 compiles them.

float32 -> float32 (or integers), operation by operation and constant by constant as in the PTX that Triton 3.6.0
emits for sm_90 (__nv_erff, __nv_expf, __nv_tanhf). Results: H200 recordings of all 2^32 inputs.
"""

import numpy as np

from .intrinsics import bits_to_f32, f32_to_bits, inlined, select
from .special_lanes import MAGNITUDE, ex2_f32, rcp_f32, u32
from .special_recipes import LOG2_E, ONE_F, ZERO_F, canonical, f32
from .special_trig import _float, fma_ftz
from .special_wrappers import flushed

f64, i64 = np.float64, np.int64
SIGN = u32(0x80000000)
MINUS_1, MINUS_2, HALF = _float(0xBF800000), _float(0xC0000000), _float(0x3F000000)

ERF_LARGE = _float(0x3F8060FE)  # from about 1 on: 1 - 2^polynomial(|x|); below: a polynomial in x^2
A0, A1, A2, A3 = _float(0x3789CA3C), _float(0xB9F560B9), _float(0x3BAC840B), _float(0xBD0C8162)
A4, A5, A6 = _float(0x3E1CF906), _float(0x3F6A937E), _float(0x3F20D842)
B0, B1, B2, B3 = _float(0x38B1E96A), _float(0xBA574D20), _float(0x3BAAD5EA), _float(0xBCDC1BE7)
B4, B5, B6 = _float(0x3DE718AF), _float(0xBEC093AC), _float(0x3E0375D3)

TANH_LARGE, TANH_ONE = _float(0x3F19999A), _float(0x41102CB4)  # 0.6, and where the result is 1
TWO_LOG2_E = _float(0x4038AA3B)
T0, T1, T2, T3 = _float(0x3C80F082), _float(0xBD563CAE), _float(0x3E085941), _float(0xBEAAA9ED)

EXP_SCALE, EXP_RANGE, EXP_BASE = _float(0x3BBB989D), f64(252), f64(12582913)  # log2(e) / 252; 0x4B400001
EXP_BACK, LOG2_E_LOW = _float(0xCB40007F), _float(0x32A57060)


@inlined
def _absolute(x):
    """abs.ftz.f32."""
    return flushed(bits_to_f32(u32(f32_to_bits(x) & MAGNITUDE)))


@inlined
def _with_sign(y, x):
    """The bits of y with the sign of x set in them."""
    return bits_to_f32(u32(f32_to_bits(y) | u32(f32_to_bits(x) & SIGN)))


@inlined
def erf_f32(x):
    """tl.erf: the error function."""
    size = _absolute(x)
    large = size >= ERF_LARGE
    t = select(large, size, f32(x * x))
    p = fma_ftz(select(large, A0, B0), t, select(large, A1, B1))
    p = fma_ftz(p, t, select(large, A2, B2))
    p = fma_ftz(p, t, select(large, A3, B3))
    p = fma_ftz(p, t, select(large, A4, B4))
    p = fma_ftz(p, t, select(large, A5, B5))
    p = fma_ftz(p, t, select(large, A6, B6))
    last = select(large, f32(-t), x)
    y = fma_ftz(p, last, last)
    return canonical(select(large, _with_sign(f32(ONE_F - ex2_f32(y)), x), y))


@inlined
def tanh_f32(x):
    """libdevice.tanh: a polynomial below 0.6, above 1 - 2 / (e^2|x| + 1) with MUFU.EX2 and MUFU.RCP."""
    size = _absolute(x)
    square = f32(x * x)
    p = fma_ftz(T0, square, T1)
    p = fma_ftz(p, square, T2)
    p = fma_ftz(p, square, T3)
    p = fma_ftz(p, square, ZERO_F)
    small = fma_ftz(p, x, x)
    y = fma_ftz(rcp_f32(f32(ex2_f32(f32(size * TWO_LOG2_E)) + ONE_F)), MINUS_2, ONE_F)
    y = _with_sign(select(size >= TANH_ONE, ONE_F, y), x)
    return canonical(select(size >= TANH_LARGE, y, small))


@inlined
def exp_libdevice_f32(x):
    """libdevice.exp: e^x = 2^n * 2^r, n from a sum that rounds down to whole numbers, r a fused remainder.

    cvt.sat takes NaN for 0. The rounding sum, fma.rm(s, 252, 12582913), is below 2^24: its floor.
    """
    s = fma_ftz(x, EXP_SCALE, HALF)
    s = select(s > ZERO_F, select(s < ONE_F, s, ONE_F), ZERO_F)
    n = f32(np.floor(f64(s) * EXP_RANGE) + EXP_BASE)
    whole = f32(n + EXP_BACK)
    r = fma_ftz(x, LOG2_E, f32(-whole))
    r = fma_ftz(x, LOG2_E_LOW, r)
    return canonical(f32(ex2_f32(r) * bits_to_f32(u32(f32_to_bits(n) << u32(23)))))


@inlined
def floor_f32(x):
    """tl.floor (cvt.rmi.ftz.f32.f32): subnormals are zeros of their sign."""
    return canonical(f32(np.floor(flushed(x))))


@inlined
def ceil_f32(x):
    """tl.ceil (cvt.rpi.ftz.f32.f32): subnormals are zeros of their sign."""
    return canonical(f32(np.ceil(flushed(x))))


@inlined
def _whole(x, low, high):
    """int64: x truncated, but not below low and not above high; NaN gives 0."""
    inside = min(max(f64(x), f64(low)), f64(high))
    return i64(select(x == x, inside, f64(0)))


@inlined
def int32_f32(x):
    """x.to(tl.int32) (cvt.rzi.s32.f32): truncated, saturated; NaN gives 0. int64."""
    return _whole(x, -(1 << 31), (1 << 31) - 1)


@inlined
def int16_f32(x):
    """x.to(tl.int16) (cvt.rzi.s16.f32): truncated, saturated; NaN gives 0. int64."""
    return _whole(x, -(1 << 15), (1 << 15) - 1)


@inlined
def uint16_f32(x):
    """cvt.rzi.u16.f32: truncated, saturated; NaN gives 0. int64."""
    return _whole(x, 0, (1 << 16) - 1)

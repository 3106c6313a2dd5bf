"""tl.sin and tl.cos as libdevice computes them: the angle less a multiple of pi/2, then a polynomial; no MUFU.

float32 -> float32, operation by operation as in the PTX that Triton 3.6.0 emits for sm_90 (__nv_sinf, __nv_cosf).
Below 105615 the multiple is subtracted by three fused multiply-adds (Cody and Waite); above, x is multiplied by 192
bits of 2/pi in integers and the fraction goes through binary64 (Payne and Hanek).
Results: H200 recordings of all 2^32 inputs.
"""

import numpy as np

from .intrinsics import f32_to_bits, fma_f32, inlined, select
from .special_lanes import MAGNITUDE, u32
from .special_recipes import canonical, f32
from .special_wrappers import flushed

i32, i64, u64, f64 = np.int32, np.int64, np.uint64, np.float64


def _float(bits: int) -> np.float32:
    return np.uint32(bits).view(np.float32)


TWO_OVER_PI = _float(0x3F22F983)
PI_HALF_1, PI_HALF_2, PI_HALF_3 = _float(0xBFC90FDA), _float(0xB3A22168), _float(0xA7C234C5)  # their sum is -pi/2
LARGE, INFINITE = u32(0x47CE4780), u32(0x7F800000)  # 105615
ZERO_F, ONE_F, MINUS_1 = _float(0), _float(0x3F800000), _float(0xBF800000)
#: coefficients of the sine and the cosine of an angle within pi/4, highest first
S0, S1, S2 = _float(0xB94D4153), _float(0x3C0885E4), _float(0xBE2AAAA8)
C0, C1, C2, C3 = _float(0x37CBAC00), _float(0xBAB607ED), _float(0x3D2AAABB), _float(0xBEFFFFFF)
#: 2/pi * 2^192 as words, low first
W0, W1, W2 = u64(0x3C439041), u64(0xDB629599), u64(0xF534DDC0)
W3, W4, W5 = u64(0xFC2757D1), u64(0x4E441529), u64(0xA2F9836E)
PI_HALF_2_64 = np.int64(0x3BF921FB54442D19).view(np.float64)  # pi/2 * 2^-64
WORD, LOW = u64(32), u64(0xFFFFFFFF)


@inlined
def fma_ftz(a, b, c):
    """fma.rn.ftz.f32."""
    return flushed(fma_f32(flushed(a), flushed(b), flushed(c)))


@inlined
def _middle(a, b, c, d, which):
    """The one of four numbers that `which` (0 to 3) names."""
    return select(which == 0, a, select(which == 1, b, select(which == 2, c, d)))


@inlined
def _reduced_large(x):
    """(angle, quarter) for 105615 <= |x| < Inf: |x| = (4n + quarter) * pi/2 + angle, signed as x."""
    bits = f32_to_bits(x)
    sig = u64(u32(bits << u32(8)) | u32(0x80000000))
    t0 = W0 * sig
    t1 = W1 * sig + (t0 >> WORD)
    t2 = W2 * sig + (t1 >> WORD)
    t3 = W3 * sig + (t2 >> WORD)
    t4 = W4 * sig + (t3 >> WORD)
    t5 = W5 * sig + (t4 >> WORD)
    exponent = i64(u32(bits & MAGNITUDE) >> u32(23)) - 128
    words, shift = exponent >> 5, u64(exponent & 31)
    high = _middle(t5 >> WORD, t5 & LOW, t4 & LOW, t3 & LOW, words)
    middle = _middle(t5 & LOW, t4 & LOW, t3 & LOW, t2 & LOW, words)
    low = _middle(t4 & LOW, t3 & LOW, t2 & LOW, t1 & LOW, words)
    upper = ((high << WORD) | middle) << shift
    upper = upper | (low >> (WORD - shift))  # 64 bits of |x| * 2/pi; the top two are the quarter
    fraction = i64(upper << u64(2))
    quarter = i64(upper >> u64(62)) + i64(u64(fraction) >> u64(63))  # to the nearest
    backwards = fraction < i64(0)
    size = select(backwards, ~fraction, fraction)
    angle = f32(f64(size) * PI_HALF_2_64)
    negative = bits > MAGNITUDE
    angle = select(backwards != negative, f32(-angle), angle)
    return angle, select(negative, -quarter, quarter)


@inlined
def _reduced(x):
    """(angle, quarter) of x below 105615; NaN gives (NaN, 0)."""
    scaled = f32(x * TWO_OVER_PI)
    quarter = i64(select(x == x, np.rint(scaled), ZERO_F))
    multiple = f32(quarter)  # never -0
    angle = fma_ftz(multiple, PI_HALF_1, x)
    angle = fma_ftz(multiple, PI_HALF_2, angle)
    return fma_ftz(multiple, PI_HALF_3, angle), quarter


@inlined
def _wave(angle, quarter):
    """The sine of angle + quarter * pi/2."""
    square = flushed(f32(angle * angle))
    odd = (quarter & i64(1)) != i64(0)
    first = select(odd, ONE_F, angle)
    rest = fma_ftz(square, first, ZERO_F)
    p = select(odd, fma_ftz(C0, square, C1), S0)
    p = fma_ftz(p, square, select(odd, C2, S1))
    p = fma_ftz(p, square, select(odd, C3, S2))
    y = fma_ftz(p, rest, first)
    return canonical(select((quarter & i64(2)) != i64(0), fma_ftz(y, MINUS_1, ZERO_F), y))


@inlined
def _shifted_sine(x, further):
    magnitude = u32(f32_to_bits(x) & MAGNITUDE)
    if magnitude < LARGE or magnitude > INFINITE:
        angle, quarter = _reduced(x)
    elif magnitude == INFINITE:
        angle, quarter = f32(x * ZERO_F), i64(0)
    else:
        angle, quarter = _reduced_large(x)
    return _wave(angle, quarter + further)


@inlined
def sin_f32(x):
    """tl.sin: the sine of x radians; NaN for infinities."""
    return _shifted_sine(x, i64(0))


@inlined
def cos_f32(x):
    """tl.cos: the cosine of x radians; NaN for infinities."""
    return _shifted_sine(x, i64(1))

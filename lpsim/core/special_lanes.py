"""MUFU.EX2, RCP, RSQ and SQRT on float32 in 32-bit arithmetic: the body that a compiler turns into vectors.

The same function as `core.special_mufu`, which is the one to read; tests hold the two equal, and both
against recordings of all 2^32 inputs. What differs is made for speed only: everything in uint32 (a loop
over these functions vectorises), tables packed into one word per entry, selects instead of branches.
Use them in any @njit code: `y = ex2_f32(x)`, float32 in and out. Source: as in `core.special_mufu`.
"""

import numpy as np

from .intrinsics import bits_to_f32, f32_to_bits, inlined, select
from .special_tables import C0_BITS, C1_BITS, LOW_BITS, PARTS, TABLES, packed

u32, i32, u64 = np.uint32, np.int32, np.uint64
ONE, ZERO = u32(1), u32(0)
PLUS, MINUS = u32(1), u32(0xFFFFFFFF)  # factors modulo 2^32
FRACTION, MAGNITUDE, INFINITY, NAN = u32(0x7FFFFF), u32(0x7FFFFFFF), u32(0x7F800000), u32(0x7FFFFFFF)
MIN_NORMAL, IMPLICIT, TWO_24, ODD_FIELD = u32(1 << 23), u32(1 << 23), u32(1 << 24), u32((1 << 24) - 1)
LOW, XL = u32((1 << LOW_BITS) - 1), u32(0x1FFFF)
MASK_C0, MASK_C1 = u64((1 << C0_BITS) - 1), u64((1 << C1_BITS) - 1)
SHIFT_C1, SHIFT_C2 = u64(C0_BITS), u64(C0_BITS + C1_BITS)

EX2 = packed(0, "ex2_1_2")
RCP = packed(1 << 31, "rcp_1_2")
RSQRT = packed(1 << 31, "rsqrt_1_2", "rsqrt_2_4")
SQRT = packed(1 << 26, "sqrt_1_2", "sqrt_2_4")
EX2_BIAS = u32(TABLES["ex2_1_2"]["bias"])
RCP_BIAS = u32((1 << 31) + TABLES["rcp_1_2"]["bias"])
RSQRT_BIAS = u32((1 << 31) + TABLES["rsqrt_1_2"]["bias"])
SQRT_BIAS = u32((1 << 26) + TABLES["sqrt_1_2"]["bias"])

LARGEST_EX2 = u32(0x437F0000)  # 255: a power of two far past both borders, and 255 * 2^23 fits int32
SCALE_EX2 = np.float32(1 << 23)


@inlined
def _column(x, high, bit, shift):
    """(high >> shift) if that bit of x is set, else 0."""
    return u32(u32(high >> u32(shift)) & u32(ZERO - u32(u32(x >> u32(bit)) & ONE)))


@inlined
def squarer32(x):
    """S(x) of `core.special_squarer`, uint32 in and out."""
    high = u32(x >> u32(9))
    s = u32(u32(high * high) >> ONE)
    s = u32(s + _column(x, high, 8, 1))
    s = u32(s + _column(x, high, 7, 2))
    s = u32(s + _column(x, high, 6, 3))
    s = u32(s + _column(x, high, 5, 4))
    s = u32(s + _column(x, high, 4, 5))
    s = u32(s + _column(x, high, 3, 6))
    return u32(s + _column(x, high, 2, 7))


@inlined
def _interpolate(entry, fraction, square, sign1, sign2, bias, s0):
    """y = (c0' + ((bias + sign1*c1*low + sign2*c2*square) >> s0)) >> 2, all modulo 2^32; see `packed`."""
    c0 = u32(entry & MASK_C0)
    c1 = u32((entry >> SHIFT_C1) & MASK_C1)
    c2 = u32(entry >> SHIFT_C2)
    p = u32(bias + u32(sign1 * u32(c1 * u32(fraction & LOW))))
    p = u32(p + u32(sign2 * u32(c2 * square)))
    return u32(u32(c0 + u32(p >> u32(s0))) >> u32(2))


@inlined
def ex2_f32(x):
    """MUFU.EX2 (ex2.approx.ftz.f32, tl.exp2): 2^x, float32 -> float32."""
    bits = f32_to_bits(x)
    magnitude = u32(bits & MAGNITUDE)
    clamped = bits_to_f32(min(magnitude, LARGEST_EX2))
    fixed = i32(clamped * SCALE_EX2)
    whole = i32(fixed & i32(FRACTION)) == 0
    mirrored = i32(i32(~fixed) + i32(whole))  # ones' complement, but exact for whole numbers
    fixed = select(bits != magnitude, mirrored, fixed)
    exponent = i32(fixed >> i32(23))
    fraction = u32(u32(fixed) & FRACTION)
    square = squarer32(u32(fraction & XL))
    y = _interpolate(EX2[u64(fraction >> u32(LOW_BITS))], fraction, square, PLUS, PLUS, EX2_BIAS, 13)
    result = u32(u32(u32(exponent + i32(127)) << u32(23)) | u32(y & FRACTION))
    result = select(exponent < i32(-126), ZERO, result)
    result = select(exponent > i32(127), INFINITY, result)
    return bits_to_f32(select(magnitude > INFINITY, NAN, result))


@inlined
def rcp_f32(x):
    """MUFU.RCP (rcp.approx.ftz.f32): 1 / x, float32 -> float32; subnormal operands and results count as zero."""
    bits = f32_to_bits(x)
    magnitude = u32(bits & MAGNITUDE)
    fraction = u32(bits & FRACTION)
    square = squarer32(u32(u32(fraction << ONE) & XL))
    y = _interpolate(RCP[u64(fraction >> u32(LOW_BITS))], fraction, square, MINUS, PLUS, RCP_BIAS, 13)
    exponent = i32(i32(252) - i32(magnitude >> u32(23)))  # one less: y carries the implicit bit
    result = i32(i32(exponent << i32(23)) + i32(y))
    result = select(result < i32(MIN_NORMAL), i32(0), result)
    result = select(magnitude < MIN_NORMAL, INFINITY, u32(result))
    result = u32(result | u32(bits ^ magnitude))
    return bits_to_f32(select(magnitude > INFINITY, NAN, result))


@inlined
def _odd_exponent(bits):
    """0 or PARTS: where the table of this parity begins. The exponent is odd if its biased field is even."""
    return u32(u32(PARTS) & u32(u32(~bits) >> u32(15)))


@inlined
def rsqrt_f32(x):
    """MUFU.RSQ (rsqrt.approx.ftz.f32, tl.rsqrt): 1 / sqrt(x), float32 -> float32; subnormals count as zero."""
    bits = f32_to_bits(x)
    magnitude = u32(bits & MAGNITUDE)
    fraction = u32(bits & FRACTION)
    square = squarer32(u32(fraction & XL))
    index = u32(_odd_exponent(bits) | u32(fraction >> u32(LOW_BITS)))
    y = _interpolate(RSQRT[u64(index)], fraction, square, MINUS, PLUS, RSQRT_BIAS, 14)
    y = select(u32(bits & ODD_FIELD) == IMPLICIT, TWO_24, y)  # an even power of two: exact
    half = u32(u32(magnitude + IMPLICIT) >> u32(24))
    result = u32(u32(u32(u32(189) - half) << u32(23)) + y)
    result = select(magnitude == INFINITY, ZERO, result)
    sign = u32(bits ^ magnitude)
    special = select(magnitude < MIN_NORMAL, u32(INFINITY | sign), NAN)
    ordinary = (bits >= MIN_NORMAL) & (bits <= INFINITY)
    return bits_to_f32(select(ordinary, result, special))


@inlined
def sqrt_f32(x):
    """MUFU.SQRT (sqrt.approx.ftz.f32, tl.sqrt): sqrt(x), float32 -> float32; subnormals count as zero."""
    bits = f32_to_bits(x)
    magnitude = u32(bits & MAGNITUDE)
    fraction = u32(bits & FRACTION)
    square = squarer32(u32(fraction & XL))
    index = u32(_odd_exponent(bits) | u32(fraction >> u32(LOW_BITS)))
    y = _interpolate(SQRT[u64(index)], fraction, square, PLUS, MINUS, SQRT_BIAS, 15)
    half = u32(u32(magnitude + IMPLICIT) >> u32(24))
    result = u32(u32(u32(u32(62) + half) << u32(23)) + y)
    result = select(magnitude == INFINITY, INFINITY, result)
    sign = u32(bits ^ magnitude)
    special = select(magnitude < MIN_NORMAL, sign, NAN)
    ordinary = (bits >= MIN_NORMAL) & (bits <= INFINITY)
    return bits_to_f32(select(ordinary, result, special))

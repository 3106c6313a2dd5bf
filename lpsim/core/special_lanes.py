"""MUFU.EX2, RCP, RSQ and SQRT on float32 in 32-bit arithmetic: the body that a compiler turns into vectors.

The same functions as in `core.special_mufu`, which is the one to read; tests hold the two equal, and this
one against recordings of all 2^32 inputs. What differs is made for speed only: everything in uint32 (a loop
over these functions vectorises), one packed table entry, selects instead of branches.
Use them in any compiled code: `y = ex2_f32(x)`, float32 in and out. Over whole arrays the loops of
`core.special_loops` are faster: they fetch table entries apart, hence the halves (_index, _value) below.
"""

import numpy as np

from .intrinsics import bits_to_f32, f32_to_bits, inlined, select
from .special_tables import C1_BITS, LOW_BITS, PARTS, TABLES, packed

u16, u32, i32, u64 = np.uint16, np.uint32, np.int32, np.uint64
ZERO, ONE = u32(0), u32(1)
PLUS, MINUS = u32(1), u32(0xFFFFFFFF)  # factors modulo 2^32
FRACTION, MAGNITUDE, INFINITY, NAN = u32(0x7FFFFF), u32(0x7FFFFFFF), u32(0x7F800000), u32(0x7FFFFFFF)
MIN_NORMAL = IMPLICIT = u32(1 << 23)
TWO_24, BELOW_24 = u32(1 << 24), u32((1 << 24) - 1)
LOW, XL, C1, PARITY = u32((1 << LOW_BITS) - 1), u32(0x1FFFF), u32((1 << C1_BITS) - 1), u32(PARTS)

EX2 = packed(0, "ex2_1_2")
RCP = packed(1 << 31, "rcp_1_2")
RSQRT = packed(1 << 31, "rsqrt_1_2", "rsqrt_2_4")
SQRT = packed(1 << 26, "sqrt_1_2", "sqrt_2_4")
EX2_BIAS = u32(TABLES["ex2_1_2"]["bias"])
RCP_BIAS = u32((1 << 31) + TABLES["rcp_1_2"]["bias"])
RSQRT_BIAS = u32((1 << 31) + TABLES["rsqrt_1_2"]["bias"])
SQRT_BIAS = u32((1 << 26) + TABLES["sqrt_1_2"]["bias"])

LARGEST_EX2 = u32(0x437F0000)  # 255: past both borders of ex2, and 255 * 2^23 fits int32
SCALE_EX2 = np.float32(1 << 23)


@inlined
def _cross(x, high, bit, shift):
    """high >> shift if that bit of x is set, else 0."""
    return u32(u32(high >> u32(shift)) & u32(ZERO - u32(u32(x >> u32(bit)) & ONE)))


@inlined
def squarer32(x):
    """S(x) of `core.special_squarer`, uint32 in and out."""
    high = u32(x >> u32(9))
    s = u32(u32(high * high) >> ONE)
    s = u32(s + _cross(x, high, 8, 1))
    s = u32(s + _cross(x, high, 7, 2))
    s = u32(s + _cross(x, high, 6, 3))
    s = u32(s + _cross(x, high, 5, 4))
    s = u32(s + _cross(x, high, 4, 5))
    s = u32(s + _cross(x, high, 3, 6))
    return u32(s + _cross(x, high, 2, 7))


@inlined
def _interpolate(c0, c12, fraction, x, sign1, sign2, bias, s0):
    """y = (c0 + ((bias + sign1*c1*low + sign2*c2*S(x)) >> s0)) >> 2 modulo 2^32: `special_tables.packed`."""
    p = u32(bias + u32(sign1 * u32(u32(c12 & C1) * u32(fraction & LOW))))
    p = u32(p + u32(sign2 * u32(u32(c12 >> u32(C1_BITS)) * squarer32(x))))
    return u32(u32(c0 + u32(p >> u32(s0))) >> u32(2))


@inlined
def ex2_fixed(x):
    """int32: x * 2^23, truncated; below zero its ones' complement unless x is whole; clamped at |x| = 255."""
    bits = f32_to_bits(x)
    magnitude = u32(bits & MAGNITUDE)
    fixed = i32(bits_to_f32(min(magnitude, LARGEST_EX2)) * SCALE_EX2)
    whole = i32(fixed & i32(FRACTION)) == 0
    return select(bits != magnitude, i32(i32(~fixed) + i32(whole)), fixed)


@inlined
def ex2_index(fixed):
    """uint16: which entry of EX2."""
    return u16(u32(u32(fixed) & FRACTION) >> u32(LOW_BITS))


@inlined
def ex2_value(x, fixed, c0, c12):
    """2^x from `ex2_fixed` and the two halves of the table entry."""
    magnitude = u32(f32_to_bits(x) & MAGNITUDE)
    fraction = u32(u32(fixed) & FRACTION)
    y = _interpolate(c0, c12, fraction, u32(fraction & XL), PLUS, PLUS, EX2_BIAS, 13)
    power = i32(fixed >> i32(23))
    result = u32(u32(u32(power + i32(127)) << u32(23)) | u32(y & FRACTION))
    result = select(power < i32(-126), ZERO, result)
    result = select(power > i32(127), INFINITY, result)
    return bits_to_f32(select(magnitude > INFINITY, NAN, result))


@inlined
def rcp_index(x):
    """uint16: which entry of RCP."""
    return u16(u32(f32_to_bits(x) & FRACTION) >> u32(LOW_BITS))


@inlined
def rcp_value(x, c0, c12):
    """1 / x from the two halves of the table entry."""
    bits = f32_to_bits(x)
    magnitude = u32(bits & MAGNITUDE)
    fraction = u32(bits & FRACTION)
    y = _interpolate(c0, c12, fraction, u32(u32(fraction << ONE) & XL), MINUS, PLUS, RCP_BIAS, 13)
    exponent = i32(i32(252) - i32(magnitude >> u32(23)))  # one less: y carries the implicit bit
    result = i32(i32(exponent << i32(23)) + i32(y))
    result = select(result < i32(MIN_NORMAL), ZERO, u32(result))
    result = select(magnitude < MIN_NORMAL, INFINITY, result)
    result = u32(result | u32(bits ^ magnitude))
    return bits_to_f32(select(magnitude > INFINITY, NAN, result))


@inlined
def root_index(x):
    """uint16: which entry of RSQRT or SQRT; their second half is for odd exponents (even biased fields)."""
    bits = f32_to_bits(x)
    odd = u32(u32(u32(~bits) >> u32(23 - 8)) & PARITY)
    return u16(u32(odd | u32(u32(bits & FRACTION) >> u32(LOW_BITS))))


@inlined
def rsqrt_value(x, c0, c12):
    """1 / sqrt(x) from the two halves of the table entry."""
    bits = f32_to_bits(x)
    magnitude = u32(bits & MAGNITUDE)
    fraction = u32(bits & FRACTION)
    y = _interpolate(c0, c12, fraction, u32(fraction & XL), MINUS, PLUS, RSQRT_BIAS, 14)
    y = select(u32(bits & BELOW_24) == IMPLICIT, TWO_24, y)  # an even power of two: exact
    half = u32(u32(magnitude + IMPLICIT) >> u32(24))  # floor(exponent / 2) + 64
    result = u32(u32(u32(u32(189) - half) << u32(23)) + y)
    result = select(magnitude == INFINITY, ZERO, result)
    special = select(magnitude < MIN_NORMAL, u32(INFINITY | u32(bits ^ magnitude)), NAN)
    ordinary = (bits >= MIN_NORMAL) & (bits <= INFINITY)
    return bits_to_f32(select(ordinary, result, special))


@inlined
def sqrt_value(x, c0, c12):
    """sqrt(x) from the two halves of the table entry."""
    bits = f32_to_bits(x)
    magnitude = u32(bits & MAGNITUDE)
    fraction = u32(bits & FRACTION)
    y = _interpolate(c0, c12, fraction, u32(fraction & XL), PLUS, MINUS, SQRT_BIAS, 15)
    half = u32(u32(magnitude + IMPLICIT) >> u32(24))
    result = u32(u32(u32(u32(62) + half) << u32(23)) + y)
    result = select(magnitude == INFINITY, INFINITY, result)
    special = select(magnitude < MIN_NORMAL, u32(bits ^ magnitude), NAN)
    ordinary = (bits >= MIN_NORMAL) & (bits <= INFINITY)
    return bits_to_f32(select(ordinary, result, special))


@inlined
def ex2_f32(x):
    """MUFU.EX2 (ex2.approx.ftz.f32, tl.exp2): 2^x, float32 -> float32."""
    fixed = ex2_fixed(x)
    entry = EX2[ex2_index(fixed)]
    return ex2_value(x, fixed, u32(entry), u32(entry >> u64(32)))


@inlined
def rcp_f32(x):
    """MUFU.RCP (rcp.approx.ftz.f32): 1 / x, float32 -> float32."""
    entry = RCP[rcp_index(x)]
    return rcp_value(x, u32(entry), u32(entry >> u64(32)))


@inlined
def rsqrt_f32(x):
    """MUFU.RSQ (rsqrt.approx.ftz.f32, tl.rsqrt): 1 / sqrt(x), float32 -> float32."""
    entry = RSQRT[root_index(x)]
    return rsqrt_value(x, u32(entry), u32(entry >> u64(32)))


@inlined
def sqrt_f32(x):
    """MUFU.SQRT (sqrt.approx.ftz.f32, tl.sqrt): sqrt(x), float32 -> float32."""
    entry = SQRT[root_index(x)]
    return sqrt_value(x, u32(entry), u32(entry >> u64(32)))

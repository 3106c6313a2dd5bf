"""Vectorised decoding: by a table, by a shift for the upper bits of binary32, by a product for IEEE's pattern."""

import numpy as np

from .._jit import njit
from .fast_lanes import shift_left
from .intrinsics import bits_to_f32, f32_to_bits, select

u32, u64 = np.uint32, np.uint64
QUIET, INFINITY = 1 << 22, 0x7F800000


@njit
def look_up(codes, table, out):
    """out = table[codes]. codes: unsigned integers; every one must be an index of the table."""
    for i in range(u64(out.size)):
        out[i] = table[u64(codes[i])]


@njit
def decode_prefix(codes, out, up):
    """out = float32 with the codes as upper bits. up: to where; a NaN (above infinity) is made quiet."""
    up, quiet = u32(up), u32(QUIET)
    for i in range(u64(out.size)):
        w = shift_left(u32(codes[i]), up)
        is_nan = np.int32(u32(w & u32(0x7FFFFFFF))) > np.int32(INFINITY)
        out[i] = bits_to_f32(u32(w | select(is_nan, quiet, u32(0))))


@njit
def decode_ieee(codes, out, up, scale, special, sign_shift):
    """out = float32 values of codes of IEEE's pattern with up to 7 exponent bits, no padding.

    The magnitude moved `up` to binary32's fraction is the value over `scale`, a power of two, its exponent offset
    being another one; subnormals too. special: the code of infinity, from which on the exponent is all ones.
    """
    up, special, sign_shift = u32(up), u32(special), u32(sign_shift)
    below = u32(shift_left(u32(1), u32(u32(31) - sign_shift)) - u32(1))
    for i in range(u64(out.size)):
        code = u32(codes[i])
        magnitude = u32(code & below)
        finite = f32_to_bits(np.float32(bits_to_f32(shift_left(magnitude, up)) * scale))
        other = u32(u32(INFINITY) | shift_left(u32(magnitude - special), up))
        other = u32(other | select(magnitude > special, u32(QUIET), u32(0)))
        sign = shift_left(u32(code & u32(~below)), sign_shift)
        out[i] = bits_to_f32(u32(select(magnitude < special, finite, other) | sign))

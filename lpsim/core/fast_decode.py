"""Vectorised decoding: by a table for 8 bits and less, by a shift for the upper bits of binary32."""

import numpy as np

from .._jit import njit
from .fast_lanes import shift_left
from .intrinsics import bits_to_f32, select

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

"""Casts from binary32 to formats that are its upper bits (bf16, tf32): add something below the cut, then cut.

Nearest-even adds half an ulp less one, and the odd bit; a directed mode adds all ones or nothing; variant A of
stochastic rounding adds the random bits themselves. The carry is the rounding. Second bodies of the plain
loops, as in `core/fast_loops`; plan: `fast_plan.Prefix`.
"""

import numpy as np

from .._jit import njit
from .fast_lanes import shift_left, shift_right
from .intrinsics import bits_to_f32, f32_to_bits, inlined, select
from .philox_lanes import refill

u32, u64, i32 = np.uint32, np.uint64, np.int32
MAGNITUDE, SIGN, INFINITY = 0x7FFFFFFF, 0x80000000, 0x7F800000


@inlined
def _finish(w, a, rounded, nan, nan_keep):
    """The rounded bits with w's sign, or the NaN. a: |w|."""
    is_nan = i32(a) > i32(INFINITY)
    return u32(select(is_nan, nan, rounded) | u32(w & select(is_nan, nan_keep, u32(SIGN))))


@inlined
def _clamped(a, cap):
    """min of two magnitudes; a NaN is large, so the addition that follows cannot reach the sign."""
    return u32(min(i32(a), i32(cap)))


@inlined
def _mode(w, plan):
    """float32 bits w rounded in any mode but stochastic; bits below the cut are left for the caller to clear."""
    drop, even, odd = u32(plan.drop), u32(plan.even), u32(plan.odd)
    positive, negative = u32(plan.positive), u32(plan.negative)
    a = u32(w & u32(MAGNITUDE))
    is_odd = u32(u32(0) - u32(shift_right(w, drop) & u32(1)))  # all ones or none
    added = u32(even ^ u32(u32(even ^ odd) & is_odd))
    added = u32(added & select(i32(w) < i32(0), negative, positive))
    return _finish(w, a, u32(_clamped(a, u32(plan.cap)) + added), u32(plan.nan), u32(plan.nan_keep))


@njit
def encode_nearest(x, out, plan):
    """out = codes (uint16, uint32) of float32 x, nearest-even, overflow to infinity: the shortest body."""
    drop, nan, nan_keep = u32(plan.drop), u32(plan.nan), u32(plan.nan_keep)
    below, pad = u32(plan.even), u32(plan.pad)
    for i in range(u64(x.size)):
        w = f32_to_bits(x[i])
        rounded = u32(w + u32(below + u32(shift_right(w, drop) & u32(1))))
        is_nan = i32(w & u32(MAGNITUDE)) > i32(INFINITY)
        code = select(is_nan, u32(nan | u32(w & nan_keep)), rounded)
        out[i] = shift_left(shift_right(code, drop), pad)


@njit
def round_nearest(x, out, plan):
    """out = float32 x rounded, as float32 values; as `encode_nearest`."""
    drop, nan, nan_keep = u32(plan.drop), u32(plan.nan), u32(plan.nan_keep)
    below, kept = u32(plan.even), shift_left(u32(0xFFFFFFFF), u32(plan.drop))
    for i in range(u64(x.size)):
        w = f32_to_bits(x[i])
        rounded = u32(w + u32(below + u32(shift_right(w, drop) & u32(1))))
        is_nan = i32(w & u32(MAGNITUDE)) > i32(INFINITY)
        out[i] = bits_to_f32(u32(select(is_nan, u32(nan | u32(w & nan_keep)), rounded) & kept))


@njit
def encode_mode(x, out, plan):
    """out = codes (uint16, uint32) of float32 x, any mode but stochastic."""
    drop, pad = u32(plan.drop), u32(plan.pad)
    for i in range(u64(x.size)):
        out[i] = shift_left(shift_right(_mode(f32_to_bits(x[i]), plan), drop), pad)


@njit
def round_mode(x, out, plan):
    """out = float32 x rounded, as float32 values, any mode but stochastic."""
    kept = shift_left(u32(0xFFFFFFFF), u32(plan.drop))
    for i in range(u64(x.size)):
        out[i] = bits_to_f32(u32(_mode(f32_to_bits(x[i]), plan) & kept))


@inlined
def _stochastic(w, word, plan, left, right, unused):
    """float32 bits w after the random word is added below the cut, moved to the weight of the discarded bits.

    floor(nu 2^bits) + R carries exactly if the discarded bits plus R, moved to their weight, do.
    """
    a = u32(w & u32(MAGNITUDE))
    added = shift_right(shift_left(shift_right(u32(word), unused), left), right)
    return _finish(w, a, u32(_clamped(a, u32(plan.cap)) + added), u32(plan.nan), u32(plan.nan_keep))


@njit
def encode_stochastic(x, words, out, plan, bits, word_bits):
    """out = codes of float32 x, stochastic variant A; words: uint16 or uint32, R is the top `bits` of `word_bits`."""
    left, right, unused = u32(max(plan.drop - bits, 0)), u32(max(bits - plan.drop, 0)), u32(word_bits - bits)
    drop, pad = u32(plan.drop), u32(plan.pad)
    for i in range(u64(x.size)):
        bits_of = _stochastic(f32_to_bits(x[i]), words[i], plan, left, right, unused)
        out[i] = shift_left(shift_right(bits_of, drop), pad)


@njit
def encode_keyed(x, source, out, plan, bits):
    """`encode_stochastic` with the words of a key; source: philox_lanes.Words."""
    for first in range(0, x.size, source.chunk):
        stop = min(first + source.chunk, x.size)
        words = refill(source, first, stop - first)
        encode_stochastic(x[first:stop], words, out[first:stop], plan, bits, source.bits)


@njit
def round_stochastic(x, words, out, plan, bits, word_bits):
    """out = float32 x rounded as `encode_stochastic` does, as float32 values."""
    left, right, unused = u32(max(plan.drop - bits, 0)), u32(max(bits - plan.drop, 0)), u32(word_bits - bits)
    kept = shift_left(u32(0xFFFFFFFF), u32(plan.drop))
    for i in range(u64(x.size)):
        out[i] = bits_to_f32(u32(_stochastic(f32_to_bits(x[i]), words[i], plan, left, right, unused) & kept))


@njit
def round_keyed(x, source, out, plan, bits):
    """`round_stochastic` with the words of a key; source: philox_lanes.Words."""
    for first in range(0, x.size, source.chunk):
        stop = min(first + source.chunk, x.size)
        words = refill(source, first, stop - first)
        round_stochastic(x[first:stop], words, out[first:stop], plan, bits, source.bits)

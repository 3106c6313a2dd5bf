"""Casts to formats that are the upper bits of binary32 (bf16, tf32): a shift, after adding what rounds.

Nearest-even adds half an ulp less one, and the odd bit; variant A of stochastic rounding adds the random bits
themselves. The carry is the rounding. Second bodies of the plain loops, as in `core/fast_loops`.
"""

import numpy as np

from .._jit import njit
from .fast_loops import INF32, MAGNITUDE32, SIGN32
from .intrinsics import bits_to_f32, f32_to_bits, inlined, select

u32, u64 = np.uint32, np.uint64


@inlined
def _round(w, added, drop, limit, nan, nan_sign):
    """Bits of binary32 w rounded, still as 32 bits. added: what is added below the cut. All uint32."""
    a = u32(w & u32(MAGNITUDE32))
    is_nan = a > u32(INF32)
    kept = min(u32(u32(a + added) >> drop), limit)
    kept = select(is_nan, nan, kept)
    sign = u32(w & u32(SIGN32))
    sign = select(is_nan, u32(sign & nan_sign), sign)
    return u32(u32(kept << drop) | sign)


@njit
def encode(x, out, plan):
    """out = codes (uint16, uint32) of float32 x, nearest-even."""
    drop, limit, nan, nan_sign = u32(plan.drop), u32(plan.limit), u32(plan.nan), u32(0 - plan.nan_sign)
    below, one, down = u32((1 << (plan.drop - 1)) - 1), u32(1), u32(plan.drop - plan.pad)
    for i in range(u64(x.size)):
        w = f32_to_bits(x[i])
        added = u32(below + u32(u32(w >> drop) & one))
        out[i] = u32(_round(w, added, drop, limit, nan, nan_sign) >> down)


@njit
def round_values(x, out, plan):
    """out = float32 x rounded, as float32 values, nearest-even."""
    drop, limit, nan, nan_sign = u32(plan.drop), u32(plan.limit), u32(plan.nan), u32(0 - plan.nan_sign)
    below, one = u32((1 << (plan.drop - 1)) - 1), u32(1)
    for i in range(u64(x.size)):
        w = f32_to_bits(x[i])
        added = u32(below + u32(u32(w >> drop) & one))
        out[i] = bits_to_f32(_round(w, added, drop, limit, nan, nan_sign))


@njit
def encode_stochastic(x, words, out, plan, bits, word_bits):
    """out = codes of float32 x, stochastic variant A; words: uint16 or uint32, R is the top `bits` of `word_bits`.

    floor(nu 2^bits) + R carries exactly if the discarded bits plus R, moved to their weight, do.
    """
    drop, limit, nan, nan_sign = u32(plan.drop), u32(plan.limit), u32(plan.nan), u32(0 - plan.nan_sign)
    left, right, down = u32(max(plan.drop - bits, 0)), u32(max(bits - plan.drop, 0)), u32(plan.drop - plan.pad)
    unused = u32(word_bits - bits)
    for i in range(u64(x.size)):
        added = u32(u32(u32(u32(words[i]) >> unused) << left) >> right)
        out[i] = u32(_round(f32_to_bits(x[i]), added, drop, limit, nan, nan_sign) >> down)

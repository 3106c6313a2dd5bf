"""Vectorised directed and stochastic roundings, any format: the same scheme in binary64, from the floor up.

The nearest grid point by the host's adder (see `core/fast_loops`), one less where that lies above |x|: then the
floor and the rest, 0 <= rest < ulp, are exact, and each mode is one comparison. plan: fast_plan.grid(..., 53).
"""

import numpy as np

from .._jit import njit
from ..policies import RNA, RTN, RTO, RTP, SR_B, SR_C
from .fast_lanes import shift_left, shift_right
from .fast_loops import INF64, MAGNITUDE64
from .intrinsics import bits_to_f64, f64_to_bits, inlined, select
from .philox_lanes import refill

u64, i64, f64 = np.uint64, np.int64, np.float64


@inlined
def _cut(a, cap, plan):
    """(floor's code, rest in ulps) of the magnitude a: int64 and float64, both exact."""
    lowest, drop = bits_to_f64(i64(plan.lowest)), i64(plan.drop)
    b = select(a < cap, a, cap)
    e = f64_to_bits(select(b > lowest, b, lowest)) & i64(INF64)
    m = bits_to_f64(e + (drop << i64(52)))
    s = b + m
    points = f64_to_bits(s) - f64_to_bits(m)
    below = s - m
    rest = b - below
    over = rest < 0.0
    code = points - select(over, i64(1), i64(0)) + shift_right(e - i64(plan.lowest), drop)
    ulp = bits_to_f64(e - ((i64(52) - drop) << i64(52)))
    rest = select(over, rest + ulp, rest)
    return code, rest * bits_to_f64((i64(2046) << i64(52)) - f64_to_bits(ulp))


@inlined
def _signed(w, code, a, infinity_from, nan_from, plan):
    """The container code of a rounded magnitude: infinity, NaN and the sign put in."""
    keep = select(code == i64(0), i64(plan.zero_sign) << i64(63), i64(-1) << i64(63))
    code = select(a > infinity_from, i64(plan.infinity), code)
    finite = a <= nan_from
    code = select(finite, code, i64(plan.nan))
    keep = select(finite, keep, i64(plan.nan_sign) << i64(63))
    return shift_left(code | shift_right(w & keep, i64(plan.sign_shift)), i64(plan.pad))


@njit
def encode_directed(x, out, plan):
    """out = codes (uint8, uint16 or uint32) of float32 or float64 x in the mode rna, rtz, rtp, rtn or rto."""
    p, n, mode = plan.positive, plan.negative, plan.rounding
    cap_p, cap_n = bits_to_f64(i64(p.cap)), bits_to_f64(i64(n.cap))
    infinity_p, infinity_n = bits_to_f64(i64(p.infinity_from)), bits_to_f64(i64(n.infinity_from))
    nan_p, nan_n = bits_to_f64(i64(p.nan_from)), bits_to_f64(i64(n.nan_from))
    never, below_half = f64(1.0), f64(0.49999999999999994)  # grows if the rest, in ulps, is above this
    up_p = select(mode == RTP, f64(0.0), select(mode == RNA, below_half, never))
    up_n = select(mode == RTN, f64(0.0), select(mode == RNA, below_half, never))
    to_odd = mode == RTO
    for i in range(u64(out.size)):
        w = f64_to_bits(f64(x[i]))
        a = bits_to_f64(w & i64(MAGNITUDE64))
        minus = w < i64(0)
        code, rest = _cut(a, select(minus, cap_n, cap_p), plan)
        up = rest > select(minus, up_n, up_p)
        up |= to_odd & (rest > 0.0) & ((code & i64(1)) == i64(0))
        code += select(up, i64(1), i64(0))
        infinity_from, nan_from = select(minus, infinity_n, infinity_p), select(minus, nan_n, nan_p)
        out[i] = u64(_signed(w, code, a, infinity_from, nan_from, plan))


@njit
def encode_stochastic(x, words, out, plan, bits, word_bits):
    """out = codes of float32 or float64 x; words: integers (n,), R is the top `bits` of their `word_bits`.

    floor(nu 2^n) + R >= 2^n if and only if nu >= 1 - R / 2^n: no floor is needed, and the border is exact.
    B likewise with 2 R + 1 and 2^(n + 1); C rounds nu to n bits first.
    """
    side, mode, n = plan.positive, plan.rounding, bits
    cap, infinity_from = bits_to_f64(i64(side.cap)), bits_to_f64(i64(side.infinity_from))
    nan_from, top, overflow = bits_to_f64(i64(side.nan_from)), i64(plan.top), bits_to_f64(i64(plan.overflow))
    odd, unused = u64(1 if mode == SR_B else 0), u64(word_bits - n)
    unit, magic = bits_to_f64(i64(1022 - n) << i64(52)), f64(1 << 52)
    step = bits_to_f64(i64(1023 + 52 - n) << i64(52))  # adding it rounds to n bits below the point
    to_steps = mode == SR_C
    for i in range(u64(out.size)):
        w = f64_to_bits(f64(x[i]))
        a = bits_to_f64(w & i64(MAGNITUDE64))
        code, rest = _cut(a, cap, plan)
        rest = select(to_steps, (rest + step) - step, rest)
        word = shift_left(shift_right(u64(words[i]), unused), u64(1)) | odd
        noise = (bits_to_f64(word | u64(0x433 << 52)) - magic) * unit
        code += select(rest >= 1.0 - noise, i64(1), i64(0))
        a = select((code > top) & (a == a), overflow, a)
        out[i] = u64(_signed(w, code, a, infinity_from, nan_from, plan))


@njit
def encode_keyed(x, source, out, plan, bits):
    """`encode_stochastic` with the words of a key; source: philox_lanes.Words."""
    for first in range(0, x.size, source.chunk):
        stop = min(first + source.chunk, x.size)
        words = refill(source, first, stop - first)
        encode_stochastic(x[first:stop], words, out[first:stop], plan, bits, source.bits)

"""Kernels that round binary32 to narrow formats in 32-bit integers: a second body of the general kernel, for speed.

A magnitude is cut where the target's grid ends, at least at its lowest binade, and one is added to the code where the
mode says so: adding one to a code is one unit in the last place, carries included. What zero, NaN, infinity and
overflow become is looked up in a row, which `narrow_plan` fills by asking the core.
"""

from functools import lru_cache
from typing import NamedTuple

import triton
import triton.language as tl

from lpsim import formats
from lpsim.core.codec import FINITE, FP32, INFINITE, NAN, unpack
from lpsim.core.rounding import round_to
from lpsim.formats import Format
from lpsim.policies import NVIDIA, PROPAGATE, RNA, RNE, RTN, RTO, RTP, SATFINITE, SR_B, Policy

from .philox_words import halves

MODE_RNE, MODE_RNA, MODE_RTP, MODE_RTN, MODE_RTO, MODE_B = (
    tl.constexpr(mode) for mode in (RNE, RNA, RTP, RTN, RTO, SR_B)
)
FRACTION, INFINITY = tl.constexpr((1 << 23) - 1), tl.constexpr(0x7F800000)


class Narrow(NamedTuple):
    """One cast from binary32. Answers are codes, or float32 bits as int32; those for special values come in pairs,
    positive and negative."""

    as_values: int  #: 1 if the answers are values
    lowest: int  #: exponent field, in binary32, of the target's lowest binade
    drop: int  #: bits between the significands
    trailing: int  #: of the target's significand
    top: int  #: magnitude of the largest finite code
    sign: int  #: sign bit of an answer
    zero_sign: int  #: 1 if there is a -0
    overflow: int  #: what finite values above `top` become
    overflow_negative: int
    infinity: int
    infinity_negative: int
    nan: int
    nan_negative: int
    rounding: int
    noise_bits: int


@lru_cache(maxsize=512)
def narrow_plan(fmt: Format, policy: Policy, values: bool) -> Narrow | None:
    """The row for a target of up to 16 bits; None where only the general kernel answers: payloads, flushing, unsigned
    formats, exponents as wide as binary32's, formats without an answer for NaN, and most kinds of noise."""
    answers = formats.has_nan(fmt) or (policy.nan == NVIDIA and policy.overflow == SATFINITE)
    lowest = formats.min_exp(fmt) + fmt.precision - 1 + 127
    highest = (formats.max_finite(fmt) >> (fmt.precision - 1)) - fmt.exponent_bias
    shaped = fmt.signed and fmt.zero and fmt.pad == 0 and fmt.bits <= 16 and fmt.precision >= 2
    normal = lowest >= fmt.precision and highest < 126
    noisy = policy.rounding > SR_B or policy.noise_bits > 16
    flushes = policy.flush_in or policy.flush_out
    if not (shaped and normal and answers) or policy.nan == PROPAGATE or flushes or noisy:
        return None
    return Narrow(
        int(values),
        lowest,
        24 - fmt.precision,
        fmt.precision - 1,
        formats.max_finite(fmt),
        -1 << 31 if values else 1 << formats.magnitude_bits(fmt),
        fmt.negative_zero,
        *_both(FINITE, 127, 1, fmt, policy, values),
        *_both(INFINITE, 0, 0, fmt, policy, values),
        *_both(NAN, 0, 0, fmt, policy, values),
        policy.rounding,
        policy.noise_bits,
    )


def _both(kind: int, exp: int, sig: int, fmt: Format, policy: Policy, values: bool) -> tuple[int, int]:
    """The answers of `round_to` for a value of either sign."""
    found = []
    for sign in (0, 1):
        answer = int(round_to(kind, sign, exp, sig, fmt, policy, 0).code)
        if values:
            x = unpack(answer, fmt)
            answer = int(round_to(x.kind, x.sign, x.exp, x.sig, FP32, Policy(nan=PROPAGATE), 0).code)
            answer -= answer >> 31 << 32
        found.append(answer)
    return found[0], found[1]


@triton.jit
def grows(kept, rest, shift, negative, half_word, plan: tl.constexpr):
    """1 where the magnitude grows. rest: the bits below the cut, `shift` of them, of which only 24 may be set.
    half_word: 16 random bits, int32, or anything."""
    mode: tl.constexpr = plan.rounding
    if plan.noise_bits > 0:
        bits: tl.constexpr = plan.noise_bits + (1 if mode == MODE_B else 0)
        word = half_word >> (16 - plan.noise_bits)
        word = 2 * word + 1 if mode == MODE_B else word
        scaled = (rest >> tl.minimum(tl.maximum(shift - bits, 0), 31)) << tl.maximum(bits - shift, 0)
        up = ((scaled + word) >> bits) > 0
    elif (mode == MODE_RNE) | (mode == MODE_RNA):
        half = 1 << tl.minimum(shift - 1, 30)
        up = rest >= half if mode == MODE_RNA else rest + (kept & 1) > half
    elif (mode == MODE_RTP) | (mode == MODE_RTN):
        up = (rest > 0) & (negative == (mode == MODE_RTN))
    elif mode == MODE_RTO:
        up = (rest > 0) & ((kept & 1) == 0)
    else:
        up = rest < 0
    return up.to(tl.int32)


@triton.jit
def narrow(w, half_word, plan: tl.constexpr):
    """The answers, int32, for float32 bits w (int32)."""
    negative = w < 0
    a = w & 0x7FFFFFFF
    field = a >> 23
    sig = (a & FRACTION) | tl.where(field > 0, 1 << 23, 0)
    binade = tl.maximum(field, plan.lowest)
    shift = binade - tl.maximum(field, 1) + plan.drop
    cut = tl.minimum(shift, 31)
    kept = sig >> cut
    rest = sig - (kept << cut)
    magnitude = ((binade - plan.lowest) << plan.trailing) + kept
    magnitude += grows(magnitude, rest, shift, negative, half_word, plan)
    sign = tl.where(negative, plan.sign, 0).to(tl.int32)
    if plan.zero_sign == 0:
        sign = tl.where(magnitude == 0, 0, sign)
    answer = (value(magnitude, plan) if plan.as_values else magnitude) | sign
    overflow = tl.where(negative, plan.overflow_negative, plan.overflow).to(tl.int32)
    infinity = tl.where(negative, plan.infinity_negative, plan.infinity).to(tl.int32)
    nan = tl.where(negative, plan.nan_negative, plan.nan).to(tl.int32)
    answer = tl.where(magnitude > plan.top, overflow, answer)
    return tl.where(a > INFINITY, nan, tl.where(a == INFINITY, infinity, answer))


@triton.jit
def value(magnitude, plan: tl.constexpr):
    """float32 bits of a finite magnitude: exact."""
    unit = tl.full(magnitude.shape, (plan.lowest - plan.trailing) << 23, tl.int32).to(tl.float32, bitcast=True)
    below = (magnitude.to(tl.float32) * unit).to(tl.int32, bitcast=True)
    normal = (magnitude << plan.drop) + ((plan.lowest - 1) << 23)
    return tl.where(magnitude < (1 << plan.trailing), below, normal)


@triton.jit
def narrow_kernel(x, out, n, plan: tl.constexpr, BLOCK: tl.constexpr):
    """out = answers for float32 bits x, any mode that needs no words."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    w = tl.load(x + i, i < n, other=0)
    tl.store(out + i, narrow(w, w, plan).to(out.dtype.element_ty), i < n)


@triton.jit
def keyed_narrow_kernel(
    x, out, n, first_block, seed, stream, step, plan: tl.constexpr, SKIP: tl.constexpr, GROUPS: tl.constexpr
):  # fmt: skip
    """out = answers for float32 bits x, stochastic: one Philox block for 8 elements. Element 0 is element SKIP of
    first_block."""
    group = tl.program_id(0).to(tl.int64) * GROUPS
    word = tl.reshape(halves(seed, first_block + group + tl.arange(0, GROUPS), stream, step), [GROUPS * 8])
    i = group * 8 + tl.arange(0, GROUPS * 8)
    inside = i < n
    if SKIP > 0:
        i = i - SKIP
        inside = (i >= 0) & (i < n)
    w = tl.load(x + i, inside, other=0)
    tl.store(out + i, narrow(w, word.to(tl.int32), plan).to(out.dtype.element_ty), inside)

"""`round_to`: the only function in lpsim that rounds to a format."""

from typing import NamedTuple

from .._jit import njit
from ..policies import IEEE, NVIDIA, ONES, PROPAGATE, RNA, RNE, RTN, RTO, RTP, RTZ, SATFINITE, SR_A, SR_B, SR_C
from .bits import bit_length, clamp, mask, shift_right_sticky, where
from .codec import FINITE, INFINITE, NAN, infinity_code, magnitude_bits, max_finite, min_exp, top_magnitude


class Rounded(NamedTuple):
    """One rounding, with everything that decided it. A caller that takes only `.code` pays for nothing else."""

    code: int  #: the result, container form
    kind: int  #: of the value before rounding
    sign: int
    exp: int  #: weight of the last kept bit, a power of two
    drop: int  #: how many bits were discarded
    kept: int  #: the significand before the decision
    guard: int  #: first discarded bit
    sticky: int  #: 1 if any later discarded bit is set
    up: int  #: 1 if the magnitude grew by one unit of the last kept bit
    overflow: int  #: 1 if the rounded magnitude passed the largest finite value
    lost: int  #: 1 if the answer is NaN and the format has none: the code means nothing and must be refused


@njit
def _noise_carries(rest, drop, mode, noise_bits, word):
    """1 if the discarded fraction nu = rest / 2^drop and the random word carry. Source: P3109, RoundAway."""
    n = noise_bits + where(mode == SR_B, 1, 0)
    shift = drop - n
    scaled = where(shift >= 0, rest >> clamp(shift, 0, 62), rest << clamp(0 - shift, 0, 62))
    below = where(shift > 0, rest & mask(clamp(shift, 0, 62)), 0)
    half = where(shift > 0, 1 << clamp(shift - 1, 0, 62), 1)
    to_even = where((below > half) | ((below == half) & ((scaled & 1) > 0)), 1, 0)
    noise = where(mode == SR_B, 2 * word + 1, word)
    return where(scaled + where(mode == SR_C, to_even, 0) + noise >= (1 << n), 1, 0)


@njit
def nan_code(sign, payload, fmt, nan):
    """Container bits of the NaN that the policy asks for; the largest finite value where a format has none."""
    top = top_magnitude(fmt)
    trailing = fmt.precision - 1
    signed = sign << magnitude_bits(fmt)
    quiet = (top - fmt.nans + ((fmt.nans + 1) >> 1)) | signed
    carries_payload = (nan == PROPAGATE) & (fmt.nans == mask(trailing))
    code = where(carries_payload, quiet | (payload >> (52 - trailing)), quiet)
    code = where(nan == NVIDIA, top, where(nan == ONES, top | signed, code))
    only_nan = where(fmt.signed > fmt.negative_zero, 1 << magnitude_bits(fmt), max_finite(fmt))
    return where(fmt.nans > 0, code, only_nan)


@njit
def round_to(kind, sign, exp, sig, fmt, policy, word):
    """The code of fmt for (-1)^sign * sig * 2^exp, rounded once.

    NaN                         -> the policy's NaN
    infinity                    -> infinity; NaN if there is none; the largest finite value under satfinite
    negative, fmt unsigned      -> NaN; zero under saturate and satfinite; -0 and what rounds to it -> 0
    zero, fmt without zero      -> NaN
    |rounded| > largest finite  -> overflow policy
    below a grid without zero   -> its lowest code
    otherwise                   -> the neighbour that the rounding mode picks

    0 <= sig < 2^62; its last bit may mean "or a little more" if it lies 34 bits or more below the cut.
    word: the random integer R, used by the stochastic modes only. Result: Rounded.
    Source: IEEE 754-2019 4.3 and 7.4; P3109 RoundToPrecision, Saturate, Encode.
    """
    mode = policy.rounding
    trailing = fmt.precision - 1
    lowest = min_exp(fmt)
    payload = where(kind == NAN, sig, 0)

    # 1. Cut: the last kept bit has weight 2^cut, at least that of the lowest binade.
    cut = bit_length(sig) + exp - fmt.precision
    cut = where((cut < lowest) | (sig == 0), lowest, cut)
    beyond = clamp(cut - exp - 62, 0, 1 << 30)  # further right than a shift can go: only stickiness is left
    sig = shift_right_sticky(sig, beyond)
    drop = where(sig == 0, 0, cut - exp - beyond)
    right = clamp(drop, 0, 62)
    kept = where(drop >= 0, sig >> right, sig << clamp(0 - drop, 0, 62))
    rest = sig & mask(right)
    half = 1 << clamp(right - 1, 0, 62)
    guard = where((right > 0) & (rest >= half), 1, 0)
    sticky = where((right > 1) & ((rest & (half - 1)) > 0), 1, 0)

    # 2. The magnitude of the truncated value as a code. Fields and fraction are adjacent, so adding one
    #    to the code is one unit in the last place, carries into the exponent included.
    base = where(kept == 0, 0, ((cut - lowest) << trailing) + kept - ((1 - fmt.subnormals) << trailing))
    odd = base & 1

    # 3. Decide. One line per mode.
    inexact = guard | sticky
    up = where(mode == RNE, guard & (sticky | odd), 0)
    up = where(mode == RNA, guard, up)
    up = where(mode == RTP, inexact & (1 - sign), up)
    up = where(mode == RTN, inexact & sign, up)
    up = where(mode == RTO, inexact & (1 - odd), up)
    up = where(mode >= SR_A, _noise_carries(rest, right, mode, policy.noise_bits, word), up)
    magnitude = base + where((kept == 0) & (fmt.zero == 0), 0, up)

    # 4. Overflow. Modes that point toward zero stop at the largest finite value.
    largest = max_finite(fmt)
    overflow = where((magnitude > largest) & (kind == FINITE), 1, 0)
    inward = (mode == RTZ) | (mode == RTO) | ((mode == RTP) & (sign > 0)) | ((mode == RTN) & (sign == 0))
    clamps = where(kind == INFINITE, policy.overflow == SATFINITE, (policy.overflow != IEEE) | inward)
    too_big = (overflow > 0) | (kind == INFINITE)
    tiny = (policy.flush_out > 0) & (magnitude < (1 << trailing)) & (fmt.subnormals > 0)
    magnitude = where(tiny, 0, magnitude)

    # 5. Sign, and the answers that this format does without.
    signed = sign << magnitude_bits(fmt)
    code = where(magnitude == 0, signed * fmt.negative_zero, magnitude | signed)
    code = where(too_big, where(clamps, largest | signed, infinity_code(sign, fmt)), code)
    negative = (sign > fmt.signed) & ((magnitude > 0) | (fmt.zero == 0) | too_big)
    code = where(negative, 0, code)
    is_nan = (kind == NAN) | (too_big & (clamps == 0) & (fmt.infinity == 0))
    answered = (policy.overflow == SATFINITE) | ((policy.overflow != IEEE) & (kind == FINITE))
    is_nan = is_nan | (negative & ((answered == 0) | (fmt.zero == 0)))
    is_nan = is_nan | ((sig == 0) & (kind == FINITE) & (fmt.zero == 0))
    nan = nan_code(sign & fmt.signed, payload, fmt, policy.nan)
    code = where(is_nan, nan, code)
    nan_clamps = (policy.nan == NVIDIA) & (kind == NAN)
    has_nan = (fmt.nans > 0) | (fmt.signed > fmt.negative_zero)
    lost = where(is_nan & (has_nan == 0) & (nan_clamps == 0), 1, 0)
    return Rounded(code << fmt.pad, kind, sign, cut, drop, kept, guard, sticky, up, overflow, lost)

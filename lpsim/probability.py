"""What a stochastic rounding does on average: exact probabilities, exact biases, and the widths that hardware has.

With nu the discarded fraction of an ulp, a random integer of n bits rounds away from zero with probability
  A: floor(nu 2^n) / 2^n                 on average 2^-(n+1) ulp too low, at worst 2^-n
  B: floor(nu 2^n + 1/2) / 2^n           no bias on average, at worst 2^-(n+1)
  C: RNE(nu 2^n) / 2^n                   no bias on average, at worst 2^-(n+1)
B and C differ at the ties of nu 2^n only. Source: IEEE P3109 interim report, StochasticA/B/C.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from . import border, exact
from ._jit import njit
from .arrays import encode
from .core.codec import FINITE, unpack_f64
from .core.rounding import round_to
from .errors import NotModelled, choose
from .policies import VARIANTS, Policy, Stochastic, stochastic
from .target import code_format


class Hardware(NamedTuple):
    """How many random bits an instruction uses for one element, and where that is written."""

    bits: int
    fmt: str
    source: str
    evidence: str = "published"


#: instruction -> row. All are variant A: round away iff discarded bits plus random bits carry.
HARDWARE: dict[str, Hardware] = {
    "cvt.rs.bf16x2": Hardware(16, "bf16", "PTX ISA 8.7, cvt.rs (sm_100a): 16 random bits beside 16 discarded ones"),
    "cvt.rs.f16x2": Hardware(13, "fp16", "PTX ISA 8.7, cvt.rs (sm_100a): 13 random bits beside 13 discarded ones"),
    "cvt.rs.e2m1x4": Hardware(8, "e2m1", "PTX ISA 8.7, cvt.rs (sm_100a): 8 random bits; taken as the top ones"),
    "cvt_sr_fp8": Hardware(20, "e4m3fnuz", "AMD CVT_SR_FP8: 20 random bits (arXiv 2603.06060)"),
    "cvt_sr_bf8": Hardware(21, "e5m2fnuz", "AMD CVT_SR_BF8: 21 random bits (arXiv 2603.06060)"),
}
NOT_ALIGNED = ("cvt.rs.e4m3x4", "cvt.rs.e5m2x4", "cvt.rs.e2m3x4", "cvt.rs.e3m2x4")


def hardware_noise(instruction: str, *, seed, stream, step=0, offset=0) -> Stochastic:
    """The rounding= argument with an instruction's number of random bits, drawn from lpsim's keyed stream.

    instruction: a name of `HARDWARE`. The random words are lpsim's (they are an operand of the instruction).
    NotModelled for the instructions that share 16 bits between two elements of 8 or 6 bits: how those bits stand
    beside the 20 and more discarded ones is not published. ValueError for other names.
    """
    if instruction in NOT_ALIGNED:
        raise NotModelled(f"{instruction}: how its 16 random bits line up with the discarded bits is not published.")
    row = choose("instruction", instruction, HARDWARE)
    return stochastic(bits=row.bits, seed=seed, stream=stream, step=step, offset=offset)


@njit
def _away(kind, sign, exp, sig, fmt, policy):
    """How many of the 2^bits random integers round away from zero: the core's own decision, found by bisection.

    A larger integer rounds away whenever a smaller one does, so the first one that does tells.
    """
    low, high = 0, 1 << policy.noise_bits
    while low < high:
        middle = (low + high) >> 1
        if round_to(kind, sign, exp, sig, fmt, policy, middle).up > 0:
            high = middle
        else:
            low = middle + 1
    return (1 << policy.noise_bits) - low


@njit
def _count_floats(bits, out, fmt, policy):
    for i in range(out.size):
        x = unpack_f64(bits[i])
        out[i] = _away(x.kind, x.sign, x.exp, x.sig, fmt, policy) if x.kind == FINITE else 0


@njit
def _count_parts(sign, exp, sig, out, fmt, policy):
    for i in range(out.size):
        out[i] = _away(FINITE, sign[i], exp[i], sig[i], fmt, policy)


def stochastic_probability(x, fmt, bits: int, variant: str = "A"):
    """The probability with which x rounds away from zero, exact.

    x: floats, ints or Fractions as in lp.encode. Result: a Fraction for a scalar, else float64 of x's shape (a
    multiple of 2^-bits, so exact). 0 for what is exact, infinite or NaN; an overflow is a step like any other.
    Raises as lp.stochastic and lp.encode do.
    """
    row = code_format(fmt)
    noise = stochastic(bits=bits, variant=variant, seed=0, stream=0)
    policy = Policy(rounding=VARIANTS[variant], noise_bits=noise.bits)
    numbers = border.exact_numbers(x, "x")
    array = border.values(x, "x").array if numbers is None else numbers.array
    count = np.empty(array.size, np.int64)
    if numbers is None:
        wide = np.ascontiguousarray(array, np.float64).reshape(-1)
        _count_floats(wide.view(np.int64), count, row, policy)
    else:
        _count_parts(*exact.parts(array.reshape(-1)), count, row, policy)
    if array.ndim == 0:
        return Fraction(int(count[0]), 1 << bits)
    return (count / float(1 << bits)).reshape(array.shape)


def stochastic_bias(bits: int, variant: str = "A", nu: Fraction | None = None) -> Fraction:
    """The bias of n = bits random bits, in ulp away from zero, exact: mean rounded magnitude minus exact magnitude.

    nu: the discarded fraction of an ulp, 0 <= nu < 1; None is the mean over all nu, uniformly.
    Raises as lp.stochastic does, and ValueError for another nu.
    """
    stochastic(bits=bits, variant=variant, seed=0, stream=0)
    if nu is None:
        return Fraction(-1, 1 << (bits + 1)) if variant == "A" else Fraction(0)
    nu = Fraction(nu)
    if not 0 <= nu < 1:
        raise ValueError(f"nu={nu} is not a fraction of an ulp: 0 <= nu < 1.")
    scaled = nu * (1 << bits)
    count = {"A": int(scaled), "B": int(scaled + Fraction(1, 2)), "C": round(scaled)}[variant]
    return Fraction(count, 1 << bits) - nu


def mean_after(x, fmt, bits: int, variant: str = "A") -> Fraction:
    """The exact mean of lp.round(x, fmt) over all random integers, for one finite x whose neighbours are finite."""
    low, high = (_neighbour(x, fmt, mode) for mode in ("rtz", "away"))
    share = stochastic_probability(x, fmt, bits, variant)
    assert isinstance(share, Fraction)
    return low + (high - low) * share


def _neighbour(x, fmt, mode: str) -> Fraction:
    from .rational import decode_exact

    rounding = ("rtn" if Fraction(x) < 0 else "rtp") if mode == "away" else mode
    found = decode_exact(encode(x, fmt, rounding=rounding), fmt)
    if not isinstance(found, Fraction):
        raise ValueError(f"x={x!r} lies beside infinity or NaN in {fmt}: its mean is not finite.")
    return found


__all__ = ["HARDWARE", "Hardware", "hardware_noise", "mean_after", "stochastic_bias", "stochastic_probability"]

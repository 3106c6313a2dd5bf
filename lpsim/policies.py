"""Policies by name: how to round, what overflow and NaN become, which subnormals are flushed.

A `Policy` is a row of integers like a `Format`; the names live in the tables here.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict

import numpy as np

from .errors import choose, unknown

RNE, RNA, RTZ, RTP, RTN, RTO, SR_A, SR_B, SR_C = range(9)

ROUNDINGS = {
    "rne": RNE,  # to nearest, ties to the even code
    "rna": RNA,  # to nearest, ties away from zero
    "rtz": RTZ,  # toward zero
    "rtp": RTP,  # toward +infinity
    "rtn": RTN,  # toward -infinity
    "rto": RTO,  # to odd: inexact results get an odd code; never rounds up to infinity
}
VARIANTS = {"A": SR_A, "B": SR_B, "C": SR_C}

IEEE, SATURATE, SATFINITE = range(3)
OVERFLOWS = {
    "ieee": IEEE,  # to infinity, or NaN where there is none; directed modes stop at the largest finite value
    "saturate": SATURATE,  # finite values clamp, infinity stays (or becomes NaN where there is none)
    "satfinite": SATFINITE,  # infinity clamps too, as NVIDIA's cvt.satfinite
}

CANONICAL, PROPAGATE, NVIDIA, ONES = range(4)
NANS = {
    "canonical": CANONICAL,  # quiet, sign kept, payload dropped
    "propagate": PROPAGATE,  # quiet, sign and upper payload bits kept
    "nvidia": NVIDIA,  # all ones below a clear sign: 0x7FFF, 0x7F
    "ones": ONES,  # all ones below the sign, which is kept: 0x7F, 0xFF (torch's float8)
}

SUBNORMALS = {
    "keep": (0, 0),
    "flush_in": (1, 0),  # subnormal operands count as zero of their sign
    "flush_out": (0, 1),  # subnormal results become zero of their sign
    "flush": (1, 1),
}


class Policy(NamedTuple):
    """Everything that decides a result besides the operands and the format."""

    rounding: int = RNE
    overflow: int = IEEE
    nan: int = CANONICAL
    flush_in: int = 0
    flush_out: int = 0
    noise_bits: int = 0  #: random bits per element; 0 unless the rounding is stochastic


@dataclass(frozen=True)
class Stochastic:
    """Stochastic rounding with `bits` random bits an element; made by `lp.stochastic`."""

    bits: int
    seed: int = 0  #: seed and stream mean nothing if words are given
    stream: int = 0
    step: int = 0
    offset: int = 0
    variant: str = "A"
    words: np.ndarray | None = field(default=None, compare=False)


def stochastic(*, bits: int, seed=None, stream=None, step=0, offset=0, variant="A", words=None) -> Stochastic:
    """Round away from zero with the probability that the discarded part asks for.

    bits: 1 to 32 random bits an element. With nu the discarded fraction of an ulp and R the random
    integer, 0 <= R < 2^bits, the magnitude grows iff
      A: floor(nu * 2^bits) + R >= 2^bits            what hardware does; biased by -2^-(bits+1) ulp
      B: floor(nu * 2^(bits+1)) + 2R + 1 >= 2^(bits+1)   unbiased
      C: RNE(nu * 2^bits) + R >= 2^bits              unbiased
    Either seed (64 bits) and stream (both required: equal noise for two tensors is a fault), with step
    and offset: R comes from Philox4x32-10 keyed by them and the element's index in C order plus offset.
    Or words: an integer array of R, one per element.
    Raises TypeError and ValueError on anything else. Source: IEEE P3109 interim report, StochasticA/B/C.
    """
    if type(bits) is not int or not 1 <= bits <= 32:
        raise ValueError(f"bits={bits!r}: stochastic rounding takes an int from 1 to 32.")
    if not isinstance(variant, str) or variant not in VARIANTS:
        raise unknown("variant", variant, VARIANTS)
    if words is not None:
        if seed is not None or stream is not None or step or offset:
            raise ValueError("Give either words= or seed= and stream=, not both.")
        return Stochastic(bits, variant=variant, words=_checked_words(words, bits))
    if seed is None or stream is None:
        raise ValueError("stochastic rounding needs seed= and stream=: equal noise for two tensors is a fault.")
    ranges = {"seed": (seed, 64), "stream": (stream, 32), "step": (step, 32), "offset": (offset, 62)}
    for name, (value, width) in ranges.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError(f"{name}={value!r} must be an int.")
        low = -(1 << 63) if name == "seed" else 0
        if not low <= int(value) < (1 << width):
            raise ValueError(f"{name}={value!r} must be at least {low} and below 2^{width}.")
    return Stochastic(bits, int(seed) % (1 << 64), int(stream), int(step), int(offset), variant)


def _checked_words(words, bits: int) -> np.ndarray:
    array = np.asarray(words)
    if array.dtype.kind not in "iu":
        raise TypeError(f"words must be an integer array, got dtype {array.dtype}.")
    if array.size and (int(array.min()) < 0 or int(array.max()) >= 1 << bits):
        raise ValueError(f"words must satisfy 0 <= R < 2^{bits}; got {array.min()} to {array.max()}.")
    return array.astype(np.int64)


class Rules(TypedDict, total=False):
    """The keyword arguments that every rounding function takes; defaults as in `policy`."""

    rounding: str | Stochastic
    overflow: str
    nan: str
    subnormals: str


def policy(rounding: str | Stochastic = "rne", overflow="ieee", nan="canonical", subnormals="keep") -> Policy:
    """The Policy row for these names; ValueError names an unknown one and its neighbours."""
    if isinstance(rounding, Stochastic):
        mode, noise_bits = VARIANTS[rounding.variant], rounding.bits
    elif isinstance(rounding, str) and rounding.startswith("stoch"):
        raise ValueError("rounding='stochastic' needs its words: rounding=lp.stochastic(bits=, seed=, stream=).")
    else:
        mode, noise_bits = choose("rounding", rounding, ROUNDINGS), 0
    flush_in, flush_out = choose("subnormals", subnormals, SUBNORMALS)
    return Policy(
        mode,
        choose("overflow", overflow, OVERFLOWS),
        choose("nan", nan, NANS),
        flush_in,
        flush_out,
        noise_bits,
    )

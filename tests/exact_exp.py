"""The exponential in integers of 300 bits, and the float32 nearest to it."""

from fractions import Fraction

import oracle
from lpsim.formats import FORMATS

FP32 = FORMATS["fp32"]
WORK = 300  # bits after the point


def scaled_exp(x: Fraction) -> int:
    """e^x * 2^WORK, relative error below 2^-100 for |x| < 120: a Taylor series of x / 2^12, then 12 squarings."""
    one = 1 << WORK
    scaled = x / 4096 * one
    r = scaled.numerator // scaled.denominator
    total, term, n = one, one, 1
    while term not in (0, -1):
        term = term * r // (one * n)
        total, n = total + term, n + 1
    for _ in range(12):
        total = total * total >> WORK
    return total


def nearest_exp(x: Fraction) -> int:
    """Bits of the float32 nearest to e^x; that both ends of the error interval round alike is checked."""
    if x < -105:
        return 0  # below half of the smallest float32
    total = scaled_exp(x)
    slack = (total >> 100) + 1
    low, high = (oracle.encode(oracle.number(Fraction(total + s, 1 << WORK)), FP32) for s in (-slack, slack))
    assert low is not None
    assert low == high, f"e^{x!r} lies too close to a rounding border for the reference"
    return low

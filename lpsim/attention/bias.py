"""How biased the output of tied rows must be: the closed form, from the number of ties, the signs of V and the rest.

The tied keys' V are k values of one binade with random last bits; each weight is 1. What is rounded to bf16 lies
on a grid finer by 2^-drop, shifted by the small pull of the other keys. Ties of that grid are then no ties: all go
the way of the pull, while everything else rounds symmetrically. The mean signed error is therefore, in ulps of the
result, sign(pull) * (P(a tie of the grid) / 2 - |pull|), for a pull below the grid's spacing; and 0 without a pull.
Where the grid has no ties (no bit is dropped, or an odd number of values is averaged) only the pull itself is lost.
"""

import math

import numpy as np

LARGEST_CANCELLATION = 6  # sums of mixed sign smaller than 2^-6 of a value's binade are left out


def irwin_hall(x: float, k: int) -> float:
    """P(u1 + .. + uk <= x) for k independent uniform numbers in [0, 1)."""
    if x <= 0:
        return 0.0
    if x >= k:
        return 1.0
    return math.fsum((-1) ** j * math.comb(k, j) * (x - j) ** k for j in range(math.floor(x) + 1)) / math.factorial(k)


def _tie_fractions(k: int, negative: int) -> list[tuple[float, int]]:
    """(probability, dropped bits) of the sum of k values in [1, 2), `negative` of them with the other sign.

    That sum is k - 3 negative + u1 + .. + uk, since -u is distributed as u - 1.
    """
    found = []
    shift = k - 3 * negative
    for drop in range(-LARGEST_CANCELLATION, k.bit_length() + 1):
        low, high = 2.0**drop, 2.0 ** (drop + 1)
        inside = irwin_hall(high - shift, k) - irwin_hall(low - shift, k)
        inside += irwin_hall(-low - shift, k) - irwin_hall(-high - shift, k)
        found.append((inside, drop))
    return found


def _with_ties(spacing: float, pull: float) -> float:
    """The mean error on a grid of this spacing, whose midpoints are points of it: in ulps, for any pull."""
    below = math.fmod(abs(pull), spacing)
    return math.copysign(spacing / 2 - below, pull) if below else 0.0


def _without_ties(spacing: float, pull: float) -> float:
    """The same on a grid that rounds symmetrically by itself: the pull is lost, up to half a step."""
    return -math.remainder(pull, spacing)


def stored_sum(ties: int, pull: float, positive: float = 0.0) -> float:
    """Recipe paper: the un-normalised sum of `ties` values of V and a pull, rounded to bf16. Mean error in ulps.

    pull: the residual keys' part of the sum, in ulps of a tied V, signed. positive: the share of V entries above
    zero, independent (0: all negative). Sums of mixed sign that cancel below 2^-6 of V are left out.
    ValueError unless ties >= 1, pull is finite and 0 <= positive <= 1, TypeError for a pull that is no number.
    Source: arXiv 2510.04212, section 3.3.
    """
    _check(ties)
    if isinstance(pull, bool) or not isinstance(pull, int | float | np.integer | np.floating):
        raise TypeError(f"pull={pull!r} must be a number.")
    if not math.isfinite(pull):
        raise ValueError(f"pull={pull!r} must be finite.")
    if not 0.0 <= positive <= 1.0:
        raise ValueError(f"positive={positive!r} must be a share, from 0 to 1.")
    total = 0.0
    for negative in range(ties + 1):
        # By symmetry count as "negative" whichever sign `negative` of the values have.
        weight = math.comb(ties, negative) * (1 - positive) ** negative * positive ** (ties - negative)
        total += weight * math.fsum(p * _stored(drop, pull) for p, drop in _tie_fractions(ties, negative))
    return total


def rounded_quotient(ties: int, mass: float, residual: float, ulps: float = 192.0) -> float:
    """Recipe triton and the real kernel: O = (sum of V + mass v_r) / (ties + mass), rounded once. Mean error in ulps.

    mass: weight of the residual keys, that of a tied key being 1. residual: their mean V over that of the tied
    keys (same sign, one binade). ulps: how many ulps a tied V is large, 128 to 256 in bf16; on average 192.
    The error is counted away from zero: negative where O is too small. The average of k values lies on a grid of
    1/k ulp, which has ties for even k only. ValueError unless ties >= 1 and mass >= 0.
    """
    _check(ties)
    if mass < 0:
        raise ValueError(f"mass={mass!r} must not be negative.")
    pull = ulps * mass * (residual - 1.0) / (ties + mass)
    return (_without_ties if ties % 2 else _with_ties)(1.0 / ties, pull)


def _stored(drop: int, pull: float) -> float:
    """pull: in ulps of a tied V; `drop` bits above that is the last bit of the result."""
    scaled = pull / 2.0**drop
    return _with_ties(2.0**-drop, scaled) if drop > 0 else _without_ties(1.0, scaled)


def _check(ties: int) -> None:
    if type(ties) is not int or ties < 1:
        raise ValueError(f"ties={ties!r} must be an int of at least 1.")

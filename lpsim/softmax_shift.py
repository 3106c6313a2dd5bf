"""What is subtracted from the scores of a row before the exponential: the running maximum and its remedies."""

import math
from typing import NamedTuple

import numpy as np

from .errors import choose
from .formats import lookup, max_value


class Maximum(NamedTuple):
    """The rule that gives m. beta 0 is the plain row maximum.

    Otherwise Qiu and Yao's dynamic maximum: where at least two scores of a tile lie within `tolerance` of the
    tile's maximum r, subtract beta * r if r > 0 and 0 if r < 0 (arXiv 2510.04212, section 4; the tolerance is
    that of its ICLR version). Ties are counted over unmasked entries; the denominator has no floor.
    """

    beta: float = 0.0
    tolerance: float = 0.0
    guard: bool = False  #: keep only the part of the shift that changes significands: less than one binade
    scope: str = "tile"  #: ties are counted in a key "tile", over all of a "row" so far, or not: "every" r is displaced
    threshold: float = 0.0  #: log2 units by which the maximum must grow before it is taken over
    offset: float = 0.0  #: log2 units by which the weights are larger than exp(S - m)


PLAIN = Maximum()


def dynamic(beta: float = 2.0, tolerance: float = 1e-3, *, guard: bool = False, scope: str = "tile") -> Maximum:
    """The dynamic maximum; beta above 1, tolerance in natural logits. ValueError otherwise.

    The published rule (guard False) moves m away from the largest score without bound: past about 87 / (beta - 1)
    natural units every weight of the row underflows, and the row is 0 / 0. With guard=True the shift is taken
    modulo one factor of two: the weights keep their significands, which is all that rounding sees, and lie
    above 1/2 where they were 1; so the row is exact for all finite scores.
    scope: "tile" counts ties in each key tile, as published; "row" over all tiles seen so far. "every" counts none and
    displaces the maximum of every tile: on tied rows the same, on others a shift that the guard makes harmless. What
    costs time in a kernel is the counting; tolerance has no meaning then.
    """
    for name, value in (("beta", beta), ("tolerance", tolerance)):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name}={value!r} must be a number.")
    if not 1.0 < beta <= 64.0:
        raise ValueError(f"beta={beta!r} must be above 1 and at most 64 (the paper recommends 2 to 8).")
    if not 0.0 <= tolerance < 1.0:
        raise ValueError(f"tolerance={tolerance!r} must be at least 0 and below 1.")
    if not isinstance(guard, bool):
        raise TypeError(f"guard={guard!r} must be True or False.")
    choose("scope", scope, {"tile": 0, "row": 0, "every": 0})
    return Maximum(float(beta), float(tolerance), guard, scope)


def lazy(threshold: float, offset: float = 0.0) -> Maximum:
    """Lazy rescaling: m changes only when the maximum grew by more than `threshold` log2 units.

    Weights then reach 2^(threshold + offset): see `largest_weight`. ValueError for negative or huge values, TypeError
    for what is no number.
    Source: FlashAttention-3 (max_offset), FlashAttention-4 (rescale threshold).
    """
    for name, value in (("threshold", threshold), ("offset", offset)):
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            raise TypeError(f"{name}={value!r} must be a number.")
        if not 0.0 <= value <= 64.0:
            raise ValueError(f"{name}={value!r} must be from 0 to 64 log2 units.")
    return Maximum(threshold=float(threshold), offset=float(offset))


def largest_weight(maximum: Maximum) -> float:
    """The largest weight that this rule lets through, before rounding."""
    return 2.0 ** (maximum.threshold + maximum.offset)


def safe_threshold(fmt, offset: float = 0.0) -> float:
    """The largest threshold, in log2 units, for which no weight overflows fmt; negative: none, the offset is too large.

    A weight above the largest value of fmt saturates in the dot with v, but not in l: numerator and denominator
    then belong to different weights. e4m3fn holds 448, so at offset 8 the threshold must stay below 0.807.
    """
    return math.log2(max_value(lookup(fmt))) - offset

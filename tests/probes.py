"""Where a rounding can go wrong: values, midpoints and their neighbours, edges of every kind."""

from fractions import Fraction

import numpy as np

import oracle
from oracle import INF, NAN, Value, grid, largest

SMALL, HUGE = Fraction(1, 2**1074), Fraction(2) ** 1023  # edges of binary64


def magnitudes(fmt, seed: int, count: int) -> list[int]:
    """All finite magnitudes of a small format and three above; of a wide one ends, binades, random."""
    top, binade = largest(fmt), 2 ** (fmt.precision - 1)
    if top < 256:
        return list(range(top + 4))
    random = np.random.default_rng(seed).integers(0, top, count).tolist()
    edges = [0, 1, 2, 3, top - 1, top, top + 1, top + 2, binade - 2, 2 * binade, fmt.exponent_bias * binade]
    around = [edge * binade + step for edge in (1, 2, 40) for step in (-1, 0)]
    return sorted({m for m in edges + around + random if 0 <= m <= top + 2})


def between(m: int, fmt, deep: int = 20) -> list[Fraction]:
    """From the value of a magnitude up to the next: ends, midpoint, quarters, and one tiny step off."""
    low, step = grid(m, fmt), grid(m + 1, fmt) - grid(m, fmt)
    tiny = Fraction(1, 2**deep)
    parts = [Fraction(0), tiny, Fraction(1, 4), Fraction(1, 2) - tiny, Fraction(1, 2), Fraction(1, 2) + tiny]
    return [low + step * part for part in [*parts, Fraction(3, 4), 1 - tiny]]


def values(fmt, seed: int = 0, count: int = 60) -> list[Value]:
    """Values of both signs: `between` every magnitude, far beyond both ends, zeros, infinities, NaNs."""
    inside = [x for m in magnitudes(fmt, seed, count) for x in between(m, fmt)]
    lowest = grid(0, fmt) or grid(1, fmt)
    outside = [SMALL, lowest * Fraction(1, 2**30), lowest / 3 * 3 / 2, lowest * Fraction(3, 4), HUGE]
    outside += [2 * grid(largest(fmt), fmt), grid(largest(fmt) + 1, fmt) * 2**40]
    distinct = dict.fromkeys([*inside, *outside, Fraction(0), INF, NAN])
    return [Value(sign, x) for x in distinct for sign in (0, 1)]


def expected(points, fmt, **policy) -> np.ndarray:
    """The oracle's codes for a list of Values, -1 where it refuses."""
    codes = [oracle.encode(point, fmt, **policy) for point in points]
    return np.array([-1 if code is None else code for code in codes], dtype=np.int64)


def differences(points, found, wanted) -> list[str]:
    """What to print of the codes that differ: the first five. Codes are compared, so +0 and -0 differ."""
    wrong = np.flatnonzero(np.asarray(found) != np.asarray(wanted))
    return [f"{points[i]}: {int(found[i]):#x}, exact {int(wanted[i]):#x} ({len(wrong)} differ)" for i in wrong[:5]]

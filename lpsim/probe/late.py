"""A dot whose accumulator is added late: the unit that sums its products, and how many go into one addition."""

from typing import NamedTuple

import numpy as np

from .. import formats
from ..dot_units import LateUnit
from . import known
from .questions import Asker, Dot, numbers
from .units import Found, found_by

SLABS = 4  #: additions that are told apart: up to so many slabs of k
TESTS = 512


class FoundLate(NamedTuple):
    """What is known about it."""

    found: Found  #: of the sum from zero
    unit: LateUnit


def find_late(dot: Dot, fmt, *, accumulator: str = "fp32", step: int = 1, longest: int = 1024) -> FoundLate:
    """The LateUnit that a dot is. Arguments as in `units.find_unit`, which refuses such dots; at least two lanes.

    The unit is searched for with accumulators of zero; then random dots of several slabs, accumulators too, leave one
    number of products for each addition. Raises ValueError if none of up to `SLABS` slabs is left.
    """
    row = formats.lookup(fmt)
    asker = Asker(dot, numbers(row, accumulator), step, late=True)
    found = found_by(asker, accumulator, longest)
    slab = found.unit.lanes * max(found.unit.k_width // 2, 1)
    operands = _random(asker, int(np.lcm(SLABS * slab, step)))
    codes = asker.ask(*operands)
    fits = []
    for unit in (LateUnit(found.unit, slabs * slab) for slabs in range(1, SLABS + 1)):
        if np.array_equal(known.emulated(unit, row)(*operands), codes):
            fits.append(unit)
    if len(fits) != 1:
        raise ValueError(f"{found.unit} sums the products, but {len(fits)} of {SLABS} ways to add c late fit.")
    return FoundLate(found, fits[0])


def _random(asker: Asker, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes of operands near 1 of both signs, and of accumulators of full precision: every addition rounds."""
    rng, fmt = np.random.default_rng(5), asker.numbers.fmt
    grain = 1 << (fmt.precision - 1)
    a, b = (
        (1 + rng.integers(0, grain, (TESTS, length)) / grain) * rng.choice([-1.0, 1.0], (TESTS, length))
        for _ in range(2)
    )
    whole = 1 << asker.numbers.accumulator.precision
    c = np.ldexp(rng.integers(-whole + 1, whole, TESTS) / whole, rng.integers(0, 7, TESTS))
    return asker.codes(a, b, c)

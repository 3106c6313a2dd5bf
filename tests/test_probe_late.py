"""Dots whose accumulator is added late: the unit of the sum, and how many products go into one addition."""

import random

import pytest

from lpsim import formats, machines
from lpsim.dot_units import DotUnit, LateUnit, accumulator_of
from lpsim.policies import RNE, RTZ
from lpsim.probe import known, report
from lpsim.probe.late import find_late

HOPPER = DotUnit(lanes=16, fraction_bits=25, rounding=RTZ, output_fraction=23, e_zero=-133)
KNOWN = [
    (key, row.unit) for key, row in machines.DOT_UNITS.items() if isinstance(row.unit, LateUnit) and key[0] == "h200"
]


@pytest.mark.parametrize(("key", "unit"), KNOWN, ids=str)
def test_known_rows_are_found_and_named(key, unit):
    row = report.dot_row(known.emulated(unit, formats.lookup(key[2])), known.Key(*key), 32, 256)
    assert row["late"] == unit.k
    assert list(key) in row["equal"]
    assert f"k={unit.k})" in row["paste"]
    assert row["signs"]["accumulator"] == "uncut"


@pytest.mark.parametrize("seed", range(4))
def test_random_rows_are_found(seed):
    rng = random.Random(seed)
    inner = DotUnit(
        rng.randint(2, 40), rng.randint(12, 48), rng.choice([RTZ, RNE]), rng.randint(8, 23), -rng.randint(0, 160)
    )
    unit = LateUnit(inner, inner.lanes * rng.randint(1, 4))
    fmt = rng.choice(("bf16", "fp16", "tf32"))
    found, late = find_late(known.emulated(unit, formats.lookup(fmt)), fmt, accumulator=accumulator_of(unit))
    assert late.k == unit.k
    assert found.allows(unit.unit)


def test_what_is_added_in_time_is_not_called_late():
    dot = known.emulated(HOPPER, formats.lookup("bf16"))
    with pytest.raises(ValueError, match="ways to add c late fit"):
        find_late(dot, "bf16", step=16)
    assert report.dot_row(dot, known.Key("h200", "wgmma", "bf16", "fp32"), 16, 256)["late"] is None

"""The probe finds the row of every dot that it is given, or says which fields no output shows."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpsim import data, dot_units, formats, machines, policies
from lpsim.dot_units import NOT_WIDENED, DotUnit, check_unit
from lpsim.policies import RNE, RTZ
from lpsim.probe import Found, Signs, find_signs, find_unit, known, units

FORMATS = ("bf16", "fp16", "tf32", "e4m3fn", "e5m2")
HOPPER = DotUnit(lanes=16, fraction_bits=25, rounding=RTZ, output_fraction=23, e_zero=-133)


def accumulator(unit: DotUnit) -> str:
    return dot_units.accumulator_of(unit)


def probed(unit: DotUnit, fmt: str, step: int = 1) -> Found:
    dot = known.emulated(unit, formats.lookup(fmt))
    return find_unit(dot, fmt, accumulator=accumulator(unit), step=step)


def random_unit(rng: random.Random) -> DotUnit:
    """Any row that check_unit allows; e_zero is often where it can be seen."""
    bits, most = rng.choice([(8, 23), (8, 23), (5, 10)])
    lanes = rng.randint(1, 64)
    width = rng.choice([1, 2, 4, 6, 16]) if lanes % 2 == 0 else rng.choice([1, 2])
    e_zero = -rng.choice([rng.randint(0, 160), rng.randint(0, 1000)])
    widened = rng.choice([NOT_WIDENED, rng.randint(-160, 0)])
    return check_unit(
        DotUnit(
            lanes, rng.randint(4, 48), rng.choice([RTZ, RNE]), rng.randint(1, most), e_zero, bits, most, width, widened
        )
    )


def explained(unit: DotUnit, found: Found) -> bool:
    """The unit is among the rows; and where it is not the row that is named, the fields are told as unseen."""
    told = {field.field: field for field in found.unseen}
    spelt = units.canonical(unit, found.fmt)
    for field, mine, named in zip(DotUnit._fields, spelt, found.unit, strict=True):
        if mine != named and not (field in told and told[field].least <= mine <= told[field].most):
            return False
    return found.allows(unit)


@pytest.mark.parametrize("seed", range(8))
def test_random_rows_are_found(seed):
    rng = random.Random(seed)
    unit, fmt, step = random_unit(rng), rng.choice(FORMATS), rng.choice([1, 16, 32])
    found = probed(unit, fmt, step)
    assert explained(unit, found), (unit, found.unit, found.unseen)


@settings(max_examples=4, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(FORMATS))
def test_any_row_is_found(rng, fmt):
    unit = random_unit(rng)
    assert explained(unit, probed(unit, fmt))


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_are_left_answer_alike(seed):
    """What the probe calls unseen cannot be seen in random dots either: rows drawn from those left agree."""
    rng = random.Random(100 + seed)
    unit, fmt = random_unit(rng)._replace(fraction_bits=40, e_zero=-900), rng.choice(FORMATS)
    found = probed(unit, fmt)
    assert len(found.rows) > 1
    row = formats.lookup(fmt)
    numbers = np.random.default_rng(seed)
    k = units.Blocks(unit.lanes, found.unit.k_width).slab
    a, b = (numbers.integers(0, 1 << row.bits, (200, k)) << row.pad for _ in range(2))
    codes = [x.astype(f"u{formats.container_bits(row) // 8}") for x in (a, b)]
    c = numbers.integers(0, 1 << (16 if unit.exponent_bits == 5 else 32), 200)
    c = c.astype(np.uint16 if unit.exponent_bits == 5 else np.uint32)
    want = known.emulated(unit, row)(*codes, c)
    for chosen in rng.sample(found.rows.tolist(), min(4, len(found.rows))):
        assert np.array_equal(known.emulated(DotUnit(*chosen), row)(*codes, c), want), chosen


KNOWN = {
    (row.unit, key[2])
    for key, row in machines.DOT_UNITS.items()
    if isinstance(row.unit, DotUnit) and key[2] in FORMATS and key[0] in ("h200", "v100", "a100", "rtx4090")
}


@pytest.mark.parametrize(("unit", "fmt"), sorted(KNOWN), ids=str)
def test_known_rows_are_found_and_named(unit, fmt):
    found = probed(unit, fmt, step=machines_step(unit))
    assert found.unit == units.canonical(unit, found.fmt)
    named = {machines.DOT_UNITS[tuple(key)].unit for key in known.equal_rows(found)}
    assert unit in named
    assert all(found.allows(other) for other in named)


def machines_step(unit: DotUnit) -> int:
    """As tl.dot has it: at least 16 k."""
    return max(16, unit.lanes)


def test_each_field_is_told_apart():
    """A row and its neighbours: the probe's answer follows the change."""
    base = HOPPER._replace(output_fraction=20, e_zero=-120)
    for change in ({"lanes": 15}, {"fraction_bits": 26}, {"rounding": RNE}, {"output_fraction": 21}, {"e_zero": -119}):
        unit = base._replace(**change)
        found = probed(unit, "bf16")
        assert found.unit == unit
        assert not found.allows(base)
        assert found.unseen == ()


def test_nan_and_counts_are_told():
    found = probed(HOPPER, "bf16", step=16)
    assert found.nan == 0x7FFFFFFF
    assert found.asked > 10_000


def test_the_row_can_be_pasted(monkeypatch):
    unit = HOPPER._replace(lanes=12, rounding=RNE, widened_emin=-9)
    monkeypatch.setattr(machines, "DOT_UNITS", dict(machines.DOT_UNITS))
    found = Found(formats.lookup("e4m3fn"), unit, np.array([unit]), (), None, 7)
    assert known.equal_rows(found) == []
    exec(known.pasted(found, "mine", "mma"), {"machines": machines, "dot_units": dot_units, "policies": policies})
    assert machines.DOT_UNITS["mine", "mma", "e4m3fn", "fp32"].unit == unit
    assert [tuple(key) for key in known.equal_rows(found)] == [("mine", "mma", "e4m3fn", "fp32")]


def exact(a, b, c):
    """No DotUnit: float32 of the exact sum (bf16 products and sums of a few are exact in float64 here)."""
    x, y = (z.astype(np.uint32) << np.uint32(16) for z in (a, b))
    with np.errstate(all="ignore"):
        products = x.view(np.float32).astype(np.float64) * y.view(np.float32).astype(np.float64)
        return (products.sum(-1) + c.view(np.float32)).astype(np.float32).view(np.uint32)


def late(a, b, c):
    """Products from zero, then one addition of the accumulator."""
    inner = known.emulated(HOPPER, formats.lookup("bf16"))(a, b, np.zeros_like(c)).view(np.float32)
    with np.errstate(all="ignore"):
        return (inner + c.view(np.float32)).view(np.uint32)


def flushing(a, b, c):
    """A DotUnit whose subnormal results are zero."""
    codes = known.emulated(HOPPER, formats.lookup("bf16"))(a, b, c)
    return np.where(codes & 0x7F800000 == 0, 0, codes).astype(np.uint32)


@pytest.mark.parametrize("dot", [exact, late, flushing])
def test_what_is_no_dot_unit_is_refused(dot):
    with pytest.raises(ValueError, match=r"no dot unit does that|no DotUnit gives|no block of products"):
        find_unit(dot, "bf16", step=16, longest=128)


def test_refusals():
    dot = known.emulated(HOPPER, formats.lookup("bf16"))
    with pytest.raises(ValueError, match="e8m0 cannot be probed"):
        find_unit(dot, "e8m0")
    with pytest.raises(ValueError, match="accumulator='fp64'"):
        find_unit(dot, "bf16", accumulator="fp64")
    with pytest.raises(TypeError, match="must return codes"):
        find_unit(lambda a, b, c: c.view(np.float32), "bf16")


def test_on_an_h200_the_probe_found_the_rows_of_the_table():
    report = data.description("probe")
    assert "H200" in report["device"]
    assert len(report["dots"]) == 12
    for row in report["dots"]:
        key = ("h200", row["path"], row["fmt"], row["accumulator"])
        assert list(key) in row["equal"]
        unit = machines.DOT_UNITS[key].unit
        assert DotUnit(**row["unit"]) == units.canonical(unit, formats.lookup(row["fmt"]))
        assert {field["field"] for field in row["unseen"]} <= {"e_zero", "widened_emin"}
        assert row["nan"] == (0x7FFFFFFF if row["accumulator"] == "fp32" else 0x7FFF)


def test_signs_of_units_and_of_what_is_none():
    fmt = formats.lookup("bf16")
    want = Signs("chained", "kept", "kept", "kept", 0x7FFFFFFF)
    assert find_signs(known.emulated(HOPPER, fmt), "bf16", step=16) == want
    assert find_signs(late, "bf16", step=16)._replace(nan=want.nan) == want._replace(accumulator="uncut")
    assert find_signs(exact, "bf16")._replace(nan=want.nan) == want._replace(accumulator="uncut")
    lossy = want._replace(subnormal_accumulators="lost", subnormal_results="lost")
    assert find_signs(flushing, "bf16", step=16) == lossy
    fp8 = known.emulated(machines.dot_row("h200", "wgmma", "e4m3fn").unit, formats.lookup("e4m3fn"))
    assert find_signs(fp8, "e4m3fn", step=32) == want._replace(subnormal_results="out of reach")
    narrow = known.emulated(HOPPER._replace(exponent_bits=5, accumulator_fraction=10, output_fraction=10), fmt)
    assert find_signs(narrow, "bf16", accumulator="fp16").nan == 0x7FFF

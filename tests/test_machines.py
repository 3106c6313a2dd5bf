"""Rows of dot units: found by name, refused when unknown, added by a user; and what a Machine does with them."""

import ml_dtypes
import numpy as np
import pytest

import lpsim as lp
from lpsim import dot_units, machines
from lpsim.dot_units import DotUnit, FmaUnit, IntegerUnit, LateUnit, ScaledUnit
from lpsim.policies import RNE, RTZ

VOLTA = DotUnit(lanes=4, fraction_bits=23, rounding=RTZ, output_fraction=23, e_zero=-131)


@pytest.fixture
def own_tables(monkeypatch):
    """Rows added in a test are gone after it."""
    monkeypatch.setattr(machines, "DOT_UNITS", dict(machines.DOT_UNITS))
    monkeypatch.setattr(machines, "SCALED_UNITS", dict(machines.SCALED_UNITS))


def test_rows_are_found_and_refused():
    with pytest.raises(ValueError, match="h200"):
        machines.dot_row("h20", "wgmma", "bf16")
    with pytest.raises(ValueError, match="wgmma"):
        machines.dot_row("h200", "wgma", "bf16")
    with pytest.raises(NotImplementedError, match="fp32"):
        machines.dot_row("h200", "wgmma", "fp32")
    with pytest.raises(NotImplementedError, match="bf16 x fp16"):
        machines.dot_row("h200", "wgmma", "bf16", "fp16")
    with pytest.raises(NotImplementedError, match="accumulator fp16; modelled: fp32"):
        machines.dot_row("h200", "wgmma", "bf16", accumulator="fp16")
    with pytest.raises(NotImplementedError, match="block-scaled"):
        machines.scaled_row("h200", None, "e2m1")


def test_evidence_goes_with_the_row():
    assert machines.dot_row("h200", "wgmma", "e4m3fn").evidence == "measured"
    assert machines.dot_row("h100", "wgmma", "e4m3fn").evidence == "published"
    assert machines.dot_row("l40s", "mma", "e4m3fn", "e5m2").source.startswith("mixed e4m3fn x e5m2")
    assert machines.dot_row("mi300x", "mfma", "e4m3fnuz", "e5m2fnuz").evidence == "provisional"
    rows = lp.machine("v100").dot_rows()
    assert list(rows) == [("mma", "fp16", "fp32"), ("mma", "fp16", "fp16")]
    assert "HMMA.884" in rows["mma", "fp16", "fp32"].source


def test_every_row_is_a_unit_that_says_its_accumulator():
    for (*_, accumulator), row in machines.DOT_UNITS.items():
        assert dot_units.accumulator_of(machines.check_unit(row.unit)) == accumulator
        assert row.evidence in machines.EVIDENCE
        assert row.source
    for row in machines.SCALED_UNITS.values():
        assert isinstance(machines.check_unit(row.unit), ScaledUnit)
    assert {key[0] for key in machines.DOT_UNITS if machines.DOT_UNITS[key].evidence == "measured"} == {"h200"}


def test_published_parameters():
    """Bits, lanes and zero exponents of arXiv 2511.10909 and 2512.07004, written down a second time."""
    wanted = {
        ("v100", "fp16", "fp32"): (4, 23, RTZ, 23, -131),
        ("v100", "fp16", "fp16"): (4, 23, RNE, 10, -19),
        ("t4", "fp16", "fp32"): (8, 24, RTZ, 23, -132),
        ("t4", "fp16", "fp16"): (8, 24, RNE, 10, -20),
        ("a100", "bf16", "fp32"): (8, 24, RTZ, 23, -132),
        ("a100", "tf32", "fp32"): (4, 24, RTZ, 23, -132),
        ("l40s", "e4m3fn", "fp32"): (16, 13, RTZ, 13, -132),
        ("l40s", "e5m2", "fp16"): (16, 13, RNE, 10, -20),
        ("h200", "bf16", "fp32"): (16, 25, RTZ, 23, -133),
        ("h200", "tf32", "fp32"): (8, 25, RTZ, 23, -133),
        ("h200", "fp16", "fp16"): (16, 25, RNE, 10, -21),
        ("h200", "e4m3fn", "fp32"): (32, 13, RTZ, 13, -133),
        ("h200", "e5m2", "fp16"): (32, 13, RNE, 10, -21),
        ("b200", "e4m3fn", "fp32"): (32, 25, RTZ, 23, -133),
        ("rtx5090", "e2m1", "fp16"): (32, 25, RNE, 10, -21),
    }
    for (machine, fmt, accumulator), numbers in wanted.items():
        unit = machines.dot_row(machine, None, fmt, accumulator=accumulator).unit
        assert tuple(unit[:5]) == numbers, (machine, fmt, accumulator)


def test_a_user_adds_a_machine(own_tables):
    machines.add_dot_unit("mine", "dpa", "fp16", VOLTA, source="my own probe")
    machines.add_dot_unit("mine", "dpa", "int8", IntegerUnit(16, saturates=0), source="my own probe")
    a, b = np.full((1, 4), 1.5, np.float16), np.full((4, 1), 0.5, np.float16)
    assert lp.machine("mine").dot(a, b) == 3.0
    ones = np.ones((2, 20), np.int8)
    assert lp.machine("mine").dot(ones, ones.T).tolist() == [[20, 20], [20, 20]]
    assert machines.dot_row("mine", "dpa", np.float16).evidence == "published"
    machines.add_dot_unit("mine", "late", "e5m2", LateUnit(VOLTA, 8), source="my own probe")
    scaled = ScaledUnit(lanes=32, group=1, scale_block=32, fraction_bits=25, e_zero=-133)
    machines.add_dot_unit("mine", "mx", "e2m1", scaled, source="my own probe", scales="e8m0")
    codes, scales = np.full((1, 32), 0b0010, np.uint8), np.full((1, 1), 128, np.uint8)
    assert lp.machine("mine").dot_scaled(codes, scales, codes.T, scales, fmt="e2m1") == 128.0
    with pytest.raises(ValueError, match="mine"):
        lp.machine("mien")


def test_rows_that_are_refused(own_tables):
    add = machines.add_dot_unit
    with pytest.raises(ValueError, match="already"):
        add("v100", "mma", "fp16", VOLTA, source="again")
    with pytest.raises(ValueError, match="lanes"):
        add("v100", "mma", "bf16", VOLTA._replace(lanes=0), source="-")
    with pytest.raises(TypeError, match="lanes"):
        add("v100", "mma", "bf16", VOLTA._replace(lanes=4.0), source="-")
    with pytest.raises(TypeError, match="one of DotUnit"):
        add("v100", "mma", "bf16", "fast", source="-")
    with pytest.raises(ValueError, match="evidence='seen'"):
        add("v100", "mma", "bf16", VOLTA, source="-", evidence="seen")
    with pytest.raises(ValueError, match="multiple"):
        add("v100", "mma", "bf16", LateUnit(VOLTA, 6), source="-")
    with pytest.raises(ValueError, match="scales"):
        add("v100", "mma", "bf16", ScaledUnit(32, 1, 32, 25, -133), source="-")
    with pytest.raises(ValueError, match="scales"):
        add("v100", "mma", "bf16", VOLTA, source="-", scales="e8m0")
    with pytest.raises(ValueError, match="32 or 64"):
        add("v100", "mma", "fp32", FmaUnit(16), source="-")


def test_the_first_path_that_knows_the_formats():
    a = np.ones((4, 32), ml_dtypes.bfloat16)
    for name in ("a100", "l40s", "h100", "h200", "b200", "rtx5090", "mi100", "mi250x", "mi300x"):
        assert (lp.machine(name).dot(a, a.T) == 32).all(), name
    for name in ("v100", "t4"):
        with pytest.raises(lp.NotModelled, match="no dot unit for bf16; modelled: fp16"):
            lp.machine(name).dot(a, a.T)
        assert (lp.machine(name).dot(a.astype(np.float16), a.T.astype(np.float16)) == 32).all()


def test_accumulators_have_their_dtype():
    h200 = lp.machine("h200")
    a = np.full((2, 32), 40.0, np.float16)
    narrow = h200.dot(a, a.T, accumulator="fp16")
    assert (narrow.dtype, narrow[0, 0]) == (np.float16, 51200.0)
    overflowing = h200.dot(a, a.T, np.full((2, 2), 50000, np.float16), accumulator="fp16")
    assert np.isinf(overflowing).all()
    with pytest.raises(TypeError, match=r"c has dtype float32, but the accumulator is float16"):
        h200.dot(a, a.T, np.zeros((2, 2), np.float32), accumulator="fp16")
    wide = h200.dot(np.full((1, 3), 1.5), np.full((3, 1), 0.25), fmt="fp64")
    assert (wide.dtype, wide[0, 0]) == (np.float64, 1.125)
    with pytest.raises(TypeError, match="float64 arrays"):
        h200.dot(np.ones((1, 3), np.float32), np.ones((3, 1), np.float32), fmt="fp64")

"""Rows of dot units: found by name, refused when unknown, added by a user."""

import numpy as np
import pytest

from lpsim import machines
from lpsim.policies import RTZ


def test_rows_are_found_and_refused():
    with pytest.raises(ValueError, match="h200"):
        machines.dot_row("h20", "wgmma", "bf16")
    with pytest.raises(ValueError, match="wgmma"):
        machines.dot_row("h200", "wgma", "bf16")
    with pytest.raises(NotImplementedError, match="fp32"):
        machines.dot_row("h200", "wgmma", "fp32")
    with pytest.raises(NotImplementedError, match="bf16 x fp16"):
        machines.dot_row("h200", "wgmma", "bf16", "fp16")
    assert machines.dot_row("h200", "wgmma", "e4m3fn").evidence == "measured"
    assert machines.dot_row("h200", "wgmma", "e4m3fn", "e5m2").evidence == "published"


def test_a_user_adds_a_row(monkeypatch):
    monkeypatch.setattr(machines, "DOT_UNITS", dict(machines.DOT_UNITS))
    volta = machines.DotUnit(lanes=4, fraction_bits=23, rounding=RTZ, output_fraction=23, e_zero=-131)
    machines.add_dot_unit("v100", "mma", "fp16", volta, source="arXiv 2511.10909")
    assert machines.dot_row("v100", "mma", np.float16).unit == volta
    with pytest.raises(ValueError, match="already"):
        machines.add_dot_unit("v100", "mma", "fp16", volta, source="again")
    with pytest.raises(ValueError, match="lanes"):
        machines.add_dot_unit("v100", "mma", "bf16", volta._replace(lanes=0), source="-")
    with pytest.raises(TypeError, match="lanes"):
        machines.add_dot_unit("v100", "mma", "bf16", volta._replace(lanes=4.0), source="-")

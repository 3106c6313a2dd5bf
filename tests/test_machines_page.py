"""docs/machines.md is what its script writes."""

import pytest

from lpsim import data, machines
from script_modules import script_module


@pytest.fixture(scope="module")
def script():
    return script_module("machines_page")


def test_the_page_is_current(script):
    assert script.PAGE.read_text() == script.page(), "run python scripts/machines_page.py"


def test_a_machine_without_a_title_is_seen(script, monkeypatch):
    monkeypatch.delitem(script.GPUS, "mi100")
    with pytest.raises(AssertionError, match="title"):
        script.page()


def test_every_measured_row_was_compared(script):
    """The evidence says "measured" where, and only where, outputs of the hardware went through the row."""
    counts = script.compared()
    measured = {key for key, row in machines.rows("h200").items() if row.evidence == "measured"}
    assert {key for key, count in counts.items() if count} == measured
    scaled = [run for run in data.description("dots_live")["runs"] if "tile" in run]
    assert sum(counts.values()) + sum(run["compared"] for run in scaled) > 10**9


def test_every_kind_of_unit_has_words(script):
    assert script.numbers(machines.dot_row("h200", "wgmma", "e4m3fn").unit) == (
        "32 products, 13 bits, cut to fp32 with 13 fraction bits, zero counts as 2^-133"
    )
    assert script.numbers(machines.dot_row("h200", "mma", "int8").unit) == "exact over 32 k, then clamped"
    page = script.page()
    assert "k mod 4 in turn" in page
    assert "in exact groups of 16" in page
    assert "provisional" in page

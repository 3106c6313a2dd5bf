"""docs/verified.md is what its script writes from the committed report of a live run; no family may be left out."""

import pytest

from lpsim import data, live
from lpsim.verify import Check
from lpsim_triton import crosscheck
from script_modules import script_module

REPORT = data.FOLDER / "h200" / "live.json"
MADE_BY = {"device", "capability", "driver", "torch", "cuda", "triton", "ptxas", *live.made_by(), "seed", "scale"}


@pytest.fixture(scope="module")
def script():
    return script_module("verified_page")


def faults(report: dict, explained=()) -> list[str]:
    """What is wrong with a report to be committed. explained: operations of which the page says why they differ."""
    differing = {row["operation"] for row in report["rows"] if row["differing"]}
    found = [f"differs: {name}" for name in differing - {*explained}]
    found += [f"does not differ: {name}" for name in {*explained} - differing]
    found += [f"nothing compared: {row['operation']}" for row in report["rows"] if not row["compared"]]
    found += [f"missing: {name}" for name in {*crosscheck.FAMILIES} - {row["family"] for row in report["rows"]}]
    found += [f"missing: {name}" for name in MADE_BY - report.keys()]
    totals = {name: sum(row[name] for row in report["rows"]) for name in ("compared", "differing")}
    return found + [f"total: {name}" for name, total in totals.items() if report[name] != total]


def test_the_page_is_current(script):
    assert script.PAGE.exists() == REPORT.exists()  # a checkout without a report has no page
    if REPORT.exists():
        assert faults(data.description("live"), script.EXPLAINED) == []
        assert script.PAGE.read_text() == script.page(), "run python scripts/verified_page.py"


def whole_report(**changes) -> dict:
    head = {**dict.fromkeys(MADE_BY, "x"), "scale": 1.0}
    rows = [(family, Check(f"some {family}", "live", 10, 0)._replace(**changes)) for family in crosscheck.FAMILIES]
    return live.report(rows, head)


def test_a_fault_is_seen():
    assert faults(whole_report()) == []
    assert len(faults(whole_report(differing=1))) == len(crosscheck.FAMILIES)
    assert len(faults(whole_report(compared=0))) == len(crosscheck.FAMILIES)
    report = whole_report()
    assert faults(report, ["some dots"]) == ["does not differ: some dots"]
    assert faults({**report, "compared": 1}) == ["total: compared"]
    del report["driver"]
    assert faults(report) == ["missing: driver"]
    report = whole_report()
    report["rows"] = report["rows"][1:]
    assert set(faults(report)) == {f"missing: {crosscheck.FAMILIES[0]}", "total: compared"}


def test_the_page_shows_the_rows(script, monkeypatch):
    monkeypatch.setattr(data, "description", lambda name: whole_report())
    page = script.page()
    assert f"| compared | **{10 * len(crosscheck.FAMILIES)}** results |" in page
    assert all(f"| some {family} | 10 | 0 |" in page for family in crosscheck.FAMILIES)

"""`lpsim verify`: all recordings agree, and a difference is counted, shown and told by the exit status."""

import importlib
import json
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from lpsim import digest, live, verify
from lpsim.cli import app
from lpsim.verify import Check


def test_recordings_agree():
    found = [*verify.recorded_dots("mma_tiny"), *verify.recorded_attention()]
    found += islice(verify.recorded_kernels(), 3)  # all of them: tests/kernels/test_attention_kernels.py
    assert [check for check in found if check.differing] == []
    assert sum(check.compared for check in found) > 500_000
    assert len({check.operation for check in found}) == len(found)


def test_a_difference_is_shown():
    recorded = np.array([[1.0, 0.0], [2.0, 3.0]], np.float32)
    found = recorded.copy()
    assert verify.difference(found, recorded) == (0, "")
    found[0, 1] = -0.0
    found[1, 1] = np.nextafter(np.float32(3), np.float32(4))
    assert verify.difference(found, recorded) == (2, "[0, 1]: 80000000, recorded 00000000")


@pytest.fixture
def one_check(monkeypatch):
    """Only one digest is planned, over one chunk, and nothing else."""
    monkeypatch.setattr(verify, "EDGE_CHUNKS", (0x7F,))
    for name in [name for name in vars(verify) if name.startswith("recorded_")]:
        monkeypatch.setattr(verify, name, lambda *_: iter(()))
    name = "ptx:cvt.rn.bf16.f32"
    monkeypatch.setattr(digest, "PLAN", {name: digest.PLAN[name]})
    return name


def test_exit_status(one_check, monkeypatch):
    right = CliRunner().invoke(app, ["verify", "--no-live"])
    assert right.exit_code == 0, right.output
    assert "Every compared bit agrees." in right.output

    monkeypatch.setattr(digest, "PLAN", {one_check: digest.cast("bf16")})  # canonical NaN is not the instruction's
    wrong = CliRunner().invoke(app, ["verify", "--no-live"])
    assert wrong.exit_code == 1
    assert "chunk 0x7f: inputs 7F000000 to 7FFFFFFF" in wrong.output


def kernels_that_find(*rows: Check) -> SimpleNamespace:
    """A stand-in for lpsim_triton.crosscheck on a machine with a GPU; remembers what it was asked for."""
    found = SimpleNamespace(asked=[])
    found.head = lambda seed, scale: {"device": "a GPU", **live.made_by(), "seed": seed, "scale": scale}
    found.checks = lambda seed, scale: found.asked.append((seed, scale)) or (("dots", row) for row in rows)
    return found


@pytest.mark.parametrize("options", [["--live"], [], ["--seed", "7", "--scale", "0.5"]])
def test_a_gpu_is_used(one_check, monkeypatch, tmp_path, options):
    kernels = kernels_that_find(Check("tl.dot bf16", "live", 1000, 0))
    monkeypatch.setattr(live, "kernels", lambda: kernels)
    monkeypatch.setattr(live, "why_not", lambda: "")
    path = tmp_path / "report.json"
    result = CliRunner().invoke(app, ["verify", *options, "--report", str(path)])
    assert result.exit_code == 0, result.output
    assert "tl.dot bf16" in result.output
    report = json.loads(path.read_text())
    assert [row["family"] for row in report["rows"]] == ["recordings", "dots"]
    assert report["compared"] == (1 << 24) + 1000
    assert report["differing"] == 0
    assert kernels.asked == [(report["seed"], report["scale"])]
    if options and options[0] == "--seed":
        assert kernels.asked == [(7, 0.5)]
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_a_live_difference_is_told(one_check, monkeypatch, tmp_path):
    wrong = Check("tl.dot bf16", "live", 1000, 3, "3F800000, emulated 3F800001")
    monkeypatch.setattr(live, "kernels", lambda: kernels_that_find(wrong))
    monkeypatch.setattr(live, "why_not", lambda: "")
    path = tmp_path / "report.json"
    result = CliRunner().invoke(app, ["verify", "--live", "--report", str(path)])
    assert result.exit_code == 1
    assert "3F800000, emulated 3F800001" in result.output
    assert json.loads(path.read_text())["rows"][-1] == {"family": "dots", **wrong._asdict()}


MISUSES = {
    "no GPU": (["--live"], "no live check: torch finds no CUDA device"),
    "seed without a GPU": (["--seed", "1"], "no live check"),
    "seed without live": (["--seed", "1", "--no-live"], "leave out --no-live or --seed"),
    "negative seed": (["--seed", "-1"], "at least 0"),
    "scale": (["--scale", "0"], "above 0 and at most 16"),
    "folder": (["--report", "no/such/folder/report.json"], "there is no folder"),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_has_its_own_exit_status(monkeypatch, name):
    options, words = MISUSES[name]
    monkeypatch.setattr(live, "why_not", lambda: "torch finds no CUDA device")
    result = CliRunner().invoke(app, ["verify", *options])
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setattr(live, "NEEDED", ("lpsim_triton", "no_such_package"))
    assert "no_such_package cannot be imported" in live.why_not()
    assert "pip install lpsim-numerics[gpu]" in live.why_not()
    with pytest.raises(RuntimeError, match="no live check: no_such_package"):
        live.kernels()


def test_brackets_are_printed(one_check, monkeypatch):
    """The names of extras look like markup."""
    monkeypatch.setattr(live, "why_not", lambda: "pip install lpsim-numerics[gpu]")
    assert "lpsim-numerics[gpu]" in CliRunner().invoke(app, ["verify"]).output
    refused = CliRunner().invoke(app, ["verify", "--live"])
    assert "lpsim-numerics[gpu]" in refused.output
    assert refused.exit_code == 2


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        live.write("half a report, then \ud800", path)
    assert path.read_text() == "old"
    live.write("new", path)
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_a_report_is_json_and_a_page():
    rows = [
        ("dots", Check("a", "live", 10, 0)),
        ("dots", Check("b", "live", 5, 2, "bits")),
        ("random", Check("c", "live", 1, 0)),
    ]
    report = live.report(rows, {"device": "a GPU"})
    assert json.loads(live.as_json(report)) == report
    assert (report["compared"], report["differing"]) == (16, 2)
    page = "\n".join(live.page(report))
    assert "## dots: 15 compared, 2 differ" in page
    assert "| b | 5 | 2 |" in page
    assert "`b`: bits" in page


def test_a_family_that_fails_is_a_row_that_differs(monkeypatch):
    crosscheck = importlib.import_module("lpsim_triton.crosscheck")

    def checks(seed, scale):
        yield Check("fine", "live", int(seed * scale), 0)
        raise ArithmeticError("broke\noff")

    def module(name, package):
        if name == ".crosscheck_dots":
            return SimpleNamespace(checks=checks)
        raise ModuleNotFoundError(f"No module named {name}")

    monkeypatch.setattr(crosscheck, "importlib", SimpleNamespace(import_module=module))
    rows = list(crosscheck.checks(10, 0.5, ("dots", "reductions")))
    assert [(family, check.operation, check.compared, check.differing) for family, check in rows] == [
        ("dots", "fine", 5, 0),
        ("dots", "dots did not finish", 0, 1),
        ("reductions", "reductions did not finish", 0, 1),
    ]
    assert rows[1][1].example == "ArithmeticError: broke off"
    assert "No module named .crosscheck_reductions" in rows[2][1].example

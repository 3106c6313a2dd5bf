"""`lpsim probe` on the emulator, where there is no GPU."""

import json
import sys

import pytest
from typer.testing import CliRunner

from lpsim import machines
from lpsim.cli import app, probing
from lpsim.dot_units import DotUnit
from lpsim.policies import RTZ

run = CliRunner().invoke


def test_a_machine_s_emulation_is_probed(tmp_path):
    path = tmp_path / "rows.json"
    result = run(app, ["probe", "--machine", "a100", "--fmt", "fp16", "--report", str(path)])
    assert result.exit_code == 0, result.output
    assert "mma fp16, fp32 is" in result.output
    assert "a100 mma" in result.output
    found = json.loads(path.read_text())
    assert {row["accumulator"] for row in found["dots"]} == {"fp32", "fp16"}
    assert all("unit" in row for row in found["dots"])
    assert list(tmp_path.iterdir()) == [path]


def test_an_unknown_row_is_printed_as_code(monkeypatch):
    monkeypatch.setattr(machines, "DOT_UNITS", dict(machines.DOT_UNITS))
    unit = DotUnit(lanes=24, fraction_bits=20, rounding=RTZ, output_fraction=21, e_zero=-100)
    machines.add_dot_unit("new", "mma", "bf16", unit, source="a test")
    result = run(app, ["probe", "--machine", "new"])
    assert result.exit_code == 0, result.output
    assert "mma bf16, fp32 is new mma" in result.output
    del machines.DOT_UNITS["new", "mma", "bf16", "fp32"]
    key = {"machine": "new", "path": "mma", "fmt": "bf16", "accumulator": "fp32"}
    paste = "machines.add_dot_unit('new')"
    row = key | {"unit": unit._asdict(), "unseen": [], "nan": None, "asked": 5, "equal": [], "paste": paste}
    with probing.Console(record=True) as console:
        assert probing.told({"device": "d", "dots": [row], "sums": []}, console)
    text = console.export_text()
    assert "no known row" in text
    assert paste in text


def test_what_is_of_no_kind_is_told_and_the_status_is_1(monkeypatch):
    row = {"path": "mma", "fmt": "bf16", "accumulator": "fp32", "error": "no DotUnit gives 0x1"}
    monkeypatch.setattr(probing, "rows", lambda *_: {"device": "d", "dots": [row], "sums": []})
    result = run(app, ["probe"])
    assert result.exit_code == 1
    assert "no DotUnit gives 0x1" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--machine", "h2000"], "h200"),
        (["--machine", "h200", "--path", "mna"], "path='mna'"),
        (["--machine", "h200", "--fmt", "fp32"], "fmt='fp32'"),
        (["--machine", "mi100"], "no DotUnit"),
    ],
)
def test_misuse_is_status_2(arguments, words):
    result = run(app, ["probe", *arguments])
    assert result.exit_code == 2
    assert words in result.output


def test_without_a_gpu_it_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "lpsim_triton.probe_device", None)
    result = run(app, ["probe"])
    assert result.exit_code == 2
    assert "lpsim probe --machine h200" in result.output

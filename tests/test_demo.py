"""lpsim demo from an empty folder: agreement of every bit, the figure, its absence, an interrupted save."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lpsim as lp
from lpsim import cli, data
from lpsim.demo import buildup, figure, recorded

ROOT = Path(__file__).parents[1]
PNG = b"\x89PNG\r\n\x1a\n"
#: makes `import matplotlib` fail in a process whose path begins with its folder
BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(f"{name} is hidden")

sys.meta_path.insert(0, Blocker())
"""


def demo(cwd: Path, *arguments: str, path: str = str(ROOT)) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "lpsim", "demo", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "200", "MPLCONFIGDIR": str(cwd)},
        capture_output=True,
        text=True,
        timeout=500,
    )


def check_story(text: str) -> None:
    """All bits agree, the recorded ones are all there, the addition is shown both ways."""
    arrays = data.arrays("flash_forward").items()
    size = sum(x.nbytes * 8 for key, x in arrays if key.partition("_")[2] in ("o", "l", "m"))
    assert f"{size:,} bits" in text
    assert "all of them agree" in text
    rows = re.findall(r"(bf16|fp16) .*│\s*(\d+)\s*│\s*(\d+)\s*│\s*(\d+)\s*│\s*([\d,]+)\s*│", text)
    assert [row[0] for row in rows] == [case["dtype"] for case in recorded.cases()]
    assert {row[1:4] for row in rows} == {("0", "0", "0")}
    assert sum(int(row[4].replace(",", "")) for row in rows) == size
    assert "-4.6875 = 1 10000001 0010110" in text
    assert "-4.71875 = 1 10000001 0010111" in text
    signs = dict(re.findall(r"│ (paper[^│]*?) *│[^│]*│[^│]*│ ([-+]\d\.\d+)", text))
    assert float(signs["paper"]) < -4 * abs(float(signs["paper, dynamic maximum"]))  # V is negative


def test_demo_draws_and_agrees(tmp_path):
    done = demo(tmp_path)
    assert done.returncode == 0, done.stderr
    check_story(done.stdout)
    picture = tmp_path / "lpsim-demo.png"
    assert str(picture) in done.stdout
    assert picture.read_bytes().startswith(PNG)
    assert picture.stat().st_size > 20_000
    assert not list(tmp_path.glob(".*.tmp"))


def test_demo_without_matplotlib(tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(BLOCKER)
    done = demo(tmp_path, path=os.pathsep.join([str(hidden), str(ROOT)]))
    assert done.returncode == 0, done.stderr
    check_story(done.stdout)
    assert "lpsim-numerics[plot]" in done.stdout
    assert not list(tmp_path.glob("*.png"))


def test_a_wrong_bit_is_reported(monkeypatch):
    """The comparison compares: one flipped bit of the recording is one differing value, and exit status 1."""
    arrays = data.arrays("flash_forward")
    arrays["4_o"] = arrays["4_o"].copy()
    arrays["4_o"][0, 17, 3] ^= 1
    monkeypatch.setattr(recorded.data, "arrays", lambda name: arrays)
    monkeypatch.setattr(recorded, "cases", lambda: [data.description("flash_forward")[4]])
    from typer.testing import CliRunner

    from lpsim.cli import story

    monkeypatch.setattr(story, "build_up", lambda *rest: None)
    done = CliRunner().invoke(cli.app, ["demo"])
    assert done.exit_code == 1
    assert "1 values differ" in done.stdout or "1 value differs" in done.stdout


def curves() -> dict:
    """Curves of the right names and lengths, without computing attention."""
    line = np.linspace(-0.2, 0.0, buildup.KEYS)
    return dict.fromkeys(buildup.compared(), buildup.Curve(line, np.full(buildup.KEYS, 0.01)))


def test_an_interrupted_save_leaves_no_half_file(tmp_path, monkeypatch):
    from matplotlib import pyplot

    path = tmp_path / "picture.png"
    path.write_bytes(b"the old picture")
    real = pyplot.Figure.savefig

    def half(self, target, **options):
        real(self, target, **options)
        Path(target).write_bytes(Path(target).read_bytes()[:1000])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pyplot.Figure, "savefig", half)
        with pytest.raises(KeyboardInterrupt):
            figure.save(curves(), path)
    assert path.read_bytes() == b"the old picture"
    assert [p.name for p in tmp_path.iterdir()] == ["picture.png"]
    figure.save(curves(), path)
    assert path.read_bytes().startswith(PNG)
    assert [p.name for p in tmp_path.iterdir()] == ["picture.png"]


def test_the_inputs_of_the_build_up():
    """Both tied keys weigh exactly 1, every other one little, V is negative; all values on bf16's grid."""
    q, k, v = buildup.inputs()
    for x in (q, k, v):
        assert (lp.round(x, "bf16") == x).all()
    scores = np.einsum("bd,bkd->bk", q[:, 0].astype(float), k.astype(float)) / np.sqrt(q.shape[-1])
    first, second = buildup.TIED
    assert (scores[:, first] == scores[:, second]).all()
    assert (scores[:, first] == scores.max(axis=1)).all()
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    assert np.sort(weights, axis=1)[:, -3].max() < 1e-3
    assert v.max() < 0
    assert (q == q[:, :1]).all()


def test_the_description_is_plain_json():
    assert json.loads(json.dumps(recorded.cases())) == recorded.cases()

"""`lpsim verify`: all recordings agree, and a difference is counted, shown and told by the exit status."""

import numpy as np
import pytest
from typer.testing import CliRunner

from lpsim import digest, verify
from lpsim.cli import app


def test_recordings_agree():
    found = [*verify.recorded_dots("mma_tiny"), *verify.recorded_attention()]
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
    """Only one digest is planned, over one chunk, and no dots or attention."""
    monkeypatch.setattr(verify, "EDGE_CHUNKS", (0x7F,))
    monkeypatch.setattr(verify, "recorded_dots", lambda recording: iter(()))
    monkeypatch.setattr(verify, "recorded_attention", lambda: iter(()))
    name = "ptx:cvt.rn.bf16.f32"
    monkeypatch.setattr(digest, "PLAN", {name: digest.PLAN[name]})
    return name


def test_exit_status(one_check, monkeypatch):
    right = CliRunner().invoke(app, ["verify"])
    assert right.exit_code == 0, right.output
    assert "Every compared bit agrees." in right.output

    monkeypatch.setattr(digest, "PLAN", {one_check: digest.cast("bf16")})  # canonical NaN is not the instruction's
    wrong = CliRunner().invoke(app, ["verify"])
    assert wrong.exit_code == 1
    assert "chunk 0x7f: inputs 7F000000 to 7FFFFFFF" in wrong.output

"""The tables of LG2, SIN and TANH: what the script derives from the samples, and that wrong samples are refused."""

import numpy as np
import pytest

from lpsim.core import special_normalised
from script_modules import script_module


@pytest.fixture(scope="module")
def script():
    return script_module("derive_mufu_normalised")


@pytest.fixture(scope="module")
def samples(script):
    with np.load(script.SAMPLES, allow_pickle=False) as stored:
        return dict(stored)


def test_script_derives_the_file_that_is_shipped(script):
    assert script.document() == script.TABLES.read_text()


def test_functions_give_every_sample(script, samples):
    functions = {
        "lg2": special_normalised.lg2_approx_ftz,
        "sin": special_normalised.sin_of_turns,
        "tanh": special_normalised.tanh_approx,
    }
    for name, function in functions.items():
        codes = samples[f"{name}_x"]
        if name == "sin":
            codes = script.times_rz(codes.view(np.float32), script.TWO_PI_INVERSE).view(np.uint32)
        assert [function(int(code)) for code in codes] == samples[f"{name}_y"].tolist()


@pytest.mark.parametrize("name", ["lg2", "sin", "tanh"])
def test_a_wrong_sample_leaves_no_solution(script, samples, name):
    at = script.points(name, samples[f"{name}_x"], samples[f"{name}_y"])
    here = at.segment == 5
    segment = script.Points(*(column[here].copy() for column in at))
    table = script.derive(name)
    assert script.solve_segment(segment, script.SHAPES[name])[0] == tuple(table[c][5] for c in ("c0", "c1", "c2"))
    segment.low[len(segment.low) // 2] += 4 * segment.width.max()
    with pytest.raises(RuntimeError, match="0 solutions"):
        script.solve_segment(segment, script.SHAPES[name])


def test_dumps_are_read_as_they_are_written(script, tmp_path):
    import lzma

    results = np.array([5, 3, 0xFFFFFFFF, 7], np.uint32)
    planes = np.ascontiguousarray(np.diff(results.view(np.int32), prepend=np.int32(0)).view(np.uint8).reshape(-1, 4).T)
    (tmp_path / "lg2.xz").write_bytes(lzma.compress(planes.tobytes()))
    codes, found = script.dumped(tmp_path, "lg2")
    assert found.tolist() == results.tolist()
    assert codes.tolist() == [(126 << 23) + i for i in range(4)]

"""The live comparison of elementwise operations: with a stand-in for the GPU, and with a GPU where there is one."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import lpsim_triton
from lpsim import digest, drawn, native, replay
from lpsim.core import special
from lpsim_triton import crosscheck_elementwise as crosscheck

COMPARED = ("triton:floor", "triton:int8", "ptx:sqrt.rn.f32")


class StandIn:
    """Answers as the kernels would, from the emulator; `fault` is added to one result of the operation it names."""

    def __init__(self):
        self.faulty, self.asked = "", []

    def digests(self, name, word, chunks):
        operation = digest.PLAN[name]
        assert word == f"uint{8 * np.dtype(operation.dtype).itemsize}"
        found = digest.digests(operation.loop, operation.dtype, chunks)
        return found + np.uint64(name == self.faulty)

    def applied(self, what, operands, tensors, fmt, fusion=True):
        self.asked.append((what, fmt))
        if what in ("ex2.approx.f16", "ex2.approx.ftz.bf16", "tanh.approx.f16", "tanh.approx.bf16"):
            name, codes = what, replay.table(what)
        elif what.startswith("cast "):
            name, codes = f"cast {tensors[0].source} {fmt}", replay.table(f"cast {tensors[0].source} {fmt}")
        else:
            name = what if what.startswith("ptx:") else f"{fmt}: {what}" + ("" if fusion else ", not fused")
            codes = replay.compute(name, np.stack([np.asarray(x) for x in tensors]))
        if name == self.faulty:
            codes = codes.copy()
            codes[5] ^= 1
        return codes


class Codes(np.ndarray):
    """Codes that know their format."""

    source: str


def on_gpu(codes, fmt):
    tensor = codes.view(Codes)
    tensor.source = fmt
    return tensor


@pytest.fixture
def gpu_stand_in(monkeypatch):
    stand_in = StandIn()
    plain = [name for name in native.FP32 if "fused" not in name]
    module = SimpleNamespace(
        UNARY=dict.fromkeys(COMPARED, ""),
        OPERATIONS={name: (native.operands_of(name), name) for name in plain},
        BINARY_F32=[name for name in special.BINARY if "." in name],
        INSTRUCTIONS={name: f"ptx:{name}" for name in special.BINARY} | {name: name for name in special.HALVES},
        CASTS={name: f"cast {name}" for name in ("fp32", "bf16", "fp16", "e4m3fn", "e5m2")},
        digests=stand_in.digests,
    )
    monkeypatch.setitem(sys.modules, "lpsim_triton.elementwise", module)
    monkeypatch.setattr(lpsim_triton, "elementwise", module, raising=False)
    monkeypatch.setattr(crosscheck, "on_gpu", on_gpu)
    monkeypatch.setattr(crosscheck, "applied", stand_in.applied)
    monkeypatch.setattr(crosscheck, "PROCESSES", 1)
    monkeypatch.setattr(crosscheck, "PIECE", 1 << 12)
    monkeypatch.setattr(crosscheck, "DRAWS", 1 << 21)
    return stand_in


def test_all_that_is_recorded_is_compared_and_agrees(gpu_stand_in):
    found = list(crosscheck.checks(seed=3, scale=1 / 256))
    names = [check.operation for check in found]
    assert len(set(names)) == len(names)
    assert set(names) == {*COMPARED, *replay.names(), *replay.tables()}
    assert [check for check in found if check.differing or check.example or check.recording != "live"] == []
    compared = {check.operation: check.compared for check in found}
    assert compared["triton:floor"] == 1 << 24
    assert compared["bf16: add"] == round(crosscheck.DRAWS / 256)
    assert compared["cast e5m2 bf16"] == 256
    assert compared["tanh.approx.f16"] == 1 << 16


@pytest.mark.parametrize("faulty", ["fp32: div", "fp16: x*y + z*w, not fused", "ptx:div.approx.ftz.f32"])
def test_a_single_wrong_bit_is_found_and_named(gpu_stand_in, faulty):
    gpu_stand_in.faulty = faulty
    fmt = replay.format_of(faulty)
    found = {check.operation: check for check in crosscheck.several(fmt, seed=4, scale=1e-9)}
    assert [name for name, check in found.items() if check.differing] == [faulty]
    assert found[faulty].differing == 1
    operands = drawn.codes(4, 0, 6, fmt)
    digits = 2 * operands.itemsize
    assert found[faulty].example.startswith(f"x {operands[0, 5]:0{digits}X}, y {operands[1, 5]:0{digits}X}")
    assert found[faulty].example.count("GPU") == 1


def test_a_wrong_table_is_found(gpu_stand_in):
    gpu_stand_in.faulty = "cast e4m3fn fp16"
    wrong = [check for check in crosscheck.tables() if check.differing]
    assert [(check.operation, check.differing) for check in wrong] == [("cast e4m3fn fp16", 1)]
    assert wrong[0].example.startswith("x 0005:")


def test_a_wrong_digest_is_found_and_its_first_input_named(gpu_stand_in, monkeypatch):
    gpu_stand_in.faulty = "triton:floor"
    monkeypatch.setattr(crosscheck, "first_difference", lambda name, chunk: f"{name} in {chunk}")
    chunk = crosscheck.chosen_chunks(5, 1e-9)
    wrong = [check for check in crosscheck.unary(5, 1e-9) if check.differing]
    assert [(check.operation, check.differing) for check in wrong] == [("triton:floor", 1 << 24)]
    assert wrong[0].example == f"triton:floor in {chunk[0]}"


def test_what_is_one_function_is_computed_once():
    first = crosscheck.same_loop(["triton:bf16", "ptx:cvt.rn.bf16.f32", "ptx:cvt.rz.bf16.f32", "triton:int8"])
    assert first["ptx:cvt.rn.bf16.f32"] == "triton:bf16"
    assert len(set(first.values())) == 3


def test_chunks_are_all_of_them_at_full_scale_and_a_share_below():
    assert crosscheck.chosen_chunks(1, 1.0) == list(range(256))
    few = crosscheck.chosen_chunks(1, 0.02)
    assert len(few) == 5
    assert few == crosscheck.chosen_chunks(1, 0.02)
    assert few != crosscheck.chosen_chunks(2, 0.02)


def test_the_smallest_failing_case_is_the_one_shown():
    operands = [np.array([3, 2, 2, 9], np.uint16), np.array([1, 8, 7, 0], np.uint16)]
    ours, theirs = np.array([1, 2, 3, 4], np.uint16), np.array([0, 0, 0, 4], np.uint16)
    shown = crosscheck.smallest(operands, ours, theirs, np.array([0, 1, 2]))
    assert shown == "x 0002, y 0007: emulator 0003, GPU 0000"


@pytest.mark.gpu
def test_the_gpu_gives_the_emulators_bits(gpu):
    assert [check for check in crosscheck.checks(seed=6, scale=1 / 256) if check.differing] == []

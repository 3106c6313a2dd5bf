"""Reductions: recorded bits of an H200 against the emulator, and live ones where there is a GPU."""

import numpy as np
import pytest

from lpsim import data, reduction_cases, verify
from lpsim_triton import crosscheck_reductions as crosscheck

RECORDED = data.arrays("reductions")
CASES = reduction_cases.cases()


def test_the_emulator_gives_the_recorded_bits():
    rows = list(verify.recorded_reductions())
    assert [row for row in rows if row.differing] == []
    assert sum(row.compared for row in rows) == sum(words.size for words in RECORDED.values()) > 10_000
    assert len(rows) >= 25


def test_another_order_does_not_give_them(monkeypatch):
    """Rows with other warps and alignment, or sums without contraction: the recording sees it."""
    real = reduction_cases.emulated

    def narrower(case, x, y):
        changed = case._replace(num_warps=1 if case.num_warps > 1 else 8, aligned=not case.aligned)
        return real(changed if len(case.shape) == 1 else case, x, y)

    def rounded(case, x, y):
        contracted = case.operation == "products" and case.dtype == "fp32"
        return real(case._replace(operation="products, no fusion") if contracted else case, x, y)

    monkeypatch.setattr(reduction_cases, "emulated", narrower)
    wrong = {row.operation for row in verify.recorded_reductions() if row.differing}
    assert {"tl.sum fp32", "tl.sum fp16", "tl.sum bf16", "tl.cumsum fp32"} <= wrong
    monkeypatch.setattr(reduction_cases, "emulated", rounded)
    assert {row.operation for row in verify.recorded_reductions() if row.differing} == {"tl.products fp32"}


def test_the_cases_cover_what_a_kernel_varies():
    pairs = {(case.operation, case.dtype) for case in CASES}
    assert len(pairs) == 6 * 5 - 3  # contraction is modelled in fp32; integers are exact
    for field, values in (("num_warps", {1, 2, 4, 8}), ("aligned", {True, False}), ("axis", {0, 1})):
        for operation in reduction_cases.OPERATIONS:
            assert {getattr(case, field) for case in CASES if case.operation == operation} == values
    for inputs in reduction_cases.INPUTS:
        assert {case.dtype for case in CASES if case.inputs == inputs} == set(reduction_cases.DTYPES)
    recorded = {(CASES[int(key)].operation, CASES[int(key)].dtype) for key in RECORDED}
    assert recorded == pairs


def test_inputs_can_be_made_again_and_differ_between_cases():
    case = CASES[0]
    x, y = reduction_cases.operands(case, 5, 0, 0.0)
    again, _ = reduction_cases.operands(case, 5, 0, 0.0)
    assert np.array_equal(x.view(np.uint32), again.view(np.uint32))
    assert not np.array_equal(x.view(np.uint32), y.view(np.uint32))
    assert reduction_cases.splitmix(0, 0, 1).tolist() == [0xE220A8397B1DCDAF]  # the first word of splitmix64(0)
    assert len({int(reduction_cases.splitmix(s, i, 1)[0]) for s in range(8) for i in range(8)}) == 64


def test_layouts_are_read_from_ttgir():
    text = """#blocked1 = #ttg.blocked<{sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>
  %7 = "tt.reduce"(%6) <{axis = 0 : i32}> ({
  ^bb0(%a: f32, %b: f32):
    tt.reduce.return %9 : f32
  }) : (tensor<512xf32, #blocked1>) -> f32
"""
    case = reduction_cases.Case("sum", "fp32", (512,), 0, 4, True, "normal")
    assert crosscheck.written_layout(text) == crosscheck.expected_layout(case)
    assert crosscheck.written_layout("") == ""
    mma = (
        "#mma = #ttg.nvidia_mma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 2], instrShape = [16, 128, 16]}>"
    )
    assert crosscheck.accumulator_layout(mma) == ((4, 2), 128)
    with pytest.raises(LookupError):
        crosscheck.accumulator_layout("")


@pytest.mark.gpu
def test_live():
    assert [row for row in crosscheck.checks(seed=3, scale=0.02) if row.differing] == []

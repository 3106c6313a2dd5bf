"""The live check of the quantise kernels: what it asks, that it sees a wrong bit; and the replay of its recording."""

import numpy as np
import pytest

from lpsim import data
from lpsim.formats import FORMATS
from lpsim.policies import NANS, OVERFLOWS, ROUNDINGS, SUBNORMALS, Stochastic
from lpsim_triton import crosscheck_draws as draws
from lpsim_triton import crosscheck_quantize as crosscheck
from lpsim_triton import recorded_quantize as recorded
from lpsim_triton.crosscheck_quantize import Case

RECORDED = data.description("quantize")


def rounding(case: Case):
    mode = dict(case.rules).get("rounding", "rne")
    return mode.variant if isinstance(mode, Stochastic) else mode


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1])
def test_every_format_meets_every_mode_and_every_policy_is_met(seed):
    cases = crosscheck.cases(seed, 0.001)
    pairs = {(case.fmt, rounding(case)) for case in cases if case.what == "encode"}
    assert pairs == {(fmt, mode) for fmt in crosscheck.TARGETS for mode in (*ROUNDINGS, *"ABC")}
    assert {case.what for case in cases} == {"encode", "round", "decode", "add", "sub", "mul", "div", "sqrt", "fma"}
    assert {case.source for case in cases} == set(crosscheck.SOURCES)
    for name, known in (("overflow", OVERFLOWS), ("nan", NANS), ("subnormals", SUBNORMALS)):
        assert {dict(case.rules)[name] for case in cases if name in dict(case.rules)} == set(known)
    bits = {dict(case.rules)["rounding"].bits for case in cases if rounding(case) in tuple("ABC")}
    assert bits == set(range(1, 33))


def test_another_seed_asks_other_questions():
    assert crosscheck.cases(1, 0.001) != crosscheck.cases(2, 0.001)
    assert not np.array_equal(draws.words(1, 0, 100), draws.words(2, 0, 100))
    assert not np.array_equal(draws.words(1, 0, 100), draws.words(1, 1, 100))
    assert np.array_equal(draws.words(1, 5, 100)[:10], draws.words(1, 5, 10))  # a case keeps its name


def test_words_are_splitmix64s():
    found = draws.splitmix64(np.arange(3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    assert [f"{int(w):016x}" for w in found] == ["e220a8397b1dcdaf", "6e789e6aa1b965f4", "06c45d188009454f"]


@pytest.mark.parametrize("source", crosscheck.SOURCES)
def test_inputs_hold_what_rounding_is_about(source):
    drawn = draws.floats(3, 0, 20_000, crosscheck.SOURCES[source], FORMATS["e2m1"])
    with np.errstate(invalid="ignore"):  # signalling NaN
        x = drawn.astype(np.float64)
    assert np.isnan(x).any()
    assert {0.0, 1.0, 1.5, 2.5} <= set(x)  # 2.5: between neighbours
    assert np.signbit(x[x == 0]).any()
    assert not np.signbit(x[x == 0]).all()
    if source not in ("e4m3fn",):
        assert np.isposinf(x).any()
        assert np.isneginf(x).any()


def test_a_wrong_bit_is_seen_and_the_smallest_case_named(monkeypatch):
    case = Case("encode", "e4m3fn", "fp32", (("rounding", "rne"),), 500)
    operands = crosscheck.inputs(1, 2, case)
    right = crosscheck.emulated(case, operands)
    monkeypatch.setattr(crosscheck, "on_gpu", lambda case, operands: right.copy())
    assert crosscheck.run(1, 2, case) == (500, 0, "")

    wrong = right.copy()
    wrong[[40, 300]] ^= 1
    monkeypatch.setattr(crosscheck, "on_gpu", lambda case, operands: wrong)
    compared, differing, example = crosscheck.run(1, 2, case)
    assert (compared, differing) == (500, 2)
    bits = operands[0].view(np.uint32) & 0x7FFFFFFF
    smallest = 40 if bits[40] < bits[300] else 300
    assert f"element {smallest}: {operands[0].view(np.uint32)[smallest]:08X} gives" in example
    assert f"emulated {right[smallest]:02X}" in example

    monkeypatch.setattr(crosscheck, "on_gpu", lambda case, operands: right.astype(np.uint16))
    assert crosscheck.run(1, 2, case)[1] == 500


def test_rows_add_up():
    results = iter([(10, 0, ""), (5, 2, "bits"), (5, 1, "more")])
    found = list(crosscheck.rows(["a", "b", "b"], results))
    assert found == [crosscheck.Check("a", "live", 10, 0), crosscheck.Check("b", "live", 10, 3, "bits")]


def test_a_changed_digest_is_seen():
    digests = dict(RECORDED["digests"])
    label = next(label for label in digests if "encode fp32 to e5m2" in label)
    digests[label] = "0" * 16
    wrong = [check for check in recorded.replay(digests) if check.differing]
    assert [check.operation for check in wrong] == ["encode to e5m2"]  # and nothing else differs
    assert wrong[0].example == label
    del digests[label]
    with pytest.raises(KeyError):
        list(recorded.replay(digests))


def test_the_recording_says_what_made_it():
    assert {"device", "driver", "torch", "triton", "ptxas", "cuda", "seed"} <= set(RECORDED)
    assert RECORDED["seed"] == recorded.SEED
    assert {item.label for item in recorded.items()} == set(RECORDED["digests"])


def test_live(gpu):
    found = list(crosscheck.checks(7, 0.002))
    assert [check for check in found if check.differing] == []
    assert len(found) > 100

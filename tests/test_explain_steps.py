"""Explanations of sums, dots, two-step forms and comparisons: the steps add up, and are those of the arrays."""

import math
from fractions import Fraction

import numpy as np
import pytest

import lpsim as lp
from lpsim import explain
from lpsim.reductions import ORDERS, blocked, split_k

X = (np.random.default_rng(0).normal(size=16) * 3).astype(np.float32)
Y = (np.random.default_rng(1).normal(size=16) * 3).astype(np.float32)
PLANS = [*ORDERS, split_k(3, partial="bf16"), blocked(4, within="e5m2", rounding="rtz"), blocked(5, outer="tree")]


def test_a_tie_that_loses_every_small_summand():
    found = explain.sum([1.0, 2.0**-8, 2.0**-8], "bf16")
    assert (found.value, found.error) == (1.0, Fraction(-1, 128))
    assert [step.error for step in found.steps] == [Fraction(-1, 256)] * 2
    text = str(found)
    assert text.splitlines()[0] == "sum of 3 in bf16, sequential"
    assert "1.0 + 0.00390625 in bf16 = 1.0   rne: a tie; the kept part is even, ties go to even: toward zero" in text
    assert "exact   1.0078125 = +1.0000001 x 2^0" in text
    assert "<caption>sum of 3 in bf16, sequential</caption>" in found._repr_html_()


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize("accumulate", [None, "fp32"])
def test_sum(plan, accumulate):
    found = explain.sum(X, "bf16", order=plan, accumulate=accumulate)
    assert found.value == lp.sum(X, "bf16", order=plan, accumulate=accumulate)
    assert found.error == Fraction(found.value) - sum(map(Fraction, X.tolist()))
    if plan != "kahan":  # Kahan's corrections are no part of the sum
        assert sum(step.error for step in found.steps) == found.error


@pytest.mark.parametrize("fused", [False, True])
def test_dot(fused):
    found = explain.dot(X, Y, "fp16", order=split_k(2, partial="bf16"), accumulate="fp32", fused=fused)
    assert found.value == lp.dot(X, Y, "fp16", order=split_k(2, partial="bf16"), accumulate="fp32", fused=fused)
    assert sum(step.error for step in found.steps) == found.error
    assert "fma(" in str(found) or not fused


@pytest.mark.parametrize("variant", ["A", "B"])
def test_stochastic_steps_have_their_own_words(variant):
    noise = lp.stochastic(bits=6, seed=4, stream=1, step=2, offset=77, variant=variant)
    found = explain.sum(X, "bf16", order="tree", rounding=noise)
    assert found.value == lp.sum(X, "bf16", order="tree", rounding=noise)
    assert {step.step.up for step in found.steps} == {0, 1}
    assert all("probability" in dict(step.rows) for step in found.steps)


def test_flushed_partial_sums():
    x = np.float32([2.0**-127, 2.0**-127, 2.0**-128])
    for subnormals in ("keep", "flush_in", "flush_out", "flush"):
        for order in ("sequential", "kahan", split_k(3, partial="bf16")):
            found = explain.sum(x, "bf16", order=order, accumulate="fp32", subnormals=subnormals)
            assert found.value == lp.sum(x, "bf16", order=order, accumulate="fp32", subnormals=subnormals)


def test_not_finite():
    found = explain.sum([1.0, math.inf, -math.inf], "bf16")
    assert math.isnan(found.value)
    assert found.error is None
    assert "exact" not in dict(found.rows)


def test_two_steps_beside_one():
    found = explain.encode_via(63343.99805, "fp16", through="fp32")
    assert found.value == 63360 == lp.decode(lp.encode_via(63343.99805, "fp16", through="fp32"), "fp16")
    assert dict(found.rows)["one rounding"] == "63328.0: not the same"
    assert found.error == 63360 - Fraction(63343.99805)
    x, z = (float(lp.decode(code, "bf16")) for code in (0x3F81, 0xBF82))
    assert explain.mul_then_add(x, x, z, "bf16").value == 0
    assert explain.mul_then_add(x, x, z, "bf16").error == -Fraction(1, 2**14)
    assert dict(explain.fma_via_fp32(x, x, z, "bf16").rows)["one rounding"] == f"{2.0**-14}: the same"


EXTREMES = [  # a, b, function, words of the rule
    (0x0000, 0x8000, "minimum", "b is the smaller; -0 lies below +0"),
    (0x0000, 0x8000, "maximum", "a is the larger; -0 lies below +0"),
    (0x3F80, 0x4000, "maximum", "b is the larger"),
    (0x7FC1, 0x4000, "minimum", "a is NaN: NaN, quiet"),
    (0x3F80, 0x7FC1, "minimum_number", "b is NaN: the other"),
    (0x7FC1, 0xFFC1, "maximum_number", "both are NaN"),
    (0x3F80, 0x3F80, "minimum", "equal"),
]


@pytest.mark.parametrize(("a", "b", "name", "words"), EXTREMES)
def test_extremes(a, b, name, words):
    found = getattr(explain, name)(a, b, "bf16")
    assert found.result == getattr(lp, name)(a, b, "bf16")
    assert words in dict(found.rows)["rule"]


def test_compare():
    assert explain.compare(0x0000, 0x8000, "bf16").result == 0
    assert "+0 and -0 are equal" in str(explain.compare(0x0000, 0x8000, "bf16"))
    assert "unordered" in str(explain.compare(0x80, 0x01, "e4m3fnuz"))
    assert explain.compare(0x80, 0x01, "e4m3fn").result == -1
    with pytest.raises(TypeError, match="arrays"):
        explain.compare(np.zeros(2, np.uint16), 0, "bf16")

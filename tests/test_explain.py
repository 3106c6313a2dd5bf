"""Explanations: the paper's example digit by digit; code, value and error against arrays and Fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest

import lpsim as lp
import oracle
import probes
from lpsim import explain, spell
from lpsim.formats import FORMATS
from lpsim.policies import VARIANTS
from operations import OPERATIONS
from oracle import INF, NAN

RESIDUAL = -0.0008654594421387


def row(step: explain.Explanation, label: str) -> str:
    return dict(step.rows)[label]


# The paper's addition (arXiv 2510.04212, section 3.3): its own bits --------------------------------------------


def test_the_papers_tie():
    step = explain.add(-2.40625, -2.296875, "bf16")
    assert row(step, "a") == "-2.40625 = 1 10000000 0011010 = 0xC01A"
    assert row(step, "b") == "-2.296875 = 1 10000000 0010011 = 0xC013"
    assert row(step, "exact") == "-1.00101101 x 2^2"
    assert row(step, "kept | rest") == "-1.0010110 | 1   guard 1, sticky 0"
    assert row(step, "neighbours") == "-4.6875 and -4.71875, midpoint -4.703125"
    assert "a tie" in row(step, "rule")
    assert "even" in row(step, "rule")
    assert row(step, "result") == "-4.6875 = 1 10000001 0010110 = 0xC096"
    assert (step.value, step.code, step.error) == (-4.6875, 0xC096, Fraction(1, 64))


def test_the_papers_residual_flips_the_sign():
    running = float(np.float32(-2.40625 + RESIDUAL))
    step = explain.add(running, -2.296875, "bf16")
    assert row(step, "kept | rest").startswith("-1.0010110 | 1000011100010111")
    assert "guard 1, sticky 1" in row(step, "kept | rest")
    assert "above the midpoint, away from zero" in row(step, "rule")
    assert row(step, "result") == "-4.71875 = 1 10000001 0010111 = 0xC097"
    assert step.error == Fraction(-4.71875) - Fraction(running) - Fraction(-2.296875)
    assert float(step.error) == pytest.approx(-0.014759540557861328, rel=1e-9)


def test_449_in_e4m3fn():
    step = explain.encode(449, "e4m3fn")
    assert (step.code, step.value, step.error) == (0x7E, 448.0, -1)
    assert row(step, "neighbours") == "448.0 and 480.0, midpoint 464.0"
    assert "449 to e4m3fn" in str(step)


# Against arrays and the oracle ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rounding", ["rne", "rna", "rtz", "rtp", "rtn", "rto"])
@pytest.mark.parametrize("name", ["bf16", "e4m3fn", "tf32"])
def test_encode_explains_what_encode_does(name, rounding):
    fmt = FORMATS[name]
    points = [v for v in probes.values(fmt, 1, 3) if isinstance(v.magnitude, str) or v.magnitude < 2**900][::5]
    for point in points:
        if isinstance(point.magnitude, str):
            x = (-1) ** point.sign * {INF: math.inf, NAN: math.nan}[point.magnitude]
            error = None
        else:
            x = (-1) ** point.sign * point.magnitude
        step = explain.encode(x, fmt, rounding=rounding)
        array = np.array(x, dtype=object) if isinstance(x, Fraction) else x
        assert step.code == lp.encode(array, fmt, rounding=rounding)
        decoded = lp.decode(np.asarray(step.code, f"u{np.asarray(lp.encode(1.0, fmt)).itemsize}"), fmt)
        assert step.value == decoded or (math.isnan(step.value) and np.isnan(decoded))
        error = Fraction(step.value) - x if math.isfinite(step.value) and math.isfinite(x) else None
        assert step.error == error
        assert str(step)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_explain_what_they_do(name):
    rng = np.random.default_rng(3)
    arity = OPERATIONS[name].arity
    special = [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 2.0**-133, 3.3895313892515355e38]
    given = rng.normal(size=(40, arity)).tolist() + rng.choice(special, size=(60, arity)).tolist()
    for operands in given:
        step = getattr(explain, name)(*operands, "bf16", rounding="rtn")
        wanted = getattr(lp, name)(*operands, "bf16", rounding="rtn")
        assert np.float64(step.value).tobytes() == np.float64(wanted).tobytes() or (
            math.isnan(step.value) and math.isnan(wanted)
        )
        exact = OPERATIONS[name].oracle(*map(oracle.number, operands), "rtn")
        if name == "sqrt":  # its error is tested below
            continue
        if isinstance(exact.magnitude, Fraction) and all(map(math.isfinite, (*operands, step.value))):
            assert step.error == Fraction(step.value) - (-1) ** exact.sign * exact.magnitude
        else:
            assert step.error is None


def test_infinite_operands_are_codes():
    assert row(explain.add(1.0, math.inf, "bf16"), "b") == "inf = 0 11111111 0000000 = 0x7F80"
    assert row(explain.add(1.0, -math.inf, "e4m3fn"), "b").startswith("-inf = 1 11111111 0000")
    assert row(explain.add(1.0, 1e300, "bf16"), "b").endswith("(binary64)")
    assert row(explain.add(1.0, 1 + 2.0**-20, "bf16"), "b").endswith("(fp32: more bits than bf16)")


def test_roots_have_errors_too():
    step = explain.sqrt(2.0, "bf16")
    assert step.value == 1.4140625
    assert abs(step.error - (Fraction(1.4140625) - Fraction(math.isqrt(2 << 400), 1 << 200))) < Fraction(1, 2**190)
    assert explain.sqrt(4.0, "bf16").error == 0
    assert explain.sqrt(-1.0, "bf16").error is None


def test_convert():
    step = explain.convert(0x3F81, "bf16", "e4m3fn")
    assert (step.value, step.error) == (1.0, Fraction(-1, 128))
    assert row(step, "bf16") == "1.0078125 = 0 01111111 0000001 = 0x3F81"
    assert explain.convert(np.uint16(0x3F81), "bf16", "e4m3fn") == step


# What decided --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "rules", "words"),
    [
        (1.0, {}, "exact: nothing is discarded"),
        (1.001, {}, "below the midpoint, toward zero"),
        (1.00390625, {"rounding": "rna"}, "a tie; ties go away from zero: away from zero"),
        (1.01171875, {}, "a tie; the kept part is odd, ties go to even: away from zero"),
        (1.001, {"rounding": "rtp"}, "rtp: away from zero"),
        (-1.001, {"rounding": "rtp"}, "rtp: toward zero"),
        (1e39, {}, "overflow='ieee' gives infinity"),
        (1e39, {"overflow": "saturate"}, "overflow='saturate' gives the largest finite value"),
        (math.inf, {"overflow": "satfinite"}, "infinity; overflow='satfinite'"),
        (math.nan, {}, "NaN"),
        (2.0**-130, {"subnormals": "flush_out"}, "a subnormal result is flushed to zero"),
    ],
)
def test_the_rule_in_words(x, rules, words):
    assert words in row(explain.encode(x, "bf16", **rules), "rule")


def test_flushed_operands_are_said():
    step = explain.add(2.0**-130, 1.0, "bf16", subnormals="flush_in")
    assert "a is subnormal in bf16 and counts as 0.0" in row(step, "flushed")
    assert step.error == 0
    single = explain.encode(np.float32(1e-40), "fp32", subnormals="flush_in")
    assert (single.value, single.code) == (0.0, lp.encode(np.float32(1e-40), "fp32", subnormals="flush_in"))
    assert explain.encode(2.0**-130, "bf16", subnormals="flush").code == 0


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("bits", [1, 3, 8])
def test_probability_counts_the_random_integers(bits, variant):
    """Of all 2^bits integers, as many round away as the explanation says; the oracle decides each."""
    for sixteenths in range(0, 64, 3):
        nu = Fraction(sixteenths, 64)
        wanted = sum(oracle.grows(0, nu, 0, variant, bits, word) for word in range(1 << bits))
        assert spell.away_count(nu, bits, variant) == wanted
    noise = lp.stochastic(bits=bits, words=[0], variant=variant)
    step = explain.encode(1.0 + 2.0**-7 * 0.3125, "bf16", rounding=noise)
    count = spell.away_count(Fraction(5, 16), bits, variant)
    assert f"{count} of {1 << bits} random integers" in row(step, "probability")


def test_keyed_noise_is_that_of_element_zero():
    for seed in range(20):
        noise = lp.stochastic(bits=8, seed=seed, stream=1, offset=5)
        assert explain.encode(1.003, "bf16", rounding=noise).code == lp.encode(1.003, "bf16", rounding=noise)


# Refused -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "call", "words"),
    [
        (TypeError, lambda: explain.encode("449", "bf16"), "x='449'"),
        (TypeError, lambda: explain.encode(True, "bf16"), "x=True"),
        (TypeError, lambda: explain.encode(1j, "bf16"), "x=1j"),
        (TypeError, lambda: explain.encode(None, "bf16"), "x=None"),
        (TypeError, lambda: explain.encode(np.uint8(3), "bf16"), "uint8"),
        (TypeError, lambda: explain.encode(np.ones(2), "bf16"), "x=array"),
        (TypeError, lambda: explain.add("1", 2.0, "bf16"), "a='1'"),
        (TypeError, lambda: explain.add(1.0, True, "bf16"), "b=True"),
        (TypeError, lambda: explain.add(2**70 + 1, 1.0, "bf16"), "binary64"),
        (ValueError, lambda: explain.add(1.0, 2.0, "bf61"), "Did you mean 'bf16'"),
        (ValueError, lambda: explain.add(1.0, 2.0, "fp64"), "fp64"),
        (ValueError, lambda: explain.add(1.0, 2.0, "bf16", rounding="rn"), "rounding='rn'"),
        (ValueError, lambda: explain.convert(-1, "bf16", "e5m2"), "code=-1"),
        (ValueError, lambda: explain.convert(1 << 16, "bf16", "e5m2"), "16 bits"),
        (ValueError, lambda: explain.convert(1, "tf32", "bf16"), "13"),
        (ValueError, lambda: explain.convert(1, "fp64", "bf16"), "source='fp64'"),
        (TypeError, lambda: explain.convert(1.0, "bf16", "e5m2"), "float64"),
        (TypeError, lambda: explain.convert(np.zeros(2, np.uint16), "bf16", "e5m2"), "one code"),
    ],
)
def test_what_is_refused(error, call, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def test_numpy_numbers():
    assert explain.encode(np.int64(3), "e4m3fn") == explain.encode(3, "e4m3fn")
    assert explain.encode(np.float32(1.1), "bf16").error == Fraction(1.1015625) - Fraction(float(np.float32(1.1)))
    assert explain.add(np.float32(1.5), 2.0, "bf16").value == 3.5


def test_html_has_every_row_and_is_escaped():
    tie = explain.add(-2.40625, -2.296875, "bf16")
    assert tie._repr_html_().count("<tr>") == len(tie.rows)
    step = explain.Explanation("<b>", (("a<b", "x & y"),), explain.encode(1, "bf16").step, 0, 0.0, None)
    assert "<b>" not in step._repr_html_().replace("<b>x", "")
    assert "&lt;b&gt;" in step._repr_html_()
    assert "x &amp; y" in step._repr_html_()

"""Probabilities and biases of stochastic rounding, against the oracle's decision word by word."""

from fractions import Fraction

import numpy as np
import pytest

import lpsim as lp
import oracle
import probes
from lpsim.formats import FORMATS
from lpsim.probability import HARDWARE, mean_after


def share(value: oracle.Value, fmt, bits: int, variant: str) -> Fraction:
    """By trying every word."""
    m, nu = oracle.neighbours(value.magnitude, fmt)
    ups = sum(oracle.grows(m, nu, value.sign, variant, bits, word) for word in range(2**bits))
    return Fraction(ups, 2**bits)


@pytest.mark.parametrize("variant", ["A", "B", "C"])
@pytest.mark.parametrize("bits", [1, 2, 5])
@pytest.mark.parametrize("name", ["e4m3fn", "e2m1", "bf16"])
def test_every_word(name, bits, variant):
    fmt = FORMATS[name]
    points = [x for x in probes.values(fmt, count=8) if not isinstance(x.magnitude, str)][::3]
    numbers = np.array([(-1) ** x.sign * x.magnitude for x in points], object)
    found = lp.stochastic_probability(numbers, fmt, bits, variant)
    assert found.tolist() == [float(share(x, fmt, bits, variant)) for x in points]


def test_floats_and_fractions_agree():
    x = np.random.default_rng(0).normal(size=(3, 50)).astype(np.float32)
    exactly = np.array([Fraction(float(v)) for v in x.flat], object).reshape(x.shape)
    for bits in (7, 16, 32):
        found = lp.stochastic_probability(x, "bf16", bits)
        assert found.shape == x.shape
        assert np.array_equal(found, lp.stochastic_probability(exactly, "bf16", bits))


def test_known_shares():
    assert lp.stochastic_probability(1 + 2.0**-9 + 2.0**-11, "bf16", 16) == Fraction(5, 16)
    assert lp.stochastic_probability(456.0, "e4m3fn", 16) == Fraction(1, 4)  # to NaN, or satfinite's 448 again
    assert lp.stochastic_probability(-1 - Fraction(1, 3), "e2m1", 2) == Fraction(1, 2)  # nu = 2/3, two bits of it
    assert lp.stochastic_probability(1.0, "bf16", 8) == 0
    assert lp.stochastic_probability(np.array([np.nan, np.inf, -0.0]), "bf16", 8).tolist() == [0, 0, 0]


@pytest.mark.parametrize("variant", ["A", "B", "C"])
def test_two_bits(variant):
    """Sixteenths of an ulp, two random bits: the counts that users have met, and their mean."""
    counts = [4 * lp.stochastic_probability(1 + k * 2.0**-11, "bf16", 2, variant) for k in range(16)]
    if variant == "A":
        assert counts == [k // 4 for k in range(16)]
    biases = [lp.stochastic_bias(2, variant, Fraction(k, 16)) for k in range(16)]
    assert biases == [Fraction(count, 4) - Fraction(k, 16) for k, count in enumerate(counts)]


@pytest.mark.parametrize("variant", ["A", "B", "C"])
@pytest.mark.parametrize("bits", range(1, 8))
def test_mean_and_worst_bias(bits, variant):
    """The bias is linear between multiples of 2^-(bits+1), so midpoints of those cells give the mean exactly."""
    cells = 2 ** (bits + 2)
    biases = [lp.stochastic_bias(bits, variant, Fraction(2 * k + 1, 2 * cells)) for k in range(cells)]
    assert sum(biases) / cells == lp.stochastic_bias(bits, variant)
    assert lp.stochastic_bias(bits, variant) == {"A": Fraction(-1, 2 ** (bits + 1))}.get(variant, 0)
    assert max(map(abs, biases)) < Fraction(1, 2 ** (bits + (variant != "A")))


def test_mean_after_rounding():
    assert mean_after(1 + 2.0**-9, "bf16", 16) == 1 + Fraction(1, 2**9)
    assert mean_after(-1 - 3 * 2.0**-10, "bf16", 2) == -1 - Fraction(1, 2**9)  # nu = 3/8 counts as 1/4
    with pytest.raises(ValueError, match="infinity"):
        mean_after(3.4e38, "bf16", 4)


def test_hardware_widths():
    assert sorted(row.bits for row in HARDWARE.values()) == [8, 13, 16, 20, 21]
    for name, row in HARDWARE.items():
        noise = lp.hardware_noise(name, seed=1, stream=2)
        assert (noise.bits, noise.variant, noise.seed, noise.stream) == (row.bits, "A", 1, 2)
        assert lp.stochastic_bias(noise.bits, noise.variant) == -Fraction(1, 2 ** (row.bits + 1))
        lp.encode(np.ones(3, np.float32), row.fmt, rounding=noise)
    # bits that reach as far as float32's discarded ones: no bias at all from float32
    x = np.float32(1) + np.arange(16, dtype=np.float32) * np.float32(2.0**-23)
    for name in ("cvt.rs.bf16x2", "cvt.rs.f16x2", "cvt_sr_fp8", "cvt_sr_bf8"):
        row = HARDWARE[name]
        ulp = 2.0 ** (1 - FORMATS[row.fmt].precision)
        assert np.array_equal(lp.stochastic_probability(x, row.fmt, row.bits), (x.astype(np.float64) - 1) / ulp)


def test_what_is_not_published_is_refused():
    with pytest.raises(lp.NotModelled, match="e4m3x4"):
        lp.hardware_noise("cvt.rs.e4m3x4", seed=0, stream=0)
    with pytest.raises(ValueError, match="bf16x2"):
        lp.hardware_noise("cvt.rs.bf16", seed=0, stream=0)
    with pytest.raises(ValueError, match="nu"):
        lp.stochastic_bias(2, "A", Fraction(1))
    with pytest.raises(ValueError, match="variant"):
        lp.stochastic_bias(2, "D")

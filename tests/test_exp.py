"""exp_f32 is the float32 nearest to e^x: against integer arithmetic of 300 bits, the hardest arguments included."""

import functools
import math
import types
from fractions import Fraction

import numpy as np
import pytest

from exact_exp import WORK, nearest_exp, scaled_exp
from lpsim.core import exp
from lpsim.core.exactsum import to_f32

#: binades that are searched for hard arguments: tiny, around 1, where results are subnormal, near overflow
BINADES = [(1.0, 1), (1.0, -1), (2.0**-12, 1), (2.0**-12, -1), (8.0, -1), (64.0, 1), (64.0, -1)]

#: of all float32 from 2^-26 to 2^7 and their negatives, those on which exp +- DOUBT straddles a rounding border
UNDECIDED = (
    "0x1.fdff02p-17", "0x1.8d7cb6p-12", "0x1.036492p+1", "0x1.62b666p+1",
    "-0x1p-25", "-0x1.c1c4b8p-10", "-0x1.e1dbe2p-8", "-0x1.d2259ap+3",
)  # fmt: skip


@functools.cache
def hardest(start: float, sign: int, count: int) -> np.ndarray:
    """Of the float32 arguments in [start, 2 start), those whose e^x lies nearest to a rounding border.

    Every eighth one is looked at, with binary64's exp, whose error only blurs the order of the candidates.
    """
    x = (np.arange(0, 1 << 23, 8, dtype=np.int32) + np.float32(start).view(np.int32)).view(np.float32)
    x = x[x < (88.7 if sign > 0 else 104)] * np.float32(sign)  # beyond, the answer is infinity or zero
    y = np.exp(x.astype(np.float64))
    lowest = 2.0**-149
    ulp = np.maximum(2.0 ** (np.floor(np.log2(y)) - 23), lowest)
    distance = np.abs(y / ulp % 1.0 - 0.5)
    return x[np.argsort(distance)[:count]]


def check(x: np.ndarray) -> None:
    found = np.empty_like(x)
    exp.exp_all(x, found)
    wanted = np.array([nearest_exp(Fraction(float(value))) for value in x], np.uint32)
    wrong = np.flatnonzero(found.view(np.uint32) != wanted)
    assert not wrong.size, [(x[i], found[i], hex(wanted[i])) for i in wrong[:5]]


@pytest.mark.parametrize(("start", "sign"), BINADES)
def test_the_hardest_arguments(start, sign):
    check(hardest(start, sign, 150))


def test_arguments_that_binary64_does_not_decide():
    """So the second computation, in pairs of binary64, runs: here it alone gives the answer."""
    x = np.array([float.fromhex(text) for text in UNDECIDED], np.float32)
    y = np.exp(x.astype(np.float64))
    assert ((y * (1 - exp.DOUBT)).astype(np.float32) != (y * (1 + exp.DOUBT)).astype(np.float32)).all()
    check(x)


@pytest.mark.parametrize("error", [2.0**-51, -(2.0**-51), 0.0])
def test_a_library_that_is_off_by_two_ulp_changes_nothing(error, monkeypatch):
    """As plain Python, with the library's exp made worse within the bound that is assumed of it."""
    library = types.SimpleNamespace(exp=lambda x: math.exp(x) * (1.0 + error), ldexp=math.ldexp)
    monkeypatch.setattr(exp, "math", library)
    for x in [np.float32(float.fromhex(text)) for text in UNDECIDED]:
        assert np.float32(exp.exp_f32.py_func(x)).view(np.uint32) == nearest_exp(Fraction(float(x)))


def test_the_second_computation_alone():
    for x in np.random.default_rng(4).uniform(-87, 88, 200).astype(np.float32):
        high, low, k = exp._exp_pair(np.float64(x))
        found = np.float32(to_f32(math.ldexp(high, int(k)), math.ldexp(low, int(k))))
        assert found.view(np.uint32) == nearest_exp(Fraction(float(x)))


def test_random_arguments_and_edges():
    rng = np.random.default_rng(0)
    magnitude = np.exp2(rng.uniform(-26, 6.6, 1200))
    edges = [0.0, -0.0, 2.0**-149, -(2.0**-149), 2.0**-25, -(2.0**-25), -(2.0**-24), 88.72283, 88.722835, 88.72284]
    edges += [-87.33654, -87.33655, -103.27893, -103.97207, -103.97208, -104.0, 1.0, -1.0, 89.0, 119.0, -119.0]
    check(np.concatenate([magnitude, -magnitude, edges]).astype(np.float32))


def test_pairs_are_good_far_beyond_binary64():
    """Relative error of the second computation, against the reference's arithmetic: below 2^-90."""
    for x in np.random.default_rng(2).uniform(-110, 110, 40).astype(np.float32):
        high, low, k = exp._exp_pair(np.float64(x))
        found = (Fraction(float(high)) + Fraction(float(low))) * Fraction(2) ** int(k)
        assert abs(found / Fraction(scaled_exp(Fraction(float(x))), 1 << WORK) - 1) < Fraction(1, 2**90)


def test_specials():
    x = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, 709.9, -746.0], np.float32)
    found = np.empty_like(x)
    exp.exp_all(x, found)
    assert np.isnan(found[2])
    assert found[[0, 1, 3, 4, 5, 6]].tolist() == [np.inf, 0.0, np.inf, 0.0, np.inf, 0.0]

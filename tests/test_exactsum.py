"""Exact sums: every float32 that comes out is the one nearest to the sum of the terms as Fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest

import oracle
from lpsim.core import exactsum
from lpsim.formats import FORMATS

FP32 = FORMATS["fp32"]


def nearest(total: Fraction) -> int:
    """Bits of the float32 nearest to a rational; an exact zero is +0."""
    code = oracle.encode(oracle.number(total), FP32)
    assert code is not None
    return code


def exact(a, b) -> Fraction:
    return sum((Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True)), Fraction(0))


def bits(x) -> int:
    return int(np.float32(x).view(np.uint32))


def check(rows) -> None:
    """Each (a, b) against Fractions, on encodings."""
    for a, b in rows:
        a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
        assert bits(exactsum.dot_f32(a, b)) == nearest(exact(a, b)), (a.tolist(), b.tolist())


def cancelling(rng, size: int, width: int):
    """Terms over 2^-width..2^width, most of which cancel; the order is random."""
    a = np.ldexp(rng.integers(1, 1 << 24, size), rng.integers(-width, width, size) - 24).astype(np.float32)
    b = np.ldexp(rng.integers(1, 1 << 24, size), rng.integers(-width, width, size) - 24).astype(np.float32)
    a, b = np.concatenate([a, -a, a[:2]]), np.concatenate([b, b, b[:2] / 3])
    order = rng.permutation(a.size)
    return a[order], b[order]


def test_two_sum_loses_nothing():
    rng = np.random.default_rng(1)
    a = np.ldexp(rng.normal(size=500), rng.integers(-60, 60, 500))
    b = np.ldexp(rng.normal(size=500), rng.integers(-60, 60, 500))
    inexact = 0
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        s, e = exactsum.two_sum(x, y)
        assert Fraction(s) + Fraction(e) == Fraction(x) + Fraction(y)
        assert s == x + y
        inexact += e != 0
    assert inexact > 100


def test_to_f32_decides_at_midpoints_by_the_low_part():
    """high on a midpoint of float32, on a float32 and one step beside either; low zero or tiny of both signs."""
    highs = [1 + 2.0**-24, 1 + 3 * 2.0**-24, 1.0, 2.0, 1 + 2.0**-23, 2.0**-149 * 1.5, 2.0**-150, 3 * 2.0**-151]
    highs += [np.nextafter(h, to) for h in list(highs) for to in (0.0, np.inf)]
    highs += [float(np.finfo(np.float32).max) + 2.0**103]  # the midpoint below overflow
    lows = [0.0, 2.0**-1070, 2.0**-500]
    moved = 0
    for high in (sign * float(h) for h in highs for sign in (1, -1)):
        for low in (sign * x for x in lows for sign in (1, -1)):
            with np.errstate(over="ignore"):
                got = bits(exactsum.to_f32(high, low))
                moved += got != bits(high)
            assert got == nearest(Fraction(high) + Fraction(low)), (high, low)
    assert moved  # rounding high alone would have gone wrong there


@pytest.mark.parametrize("size", [1, 2, 3, 16, 200])
def test_dots_of_ordinary_numbers(size):
    rng = np.random.default_rng(size)
    check((rng.normal(size=size), rng.normal(size=size)) for _ in range(40))


@pytest.mark.parametrize("width", [1, 12, 40, 100])
def test_dots_that_cancel(width):
    rng = np.random.default_rng(width)
    check(cancelling(rng, 24, width) for _ in range(60))


def test_the_second_pass_is_needed_taken_and_right(monkeypatch):
    """Run as plain Python, so that the calls of the second pass can be counted, and compiled: equal bits."""
    passes = []
    real = exactsum._round_partials
    monkeypatch.setattr(exactsum, "_round_partials", lambda p, n: passes.append(n) or real(p, n))
    rng = np.random.default_rng(3)
    rows = [cancelling(rng, 8, 100) for _ in range(40)]
    for a, b in rows:
        assert bits(exactsum.dot_f32.py_func(a, b)) == bits(exactsum.dot_f32(a, b))
    check(rows)
    assert len(passes) > 30
    assert max(passes) > 3


def test_sums_just_beside_a_midpoint():
    """1 + 2^-24 is a tie; a term down to 2^-298 decides it."""
    for tiny in (2.0**-60, 2.0**-100, 2.0**-149):
        for sign in (1.0, -1.0, 0.0):
            a = [1.0, 2.0**-24, sign * tiny]
            check([(a, [1.0, 1.0, tiny]), (a[::-1], [tiny, 1.0, 1.0]), ([-x for x in a], [1.0, 1.0, tiny])])


def test_extremes_of_float32():
    largest, least = float(np.finfo(np.float32).max), 2.0**-149
    check([([largest, -largest, least], [largest, largest, least]), ([largest], [1.0]), ([least] * 3, [1.0] * 3)])
    check([([largest] * 4, [largest, -largest, largest, -largest]), ([least, least], [0.25, 0.25])])
    assert exactsum.dot_f32(np.full(2, largest, np.float32), np.ones(2, np.float32)) == np.inf


def test_the_second_pass_has_room_for_every_sum():
    """Pairs (2^23 + 1)^2 - (2^46 + 2^24) = 1, scaled by 2^e, e rising by 8: each leaves one partial sum more."""
    a, b = [], []
    for e in range(-298, 200, 8):
        left, right = e // 2, e - e // 2
        a += [math.ldexp(2**23 + 1, left), -math.ldexp(2**22 + 1, left)]
        b += [math.ldexp(2**23 + 1, right), math.ldexp(1, right + 24)]
    partials, count, most = np.empty(1000), 0, 0
    for x, y in zip(a, b, strict=True):
        count = exactsum._grow(partials, count, x * y)
        most = max(most, count)
    assert most == len(a) // 2
    assert most <= exactsum.PARTIALS, f"{most} partial sums: dot_f32 would write beyond its array"
    check([(a, b)])


def test_zeros_and_specials():
    empty = np.empty(0, np.float32)
    minus = np.array([-0.0, -0.0], np.float32)
    one = np.ones(2, np.float32)
    assert bits(exactsum.dot_f32(empty, empty)) == 0
    assert bits(exactsum.dot_f32(minus, one)) == 0
    inf = np.array([np.inf, 1.0], np.float32)
    assert exactsum.dot_f32(inf, one) == np.inf
    assert exactsum.dot_f32(-inf, one) == -np.inf
    assert np.isnan(exactsum.dot_f32(inf, np.array([0.0, 1.0], np.float32)))
    assert np.isnan(exactsum.dot_f32(np.array([np.inf, -np.inf], np.float32), one))
    assert np.isnan(exactsum.dot_f32(np.array([np.nan, 1.0], np.float32), one))


def test_matrices_and_rows_are_dots():
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(5, 7)).astype(np.float32), rng.normal(size=(3, 7)).astype(np.float32)
    out = np.empty((5, 3), np.float32)
    exactsum.matmul_f32(a, b, out)
    assert [[bits(x) for x in row] for row in out] == [[nearest(exact(x, y)) for y in b] for x in a]
    sums = np.empty(5, np.float32)
    exactsum.rows_f32(a, np.ones(7, np.float32), sums)
    assert [bits(x) for x in sums] == [nearest(exact(row, np.ones(7))) for row in a]

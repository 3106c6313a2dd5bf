"""`round_to` against the oracle: every mode and policy, every value, midpoint and edge of small formats."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from loops import MODES, make_policy, number_of, numbers, round_all, unpack_all
from lpsim.core.rounding import round_to
from lpsim.formats import Format, check, ieee
from oracle import NAN, Value
from probes import between, differences, expected, magnitudes, values
from rows import ROWS, WIDE, containers

OVERFLOWS = ("ieee", "saturate", "satfinite")
NANS = ("canonical", "propagate", "nvidia", "ones")


@pytest.mark.parametrize("name", [*ROWS, *WIDE])
def test_every_mode_and_policy(name):
    fmt = {**ROWS, **WIDE}[name]
    points = values(fmt)
    rows = numbers(points)
    for mode, overflow, flush_out in product(MODES, OVERFLOWS, (False, True)):
        policy = make_policy(mode, overflow, subnormals="flush_out" if flush_out else "keep")
        wanted = expected(points, fmt, rounding=mode, overflow=overflow, flush_out=flush_out)
        assert not differences(points, round_all(rows, fmt, policy), wanted), (mode, overflow, flush_out)


@pytest.mark.parametrize("name", [*ROWS, *WIDE])
def test_nan_policies(name):
    """Every NaN, and whatever becomes one: overflow, infinity, negatives and zeros that the format lacks."""
    fmt = {**ROWS, **WIDE}[name]
    payloads = [0, 1, 1 << 51, 0x12345 << 30, (1 << 52) - 1]
    top = oracle.grid(oracle.largest(fmt), fmt)
    points = [Value(sign, x) for x in (Fraction(0), top, 4 * top, oracle.INF) for sign in (0, 1)]
    for nan, overflow, payload in product(NANS, OVERFLOWS, payloads):
        everything = [*points, Value(0, NAN), Value(1, NAN)]
        rows = np.array([number_of(point, payload) for point in everything])
        wanted = [
            *expected(points, fmt, overflow=overflow, nan=nan),
            *expected(everything[-2:], fmt, overflow=overflow, nan=nan, payload=payload),
        ]
        found = round_all(rows, fmt, make_policy("rne", overflow, nan))
        assert not differences(everything, found, wanted), (nan, overflow, hex(payload))


@pytest.mark.parametrize("name", [*ROWS, "bf16", "fp16", "tf32"])
def test_what_is_exact_stays_in_every_mode(name):
    """Rounding the value of a code gives the code back, whatever the mode and the random word."""
    fmt = {**ROWS, **WIDE}[name]
    chosen = np.array(containers(fmt), np.int64)
    rows = unpack_all(chosen, fmt)
    numeric = rows[:, 0] != 2
    modes = [(mode, 0, 0) for mode in MODES] + [(v, n, w) for v in "ABC" for n in (1, 16, 32) for w in (0, 2**n - 1)]
    for (mode, bits, word), overflow in product(modes, ("ieee", "saturate")):
        found = round_all(rows[numeric], fmt, make_policy(mode, overflow, bits=bits), word)
        assert np.array_equal(found, chosen[numeric]), (mode, word)


@pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "e4m3fnuz", "e8m0", "e2m1", "bf16", "fp32"])
def test_steps_tell_what_decided(name):
    """kept, guard, sticky, up and overflow of the returned step, each from its meaning."""
    fmt = {**ROWS, **WIDE}[name]
    for (sign, x), mode in product(values(fmt, count=10), MODES):
        if isinstance(x, str) or x < oracle.grid(0, fmt) or not x:
            continue
        step = round_to(*number_of(Value(sign, x)), fmt, make_policy(mode), 0)
        m, nu = oracle.neighbours(x, fmt)
        ulp = oracle.grid(m + 1, fmt) - oracle.grid(m, fmt)
        assert Fraction(2) ** step.exp == ulp
        assert step.kept * ulp == oracle.grid(m, fmt)
        assert (step.guard, step.sticky) == (int(nu >= Fraction(1, 2)), int(nu not in (0, Fraction(1, 2))))
        assert step.up == int(oracle.grows(m, nu, sign, mode, 0, 0))
        assert step.overflow == int(m + step.up > oracle.largest(fmt))


def almost(x: Fraction) -> tuple[int, int]:
    """(exp, sig): 61 bits of x, the last one set if anything is below it."""
    exp = x.numerator.bit_length() - x.denominator.bit_length() - 60
    scaled = x / Fraction(2) ** exp
    return exp, int(scaled) | int(scaled != int(scaled))


@pytest.mark.parametrize("name", ["e4m3fn", "e5m2fnuz", "e8m0", "bf16", "fp32"])
def test_the_last_bit_may_mean_a_little_more(name):
    """Rationals that no binary significand holds: 61 bits with a sticky last one round as the exact value."""
    fmt = {**ROWS, **WIDE}[name]
    third = Fraction(1, 3 * 2**70)
    points = [
        x + (oracle.grid(m + 1, fmt) - oracle.grid(m, fmt)) * third
        for m in magnitudes(fmt, 1, 20)[::3]
        for x in between(m, fmt, deep=32)[:-1]
    ]
    points = [Value(sign, x) for x in points if x > oracle.grid(0, fmt) for sign in (0, 1)]
    rows = np.array([(0, sign, *almost(x)) for sign, x in points])
    modes = [(mode, 0, 0) for mode in MODES]
    modes += [(v, n, w) for v in "ABC" for n in (8, 32) for w in (0, 2 ** (n - 1), 2**n - 1)]
    for mode, bits, word in modes:
        wanted = expected(points, fmt, rounding=mode, bits=bits, word=word)
        found = round_all(rows, fmt, make_policy(mode, bits=bits), word)
        assert not differences(points, found, wanted), (mode, bits, word)


@pytest.mark.parametrize("name", ["bf16", "fp16", "e5m2", "e4m3fn"])
def test_round_to_odd_then_nearest_is_one_rounding(name):
    """Boldo and Melquiond 2008: p + 2 bits rounded to odd hide nothing that rounding to p bits could see."""
    fmt, wide = {**ROWS, **WIDE}[name], ieee(32, 24)
    points = values(fmt, seed=2, count=400)
    rows = numbers([p for p in points if p.magnitude != NAN])
    through = unpack_all(round_all(rows, wide, make_policy("rto")), wide)
    for mode in MODES:
        direct = round_all(rows, fmt, make_policy(mode))
        assert np.array_equal(round_all(through, fmt, make_policy(mode)), direct), mode


@st.composite
def any_format(draw) -> Format:
    """Any checked row of at most 16 bits whose canonical NaN is defined."""
    signed = draw(st.integers(0, 1))
    bits = draw(st.integers(4 + signed, 16))
    precision = draw(st.integers(max(1, bits - signed - 9), bits - signed))
    width = bits - signed - precision + 1
    zero = draw(st.integers(0, 1))
    negative_zero = draw(st.integers(0, signed & zero))
    patterns = [1, 2 ** (precision - 1) - 1, *([0] if signed and not negative_zero else [])]
    top_field = 2**width - 1
    bias = draw(st.integers(max(-3, top_field - 1000), min(900, max(top_field, 3))))
    return check(
        Format(
            bits, precision, bias, draw(st.sampled_from(patterns)), draw(st.integers(0, 1)), signed, zero,
            negative_zero, zero, draw(st.integers(0, 3)),
        )
    )  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_format_any_value(data):
    fmt = data.draw(any_format())
    mode = data.draw(st.sampled_from([*MODES, "A", "B", "C"]))
    bits = data.draw(st.integers(1, 32)) if mode in "ABC" else 0
    word = data.draw(st.integers(0, 2**bits - 1))
    overflow = data.draw(st.sampled_from(OVERFLOWS))
    m = data.draw(st.integers(0, oracle.largest(fmt) + 2))
    part = Fraction(data.draw(st.integers(0, 2**36)), 2**36)
    x = oracle.grid(m, fmt) + part * (oracle.grid(m + 1, fmt) - oracle.grid(m, fmt))
    value = Value(data.draw(st.integers(0, 1)), x)
    step = round_to(*number_of(value), fmt, make_policy(mode, overflow, bits=bits), word)
    code = None if step.lost else step.code
    assert code == oracle.encode(value, fmt, mode, overflow, bits=bits, word=word)

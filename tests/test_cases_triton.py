"""What Triton's interpreter and fast math gave real users, each with the device's answer.

The interpreter rounds fp8 and bf16 wrongly and computes on bf16 bit patterns as if they were numbers, so it is no
oracle: every answer below is the emulator's, and the rational oracle's.
"""

from fractions import Fraction

import numpy as np
import pytest

import lpsim as lp
import oracle
from lpsim.formats import FORMATS

CLAMPED = {"overflow": "satfinite", "nan": "nvidia"}  # cvt.rn.satfinite
CODES16 = np.arange(1 << 16, dtype=np.uint16)


def f32(bits: int) -> np.float32:
    return np.array(bits, np.uint32).view(np.float32)[()]


def bits(x) -> int:
    return int(np.asarray(x, np.float32).view(np.uint32)[()])


@pytest.mark.parametrize(("source", "target"), [("fp16", "e5m2"), ("bf16", "e4m3fn")])
def test_every_16_bit_code_to_fp8(source, target):
    """Triton issue 8322: of 65,536 fp16 inputs, 1,790 came out of the interpreter wrong in e5m2."""
    found = lp.convert(CODES16, source, target, **CLAMPED)
    row, goal = FORMATS[source], FORMATS[target]
    wanted = [oracle.encode(oracle.decode(int(code), row), goal, **CLAMPED) for code in CODES16]
    assert np.flatnonzero(found != np.array(wanted)).tolist() == []


def test_one_of_those_codes():
    assert int(lp.convert(np.uint16(0x3C80), "fp16", "e5m2", **CLAMPED)) == 0x3C  # 1.125, a tie: to even


@pytest.mark.parametrize("target", ["e4m3fn", "e5m2", "bf16", "fp16"])
def test_the_carry_reaches_the_exponent(target):
    """Triton pull requests 9808 and 11897: 1.97 became 1.0 in e4m3. Just below a power of two is that power."""
    assert int(lp.encode(f32(0x3FFC28F6), "e4m3fn", **CLAMPED)) == 0x40
    row = FORMATS[target]
    last = Fraction(1, 1 << row.precision)  # half a unit in the last place just below 2
    for exponent in range(-6, 6):
        power = Fraction(2) ** exponent
        for x in ((2 - last) * power, (2 - last / 2) * power):
            found = int(lp.encode(np.float32(float(x)), target, **CLAMPED))
            assert found == oracle.encode(oracle.number(2 * power), row)
        short = int(lp.encode(np.float32(float((2 - last * 5 / 4) * power)), target, **CLAMPED))
        assert short == oracle.encode(oracle.number((2 - 2 * last) * power), row)


def test_bf16_codes_are_not_numbers():
    """Triton issues 11584, 4972: 2.5 + 2.0 was -2.9e-39, and -5 < -2 was false."""
    a, b = np.array([0x4020], np.uint16), np.array([0x4000], np.uint16)
    total = lp.add(lp.decode(a, "bf16"), lp.decode(b, "bf16"), "bf16")
    assert int(lp.encode(total, "bf16")[0]) == 0x4090  # 4.5
    with pytest.raises(TypeError, match="codes, not numbers"):
        lp.add(a, b, "bf16")
    assert bool(lp.less(np.uint16(0xC0A0), np.uint16(0xC000), "bf16"))  # -5 < -2
    assert not bool(lp.less(np.uint16(0xC000), np.uint16(0xC0A0), "bf16"))


@pytest.mark.parametrize("path", ["wgmma", "mma"])
def test_a_dot_of_small_integers_is_exact(path):
    """The same fault made dots of small integers wrong by 1e10."""
    draw = np.random.default_rng(0)
    a, b = draw.integers(-8, 9, (16, 64)), draw.integers(-8, 9, (64, 8))
    codes = [lp.encode(x.astype(np.float32), "bf16") for x in (a, b)]
    found = lp.machine("h200").dot(*codes, fmt="bf16", path=path)
    assert np.array_equal(found, (a @ b).astype(np.float32))


#: argument -> correctly rounded, ex2.approx.f32, and ex2.approx.ftz.f32 (tl.exp2), which an H200 gave for all inputs
EXP2 = {
    -126: (0x00800000, 0x00800000, 0x00800000),
    -127: (0x00400000, 0x003FFFFF, 0x00000000),
    -149: (0x00000001, 0x00000001, 0x00000000),
    -150: (0x00000000, 0x00000000, 0x00000000),
}


@pytest.mark.parametrize("x", EXP2)
def test_exp2_in_the_subnormals(x):
    """PyTorch issue 125557, Triton issue 5735: eager keeps subnormals, compiled code flushes them."""
    exact, kept, flushed = EXP2[x]
    h200 = lp.machine("h200")
    assert int(lp.encode(Fraction(2) ** x, "fp32")) == exact
    assert bits(h200.ptx("ex2.approx.f32", np.float32(x))) == kept
    assert bits(h200.exp2(np.float32(x))) == flushed


def test_the_result_format_is_named():
    """Triton pull request 11744: fp8 + bf16 changed its type, and with it the result."""
    one, small = lp.decode(np.uint8(0x38), "e4m3fn"), lp.decode(np.uint16(0x3B80), "bf16")  # 1 and 2^-8
    assert float(lp.add(one, small, "fp32")) == 1.00390625
    assert int(lp.encode(lp.add(one, small, "bf16"), "bf16")) == 0x3F80  # a tie: to even
    with pytest.raises(TypeError):
        lp.add(one, small)

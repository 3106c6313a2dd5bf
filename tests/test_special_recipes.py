"""Wrappers and recipes around the special function unit: special values, and errors against float64."""

import math

import numpy as np
import pytest

from lpsim.core import special, special_normalised
from lpsim.core.special import ARRAYS, INTEGERS

NAN, INF, MINUS_INF, ONE, MINUS_ZERO = 0x7FFFFFFF, 0x7F800000, 0xFF800000, 0x3F800000, 1 << 31
NANS = {0x7FC00000: NAN, 0xFFC00000: NAN, 0x7F800001: NAN, 0xFF812345: NAN}


def run(name: str, codes) -> np.ndarray:
    codes = np.array(codes, np.uint32)
    out = np.empty(codes.size, np.float32)
    ARRAYS[name](codes.view(np.float32), out)
    return out.view(np.uint32)


#: name -> {code: code}: zeros, subnormals, infinities, borders, results that are exact
SPECIALS = {
    "lg2.approx.ftz.f32": {
        0: MINUS_INF,
        MINUS_ZERO: MINUS_INF,
        0x007FFFFF: MINUS_INF,
        0x807FFFFF: MINUS_INF,
        INF: INF,
        MINUS_INF: NAN,
        0xBF800000: NAN,
        ONE: 0,
        0x40000000: ONE,
        0x3F000000: 0xBF7FFFFE,
        0x00800000: 0xC2FBFFFF,
    },
    "lg2.approx.f32": {0: MINUS_INF, 0x00400000: 0xC2FDFFFF, 0x80400000: NAN, INF: INF, ONE: 0},
    "sin.approx.f32": {0: 0, MINUS_ZERO: MINUS_ZERO, 1: 0, 0x80000001: MINUS_ZERO, INF: NAN, MINUS_INF: NAN},
    "cos.approx.f32": {0: ONE, MINUS_ZERO: ONE, 1: ONE, INF: NAN, MINUS_INF: NAN},
    "tanh.approx.f32": {
        0: 0,
        MINUS_ZERO: MINUS_ZERO,
        1: 1,
        0x80000001: 0x80000001,
        0x3B7FFFFF: 0x3B7FFFFF,
        0x41000000: ONE,
        0xC1000000: 0xBF800000,
        INF: ONE,
        MINUS_INF: 0xBF800000,
    },
    "rcp.approx.f32": {0: INF, MINUS_ZERO: MINUS_INF, INF: 0, 0x7F000000: 0x00400000, 0x00400000: 0x7F000000, 1: INF},
    "rcp.rn.ftz.f32": {
        0: INF,
        0x80400000: MINUS_INF,
        INF: 0,
        0x7F000000: 0,
        0xFF000000: MINUS_ZERO,
        0x40000000: 0x3F000000,
    },
    "rsqrt.approx.f32": {0: INF, MINUS_ZERO: MINUS_INF, 1: 0x64B504F2, 0x80000001: NAN, INF: 0, 0x40800000: 0x3F000000},
    "sqrt.approx.f32": {0: 0, MINUS_ZERO: MINUS_ZERO, 2: 0x1A800000, 0x80000001: NAN, INF: INF, 0x40800000: 0x40000000},
    "sqrt.rn.ftz.f32": {0: 0, 0x80000001: MINUS_ZERO, 2: 0, INF: INF, MINUS_INF: NAN, 0x40800000: 0x40000000},
    "sin": {0: 0, MINUS_ZERO: MINUS_ZERO, 1: 0, INF: NAN, MINUS_INF: NAN},
    "cos": {0: ONE, MINUS_ZERO: ONE, 1: ONE, INF: NAN, MINUS_INF: NAN},
    "erf": {0: 0, MINUS_ZERO: MINUS_ZERO, INF: ONE, MINUS_INF: 0xBF800000},
    "libdevice.exp": {0: ONE, MINUS_ZERO: ONE, INF: INF, MINUS_INF: 0},
    "libdevice.tanh": {0: 0, MINUS_ZERO: MINUS_ZERO, INF: ONE, MINUS_INF: 0xBF800000},
    "floor": {
        0: 0,
        1: 0,
        0x80000001: MINUS_ZERO,
        0xBF000000: 0xBF800000,
        0x3FC00000: ONE,
        INF: INF,
        MINUS_INF: MINUS_INF,
    },
    "ceil": {0: 0, 1: 0, 0x80000001: MINUS_ZERO, 0xBF000000: MINUS_ZERO, 0x3FC00000: 0x40000000, INF: INF},
}


@pytest.mark.parametrize("name", SPECIALS)
def test_special_values(name):
    given = SPECIALS[name] | NANS
    got = run(name, list(given))
    assert dict(zip(map(hex, given), map(hex, got), strict=True)) == {hex(k): hex(v) for k, v in given.items()}


def spread(low: float, high: float, n: int = 20000) -> np.ndarray:
    """float32 of both signs, magnitudes from low to high, evenly spaced in the logarithm."""
    x = np.geomspace(low, high, n).astype(np.float32)
    return np.concatenate([x, -x])


def results(name: str, x: np.ndarray) -> np.ndarray:
    return run(name, x.view(np.uint32)).view(np.float32).astype(np.float64)


def ulps(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.max(np.abs(found - exact) / np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)))


def test_the_unit_stays_within_the_errors_that_its_manual_states():
    """PTX ISA: lg2 2^-22 absolute near 1 and relative elsewhere, sin and cos 2^-20.5 in [-2 pi, 2 pi], tanh 2^-11."""
    x = np.abs(spread(1e-30, 1e30))
    error = np.abs(results("lg2.approx.ftz.f32", x) - np.log2(x.astype(np.float64)))
    assert np.all(error <= 2.0**-22 * np.maximum(1, np.abs(np.log2(x.astype(np.float64)))))
    angle = spread(1e-6, 2 * math.pi - 1e-6)
    assert np.max(np.abs(results("sin.approx.f32", angle) - np.sin(angle.astype(np.float64)))) <= 2.0**-20.5
    assert np.max(np.abs(results("cos.approx.f32", angle) - np.cos(angle.astype(np.float64)))) <= 2.0**-20.5
    y = spread(1e-6, 20)
    assert np.max(np.abs(results("tanh.approx.f32", y) / np.tanh(y.astype(np.float64)) - 1)) <= 2.0**-11


def test_libdevice_stays_within_two_ulp():
    """CUDA's manual: sinf, cosf, erff, expf and tanhf at most 2 ulp."""
    angles = np.concatenate([spread(1e-6, 1e5), spread(1.1e5, 3e38)])
    exact = [math.sin(float(x)) for x in angles]  # the C library reduces large angles exactly, too
    assert ulps(results("sin", angles), np.array(exact)) <= 2
    assert ulps(results("cos", angles), np.array([math.cos(float(x)) for x in angles])) <= 2
    y = spread(1e-6, 3)
    assert ulps(results("erf", y), np.array([math.erf(float(x)) for x in y])) <= 2
    z = spread(1e-6, 80)
    assert ulps(results("libdevice.exp", z), np.exp(z.astype(np.float64))) <= 2
    assert ulps(results("libdevice.tanh", z), np.tanh(z.astype(np.float64))) <= 2


def test_sine_and_cosine_of_the_unit_repeat_after_one_revolution():
    turns = np.arange(1 << 12, dtype=np.float32) / np.float32(1 << 12)
    for function in (special_normalised.sin_of_turns, special_normalised.cos_of_turns):
        once = [function(int(code)) for code in turns.view(np.uint32)]
        again = [function(int(code)) for code in (turns + np.float32(7)).view(np.uint32)]
        assert once == again


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        (
            "int32",
            [1.9, -1.9, 3e9, -3e9, np.inf, -np.inf, np.nan, 1e-40],
            [1, -1, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 0, 0],
        ),
        ("int16", [1.9, -1.9, 4e4, -4e4, np.inf, np.nan], [1, -1, 32767, -32768, 32767, 0]),
        ("int8", [1.9, -1.9, 127, 128, 300, 4e4, -4e4, np.nan], [1, -1, 127, -128, 44, -1, 0, 0]),
    ],
)
def test_integers(name, x, expected):
    loop, dtype = INTEGERS[name]
    out = np.empty(len(x), dtype)
    loop(np.array(x, np.float32), out)
    assert out.tolist() == expected


def test_names_of_instructions_and_functions_are_apart():
    assert set(special.FUNCTIONS) & set(special.INSTRUCTIONS) == set()
    assert special.ARRAYS == special.FUNCTIONS | special.INSTRUCTIONS
    assert set(special.BINARY) <= set(special.ARRAYS)

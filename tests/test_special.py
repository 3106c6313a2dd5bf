"""Special functions: three bodies of each MUFU function, special values, and the recipes around them."""

from collections.abc import Callable

import numpy as np
import pytest

import oracle
from lpsim._jit import njit
from lpsim.core import special, special_lanes, special_mufu
from lpsim.core.special_loops import BLOCK
from lpsim.core.special_squarer import squarer
from lpsim.formats import FORMATS

FP32 = FORMATS["fp32"]
NAN, INF, MINUS_INF = 0x7FFFFFFF, 0x7F800000, 0xFF800000
RNG_SEED = 20260101

MUFU = {
    "exp2": (special_mufu.ex2_approx_ftz, special.ex2_f32),
    "rcp.approx.ftz.f32": (special_mufu.rcp_approx_ftz, special.rcp_f32),
    "rsqrt": (special_mufu.rsqrt_approx_ftz, special.rsqrt_f32),
    "sqrt": (special_mufu.sqrt_approx_ftz, special.sqrt_f32),
}


@njit
def over_codes(function, codes, out):
    for i in range(len(codes)):
        out[i] = function(np.int64(codes[i]))


@njit
def over_floats(function, x, out):
    for i in range(len(x)):
        out[i] = function(x[i])


@njit
def over_pairs(function, x, y, out):
    for i in range(len(x)):
        out[i] = function(x[i], y[i])


def edge_codes() -> np.ndarray:
    """Every biased exponent and sign with the ends and middles of the segments, and their neighbours."""
    cuts = np.arange(0, 1 << 23, 1 << 15)[:, None] + np.array([-1, 0, 1])
    fractions = np.unique(np.concatenate([cuts.ravel() % (1 << 23), 1 << np.arange(23)]))
    return (np.arange(512)[:, None] * (1 << 23) + fractions).astype(np.uint32).ravel()


def random_codes(n: int, seed: int = RNG_SEED) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 32, n, dtype=np.uint32)


def run(name: str, codes: np.ndarray) -> np.ndarray:
    out = np.empty(codes.size, np.float32)
    special.ARRAYS[name](codes.view(np.float32), out)
    return out.view(np.uint32)


def test_squarer_is_the_sum_of_the_partial_products_from_column_19_on():
    x = np.arange(1 << 17)
    bit = [(x >> i) & 1 for i in range(17)]
    columns = [(2 * i, bit[i]) for i in range(17)]
    columns += [(i + j + 1, bit[i] & bit[j]) for j in range(17) for i in range(j)]
    assert np.array_equal(sum(value << column for column, value in columns), x * x)
    expected = sum(value << column for column, value in columns if column >= 19) >> 19
    got = np.empty_like(x)
    over_codes(squarer, x, got)
    assert np.array_equal(got, expected)
    lanes = np.empty(x.size, np.uint32)
    over_floats(special_lanes.squarer32, x.astype(np.uint32), lanes)
    assert np.array_equal(lanes, expected)


@pytest.mark.parametrize("name", MUFU)
def test_integers_lanes_and_loops_agree(name):
    codes = np.concatenate([edge_codes(), random_codes(1 << 19)])
    plain, scalar = MUFU[name]
    expected, lanes = np.empty(codes.size, np.uint32), np.empty(codes.size, np.float32)
    over_codes(plain, codes, expected)
    over_floats(scalar, codes.view(np.float32), lanes)
    assert np.array_equal(lanes.view(np.uint32), expected)
    assert np.array_equal(run(name, codes), expected)


@pytest.mark.parametrize("name", sorted(set(special.ARRAYS) & set(special.SCALARS)))
def test_loops_equal_scalars_for_every_length_in_place_too(name):
    operands = 2 if name.startswith("div") else 1
    over: Callable[..., None] = over_pairs if operands == 2 else over_floats
    for n in (0, 1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 5):
        x = [random_codes(n, seed).view(np.float32) for seed in range(operands)]
        expected, out = np.empty(n, np.float32), np.empty(n, np.float32)
        over(special.SCALARS[name], *x, expected)
        special.ARRAYS[name](*x, out)
        assert np.array_equal(out.view(np.uint32), expected.view(np.uint32))
        special.ARRAYS[name](*x, x[0])
        assert np.array_equal(x[0].view(np.uint32), expected.view(np.uint32))


#: name -> {code: code}: zeros, subnormals, infinities, borders, and powers of two with exact results.
SPECIALS = {
    "exp2": {
        0: 0x3F800000,
        1 << 31: 0x3F800000,
        1: 0x3F800000,
        0x807FFFFF: 0x3F800000,
        MINUS_INF: 0,
        INF: INF,
    }
    | {0x43000000: INF, 0x42FE0000: 0x7F000000, 0xC2FC0000: 0x00800000, 0xC2FC0001: 0, 0xC2FE0000: 0},
    "ex2.approx.f32": {
        0xC3000000: 0x00200000,
        0xC3150000: 1,
        0xC3160000: 0,
        MINUS_INF: 0,
        INF: INF,
        1: 0x3F800000,
    },
    "exp": {0: 0x3F800000, MINUS_INF: 0, INF: INF},
    "rcp.approx.ftz.f32": {
        0: INF,
        1 << 31: MINUS_INF,
        INF: 0,
        MINUS_INF: 1 << 31,
        1: INF,
        0x807FFFFF: MINUS_INF,
    }
    | {0x7E800000: 0x00800000, 0x7E800001: 0, 0x7F000000: 0, 0x3F800000: 0x3F800000},
    "rcp": {
        0: INF,
        1 << 31: MINUS_INF,
        INF: 0,
        MINUS_INF: 1 << 31,
        0x7F000000: 0x00400000,
        0x00400000: 0x7F000000,
    },
    "rcp.rn.f32": {0: INF, 1 << 31: MINUS_INF, INF: 0, 0x7F000000: 0x00400000, 1: INF},
    "rsqrt": {
        0: INF,
        1 << 31: MINUS_INF,
        INF: 0,
        MINUS_INF: NAN,
        0xBF800000: NAN,
        1: INF,
        0x80000001: MINUS_INF,
    }
    | {0x3F800000: 0x3F800000, 0x40800000: 0x3F000000},
    "sqrt": {0: 0, 1 << 31: 1 << 31, INF: INF, MINUS_INF: NAN, 0xBF800000: NAN, 1: 0, 0x80000001: 1 << 31},
    "sqrt_rn": {0: 0, 1 << 31: 1 << 31, INF: INF, MINUS_INF: NAN, 0xBF800000: NAN, 2: 0x1A800000},
    "log": {0: MINUS_INF, 1 << 31: MINUS_INF, INF: INF, MINUS_INF: NAN, 0xBF800000: NAN, 0x3F800000: 0},
    "log2": {
        0: MINUS_INF,
        1 << 31: MINUS_INF,
        INF: INF,
        0x80000001: NAN,
        1: 0xC3150000,
        0x41000000: 0x40400000,
    },
    "sigmoid": {0: 0x3F000000, INF: 0x3F800000, MINUS_INF: 0},
}


@pytest.mark.parametrize("name", SPECIALS)
def test_special_values(name):
    given = SPECIALS[name] | {0x7FC00000: NAN, 0xFFC00000: NAN, 0x7F800001: NAN, 0xFF812345: NAN}
    got = run(name, np.array(list(given), np.uint32))
    assert dict(zip(given, map(hex, got), strict=True)) == {k: hex(v) for k, v in given.items()}


def divisions() -> tuple[np.ndarray, np.ndarray]:
    """Divisors around 2^126 and 2^-126, subnormals, zeros, Inf, NaN against dividends of all kinds."""
    borders = np.array([0, 1, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x7E800000, 0x7E800001, 0x7F7FFFFF, INF, NAN])
    borders = np.concatenate([borders, borders + (1 << 31)]).astype(np.uint32)
    dividends = np.concatenate([borders, random_codes(200)])
    x, y = (a.ravel() for a in np.meshgrid(dividends, borders))
    return np.concatenate([x, random_codes(1 << 17, 1)]), np.concatenate([y, random_codes(1 << 17, 2)])


def test_div_full_is_its_recipe():
    x, y = divisions()
    xf, yf = x.view(np.float32), y.view(np.float32)
    with np.errstate(all="ignore"):
        size = np.abs(yf)
        scale = np.where(size > 2.0**126, 0.25, np.where(size < 2.0**-126, 2.0**24, 1.0)).astype(np.float32)
        reciprocal = run("rcp.approx.ftz.f32", (yf * scale).view(np.uint32)).view(np.float32)
        expected = xf * scale * reciprocal
    out = np.empty_like(xf)
    special.ARRAYS["div"](xf, yf, out)
    nan = np.isnan(expected)
    assert np.array_equal(out.view(np.uint32)[~nan], expected.view(np.uint32)[~nan])
    assert np.all(out.view(np.uint32)[nan] == NAN)


def test_div_full_stays_within_the_two_ulp_that_its_manual_states():
    rng = np.random.default_rng(RNG_SEED)
    x = rng.uniform(1, 2, 1 << 16).astype(np.float32)
    y = np.ldexp(rng.uniform(1, 2, 1 << 16), rng.integers(-120, 126, 1 << 16)).astype(np.float32)
    out = np.empty_like(x)
    special.ARRAYS["div"](x, y, out)
    exact = x.astype(np.float64) / y
    assert np.max(np.abs(out - exact) / np.spacing(exact.astype(np.float32))) <= 2


def test_correctly_rounded_forms_are_the_oracles():
    x, y = (codes[:3000] for codes in divisions())
    quotient = np.empty(x.size, np.float32)
    special.ARRAYS["div_rn"](x.view(np.float32), y.view(np.float32), quotient)
    root, inverse = run("sqrt_rn", x), run("rcp.rn.f32", x)
    one = oracle.number(1)
    for i in range(x.size):
        a, b = oracle.decode(int(x[i]), FP32), oracle.decode(int(y[i]), FP32)
        for value, got in (
            (oracle.div(a, b), quotient.view(np.uint32)[i]),
            (oracle.div(one, a), inverse[i]),
            (oracle.sqrt(a), root[i]),
        ):
            assert got == oracle.encode(value, FP32, nan="nvidia"), (hex(x[i]), hex(y[i]))

"""Comparisons, minimum, maximum and sign operations: all pairs of codes against Fractions."""

import math
import operator
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import lpsim as lp
import oracle
from lpsim import scalar
from lpsim._jit import njit
from lpsim.formats import FORMATS
from oracle import INF, NAN, Value
from rows import ROWS, containers

PAIRS = ["e4m3fn", "e5m2", "e4m3fnuz", "e8m0", "ue4m3", "e2m1", "e3m2", "binary8p3se", "binary6p3uf", "padded5"]
RELATIONS = {
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge,
}  # fmt: skip


def codes_of(fmt) -> np.ndarray:
    return np.array(containers(fmt), np.uint8 if fmt.bits + fmt.pad <= 8 else np.uint16)


def number(value: Value):
    """A Fraction, an infinity or NaN: what Python compares as IEEE does."""
    if isinstance(value.magnitude, str):
        return math.nan if value.magnitude == NAN else math.inf * (-1) ** value.sign
    return (-1) ** value.sign * value.magnitude


def smaller(a: Value, b: Value) -> bool:
    """a is b or below it, -0 below +0. No NaN."""
    x, y = number(a), number(b)
    return x < y or (x == y and a.sign >= b.sign)


def extreme(name: str, a: int, b: int, fmt) -> int | None:
    """The code that minimum, maximum, minimum_number or maximum_number should give."""
    x, y = oracle.decode(a, fmt), oracle.decode(b, fmt)
    nan = oracle.first_nan(x, y)
    if nan and (not name.endswith("number") or (x.magnitude == NAN and y.magnitude == NAN)):
        return oracle.nan_code(nan.sign, 0, fmt, "canonical") << fmt.pad
    if nan:
        return b if x.magnitude == NAN else a
    low, high = (a, b) if smaller(x, y) else (b, a)
    return low if name.startswith("min") else high


@pytest.mark.parametrize("name", PAIRS)
def test_relations_of_all_pairs(name):
    fmt = ROWS[name]
    codes = codes_of(fmt)
    numbers = [number(oracle.decode(int(code), fmt)) for code in codes]
    for relation, python in RELATIONS.items():
        found = getattr(lp, relation)(codes[:, None], codes, fmt)
        assert found.dtype == bool
        wanted = [[python(x, y) for y in numbers] for x in numbers]
        assert np.array_equal(found, wanted), relation


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("function", ["minimum", "maximum", "minimum_number", "maximum_number"])
def test_extremes_of_all_pairs(name, function):
    fmt = ROWS[name]
    codes = codes_of(fmt)
    found = getattr(lp, function)(codes[:, None], codes, fmt)
    assert found.dtype == codes.dtype
    wanted = [[extreme(function, int(a), int(b), fmt) for b in codes] for a in codes]
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("name", [*PAIRS, "bf16", "fp16"])
def test_signs_of_all_codes(name):
    fmt = {**ROWS, **FORMATS}[name]
    codes = codes_of(fmt)
    values = [oracle.decode(int(code), fmt) for code in codes]
    half = 1 << (fmt.bits - 1 + fmt.pad)
    stays = [fmt.signed and not fmt.negative_zero and int(code) in (0, half) for code in codes]
    flipped = [int(code) if stay else int(code) ^ half for code, stay in zip(codes, stays, strict=True)]
    negative = [bool(int(code) & half) and bool(fmt.signed) for code in codes]
    if fmt.signed:
        assert lp.neg(codes, fmt).tolist() == flipped
        assert np.array_equal(lp.copysign(codes, np.full_like(codes, half), fmt), np.where(negative, codes, flipped))
    wanted = [f if n else int(c) for c, f, n in zip(codes, flipped, negative, strict=True)]
    assert lp.abs(codes, fmt).tolist() == wanted
    assert lp.signbit(codes, fmt).tolist() == negative
    assert lp.isnan(codes, fmt).tolist() == [value.magnitude == NAN for value in values]
    assert lp.isinf(codes, fmt).tolist() == [value.magnitude == INF for value in values]


def test_wide_formats_against_numpy():
    rng = np.random.default_rng(0)
    for name, float_dtype, dtype in (("fp32", np.float32, np.uint32), ("fp16", np.float16, np.uint16)):
        info = np.iinfo(dtype)
        a, b = rng.integers(0, info.max, (2, 40000), dtype=dtype, endpoint=True)
        a[:1000], b[500:1500] = 0, info.max // 2 + 1
        b[2000:3000] = a[2000:3000]
        x, y = a.view(float_dtype), b.view(float_dtype)
        for relation, python in RELATIONS.items():
            assert np.array_equal(getattr(lp, relation)(a, b, name), python(x, y))
        ordered = ~(np.isnan(x) | np.isnan(y)) & (x != y)
        found = lp.minimum(a, b, name)
        assert np.array_equal(found[ordered], np.minimum(x, y).view(dtype)[ordered])
        assert np.isnan(found.view(float_dtype)[np.isnan(x) | np.isnan(y)]).all()
    tf32 = lp.encode(np.float32([1.5, -2.0, np.nan]), "tf32")
    assert np.array_equal(lp.neg(tf32, "tf32").view(np.float32)[:2], [-1.5, 2.0])
    assert lp.maximum(tf32, tf32[::-1], "tf32").view(np.float32)[1] == -2.0


def test_the_only_nan_stays():
    """abs of an fnuz NaN became zero, its negation +0."""
    nan = np.array([0x80], np.uint8)
    for name in ("e4m3fnuz", "e5m2fnuz", "binary8p3se"):
        assert lp.abs(nan, name).tolist() == [0x80]
        assert lp.neg(nan, name).tolist() == [0x80]
        assert lp.neg(0, name) == 0
    assert lp.abs(nan, "e4m3fn").tolist() == [0]


def test_zeros():
    plus, minus = 0x0000, 0x8000
    assert lp.equal(plus, minus, "bf16")
    assert not lp.less(minus, plus, "bf16")
    assert lp.minimum(plus, minus, "bf16") == minus == lp.minimum(minus, plus, "bf16")
    assert lp.maximum(plus, minus, "bf16") == plus == lp.maximum(minus, plus, "bf16")


def test_nan_loses_its_payload_and_becomes_quiet():
    assert lp.minimum(0xFF81, 0x3F80, "bf16") == 0xFFC0
    assert lp.minimum(0x3F80, 0x7FFF, "bf16") == 0x7FC0
    assert lp.minimum_number(0xFF81, 0x3F80, "bf16") == 0x3F80
    assert lp.minimum_number(0xFF81, 0x7F81, "bf16") == 0xFFC0


def test_layouts_and_what_is_refused():
    x = np.arange(12, dtype=np.uint8).reshape(3, 4)
    out = np.empty((3, 4), np.uint8)
    assert lp.neg(x.T[::2], "e4m3fn").shape == (2, 3)
    assert lp.neg(x, "e4m3fn", out=out) is out
    assert np.array_equal(lp.neg(out, "e4m3fn"), x)
    assert lp.neg(x[:0], "e4m3fn").shape == (0, 4)
    stored = np.array([1.0, -2.0], ml_dtypes.float8_e4m3fn)
    assert lp.decode(lp.abs(stored, "e4m3fn"), "e4m3fn").tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="e8m0 has no sign"):
        lp.neg(x, "e8m0")
    with pytest.raises(ValueError, match="broadcast"):
        lp.less(x, x[:2], "e4m3fn")
    with pytest.raises(TypeError, match="float64"):
        lp.less(x, 1.0, "e4m3fn")
    with pytest.raises(ValueError, match="bits"):
        lp.neg(np.array([200], np.uint8), "e2m1")


def test_scalars_in_compiled_code():
    fmt = FORMATS["e4m3fnuz"]

    @njit
    def largest(codes, fmt):
        best = scalar.abs(codes[0], fmt)
        for code in codes:
            best = scalar.maximum_number(best, scalar.abs(code, fmt), fmt)
        return best

    codes = np.arange(256, dtype=np.uint8)
    assert largest(codes, fmt) == 0x7F
    for a, b in ((0x80, 0x12), (0x12, 0x93), (0x93, 0x80), (5, 5)):
        for name in ("minimum", "maximum", "minimum_number", "maximum_number"):
            assert getattr(scalar, name)(a, b, fmt) == getattr(lp, name)(a, b, fmt)
        assert scalar.neg(a, fmt) == lp.neg(a, fmt)
        assert (scalar.order(a, b, fmt) == -1) == lp.less(a, b, fmt)
    assert scalar.isnan(0x80, fmt)
    assert number(Value(1, Fraction(1, 2))) == Fraction(-1, 2)

"""Operations of several operands: against the exact oracle, and against recordings of an H200."""

import numpy as np
import pytest

import oracle
from lpsim import drawn, native, replay
from lpsim.formats import FORMATS

N = 1 << 10


def one(name: str, fmt, x, y, z, w):
    """The operation on oracle Values, each named step rounded to fmt; minimum and maximum are compared elsewhere."""

    def rounded(value):
        return oracle.decode(oracle.encode(value, fmt, nan="nvidia"), fmt)

    def negative(value):
        return value._replace(sign=1 - value.sign)

    last = negative if "-" in name else lambda value: value
    match name.replace("-", "+"):
        case "add":
            return oracle.add(x, y)
        case "sub":
            return oracle.sub(x, y)
        case "mul":
            return oracle.mul(x, y)
        case "div_rn":
            return oracle.div(x, y)
        case "fma" | "x*y + z":
            return oracle.fma(x, y, last(z))
        case "x*y + z, not fused":
            return oracle.add(rounded(oracle.mul(x, y)), last(z))
        case "x*y + z*w":
            return oracle.fma(x, y, last(rounded(oracle.mul(z, w))))
        case "x*y + z*w, not fused":
            return oracle.add(rounded(oracle.mul(x, y)), last(rounded(oracle.mul(z, w))))
    return None


CASES = [
    (fmt, name)
    for fmt in drawn.FORMATS
    for name in native.names(fmt)
    if name != "div" and "imum" not in name  # no single rounding; NaN apart
]


@pytest.mark.parametrize(("fmt", "name"), CASES)
def test_operations_are_the_oracles(fmt, name):
    codes = drawn.codes(21, 0, N, fmt)
    row = FORMATS[fmt]
    found = native.compute(name, fmt, list(codes[: native.operands_of(name)]))
    for i in range(N):
        operands = [oracle.decode(int(code), row) for code in codes[:, i]]
        wanted = oracle.encode(one(name, row, *operands), row, nan="nvidia")
        assert int(found[i]) == wanted, (name, [hex(code) for code in codes[:, i]])


@pytest.mark.parametrize("fmt", drawn.FORMATS)
def test_minimum_and_maximum(fmt):
    x, y = drawn.codes(22, 0, 1 << 14, fmt)[:2]
    row = FORMATS[fmt]
    nan_code = (1 << row.bits - 1) - 1
    infinity = nan_code + 1 - (1 << row.precision - 1)
    half = 1 << (row.bits - 1)
    a, b = (np.where(code >= half, half - 1 - code, code) for code in (x.astype(np.int64), y.astype(np.int64)))
    nan_a, nan_b = ((code.astype(np.int64) & (half - 1)) > infinity for code in (x, y))
    for name, first in (("minimum", a < b), ("maximum", a > b)):
        number = np.where(nan_a, y, np.where(nan_b, x, np.where(first, x, y)))
        number = np.where(nan_a & nan_b, nan_code, number)
        assert np.array_equal(native.compute(name, fmt, [x, y]), number)
        kept = np.where(nan_a | nan_b, nan_code, number)
        assert np.array_equal(native.compute(f"{name}, NaN kept", fmt, [x, y]), kept)


@pytest.mark.parametrize("fmt", drawn.FORMATS)
def test_recorded_operations_agree(fmt):
    assert {name: wrong for name, wrong in replay.mismatches(fmt, [0, 9]).items() if wrong} == {}


def test_every_operation_has_a_recording():
    expected = {f"{fmt}: {name}" for fmt in drawn.FORMATS for name in native.names(fmt)}
    assert {name for name in replay.names() if not name.startswith("ptx:")} == expected


@pytest.mark.parametrize("name", replay.tables())
def test_recorded_tables_agree(name):
    assert np.array_equal(replay.table(name), replay.tables()[name])


def test_a_wrong_operation_is_seen(monkeypatch):
    right = native.FP32["add"]

    def wrong(x, y, out):
        right(x, y, out)
        out[3] = np.nextafter(out[3], np.float32(np.inf))

    monkeypatch.setitem(native.FP32, "add", wrong)
    found = replay.mismatches("fp32", [0])
    assert found.pop("fp32: add") == [0]
    assert not any(found.values())

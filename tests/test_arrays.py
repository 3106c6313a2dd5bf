"""Array functions against the exact oracle and the core's own loops: casts, operations, integers."""

from fractions import Fraction

import numpy as np
import pytest

import loops
import lpsim as lp
import oracle
import probes
from array_data import NAMES, numbers, on_grid, same, some_codes, values
from loops import MODES, make_policy
from lpsim.fills import BUFFER as GRAIN
from lpsim.formats import FORMATS
from operations import OPERATIONS


@pytest.mark.parametrize("rounding", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_encode_is_the_oracles_on_every_edge(name, rounding):
    fmt = FORMATS[name]
    x = values(fmt)
    for overflow in ("ieee", "saturate", "satfinite"):
        wanted = probes.expected(numbers(x), fmt, rounding=rounding, overflow=overflow)
        found = lp.encode(x, name, rounding=rounding, overflow=overflow)
        assert not probes.differences(x, found, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_encode_takes_every_float_dtype_exactly(name):
    import ml_dtypes

    fmt = FORMATS[name]
    for dtype in (np.float16, np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        with np.errstate(all="ignore"):
            x = values(fmt).astype(dtype)
            wide = x.astype(np.float64)
        found = lp.encode(x, name, nan="nvidia")
        assert not probes.differences(wide, found, probes.expected(numbers(wide), fmt, nan="nvidia"))


@pytest.mark.parametrize("name", ["bf16", "fp16", "e4m3fn", "e5m2"])
def test_decode(name):
    fmt = FORMATS[name]
    codes = some_codes(fmt)
    found = lp.decode(codes, name)
    assert found.dtype == np.float32
    for code, value in zip(codes.tolist(), numbers(found), strict=True):
        assert value == oracle.decode(code, fmt)


@pytest.mark.parametrize(
    ("source", "target"), [("bf16", "e4m3fn"), ("fp16", "bf16"), ("e5m2", "fp16"), ("e4m3fn", "tf32")]
)
def test_convert(source, target):
    origin, fmt = FORMATS[source], FORMATS[target]
    codes = some_codes(origin)
    wanted = probes.expected([oracle.decode(int(code), origin) for code in codes], fmt)
    assert not probes.differences(codes, lp.convert(codes, source, target), wanted)


@pytest.mark.parametrize("name", NAMES)
def test_round_is_decode_of_encode_in_the_dtype_of_x(name):
    for dtype in (np.float32, np.float64):
        with np.errstate(over="ignore"):
            x = values(FORMATS[name]).astype(dtype)
        for rounding in ("rne", "rtp"):
            rounded = lp.round(x, name, rounding=rounding)
            same(rounded, lp.decode(lp.encode(x, name, rounding=rounding), name).astype(dtype))
    assert lp.round(np.ones(2, np.float16), "e5m2").dtype == np.float16


@pytest.mark.parametrize("name", ["bf16", "e5m2", "fp32"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_against_the_oracle(operation, name):
    """Operands of the format and binary64 values off its grid; codes of the answers are compared."""
    fmt, row = FORMATS[name], OPERATIONS[operation]
    rng = np.random.default_rng(7)
    operands = [on_grid(fmt, 90, 10 + i) for i in range(row.arity)]
    operands[0][::3] = rng.normal(size=operands[0][::3].size)
    for rounding in ("rne", "rtn"):
        found = lp.encode(getattr(lp, operation)(*operands, name, rounding=rounding, overflow="saturate"), name)
        exact = [row.oracle(*(numbers(v)[0] for v in each), rounding) for each in zip(*operands, strict=True)]
        wanted = probes.expected(exact, fmt, rounding=rounding, overflow="saturate")
        nan = np.array([value.magnitude == oracle.NAN for value in exact])
        assert np.isnan(lp.decode(found, name))[nan].all()
        assert not probes.differences(exact, np.where(nan, 0, found), np.where(nan, 0, wanted))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_against_the_core_across_pieces(operation):
    """More elements than two work buffers hold, in codes: what the threads put together is in order."""
    fmt, row = FORMATS["bf16"], OPERATIONS[operation]
    rng = np.random.default_rng(3)
    codes = [rng.integers(0, 1 << 16, 2 * GRAIN + 77).astype(np.uint16) for _ in range(row.arity)]
    found = lp.encode(getattr(lp, operation)(*(lp.decode(c, fmt) for c in codes), fmt), fmt)
    assert (found == loops.apply_all(operation, codes, fmt, make_policy())).all()


# Integers and Fractions: one rounding ---------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint64"])
@pytest.mark.parametrize("name", ["bf16", "fp32", "e4m3fn"])
def test_integers(name, dtype):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(1)
    x = [0, 1, info.max, info.max - 1, info.min, info.min + 1, info.max // 2 + 1, info.max // 3]
    x += rng.integers(info.min, info.max, 60, dtype=dtype).tolist()
    x += [v for e in range(3, 62) for v in ((1 << e) + 1, (1 << e) - 1, 3 << e >> 1) if v <= info.max]
    for rounding in MODES:
        wanted = probes.expected([oracle.number(v) for v in x], FORMATS[name], rounding=rounding)
        found = lp.encode(np.array(x, dtype), name, rounding=rounding)
        assert not probes.differences(x, found, wanted)


def test_python_ints_and_fractions_of_any_size():
    rng = np.random.default_rng(2)
    x = [int.from_bytes(rng.bytes(25), "little") for _ in range(30)] + [2**200, -(2**127) - 1, 2**128 - 2**103]
    x += [Fraction(1, 3), Fraction(-2, 7), Fraction(2**90 + 1, 2**90), Fraction(1, 10**50), Fraction(3, 2**150)]
    x += [(1 << 24) + 1 + Fraction(sign, 10**40) for sign in (-1, 0, 1)]  # beside a tie: binary64 cannot tell
    array = np.array(x, dtype=object)
    for rounding in MODES:
        wanted = probes.expected([oracle.number(v) for v in x], FORMATS["fp32"], rounding=rounding)
        assert not probes.differences(x, lp.encode(array, "fp32", rounding=rounding), wanted)
    assert lp.encode(array[:32].reshape(4, 8), "bf16").shape == (4, 8)
    assert lp.encode(Fraction(1, 3), "fp32") == np.float32(1 / 3).view(np.uint32)
    assert lp.encode(2**200, "bf16") == 0x7F80


def test_an_integer_is_rounded_once():
    """2^53 + 1 + ... beside a midpoint of fp32: through binary64 it would become the tie."""
    x = (1 << 62) + (1 << 38) + 1
    assert lp.encode(np.array([x]), "fp32")[0] != lp.encode(np.array([float(x)]), "fp32")[0]


# Shapes and layouts -----------------------------------------------------------------------------------

"""Foreign witnesses: NumPy's float16, ml_dtypes and gfloat, written by others, agree where they define an answer."""

import gfloat
import gfloat.formats as gf
import ml_dtypes
import numpy as np
import pytest
from gfloat import RoundMode

import lpsim as lp
import oracle
from loops import make_policy, numbers, round_all
from lpsim.formats import lookup
from oracle import number
from rows import ROWS, WIDE, containers

FORMATS = {**ROWS, **WIDE}
ML_DTYPES = {
    "bf16": "bfloat16",
    "e4m3fn": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e4m3fnuz": "float8_e4m3fnuz",
    "e5m2fnuz": "float8_e5m2fnuz",
    "e4m3b11fnuz": "float8_e4m3b11fnuz",
    "e4m3": "float8_e4m3",
    "e3m4": "float8_e3m4",
    "e3m2": "float6_e3m2fn",
    "e2m3": "float6_e2m3fn",
    "e2m1": "float4_e2m1fn",
    "e8m0": "float8_e8m0fnu",
}


def float32_inputs() -> np.ndarray:
    """Every upper half of a float32 with lower halves at and around the ties of bf16, and random ones."""
    upper = np.arange(0, 1 << 16, 7, dtype=np.uint32) << np.uint32(16)
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    random = np.random.default_rng(8).integers(0, 1 << 32, 20000).astype(np.uint32)
    bits = np.concatenate([(upper[:, None] | lower).ravel(), random])
    x = bits.view(np.float32)
    return x[~np.isnan(x)]


@pytest.mark.parametrize("name", ML_DTYPES)
def test_ml_dtypes_casts_from_float32(name):
    """From float32 only: ml_dtypes rounds other sources twice. Codes are compared; NaN by class."""
    fmt, dtype = lookup(name), np.dtype(getattr(ml_dtypes, ML_DTYPES[name]))
    x = float32_inputs()
    overflow = "ieee" if fmt.nans or fmt.infinity or not fmt.negative_zero else "satfinite"
    if name == "e8m0":  # ml_dtypes takes every tie up, P3109 and we to the even code; it also differs below the grid
        x = x[(x > 2.0**-126) & (x < np.inf) & (x.view(np.uint32) & 0x7FFFFF != 0x400000)]
    with np.errstate(over="ignore", invalid="ignore"):
        theirs = x.astype(dtype)
    ours = lp.encode(x, fmt, overflow=overflow)
    theirs_nan = np.isnan(theirs.astype(np.float32))
    nan = np.array([oracle.decode(int(code), fmt).magnitude == oracle.NAN for code in containers(fmt)])
    assert np.array_equal(nan[ours], theirs_nan)
    raw = theirs.view(np.uint16 if fmt.bits > 8 else np.uint8)
    assert np.array_equal(raw[~theirs_nan], ours[~theirs_nan])


@pytest.mark.parametrize("name", ML_DTYPES)
def test_ml_dtypes_decodes_every_code(name):
    fmt, dtype = lookup(name), np.dtype(getattr(ml_dtypes, ML_DTYPES[name]))
    codes = np.array(containers(fmt), np.uint16 if fmt.bits > 8 else np.uint8)
    theirs = codes.view(dtype).astype(np.float32)
    assert np.array_equal(lp.decode(codes, fmt), theirs, equal_nan=True)
    assert np.array_equal(np.signbit(lp.decode(codes, fmt))[theirs == 0], np.signbit(theirs)[theirs == 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_float16_casts(dtype):
    x = float32_inputs().astype(dtype)
    if dtype == np.float64:
        x = np.concatenate([x, np.random.default_rng(1).normal(size=20000) * 2.0 ** np.arange(-30, -10).repeat(1000)])
    with np.errstate(over="ignore", under="ignore"):
        assert np.array_equal(lp.encode(x, "fp16"), x.astype(np.float16).view(np.uint16))


def test_numpy_float16_decodes_every_code():
    codes = np.arange(1 << 16, dtype=np.uint16)
    assert np.array_equal(lp.decode(codes, "fp16"), codes.view(np.float16).astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "sqrt"])
def test_numpy_float16_arithmetic(name):
    """NumPy computes in float32 and narrows, which is right for these five: 24 >= 2 * 11 + 2 bits."""
    codes = np.random.default_rng(2).integers(0, 1 << 16, (2, 30000)).astype(np.uint16)
    a, b = codes.view(np.float16)
    theirs = {"sub": "subtract", "mul": "multiply", "div": "divide"}.get(name, name)
    operands = (a,) if name == "sqrt" else (a, b)
    with np.errstate(all="ignore"):
        wanted = getattr(np, theirs)(*operands)
    found = getattr(lp, name)(*operands, "fp16")
    assert found.dtype == np.float16
    nan = np.isnan(wanted)
    assert np.array_equal(np.isnan(found), nan)
    assert np.array_equal(found.view(np.uint16)[~nan], wanted.view(np.uint16)[~nan])


GFLOAT = {
    "bf16": gf.format_info_bfloat16,
    "fp16": gf.format_info_binary16,
    "e4m3fn": gf.format_info_ocp_e4m3,
    "e5m2": gf.format_info_ocp_e5m2,
    "e3m2": gf.format_info_ocp_e3m2,
    "e2m3": gf.format_info_ocp_e2m3,
    "e2m1": gf.format_info_ocp_e2m1,
    "e8m0": gf.format_info_ocp_e8m0,
}
for _bits, _precision, _signed, _domain in [
    *((8, p, "s", d) for p in (1, 2, 3, 4, 5, 7) for d in "ef"),
    *((8, p, "u", d) for p in (1, 3, 8) for d in "ef"),
    *((k, 3, "s", "e") for k in (4, 5, 6, 10)),
]:
    GFLOAT[f"binary{_bits}p{_precision}{_signed}{_domain}"] = gf.format_info_p3109(
        _bits,
        _precision,
        gf.Signedness.Signed if _signed == "s" else gf.Signedness.Unsigned,
        gf.Domain.Extended if _domain == "e" else gf.Domain.Finite,
    )


@pytest.mark.parametrize("name", GFLOAT)
def test_gfloat_decodes_every_code(name):
    fmt, info = lookup(name), GFLOAT[name]
    for code in list(containers(fmt))[:: 37 if fmt.bits > 10 else 1]:
        theirs, ours = gfloat.decode_float(info, code).fval, oracle.decode(code, fmt)
        if np.isnan(theirs):
            assert ours.magnitude == oracle.NAN
        else:
            assert number(float(theirs)) == ours, hex(code)


GFLOAT_MODES = {
    "rne": RoundMode.TiesToEven,
    "rna": RoundMode.TiesToAway,
    "rtz": RoundMode.TowardZero,
    "rtp": RoundMode.TowardPositive,
    "rtn": RoundMode.TowardNegative,
    "A": RoundMode.StochasticFastest,
    "B": RoundMode.StochasticFast,
    "C": RoundMode.Stochastic,
}


@pytest.mark.parametrize("mode", GFLOAT_MODES)
@pytest.mark.parametrize("name", GFLOAT)
def test_gfloat_rounds(name, mode):
    """Random values around every magnitude, clamped at the top; zero, unsigned negatives and NaN are left out."""
    fmt, info = lookup(name), GFLOAT[name]
    random = np.random.default_rng(4)
    magnitudes = random.integers(0 if fmt.zero else 1, oracle.largest(fmt), 60)
    x = [float(oracle.grid(int(m), fmt)) for m in magnitudes]
    step = [float(oracle.grid(int(m) + 1, fmt) - oracle.grid(int(m), fmt)) for m in magnitudes]
    part = random.integers(0, 33, len(x)) / 32
    x = np.array(x) + np.array(step) * part
    x = x[x > 0] * np.where(random.integers(0, 2, np.count_nonzero(x > 0)) & fmt.signed, -1.0, 1.0)
    bits, word = (3, 5) if mode in "ABC" else (0, 0)
    policy = make_policy(mode, "satfinite", bits=bits)
    codes = round_all(numbers([number(float(v)) for v in x]), fmt, policy, word)
    for value, code in zip(x, codes.tolist(), strict=True):
        theirs = gfloat.round_float(info, float(value), GFLOAT_MODES[mode], True, word, bits)
        assert oracle.decode(code, fmt) == number(float(theirs)), value

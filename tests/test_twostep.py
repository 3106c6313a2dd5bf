"""Two roundings against the oracle applied twice, and where they differ from one."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import lpsim as lp
import oracle
from lpsim.formats import FORMATS, Format
from rows import ROWS, containers

BF16, FP16, FP32, E4M3 = (FORMATS[name] for name in ("bf16", "fp16", "fp32", "e4m3fn"))


def twice(value: oracle.Value, first, second, **rules) -> int | None:
    code = oracle.encode(value, first, **rules)
    assert code is not None
    return oracle.encode(oracle.decode(code, first), second, **rules)


@pytest.mark.parametrize("mode", ["rne", "rna", "rto", "rtn"])
def test_encode_via(mode):
    x = np.random.default_rng(0).normal(size=3000)
    x[::2] = 1 + np.arange(1500) * 2.0**-11 + 2.0**-30  # around midpoints of e4m3 that fp16 cannot tell
    found = lp.encode_via(x, "e4m3fn", through="fp16", rounding=mode)
    assert found.tolist() == [twice(oracle.number(float(v)), FP16, E4M3, rounding=mode) for v in x]
    same = np.array_equal(found, lp.encode(x, "e4m3fn", rounding=mode))
    assert same == (mode in ("rto", "rtn")), "to odd and directed modes may be repeated, nearest may not"


def test_the_known_victims_of_two_roundings():
    assert int(lp.encode(63343.99805, "fp16")) == 0x7BBB
    assert int(lp.encode_via(63343.99805, "fp16", through="fp32")) == 0x7BBC
    tiny = float(np.nextafter(2.0**-25, 1))
    assert int(lp.encode(tiny, "fp16")) == 1
    assert int(lp.encode_via(tiny, "fp16", through="fp32")) == 0
    assert int(lp.encode(1 + 2.0**-8 + 2.0**-40, "bf16")) == 0x3F81
    assert int(lp.encode_via(1 + 2.0**-8 + 2.0**-40, "bf16", through="fp32")) == 0x3F80
    assert lp.encode_via(2**80 + 2**72 + 1, "bf16", through="fp32") == 0x6780  # one rounding: 0x6781
    assert lp.round_via(1 + 2.0**-8 + 2.0**-40, "bf16", through="fp32") == 1.0


def test_overflow_on_the_way():
    """70000 is a number of bf16, but fp16 does not reach that far."""
    assert int(lp.encode_via(70000.0, "bf16", through="fp16")) == 0x7F80
    assert lp.decode(lp.encode_via(70000.0, "bf16", through="fp16", overflow="satfinite"), "bf16") == 65536


def test_fma_via_fp32_is_not_fma():
    codes = np.random.default_rng(33).integers(0x3E00, 0x4200, (3, 3000)).astype(np.uint16)
    a, b, c = lp.decode(codes, "bf16")
    c = c * np.float32(2.0**-30)
    wanted, once = [], []
    for row in zip(a, b, c, strict=True):
        exact = oracle.fma(*(oracle.number(float(v)) for v in row))
        wanted.append(twice(exact, FP32, BF16))
        once.append(oracle.encode(exact, BF16))
    assert lp.encode(lp.fma_via_fp32(a, b, c, "bf16"), "bf16").tolist() == wanted
    assert lp.encode(lp.fma(a, b, c, "bf16"), "bf16").tolist() == once
    assert wanted != once, "else this test sees nothing"


def test_mul_then_add():
    x, z = lp.decode(0x3F81, "bf16"), lp.decode(0xBF82, "bf16")
    assert lp.fma(x, x, z, "bf16") == 2.0**-14
    assert lp.mul_then_add(x, x, z, "bf16") == 0.0
    a, c = np.array([0x3F800800, 0xBF801000], np.uint32).view(np.float32)
    assert lp.fma(a, a, c, "fp32").view(np.uint32) == 0x33800000
    assert lp.mul_then_add(a, a, c, "fp32").view(np.uint32) == 0
    e4m3 = lp.decode(np.arange(0x20, 0x60, dtype=np.uint8), "e4m3fn").astype(np.float64)
    found = lp.mul_then_add(e4m3[:, None], e4m3, -e4m3[5], "e4m3fn", rounding="rtp")
    for (i, j), value in np.ndenumerate(found):
        product = oracle.mul(*(oracle.number(float(e4m3[k])) for k in (i, j)))
        first = oracle.decode(oracle.encode(product, E4M3, rounding="rtp"), E4M3)
        total = oracle.add(first, oracle.number(-float(e4m3[5])), "rtp")
        wanted = oracle.decode(oracle.encode(total, E4M3, rounding="rtp"), E4M3)
        assert oracle.number(float(value)) == wanted or (np.isnan(value) and wanted.magnitude == oracle.NAN)


def test_one_stream_for_two_roundings_is_refused():
    noise = lp.stochastic(bits=8, seed=0, stream=0)
    x = np.ones(2)
    for call in (
        lambda: lp.encode_via(x, "bf16", through="fp16", rounding=noise),
        lambda: lp.round_via(x, "bf16", through="fp16", rounding=noise),
        lambda: lp.mul_then_add(x, x, x, "bf16", rounding=noise),
    ):
        with pytest.raises(ValueError, match="two streams"):
            call()
    with pytest.raises(ValueError, match="fp16"):
        lp.round_via(lp.decode(np.zeros(2, np.uint16), "bf16").astype(ml_dtypes.bfloat16), "e4m3fn", through="fp16")


@pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "e4m3fnuz", "e8m0", "ue4m3", "e2m1", "binary8p1se", "padded5"])
def test_decode_exact(name):
    fmt = ROWS[name]
    codes = np.array(containers(fmt), np.uint8)
    for code, found in zip(codes, lp.decode_exact(codes.reshape(2, -1), fmt).reshape(-1), strict=True):
        wanted = oracle.decode(int(code), fmt)
        if isinstance(wanted.magnitude, str):
            assert isinstance(found, float)
            assert str(found).removeprefix("-") == wanted.magnitude
            assert wanted.magnitude == oracle.NAN or (found < 0) == bool(wanted.sign)
        else:
            assert isinstance(found, Fraction)
            assert found == (-1) ** wanted.sign * wanted.magnitude


def test_decode_exact_beyond_float64():
    far = Format(16, 2, 1 << 13, negative_zero=0)
    with pytest.raises(ValueError, match="decode_exact"):
        lp.decode(np.zeros(1, np.uint16), far)
    top = lp.decode_exact(0x7FFF, far)
    assert top == Fraction(3, 2) * 2 ** (2**14 - 1 - 2**13)
    assert int(lp.encode(np.array([top], object), far)[0]) == 0x7FFF

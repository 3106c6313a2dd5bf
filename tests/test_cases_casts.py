"""Casts that went wrong for real users of other libraries, each with its right answer.

Every expected code below is checked against the oracle as well, so a slip in the table fails too.
"""

from fractions import Fraction

import numpy as np
import pytest

import lpsim as lp
import oracle
from lpsim._jit import njit
from lpsim.scalar import decode as lp_decode
from lpsim.scalar import encode as lp_encode
from rows import ROWS, WIDE

FORMATS = {**ROWS, **WIDE}
INF, NAN = float("inf"), float("nan")


def f32(bits: int) -> np.float32:
    return np.array(bits, np.uint32).view(np.float32)[()]


def encode(x, fmt: str, **rules) -> int:
    return int(lp.encode(x, FORMATS[fmt], **rules))


def exactly(x) -> oracle.Value:
    if isinstance(x, int | np.integer):
        return oracle.number(int(x))
    return oracle.number(x if isinstance(x, Fraction) else float(x))


RTZ, RNA = {"rounding": "rtz"}, {"rounding": "rna"}
SATURATE, SATFINITE = {"overflow": "saturate"}, {"overflow": "satfinite"}

#: what happened, source value, format, policies, code
CASES = [
    ("double rounding from float64", 1 + 2**-8 + 2**-40, "bf16", {}, 0x3F81),
    ("double rounding from int64", np.int64(2**40 + 2**32 + 1), "bf16", {}, 0x5381),
    ("double rounding from a Python int", 2**80 + 2**72 + 1, "bf16", {}, 0x6781),
    ("double rounding from a Fraction", 1 + Fraction(1, 256) + Fraction(1, 3**60), "bf16", {}, 0x3F81),
    ("double rounding from uint64", np.uint64(2**63 + 2**55 + 1), "bf16", {}, 0x5F01),
    ("through float32", 63343.99805, "fp16", {}, 0x7BBB),
    ("that float32 itself", np.float32(63343.99805), "fp16", {}, 0x7BBC),
    ("tiny, next above half", np.nextafter(2.0**-25, 1), "fp16", {}, 0x0001),
    ("tiny, half", 2.0**-25, "fp16", {}, 0x0000),
    ("lost carry", 0.499999990234375, "fp16", {}, 0x3800),
    ("ties away", 128.5, "bf16", {}, 0x4300),
    ("ties away, by name", 128.5, "bf16", RNA, 0x4301),
    ("ties away, negative", -128.5, "bf16", {}, 0xC300),
    ("ties away, negative, by name", -128.5, "bf16", RNA, 0xC301),
    ("add half", 1.01953125, "bf16", {}, 0x3F82),
    ("truncation of 3.14", f32(0x4048F5C3), "bf16", {}, 0x4049),
    ("truncation of 3.14, by name", f32(0x4048F5C3), "bf16", RTZ, 0x4048),
    ("truncation of 1e-8", f32(0x322BCC77), "bf16", {}, 0x322C),
    ("truncation of 1e-8, by name", f32(0x322BCC77), "bf16", RTZ, 0x322B),
    ("tie to one", 1.00390625, "bf16", {}, 0x3F80),
    ("truncation of 0.269", f32(0x3E89CCD5), "bf16", {}, 0x3E8A),
    ("truncation of 0.269, by name", f32(0x3E89CCD5), "bf16", RTZ, 0x3E89),
    ("truncation of 70000", np.float32(70000), "bf16", {}, 0x4789),
    ("truncation of 70000, by name", np.float32(70000), "bf16", RTZ, 0x4788),
    ("largest float32 is above bf16", f32(0x7F7FFFFF), "bf16", {}, 0x7F80),
    ("largest float32, saturated", f32(0x7F7FFFFF), "bf16", SATURATE, 0x7F7F),
    ("bf16 subnormal", 2.0**-127, "bf16", {}, 0x0040),
    ("smallest bf16 from float32", np.float32(2.0**-133), "bf16", {}, 0x0001),
    ("smallest bf16 from float64", 2.0**-133, "bf16", {}, 0x0001),
    ("half of the smallest bf16", 2.0**-134, "bf16", {}, 0x0000),
    ("largest float32 subnormal", f32(0x007FFFFF), "bf16", {}, 0x0080),
    ("just above half of the smallest", f32(0x00008001), "bf16", {}, 0x0001),
    ("tie between subnormals", f32(0x00018000), "bf16", {}, 0x0002),
    ("exact in bf16, not in fp16", f32(0x36D70000), "fp16", {}, 0x006C),
    ("exact in bf16", f32(0x36D70000), "bf16", {}, 0x36D7),
    ("tie down to even", f32(0x34200000), "fp16", {}, 0x0002),
    ("tie up to even", f32(0x34600000), "fp16", {}, 0x0004),
    ("tie at two", f32(0x40001000), "fp16", {}, 0x4000),
    ("tie to even, e4m3", 4.25, "e4m3fn", {}, 0x48),
    ("off by one", 1.8131605, "e4m3fn", {}, 0x3F),
    ("above the largest, rounds down", 449.0, "e4m3fn", {}, 0x7E),
    ("above the largest, saturated", 449.0, "e4m3fn", SATURATE, 0x7E),
    ("tie at the border", f32(0x43E80000), "e4m3fn", {}, 0x7E),
    ("tie at the border, saturated", f32(0x43E80000), "e4m3fn", SATURATE, 0x7E),
    ("next above the border", f32(0x43E80001), "e4m3fn", {}, 0x7F),
    ("next above the border, saturated", f32(0x43E80001), "e4m3fn", SATURATE, 0x7E),
    ("far above", 1000.0, "e4m3fn", {}, 0x7F),
    ("far above, saturated", 1000.0, "e4m3fn", SATURATE, 0x7E),
    ("e5m2 infinity", INF, "e5m2", {}, 0x7C),
    ("e5m2 infinity stays under saturate", INF, "e5m2", SATURATE, 0x7C),
    ("e5m2 infinity clamps under satfinite", INF, "e5m2", SATFINITE, 0x7B),
    ("e5m2 overflow border", f32(0x47700000), "e5m2", {}, 0x7C),
    ("e5m2 just below the border", f32(0x476FFFFF), "e5m2", {}, 0x7B),
    ("e5m2 overflow border, satfinite", f32(0x47700000), "e5m2", SATFINITE, 0x7B),
    ("largest fp16 to e5m2", 65504.0, "e5m2", {}, 0x7C),
    ("largest fp16 to e5m2, satfinite", 65504.0, "e5m2", SATFINITE, 0x7B),
    ("tiny negative where -0 is NaN", -1e-8, "e4m3fnuz", {}, 0x00),
    ("tiny negative where -0 is NaN, e5m2", -1e-8, "e5m2fnuz", {}, 0x00),
    ("tiny negative keeps its sign", -1e-8, "e4m3fn", {}, 0x80),
    ("tiny negative keeps its sign, e5m2", -1e-8, "e5m2", {}, 0x80),
    ("-0.0", -0.0, "e4m3fn", {}, 0x80),
    ("-0.0 to e5m2", -0.0, "e5m2", {}, 0x80),
    ("-0.0 to bf16", -0.0, "bf16", {}, 0x8000),
    ("infinity where there is only one NaN", INF, "e4m3fnuz", {}, 0x80),
    ("-infinity where there is only one NaN", -INF, "e4m3fnuz", {}, 0x80),
    ("e5m2 tie", 1.625, "e5m2", {}, 0x3E),
    ("e5m2 smallest", 2.0**-16, "e5m2", {}, 0x01),
    ("e5m2 1e-5", 1e-5, "e5m2", {}, 0x01),
    ("e5m2 tie to zero", 2.0**-17, "e5m2", {}, 0x00),
    ("e5m2 tie to one", 1.125, "e5m2", {}, 0x3C),
    ("through fp16 it would be a tie", np.float32(1.0625 + 2.0**-20), "e4m3fn", {}, 0x39),
    ("subnormal rounded twice", f32(0x3C6A6A03), "e4m3fn", {}, 0x07),
    ("int 257", 257, "bf16", {}, 0x4380),
    ("int 259", 259, "bf16", {}, 0x4382),
    ("2^-15 to fp16", f32(0x38000000), "fp16", {}, 0x0200),
    ("half a step above 1", 1.00048828125, "fp16", {}, 0x3C00),
    ("half a step above 1, ties away", 1.00048828125, "fp16", RNA, 0x3C01),
    ("tf32 half a step above 1", f32(0x3F801000), "tf32", {}, 0x3F800000),
    ("tf32 half a step above 1, ties away", f32(0x3F801000), "tf32", RNA, 0x3F802000),
    ("tf32 half a step above 1, truncated", f32(0x3F801000), "tf32", RTZ, 0x3F800000),
    ("tf32 above half", f32(0x3F801001), "tf32", {}, 0x3F802000),
    ("tf32 above half, ties away", f32(0x3F801001), "tf32", RNA, 0x3F802000),
    ("tf32 above half, truncated", f32(0x3F801001), "tf32", RTZ, 0x3F800000),
    ("three stays three in fp32", 3.0, "fp32", {}, 0x40400000),
]


@pytest.mark.parametrize(("what", "x", "fmt", "rules", "code"), CASES, ids=[case[0] for case in CASES])
def test_code(what, x, fmt, rules, code):
    assert oracle.encode(exactly(x), FORMATS[fmt], **rules) == code, "the table is wrong"
    assert encode(x, fmt, **rules) == code


#: float32 bits of a NaN; bf16 under canonical, propagate, nvidia
NANS = [
    (0xFFC12345, 0xFFC0, 0xFFC1, 0x7FFF),
    (0x7F800001, 0x7FC0, 0x7FC0, 0x7FFF),
    (0x7FFFFFFF, 0x7FC0, 0x7FFF, 0x7FFF),
    (0xFFFFFFFF, 0xFFC0, 0xFFFF, 0x7FFF),
    (0xFF800001, 0xFFC0, 0xFFC0, 0x7FFF),
]


@pytest.mark.parametrize(("bits", "canonical", "propagate", "nvidia"), NANS)
def test_nan_keeps_class_and_sign(bits, canonical, propagate, nvidia):
    """Low payloads became infinity, all ones became zero, signs were lost."""
    x = np.array([bits], np.uint32).view(np.float32)
    for mode in ("rne", "rna", "rtz", "rtp", "rtn", "rto"):
        for nan, code in (("canonical", canonical), ("propagate", propagate), ("nvidia", nvidia)):
            assert int(lp.encode(x, "bf16", rounding=mode, nan=nan)[0]) == code, (mode, nan)


@pytest.mark.parametrize("mode", ["rne", "rna", "rtz", "rtp", "rtn", "rto"])
@pytest.mark.parametrize("fmt", ["bf16", "fp16", "e5m2"])
def test_infinity_and_zero_survive_every_mode(fmt, mode):
    row = FORMATS[fmt]
    for x in (INF, -INF, 0.0, -0.0):
        value = oracle.decode(encode(x, fmt, rounding=mode), row)
        assert value == exactly(x)


@pytest.mark.parametrize("fmt", ["bf16", "fp16", "e4m3fn", "e5m2"])
def test_carry_at_every_binade_top(fmt):
    """The last float64 below each power of two rounds up to it."""
    row = FORMATS[fmt]
    binade = 2 ** (row.precision - 1)
    codes = np.arange(binade, oracle.largest(row) + 1, binade)
    powers = np.array([float(oracle.grid(int(m), row)) for m in codes])
    assert lp.encode(np.nextafter(powers, 0), row).tolist() == codes.tolist()
    assert lp.encode(-np.nextafter(powers, 0), row).tolist() == (codes + 2 ** (row.bits - 1)).tolist()


def test_flush_is_a_switch():
    for subnormals in ("flush_in", "flush_out", "flush"):
        for x in (2.0**-127, 2.0**-133):
            assert encode(np.float32(x), "bf16", subnormals=subnormals) == 0
            assert encode(np.float32(-x), "bf16", subnormals=subnormals) == 0x8000
    assert encode(2.0**-127, "bf16", subnormals="flush_in") == 0x0040  # a normal number of float64
    assert encode(f32(0x007FFFFF), "bf16", subnormals="flush_out") == 0x0080  # rounds to a normal one


def test_mean_error_of_a_binade():
    """Each cast is within an ulp, but truncation leans half an ulp toward zero; nearest does not lean."""
    x = np.arange(0x3F800000, 0x3F820000, dtype=np.uint32).view(np.float32)  # two steps of bf16: every low half
    ulp, mean = 2.0**-7, {}
    for mode in ("rne", "rtz"):
        error = lp.round(x, "bf16", rounding=mode).astype(np.float64) - x
        mean[mode] = error.sum() / x.size / ulp
    assert mean == {"rne": 0.0, "rtz": -(65535 / 2) / 65536}


def test_e4m3_subnormals_decode():
    """m * 2^-9."""
    wanted = [0.001953125, 0.00390625, 0.005859375, 0.0078125, 0.009765625, 0.01171875, 0.013671875]
    assert lp.decode(np.arange(1, 8, dtype=np.uint8), "e4m3fn").tolist() == wanted


def test_minus_zero_is_zero():
    assert not bool(lp.decode(np.array([0x8000], np.uint16), "bf16")[0])


def test_the_only_nan_has_no_sign():
    """abs of 0x80 in fnuz is NaN again, not zero."""
    row = FORMATS["e4m3fnuz"]
    x = lp.decode(np.array([0x80], np.uint8), row)
    assert np.isnan(x).all()
    assert lp.encode(np.abs(x), row).tolist() == [0x80]
    assert lp.encode(-x, row).tolist() == [0x80]


def test_midpoints_of_every_bf16_binade_from_float64():
    """Midpoint, and midpoint and one float64 step: what a detour through float32 cannot tell apart."""
    m = np.arange(0x0080, 0x7F00, 0x55)
    middle = (np.left_shift(m, 16) + 0x8000).astype(np.uint32).view(np.float32).astype(np.float64)
    for x in (np.nextafter(middle, 0), middle, np.nextafter(middle, np.inf)):
        wanted = [oracle.encode(exactly(v), FORMATS["bf16"]) for v in x]
        assert lp.encode(x, "bf16").tolist() == wanted
    through = lp.encode(np.nextafter(middle, np.inf).astype(np.float32), "bf16")
    assert (through != lp.encode(np.nextafter(middle, np.inf), "bf16")).any(), "else this test sees nothing"


def test_subnormals_are_not_rounded_twice():
    """Normal grid first, then a shift: wrong wherever the first rounding makes a tie of the second."""
    e4m3 = FORMATS["e4m3fn"]
    wide = e4m3._replace(bits=11, exponent_bias=67)  # the same precision, no subnormals near
    x = np.arange(0x3B000000, 0x3C800000, 0x3A7, dtype=np.uint32).view(np.float32)
    once = lp.encode(x, e4m3)
    assert once.tolist() == [oracle.encode(exactly(v), e4m3) for v in x]
    assert (once != lp.encode(lp.round(x, wide), e4m3)).any(), "else this test sees nothing"


def test_integers_are_not_promoted_silently():
    with pytest.raises(TypeError, match="integers"):
        lp.add(np.array([257]), np.array([1.0]), "bf16")


def test_fused_and_two_roundings_differ():
    x, z = lp.decode(0x3F81, "bf16"), lp.decode(0xBF82, "bf16")
    assert lp.fma(x, x, z, "bf16") == 2.0**-14
    assert lp.add(lp.mul(x, x, "bf16"), z, "bf16") == 0.0


def test_fma_in_float32_is_not_a_bf16_fma():
    """Products of bf16 and float32 sums, then narrowed: wrong for some raw triples; lp.fma for none."""
    codes = np.random.default_rng(33).integers(0x3E00, 0x4200, (3, 4000)).astype(np.uint16)
    a, b, c = lp.decode(codes, "bf16")
    c = c * np.float32(2.0**-30)
    wanted = [oracle.encode(oracle.fma(*map(exactly, row)), FORMATS["bf16"]) for row in zip(a, b, c, strict=True)]
    assert lp.encode(lp.fma(a, b, c, "bf16"), "bf16").tolist() == wanted
    two_steps = lp.encode(lp.fma(a, b, c, "fp32"), "bf16").tolist()
    assert two_steps != wanted, "else this test sees nothing"


PRODUCTS = [(0x3FA0, 0x3FCE, 0x4001, 0x4000), (0x4050, 0x3F99, 0x4079, 0x4078)]


@pytest.mark.parametrize(("a", "b", "nearest", "truncated"), PRODUCTS)
def test_products_round_by_the_mode_of_the_call(a, b, nearest, truncated):
    x, y = lp.decode(a, "bf16"), lp.decode(b, "bf16")
    assert int(lp.encode(lp.mul(x, y, "bf16"), "bf16")) == nearest
    assert int(lp.encode(lp.mul(x, y, "bf16", rounding="rtz"), "bf16")) == truncated


def test_a_round_trip_survives_the_compiler():
    """pi to bf16 and back is 3.140625, inside a compiled function too: roundings are integers, not casts."""
    bf16 = FORMATS["bf16"]

    @njit
    def there_and_back(x, fmt):
        return lp_decode(lp_encode(x, fmt), fmt)

    pi = np.float32(np.pi)
    assert there_and_back(pi, bf16) == 3.140625 == lp.decode(lp.encode(pi, "bf16"), "bf16")
    assert lp_encode(pi, bf16) == 0x4049

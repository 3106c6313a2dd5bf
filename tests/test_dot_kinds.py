"""Every kind of dot against its definition in exact rationals, and where kinds must agree with each other."""

from fractions import Fraction

import numpy as np
import pytest

import slow_dots as slow
from lpsim import dot_kinds, formats, machines
from lpsim.core import dpa_scaled, kulisch
from lpsim.dot_units import DotUnit, FloorUnit, FlushUnit, FmaUnit, IntegerUnit, LateUnit, ScaledUnit
from lpsim.formats import FORMATS
from lpsim.policies import RNE, RTZ

FP32 = FORMATS["fp32"]
KINDS = ("bits", "ones", "tiny", "huge")


def codes(rng, name, shape, kind):
    """Codes of a format: any bits, or near one, or at the ends of its range; a fifth of them zero."""
    fmt = FORMATS[name]
    half = 1 << (fmt.bits - fmt.signed)
    trailing = fmt.precision - 1
    if kind == "bits":
        made = rng.integers(0, 1 << fmt.bits, shape)
    else:
        spread = max(2, 3 << trailing)
        one, top = fmt.exponent_bias << trailing, formats.max_finite(fmt)
        centre = {"ones": one, "tiny": 0, "huge": top}[kind]
        made = np.clip(centre + rng.integers(-spread, spread + 1, shape), 0, top)
        made = made + half * rng.integers(0, 1 + fmt.signed, shape)
    made[rng.random(shape) < 0.2] = 0
    return made << fmt.pad


def container(name):
    return np.dtype(f"u{formats.container_bits(FORMATS[name]) // 8}")


def same(found, wanted) -> bool:
    """Codes, or None for NaN, against a float32 or float16."""
    return bool(np.isnan(found)) if wanted is None else int(found.view(f"u{found.itemsize}")) == wanted


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("key", "b_name"),
    [
        (("b200", "tcgen05", "e4m3fn", "e8m0"), "e4m3fn"),
        (("b200", "tcgen05", "e5m2", "e8m0"), "e2m3"),
        (("b200", "tcgen05_mxf4", "e2m1", "e8m0"), "e2m1"),
        (("b200", "tcgen05_mxf4", "e2m1", "ue4m3"), "e2m1"),
    ],
)
def test_scaled_blocks(key, b_name, kind):
    unit, a_name, scale_name = machines.SCALED_UNITS[key].unit, key[2], key[3]
    rng = np.random.default_rng([len(kind), len(a_name), unit.scale_block])
    rows = tuple(FORMATS[name] for name in (a_name, b_name, scale_name))
    for trial in range(25):
        a, b = codes(rng, a_name, unit.lanes, kind), codes(rng, b_name, unit.lanes, kind)
        groups = unit.lanes // unit.scale_block
        scales = [codes(rng, scale_name, groups, ["ones", kind][trial % 2]) for _ in "ab"]
        c = int(codes(rng, "fp32", (1,), ["bits", "ones", "tiny"][trial % 3])[0])
        wanted = slow.scaled_block(
            a.tolist(), b.tolist(), c, list(zip(*(x.tolist() for x in scales), strict=True)), rows, unit
        )
        found = dpa_scaled.dot(a, b, c, *scales, rows, unit)
        assert found == (0x7FFFFFFF if wanted is None else wanted), (a, b, c, scales)


def test_a_group_that_cancels_still_aligns():
    """1 - 1 under a scale of 2^40 is zero, yet 1 in the accumulator is cut: the scale's exponent takes part."""
    unit = machines.scaled_row("b200", "tcgen05_mxf4", "e2m1", scales="e8m0").unit
    rows = (FORMATS["e2m1"], FORMATS["e2m1"], FORMATS["e8m0"])
    a, b = np.zeros((1, 64), np.uint8), np.zeros((64, 1), np.uint8)
    a[0, :2], b[:2, 0] = 0b0010, (0b0010, 0b1010)
    scales, one = np.full((1, 2), 127, np.uint8), np.ones((1, 1), np.float32)
    scales[0, 0] = 127 + 40
    assert dot_kinds.scaled(a, scales, b, np.full((2, 1), 127, np.uint8), one, unit, rows) == 0.0
    b[0] = 0  # -1 alone, in units of 2^5
    assert dot_kinds.scaled(a, scales, b, np.full((2, 1), 127, np.uint8), one, unit, rows) == -(2.0**40)
    a[0] = 0  # sixteen zeros: nothing to align to
    assert dot_kinds.scaled(a, scales, b, np.full((2, 1), 127, np.uint8), one, unit, rows) == 1.0


def test_scaled_arrays_are_blocks_in_turn():
    unit = machines.scaled_row("b200", "tcgen05_mxf4", "e2m1", scales="ue4m3").unit
    rows = tuple(FORMATS[name] for name in ("e2m1", "e2m1", "ue4m3"))
    rng = np.random.default_rng(1)
    a, b = codes(rng, "e2m1", (2, 3, 96), "ones").astype(np.uint8), codes(rng, "e2m1", (96, 5), "ones").astype(np.uint8)
    sa, sb = (
        codes(rng, "ue4m3", (2, 3, 6), "ones").astype(np.uint8),
        codes(rng, "ue4m3", (6, 5), "ones").astype(np.uint8),
    )
    c = rng.standard_normal((2, 3, 5)).astype(np.float32)
    found = dot_kinds.scaled(a, sa, b, sb, c, unit, rows).view(np.uint32)
    for w, i, j in np.ndindex(found.shape):
        total = int(c.view(np.uint32)[w, i, j])
        for ks, groups in ((slice(0, 64), slice(0, 4)), (slice(64, 96), slice(4, 6))):
            scales = list(zip(sa[w, i, groups].tolist(), sb[groups, j].tolist(), strict=True))
            total = slow.scaled_block(a[w, i, ks].tolist(), b[ks, j].tolist(), total, scales, rows, unit)
        assert int(found[w, i, j]) == total
    with pytest.raises(ValueError, match="16 consecutive k"):
        dot_kinds.scaled(a, sa[..., :5], b, sb, c, unit, rows)


def test_groups_too_wide_to_be_summed_exactly_are_refused():
    unit = ScaledUnit(lanes=64, group=16, scale_block=32, fraction_bits=35, e_zero=-139)
    rows = (FORMATS["e5m2"], FORMATS["e5m2"], FORMATS["e8m0"])
    a, scales = np.zeros((1, 64), np.uint8), np.zeros((1, 2), np.uint8)
    with pytest.raises(NotImplementedError, match="groups of 16"):
        dot_kinds.scaled(a, scales, a.T, scales.T, None, unit, rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_exact_sums(name, kind):
    unit = machines.dot_row("mi100", None, name).unit
    rng = np.random.default_rng([len(kind), unit.lanes])
    for trial in range(40):
        a, b = (codes(rng, name, unit.lanes, kind).astype(container(name)) for _ in "ab")
        c = codes(rng, "fp32", (1, 1), ["bits", "ones", kind][trial % 3]).astype(np.uint32)
        found = dot_kinds.dot(a[None], b[:, None], c.view(np.float32), unit, FORMATS[name], FORMATS[name])
        wanted = slow.exact_block(a.tolist(), b.tolist(), int(c[0, 0]), FORMATS[name], FORMATS[name])
        assert same(found[0, 0], wanted), (a, b, c)


def test_the_long_accumulator():
    rng = np.random.default_rng(3)
    for _ in range(50):
        terms = [
            (int(s), int(e), int(x))
            for s, e, x in zip(
                rng.integers(0, 2, 9), rng.integers(-300, 360, 9), rng.integers(0, 1 << 24, 9), strict=True
            )
        ]
        limbs = kulisch.new()
        for term in terms:
            kulisch.add(limbs, *term)
        sign, exp, sig = kulisch.total(limbs)
        exact = sum((-1) ** s * x * Fraction(2) ** e for s, e, x in terms)
        assert sign == (exact < 0)
        scaled = abs(exact) / Fraction(2) ** exp
        assert sig == int(scaled) | (scaled.denominator > 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "b_name"), [("bf16", "bf16"), ("fp16", "fp16"), ("e4m3fnuz", "e5m2fnuz")])
def test_floored_sums(name, b_name, kind):
    unit = machines.dot_row("mi300x", None, name, b_name).unit
    rng = np.random.default_rng([len(kind), unit.lanes])
    for trial in range(40):
        a, b = (codes(rng, x, unit.lanes, kind).astype(container(x)) for x in (name, b_name))
        c = codes(rng, "fp32", (1, 1), ["bits", "ones", kind][trial % 3]).astype(np.uint32)
        found = dot_kinds.dot(a[None], b[:, None], c.view(np.float32), unit, FORMATS[name], FORMATS[b_name])
        wanted = slow.floor_block(a.tolist(), b.tolist(), int(c[0, 0]), FORMATS[name], FORMATS[b_name], unit)
        assert same(found[0, 0], wanted), (a, b, c)


def test_floors_point_down():
    """-1 and a product too small to be seen: the sum goes down by one unit, never up. Source: arXiv 2511.10909."""
    unit = FloorUnit(lanes=1, halves=1, fraction_bits=24, joint_bits=24, drop=0)
    one, tiny = np.array([[1.0]], np.float16).view(np.uint16), np.array([[2.0**-24]], np.float16).view(np.uint16)
    c = np.array([[2.0**24]], np.float32)
    fp16 = FORMATS["fp16"]
    assert dot_kinds.dot(tiny, one, c, unit, fp16, fp16) == 2.0**24
    assert dot_kinds.dot(tiny ^ 0x8000, one, c, unit, fp16, fp16) == 2.0**24 - 1
    dropped = FloorUnit(lanes=1, halves=1, fraction_bits=24, joint_bits=31, drop=25)
    assert dot_kinds.dot(one, one, np.array([[-(2.0**-30)]], np.float32), dropped, fp16, fp16) == 1.0


@pytest.mark.parametrize("group", [2, 4])
@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_flushing_sums(name, group):
    unit, fmt = FlushUnit(group), FORMATS[name]
    rng = np.random.default_rng([group, fmt.precision])
    for trial in range(60):
        kind = ("ones", "tiny")[trial % 2]
        a, b = (codes(rng, name, 8, x).astype(container(name)) for x in (kind, "ones"))
        c = codes(rng, "fp32", (1, 1), kind).astype(np.uint32)
        found = dot_kinds.dot(a[None], b[:, None], c.view(np.float32), unit, fmt, fmt)[0, 0]
        wanted = slow.flush_dot(a.tolist(), b.tolist(), int(c[0, 0]), fmt, fmt, unit)
        assert int(np.abs(found).view(np.uint32)) == wanted & 0x7FFFFFFF
        assert found == 0 or int(found.view(np.uint32)) == wanted


@pytest.mark.parametrize("saturates", [0, 1])
def test_integers_wrap_or_clamp(saturates):
    unit = IntegerUnit(32, saturates)
    rng = np.random.default_rng(saturates)
    a, b = rng.integers(-128, 128, (2, 4, 80)).astype(np.int8), rng.integers(-128, 128, (80, 3)).astype(np.int8)
    a[0, 0], b[:, 0] = 127, 127
    c = rng.integers(-(2**31), 2**31, (2, 4, 3)).astype(np.int32)
    c[0, 0, 0] = 2**31 - 1000
    found = dot_kinds.dot(a, b, c, unit, None, None)
    for w, i, j in np.ndindex(found.shape):
        assert found[w, i, j] == slow.integer_dot(a[w, i].tolist(), b[:, j].tolist(), int(c[w, i, j]), unit)
    assert (found[0, 0, 0] == 2**31 - 1) == bool(saturates)


def test_chains_of_fma_round_every_step():
    rng = np.random.default_rng(7)
    for bits, dtype in ((32, np.float32), (64, np.float64)):
        a, b = rng.standard_normal((3, 9)).astype(dtype), rng.standard_normal((9, 2)).astype(dtype)
        c = rng.standard_normal((3, 2)).astype(dtype)
        found = dot_kinds.dot(a, b, c, FmaUnit(bits), None, None)
        for i, j in np.ndindex(found.shape):
            total = c[i, j]
            for k in range(9):  # int / int is rounded to nearest even by Python; so is float32 of that in these ranges
                exact = Fraction(float(a[i, k])) * Fraction(float(b[k, j])) + Fraction(float(total))
                total = _nearest(exact, bits)
            assert found[i, j] == total
    infinite = dot_kinds.dot(
        np.array([[np.inf]], np.float32), np.zeros((1, 1), np.float32), None, FmaUnit(32), None, None
    )
    assert infinite.view(np.uint32) == 0x7FFFFFFF


def _nearest(x: Fraction, bits: int) -> float:
    if bits == 64:
        return x.numerator / x.denominator
    found = slow.code(x, "rne")
    return float(np.uint32(found).view(np.float32))


@pytest.mark.parametrize("accumulator", ["fp32", "fp16"])
def test_a_late_accumulator_is_one_addition(accumulator):
    row = machines.dot_row("h200", "mma_ptx", "e4m3fn", accumulator=accumulator)
    assert isinstance(row.unit, LateUnit)
    rng = np.random.default_rng(5)
    fmt = FORMATS["e4m3fn"]
    a, b = (
        codes(rng, "e4m3fn", (4, 64), "ones").astype(np.uint8),
        codes(rng, "e4m3fn", (64, 3), "ones").astype(np.uint8),
    )
    dtype = np.float32 if accumulator == "fp32" else np.float16
    c = rng.standard_normal((4, 3)).astype(dtype)
    found = dot_kinds.dot(a, b, c, row.unit, fmt, fmt)
    by_hand = c
    for ks in (slice(0, 32), slice(32, 64)):
        by_hand = by_hand + dot_kinds.dot(a[:, ks], b[ks], None, row.unit.unit, fmt, fmt)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, by_hand)
    live = dot_kinds.dot(a, b, c, row.unit.unit, fmt, fmt)
    assert (live != found).any()
    assert np.isnan(dot_kinds.dot(a, b, np.full_like(c, np.nan), row.unit, fmt, fmt)).all()


def test_fp16_accumulators_overflow_and_keep_subnormals():
    unit = DotUnit(16, 25, RNE, 10, -21, exponent_bits=5, accumulator_fraction=10)
    fp16 = FORMATS["fp16"]
    big = np.full((1, 16), 64.0, np.float16).view(np.uint16)
    assert dot_kinds.dot(big, big.T, None, unit, fp16, fp16) == np.inf
    tiny = np.full((1, 1), 2.0**-12, np.float16).view(np.uint16)
    assert dot_kinds.dot(tiny, tiny, None, unit, fp16, fp16) == np.float16(2.0**-24)
    nan = np.full((1, 1), 0x7E01, np.uint16)
    assert dot_kinds.dot(nan, tiny, None, unit, fp16, fp16).view(np.uint16) == 0x7FFF
    with pytest.raises(TypeError, match="float16"):
        dot_kinds.dot(tiny, tiny, np.zeros((1, 1), np.float32), unit, fp16, fp16)


def test_shapes_and_empty_operands():
    truncating = DotUnit(16, 25, RTZ, 23, -133)
    bf16 = FORMATS["bf16"]
    for unit, a, fmt in (
        (truncating, np.ones((2, 0), np.uint16), bf16),
        (FmaUnit(32), np.ones((2, 0), np.float32), None),
        (IntegerUnit(32, 0), np.ones((2, 0), np.int8), None),
        (FlushUnit(4), np.ones((2, 0), np.uint16), bf16),
    ):
        assert (dot_kinds.dot(a, a.T, None, unit, fmt, fmt) == np.zeros((2, 2))).all()
    with pytest.raises(ValueError, match="do not fit"):
        dot_kinds.dot(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32), None, FmaUnit(32), None, None)
    with pytest.raises(TypeError, match="int8"):
        dot_kinds.dot(np.ones((2, 3), int), np.ones((3, 2), np.int8), None, IntegerUnit(32, 0), None, None)

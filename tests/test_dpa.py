"""core/dpa against the definition in exact rationals: aligned, truncated, added, rounded once."""

import math
from fractions import Fraction

import numpy as np
import pytest

from lpsim import formats, machines
from lpsim.core import dpa
from lpsim.policies import RNE, RTZ

H200 = {name: machines.dot_row("h200", "wgmma", name).unit for name in ("bf16", "fp16", "tf32", "e4m3fn", "e5m2")}
FP8_AS_FP16 = machines.dot_row("h200", "mma", "e5m2").unit
FP16_RESULT = machines.DotUnit(8, 24, RNE, 10, -20, exponent_bits=5, accumulator_fraction=10)  # Turing, HMMA.1688
VOLTA = machines.DotUnit(4, 23, RTZ, 23, -131)


def value(code, fmt):
    """Exact value and exponent of a code, or a float for Inf and NaN; read off the format's fields."""
    code >>= fmt.pad
    trailing, width = fmt.precision - 1, fmt.bits - fmt.precision
    sign = -1 if code >> (fmt.bits - 1) else 1
    field, fraction = code >> trailing & ((1 << width) - 1), code & ((1 << trailing) - 1)
    magnitude = code & ((1 << (fmt.bits - 1)) - 1)
    if magnitude > (1 << (fmt.bits - 1)) - 1 - fmt.nans:
        return math.nan, 0
    if fmt.infinity and magnitude == (1 << (fmt.bits - 1)) - 1 - fmt.nans:
        return sign * math.inf, 0
    e = max(field, 1) - fmt.exponent_bias
    significand = Fraction(fraction + (1 << trailing if field else 0), 1 << trailing)
    return sign * significand * Fraction(2) ** e, e


def exponent(x):
    """floor(log2 |x|) of a Fraction."""
    e = abs(x).numerator.bit_length() - abs(x).denominator.bit_length()
    return e if abs(x) >= Fraction(2) ** e else e - 1


def expected_block(a, b, c, a_fmt, b_fmt, unit):
    """Code of one block by the definition."""
    fraction, bias = unit.accumulator_fraction, (1 << (unit.exponent_bits - 1)) - 1
    accumulator = formats.ieee(1 + unit.exponent_bits + fraction, fraction + 1)
    infinity = ((1 << unit.exponent_bits) - 1) << fraction
    pairs = [(value(x, a_fmt), value(y, b_fmt)) for x, y in zip(a, b, strict=True)]
    c_value, c_exponent = value(c, accumulator)
    special = [float(x) * float(y) for (x, _), (y, _) in pairs if isinstance(x, float) or isinstance(y, float)]
    special += [c_value] if isinstance(c_value, float) else []
    if special:
        return special_code(sum(special), fraction, infinity)
    terms = [(x * y, operand(x, ex, unit) + operand(y, ey, unit)) for (x, ex), (y, ey) in pairs]
    terms.append((c_value, c_exponent))
    e_max = max(e if x else unit.e_zero for x, e in terms)
    step = Fraction(2) ** (e_max - unit.fraction_bits)
    total = sum(math.trunc(x / step) for x, _ in terms) * step
    if not total:
        return 0
    ulp = Fraction(2) ** (max(exponent(total), 1 - bias) - unit.output_fraction)
    whole = math.trunc(total / ulp) if unit.rounding == RTZ else round(total / ulp)  # round: ties to even
    if not whole:
        return 0
    return code_of(whole * ulp, fraction, bias, infinity)


def operand(x, e, unit):
    """Exponent of an operand; conversion to a wider format normalises subnormals down to its own bound."""
    return max(exponent(x), min(e, unit.widened_emin)) if x else e


def special_code(total, fraction, infinity):
    """Code of Inf or NaN; infinity plus one in the exponent field is the sign bit."""
    sign = infinity + (1 << fraction)
    if math.isnan(total):
        return sign - 1
    return infinity if total > 0 else infinity | sign


def code_of(x, fraction, bias, infinity):
    """Code of a Fraction on the accumulator's grid, Inf beyond it."""
    e = max(exponent(x), 1 - bias)
    sign = 0 if x > 0 else infinity + (1 << fraction)
    if e > bias:
        return infinity | sign
    significand = abs(x) / Fraction(2) ** (e - fraction)
    assert significand.denominator == 1
    return (((e + bias - 1) << fraction) + int(significand)) | sign


def operands(rng, fmt, shape, kind):
    """Codes: uniformly random bits, or near one, or tiny, or rare zeros and specials."""
    top = 1 << fmt.bits
    codes = rng.integers(0, top, shape)
    if kind != "bits":
        one = fmt.exponent_bias << (fmt.precision - 1)
        spread = 4 << (fmt.precision - 1)
        centre = {"ones": one, "tiny": spread // 2, "huge": formats.max_finite(fmt) - spread}[kind]
        codes = np.clip(centre + rng.integers(-spread, spread, shape), 0, formats.max_finite(fmt))
        codes |= rng.integers(0, 2, shape) << (fmt.bits - 1)
    return codes << fmt.pad


@pytest.mark.parametrize("kind", ["bits", "ones", "tiny", "huge"])
@pytest.mark.parametrize(
    ("unit", "a_name", "b_name"),
    [(unit, name, name) for name, unit in H200.items()]
    + [
        (H200["e5m2"], "e4m3fn", "e5m2"),
        (FP8_AS_FP16, "e4m3fn", "e4m3fn"),
        (FP8_AS_FP16, "e5m2", "e5m2"),
        (FP16_RESULT, "fp16", "fp16"),
        (VOLTA, "fp16", "fp16"),
    ],
)
def test_block_is_the_definition(unit, a_name, b_name, kind):
    rng = np.random.default_rng([unit.lanes, unit.fraction_bits, len(a_name), len(kind)])
    a_fmt, b_fmt = formats.FORMATS[a_name], formats.FORMATS[b_name]
    accumulator = formats.FORMATS["fp32" if unit.exponent_bits == 8 else "fp16"]
    for trial in range(60):
        a, b = operands(rng, a_fmt, unit.lanes, kind), operands(rng, b_fmt, unit.lanes, kind)
        a[rng.random(unit.lanes) < trial % 3 / 2.5] = 0
        c_kind = ["bits", "ones", kind][trial % 3]
        c = int(operands(rng, accumulator, (), c_kind)) if trial % 4 else 0
        # one whole slab: the k of this unit's first block, whatever its order
        picked = [dpa.block_k(0, lane, unit) for lane in range(unit.lanes)]
        long_a = np.zeros(max(picked) + 1, np.int64)
        long_b = np.zeros(max(picked) + 1, np.int64)
        long_a[picked], long_b[picked] = a, b
        got = dpa.block(long_a, long_b, c, 0, a_fmt, b_fmt, unit)
        assert got.code == expected_block(a.tolist(), b.tolist(), c, a_fmt, b_fmt, unit), (a, b, c)


def test_order_of_k():
    contiguous, interleaved = H200["bf16"], FP8_AS_FP16
    assert [dpa.block_k(1, lane, contiguous) for lane in range(16)] == list(range(16, 32))
    low = [dpa.block_k(2, lane, interleaved) for lane in range(16)]
    high = [dpa.block_k(3, lane, interleaved) for lane in range(16)]
    assert low == [k for k in range(32, 64) if k % 4 in (0, 1)]
    assert high == [k for k in range(32, 64) if k % 4 in (2, 3)]
    assert [dpa.block_count(k, contiguous) for k in (0, 1, 16, 17)] == [0, 1, 1, 2]
    assert [dpa.block_count(k, interleaved) for k in (0, 1, 32, 33)] == [0, 2, 2, 4]


def test_blocks_are_chained_and_padded_with_zeros():
    unit, fmt = H200["bf16"], formats.FORMATS["bf16"]
    rng = np.random.default_rng(5)
    a, b = operands(rng, fmt, 40, "ones"), operands(rng, fmt, 40, "ones")
    c = 0x3F9D70A4
    padded_a, padded_b = np.zeros(48, np.int64), np.zeros(48, np.int64)
    padded_a[:40], padded_b[:40] = a, b
    by_hand = c
    for first in range(0, 48, 16):
        x, y = padded_a[first : first + 16].tolist(), padded_b[first : first + 16].tolist()
        by_hand = expected_block(x, y, by_hand, fmt, fmt, unit)
    assert dpa.dot(a, b, c, fmt, fmt, unit) == by_hand


def test_no_blocks_leave_the_accumulator():
    nothing = np.empty(0, np.int64)
    assert (
        dpa.dot(nothing, nothing, 0x80000000, formats.FORMATS["bf16"], formats.FORMATS["bf16"], H200["bf16"]) == 1 << 31
    )


def test_the_step_tells_what_decided():
    fmt = formats.FORMATS["bf16"]
    one, tiny = 0x3F80, 0x3F80 - (26 << 7)
    step = dpa.block(np.array([one, tiny]), np.array([one, 0xBF80]), 0, 0, fmt, fmt, H200["bf16"])
    assert step == dpa.Block(0x3F800000, 0, 1 << 25, 0)  # -2^-26 is cut, not rounded


def test_python_and_compiled_agree():
    unit, fmt = H200["e4m3fn"], formats.FORMATS["e4m3fn"]
    rng = np.random.default_rng(9)
    a, b = operands(rng, fmt, 32, "ones"), operands(rng, fmt, 32, "ones")
    assert tuple(map(int, dpa.block.py_func(a, b, 0, 0, fmt, fmt, unit))) == tuple(
        dpa.block(a, b, 0, 0, fmt, fmt, unit)
    )

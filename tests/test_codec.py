"""The codec against the oracle: every code of every format of at most 16 bits, and binary64 at its edges."""

import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import oracle
from loops import unpack_all, value_of
from lpsim import formats
from lpsim.core.codec import NAN, codes, pack_f64, unpack, unpack_f64
from rows import ROWS, WIDE, containers

EXHAUSTED = {**ROWS, "bf16": WIDE["bf16"], "fp16": WIDE["fp16"]}


def float_of(bits: int) -> float:
    return struct.unpack("<d", struct.pack("<q", bits))[0]


def bits_of(x: float) -> int:
    return struct.unpack("<q", struct.pack("<d", x))[0]


@pytest.mark.parametrize("name", EXHAUSTED)
def test_every_code_stands_for_its_value(name):
    fmt = EXHAUSTED[name]
    for code, row in zip(containers(fmt), unpack_all(containers(fmt), fmt).tolist(), strict=True):
        assert value_of(*row) == oracle.decode(code, fmt), hex(code)


@pytest.mark.parametrize("name", EXHAUSTED)
def test_every_code_becomes_the_binary64_of_its_value(name):
    fmt = EXHAUSTED[name]
    for code, row in zip(containers(fmt), unpack_all(containers(fmt), fmt).tolist(), strict=True):
        bits = pack_f64(*row)
        expected = oracle.decode(code, fmt)
        assert oracle.number(float_of(bits))._replace(sign=int(bits < 0)) == expected, hex(code)
        back = unpack_f64(bits)
        assert value_of(*back) == expected


@pytest.mark.parametrize("name", ["tf32", "fp32"])
def test_wide_codes_stand_for_their_values(name):
    fmt = WIDE[name]
    fields = [0, 1, 2, 126, 127, 128, 253, 254, 255]
    trailing = fmt.precision - 1
    fractions = [0, 1, 2, 1 << (trailing - 1), (1 << trailing) - 2, (1 << trailing) - 1]
    chosen = [
        ((sign << 8 | field) << trailing | fraction) << fmt.pad
        for sign in (0, 1)
        for field in fields
        for fraction in fractions
    ]
    for code, row in zip(chosen, unpack_all(chosen, fmt).tolist(), strict=True):
        value = value_of(*row)
        assert value == oracle.decode(code, fmt), hex(code)
        witness = np.array(code, np.uint32).view(np.float32)
        assert np.isnan(witness) == (value.magnitude == oracle.NAN)
        assert np.isnan(witness) or oracle.number(float(witness)) == value


def test_padding_is_ignored():
    tf32 = WIDE["tf32"]
    for code in (0x3F800000, 0x7F800000, 0x7FC00000, 0x80000000, 0x00002000):
        assert unpack(code | 0x1FFF, tf32) == unpack(code, tf32)


@pytest.mark.parametrize(("name", "shift"), [("bf16", 45), ("fp16", 42), ("e5m2", 50)])
def test_nan_payload_is_that_of_binary64(name, shift):
    fmt = {**ROWS, **WIDE}[name]
    for code in containers(fmt):
        x = unpack(code, fmt)
        if x.kind == NAN:
            assert x.sig == (code & ((1 << (fmt.precision - 1)) - 1)) << shift
            assert x.sign == code >> (fmt.bits - 1)
            bits = pack_f64(*x)
            assert bits & ((1 << 52) - 1) == x.sig | 1 << 51, "quiet, payload kept"


EDGES = [
    0,
    1,
    2,
    (1 << 52) - 1,
    1 << 52,
    (1 << 52) + 1,
    bits_of(1.0),
    bits_of(1.0) - 1,
    bits_of(3.0),
    0x7FE << 52,
]
EDGES += [(0x7FF << 52) - 1, 0x7FF << 52, (0x7FF << 52) + 1, (0x7FF << 52) + (1 << 51), (1 << 63) - 1]


@pytest.mark.parametrize("magnitude", EDGES)
@pytest.mark.parametrize("sign", [0, 1])
def test_binary64_edges(magnitude, sign):
    bits = magnitude - (sign << 63)
    x = unpack_f64(bits)
    assert value_of(*x) == oracle.number(float_of(bits))._replace(sign=sign)
    if x.kind == NAN:
        assert x.sig == magnitude & ((1 << 52) - 1)


@given(st.floats(allow_nan=False))
def test_binary64_is_read_exactly(x):
    assert value_of(*unpack_f64(bits_of(x))) == oracle.number(x)


@given(st.integers(0, (1 << 53) - 1), st.integers(-1074, 971), st.integers(0, 1))
def test_binary64_is_written_exactly(sig, exp, sign):
    assume(not sig or -1022 <= sig.bit_length() + exp - 1 <= 1023)  # normal numbers only: the contract
    assert oracle.number(float_of(pack_f64(0, sign, exp, sig))) == oracle.Value(sign, sig * Fraction(2) ** exp)


@pytest.mark.parametrize("name", ROWS)
def test_what_follows_from_a_row(name):
    fmt = formats.check(ROWS[name])
    values = [oracle.decode(code, fmt) for code in containers(fmt)]
    finite = sorted({value.magnitude for value in values if not isinstance(value.magnitude, str)})
    positive = [x for x in finite if x > 0]
    assert formats.max_value(fmt) == finite[-1]
    assert formats.min_positive(fmt) == positive[0]
    assert formats.has_nan(fmt) == any(value.magnitude == oracle.NAN for value in values)
    assert list(codes(fmt)) == list(containers(fmt))
    assert formats.min_normal(fmt) == Fraction(2) ** ((1 if fmt.subnormals else 0) - fmt.exponent_bias)


def test_registered_rows_are_these():
    """rows.py writes them from their definitions a second time."""
    named = [name for name in ROWS if name in formats.FORMATS or name.startswith("binary")]
    assert {name: formats.lookup(name) for name in named} == {name: ROWS[name] for name in named}


#: max, min normal, min positive, number of NaN codes. Source: OCP OFP8, OCP MX, ONNX (fnuz), IEEE P3109.
PUBLISHED = {
    "e4m3fn": (448.0, 2.0**-6, 2.0**-9, 2),
    "e5m2": (57344.0, 2.0**-14, 2.0**-16, 6),
    "e4m3fnuz": (240.0, 2.0**-7, 2.0**-10, 1),
    "e5m2fnuz": (57344.0, 2.0**-15, 2.0**-17, 1),
    "e2m1": (6.0, 1.0, 0.5, 0),
    "e2m3": (7.5, 1.0, 0.125, 0),
    "e3m2": (28.0, 0.25, 0.0625, 0),
    "e8m0": (2.0**127, 2.0**-127, 2.0**-127, 1),
    "ue4m3": (448.0, 2.0**-6, 2.0**-9, 1),
    "binary8p3se": (49152.0, 2.0**-15, 2.0**-17, 1),
    "bf16": (float.fromhex("0x1.fep127"), 2.0**-126, 2.0**-133, 254),
    "fp16": (65504.0, 2.0**-14, 2.0**-24, 2046),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_extremes(name):
    fmt = {**ROWS, **WIDE}[name]
    nans = int((unpack_all(containers(fmt), fmt)[:, 0] == NAN).sum())
    assert (formats.max_value(fmt), formats.min_normal(fmt), formats.min_positive(fmt), nans) == PUBLISHED[name]

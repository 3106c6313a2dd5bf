"""Stochastic rounding: exact counts over all random words, and what went wrong for real users."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import lpsim as lp
import oracle
from loops import make_policy, numbers, round_all
from lpsim.core.loops import fill_words
from oracle import Value
from probes import differences, expected
from rows import ROWS, WIDE

FORMATS = {**ROWS, **WIDE}
ALL_16 = np.arange(1 << 16)


def counts(x, fmt: str, bits: int = 16, variant: str = "A", **rules) -> dict[int, int]:
    """How many of all 2^bits words give each code."""
    words = np.arange(1 << bits)
    noise = lp.stochastic(bits=bits, words=words, variant=variant)
    codes = lp.encode(np.full(words.size, x), FORMATS[fmt], rounding=noise, **rules)
    return dict(zip(*(column.tolist() for column in np.unique(codes, return_counts=True)), strict=True))


def f32(bits: int) -> np.float32:
    return np.array(bits, np.uint32).view(np.float32)[()]


#: what happened, value, format, policies, code -> how many of 65536 words
CASES = [
    ("a small update vanishes", f32(0x3F802000), "bf16", {}, {0x3F80: 57344, 0x3F81: 8192}),
    ("the same below zero", -f32(0x3F802000), "bf16", {}, {0xBF80: 57344, 0xBF81: 8192}),
    ("lost carry", f32(0x3FFFC000), "bf16", {}, {0x3FFF: 16384, 0x4000: 49152}),
    ("half of the smallest subnormal", f32(0x00008000), "bf16", {}, {0x0000: 32768, 0x0001: 32768}),
    ("a quarter of the smallest subnormal", f32(0x00004000), "bf16", {}, {0x0000: 49152, 0x0001: 16384}),
    ("last subnormal to first normal", f32(0x007FC000), "bf16", {}, {0x007F: 16384, 0x0080: 49152}),
    ("half of the smallest e4m3", 2.0**-10, "e4m3fn", {}, {0x00: 32768, 0x01: 32768}),
    ("between e4m3 subnormals", 1.25 * 2.0**-9, "e4m3fn", {}, {0x01: 49152, 0x02: 16384}),
    ("true remainder, not a sticky bit", f32(0x3F805000), "bf16", {}, {0x3F80: 45056, 0x3F81: 20480}),
    ("overflow to NaN", 456.0, "e4m3fn", {}, {0x7E: 49152, 0x7F: 16384}),
    ("overflow saturates", 456.0, "e4m3fn", {"overflow": "satfinite"}, {0x7E: 65536}),
    ("overflow to infinity", f32(0x7F7FC000), "bf16", {}, {0x7F7F: 16384, 0x7F80: 49152}),
    ("infinity stays", np.inf, "bf16", {}, {0x7F80: 65536}),
    ("-infinity stays", -np.inf, "e5m2", {}, {0xFC: 65536}),
    ("NaN stays", np.nan, "bf16", {}, {0x7FC0: 65536}),
    ("-0 stays", -0.0, "bf16", {}, {0x8000: 65536}),
    ("to e4m3, 4 of 20 bits", 1.0 + 5 * 2.0**-7, "e4m3fn", {}, {0x38: 45056, 0x39: 20480}),
    ("to e5m2, 3 of 21 bits", 1.0 + 3 * 2.0**-5, "e5m2", {}, {0x3C: 40960, 0x3D: 24576}),
    ("half a step of fp16", 1.00048828125, "fp16", {}, {0x3C00: 32768, 0x3C01: 32768}),
]


@pytest.mark.parametrize(("what", "x", "fmt", "rules", "wanted"), CASES, ids=[case[0] for case in CASES])
def test_counts_over_all_words(what, x, fmt, rules, wanted):
    assert counts(x, fmt, **rules) == wanted


def test_weight_decay_of_one_per_mille_is_lost_by_nearest_only():
    """1 - 2^-10 is a quarter of a step below 1 in bf16: nearest stays at 1, one word in four steps down."""
    assert int(lp.encode(1 - 2.0**-10, "bf16")) == 0x3F80
    assert counts(1 - 2.0**-10, "bf16") == {0x3F7F: 16384, 0x3F80: 49152}


@pytest.mark.parametrize("variant", ["A", "B", "C"])
def test_two_bits_of_noise(variant):
    """Up-counts of 4 words for k sixteenths of a step; the mean bias is -1/8 ulp for A, none for B and C."""
    ups = [counts(1 + k * 2.0**-11, "bf16", 2, variant).get(0x3F81, 0) for k in range(16)]
    exact = {
        "A": [k // 4 for k in range(16)],
        "B": [(k // 2 + 1) // 2 for k in range(16)],  # up iff floor(k / 2) + 2R + 1 >= 8
        "C": [round(Fraction(k, 4)) for k in range(16)],
    }
    assert ups == exact[variant]
    cells = range(1, 64, 2)  # the middles of 32 cells of a step stand for a uniform remainder
    ups = [counts(1 + k * 2.0**-13, "bf16", 2, variant).get(0x3F81, 0) for k in cells]
    bias = sum(Fraction(up, 4) - Fraction(k, 64) for k, up in zip(cells, ups, strict=True)) / 32
    assert bias == {"A": Fraction(-1, 8), "B": 0, "C": 0}[variant]


@pytest.mark.parametrize("variant", ["A", "B", "C"])
@pytest.mark.parametrize("bits", [1, 2, 3, 8])
@pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "e4m3fnuz", "e2m1", "e8m0", "bf16"])
def test_every_word_of_a_small_space(name, bits, variant):
    """All R, at sixteenths of a step and around a last random bit, in every kind of binade."""
    fmt = FORMATS[name]
    top, binade = oracle.largest(fmt), 2 ** (fmt.precision - 1)
    last = Fraction(1, 2 ** (bits + 2))
    parts = sorted(
        {Fraction(k, 16) for k in range(16)} | {half + last * k for half in (0, Fraction(1, 2)) for k in (1, 3)}
    )
    points = []
    for m in {0, 1, binade - 1, binade, 2 * binade + 1, top - 1, top} & set(range(top + 1)):
        step = oracle.grid(m + 1, fmt) - oracle.grid(m, fmt)
        points += [Value(sign, oracle.grid(m, fmt) + part * step) for part in parts for sign in (0, 1)]
    rows = numbers(points)
    for word in range(2**bits) if bits < 8 else [*range(0, 256, 15), 1, 127, 128, 129, 254]:
        found = round_all(rows, fmt, make_policy(variant, "saturate", bits=bits), word)
        wanted = expected(points, fmt, rounding=variant, overflow="saturate", bits=bits, word=word)
        assert not differences(points, found, wanted), word


@pytest.mark.parametrize("bits", [4, 8])
def test_probability_is_the_remainder(bits):
    """Over all words the up-count is the remainder in units of 2^-bits: rounded down (A) or to even (C)."""
    for k in range(0, 1 << (bits + 2), 3):
        nu = Fraction(k, 1 << (bits + 2))
        x = float(1 + nu / 8)
        for variant, ups in (("A", int(nu * 2**bits)), ("C", round(nu * 2**bits))):
            assert counts(x, "e4m3fn", bits, variant).get(0x39, 0) == ups


@pytest.mark.parametrize("name", ["bf16", "fp16", "e4m3fn", "e5m2", "e4m3fnuz"])
def test_what_is_exact_never_moves(name):
    """Every code, an exact power of two above all, for the smallest, a middle and the largest word."""
    fmt = FORMATS[name]
    codes = np.arange(0, 1 << fmt.bits).astype(np.uint16 if fmt.bits > 8 else np.uint8)
    values = lp.decode(codes, fmt)
    codes, values = codes[~np.isnan(values)], values[~np.isnan(values)]
    for word, variant in product((0, 32768, 65535), "ABC"):
        noise = lp.stochastic(bits=16, words=np.full(codes.size, word), variant=variant)
        assert np.array_equal(lp.encode(values, fmt, rounding=noise), codes)


def test_a_target_that_holds_the_source_changes_nothing():
    x = np.array([3.0, -3.0, 1e-40, 3.4e38, -0.0], np.float32)
    for word in (0, 65535):
        noise = lp.stochastic(bits=16, words=np.full(x.size, word))
        assert np.array_equal(lp.encode(x, "fp32", rounding=noise), x.view(np.uint32))


def test_two_tensors_with_one_seed_have_other_words():
    """Streams 0 and 1, one seed: the words of 16 bits agree where chance has it, not everywhere."""
    x = np.full(1 << 16, 1 + 2.0**-8)
    a, b = (lp.encode(x, "bf16", rounding=lp.stochastic(bits=16, seed=9, stream=s)) for s in (0, 1))
    agree = int(np.count_nonzero(a == b))
    assert abs(agree - x.size / 2) < 6 * 128, agree  # six standard deviations of a fair coin
    words = np.empty((2, x.size), np.int64)
    for stream in (0, 1):
        fill_words(words[stream], 0, np.uint64(9), stream, 0, 32)
    assert np.count_nonzero(words[0] == words[1]) <= 1  # 2^16 pairs of 32-bit words: chance is 2^-16


def test_words_do_not_depend_on_shape_split_or_threads():
    x = np.random.default_rng(0).normal(size=(40, 1001)).astype(np.float32)
    rule = {"bits": 16, "seed": 2**63 + 5, "stream": 3, "step": 7}
    whole = lp.encode(x, "bf16", rounding=lp.stochastic(**rule))
    assert np.array_equal(lp.encode(x.reshape(-1), "bf16", rounding=lp.stochastic(**rule)), whole.reshape(-1))
    parts = [
        lp.encode(x[rows], "bf16", rounding=lp.stochastic(**rule, offset=rows.start * x.shape[1]))
        for rows in (slice(0, 13), slice(13, 14), slice(14, 40))
    ]
    assert np.array_equal(np.concatenate(parts), whole)
    before = lp.get_threads()
    try:
        for threads in (1, 2):
            lp.set_threads(threads)
            assert np.array_equal(lp.encode(x, "bf16", rounding=lp.stochastic(**rule)), whole)
    finally:
        lp.set_threads(before)

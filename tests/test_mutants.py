"""The tests can fail: each seeded faulty cast is rejected by the comparison that the right cast passes."""

import numpy as np
import pytest

import lpsim as lp
import oracle
from lpsim.testing.mutants import MUTANTS, STOCHASTIC_MUTANTS
from probes import differences, expected, values
from rows import ROWS, WIDE

FORMATS = {**ROWS, **WIDE}
NAN_BITS = [0x7F800001, 0xFF800001, 0x7FC00000, 0xFFC12345, 0x7FFFFFFF, 0xFFFFFFFF]


def float32_points(fmt) -> tuple[list[oracle.Value], np.ndarray]:
    """The probes that are float32 numbers, and the NaNs of float32, as Values and as float32."""
    points = []
    for point in values(fmt, seed=11, count=200):
        if not isinstance(point.magnitude, str):
            wide = oracle.encode(point, WIDE["fp32"])
            if oracle.decode(wide, WIDE["fp32"]) == point:
                points.append((point, wide))
    points += [(oracle.decode(bits, WIDE["fp32"]), bits) for bits in [0x7F800000, 0xFF800000, *NAN_BITS]]
    return [point for point, _ in points], np.array([bits for _, bits in points], np.uint32).view(np.float32)


def rejects(cast, fmt_name: str) -> list[str]:
    """What the comparison with the oracle has to say against a cast from float32."""
    fmt = FORMATS[fmt_name]
    points, x = float32_points(fmt)
    return differences(points, cast(x), expected(points, fmt))


def rejects_stochastic(cast) -> list[str]:
    """The same for a stochastic cast to bf16 by 16-bit words: sixteenths of a step, words at the turns."""
    bits = np.arange(0x3F800000, 0x3F820000, 0x1000).astype(np.uint32)
    bits = np.concatenate([bits, bits + 1, bits | 0x80000000, [0x8000, 0x4000, 0x7F7FC000]]).astype(np.uint32)
    words = np.array([0, 1, 0x2000, 0x7FFF, 0x8000, 0xBFFF, 0xC000, 0xFFFF])
    grid_bits, grid_words = np.repeat(bits, words.size), np.tile(words, bits.size)
    points = [oracle.decode(int(b), WIDE["fp32"]) for b in grid_bits]
    wanted = [
        oracle.encode(point, WIDE["bf16"], "A", bits=16, word=int(word))
        for point, word in zip(points, grid_words, strict=True)
    ]
    return differences(points, cast(grid_bits.view(np.float32), grid_words), wanted)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_faulty_casts_are_rejected(mutant):
    assert rejects(mutant.cast, mutant.fmt)


@pytest.mark.parametrize("mutant", STOCHASTIC_MUTANTS, ids=lambda mutant: mutant.name)
def test_faulty_stochastic_casts_are_rejected(mutant):
    assert rejects_stochastic(mutant.cast)


@pytest.mark.parametrize("fmt", ["bf16", "e4m3fn"])
def test_the_right_cast_is_accepted(fmt):
    assert not rejects(lambda x: lp.encode(x, fmt), fmt)


def test_the_right_stochastic_cast_is_accepted():
    assert not rejects_stochastic(lambda x, words: lp.encode(x, "bf16", rounding=lp.stochastic(bits=16, words=words)))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_wrong_in_one_way_only(mutant):
    """On plain numbers that the format holds it is right: only a comparison that looks at the fault sees it."""
    fmt = FORMATS[mutant.fmt]
    codes = np.arange(1 << (fmt.bits - 1)).astype(np.uint16 if fmt.bits > 8 else np.uint8)
    x = lp.decode(codes, fmt)
    inside = (np.abs(x) >= 2.0**-6) & (np.abs(x) <= 448)
    if mutant.name == "through_fp16":
        inside &= np.abs(x) < 448
    assert np.array_equal(mutant.cast(x[inside].astype(np.float32)), codes[inside])

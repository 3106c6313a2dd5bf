"""Casts that are wrong on purpose, as people really get them wrong. A good test of a cast rejects them all.

Each takes a float32 array and gives bf16 codes (uint16) or e4m3fn codes (uint8), with one fault each; on most
inputs they agree with the right cast, which is nearest-even with overflow to infinity (bf16) or NaN (e4m3fn).

    for mutant in lpsim.testing.mutants.MUTANTS:
        assert not my_test_accepts(mutant.cast, mutant.fmt), mutant.name
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

ONE = np.uint32(1)


def _bits(x) -> np.ndarray:
    return np.ascontiguousarray(x, np.float32).view(np.uint32)


def _nearest_even(bits: np.ndarray) -> np.ndarray:
    """The upper halves of float32 bit patterns, rounded; right for all but NaN."""
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & ONE)) >> np.uint32(16)).astype(np.uint16)


def _with_nan(x, codes: np.ndarray) -> np.ndarray:
    sign = (_bits(x) >> np.uint32(16)).astype(np.uint16) & np.uint16(0x8000)
    return np.where(np.isnan(x), sign | np.uint16(0x7FC0), codes)


def truncation(x) -> np.ndarray:
    """bf16 by dropping the lower half."""
    return _with_nan(x, (_bits(x) >> np.uint32(16)).astype(np.uint16))


def ties_away(x) -> np.ndarray:
    """bf16 to nearest, ties away from zero."""
    return _with_nan(x, ((_bits(x) + np.uint32(0x8000)) >> np.uint32(16)).astype(np.uint16))


def add_half(x) -> np.ndarray:
    """bf16 by adding half a step to the value and truncating: negative numbers and ties go up."""
    bits = _bits(x)
    up = np.where(bits >> np.uint32(31) == 0, np.uint32(0x8000), np.uint32(0x7FFF))
    return _with_nan(x, ((bits + up) >> np.uint32(16)).astype(np.uint16))


def through_fp16(x) -> np.ndarray:
    """bf16 of the fp16 of x: rounded twice, and out of range beyond 65504 and below 2^-24."""
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = np.asarray(x, np.float32).astype(np.float16).astype(np.float32)
    return _with_nan(x, _nearest_even(_bits(narrow)))


def lost_carry(x) -> np.ndarray:
    """bf16 whose rounding carry stays in the fraction field: the top of a binade falls to its bottom."""
    bits = _bits(x)
    codes = _nearest_even(bits)
    fields = (bits >> np.uint32(16)).astype(np.uint16) & np.uint16(0xFF80)
    return _with_nan(x, np.where(np.isinf(x), codes, fields | (codes & np.uint16(0x7F))))


def flushed_subnormals(x) -> np.ndarray:
    """bf16 with subnormal results replaced by zero."""
    codes = _with_nan(x, _nearest_even(_bits(x)))
    return np.where(codes & np.uint16(0x7F80), codes, codes & np.uint16(0x8000))


def nan_to_infinity(x) -> np.ndarray:
    """bf16 that truncates the payload of a NaN: those with low bits only become infinity."""
    return np.where(np.isnan(x), (_bits(x) >> np.uint32(16)).astype(np.uint16), _nearest_even(_bits(x)))


def nan_to_zero(x) -> np.ndarray:
    """bf16 that adds the rounding increment to NaN too: 0x7FFFFFFF becomes -0."""
    return _nearest_even(_bits(x))


def lost_minus_zero(x) -> np.ndarray:
    """bf16 without the sign of zero."""
    codes = _with_nan(x, _nearest_even(_bits(x)))
    return np.where(codes == 0x8000, np.uint16(0), codes)


def _e4m3(x, largest: int, limit: float) -> np.ndarray:
    """e4m3fn codes by rounding to the grid in float64; magnitudes above limit become `largest`."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        x = np.asarray(x, np.float32).astype(np.float64)
    sign = np.signbit(x).astype(np.uint8) << 7
    size = np.where(np.isnan(x), 0.0, np.minimum(np.abs(x), 500.0))
    exponent = np.maximum(np.frexp(np.where(size > 0, size, 2.0**-9))[1] - 1, -6)
    steps = np.rint(np.ldexp(size, 3 - exponent))
    codes = np.where(np.abs(x) > limit, largest, (exponent + 6) * 8 + steps).astype(np.uint8)
    return np.where(np.isnan(x), np.uint8(0x7F), codes) | sign


def saturation_at_448(x) -> np.ndarray:
    """e4m3fn in which all above 448 overflows, though up to 464 rounds down to 448."""
    return _e4m3(x, 0x7F, 448.0)


def saturation_off_by_one(x) -> np.ndarray:
    """e4m3fn that overflows to 416, one code below the largest."""
    return _e4m3(x, 0x7D, 464.0)


def subnormals_rounded_twice(x) -> np.ndarray:
    """e4m3fn that rounds to four significant bits first, to the subnormal grid after."""
    x = np.asarray(x, np.float32)
    fraction, exponent = np.frexp(np.where(np.abs(x) < 2.0**-6, x, 0))
    first = np.ldexp(np.rint(fraction * 16), exponent - 4).astype(np.float32)
    return _e4m3(np.where(np.abs(x) < 2.0**-6, first, x), 0x7F, 464.0)


class Mutant(NamedTuple):
    """A faulty cast from float32 to codes of fmt."""

    name: str
    fmt: str
    cast: Callable


MUTANTS = [
    *(
        Mutant(cast.__name__, "bf16", cast)
        for cast in (
            truncation,
            ties_away,
            add_half,
            through_fp16,
            lost_carry,
            flushed_subnormals,
            nan_to_infinity,
            nan_to_zero,
            lost_minus_zero,
        )
    ),
    *(
        Mutant(cast.__name__, "e4m3fn", cast)
        for cast in (saturation_at_448, saturation_off_by_one, subnormals_rounded_twice)
    ),
]


# Stochastic rounding to bf16: `words` are 16-bit random integers, one per element. Right: bits + words, then truncate.


def misaligned_bits(x, words) -> np.ndarray:
    """bf16 whose random bits are added one place too low: rounds up half as often as it should."""
    return _with_nan(x, ((_bits(x) + (words.astype(np.uint32) >> ONE)) >> np.uint32(16)).astype(np.uint16))


def sticky_remainder(x, words) -> np.ndarray:
    """bf16 that keeps only two bits of the remainder and ors the rest into the second: wrong probabilities."""
    rest = _bits(x) & np.uint32(0xFFFF)
    coarse = (rest & np.uint32(0xC000)) | np.where(rest & np.uint32(0x3FFF), np.uint32(0x4000), np.uint32(0))
    bits = (_bits(x) & np.uint32(0xFFFF0000)) + coarse + words.astype(np.uint32)
    return _with_nan(x, (bits >> np.uint32(16)).astype(np.uint16))


def noise_on_exact(x, words) -> np.ndarray:
    """bf16 that compares with >= where > is right: a word of zero moves exact values."""
    bits = _bits(x)
    up = (bits & np.uint32(0xFFFF)) >= words.astype(np.uint32)
    return _with_nan(x, ((bits >> np.uint32(16)) + up).astype(np.uint16))


STOCHASTIC_MUTANTS = [
    Mutant(cast.__name__, "bf16", cast) for cast in (misaligned_bits, sticky_remainder, noise_on_exact)
]

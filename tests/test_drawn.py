"""Operands drawn from a seed and an index: the same for any split, and of every kind that they promise."""

import numpy as np
import pytest

from lpsim import drawn, threads
from lpsim.formats import FORMATS
from test_digest import splitmix64

N = 1 << 14


def values(codes: np.ndarray, fmt: str) -> np.ndarray:
    if fmt == "bf16":
        return (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return codes.view(np.float16 if fmt == "fp16" else np.float32)


def test_the_mixing_function_is_splitmix64():
    for x in (0, 1, 12345, (1 << 64) - 1):
        assert int(drawn.splitmix64(np.uint64(x))) % (1 << 64) == splitmix64(x)


@pytest.mark.parametrize("fmt", drawn.FORMATS)
def test_an_element_depends_on_seed_and_index_alone(fmt):
    whole = drawn.codes(11, 0, N, fmt)
    assert whole.dtype == np.dtype(f"u{FORMATS[fmt].bits // 8}")
    assert np.array_equal(drawn.codes(11, 1000, 77, fmt), whole[:, 1000:1077])
    assert np.array_equal(drawn.codes(11, 0, N, fmt, operands=2), whole[:2])
    before = threads.get_threads()
    try:
        threads.set_threads(3)
        assert np.array_equal(drawn.codes(11, 0, N, fmt), whole)
    finally:
        threads.set_threads(before)
    assert np.mean(drawn.codes(12, 0, N, fmt)[0] == whole[0]) < 0.1
    assert np.array_equal(drawn.codes(11 + (1 << 64), 0, N, fmt), whole)


@pytest.mark.parametrize("fmt", drawn.FORMATS)
def test_every_kind_is_there(fmt):
    codes = drawn.codes(13, 0, N, fmt)
    row = FORMATS[fmt]
    kinds = np.arange(N) % drawn.KINDS
    special = set(drawn.special_codes(row).tolist())
    assert set(codes[:, kinds == drawn.SPECIAL].ravel().tolist()) == special
    magnitude = codes[:2].astype(np.int64) & ((1 << row.bits - 1) - 1)
    equal = np.abs(np.diff(magnitude[:, kinds == drawn.EQUAL], axis=0))
    assert equal.max() <= 2
    fields = magnitude >> (row.precision - 1)
    top = (1 << row.bits - row.precision) - 1
    extreme = fields[1, kinds == drawn.EXTREME]
    assert np.all((extreme <= 2) | (extreme >= top - 3))
    near = np.abs(np.diff(fields[:, kinds == drawn.NEAR], axis=0))
    assert near.max() <= row.precision + 2
    x = values(codes, fmt)
    assert np.isnan(x).any()
    assert np.isinf(x).any()
    assert (x == 0).any()
    short = codes[0, kinds == drawn.SHORT].astype(np.int64)
    assert np.mean((short & 0xF) == 0) > 0.3  # a tie needs cleared bits; of random ones a sixteenth


def test_specials_have_both_signs_and_the_ends_of_the_format():
    codes = drawn.special_codes(FORMATS["fp16"]).tolist()
    assert {0, 1, 0x03FF, 0x0400, 0x3C00, 0x7BFF, 0x7C00, 0x7FFF} <= set(codes)
    assert {code | 0x8000 for code in codes} <= set(codes)

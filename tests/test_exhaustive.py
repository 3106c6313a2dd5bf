"""Whole input spaces that do not fit an ordinary run: make test-exhaustive, which also writes docs/exhaustive.md.

Each test's first line and the number of inputs it records become its row of the report.
"""

import ml_dtypes
import numpy as np
import pytest

from loops import MODES
from lpsim import arrays, fills
from lpsim.core import fast_operations, fast_plan, loops
from lpsim.core.bits import mask
from lpsim.formats import FORMATS
from lpsim.policies import OVERFLOWS, policy
from lpsim.target import Target
from rows import ROWS, containers
from test_arith import BINARY, check

pytestmark = pytest.mark.exhaustive

BF16, FP32 = FORMATS["bf16"], FORMATS["fp32"]
ALL_BF16 = np.arange(1 << 16, dtype=np.uint16)
ROWS_AT_ONCE = 16


def as_values(codes: np.ndarray) -> np.ndarray:
    return (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)


def upper_halves(values: np.ndarray) -> np.ndarray:
    """Codes of float32 that lie on bf16's grid."""
    bits = values.view(np.uint32)
    assert not (bits & np.uint32(mask(16))).any()
    return (bits >> np.uint32(16)).astype(np.uint16)


def binary64_bits(values: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # signalling NaN
        return fills.bits_of(values)


def same_or_both_nan(a: np.ndarray, b: np.ndarray) -> bool:
    nans = [(codes & np.uint16(0x7FFF)) > np.uint16(0x7F80) for codes in (a, b)]
    return bool(np.all((a == b) | (nans[0] & nans[1])))


@pytest.mark.parametrize("operation", BINARY)
def test_bf16_pairs(operation, record_property):
    """All pairs of bf16: the operation in binary32, the one in binary64 by rounding to odd, NumPy with ml_dtypes."""
    record_property("inputs", 1 << 32)
    plan = fast_plan.grid(BF16, policy(), 53)
    ours, foreign = getattr(arrays, operation), {"add": np.add, "sub": np.subtract, "mul": np.multiply}
    foreign, to_odd = foreign.get(operation, np.divide), getattr(fast_operations, f"{operation}32")
    b_codes = np.tile(ALL_BF16, ROWS_AT_ONCE)
    b, b16 = as_values(b_codes), b_codes.view(ml_dtypes.bfloat16)
    wide, values, narrow = np.empty_like(b), np.empty_like(b), np.empty_like(b16)
    for first in range(0, 1 << 16, ROWS_AT_ONCE):
        a_codes = np.repeat(ALL_BF16[first : first + ROWS_AT_ONCE], 1 << 16)
        a = as_values(a_codes)
        ours(a_codes.view(ml_dtypes.bfloat16), b16, "bf16", out=narrow)
        ours(a, b, "bf16", out=values)
        to_odd(a, b, wide, plan)
        with np.errstate(all="ignore"):
            witness = foreign(a, b).astype(ml_dtypes.bfloat16).view(np.uint16)
        found = narrow.view(np.uint16)
        assert np.array_equal(found, upper_halves(wide)), first
        assert np.array_equal(values.view(np.uint32), wide.view(np.uint32)), first
        assert same_or_both_nan(found, witness), first


@pytest.mark.parametrize("operation", BINARY)
def test_bf16_pairs_of_the_plain_core(operation, record_property):
    """Every 61st bf16 with every bf16: the integer core, and the vectorised operation."""
    target, loop = Target("bf16", {}), getattr(loops, operation)
    rows = ALL_BF16[::61]
    record_property("inputs", rows.size << 16)
    b = as_values(ALL_BF16)
    b_bits, codes = binary64_bits(b), np.empty(b.size, np.int64)
    for row in rows:
        a = np.repeat(as_values(row[None]), b.size)
        assert not loop(binary64_bits(a), b_bits, codes, BF16, target.policy, target.words(0, 0))
        assert np.array_equal(upper_halves(getattr(arrays, operation)(a, b, "bf16")), codes), hex(row)


@pytest.mark.parametrize("overflow", OVERFLOWS)
@pytest.mark.parametrize("operation", BINARY)
@pytest.mark.parametrize("row", ROWS)
def test_pairs_of_small_formats(row, operation, overflow, record_property):
    """All pairs of each format up to 8 bits, every mode and overflow policy: the integer core, the rational oracle."""
    fmt = ROWS[row]
    codes = np.array(containers(fmt))
    record_property("inputs", codes.size**2 * len(MODES))
    pairs = [np.repeat(codes, len(codes)), np.tile(codes, len(codes))]
    check(operation, pairs, fmt, fmt, MODES, grouped=True, overflow=overflow)

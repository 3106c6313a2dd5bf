"""The quick routine against the exact one: the same bits, used where it may be, and never where it may not."""

import numpy as np
import pytest

from lpsim import dots, machines, tile_i32, tiles
from lpsim.formats import FORMATS

BF16 = machines.dot_row("h200", "wgmma", "bf16").unit
FP8 = machines.dot_row("h200", "wgmma", "e5m2").unit
EMIN = -126


def bf16(x):
    """float32 values with bf16's 8 significant bits."""
    bits = np.asarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


def both(a, b, c, unit=BF16, emin=EMIN):
    """Bits of the quick and of the exact result, and how many rows of blocks were not quick."""
    quick, exact = np.array(c, np.float32), np.array(c, np.float32)
    left = tiles.dot_region(a, b, quick, 0, 0, emin, emin, unit, True)
    tiles.dot_region(a, b, exact, 0, 0, emin, emin, unit, False)
    return quick.view(np.uint32), exact.view(np.uint32), left


def test_ordinary_data_are_quick():
    rng = np.random.default_rng(0)
    a, b = bf16(rng.standard_normal((70, 200))), bf16(rng.standard_normal((200, 300)))
    quick, exact, left = both(a, b, rng.standard_normal((70, 300)))
    np.testing.assert_array_equal(quick, exact)
    assert left == 0


@pytest.mark.parametrize("spread", [1, 8, 20, 40])
@pytest.mark.parametrize("centre", [-70, 0, 50])
def test_wide_exponents(spread, centre):
    """Many scales: offsets, clamping and every flag; a third of the operands zero, whole zero blocks too."""
    rng = np.random.default_rng([spread, centre + 100])
    a, b = (bf16(rng.standard_normal(s) * 2.0 ** rng.integers(-spread, spread, s)) for s in ((40, 96), (96, 130)))
    a, b = a * np.float32(2.0**centre), b * np.float32(2.0 ** (centre // 3))
    a[rng.random(a.shape) < 0.3] = 0
    a[::5, 16:32], b[32:48, ::7] = 0, 0
    c = rng.standard_normal((40, 130)) * 2.0 ** rng.integers(centre - spread, centre + spread, (40, 130))
    quick, exact, left = both(a, b, c)
    np.testing.assert_array_equal(quick, exact)
    assert left < 40 * 6


def test_a_zero_block_does_not_disturb():
    rng = np.random.default_rng(2)
    c = rng.standard_normal((8, 40)).astype(np.float32)
    quick, exact, left = both(np.zeros((8, 32), np.float32), bf16(rng.standard_normal((32, 40))), c)
    np.testing.assert_array_equal(quick, exact)
    np.testing.assert_array_equal(quick, c.view(np.uint32))
    assert left == 0


def test_columns_of_zeros_are_quick():
    """What causal masking leaves: products of zeros only, in some columns, on an accumulator of zero of either sign."""
    rng = np.random.default_rng(3)
    a, b, c = bf16(rng.standard_normal((9, 32))), bf16(rng.standard_normal((32, 70))), np.zeros((9, 70), np.float32)
    a[4], b[:, ::3], c[:, ::2] = 0, 0, -0.0
    quick, exact, left = both(a, b, c)
    np.testing.assert_array_equal(quick, exact)
    assert left == 0
    assert not quick[:, ::3].any()
    assert not quick[4].any()
    for bad in (2.0**-130, np.nan):  # what such a column cannot hold: all rows are left
        c[:, 3] = bad
        quick, exact, left = both(a, b, c)
        np.testing.assert_array_equal(quick, exact)
        assert left == 9 * 2
    b[3, 6], c[:, 3], a[:, 3] = np.inf, 0, 0
    quick, exact, left = both(a, b, c)
    np.testing.assert_array_equal(quick, exact)
    assert left == 9 * 2


def test_the_largest_operands_are_quick():
    rng = np.random.default_rng(6)
    a, b = bf16(rng.uniform(1, 2, (5, 32)) * 2.0**127), bf16(rng.standard_normal((32, 40)) * 2.0**-110)
    quick, exact, left = both(a, b, np.zeros((5, 40)))
    np.testing.assert_array_equal(quick, exact)
    assert left == 0


def one_row(products, c=0.0):
    """A 1 x 16 by 16 x 1 dot whose products are given as pairs of factors."""
    a, b = np.zeros((1, 16), np.float32), np.zeros((16, 1), np.float32)
    for k, (x, y) in enumerate(products):
        a[0, k], b[k, 0] = x, y
    return bf16(a), bf16(b), np.array([[c]], np.float32)


FLAGGED = {
    "all products far below the block's maxima": one_row([(1, 0), (0, 1), (2.0**-40, 2.0**-41)]),
    "a factor below the clamp": one_row([(1, 2.0**-70), (2.0**-70, 1), (2.0**-63, 1.0)]),
    "subnormal result": one_row([(2.0**-70, 2.0**-70)], 2.0**-130),
    "below the least alignment exponent": one_row([(2.0**-60, 1.5 * 2.0**-60)]),
    "overflow to infinity": one_row([(2.0**100, 2.0**30)]),
    "overflow that cancels": one_row([(2.0**100, 2.0**30), (-(2.0**100), 2.0**30), (1, 1)]),
    "infinity": one_row([(np.inf, 1)]),
    "NaN": one_row([(np.nan, 0)]),
    "infinite accumulator": one_row([(1, 1)], -np.inf),
    "NaN accumulator": one_row([(1, 1)], np.nan),
    "a sum beyond int32": one_row([(1.9921875, 1.9921875)] * 16, 1.9999999),
    "a negative sum beyond int32": one_row([(1.9921875, -1.9921875)] * 16, -1.9999999),
}


@pytest.mark.parametrize("case", FLAGGED)
def test_what_is_not_quick_is_seen(case):
    quick, exact, left = both(*FLAGGED[case])
    np.testing.assert_array_equal(quick, exact)
    assert left == 1


def test_only_the_rows_concerned_are_left():
    rng = np.random.default_rng(3)
    a, b = bf16(rng.standard_normal((20, 48))), bf16(rng.standard_normal((48, 30)))
    a[7, 20], a[11, 40] = np.inf, 2.0**120
    b[40] = 2.0**20
    quick, exact, left = both(a, b, np.zeros((20, 30)))
    np.testing.assert_array_equal(quick, exact)
    # Row 7: its block 1 and, with an infinite or NaN accumulator, block 2; row 11: block 2.
    assert left == 3


def test_wide_sums_are_covered_only_where_they_fit():
    assert tile_i32.covers(BF16)
    assert tile_i32.covers(FP8)
    assert not tile_i32.covers(BF16._replace(lanes=32))  # 32 products of 2^27 leave int32
    assert not tile_i32.covers(BF16._replace(fraction_bits=26))
    assert tiles.covers(BF16._replace(lanes=32))


# Each layout compiles the whole dot once more: the last two are for `make test-exhaustive`.
@pytest.mark.parametrize("layout", ["C", *(pytest.param(x, marks=pytest.mark.exhaustive) for x in ("F", "strided"))])
def test_layout_of_the_accumulator(layout):
    rng = np.random.default_rng(4)
    a, b = bf16(rng.standard_normal((9, 32))), bf16(rng.standard_normal((32, 33)))
    expected = np.zeros((9, 33), np.float32)
    dots.dot_tile(a, b, expected, EMIN, EMIN, BF16)
    c = {"C": np.zeros((9, 33)), "F": np.zeros((33, 9)).T, "strided": np.zeros((18, 66))[::2, ::2]}[layout]
    c = np.lib.stride_tricks.as_strided(np.zeros(c.size * 4, np.float32), c.shape, [s // 2 for s in c.strides])
    dots.dot_tile(a, b, c, EMIN, EMIN, BF16)
    np.testing.assert_array_equal(c, expected)


def test_a_region_leaves_the_rest_of_c():
    rng = np.random.default_rng(5)
    a, b = bf16(rng.standard_normal((5, 16))), bf16(rng.standard_normal((16, 6)))
    c = np.full((20, 20), 7, np.float32)
    tiles.dot_region(a, b, c, 3, 4, EMIN, EMIN, BF16, True)
    inside = np.full((5, 6), 7, np.float32)
    dots.dot_tile(a, b, inside, EMIN, EMIN, BF16)
    np.testing.assert_array_equal(c[3:8, 4:10], inside)
    c[3:8, 4:10] = 7
    assert (c == 7).all()


def test_emin_is_that_of_the_format():
    assert [dots.emin_of(FORMATS[name]) for name in ("bf16", "fp16", "tf32", "e4m3fn", "e5m2")] == [
        -126,
        -14,
        -126,
        -6,
        -14,
    ]

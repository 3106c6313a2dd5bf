"""Tile reductions against a GPU played thread by thread, and the layouts against what Triton wrote into ttgir."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import lpsim as lp
from lpsim import layouts
from lpsim.layouts import Accumulator, Layout

DTYPES = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp64": np.float64, "int32": np.int32}

#: ttgir of Triton 3.6.0 for sm_90: shape, bytes, warps, alignment -> sizePerThread, threadsPerWarp, warpsPerCTA
SEEN = [
    ((4,), 4, 4, 16, (1,), (32,), (4,)),
    ((128,), 4, 1, 16, (4,), (32,), (1,)),
    ((128,), 4, 4, 16, (1,), (32,), (4,)),
    ((256,), 4, 4, 16, (2,), (32,), (4,)),
    ((512,), 4, 4, 4, (1,), (32,), (4,)),
    ((1024,), 2, 4, 16, (8,), (32,), (4,)),
    ((16, 64), 4, 4, 16, (1, 4), (2, 16), (4, 1)),
    ((64, 16), 4, 4, 16, (1, 4), (8, 4), (4, 1)),
    ((2, 512), 4, 4, 16, (1, 4), (1, 32), (1, 4)),
    ((128, 128), 4, 8, 16, (1, 4), (1, 32), (8, 1)),
    ((8, 8), 4, 4, 16, (1, 1), (4, 8), (4, 1)),
    ((32, 32), 4, 4, 4, (1, 1), (1, 32), (4, 1)),
    ((16, 16), 4, 4, 16, (1, 2), (4, 8), (4, 1)),
    ((16, 512), 2, 4, 16, (1, 8), (1, 32), (2, 2)),
]


@pytest.mark.parametrize("row", SEEN, ids=str)
def test_layouts_are_those_that_triton_chooses(row):
    shape, itemsize, warps, alignment, *sides = row
    found = layouts.layout_of(shape, itemsize, warps, alignment=alignment)
    assert found == Layout(*sides, tuple(reversed(range(len(shape)))))


def holder(layout: Layout, shape) -> dict:
    """(warp, lane) -> indices of the elements that the thread holds, in the order of its registers."""
    whole = [s * t * w for s, t, w in zip(*layout[:3], strict=True)]
    repeats = [range(max(1, side // covered)) for side, covered in zip(shape, whole, strict=True)]
    found = {}
    for warp in np.ndindex(*layout.warps_per_cta):
        for lane in np.ndindex(*layout.threads_per_warp):
            elements = []
            for again in itertools.product(*repeats):
                for own in np.ndindex(*layout.size_per_thread):
                    index = tuple(
                        (r * c + (w * t + n) * s + o) % side
                        for r, c, w, t, n, s, o, side in zip(
                            again, whole, warp, layout.threads_per_warp, lane, layout.size_per_thread, own, shape,
                            strict=True,
                        )
                    )  # fmt: skip
                    if index not in elements:
                        elements.append(index)
            found[warp, lane] = elements
    return found


class Gpu:
    """Every thread of a program, one Python number at a time: tl.sum(x * y) along an axis of a tile."""

    def __init__(self, dtype, layout, axis, fusion):
        self.dtype, self.layout, self.axis, self.fusion = dtype, layout, axis, fusion

    def add(self, a, b):
        return self.dtype(a + b)

    def fma(self, a, b, c):
        return lp.fma(
            np.float64(a), np.float64(b), np.float64(c), {2: "fp16", 4: "fp32"}[np.dtype(self.dtype).itemsize]
        )

    def thread(self, pairs):
        """Registers to one number; with one element, a pending product."""
        if len(pairs) == 1:
            return pairs[0] if self.fusion else self.dtype(pairs[0][0] * pairs[0][1])
        (a, b), (c, d), *rest = pairs
        second = self.dtype(c * d)
        joined = self.dtype(self.fma(a, b, second)) if self.fusion else self.add(self.dtype(a * b), second)
        for a, b in rest:
            joined = self.dtype(self.fma(a, b, joined)) if self.fusion else self.add(joined, self.dtype(a * b))
        return joined

    def join(self, own, other):
        if isinstance(own, tuple):
            return self.dtype(self.fma(own[0], own[1], self.dtype(other[0] * other[1])))
        return self.add(own, other)

    def sums(self, x, y):
        held = holder(self.layout, x.shape)
        columns = {tuple(np.delete(i, self.axis)) for i in np.ndindex(*x.shape)}
        return {column: self.column(held, column, x, y) for column in columns}

    def column(self, held, column, x, y):
        """The sum of one column: all threads that hold a part of it, copies dropped."""
        parts, seen = {}, set()
        for (warp, lane), elements in held.items():
            mine = [i for i in elements if tuple(np.delete(i, self.axis)) == column]
            if mine and not seen & set(mine):
                seen |= set(mine)
                key = warp[self.axis], lane[self.axis]
                parts[key] = self.thread([(x[i], y[i]) for i in mine])
        warps, lanes = ({key[k] for key in parts} for k in (0, 1))
        totals = [self.butterfly([parts[w, n] for n in sorted(lanes)]) for w in sorted(warps)]
        totals = [self.dtype(t[0] * t[1]) if isinstance(t, tuple) else t for t in totals]
        return self.butterfly(totals)

    def butterfly(self, lanes):
        distance = len(lanes) // 2
        while distance:
            lanes = [self.join(lane, lanes[i ^ distance]) for i, lane in enumerate(lanes)]
            distance //= 2
        return lanes[0]


def numbers(rng, shape, dtype):
    return (rng.normal(size=shape) * 2.0 ** rng.integers(-6, 6, shape)).astype(dtype)


CASES = [
    (shape, axis, warps, alignment)
    for shape, axes in (((64,), (0,)), ((512,), (0,)), ((8, 16), (0, 1)), ((4, 128), (0, 1)), ((64, 8), (0, 1)))
    for axis in axes
    for warps, alignment in ((1, 16), (4, 16), (2, 2))
]


@pytest.mark.parametrize(("shape", "axis", "warps", "alignment"), CASES)
@pytest.mark.parametrize(("dtype", "fusion"), [(np.float32, True), (np.float32, False), (np.float16, False)])
def test_sums_of_products_are_those_of_the_threads(shape, axis, warps, alignment, dtype, fusion):
    rng = np.random.default_rng(len(shape) + axis + warps)
    x, y = numbers(rng, shape, dtype), numbers(rng, shape, dtype)
    layout = layouts.layout_of(shape, x.itemsize, warps, alignment=alignment)
    want = Gpu(dtype, layout, axis, fusion).sums(x, y)
    options = {"axis": axis, "tile": len(shape), "num_warps": warps, "alignment": alignment}
    held_alone = set(layouts.places(layout, shape, axis)) == {"l"}
    if fusion and held_alone and len(shape) == 2:
        with pytest.raises(lp.NotModelled, match="which of them is stored"):
            lp.machine("h200").sum(x, times=y, fusion=fusion, **options)
    else:
        got = lp.machine("h200").sum(x, times=y, fusion=fusion, **options)
        assert {index: got[index] for index in want} == want
    ones = np.ones_like(x)
    plain = lp.machine("h200").sum(x, **options)
    assert {index: plain[index] for index in want} == Gpu(dtype, layout, axis, False).sums(x, ones)


def test_a_different_layout_gives_different_bits():
    x = numbers(np.random.default_rng(0), (64, 1024), np.float32)
    h200 = lp.machine("h200")
    sums = [h200.sum(x, num_warps=4), h200.sum(x, num_warps=8), h200.sum(x, num_warps=4, alignment=4)]
    sums += [h200.sum(x, num_warps=4, in_thread="tree"), h200.sum(x, order="wgmma")]
    for a, b in itertools.combinations(sums, 2):
        assert (a != b).any()
        np.testing.assert_allclose(a, b, atol=np.abs(x).sum(-1).max() * 1024 * 2**-24)  # the bound of any order


def test_an_accumulators_row_is_the_order_of_attention():
    x = numbers(np.random.default_rng(1), (64, 128), np.float32)
    h200 = lp.machine("h200")
    row = h200.sum(x, axis=1, tile=2, layout=Accumulator((4, 1), 128))
    assert np.array_equal(row, h200.sum(x, order="wgmma"))
    assert layouts.places(Accumulator((4, 2), 64), (64, 128), 1) == "rllrrrw"
    assert layouts.places(Accumulator((4, 2), 64), (128, 128), 0) == "lllrwwr"


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("n", [1, 5, 64, 300, 1024])
def test_scans_end_in_the_sum_of_what_they_add(n, warps):
    """cumsum of 1 is exact in any order; of random numbers, every prefix is a sum of the elements before."""
    h200 = lp.machine("h200")
    assert np.array_equal(h200.cumsum(np.ones((2, n), np.float32), num_warps=warps)[1], np.arange(1, n + 1))
    x = numbers(np.random.default_rng(n), (3, n), np.float32)
    exact = np.cumsum(x.astype(np.float64), -1)
    bound = np.cumsum(np.abs(x).astype(np.float64), -1) * n * 2.0**-24
    assert (np.abs(h200.cumsum(x, num_warps=warps) - exact) <= bound).all()


def test_a_scan_by_hand():
    """64 elements, one warp: two to a thread. Lane 1's second: (x2 + x3) + (x0 + x1); its first: x2 + (x0 + x1)."""
    x = numbers(np.random.default_rng(3), (64,), np.float32)
    got = lp.machine("h200").cumsum(x, num_warps=1)
    pair = [x[2 * i] + x[2 * i + 1] for i in range(4)]
    assert got[:2].tolist() == [x[0], pair[0]]
    assert got[2:4].tolist() == [x[2] + pair[0], pair[1] + pair[0]]
    assert got[7] == (pair[3] + pair[2]) + (pair[1] + pair[0])
    assert got[6] == x[6] + got[5]


def test_specials():
    h200 = lp.machine("h200")
    nan = np.array([0x7FA00001, 0xFFC00000], np.uint32).view(np.float32)
    rows = np.array([[1, np.inf, 2, 3], [np.inf, -np.inf, 0, 0], [nan[0], 1, 2, 3], [-0.0] * 4], np.float32)
    bits = [0x7F800000, 0x7FFFFFFF, 0x7FFFFFFF, 0x80000000]
    assert h200.sum(rows, num_warps=4).view(np.uint32).tolist() == bits
    assert h200.sum(rows.astype(np.float16), num_warps=4).view(np.uint16).tolist() == [0x7C00, 0x7FFF, 0x7FFF, 0x8000]
    assert h200.sum(rows[:, :3][3:], num_warps=4).view(np.uint32).tolist() == [0]  # the mask's zero is +0
    alone = rows[2:3, :1]
    assert h200.sum(alone, num_warps=1).view(np.uint32).tolist() == [0x7FA00001]  # nothing is added
    narrow = np.array([[0x7FA5]], np.uint16).view(ml_dtypes.bfloat16)
    assert h200.max(narrow).view(np.uint32).tolist() == [0x7FA50000]
    assert h200.max(np.array([nan[0], -1e30, -5, 7], np.float32)) == 7  # a signalling NaN loses too
    assert h200.cumsum(rows[2]).view(np.uint32).tolist() == [0x7FA00001] + [0x7FFFFFFF] * 3
    assert h200.max(np.array([nan, nan])).view(np.uint32).tolist() == [0x7FFFFFFF] * 2
    assert h200.max(np.array([nan[0], -3, -0.0, 0.0], np.float32)).view(np.uint32) == 0
    assert h200.min(np.array([0.0, -0.0, nan[1], 7], np.float32)).view(np.uint32) == 0x80000000
    assert h200.max(np.full(3, np.nan, np.float32)) == -np.inf  # the mask's fourth element
    assert h200.sum(np.full(4, 2**30, np.int32), num_warps=1) == 0


@pytest.mark.parametrize("fmt", DTYPES)
def test_dtypes(fmt):
    h200 = lp.machine("h200")
    x = (np.arange(24).reshape(4, 6) - 11).astype(DTYPES[fmt])
    wide = np.float32 if fmt in ("fp16", "bf16") else DTYPES[fmt]
    assert h200.sum(x, num_warps=2).dtype == DTYPES[fmt]
    assert h200.max(x).dtype == h200.min(x).dtype == wide
    assert h200.cumsum(x).dtype == (np.float32 if fmt == "bf16" else DTYPES[fmt])
    assert h200.sum(x, num_warps=2, tile=2, axis=0).tolist() == x.astype(np.float64).sum(0).tolist()
    assert h200.max(x, tile=2, axis=0).tolist() == x[-1].tolist()
    assert h200.min(x).tolist() == x[:, 0].tolist()
    assert h200.cumsum(x, tile=2, axis=0)[-1].tolist() == x.astype(np.float64).sum(0).tolist()


def test_refusals():
    h200, x = lp.machine("h200"), np.ones((4, 8), np.float32)
    for call, error, words in [
        (lambda: h200.sum(x, num_warps=3), ValueError, "num_warps=3"),
        (lambda: h200.sum(x, alignment=3), ValueError, "alignment=3"),
        (lambda: h200.sum(x, axis=0), ValueError, "axis=0"),
        (lambda: h200.sum(x, axis=-3, tile=2), ValueError, "axis=-3"),
        (lambda: h200.sum(x, tile=3), ValueError, "tile=3"),
        (lambda: h200.sum(x, warps=3), TypeError, "warps: no such option"),
        (lambda: h200.sum(x, order="wgmma", num_warps=4), TypeError, "order="),
        (lambda: h200.sum(x, in_thread="trie", num_warps=4), ValueError, "in_thread='trie'"),
        (lambda: h200.sum(x, times=x[:2]), TypeError, "times"),
        (lambda: h200.sum(x.view(np.uint32), num_warps=1), TypeError, "codes"),
        (lambda: h200.sum(np.ones((2, 0), np.float32), num_warps=1), ValueError, "empty"),
        (lambda: h200.sum(x.astype(float), times=x.astype(float)), NotImplementedError, "fp64"),
        (lambda: h200.sum(x.astype(np.float16), times=x.astype(np.float16)), NotImplementedError, "fp16"),
        (
            lambda: h200.cumsum(np.ones((32, 8), np.float32), tile=2, axis=0, layout=Accumulator((4, 1), 8)),
            NotImplementedError,
            "cumsum",
        ),
        (lambda: layouts.layout_of((6,), 4), ValueError, "shape=6"),
        (lambda: layouts.layout_of((4, 4), 4, order=(0, 0)), ValueError, "order"),
        (lambda: layouts.places(layouts.layout_of((8,), 4), (8,), 1), ValueError, "axis=1"),
    ]:
        with pytest.raises(error, match=words):
            call()

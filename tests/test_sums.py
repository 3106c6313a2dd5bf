"""Sums and dots in every order against their slow twin on Fractions; what users met; arguments that are refused."""

import numpy as np
import pytest

import lpsim as lp
import oracle
import slow_sums
from lpsim import machines, orders, reductions, sums
from lpsim.formats import FORMATS, Format
from lpsim.reductions import ORDERS, Order, blocked, split_k

BF16, FP16, FP32, E4M3 = (FORMATS[name] for name in ("bf16", "fp16", "fp32", "e4m3fn"))
FP22 = Format(22, 14, 127, nans=(1 << 13) - 1, infinity=1)  # 13 fraction bits, as Hopper's fp8 accumulator
PLANS = {
    **{name: (name, None) for name in ORDERS if name != "wgmma"},
    "blocked": (blocked(4), None),
    "fp32 inside": ("sequential", "fp32"),
    "tree of blocks": (blocked(3, inner="kahan", outer="tree"), None),
    "two levels": (blocked(4, within=FP22, rounding="rtz"), "fp32"),
    "split-k": (split_k(3, partial="bf16"), "fp32"),
    "split-k of pairs": (split_k(4, inner="pairwise", outer="kahan"), "fp16"),
    "dealt": (Order(outer="halves", parts=2, run=1), None),
}


def rows(n: int, count: int = 12) -> np.ndarray:
    """float32: cancellation, wide ranges, halves of an ulp, zeros of both signs."""
    rng = np.random.default_rng(n)
    x = rng.normal(size=(count, n)) * 2.0 ** rng.integers(-4, 5, size=(count, n))
    x[1], x[2] = 1.0, np.where(np.arange(n) % 2, -1.0, 1.0) * rng.integers(1, 9, n)
    x[3] = 2.0 ** -rng.integers(0, 12, n)
    x[4], x[5] = -0.0, 0.0
    return x.astype(np.float32)


def exactly(values) -> list[oracle.Value]:
    return [oracle.number(float(v)) for v in values]


def check(found, wanted: list[oracle.Value], fmt) -> None:
    codes = lp.encode(np.asarray(found), fmt)
    assert codes.tolist() == [oracle.encode(value, fmt) for value in wanted]


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 12])
@pytest.mark.parametrize("plan", PLANS)
def test_sum(plan, n):
    name, accumulate = PLANS[plan]
    order, x = reductions.lookup(name), rows(n)
    if order.run and n % 2:
        with pytest.raises(ValueError, match="divide"):
            lp.sum(x, "bf16", order=order)
        return
    inside = FORMATS[accumulate or "bf16"]
    for mode in ("rne", "rtn", "rto"):
        found = lp.sum(x, "bf16", order=name, accumulate=accumulate, rounding=mode)
        rounder = slow_sums.Rounder(rounding=mode)
        check(found, [slow_sums.reduce(exactly(row), order, BF16, inside, rounder) for row in x], BF16)


@pytest.mark.parametrize("n", [1, 2, 5, 12])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("fused", [False, True])
def test_dot(plan, n, fused):
    name, accumulate = PLANS[plan]
    order, a, b = reductions.lookup(name), rows(n), rows(n)[::-1]
    if (order.run and n % 2) or (fused and order.inner != "sequential"):
        with pytest.raises(ValueError, match=r"divide|chain"):
            lp.dot(a, b, "bf16", order=order, fused=fused)
        return
    inside = FORMATS[accumulate or "bf16"]
    found = lp.dot(a, b, "bf16", order=name, accumulate=accumulate, fused=fused)
    rounder, kind = slow_sums.Rounder(), "fma" if fused else "mul"
    pairs = [list(zip(exactly(x), exactly(y), strict=True)) for x, y in zip(a, b, strict=True)]
    check(found, [slow_sums.reduce(row, order, BF16, inside, rounder, kind) for row in pairs], BF16)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("variant", ["A", "C"])
def test_stochastic_words_come_one_after_another(plan, variant):
    name, accumulate = PLANS[plan]
    order, x, inside = reductions.lookup(name), rows(12), FORMATS[accumulate or "bf16"]
    key = {"bits": 8, "seed": 5, "stream": 2, "step": 9, "variant": variant}
    count = sums.trace(x[0], "bf16", order=name, accumulate=accumulate).steps.shape[0]
    everything = lp.stochastic(**key, offset=100)
    words = words_of(everything, x.shape[0] * count).reshape(x.shape[0], count)
    found = lp.sum(x, "bf16", order=name, accumulate=accumulate, rounding=everything)
    wanted = []
    for row, own in zip(x, words, strict=True):
        rounder = slow_sums.Rounder(own, rounding=variant, bits=8)
        wanted.append(slow_sums.reduce(exactly(row), order, BF16, inside, rounder))
    check(found, wanted, BF16)
    half = lp.stochastic(**key, offset=100 + 6 * count)
    assert np.array_equal(lp.sum(x[6:], "bf16", order=name, accumulate=accumulate, rounding=half), found[6:])
    given = lp.stochastic(bits=8, words=words, variant=variant)
    assert np.array_equal(lp.sum(x, "bf16", order=name, accumulate=accumulate, rounding=given), found)


def words_of(noise, count: int) -> np.ndarray:
    from lpsim.core.philox import random_word

    indices = range(noise.offset, noise.offset + count)
    return np.array(
        [random_word(np.uint64(i), np.uint64(noise.seed), noise.stream, noise.step, noise.bits) for i in indices]
    )


def test_wgmma_is_the_machines_row_sum():
    x = np.random.default_rng(3).normal(size=(50, 64)).astype(np.float32)
    found = lp.sum(x, "fp32", order="wgmma")
    assert np.array_equal(found.view(np.uint32), orders.row_sum(x, "wgmma").view(np.uint32))
    assert (found != lp.sum(x, "fp32")).any(), "else this test sees nothing"


def test_fp32_sequential_is_numpys_cumsum():
    x = np.random.default_rng(4).normal(size=(20, 200)).astype(np.float32)
    assert np.array_equal(lp.sum(x, "fp32"), np.cumsum(x, axis=-1, dtype=np.float32)[:, -1])
    assert np.array_equal(lp.sum(x, "fp32", axis=0), np.cumsum(x, axis=0, dtype=np.float32)[-1])


# What users met ------------------------------------------------------------------------------------------------


def test_a_bf16_sum_of_ones_sticks_at_256():
    ones = np.ones(1000, np.float32)
    assert lp.encode(lp.sum(ones, "bf16"), "bf16") == 0x4380
    assert lp.sum(ones / 2, "bf16") == 128
    assert lp.sum(ones, "bf16", accumulate="fp32") == 1000
    assert lp.sum(ones / 2, "fp32") == 500
    assert lp.sum(ones, "bf16", order="tree") == 1000
    assert lp.sum(ones, "bf16", order="kahan") == 1000


def test_thirteen_fraction_bits_stop_at_16384_unless_flushed():
    ones = np.ones(40000, np.float32)
    assert lp.sum(ones, "fp32", accumulate=FP22, rounding="rtz") == 16384
    assert lp.sum(ones, "fp32", order=blocked(128, within=FP22, rounding="rtz")) == 40000


def test_split_k_partials_in_bf16_lose_what_cancels():
    x = np.float32([1 + 2.0**-9, -1.0])
    kept = lp.sum(x, "bf16", order=split_k(2, partial="fp32"), accumulate="fp32")
    lost = lp.sum(x, "bf16", order=split_k(2, partial="bf16"), accumulate="fp32")
    assert (int(lp.encode(kept, "bf16")), int(lp.encode(lost, "bf16"))) == (0x3B00, 0)


def test_a_row_does_not_depend_on_its_batch():
    x = np.random.default_rng(5).normal(size=(33, 70)).astype(np.float32)
    before = lp.get_threads()
    for order in ("sequential", "tree", split_k(4)):
        alone = np.array([lp.sum(row, "bf16", order=order) for row in x])
        try:
            for threads in (1, 2):
                lp.set_threads(threads)
                assert np.array_equal(lp.sum(x, "bf16", order=order), alone)
                assert np.array_equal(lp.sum(x[5:9], "bf16", order=order), alone[5:9])
        finally:
            lp.set_threads(before)
    assert (lp.sum(x, "bf16") != lp.sum(x, "bf16", order=split_k(4))).any(), "a plan is what changes the bits"


def test_fp32_atomics_in_any_order():
    x = np.float32([33554432, 3, -33554432])
    assert lp.sum(x, "fp32") == 4
    assert lp.sum(x[[0, 2, 1]], "fp32") == 3
    assert lp.reachable_sums(x, "fp32").tolist() == [3, 4]
    assert lp.reachable_sums(x, "fp32", orders="sequences").tolist() == [3, 4]


def test_reachable_sums_are_those_of_all_orders():
    from itertools import permutations

    x = np.random.default_rng(6).normal(size=5).astype(np.float32)
    sequences = {float(lp.sum(np.array(p), "bf16")) for p in permutations(x)}
    trees = sequences | {
        float(lp.sum(np.array(p), "bf16", order=o)) for p in permutations(x) for o in ("pairwise", "tree")
    }
    assert set(lp.reachable_sums(x, "bf16", orders="sequences").tolist()) == sequences
    found = lp.reachable_sums(x, "bf16")
    assert found.tolist() == sorted(found.tolist())
    assert trees == set(found.tolist()), "five leaves: every shape of a tree is one of these three"
    zeros = lp.reachable_sums(np.float32([0.0, -0.0, -0.0]), "bf16")
    assert np.signbit(zeros).tolist() == [False]
    both = lp.reachable_sums(np.float32([np.inf, -np.inf, 1]), "bf16")
    assert np.isnan(both).tolist() == [True]
    assert lp.reachable_sums(np.float32([1 + 2.0**-9]), "bf16").tolist() == [1]
    with pytest.raises(ValueError, match="10"):
        lp.reachable_sums(np.ones(11), "bf16")
    with pytest.raises(ValueError, match="trees"):
        lp.reachable_sums(np.ones(3), "bf16", orders="tree")
    with pytest.raises(ValueError, match="stochastic"):
        lp.reachable_sums(np.ones(3), "bf16", rounding=lp.stochastic(bits=4, seed=0, stream=0))


# The face ------------------------------------------------------------------------------------------------------


def test_axis_keepdims_out_and_layouts():
    x = rows(24, 6).reshape(2, 3, 24)
    for axis in (0, 1, 2, -1, -3):
        moved = np.moveaxis(x, axis, -1)
        wanted = lp.sum(np.ascontiguousarray(moved), "bf16")
        found = lp.sum(x, "bf16", axis=axis)
        assert np.array_equal(found, wanted)
        kept = lp.sum(x, "bf16", axis=axis, keepdims=True)
        assert np.array_equal(kept, np.expand_dims(wanted, axis))
        out = np.empty(found.shape, found.dtype)
        assert lp.sum(x, "bf16", axis=axis, out=out) is out
        assert np.array_equal(out, wanted)
    assert lp.sum(x, "bf16", axis=None) == lp.sum(x.reshape(-1), "bf16")
    assert lp.sum(x, "bf16", axis=None, keepdims=True).shape == (1, 1, 1)
    assert lp.sum(x[..., ::-2], "bf16").tolist() == lp.sum(np.ascontiguousarray(x[..., ::-2]), "bf16").tolist()
    assert lp.sum(x.astype(np.float64), "bf16").dtype == np.float64
    assert lp.sum(np.ones((3, 0)), "bf16").tolist() == [0, 0, 0]
    assert lp.sum(np.ones((0, 3)), "bf16").shape == (0,)
    assert lp.dot(x[:, None], x[0, 0], "bf16").shape == (2, 1, 3)
    assert lp.dot(np.ones(0), np.ones(0), "bf16") == 0


def test_nan_infinity_and_what_a_format_cannot_say():
    assert np.isnan(lp.sum(np.float32([1, np.nan, 2]), "bf16"))
    assert np.isnan(lp.sum(np.float32([np.inf, -np.inf]), "bf16"))
    assert lp.sum(np.float32([448, 448]), "e4m3fn", overflow="satfinite") == 448
    with pytest.raises(ValueError, match="neither"):
        lp.sum(np.float32([6, 6]), "e2m1")


def test_a_dot_unit():
    rng = np.random.default_rng(7)
    a, b = (lp.round(rng.normal(size=(5, 40)).astype(np.float32), "bf16") for _ in range(2))
    unit = machines.dot_row("h200", "wgmma", "bf16").unit
    found = lp.dot(a, b, unit=unit, a_fmt="bf16", b_fmt="bf16")
    wanted = lp.machine("h200").dot(a, np.ascontiguousarray(b.T), fmt="bf16")
    assert np.array_equal(found, np.diag(wanted))
    assert found.dtype == np.float32
    with pytest.raises(TypeError, match="unit"):
        lp.dot(a, b, "bf16", unit=unit)
    with pytest.raises(TypeError, match="fmt"):
        lp.dot(a, b)


def test_what_is_refused():
    x = np.ones((2, 6), np.float32)
    for call, words in (
        (lambda: lp.sum(x, "bf16", order="sequentail"), "sequential"),
        (lambda: lp.sum(x, "bf16", axis=2), "axis"),
        (lambda: lp.dot(x, x[:, :4], "bf16"), "last axes"),
        (lambda: lp.dot(x, np.ones((3, 6)), "bf16"), "broadcast"),
        (lambda: lp.sum(x, "bf16", order="wgmma"), "divide"),
        (lambda: split_k(0), "parts"),
        (lambda: blocked(4, inner="heap"), "inner"),
        (lambda: lp.sum(x, "bf16", rounding=lp.stochastic(bits=4, words=np.zeros((2, 6), int))), "roundings"),
        (lambda: lp.sum(x, "fp64"), "fp64"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    for call in (lambda: lp.sum(np.ones(3, int), "bf16"), lambda: lp.sum(x, "bf16", axis=True), lambda: blocked(2.0)):
        with pytest.raises(TypeError):
            call()


def test_trace_has_every_step():
    x = np.float32([1, 2.0**-8, 2.0**-8])
    trace = sums.trace(x, "bf16")
    values = trace.steps[:, 1:5].copy().view(np.float64)
    assert trace.value == 1
    assert values[:, [0, 1, 3]].tolist() == [[1, 2.0**-8, 1], [1, 2.0**-8, 1]]
    assert sums.trace(x, "bf16", order="kahan").value == 1 + 2.0**-7
    assert sums.trace_dot(x, x, "bf16", fused=True).steps.shape == (3, 6)
    for order in (*ORDERS, split_k(2, partial="bf16"), blocked(3)):
        row = np.arange(8, dtype=np.float32)
        assert sums.trace(row, "bf16", order=order).value == lp.sum(row, "bf16", order=order)
    with pytest.raises(ValueError, match="one-dimensional"):
        sums.trace(np.ones((2, 2)), "bf16")


def test_torch(torch):
    x = rows(12)
    found = lp.sum(torch.from_numpy(x), "bf16", order="tree")
    assert isinstance(found, torch.Tensor)
    assert np.array_equal(found.numpy(), lp.sum(x, "bf16", order="tree"))
    assert isinstance(lp.dot(torch.from_numpy(x), x, "bf16"), torch.Tensor)

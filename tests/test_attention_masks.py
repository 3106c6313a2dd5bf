"""Attention, both passes: lengths that tiles do not divide, windows, masks, bias, grouped heads, fp8."""

import math

import ml_dtypes
import numpy as np
import pytest

import lpsim as lp
from gradients import BF16, GRADIENTS, both, differing, normal, same
from lpsim.recipes import lazy, with_site, with_switch

RECIPES = ["triton", "paper", "exact", "fa2"]
E4M3 = ml_dtypes.float8_e4m3fn


def inputs(n: int, n_keys: int, *batch: int, d: int = 16, kv_batch=None):
    shapes = [(*batch, n, d), (*(kv_batch or batch), n_keys, d), (*(kv_batch or batch), n_keys, d), (*batch, n, d)]
    q, k, v, do = (normal(*shape, seed=i) for i, shape in enumerate(shapes))
    return (q, k, v), do


def padded(x, rows: int):
    """x with more rows, which must not matter."""
    return np.concatenate([x, normal(*x.shape[:-2], rows - x.shape[-2], x.shape[-1], seed=9)], axis=-2)


def equal(a, b) -> None:
    """Bits, or in float64 the value up to its round-off (BLAS blocks other shapes in other ways)."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype == np.float64:
        assert np.abs(a - b).max() < 1000 * 2.0**-53 * max(1.0, np.abs(b).max())
    else:
        assert differing(a, b) == 0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("recipe", RECIPES)
def test_lengths_that_tiles_do_not_divide(recipe, causal):
    """As a longer sequence of which the tail is masked: 52 = 32 + 20 rows and keys."""
    qkv, do = inputs(52, 52)
    options = {"block": (16, 32), "causal": causal}
    forward, gradients = both(qkv, do, recipe, **options)
    mask = np.arange(64) < 52
    longer = [padded(x, 64) for x in qkv]
    whole, back = both(longer, padded(do, 64) * BF16(0), recipe, mask=mask, **options)
    equal(forward.o, whole.o[:52])
    equal(forward.lse, whole.lse[:52])
    back = lp.attention.backward(
        *longer, whole.kept, whole.lse, np.concatenate([do, np.zeros((12, 16), BF16)]), recipe=recipe, mask=mask,
        **options,
    )  # fmt: skip
    for name in GRADIENTS:
        equal(getattr(gradients, name), getattr(back, name)[:52])


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("window", [0, 7, (5, 0), (0, 9), (20, 3)])
def test_a_window_is_a_mask(recipe, window):
    """Tiles outside the window are skipped; that changes no bit."""
    qkv, do = inputs(64, 64)
    left, right = (window, window) if isinstance(window, int) else window
    i, c = np.arange(64)[:, None], np.arange(64)[None, :]
    mask = (c >= i - left) & (c <= i + right)
    for extra, seen in (({}, mask), ({"causal": True}, mask & (c <= i))):
        a, da = both(qkv, do, recipe, window=window, block=(16, 16), **extra)
        b, db = both(qkv, do, recipe, mask=seen, block=(16, 16))
        same(a, b)
        for name in GRADIENTS:
            x, y = np.asarray(getattr(da, name), np.float64), np.asarray(getattr(db, name), np.float64)
            assert (x == y).all(), name  # a zero of an empty sum has no sign here


@pytest.mark.parametrize("recipe", RECIPES)
def test_masked_keys_are_as_good_as_absent(recipe):
    """The masked run and the run on the kept keys alone, where tiles fall alike: a whole tile is masked."""
    qkv, do = inputs(32, 48)
    mask = np.ones(48, bool)
    mask[16:32] = False
    kept = [qkv[0], qkv[1][mask], qkv[2][mask]]
    a, da = both(qkv, do, recipe, mask=mask, block=(16, 16))
    b, db = both(kept, do, recipe, block=(16, 16))
    equal(a.o, b.o)
    equal(a.lse, b.lse)
    equal(da.dq, db.dq)
    equal(da.delta, db.delta)
    assert (np.asarray(da.dk[16:32], float) == 0).all()
    assert (np.asarray(da.dv[16:32], float) == 0).all()
    equal(da.dk[mask], db.dk)
    equal(da.dv[mask], db.dv)


@pytest.mark.parametrize("recipe", RECIPES)
def test_rows_that_see_nothing(recipe):
    """o = +0, lse = -inf, zero gradients; the other rows keep their bits."""
    qkv, do = inputs(32, 32, 2)
    mask = np.ones((2, 32, 32), bool)
    mask[0, 5] = mask[1, 31] = False
    plain, _ = both(qkv, do, recipe, block=(16, 16))
    found, gradients = both(qkv, do, recipe, mask=mask, block=(16, 16))
    for b, i in ((0, 5), (1, 31)):
        assert differing(found.o[b, i], np.zeros(16, found.o.dtype)) == 0
        assert found.lse[b, i] == found.m[b, i] == -np.inf
        assert (np.asarray(gradients.dq[b, i], float) == 0).all()
        assert gradients.delta[b, i] == 0
    others = mask.any(axis=-1)
    equal(found.o[others], plain.o[others])
    equal(found.lse[others], plain.lse[others])
    for name in GRADIENTS:
        assert np.isfinite(np.asarray(getattr(gradients, name), float)).all()
    without = do.copy()
    without[0, 5] = without[1, 31] = 0
    again = lp.attention.backward(*qkv, found.kept, found.lse, without, recipe=recipe, mask=mask, block=(16, 16))
    assert (np.asarray(again.dv, float) == np.asarray(gradients.dv, float)).all()
    assert (np.asarray(again.dk, float) == np.asarray(gradients.dk, float)).all()


@pytest.mark.parametrize("recipe", RECIPES)
def test_minus_infinite_bias_is_a_mask(recipe):
    qkv, do = inputs(32, 32)
    mask = np.random.default_rng(3).random((32, 32)) < 0.6
    mask[7] = False
    zero = np.zeros((32, 32), np.float32)
    a, da = both(qkv, do, recipe, bias=np.where(mask, zero, np.float32(-np.inf)), block=(16, 16))
    b, db = both(qkv, do, recipe, bias=zero, mask=mask, block=(16, 16))
    same(a, b)
    same(da, db)


@pytest.mark.parametrize("recipe", ["triton", "fa2"])
def test_additive_bias_is_near_exact(recipe):
    """A distance penalty for each head (ALiBi); a constant added to a row changes lse by it, and o not."""
    qkv, do = inputs(64, 64, 2)
    distance = np.arange(64)[None, :] - np.arange(64)[:, None]
    bias = (distance[None] * np.array([0.5, 0.0625])[:, None, None]).astype(np.float32)
    found, gradients = both(qkv, do, recipe, bias=bias, causal=True, block=(32, 32))
    exact, wanted = both(qkv, do, "exact", bias=bias, causal=True)
    plain, _ = both(qkv, do, "exact", causal=True)
    assert np.abs(exact.o - plain.o).max() > 0.1
    assert np.abs(found.o.astype(float) - exact.o).max() < 2 * 2.0**-8 * np.abs(qkv[2].astype(float)).max()
    assert np.abs(found.lse * math.log(found.base) - exact.lse).max() < 1e-5
    for name in ("dq", "dk", "dv"):
        x, y = np.asarray(getattr(gradients, name), float), getattr(wanted, name)
        assert np.abs(x - y).max() < 8 * 2.0**-8 * np.abs(y).max(), name
    raised = lp.attention.forward(*qkv, recipe=recipe, bias=bias + np.float32(8), causal=True, block=(32, 32))
    assert np.abs((raised.lse - found.lse) * math.log(found.base) - 8).max() < 1e-5


def test_shapes_of_masks_and_bias():
    """One mask for a row, for keys only, for each head: all broadcast."""
    qkv, _ = inputs(32, 48, 2, 3)
    keys = np.random.default_rng(1).random(48) < 0.5
    keys[0] = True
    one = lp.attention.forward(*qkv, mask=keys)
    for shape in ((1, 48), (32, 48), (1, 1, 1, 48), (2, 1, 32, 48), (2, 3, 32, 48)):
        same(lp.attention.forward(*qkv, mask=np.broadcast_to(keys, shape)), one)
    bias = normal(2, 1, 32, 48).astype(np.float32)
    whole = lp.attention.forward(*qkv, bias=bias)
    for b in range(2):
        for h in range(3):
            alone = lp.attention.forward(*(x[b, h] for x in qkv), bias=bias[b, 0])
            assert differing(alone.o, whole.o[b, h]) == 0


@pytest.mark.parametrize("recipe", RECIPES)
def test_grouped_heads(recipe):
    """Four query heads on two key heads: each as if it were alone; dk and dv add up."""
    qkv, do = inputs(32, 48, 3, 4, kv_batch=(3, 2))
    found, gradients = both(qkv, do, recipe, block=(16, 16))
    assert found.o.shape == (3, 4, 32, 16)
    assert gradients.dk.shape == gradients.dv.shape == (3, 2, 48, 16)
    spread = [qkv[0], *(np.repeat(x, 2, axis=1) for x in qkv[1:])]
    wide = with_site(recipe, dK="fp32", dV="fp32") if recipe != "exact" else recipe
    alone, each = both(spread, do, wide, block=(16, 16))
    equal(found.o, alone.o)
    equal(found.lse, alone.lse)
    equal(gradients.dq, each.dq)
    for name in ("dk", "dv"):
        total = np.asarray(getattr(each, name), float).reshape(3, 2, 2, 48, 16).sum(axis=2)
        error = np.abs(np.asarray(getattr(gradients, name), float) - total).max()
        assert error <= 2.0**-8 * np.abs(total).max()


# fp8 ---------------------------------------------------------------------------------------------------------


def fp8_inputs():
    rng = np.random.default_rng(0)
    scales = (2.0**-3, 2.0**-4, 0.3)
    given = [np.asarray(lp.round(rng.normal(size=(64, 32)) / s, "e4m3fn")).astype(E4M3) for s in scales]
    return given, scales


def test_fp8_with_scales():
    """e4m3fn q, k, v and P: the scales multiply the scores and the output; near exact within P's roundings."""
    qkv, scales = fp8_inputs()
    recipe = with_site("triton", O="bf16")
    found = lp.attention.forward(*qkv, recipe=recipe, scales=scales)
    exact = lp.attention.forward(*qkv, recipe="exact", scales=scales)
    assert found.o.dtype == np.float32
    assert differing(lp.round(found.o, "bf16"), found.o) == 0
    assert np.abs(found.o - exact.o).max() < 2 * 2.0**-4 * np.abs(qkv[2].astype(float)).max() * scales[2]
    assert np.abs(found.lse * math.log(2) - exact.lse).max() < 1e-2  # the dot keeps 13 bits
    folded = lp.attention.forward(*qkv, recipe=recipe, scale=scales[0] * scales[1] / math.sqrt(32))
    assert (found.lse == folded.lse).all()
    with pytest.raises(lp.NotModelled, match="e4m3fn"):
        lp.attention.forward(*qkv, recipe="paper")


def test_a_lagging_maximum_overflows_e4m3():
    """With offset 8 a weight may be 256: past a threshold of log2(448) - 8 it saturates, but not in l."""
    rng = np.random.default_rng(2)
    q, k = np.zeros((16, 16)), np.zeros((64, 16))
    q[:, 0] = 1.0
    k[:, 0] = np.where(np.arange(64) < 32, 0.0, 1.375)  # the second tile is 1.98 log2 units above the first
    v = rng.normal(-2.0, 0.3, k.shape)
    v[32:] += 4.0
    qkv = [np.asarray(lp.round(x, "e4m3fn")).astype(E4M3) for x in (q, k, v)]
    exact = lp.attention.forward(*qkv, recipe="exact", scale=1.0)
    errors = {}
    for threshold in (0.0, 0.8, 2.0):
        recipe = with_switch(with_site("triton", O="bf16"), maximum=lazy(threshold, 8.0))
        found = lp.attention.forward(*qkv, recipe=recipe, scale=1.0, block=(16, 32))
        errors[threshold] = np.abs(found.o - exact.o).max()
    assert errors[0.0] < 0.1
    assert errors[0.8] < 0.1
    assert errors[2.0] > 0.5


# Arguments ---------------------------------------------------------------------------------------------------


def test_what_is_refused():
    qkv, _ = inputs(32, 48)
    for error, words, options in (
        (TypeError, "window='x'", {"window": "x"}),
        (TypeError, "window=1.5", {"window": 1.5}),
        (TypeError, "window", {"window": (1, 2, 3)}),
        (ValueError, "must not be negative", {"window": -1}),
        (TypeError, "mask has dtype float32", {"mask": np.ones((32, 48), np.float32)}),
        (ValueError, "does not broadcast", {"mask": np.ones((48, 32), bool)}),
        (ValueError, "does not broadcast", {"mask": np.ones((2, 32, 48), bool)}),
        (TypeError, "bias has dtype int64", {"bias": np.ones((32, 48), np.int64)}),
        (ValueError, "no float32", {"bias": np.full((32, 48), 0.1)}),
        (TypeError, "scales=2", {"scales": 2}),
        (ValueError, r"scales\[1\]=0", {"scales": (1, 0, 1)}),
        (ValueError, "scale=1e-300 is 0.0 as float32", {"scale": 1e-300}),
        (ValueError, "scale=3e[+]38 is inf as float32.*2.3e38", {"scale": 3e38}),
        (ValueError, "scale=3e[+]38 is inf", {"scale": 3e38, "recipe": "paper"}),
        (ValueError, "scale=1.0, times .*e-6., is 0.0", {"scale": 1.0, "scales": (1e-30, 1e-30, 1)}),
        (ValueError, r"block=\(8, 20\): the forward pass .* key tiles of a multiple of 8", {"block": (8, 20)}),
        (TypeError, "block=", {"block": (True, 16)}),
        (TypeError, "block=", {"block": (np.float64(16), 16)}),
        (TypeError, "window=True", {"window": True}),
    ):
        with pytest.raises(error, match=words):
            lp.attention.forward(*qkv, **options)


@pytest.mark.parametrize(("recipe", "scale"), [("triton", 1e-45), ("paper", 1e-45), ("triton", 2.3e38)])
def test_the_ends_of_scale_are_no_error(recipe, scale):
    qkv, _ = inputs(32, 48)
    lp.attention.forward(*qkv, recipe=recipe, scale=scale)
    lp.attention.forward(*qkv, recipe="exact", scale=1e-300)


def test_numpy_integers_are_integers():
    qkv, _ = inputs(48, 48)
    plain = lp.attention.forward(*qkv, window=3, block=(16, 8))
    for window in (np.int64(3), (np.int32(3), 3)):
        same(lp.attention.forward(*qkv, window=window, block=(np.int64(16), np.uint8(8))), plain)

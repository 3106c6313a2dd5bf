"""The detector of biased rows: what it reads off q, k and v, and its prediction against the emulator."""

import math

import numpy as np
import pytest

import lpsim as lp
from gradients import BF16
from lpsim.recipes import dynamic, with_site, with_switch

LIMIT = 6  # standard errors


def rows(ties: int, mass: float, residual: float, positive: bool = False, batch: int = 192, n: int = 32, top=3.0):
    """q, k, v, bf16: one query a batch, `ties` keys at its maximum; V of one sign, that of the others scaled."""
    rng = np.random.default_rng(ties)
    scores = np.full((batch, n), top + math.log(mass / (n - ties))) + rng.uniform(-0.5, 0.5, (batch, n))
    scores[:, :ties] = top
    q, k = np.zeros((batch, 1, 64)), np.zeros((batch, n, 64))
    q[:, :, 0], k[:, :, 0] = 8.0, scores
    v = rng.integers(128, 256, (batch, n, 64)) / (64.0 if positive else -64.0)
    v[:, ties:] = residual * v[:, :ties].mean(axis=1, keepdims=True)
    return [np.asarray(lp.round(x.astype(np.float32), "bf16")).astype(BF16) for x in (q, k, v)]


def errors_of_o(qkv, recipe: str) -> tuple[float, float]:
    """Mean signed error of O in its ulps, and the standard error."""
    found = lp.attention.forward(*qkv, recipe=recipe, scale=0.125)
    o = lp.attention.forward(*qkv, recipe="exact", scale=0.125).o[:, 0]
    ulp = np.exp2(np.floor(np.log2(np.abs(o))) - 7)
    by_row = ((found.o[:, 0].astype(float) - o) / ulp).mean(axis=1)
    return by_row.mean(), by_row.std(ddof=1) / math.sqrt(by_row.size)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("residual", [0.2, 1.5])
@pytest.mark.parametrize("ties", [2, 3, 4])
def test_the_prediction_is_what_the_emulator_shows(ties, residual, positive):
    qkv = rows(ties, 1e-3, residual, positive)
    found = lp.attention.detect(*qkv, scale=0.125)
    assert (found.ties == ties).all()
    assert (found.positive == float(positive)).all()
    assert not found.unsafe.any()
    exact = lp.attention.forward(*qkv, recipe="exact", scale=0.125)
    assert found.mass == pytest.approx(exact.l - ties, rel=1e-9)
    assert found.residual == pytest.approx(np.full((192, 1), residual), rel=0.01)
    mean, error = errors_of_o(qkv, "triton")
    assert abs(mean - found.predicted.mean()) < LIMIT * error + 0.02 * abs(mean)
    assert abs(mean) > LIMIT * error


def test_the_prediction_for_a_stored_sum():
    """Recipe paper: the accumulator, O times l, against the exact one."""
    qkv = rows(2, 1e-4, 1.0)
    predicted = lp.attention.detect(*qkv, recipe="paper", scale=0.125).predicted
    found = lp.attention.forward(*qkv, recipe=with_site("paper", O="fp32"), scale=0.125)
    exact = lp.attention.forward(*qkv, recipe="exact", scale=0.125)
    total = exact.o[:, 0] * exact.l
    ulp = np.exp2(np.floor(np.log2(np.abs(total))) - 7)
    by_row = ((np.asarray(lp.round(found.o[:, 0].astype(float) * found.l, "bf16")) - total) / ulp).mean(axis=1)
    assert abs(by_row.mean() - predicted.mean()) < LIMIT * by_row.std(ddof=1) / math.sqrt(by_row.size)
    assert predicted.mean() < -0.2


def test_rows_without_direction():
    """No tie, both signs of V, a heavy remainder, a row that sees one key or none: nothing is predicted."""
    q, k, v = rows(2, 1e-3, 1.5)
    assert (lp.attention.detect(q, k, v, scale=0.125).predicted != 0).all()
    hidden = np.ones((192, 1, 32), bool)
    hidden[:, :, 0] = False
    alone = lp.attention.detect(q, k, v, scale=0.125, mask=~hidden)
    assert (alone.ties == 1).all()
    assert (alone.mass == 0).all()
    assert (alone.predicted == 0).all()
    blind = lp.attention.detect(q, k, v, scale=0.125, mask=np.zeros((192, 1, 32), bool))
    assert all((np.asarray(x) == 0).all() for x in blind)
    mixed = v.copy()
    mixed[:, 0] = -mixed[:, 0]
    found = lp.attention.detect(q, k, mixed, scale=0.125)
    assert (found.positive == 0.5).all()
    assert (found.predicted == 0).all()
    heavy = lp.attention.detect(*rows(2, 3.0, 1.5), scale=0.125)
    assert (heavy.predicted == 0).all()


@pytest.mark.parametrize(("top", "unsafe"), [(80.0, False), (89.0, True), (-80.0, False), (-89.0, True)])
def test_rows_that_the_published_maximum_destroys(top, unsafe):
    qkv = rows(2, 1e-3, 1.0, batch=4, top=top)
    found = lp.attention.detect(*qkv, scale=0.125, beta=2.0)
    assert (found.unsafe == unsafe).all()
    o = lp.attention.forward(*qkv, recipe=with_switch("triton", maximum=dynamic(2.0)), scale=0.125).o.astype(float)
    assert np.isnan(o).all() == unsafe or top < 0
    assert (lp.attention.detect(*qkv, scale=0.125, beta=1.01).unsafe == (unsafe and top < 0)).all()


def test_shapes_and_what_is_refused():
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal(s).astype(np.float32).astype(BF16) for s in ((2, 4, 24, 32), (2, 2, 24, 32)))
    found = lp.attention.detect(q, k, k, causal=True, window=(5, 0))
    assert all(x.shape == (2, 4, 24) for x in found)
    assert found.ties.min() >= 1
    for words, options in (("beta=0.5", {"beta": 0.5}), ("recipe='trito'", {"recipe": "trito"})):
        with pytest.raises(ValueError, match=words):
            lp.attention.detect(q, k, k, **options)

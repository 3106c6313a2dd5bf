"""What users of attention met, as public issues tell it; the right answers are exact rationals or follow from them."""

import math
from fractions import Fraction

import numpy as np
import pytest

import lpsim as lp
from gradients import BF16, GRADIENTS, both, differing
from lpsim.recipes import dynamic, with_site, with_switch

RECIPES = ["triton", "paper", "fa2", "naive", "exact"]


def bf16(x) -> np.ndarray:
    found = np.asarray(x, np.float32).astype(BF16)
    assert (found.astype(np.float64) == np.asarray(x, np.float64)).all(), "not on the grid"
    return found


def one_query(scores, v, d: int = 16):
    """q, k, v, all bf16: a single query whose scores, with scale 1, are these; v in feature 0."""
    q, k, values = np.zeros((1, d)), np.zeros((len(scores), d)), np.zeros((len(scores), d))
    q[:, :2] = 1.0
    for key, score in enumerate(scores):
        parts = score if isinstance(score, tuple) else (score, 0.0)
        k[key, :2] = parts
    values[:, 0] = v
    return bf16(q), bf16(k), bf16(values)


def test_three_keys_on_which_bf16_drifts_by_an_ulp():
    """nanoGPT 524. Two tied keys and a small third: stored in bf16 at every step O is one ulp off, with fp32 sums not.

    The sum of the tied V is -4.828125, halfway between two bf16 numbers; the third key pulls it further out, and the
    stored sum goes to -4.84375. Its half, -2.421875, is one bf16 ulp from -2.40625, the nearest to the exact quotient.
    """
    given = one_query([4.0, 4.0, -4.0], [-2.40625, -2.421875, -2.40625])
    weight = math.exp(-8.0)
    exact = (Fraction(-2.40625) + Fraction(-2.421875) + Fraction(weight) * Fraction(-2.40625)) / (2 + Fraction(weight))
    nearest = float(lp.round(float(exact), "bf16"))
    names = ("paper", "triton", "fa2")
    found = {name: float(lp.attention.forward(*given, recipe=name, scale=1.0).o[0, 0]) for name in names}
    assert nearest == found["triton"] == found["fa2"] == -2.40625
    assert found["paper"] == nearest - 2.0**-6
    assert lp.add(-2.40625 - weight * 2.40625, -2.421875, "bf16") == -4.84375


@pytest.mark.parametrize(("top", "wanted"), [(0.0, 0.0), (-1e-3, 0.0), (3.0, 6.0), (-3.0, 0.0)])
def test_edges_of_the_published_maximum(top, wanted):
    """A reader's tips say lower beta on NaN, raise it on explosion: what m is at the edges, where it breaks."""
    given = one_query([float(np.float32(top).astype(BF16)), float(np.float32(top).astype(BF16))], [1.0, 2.0])
    found = lp.attention.forward(*given, recipe=with_switch("fa2", maximum=dynamic(2.0)), scale=1.0)
    assert abs(found.m[0] - wanted) <= 1e-5
    for beta, safe in ((2.0, 80.0), (7.0, 14.0)):
        for score, finite in ((safe, True), (safe + 32.0, False)):
            given = one_query([score, score], [1.0, 2.0])
            rule = dynamic(beta)
            published = lp.attention.forward(*given, recipe=with_switch("triton", maximum=rule), scale=1.0)
            guarded = with_switch("triton", maximum=rule._replace(guard=True))
            assert np.isfinite(float(published.o[0, 0])) == finite
            assert float(lp.attention.forward(*given, recipe=guarded, scale=1.0).o[0, 0]) == 1.5


@pytest.mark.parametrize("recipe", RECIPES)
def test_one_query_and_one_key(recipe):
    """flash-attention 334: NaN in dQ. The answer is o = v, dq = dk = 0, dv = do."""
    rng = np.random.default_rng(334)
    q, k, v, do = ((rng.choice([-1, 1], (1, 16)) * rng.uniform(6.5, 7.5, (1, 16))).astype(BF16) for _ in range(4))
    forward, found = both((q, k, v), do, recipe)
    assert (np.asarray(forward.o, float) == v.astype(float)).all()
    assert (np.asarray(found.dv, float) == do.astype(float)).all()
    if recipe in ("triton", "exact"):
        # delta and dP are one sum in two orders: their difference, times |k| / 4, is all that is left.
        room = 2.0**-22 if recipe == "triton" else 2.0**-50
        terms = np.abs(do.astype(float) * v.astype(float)).sum()
        assert np.abs(np.asarray(found.dq, float)).max() <= room * terms * 7.5 / 4
        assert np.abs(np.asarray(found.dk, float)).max() <= room * terms * 7.5 / 4
    elif recipe != "naive":  # which stores dP, and so has dP - delta = 0 only up to that rounding
        assert (np.asarray(found.dq, float) == 0).all()
        assert (np.asarray(found.dk, float) == 0).all()


@pytest.mark.parametrize("recipe", ["triton", "paper", "fa2", "exact"])
@pytest.mark.parametrize("constant", [1000.0, 10048.0])
def test_a_tensor_filled_with_one_number(recipe, constant):
    """flash-attention 41, pytorch 119320: NaN gradients. All keys tie, o = v, dv = n / n_keys do, dq = dk = 0.

    None is NaN here. But lse = m + log l is one float32, of millions: its last bit is what P = exp(S - lse), and dv
    with it, can be wrong by, in any kernel that recomputes P so.
    """
    x = np.full((32, 16), constant, np.float32).astype(BF16)
    do = np.full((32, 16), 0.5, np.float32).astype(BF16)
    forward, found = both((x, x, x), do, recipe)
    assert (np.asarray(forward.o, float) == x.astype(float)).all()
    for name in GRADIENTS:
        assert np.isfinite(np.asarray(getattr(found, name), float)).all()
    dv = np.asarray(found.dv, float)
    factor = forward.base ** float(np.spacing(np.abs(forward.lse).max()))
    assert (dv <= 0.5 * factor * (1 + 2.0**-8)).all()
    assert (dv >= 0.5 / factor * (1 - 2.0**-8)).all()


def test_scores_that_bf16_cannot_tell_apart():
    """simple_stories_train 47: naive attention in bf16. 16.0625 is a tie between 16 and 16.125 and becomes 16."""
    assert lp.encode(16.0625, "bf16") == 0x4180
    given = one_query([(16.0, 0.0625), (16.0, 0.0)], [1.0, 0.0])
    weights = {}
    for name, recipe in (("naive", "naive"), ("exact", "exact"), ("wide", with_site("naive", QK="fp32", S="fp32"))):
        weights[name] = float(lp.attention.forward(*given, recipe=recipe, scale=1.0).o[0, 0])
    assert weights["naive"] == 0.5
    assert round(weights["exact"], 7) == 0.5156199
    assert weights["wide"] == float(lp.round(0.5156199, "bf16"))
    assert float(lp.attention.forward(*given, recipe="triton", scale=1.0).o[0, 0]) == weights["wide"]


def test_merging_blocks_that_were_narrowed():
    """ring-flash-attention 42: two blocks of equal lse; narrowing each before the merge loses an ulp."""
    a, b = (float(np.uint32(x).view(np.float32)) for x in (0x3F806000, 0x3F80C000))
    assert lp.encode((a + b) / 2, "bf16") == 0x3F81
    narrowed = [float(lp.round(x, "bf16")) for x in (a, b)]
    assert lp.encode(sum(narrowed) / 2, "bf16") == 0x3F80


@pytest.mark.parametrize("recipe", ["triton", "paper", "fa2", "exact"])
@pytest.mark.parametrize("score", [-6e4, -1e6, -3e38])
def test_scores_below_a_finite_sentinel(recipe, score):
    """flashinfer 4401: a running maximum that starts at -5e4 returns 0. It starts at -infinity here: o = v."""
    score = float(np.float32(score).astype(BF16))
    given = one_query([score], [1.75])
    found = lp.attention.forward(*given, recipe=recipe, scale=1.0)
    if recipe == "triton" and score < -(2.0**30):  # fma(s, scale, -m) is the error of m itself, beyond EX2's range
        assert found.m[0] < -1e38
    else:
        assert float(found.o[0, 0]) == 1.75


def test_fp32_partial_sums_in_any_order():
    """flash-attention 414 and others: dQ differs from run to run where atomics add. Here the order is fixed."""
    a, b, c = 33554432.0, 3.0, -33554432.0
    assert lp.add(lp.add(a, b, "fp32"), c, "fp32") == 4.0
    assert lp.add(lp.add(a, c, "fp32"), b, "fp32") == 3.0
    rng = np.random.default_rng(414)
    qkv = [rng.normal(size=(2, 128, 32)).astype(np.float32).astype(BF16) for _ in range(3)]
    do = rng.normal(size=(2, 128, 32)).astype(np.float32).astype(BF16)
    _, first = both(qkv, do, "triton", causal=True)
    for _ in range(2):
        _, again = both(qkv, do, "triton", causal=True)
        for name in GRADIENTS:
            assert differing(getattr(again, name), getattr(first, name)) == 0


def test_identical_trace_in_other_formats():
    """nanoGPT 468: the format is one argument; on values that both hold the exact answer is one."""
    rng = np.random.default_rng(468)
    qkv = [np.asarray(lp.round(rng.normal(size=(16, 16)).astype(np.float32), "e4m3fn")) for _ in range(3)]
    exact = [lp.attention.forward(*qkv, recipe="exact", fmt=fmt).o for fmt in ("bf16", "fp16", "e4m3fn")]
    assert (exact[0] == exact[1]).all()
    assert (exact[0] == exact[2]).all()
    errors = [
        np.abs(lp.attention.forward(*qkv, recipe=with_site("triton", O="fp32"), fmt=fmt).o - exact[0]).max()
        for fmt in ("fp16", "bf16", "e4m3fn")
    ]
    assert errors == sorted(errors)

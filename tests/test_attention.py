"""Attention forward: every recorded bit of an H200, the recipes against slow and plain references, the paper's bias."""

import math

import numpy as np
import pytest

import lpsim as lp
import slow_attention
from attention_data import BACKWARD, BF16, FORWARD, differing, normal, same, stored, values
from lpsim import recipes
from lpsim.demo import buildup

# An H200's bits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", FORWARD, ids=lambda c: f"{c['case']}-{c['inputs']}-{c['dtype']}")
def test_recorded_forward(case):
    """As arrays of the format, as codes and as float32 with fmt=: 0 differing bits in o, l and m."""
    run, fmt = stored("flash_forward", case["case"]), case["dtype"]
    options = {"causal": case["causal"], "block": (case["block_m"], case["block_n"])}
    qkv = [run[name] for name in "qkv"]
    for given, extra in (
        ([values(x, fmt) for x in qkv], {}),
        (qkv, {"fmt": fmt}),
        ([values(x, fmt).astype(np.float32) for x in qkv], {"fmt": fmt}),
    ):
        found = lp.attention.forward(*given, **options, **extra)
        assert found.o.dtype == given[0].dtype
        assert found.base == 2.0
        o = found.o if found.o.dtype.itemsize == 2 else found.o.astype(values(run["o"], fmt).dtype)
        assert differing(o, run["o"]) == 0
        assert differing(found.l, run["l"]) == 0
        assert differing(found.m, run["m"]) == 0


@pytest.mark.parametrize("case", BACKWARD, ids=lambda c: f"{c['case']}-{c['inputs']}-{c['dtype']}")
def test_recorded_lse(case):
    run = stored("flash_backward", case["case"])
    options = {"causal": case["causal"], "block": (case["block_m"], case["block_n"]), "fmt": case["dtype"]}
    found = lp.attention.forward(*(run[name] for name in "qkv"), **options)
    assert differing(found.lse, run["lse2"]) == 0
    assert differing(found.o, run["o"]) == 0
    assert differing(found.l, run["l"]) == 0
    assert differing(found.m, run["m"]) == 0


def test_the_recorded_runs_differ_from_a_wrong_recipe():
    """The comparison can fail: another tile, or P cut instead of rounded, changes bits."""
    run = stored("flash_forward", 0)
    qkv = [values(run[name], "bf16") for name in "qkv"]
    cut = recipes.with_site("triton", P=recipes.Site("bf16", "rtz"))
    for change in ({"block": (64, 128)}, {"recipe": cut}, {"causal": False}, {"scale": 0.12500001}):
        found = lp.attention.forward(*qkv, **{"causal": True, **change})
        assert differing(found.o, run["o"]) > 0 or differing(found.l, run["l"]) > 0


# Recipe paper against Fractions ----------------------------------------------------------------------------


def scored(scores, n: int, seed: int, sign: float = 1.0):
    """q, k, v on bf16's grid, d = 16: key j scores scores[j], in the second half of the rows with noise."""
    rng = np.random.default_rng(seed)
    q, k = np.zeros((n, 16)), rng.normal(size=(len(scores), 16)) * 0.3
    q[:, 0] = 4.0 * sign  # 1 / scale
    q[n // 2 :, 1:] = rng.normal(size=(n - n // 2, 15))
    k[:, 0] = scores
    v = rng.normal(-1.5, 1.0, k.shape)
    return [x.astype(np.float32).astype(BF16) for x in (q, k, v)]


def inputs(kind: str, n: int = 16):
    rng = np.random.default_rng(len(kind))
    spread = rng.uniform(0.25, 6.0, n)
    scores = {
        "normal": rng.normal(size=n) * 3,
        "ties": np.where(np.arange(n) % 3 == 0, 5.0, 5.0 - spread),
        "negative ties": np.where(np.arange(n) % 3 == 0, -2.0, -2.0 - spread),
        "zero ties": np.where(np.arange(n) % 3 == 0, 0.0, -spread),
        "near ties": 4.0 + rng.integers(0, 2, n) * 2.0**-5,
    }[kind]
    return scored(scores, n, n + len(kind))


KINDS = ("normal", "ties", "negative ties", "zero ties", "near ties")
DYNAMIC = recipes.with_switch("paper", maximum=recipes.dynamic(beta=2.0, tolerance=1e-3))


def agrees(qkv, recipe, keys: int, causal: bool) -> None:
    """o, m and l against the slow version, by value (a zero of o has no sign there)."""
    n = len(qkv[0])
    found = lp.attention.forward(*qkv, recipe=recipe, causal=causal, block=(n, keys))
    o, m, l = slow_attention.forward(*qkv, recipes.recipe(recipe), keys, causal)
    assert (found.m == m).all(), np.argwhere(found.m != m)[:5]
    assert (found.l == l).all(), np.argwhere(found.l != l)[:5]
    assert (found.o.astype(np.float64) == o).all(), np.argwhere(found.o.astype(np.float64) != o)[:5]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_paper_is_its_definition(kind, causal):
    agrees(inputs(kind), "paper", 8, causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_dynamic_maximum_is_its_definition(kind, causal):
    agrees(inputs(kind), DYNAMIC, 4, causal)


@pytest.mark.parametrize(("n", "keys"), [(16, 1), (16, 16), (32, 8)])
def test_paper_with_other_tiles(n, keys):
    agrees(inputs("ties", n), "paper", keys, True)


@pytest.mark.parametrize("site", recipes.SITES)
def test_each_site_of_paper(site):
    """Rounded otherwise, the site changes what the slow version computes alike."""
    for other in ("fp32", recipes.Site("bf16", "rtz"), None):
        recipe = recipes.with_site("paper", **{site: other})
        agrees(inputs("ties"), recipe, 8, True)


def test_switches_of_paper():
    agrees(inputs("ties"), recipes.with_switch("paper", l_from="rounded"), 8, False)
    agrees(inputs("ties"), recipes.with_switch("paper", maximum=recipes.dynamic(beta=3.3)), 8, False)
    loose = recipes.with_switch("paper", maximum=recipes.dynamic(tolerance=0.04))
    agrees(inputs("near ties"), loose, 8, False)


def test_dynamic_maximum_by_hand():
    """m of rows whose scores are known: beta r for positive ties, 0 for negative, r for a tie at zero or no tie."""
    for top, tied, wanted in ((3.0, 2, 6.0), (-3.0, 2, 0.0), (0.0, 2, 0.0), (3.0, 1, 3.0), (-3.0, 1, -3.0)):
        scores = np.full(8, top - 1.5)
        scores[:tied] = top
        q, k, v = scored(scores, 8, 1)
        q[:, 1:] = 0
        for name in ("paper", "triton"):
            recipe = recipes.with_switch(name, maximum=recipes.dynamic(beta=2.0, tolerance=1e-3))
            found = lp.attention.forward(q, k, v, recipe=recipe, block=(8, 8))
            unit = 1.0 if name == "paper" else math.log2(math.e)
            assert np.abs(found.m - wanted * unit).max() <= 2.0**-22 * abs(wanted * unit)


def test_masked_entries_are_no_ties():
    """Row 0 of causal attention sees one key: its maximum is never a tie, whatever the masked keys hold."""
    q, k, v = scored(np.full(8, 3.0), 8, 2)
    q[:, 1:] = 0
    found = lp.attention.forward(q, k, v, recipe=DYNAMIC, causal=True, block=(8, 8))
    assert found.m.tolist() == [3.0] + [6.0] * 7


# Recipe exact, and what no recipe may change ---------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_exact_is_softmax(causal):
    q, k, v = normal(2, 3, 24, 32, seed=1), normal(2, 3, 24, 32, seed=2), normal(2, 3, 24, 32, seed=3)
    found = lp.attention.forward(q, k, v, recipe="exact", causal=causal)
    wide = [x.astype(np.float64) for x in (q, k, v)]
    s = np.einsum("bhid,bhjd->bhij", *wide[:2]) / math.sqrt(32)
    if causal:
        s[..., np.triu(np.ones((24, 24), bool), 1)] = -np.inf
    p = np.exp(s)
    l = p.sum(-1)
    o = np.einsum("bhij,bhjd->bhid", p, wide[2]) / l[..., None]
    assert found.o.dtype == found.lse.dtype == np.float64
    assert found.base == math.e
    # float64: 24 + 32 terms of magnitude below 4 |o|, exponents below 8; 2^-53 each
    assert np.abs(found.o - o).max() < 128 * 2.0**-53 * np.abs(wide[2]).max()
    assert np.abs(found.lse - np.log(l)).max() < 128 * 2.0**-53 * np.abs(s[np.isfinite(s)]).max()
    assert np.allclose(np.exp(found.m) * found.l, l, rtol=1e-12, atol=0)


@pytest.mark.parametrize("recipe", ["triton", "paper", DYNAMIC])
def test_recipes_stay_near_exact(recipe):
    """A bound from the sites: each of few roundings moves o by half an ulp of 8 bits of the largest |v|."""
    q, k, v = normal(2, 64, 32, seed=4), normal(2, 64, 32, seed=5), normal(2, 64, 32, seed=6)
    found = lp.attention.forward(q, k, v, recipe=recipe, causal=True, block=(32, 32))
    exact = lp.attention.forward(q, k, v, recipe="exact", causal=True)
    scores = np.abs(np.einsum("bid,bjd->bij", q.astype(float), k.astype(float))).max() / math.sqrt(32)
    roundings = 2 if recipe == "triton" else 12 + 3 * scores  # S and S - m: half an ulp of the scores, in P
    largest = np.abs(v.astype(float)).max()
    assert np.abs(found.o.astype(float) - exact.o).max() < roundings * 2.0**-8 * largest
    log = found.lse.astype(float) * math.log(found.base)
    assert np.abs(log - exact.lse).max() < roundings * 2.0**-8
    if recipe == "triton":
        assert np.abs(log - exact.lse).max() < 1e-5 * np.abs(exact.lse).max()


def test_lse_of_paper_is_m_plus_log_l():
    found = lp.attention.forward(*inputs("normal"), recipe="paper", causal=True)
    exact = found.m.astype(float) + np.log(found.l.astype(float))
    assert (np.abs(found.lse - exact) <= np.spacing(np.abs(found.lse)) * (0.5 + 1e-6)).all()


def test_scale():
    q, k, v = normal(16, 16, seed=7), normal(16, 16, seed=8), normal(16, 16, seed=9)
    for recipe in ("paper", "exact", "triton"):
        same(lp.attention.forward(q, k, v, recipe=recipe), lp.attention.forward(q, k, v, recipe=recipe, scale=0.25))
        other = lp.attention.forward(q, k, v, recipe=recipe, scale=1)
        assert differing(other.o, lp.attention.forward(q, k, v, recipe=recipe).o)


# The paper's bias (arXiv 2510.04212, sections 3 and 4): statistics with a fixed seed ---------------------------

LIMIT = 6  # standard errors: a correct emulator fails once in 10^8 seeds, and these tests use one


def mean_error(recipe, ties: int, mass: float, v_mean: float = -2.5, residual_v: float = 1.0, seed: int = 1):
    """Mean of (o - exact) in bf16 ulps over many columns, and its standard error; `ties` keys share the maximum.

    The other keys hold `mass` of one tied key's weight together.
    """
    rng = np.random.default_rng(seed)
    n, batch = 16, 48
    scores = np.full((batch, n), 6.0 + math.log(mass / (n - ties))) + rng.uniform(-0.5, 0.5, (batch, n))
    scores[:, :ties] = 6.0
    scores[:, 0], scores[:, ties - 1 :: 5] = 6.0, scores[:, ties - 1 :: 5]
    q, k = np.zeros((batch, 8, 64), np.float32), np.zeros((batch, n, 64), np.float32)
    q[:, :, 0], k[:, :, 0] = 8.0, scores
    v = rng.normal(v_mean, 0.4, k.shape)
    v[:, ties:] *= residual_v
    qkv = [x.astype(np.float32).astype(BF16) for x in (q, k, v)]
    o = lp.attention.forward(*qkv, recipe=recipe).o[:, 0].astype(float)
    exact = lp.attention.forward(*qkv, recipe="exact").o[:, 0]
    errors = ((o - exact) / buildup.ulp(exact)).ravel()
    return errors.mean(), errors.std(ddof=1) / math.sqrt(errors.size)


@pytest.mark.parametrize("mass", [1e-4, 1e-3])
@pytest.mark.parametrize("sign", [-1, 1])
def test_paper_is_biased_towards_v_with_two_ties(sign, mass):
    mean, error = mean_error("paper", 2, mass, v_mean=2.5 * sign)
    assert sign * mean > LIMIT * error


def test_paper_has_no_such_bias_with_one_maximum():
    two, _ = mean_error("paper", 2, 1e-4)
    one, error = mean_error("paper", 1, 1e-4)
    assert abs(one) < abs(two) / 4
    assert abs(one) < LIMIT * error + 0.05


def test_dynamic_maximum_removes_it():
    plain, error = mean_error("paper", 2, 1e-4)
    fixed, _ = mean_error(DYNAMIC, 2, 1e-4)
    assert abs(plain) > LIMIT * error
    assert abs(fixed) < abs(plain) / 2


def test_triton_is_decided_by_the_other_keys_v():
    """Smaller V in the rest than in the tied keys pulls o towards zero, larger V away, equal V not at all."""
    smaller, equal, larger = (mean_error("triton", 2, 1e-4, residual_v=f) for f in (0.2, 1.0, 1.5))
    assert smaller[0] > LIMIT * smaller[1]
    assert larger[0] < -LIMIT * larger[1]
    assert abs(equal[0]) < min(smaller[0], -larger[0]) / 3

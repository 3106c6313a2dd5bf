"""Attention backward: an H200's recorded bits, recipes against slow and plain references, equations 1 and 2."""

import math
from fractions import Fraction

import numpy as np
import pytest

import lpsim as lp
import oracle
import slow_backward
from gradients import BF16, GRADIENTS, both, differing, normal, small
from lpsim import data, recipes
from lpsim.attention import reductions
from lpsim.formats import FORMATS

CASES = data.description("flash_backward")


def stored(number: int) -> dict:
    start = f"{number}_"
    return {key.removeprefix(start): x for key, x in data.arrays("flash_backward").items() if key.startswith(start)}


# An H200's bits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['case']}-{c['inputs']}-{c['dtype']}")
def test_recorded_backward(case):
    """As arrays of the format, as codes and as float32 with fmt=: 0 differing bits in dq, dk, dv and delta."""
    run, fmt = stored(case["case"]), case["dtype"]
    options = {"causal": case["causal"], "block": (case["block_m"], case["block_n"])}
    dtype = {"bf16": BF16, "fp16": np.float16}[fmt]
    codes = [run[name] for name in ("q", "k", "v", "o", "do")]
    as_values = [x.view(dtype) for x in codes]
    for given, extra in (
        (as_values, {}),
        (codes, {"fmt": fmt}),
        ([x.astype(np.float32) for x in as_values], {"fmt": fmt}),
    ):
        q, k, v, o, do = given
        found = lp.attention.backward(q, k, v, o, run["lse2"], do, **options, **extra)
        assert found.dq.dtype == found.dk.dtype == found.dv.dtype == q.dtype
        for name in GRADIENTS:
            x = getattr(found, name)
            if name != "delta" and x.dtype.itemsize == 4:
                x = x.astype(dtype)
            assert differing(x, run[name]) == 0, name


def test_the_recorded_runs_differ_from_a_wrong_recipe():
    """The comparison can fail: another query tile, dS cut instead of rounded, delta from P, change bits."""
    run = stored(0)
    arguments = [run[name] for name in ("q", "k", "v", "o", "lse2", "do")]
    for change in (
        {"block": (64, 32), "causal": False},
        {"recipe": recipes.with_site("triton", dS=recipes.Site("bf16", "rtz"))},
        {"recipe": recipes.with_site("triton", PdV=recipes.Site("bf16", "rtz"))},
        {"recipe": recipes.with_switch("triton", delta_from="P")},
        {"recipe": recipes.with_switch("triton", delta_from="PV")},
        {"scale": 0.12500001},
    ):
        found = lp.attention.backward(*arguments, fmt="bf16", **{"causal": True, **change})
        assert any(differing(getattr(found, name), run[name]) for name in GRADIENTS), change


def exact_fma(a, b, c) -> np.float32:
    value = oracle.number(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))
    return np.uint32(oracle.encode(value, FORMATS["fp32"])).view(np.float32)


@pytest.mark.parametrize(("width", "run"), [(16, 8), (64, 8), (128, 8), (64, 2), (24, 2)])
def test_products_are_summed_in_the_kernels_order(width, run):
    """The order in words: threads hold runs, second product first and rounded, then fma; then lanes apart."""
    rng = np.random.default_rng(width + run)
    a, b = (rng.normal(size=(3, width)).astype(np.float32) for _ in range(2))
    found = reductions.loaded(a, b) if run == 8 else reductions.accumulated(a, b)
    threads = width // 8 if run == 8 else 4
    for x, y, got in zip(a, b, found, strict=True):
        lanes = []
        for t in range(threads):
            mine = [j for j in range(width) if j // run % threads == t]
            total = exact_fma(x[mine[1]], y[mine[1]], 0)
            for j in [mine[0], *mine[2:]]:
                total = exact_fma(x[j], y[j], total)
            lanes.append(total)
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [lanes[i] + lanes[i + half] for i in range(half)]
        assert got.tobytes() == lanes[0].tobytes()


def test_query_rows_of_a_group_are_one_chain():
    """Two query heads on one key head are, for dk and dv, one head with twice the rows: the accumulator lives on."""
    q, do = normal(2, 64, 32, seed=1), normal(2, 64, 32, seed=2)
    k, v = normal(1, 64, 32, seed=3), normal(1, 64, 32, seed=4)
    forward, grouped = both((q, k, v), do, "triton", block=(32, 32))
    rows = lp.attention.backward(
        q.reshape(1, 128, 32), k, v, forward.o.reshape(1, 128, 32), forward.lse.reshape(1, 128),
        do.reshape(1, 128, 32), block=(32, 32),
    )  # fmt: skip
    assert differing(grouped.dk, rows.dk) == differing(grouped.dv, rows.dv) == 0
    assert differing(grouped.dq.reshape(1, 128, 32), rows.dq) == 0
    alone = [both((q[i : i + 1], k, v), do[i : i + 1], "triton", block=(32, 32))[1] for i in range(2)]
    assert differing(grouped.dq, np.concatenate([x.dq for x in alone])) == 0
    assert grouped.dk.shape == k.shape
    wide = [sum(getattr(x, name).astype(float) for x in alone) for name in ("dk", "dv")]
    for name, total in zip(("dk", "dv"), wide, strict=True):
        assert np.abs(getattr(grouped, name).astype(float) - total).max() <= 3 * 2.0**-8 * np.abs(total).max()


# Recipes paper, fa2 and naive against Fractions ------------------------------------------------------------


def agrees(recipe, block=(8, 4), causal=True) -> None:
    """Each gradient against the slow version, by value."""
    rules = recipes.with_site(recipe, dQ="fp32", dK="fp32", dV="fp32")
    qkv, do = small()
    forward, found = both(qkv, do, rules, block=block, causal=causal)
    slow = slow_backward.backward(*qkv, forward.kept, forward.lse, do, rules, block, causal)
    for name, wanted in zip(GRADIENTS, slow, strict=True):
        got = getattr(found, name)
        assert got.dtype == np.float32
        assert (got == wanted).all(), (name, np.argwhere(got != wanted)[:5])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("recipe", ["paper", "fa2"])
def test_nearest_is_its_definition(recipe, causal):
    agrees(recipe, causal=causal)


def test_naive_is_its_definition():
    agrees("naive", block=(16, 16))


@pytest.mark.parametrize("delta_from", ["O", "P", "PV"])
def test_where_delta_comes_from(delta_from):
    agrees(recipes.with_switch("paper", delta_from=delta_from))


@pytest.mark.parametrize("site", recipes.BACKWARD_SITES[:4])
def test_each_backward_site_of_paper(site):
    agrees(recipes.with_site("paper", **{site: recipes.Site("bf16", "rtz")}))


@pytest.mark.parametrize("site", recipes.BACKWARD_SITES)
def test_each_backward_site_of_triton_changes_bits(site):
    qkv, do = small()
    _, plain = both(qkv, do, "triton")
    _, other = both(qkv, do, recipes.with_site("triton", **{site: recipes.Site("e5m2", "rtz")}))
    assert any(differing(np.float32(getattr(plain, n)), np.float32(getattr(other, n))) for n in GRADIENTS)


# Recipe exact ------------------------------------------------------------------------------------------------


def wide(x) -> np.ndarray:
    return np.asarray(x).astype(np.float64)


def test_exact_is_the_jacobian_of_softmax():
    """dS = J dP with the matrix J = diag(p) - p p^T of each row written out; no delta anywhere."""
    q, k, v, do = (normal(24, 32, seed=s) for s in (1, 2, 3, 4))
    _, found = both((q, k, v), do, "exact", causal=True)
    q, k, v, do = (wide(x) for x in (q, k, v, do))
    s = q @ k.T / math.sqrt(32)
    p = np.where(np.tri(24, dtype=bool), np.exp(s), 0.0)
    p /= p.sum(1, keepdims=True)
    ds = np.stack([(np.diag(row) - np.outer(row, row)) @ (v @ g) for row, g in zip(p, do, strict=True)])
    wanted = {"dq": ds @ k / math.sqrt(32), "dk": ds.T @ q / math.sqrt(32), "dv": p.T @ do}
    for name, x in wanted.items():
        assert np.abs(getattr(found, name) - x).max() < 1000 * 2.0**-53 * np.abs(x).max(), name
    assert np.abs(found.delta - ((p @ v) * do).sum(1)).max() < 1000 * 2.0**-53 * np.abs(found.delta).max()


@pytest.mark.parametrize("delta_from", ["P", "PV"])
def test_every_delta_is_the_same_exactly(delta_from):
    qkv, do = small()
    _, plain = both(qkv, do, "exact", causal=True)
    _, other = both(qkv, do, recipes.with_switch("exact", delta_from=delta_from), causal=True)
    for name in GRADIENTS:
        a, b = getattr(plain, name), getattr(other, name)
        assert np.abs(a - b).max() < 1000 * 2.0**-53 * np.abs(b).max()


def test_equations_1_and_2_of_the_paper():
    """dQ_hp - dQ_lp = scale diag(delta_lp - delta_hp) P K, and its product with X, where only delta differs."""
    qkv, do = small()
    forward, hp = both(qkv, do, "exact", causal=True)
    o_lp = wide(lp.attention.forward(*qkv, recipe="paper", causal=True).o)
    low = lp.attention.backward(*qkv, o_lp, forward.lse, do, recipe="exact", causal=True)
    q, k, _ = (wide(x) for x in qkv)
    p = np.where(np.tri(16, dtype=bool), np.exp(q @ k.T / 4 - forward.lse[:, None]), 0.0)
    difference = low.delta - hp.delta
    assert np.abs(difference).max() > 1e-3
    wanted = 0.25 * difference[:, None] * (p @ k)
    bound = 1000 * 2.0**-53 * np.abs(wide(hp.dq)).max()
    assert np.abs((hp.dq - low.dq) - wanted).max() < bound
    x = np.random.default_rng(7).normal(size=(16, 24))
    by_token = sum(0.25 * difference[t] * np.outer((p @ k)[t], x[t]) for t in range(16))
    assert np.abs((hp.dq - low.dq).T @ x - by_token).max() < 16 * bound * np.abs(x).max()
    dk = 0.25 * p.T @ (difference[:, None] * q)
    assert np.abs((hp.dk - low.dk) - dk).max() < 1000 * 2.0**-53 * np.abs(hp.dk).max()
    assert (hp.dv == low.dv).all()


@pytest.mark.parametrize("recipe", ["triton", "paper", "fa2", "naive"])
def test_recipes_stay_near_exact(recipe):
    """Relative to the largest gradient, within a few bf16 roundings of the terms that were summed."""
    q, k, v, do = (normal(2, 64, 32, seed=s) for s in (4, 5, 6, 7))
    _, found = both((q, k, v), do, recipe, causal=True)
    forward, exact = both((q, k, v), do, "exact", causal=True)
    p = np.exp(wide(q) @ np.swapaxes(wide(k), 1, 2) / math.sqrt(32) - forward.lse[..., None])
    p = np.where(np.tri(64, dtype=bool), p, 0.0)
    dp = wide(do) @ np.swapaxes(wide(v), 1, 2)
    ds = p * (np.abs(dp) + np.abs(exact.delta)[..., None]) / math.sqrt(32)
    scores = np.abs(wide(q) @ np.swapaxes(wide(k), 1, 2)).max() / math.sqrt(32)
    roundings = (4 if recipe in ("triton", "fa2") else 12 + 3 * scores) * 2.0**-8
    bounds = {
        "dq": ds @ np.abs(wide(k)),
        "dk": np.swapaxes(ds, 1, 2) @ np.abs(wide(q)),
        "dv": np.swapaxes(p, 1, 2) @ np.abs(wide(do)),
    }
    for name, bound in bounds.items():
        error = np.abs(wide(getattr(found, name)) - getattr(exact, name))
        assert (error <= roundings * bound.max()).all(), (name, (error / bound.max()).max() / roundings)
        assert error.max() > 0

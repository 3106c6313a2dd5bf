"""Attention gives the same bits for any layout, batch, thread and process; NaN and infinity go where they should."""

import os
import threading

import numpy as np
import pytest

import lpsim as lp
from attention_data import differing, normal, same
from lpsim import threads

# The same bits for any layout, batch, thread, process -------------------------------------------------------


@pytest.mark.parametrize("recipe", ["triton", "paper", "exact"])
def test_batches_and_layouts(recipe):
    q, k, v = (normal(2, 3, 16, 16, seed=s) for s in (11, 12, 13))
    whole = lp.attention.forward(q, k, v, recipe=recipe, causal=True, block=(8, 8))
    assert whole.o.shape == (2, 3, 16, 16)
    assert whole.lse.shape == whole.m.shape == whole.l.shape == (2, 3, 16)
    for b in range(2):
        rows = lp.attention.forward(q[b], k[b], v[b], recipe=recipe, causal=True, block=(8, 8))
        assert differing(rows.o, whole.o[b]) == 0
        for h in range(3):
            one = lp.attention.forward(q[b, h], k[b, h], v[b, h], recipe=recipe, causal=True, block=(8, 8))
            assert one.o.shape == (16, 16)
            assert one.m.shape == (16,)
            for name in ("o", "m", "l", "lse"):
                assert differing(getattr(one, name), getattr(whole, name)[b, h]) == 0
    strided = [np.repeat(x, 2, axis=2)[:, :, ::2] for x in (q, k, v)]
    same(lp.attention.forward(*strided, recipe=recipe, causal=True, block=(8, 8)), whole)
    turned = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for x in (q, k, v)]
    same(lp.attention.forward(*turned, recipe=recipe, causal=True, block=(8, 8)), whole)
    swapped = [x.astype(np.float32).astype(">f4") for x in (q, k, v)]
    wide = lp.attention.forward(*swapped, recipe=recipe, causal=True, block=(8, 8), fmt="bf16")
    assert (wide.o.astype(float) == whole.o.astype(float)).all()
    codes = [x.view(np.uint16).astype(">u2") for x in (q, k, v)]
    coded = lp.attention.forward(*codes, recipe=recipe, causal=True, block=(8, 8), fmt="bf16")
    assert differing(coded.lse, whole.lse) == 0


def test_query_tiles_do_not_matter():
    q, k, v = (normal(32, 16, seed=s) for s in (14, 15, 16))
    for recipe in ("triton", "paper"):
        whole = lp.attention.forward(q, k, v, recipe=recipe, causal=True, block=(32, 8))
        for rows in (4, 8, 16):
            same(lp.attention.forward(q, k, v, recipe=recipe, causal=True, block=(rows, 8)), whole)


def work():
    q, k, v = (normal(4, 128, 64, seed=s) for s in (17, 18, 19))
    return [lp.attention.forward(q, k, v, recipe=r, causal=True) for r in ("triton", "paper")]


@pytest.fixture
def restore():
    before = threads.get_threads()
    yield
    threads.set_threads(before)


@pytest.mark.usefixtures("restore")
def test_one_and_two_threads():
    lp.set_threads(1)
    one = work()
    lp.set_threads(2)
    for a, b in zip(one, work(), strict=True):
        same(a, b)


@pytest.mark.usefixtures("restore")
def test_two_python_threads_at_once():
    lp.set_threads(2)
    wanted, found = work(), [[], []]
    callers = [threading.Thread(target=lambda i=i: found[i].extend(work())) for i in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(120)
    for results in found:
        assert len(results) == 2
        for a, b in zip(results, wanted, strict=True):
            same(a, b)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.usefixtures("restore")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_after_a_fork():
    lp.set_threads(2)
    wanted = work()  # the parent's pool is alive
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for a, b in zip(work(), wanted, strict=True):
                same(a, b)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Special values ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["triton", "paper", "exact"])
def test_nan_and_infinity_in_v(recipe):
    """They reach what meets them: a masked weight is zero, and zero times infinity is NaN as in the real kernel."""
    q, k, v = (normal(16, 16, seed=s) for s in (20, 21, 22))
    clean = lp.attention.forward(q, k, v, recipe=recipe, causal=True, block=(8, 8)).o.astype(float)
    v[11, 5], v[12, 6] = np.inf, np.nan
    o = lp.attention.forward(q, k, v, recipe=recipe, causal=True, block=(8, 8)).o.astype(float)
    first = 8 if recipe != "exact" else 0  # key tiles beyond the diagonal are not computed
    assert (o[11:, 5] == np.inf).all()
    assert np.isnan(o[first:11, 5]).all()
    assert np.isnan(o[first:, 6]).all()
    assert (np.delete(o, (5, 6), axis=1) == np.delete(clean, (5, 6), axis=1)).all()
    assert (o[:first] == clean[:first]).all()


@pytest.mark.parametrize("recipe", ["triton", "paper", "exact"])
def test_a_nan_in_k(recipe):
    """Rows that see the key are NaN, and no other."""
    q, k, v = (normal(16, 16, seed=s) for s in (20, 21, 22))
    clean = lp.attention.forward(q, k, v, recipe=recipe, causal=True, block=(8, 8)).o.astype(float)
    k[5, 0] = np.nan
    o = lp.attention.forward(q, k, v, recipe=recipe, causal=True, block=(8, 8)).o.astype(float)
    assert np.isnan(o[5:]).all()
    assert (o[:5] == clean[:5]).all()


def test_the_result_is_five_fields():
    q, k, v = (normal(16, 16, seed=s) for s in (21, 22, 23))
    o, m, l, lse, base = lp.attention.forward(q, k, v)
    assert (o.shape, m.shape, l.shape, lse.shape, base) == ((16, 16), (16,), (16,), (16,), 2.0)


def test_an_unknown_machine_is_refused_in_every_recipe():
    q = normal(16, 16)
    for recipe in ("triton", "paper", "exact"):
        with pytest.raises(ValueError, match=r"machine='h20' is not known. Did you mean 'h200'"):
            lp.attention.forward(q, q, q, recipe=recipe, machine="h20")

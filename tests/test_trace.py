"""Traces: every site of chosen elements, down to the bits, and the first place where two recipes part."""

import numpy as np
import pytest

import lpsim as lp
from gradients import differing, normal, small
from lpsim import recipes, trace
from lpsim.recipes import Site, with_site

FORWARD = {"triton": {"S", "m", "P", "l", "acc", "O"}, "paper": {"QK", *recipes.SITES}}


def traced(recipe, given=None, do=None, rows=(0, 5, 15), keys=(0, 3, 4, 15), features=(0, 7), **options):
    qkv, small_do = small()
    return lp.attention.trace(
        *(given or qkv),
        small_do if do is None else do,
        rows=rows,
        keys=keys,
        features=features,
        recipe=recipe,
        **options,
    )


@pytest.mark.parametrize("recipe", ["triton", "paper"])
def test_every_site_of_every_element_chosen(recipe):
    qkv, do = small(32, 32)
    found = traced(recipe, qkv, do, block=(16, 16))
    assert set(found.sites()) == FORWARD[recipe] | set(recipes.BACKWARD_SITES)
    for row in (0, 5, 15):
        assert found.at("delta", row).fmt is None
        for key in (0, 3, 4, 15):
            assert np.isfinite(found.at("S", row, key).after)
            assert 0.0 <= found.at("P", row, key).after <= 1.0
            found.at("dS", row, key)
        for feature in (0, 7):
            for site in ("acc", "O", "dQ"):
                found.at(site, row, feature=feature)
    for key in (0, 3, 4, 15):
        found.at("dK", -1, key, 7)
    assert found.at("l", 5, tile=0) != found.at("l", 5, tile=16)


@pytest.mark.parametrize("recipe", ["triton", "paper", "fa2"])
def test_what_is_traced_is_what_is_computed(recipe):
    qkv, do = small()
    forward = lp.attention.forward(*qkv, recipe=recipe, causal=True)
    back = lp.attention.backward(*qkv, forward.kept, forward.lse, do, recipe=recipe, causal=True)
    found = traced(recipe, causal=True)
    for row in (0, 5, 15):
        assert found.at("m", row).after == forward.m[row]
        assert found.at("l", row).after == forward.l[row]
        assert found.at("delta", row).after == back.delta[row]
        for feature in (0, 7):
            assert found.at("O", row, feature=feature).after == forward.o[row, feature]
            assert found.at("dQ", row, feature=feature).after == back.dq[row, feature]
            assert found.at("dV", -1, 4, feature).after == back.dv[4, feature]


def test_tracing_changes_no_bit_and_needs_none_of_the_rest():
    qkv, _ = small()
    plain = lp.attention.forward(*qkv)
    found = lp.attention.trace(*qkv, rows=[2], features=[1])
    assert found.sites() == ["m", "l", "acc", "O"]  # S and P have keys, and none was chosen
    assert found.at("O", 2, feature=1).after == plain.o[2, 1]
    assert len(found.entries) == 4
    assert differing(lp.attention.forward(*qkv).o, plain.o) == 0


def test_steps_down_to_the_bits():
    found = traced("paper")
    entry = found.at("P", 5, 4)
    text = str(found.explain("P", 5, 4))
    assert "bf16" in text
    assert found.explain("P", 5, 4).value == entry.after
    assert found.explain("P", 5, 4).error == pytest.approx(entry.after - entry.before, rel=1e-12)
    with pytest.raises(ValueError, match="delta rounds nothing"):
        found.explain("delta", 5)


def test_the_first_difference():
    """A recipe with P cut instead of rounded parts from the plain one at a P, from one with O in fp32 at O."""
    plain = traced("triton")
    assert trace.diff(plain, traced("triton")) is None
    cut = trace.diff(plain, traced(with_site("triton", P=Site("bf16", "rtz"))))
    assert cut is not None
    assert cut.where.site == "P"
    assert cut.a is not None
    assert cut.b is not None
    assert cut.a.before == cut.b.before
    assert cut.a.after != cut.b.after
    assert "P at row" in str(cut)
    wide = trace.diff(plain, traced(with_site("triton", O="fp32")))
    assert wide is not None
    assert wide.where.site == "O"
    tiles = trace.diff(traced("paper"), traced("paper", block=(16, 4)))
    assert tiles is not None
    assert tiles.where.site in ("m", "shift", "l")
    with pytest.raises(ValueError, match="other rows"):
        trace.diff(plain, traced("triton", rows=(0,)))


def test_signed_error_by_site():
    found = traced("paper", rows=range(16), keys=range(16), features=range(16))
    errors = found.signed_error()
    by_hand = [e.after - e.before for w, e in found.entries.items() if w.site == "PV"]
    assert errors["PV"] == pytest.approx(np.mean(by_hand), rel=1e-12)
    assert errors["delta"] == 0.0
    assert errors["PV"] != 0.0


def test_a_narrow_maximum_shows_what_rounding_took():
    """m at 8 bits: the trace holds it before and after, as at every other site."""
    found = traced(with_site("triton", m="bf16"), rows=range(16), keys=range(16))
    maxima = [entry for where, entry in found.entries.items() if where.site == "m"]
    assert all(float(lp.round(entry.before, "bf16")) == entry.after for entry in maxima)
    assert any(entry.before != entry.after for entry in maxima)
    assert found.signed_error()["m"] != 0.0


@pytest.mark.parametrize("rows", [(0,), (70, 71, 199), (5, 130), ()])
def test_a_trace_beside_the_loops_is_that_of_the_arrays(rows):
    """Results come from compiled loops, which show nothing, and sites from arrays of the chosen rows' tiles alone; a
    mask that hides nothing leaves everything to the arrays."""
    q, k, v, do = (normal(200, 32, seed=s) for s in (1, 2, 3, 4))
    options = {"rows": rows, "keys": (0, 3, 66, 150), "features": (0, 9), "causal": True, "block": (64, 32)}
    found = lp.attention.trace(q, k, v, do, **options)
    wanted = lp.attention.trace(q, k, v, do, mask=np.ones((200, 200), bool), **options)
    assert list(found.entries.items()) == list(wanted.entries.items())
    assert {"S", "P", "O", "delta", "dS", "dQ", "dK", "dV"} <= set(found.sites()) or not rows


def test_what_is_refused():
    qkv, _ = small()
    found = traced("triton")
    for error, words, call in (
        (ValueError, "Did you mean 'acc'", lambda: found.at("ac", 0)),
        (KeyError, "not in this trace", lambda: found.at("P", 1, 0)),
        (ValueError, "rows: 16 is not from 0 to 15", lambda: traced("triton", rows=[16])),
        (TypeError, "rows=3 must", lambda: traced("triton", rows=3)),
        (TypeError, "rows='12' must", lambda: traced("triton", rows="12")),
        (TypeError, "rows: 1.7 must be an int", lambda: traced("triton", rows=[1.7])),
        (TypeError, "features: True must be an int", lambda: traced("triton", features=[True])),
        (TypeError, "b=None must be a Trace", lambda: trace.diff(found, None)),  # pyright: ignore[reportArgumentType]
        (TypeError, "a=3 must be a Trace", lambda: trace.diff(3, found)),  # pyright: ignore[reportArgumentType]
        (ValueError, "keys: -1", lambda: traced("triton", keys=[-1])),
        (ValueError, "'exact' has no sites", lambda: traced("exact")),
        (ValueError, "one matrix", lambda: lp.attention.trace(*(x[None] for x in qkv), rows=[0])),
    ):
        with pytest.raises(error, match=words):
            call()


def test_long_sequences_keep_only_what_was_chosen():
    q, k, v = (normal(512, 16, seed=s) for s in (1, 2, 3))
    found = lp.attention.trace(q, k, v, rows=[511], keys=[0, 300], features=[3], causal=True)
    per_tile = 8  # tiles of 64 keys
    assert len(found.entries) == 2 * 2 + 3 * per_tile + 1

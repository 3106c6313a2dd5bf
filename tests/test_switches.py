"""Lazy rescaling, and what sites, switches and machines refuse."""

import math

import numpy as np
import pytest

import lpsim as lp
from gradients import both, normal, same, small
from lpsim import recipes
from lpsim import softmax_shift as maximum
from lpsim.recipes import Sham, dynamic, lazy, with_site, with_switch


def test_lazy_thresholds():
    assert maximum.safe_threshold("e4m3fn") == math.log2(448)
    assert 0.8073 < maximum.safe_threshold("e4m3fn", offset=8.0) < 0.8074
    assert maximum.largest_weight(lazy(2.0, 8.0)) == 1024.0
    for call in (lambda: lazy(-1.0), lambda: lazy(65.0), lambda: lazy(1.0, float("nan"))):
        with pytest.raises(ValueError, match="log2 units"):
            call()
    with pytest.raises(ValueError, match="has no offset"):
        with_switch("paper", maximum=lazy(1.0, 8.0))


def test_shams_and_lazy_maxima_are_checked_where_made():
    for error, words, call in (
        (TypeError, "threshold='a'", lambda: lazy("a")),  # pyright: ignore[reportArgumentType]
        (TypeError, "offset=True", lambda: lazy(1.0, True)),
        (TypeError, "seed='x' of Sham", lambda: Sham("x")),  # pyright: ignore[reportArgumentType]
        (TypeError, "seed=True", lambda: Sham(True)),
        (ValueError, "seed=-1 of Sham", lambda: Sham(-1)),
        (ValueError, "seed=.* below 2.64", lambda: Sham(1 << 64)),
        (ValueError, "stream=-2 of Sham", lambda: Sham(1, -2)),
    ):
        with pytest.raises(error, match=words):
            call()


def test_formats_too_wide_for_a_site_are_refused():
    """A machine's dot takes no float32, nearest arithmetic does; no site holds float64."""
    for name in ("P", "PdV", "dS"):
        with pytest.raises(ValueError, match=f"{name}='fp32'.*at most 11 significant bits.*paper"):
            with_site("triton", **{name: "fp32"})
        with_site("triton", **{name: "tf32"})
        with_site("paper", **{name: "fp32"})
    for base in ("triton", "paper"):
        with pytest.raises(ValueError, match=r"acc='fp64'.*allowed: fp32"):
            with_site(base, acc="fp64")


def test_a_machine_without_wgmma_is_named():
    with pytest.raises(lp.NotModelled, match=r"machine='a100' has no wgmma.*h200"):
        both(*small(), "triton", machine="a100")


def test_lazy_rescaling_changes_m_only_past_the_threshold():
    q, k, v = (normal(64, 16, seed=s) for s in (1, 2, 3))
    options = {"block": (64, 8)}
    plain = lp.attention.forward(q, k, v, **options)
    same(lp.attention.forward(q, k, v, recipe=with_switch("triton", maximum=lazy(0.0)), **options), plain)
    late = lp.attention.forward(q, k, v, recipe=with_switch("triton", maximum=lazy(4.0)), **options)
    assert ((late.m <= plain.m) & (plain.m - late.m <= 4.0)).all()
    assert (late.m < plain.m).any()
    assert np.abs(late.lse - plain.lse).max() < 1e-5
    shifted = lp.attention.forward(q, k, v, recipe=with_switch("triton", maximum=lazy(0.0, 8.0)), **options)
    assert np.abs(shifted.l / 256 - plain.l).max() < 1e-6 * plain.l.max()
    assert np.abs(shifted.o.astype(float) - plain.o.astype(float)).max() < 2.0**-7 * np.abs(plain.o.astype(float)).max()
    assert np.abs(shifted.lse - plain.lse).max() < 1e-6


def test_switches_that_are_refused():
    for words, call in (
        ("kept='fp23'", lambda: with_switch("paper", kept="fp23")),
        ("delta_from='Q'", lambda: with_switch("paper", delta_from="Q")),
        ("l_from=Sham", lambda: with_switch("triton", l_from=Sham(1))),
        ("delta_from=Sham", lambda: with_switch("triton", delta_from=Sham(1))),
        ("normalises once", lambda: with_switch("triton", normalise="before")),
        ("its key tile must hold all keys", lambda: lp.attention.forward(*small()[0], recipe="naive", block=(16, 8))),
        ("scope='column'", lambda: dynamic(scope="column")),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    assert recipes.with_switch("triton", kept=Sham(3)).name == "triton with kept=Sham(seed=3, stream=0)"

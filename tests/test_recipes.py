"""Recipes as rows: what a name stands for, interventions, and arguments of attention that are refused."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import lpsim as lp
from lpsim import recipes
from lpsim.recipes import SITES, Site

BF16 = ml_dtypes.bfloat16


def normal(*shape, dtype=BF16) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32).astype(dtype)


def forward(**changes):
    """Attention over 64 x 16 bf16 in recipe paper, with some arguments replaced."""
    arguments = {name: normal(64, 16) for name in "qkv"} | {"recipe": "paper"} | changes
    return lp.attention.forward(**arguments)


def refuses(error, call, *words: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    for word in words:
        assert word in str(caught.value), (word, str(caught.value))


# Rows ---------------------------------------------------------------------------------------------------


def test_paper_rounds_at_every_site_and_names_no_machine():
    paper = recipes.recipe("paper")
    assert {site: getattr(paper, site) for site in SITES} == dict.fromkeys(SITES, Site("bf16"))
    assert paper.arithmetic == "nearest"
    assert paper.block == (512, 512)
    assert (paper.l_from, paper.maximum) == ("exact", recipes.PLAIN)


def test_triton_rounds_only_p_and_o():
    triton = recipes.recipe("triton")
    assert [site for site in SITES if getattr(triton, site) is not None] == ["P", "O"]
    assert (triton.block, triton.base) == ((64, 64), 2.0)


def test_interventions_leave_the_rest_and_say_so():
    paper = recipes.recipe("paper")
    changed = recipes.with_site("paper", O="fp32", P=Site("bf16", "rtz"))
    assert changed == dataclasses.replace(paper, name=changed.name, O=Site("fp32"), P=Site("bf16", "rtz"))
    assert changed.name == "paper with O=fp32, P=bf16:rtz"
    assert recipes.recipe("paper") is paper
    switched = recipes.with_switch(changed, maximum=recipes.dynamic())
    assert switched.maximum == recipes.Maximum(2.0, 1e-3)
    assert switched.O == Site("fp32")
    assert recipes.recipe(switched) is switched


@pytest.mark.parametrize("site", SITES)
def test_each_site_of_paper_changes_bits(site):
    plain = forward(causal=True)
    other = forward(causal=True, recipe=recipes.with_site("paper", **{site: "e5m2"}))
    assert any((getattr(plain, name) != getattr(other, name)).any() for name in ("o", "l", "m"))


@pytest.mark.parametrize("site", ["S", "m", "P", "l", "acc", "O"])
def test_each_site_of_triton_changes_bits(site):
    options = {"causal": True, "block": (32, 32)}
    plain = forward(recipe="triton", **options)
    other = forward(recipe=recipes.with_site("triton", **{site: Site("bf16", "rtz")}), **options)
    assert any((getattr(plain, name) != getattr(other, name)).any() for name in ("o", "l", "m"))


def test_block_of_the_recipe_is_used():
    whole = forward(recipe=recipes.with_switch("paper", block=(64, 16)))
    assert (whole.l == forward(block=(64, 16)).l).all()
    assert (whole.l != forward(block=(64, 64)).l).any()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: recipes.recipe("papr"), ["recipe='papr'", "Did you mean 'paper'", "triton"]),
        (lambda: recipes.recipe(None), ["recipe=None", "exact"]),
        (lambda: recipes.with_site("paper", PVV="fp32"), ["site='PVV'", "acc"]),
        (lambda: recipes.with_site("papr", O="fp32"), ["papr", "paper"]),
        (lambda: recipes.with_site("triton", PV="fp32"), ["triton", "no site PV", "machine"]),
        (lambda: recipes.with_site("exact", O="bf16"), ["exact", "no site O"]),
        (lambda: recipes.with_site("paper", O="fp3"), ["O='fp3'", "fp32"]),
        (lambda: recipes.with_site("paper", O=Site("bf16", "rnee")), ["rounding='rnee'", "rne"]),
        (lambda: recipes.with_switch("paper", maxim=1), ["switch='maxim'", "Did you mean 'maximum'"]),
        (lambda: recipes.with_switch("paper", l_from="round"), ["l_from='round'", "rounded"]),
        (lambda: recipes.dynamic(beta=1.0), ["beta=1.0", "above 1"]),
        (lambda: recipes.dynamic(beta=float("nan")), ["beta=nan"]),
        (lambda: recipes.dynamic(tolerance=-1e-3), ["tolerance=-0.001"]),
        (lambda: recipes.dynamic(tolerance=1.0), ["tolerance=1.0"]),
    ],
)
def test_names_and_numbers_that_are_refused(call, words):
    refuses(ValueError, call, *words)


def test_a_maximum_is_a_row():
    refuses(TypeError, lambda: recipes.with_switch("paper", maximum="dynamic"), "maximum='dynamic'", "dynamic(")


# Arguments of a call -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "changes", "words"),
    [
        (ValueError, {"recipe": "tritn"}, ["recipe='tritn'", "triton"]),
        (ValueError, {"recipe": "triton", "machine": "h20"}, ["machine='h20'", "h200"]),
        (ValueError, {"fmt": "bf61"}, ["fmt='bf61'", "bf16"]),
        (TypeError, {"causal": 1}, ["causal=1", "True or False"]),
        (TypeError, {"causal": None}, ["causal=None"]),
        (TypeError, {"block": 32}, ["block=32", "two ints"]),
        (TypeError, {"block": (32, 32, 32)}, ["block", "two ints"]),
        (TypeError, {"block": (32.0, 32)}, ["block", "two ints"]),
        (ValueError, {"block": (0, 32)}, ["block=(0, 32)", "at least one"]),
        (ValueError, {"block": (64, 4), "recipe": "triton"}, ["triton", "multiple of 8", "4"]),
        (TypeError, {"scale": "x"}, ["scale='x'"]),
        (TypeError, {"scale": True}, ["scale=True"]),
        (TypeError, {"scale": np.ones(2)}, ["scale"]),
        (ValueError, {"scale": 0.0}, ["scale=0.0", "positive"]),
        (ValueError, {"scale": -1.0}, ["scale=-1.0"]),
        (ValueError, {"scale": float("nan")}, ["scale=nan"]),
        (ValueError, {"scale": float("inf")}, ["scale=inf"]),
    ],
)
def test_options_that_are_refused(error, changes, words):
    refuses(error, lambda: forward(**changes), *words)


@pytest.mark.parametrize("name", ["q", "k", "v"])
@pytest.mark.parametrize(
    ("error", "x", "words"),
    [
        (TypeError, normal(64, 16).astype(np.float32), ["float32", "fmt="]),
        (TypeError, normal(64, 16).astype(np.float64), ["float64", "fmt="]),
        (TypeError, normal(64, 16).view(np.uint16), ["uint16", "codes need fmt="]),
        (TypeError, np.zeros((64, 16), np.int64), ["int64", "floats"]),
        (TypeError, np.zeros((64, 16), complex), ["complex128"]),
        (TypeError, np.zeros((64, 16), object), ["object"]),
        (TypeError, np.zeros((64, 16), bool), ["bool"]),
        (TypeError, np.zeros((64, 16), "U1"), ["floats"]),
        (TypeError, np.ma.zeros((64, 16)), ["mask"]),
        (TypeError, None, ["object"]),
        (ValueError, normal(64, 16).astype(np.float16), ["fp16", "bf16", "agree"]),
    ],
)
def test_arrays_that_are_refused(name, error, x, words):
    refuses(error, lambda: forward(**{name: x}), *words)


def test_values_off_the_grid():
    x = normal(64, 16).astype(np.float32)
    off = x.copy()
    off[3, 5] = 1.001
    refuses(ValueError, lambda: forward(q=x, k=off, v=x, fmt="bf16"), "k[3, 5]", "1.001", "bf16", "lp.round")
    refuses(ValueError, lambda: forward(q=x, k=x, v=off.astype(np.float64), fmt="bf16"), "v[3, 5]", "bf16")
    refuses(ValueError, lambda: forward(q=x + 1e6, k=x, v=x, fmt="fp16"), "q[0, 0]", "fp16")
    refuses(TypeError, lambda: forward(q=np.zeros((64, 16), np.uint8), fmt="bf16"), "uint8", "uint16")


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (((16,), (64, 16), (64, 16)), ["(16,)", "(..., n, d)"]),
        (((64, 32), (64, 16), (64, 16)), ["(64, 32)", "agree"]),
        (((64, 16), (64, 16), (32, 16)), ["(32, 16)", "one shape"]),
        (((64, 16), (64, 16), (64, 32)), ["(64, 32)", "one shape"]),
        (((2, 64, 16), (64, 16), (64, 16)), ["leading"]),
        (((2, 64, 16), (3, 64, 16), (3, 64, 16)), ["leading"]),
        (((64, 24), (64, 24), (64, 24)), ["24", "multiple of 16"]),
        (((64, 272), (64, 272), (64, 272)), ["272", "256"]),
        (((0, 16), (64, 16), (64, 16)), ["empty"]),
        (((64, 16), (0, 16), (0, 16)), ["empty"]),
        (((0, 64, 16), (0, 64, 16), (0, 64, 16)), ["empty"]),
    ],
)
def test_shapes_that_are_refused(shapes, words):
    q, k, v = (normal(*shape) for shape in shapes)
    refuses(ValueError, lambda: forward(q=q, k=k, v=v), *words)


def test_causal_attention_is_square():
    refuses(ValueError, lambda: forward(q=normal(32, 16), causal=True), "(32, 16)", "(64, 16)", "as many keys")
    assert forward(q=normal(32, 16)).o.shape == (32, 16)


def test_formats_without_a_model():
    x = normal(64, 16).astype(ml_dtypes.float8_e4m3fn)
    refuses(lp.NotModelled, lambda: forward(q=x, k=x, v=x), "e4m3fn", "bf16, fp16")
    wide = normal(64, 16).astype(np.float32)
    refuses(lp.NotModelled, lambda: forward(q=wide, k=wide, v=wide, fmt="fp32"), "fp32")


def test_options_have_names():
    x = normal(64, 16)
    refuses(TypeError, lambda: lp.attention.forward(x, x, x, "paper"), "positional")
    refuses(TypeError, lambda: forward(recipy="paper"), "recipy")


def test_dtype_of_o():
    x = normal(64, 16)
    wide = x.astype(np.float32)
    assert forward().o.dtype == BF16
    assert forward(q=wide, k=wide, v=wide, fmt="bf16").o.dtype == np.float32
    codes = x.view(np.uint16)
    assert forward(q=codes, k=codes, v=codes, fmt="bf16").o.dtype == np.uint16
    for site in ("fp32", None):
        assert forward(recipe=recipes.with_site("paper", O=site)).o.dtype == np.float32
    half = x.astype(np.float16)
    assert forward(q=half, k=half, v=half, recipe="triton").o.dtype == np.float16
    for name in ("m", "l", "lse"):
        assert getattr(forward(), name).dtype == np.float32

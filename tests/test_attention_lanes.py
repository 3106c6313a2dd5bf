"""The quick loops of attention against the tile-by-tile body on arrays: every bit, forward and backward."""

import ml_dtypes
import numpy as np
import pytest

import lpsim as lp
from attention_data import BF16, FAMILIES, differing, family, normal
from lpsim import recipes, threads
from lpsim.attention import backward_machine, inputs, lanes, lanes_backward, lanes_forward, on_machine, sites, visible

ROUNDED_L = recipes.with_switch("triton", l_from="rounded")
WIDE_O = recipes.with_site("triton", O="fp32")
DYNAMIC = recipes.with_switch("triton", maximum=recipes.dynamic(beta=2.0, tolerance=1e-2))
GUARDED = recipes.with_switch("triton", maximum=recipes.dynamic(beta=4.0, tolerance=1e-2, guard=True))
EVERY = recipes.with_switch("triton", maximum=recipes.dynamic(beta=7.0, guard=True, scope="every"))
ACROSS = recipes.with_switch("triton", maximum=recipes.dynamic(beta=2.0, tolerance=0.5, guard=True, scope="row"))
LAZY = recipes.with_switch("triton", maximum=recipes.lazy(threshold=2.0, offset=1.0))
TRITON = recipes.recipe("triton")
REMEDIES = {
    "triton": TRITON, "rounded l": ROUNDED_L, "wide O": WIDE_O, "dynamic": DYNAMIC, "guarded": GUARDED,
    "across tiles": ACROSS, "every tile": EVERY, "lazy": LAZY,
}  # fmt: skip


def call_of(q, k, v, recipe=TRITON, causal: bool = True, block=None, scale=None, **options) -> inputs.Call:
    return inputs.prepare(q, k, v, recipe, causal, scale, block, None, visible.Options(**options))


def by_tiles(call, recipe, machine):
    """Forward on arrays of the whole call, tile by tile: the oracle."""
    state = on_machine.State(call, recipe, machine)
    for tile in visible.tiles(call):
        state.step(tile)
    return state.output()


def unequal(found, wanted) -> dict[str, int]:
    names = ("o", "m", "l", "lse") if len(wanted[0].shape) == 2 else ("dq", "dk", "dv", "delta")
    return {name: count for name, a, b in zip(names, found, wanted, strict=True) if (count := differing(a, b))}


def compared(qkvdo, recipe=TRITON, **options) -> None:
    """Forward and backward of both bodies, 0 differing bits."""
    q, k, v, do = qkvdo
    call = call_of(q, k, v, recipe, **options)
    assert lanes.covers(call, recipe, "h200")
    with np.errstate(all="ignore"):
        wanted = by_tiles(call, recipe, "h200")
        assert unequal(lanes_forward.forward(call, recipe, "h200"), wanted) == {}
        gradient = inputs.read_operand(inputs.read(do, "do", None)[1], call.fmt)
        shape = call.q.codes.shape
        o = np.asarray(sites.at(recipe.O, wanted[0], call.fmt)).reshape(shape)
        arguments = (call, recipe, "h200", o, wanted[3].reshape(shape[:2]), gradient)
        assert unequal(lanes_backward.backward(*arguments), backward_machine.backward(*arguments)) == {}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dtype", [BF16, np.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_kind_of_input(kind, dtype, causal):
    compared(family(kind, dtype, (2, 144, 32)), causal=causal)


@pytest.mark.parametrize("recipe", REMEDIES.values(), ids=REMEDIES)
@pytest.mark.parametrize("kind", ["normal", "ties", "sharp", "special"])
def test_every_remedy(kind, recipe):
    compared(family(kind, BF16, (1, 150, 16)), recipe)


@pytest.mark.parametrize("block", [(16, 16), (16, 32), (32, 128), (48, 32), (80, 16), (128, 64), (512, 512)])
@pytest.mark.parametrize("n", [600, 64, 17])
def test_tiles_and_lengths(n, block):
    """More rows than lanes, one tile, fewer rows than a block; tiles that divide neither each other nor the lengths."""
    compared(family("normal", BF16, (1, n, 16)), block=block)


@pytest.mark.parametrize(("rows", "keys"), [((1, 40, 32), (1, 333, 32)), ((2, 300, 16), (2, 9, 16))])
def test_more_keys_than_rows_and_fewer(rows, keys):
    compared(family("normal", BF16, rows, keys), causal=False)


@pytest.mark.parametrize("d", [16, 48, 128, 256])
def test_head_sizes(d):
    compared(family("normal", np.float16, (1, 70, d)))


@pytest.mark.parametrize("heads", [(4, 1), (6, 3)])
def test_grouped_heads(heads):
    of_queries, of_keys = heads
    compared(family("normal", BF16, (2, of_queries, 100, 16), (2, of_keys, 100, 16)))


def test_a_key_tile_of_eight():
    """Half a block of the dot with v: the forward pass takes it, the backward pass refuses it."""
    q, k, v, do = family("normal", BF16, (1, 100, 16))
    call = call_of(q, k, v, block=(64, 8))
    assert unequal(lanes_forward.forward(call, TRITON, "h200"), by_tiles(call, TRITON, "h200")) == {}
    found = lp.attention.forward(q, k, v, causal=True, block=(64, 8))
    with pytest.raises(ValueError, match="key tiles of a multiple of 16, got 8"):
        lp.attention.backward(q, k, v, found.o, found.lse, do, causal=True, block=(64, 8))


def test_scales_of_scores():
    for scale in (1e-30, 3.0, 1e30):
        compared(family("normal", BF16, (1, 80, 16)), scale=scale)


def test_a_row_whose_output_is_nan():
    """Keys that such a row does not see keep their gradients, in both bodies."""
    q, k, v, do = family("normal", BF16, (1, 192, 32))
    call = call_of(q, k, v)
    output, _, _, lse = by_tiles(call, TRITON, "h200")
    shape = call.q.codes.shape
    o = np.array(sites.at(TRITON.O, output, call.fmt)).reshape(shape)
    o[0, 9] = np.nan
    gradient = inputs.read_operand(inputs.read(do, "do", None)[1], call.fmt)
    arguments = (call, TRITON, "h200", o, lse.reshape(shape[:2]), gradient)
    with np.errstate(invalid="ignore"):
        found, wanted = lanes_backward.backward(*arguments), backward_machine.backward(*arguments)
    assert unequal(found, wanted) == {}
    assert np.isnan(found.dk[0, :10]).all()
    assert not np.isnan(found.dk[0, 10:]).any()


def test_bits_do_not_depend_on_threads():
    q, k, v, do = family("normal", BF16, (3, 300, 16))
    before, found = threads.get_threads(), []
    try:
        for count in (1, 3):
            threads.set_threads(count)
            forward = lp.attention.forward(q, k, v, causal=True)
            found.append((*forward[:4], *lp.attention.backward(q, k, v, forward.o, forward.lse, do, causal=True)))
    finally:
        threads.set_threads(before)
    for a, b in zip(*found, strict=True):
        assert differing(a, b) == 0


def test_the_comparison_can_fail():
    """Another tile, mask or scale, and l of other weights: each is seen."""
    q, k, v, _ = family("normal", BF16, (1, 150, 16))
    wanted = by_tiles(call_of(q, k, v), TRITON, "h200")
    for call in (call_of(q, k, v, block=(64, 32)), call_of(q, k, v, causal=False), call_of(q, k, v, scale=0.2500001)):
        assert unequal(lanes_forward.forward(call, TRITON, "h200"), wanted) != {}
    assert unequal(lanes_forward.forward(call_of(q, k, v), ROUNDED_L, "h200"), wanted).keys() == {"o", "l", "lse"}


@pytest.mark.parametrize(
    ("recipe", "options"),
    [
        ("paper", {}),
        (recipes.with_site("triton", S="bf16"), {}),
        (recipes.with_site("triton", P=recipes.Site("bf16", "rtz")), {}),
        (recipes.with_site("triton", dS="fp16"), {}),
        ("triton", {"window": 20}),
        ("triton", {"mask": np.ones((96, 96), bool)}),
        ("triton", {"bias": np.zeros((96, 96), np.float32)}),
    ],
)
def test_what_is_left_to_arrays(recipe, options):
    recipe = recipes.recipe(recipe)
    q = normal(1, 96, 16)
    assert not lanes.covers(call_of(q, q, q, recipe, **options), recipe, "h200")


def test_e4m3_is_left_to_arrays():
    q = normal(1, 96, 16, dtype=ml_dtypes.float8_e4m3fn)
    assert not lanes.covers(call_of(q, q, q), TRITON, "h200")


def test_a_watched_call_is_left_to_arrays():
    q = normal(96, 16)
    assert "P" in lp.attention.trace(q, q, q, rows=[3], keys=[1], causal=True).sites()

"""NaN and infinity in attention: as IEEE 754 has it, and pairs that are masked stay out of it.

P and dS of a masked pair are +0 whatever dP and delta are, so that a row whose o is NaN reaches the gradients of the
keys that it sees and of no others. What is left of tiles is 0 times a NaN or an infinity in a dot, which is NaN.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lpsim as lp
from gradients import GRADIENTS, differing, normal
from lpsim import recipes
from lpsim.attention import backward_machine, inputs, lanes, lanes_backward, visible

N, D = 72, 16
I, C = np.arange(N)[:, None], np.arange(N)[None, :]
MASK = np.random.default_rng(0).random((N, N)) < 0.6
BIAS = np.where(MASK, 0.5, -np.inf).astype(np.float32)
OPTIONS = {
    "full": ({}, I >= 0 * C),
    "causal": ({"causal": True}, I >= C),
    "window": ({"window": (20, 5)}, (C >= I - 20) & (C <= I + 5)),
    "mask": ({"mask": MASK}, MASK),
    "bias": ({"bias": BIAS}, MASK),
    "causal and mask": ({"causal": True, "mask": MASK}, (I >= C) & MASK),
}
POISON = (np.nan, np.inf, -np.inf)
BLOCKS = [(16, 16), (16, 64), (48, 32), (64, 64), (80, 16), (128, 128)]


def matrices(seed: int = 0) -> list[np.ndarray]:
    """q, k, v, do."""
    return [normal(N, D, seed=seed + i) for i in range(4)]


def is_nan(x: np.ndarray) -> np.ndarray:
    return np.isnan(np.asarray(x).astype(np.float64))


def expect(found: np.ndarray, rows: np.ndarray) -> None:
    """NaN or infinity in exactly these rows of found, and in all of such a row."""
    assert np.array_equal(~np.isfinite(found.astype(np.float64)), np.broadcast_to(rows[:, None], found.shape))


@pytest.mark.parametrize("recipe", ["triton", "paper", "fa2", "exact"])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_row_whose_output_is_nan_reaches_the_keys_it_sees_and_no_others(name, recipe):
    options, seen = OPTIONS[name]
    q, k, v, do = matrices()
    forward = lp.attention.forward(q, k, v, recipe=recipe, **options)
    o, rows = np.array(forward.kept), np.isin(np.arange(N), (9, 50))
    o[rows] = np.nan
    found = lp.attention.backward(q, k, v, o, forward.lse, do, recipe=recipe, **options)
    assert np.array_equal(is_nan(found.delta), rows)
    expect(found.dq, rows)
    expect(found.dk, seen[rows].any(0))
    expect(found.dv, np.zeros(N, bool))


@pytest.mark.parametrize("recipe", ["triton", "paper", "exact"])
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("value", POISON)
def test_delta_from_p_takes_dp_of_no_masked_pair(name, recipe, value):
    """A key's v at fault: delta of the rows that see it, for dP is then NaN or infinite."""
    options, seen = OPTIONS[name]
    q, k, v, do = matrices()
    rules = recipes.with_switch(recipe, delta_from="P")
    forward = lp.attention.forward(q, k, v, recipe=rules, **options)
    v[33, 3] = value
    found = lp.attention.backward(q, k, v, forward.kept, forward.lse, do, recipe=rules, **options)
    assert np.array_equal(~np.isfinite(found.delta), seen[:, 33])
    expect(found.dq, seen[:, 33])
    expect(found.dk, seen[seen[:, 33]].any(0))
    expect(found.dv, np.zeros(N, bool))


@given(
    st.sampled_from(sorted(OPTIONS)),
    st.sampled_from(["triton", "paper"]),
    st.lists(st.integers(0, N - 1), max_size=3),
    st.lists(st.tuples(st.integers(0, N - 1), st.sampled_from(POISON)), max_size=3),
    st.sampled_from(BLOCKS),
    st.integers(0, 5),
)
def test_no_tile_of_rows_changes_a_bit(name, recipe, rows, of_v, block, seed):
    """Rows of NaN, and a v that is not finite: the same o and lse give the same gradients with every tile of rows, and
    in machine arithmetic with every tile of keys."""
    options, _ = OPTIONS[name]
    q, k, v, do = matrices(seed)
    forward = lp.attention.forward(q, k, v, recipe=recipe, **options)
    o = np.array(forward.kept)
    o[rows] = np.nan
    for key, value in of_v:
        v[key, 7] = value
    found = [
        lp.attention.backward(q, k, v, o, forward.lse, do, recipe=recipe, block=tile, **options)
        for tile in (block if recipe == "triton" else (N, block[1]), (64, 64 if recipe == "triton" else block[1]))
    ]
    for gradient in GRADIENTS if recipe == "triton" else ("dq", "delta"):  # paper rounds dk and dv after each tile
        assert differing(getattr(found[0], gradient), getattr(found[1], gradient)) == 0, gradient


@given(
    st.booleans(),
    st.lists(
        st.tuples(st.sampled_from(["q", "k", "v", "do", "o"]), st.integers(0, N - 1), st.sampled_from(POISON)),
        max_size=4,
    ),
    st.sampled_from(BLOCKS),
    st.sampled_from(["O", "P", "PV"]),
)
def test_both_bodies_agree(causal, poison, block, delta_from):
    """The loops and the arrays, NaN and infinity in every operand: 0 differing bits."""
    recipe = recipes.with_switch("triton", delta_from=delta_from)
    q, k, v, do = matrices()
    forward = lp.attention.forward(q, k, v, causal=causal)
    given = {"q": q, "k": k, "v": v, "do": do, "o": np.array(forward.o).astype(np.float32)}
    for name, row, value in poison:
        given[name][row, 5 if name != "o" else slice(None)] = value
    call = inputs.prepare(q, k, v, recipe, causal, None, block, None, visible.Options())
    assert lanes.covers(call, recipe, "h200")
    gradient = inputs.read_operand(inputs.read(do, "do", None)[1], call.fmt)
    arguments = (call, recipe, "h200", given["o"][None], forward.lse[None], gradient)
    with np.errstate(all="ignore"):
        found, wanted = lanes_backward.backward(*arguments), backward_machine.backward(*arguments)
    for name, a, b in zip(GRADIENTS, found, wanted, strict=True):
        assert differing(a, b) == 0, name


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("watched", [False, True], ids=["loops", "arrays"])
def test_zero_times_nan_is_nan_where_tiles_meet(block, watched):
    """What docs/gpu-attention.md says of a NaN in an operand itself, causal: v to o, k to dq, q to dk and do to dv."""
    rows, keys = block
    meets = I // rows * rows + rows > C // keys * keys  # the tile of rows visits the tile of keys
    options = {"causal": True, "block": block} | ({"mask": np.ones((N, N), bool)} if watched else {})
    at = 41
    for name, result in (("v", "o"), ("k", "dq"), ("q", "dk"), ("do", "dv")):
        operands: dict[str, np.ndarray] = dict(zip(("q", "k", "v", "do"), matrices(), strict=True))
        operands[name][at, 5] = np.nan
        q, k, v, do = operands.values()
        forward = lp.attention.forward(q, k, v, **options)
        if name == "v":
            wanted = np.zeros((N, D), bool)
            wanted[meets[:, at], 5] = True
            assert np.array_equal(is_nan(forward.o), wanted)
            continue
        found = lp.attention.backward(q, k, v, forward.o, forward.lse, do, **options)
        reached = is_nan(getattr(found, result))[:, 5]
        assert np.array_equal(reached, meets[:, at] if name == "k" else meets[at]), name


def test_a_trace_shows_the_zero():
    """dS of a masked pair of a row whose delta is NaN, and of a pair beside it that is seen."""
    q, k, v, do = matrices()
    do[20, 3] = np.nan
    found = lp.attention.trace(q, k, v, do, rows=[20], keys=[19, 21], causal=True)
    assert np.isnan(found.at("delta", 20).after)
    assert np.isnan(found.at("dS", 20, 19).after)
    masked = found.at("dS", 20, 21)
    assert (masked.before, masked.after) == (0.0, 0.0)
    assert not np.signbit([masked.before, masked.after]).any()

"""Trees of sums from their outputs: random trees, loops, the emulated tl.sum, and what an H200 gave."""

import itertools
import random

import numpy as np
import pytest

import lpsim as lp
from lpsim import data, layouts, tile_sums
from lpsim.probe import find_tree, report, trees


def random_tree(leaves: list[int], rng: random.Random, most: int) -> trees.Tree:
    """Parts of any sizes; up to `most` of them at once."""
    if len(leaves) == 1:
        return leaves[0]
    parts = rng.randint(2, min(most, len(leaves)))
    cuts = [0, *sorted(rng.sample(range(1, len(leaves)), parts - 1)), len(leaves)]
    return tuple(random_tree(leaves[i:j], rng, most) for i, j in itertools.pairwise(cuts))


def reduction(tree: trees.Tree, dtype):
    """A sum in that order; the parts of a node are added exactly, then rounded once to dtype."""

    def reduce(x: np.ndarray) -> np.ndarray:
        def joined(parts):
            with np.errstate(all="ignore"):
                large = sum(part.astype(np.float64) * (np.abs(part) >= 2.0**14) for part in parts)
                small = sum(part.astype(np.float64) * (np.abs(part) < 2.0**14) for part in parts)
                return np.where(large != 0, large, small if len(parts) == 2 else small * lossless(parts)).astype(dtype)

        def lossless(parts):
            """A fused node aligns to its largest part: small ones beside a large one are lost, even if it cancels."""
            return np.all([np.abs(part) < 2.0**14 for part in parts], axis=0)

        return trees.fold(tree, lambda i: x[:, i].astype(dtype), joined).astype(np.float64)

    return reduce


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("fmt", "dtype"), [("fp32", np.float32), ("fp16", np.float16), ("fp64", np.float64)])
def test_random_trees_are_found(seed, fmt, dtype):
    rng = random.Random(seed)
    n, most = rng.randint(1, 60), rng.choice([2, 2, 5])
    leaves = list(range(n))
    rng.shuffle(leaves)
    tree = trees.ordered(random_tree(leaves, rng, most))
    assert find_tree(reduction(tree, dtype), n, fmt) == tree


def test_loops_are_what_they_say():
    def forwards(x):
        total = x[:, 0].astype(np.float32)
        for column in x.T[1:]:
            total = total + column.astype(np.float32)
        return total

    assert find_tree(forwards, 5) == ((((0, 1), 2), 3), 4)
    assert find_tree(lambda x: forwards(x[:, ::-1]), 5) == (0, (1, (2, (3, 4))))
    assert trees.spelt(find_tree(forwards, 5)) == "((((0 + 1) + 2) + 3) + 4)"
    assert len(trees.spelt(find_tree(lambda x: forwards(x[:, ::-1]), 512), 50)) <= 53


@pytest.mark.parametrize(("n", "warps", "alignment", "places"), [(64, 1, 16, "rlllll"), (256, 4, 4, "lllllwwr")])
def test_emulated_sums_have_the_tree_of_their_layout(n, warps, alignment, places):
    def reduce(x):
        return lp.machine("h200").sum(x.astype(np.float32), num_warps=warps, alignment=alignment)

    tree = find_tree(reduce, n)
    assert layouts.places(layouts.layout_of((n,), 4, warps, alignment=alignment), (n,), 0) == places
    assert tree == trees.tree_of(places)
    assert (places, "sequential") in list(trees.layouts_of(tree, n))
    x = np.random.default_rng(0).normal(size=(n, 50)).astype(np.float32)
    assert np.array_equal(trees.evaluate(tree, x), reduce(x.T))


def test_in_thread_trees_are_told_from_sequences():
    tree = trees.tree_of("rrlw", "tree")
    assert tree != trees.tree_of("rrlw", "sequential")
    assert trees.tree_of("rr", "tree") == ((0, 1), (2, 3))
    assert trees.tree_of("rr", "tree", "fp16") == ((0, 2), (1, 3))  # pairs are added two at a time
    assert ("rrlw", "tree") in list(trees.layouts_of(tree, 16))


def test_refusals():
    with pytest.raises(ValueError, match="n=300 must be from 1 to 256"):
        find_tree(lambda x: x.sum(-1), 300, "bf16")
    with pytest.raises(ValueError, match="fmt='fp8'"):
        find_tree(lambda x: x.sum(-1), 4, "fp8")
    with pytest.raises(ValueError, match="no order of additions"):
        find_tree(lambda x: x[:, 0] + x[:, 1] + 0.5, 4)  # not a sum
    with pytest.raises(ValueError, match="no order of additions"):
        find_tree(lambda x: np.abs(x).max(-1), 8)
    assert list(trees.layouts_of(((0, 1), 2), 3)) == []


def test_on_an_h200_sums_have_the_layouts_that_the_emulator_gives_them():
    recorded = data.description("probe")["sums"]
    assert [report.SumCase(row["fmt"], row["n"], row["num_warps"], row["aligned"]) for row in recorded] == [
        *report.SUMS
    ]
    for row in recorded:
        size = tile_sums.dtype_of(row["fmt"]).itemsize
        alignment = 16 if row["aligned"] else size
        layout = layouts.layout_of((row["n"],), size, row["num_warps"], alignment=alignment)
        places = layouts.places(layout, (row["n"],), 0)
        assert [places, "sequential"] in row["layouts"]
        assert trees.spelt(trees.tree_of(places, "sequential", row["fmt"]), 10**6) == row["tree"]

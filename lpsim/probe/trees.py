"""The order in which a reduction adds, from its outputs: a tree whose leaves are the numbers of the elements.

A large M at i, -M at j and a small u everywhere else: a u that is added while M or -M is there is lost, so the sum is
u times the number of elements outside the smallest subtree that holds both i and j. These numbers are the tree.
Source: FPRev (Xie and others, USENIX ATC 2025). A tree is an int or a tuple of trees; the parts of a
tuple are added at once if there are more than two. Addition commutes, so parts stand by their smallest leaf.
"""

import functools
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from .. import warp_sums
from ..errors import choose
from ..layouts import log2

#: format -> (M, u, the longest sum: its counts are exact, and a chain of so many tuples can be walked)
MASKS = {
    "fp64": (2.0**200, 1.0, 512),
    "fp32": (2.0**100, 1.0, 512),
    "fp16": (2.0**15, 2.0**-10, 512),
    "bf16": (2.0**100, 1.0, 256),
}
Tree = int | tuple
Reduce = Callable[[np.ndarray], np.ndarray]


def find_tree(reduce: Reduce, n: int, fmt: str = "fp32") -> Tree:
    """The tree of a sum of n elements. reduce: values (T, n), float64 on the grid of fmt, to their sums (T,).

    ValueError for an n above 512 (bf16: 256, what it can count), or if the answers fit no tree.
    """
    large, small, longest = choose("fmt", fmt, MASKS)
    if not 1 <= n <= longest:
        raise ValueError(f"n={n} must be from 1 to {longest} for {fmt}.")

    def sizes(i: int, others: list[int]) -> np.ndarray:
        """Leaves of the smallest subtree with i and each of the others."""
        x = np.full((len(others), n), small)
        x[:, i] = large
        x[np.arange(len(others)), others] = -large
        outside = np.asarray(reduce(x), np.float64) / small
        if not np.isin(outside, np.arange(n - 1)).all():
            raise ValueError(f"masks at {i} and {others} left {outside.tolist()}: no order of additions does that.")
        return n - outside.astype(int)

    def below(leaves: list[int], whole: int) -> list[Tree]:
        """The parts that the leaves make under a node of `whole` leaves (more than theirs, if others are there too)."""
        first, others = leaves[0], leaves[1:]
        found = sizes(first, others) if others else np.empty(0, int)
        tree, count = first, 1
        for size in sorted(set(found[found < whole].tolist())):
            group = [leaf for leaf, s in zip(others, found, strict=True) if s == size]
            count += len(group)
            if count != size:
                raise ValueError(f"{count} leaves are joined to {size}: no order of additions does that.")
            tree = (tree, *below(group, size))
        apart = [leaf for leaf, s in zip(others, found, strict=True) if s >= whole]
        return [tree, *(below(apart, whole) if apart else [])]

    (tree,) = below(list(range(n)), n + 1)
    return ordered(tree)


def tree_of(places: str, in_thread: str = "sequential", fmt: str = "fp32") -> Tree:
    """The tree of `warp_sums.total` for these places, found as any other."""

    def reduce(x: np.ndarray) -> np.ndarray:
        return warp_sums.total(x.astype(np.float64 if fmt == "fp64" else np.float32), places, fmt, in_thread)

    return find_tree(reduce, 1 << len(places), fmt)


def fold(tree: Tree, leaf: Callable, join: Callable):
    """leaf(number) for the leaves, join(list of its parts' results) for the nodes, from the leaves up."""
    done: list = []
    pending: list[tuple[Tree, bool]] = [(tree, False)]
    while pending:
        node, visited = pending.pop()
        if isinstance(node, int):
            done.append(leaf(node))
        elif visited:
            parts = done[-len(node) :]
            del done[-len(node) :]
            done.append(join(parts))
        else:
            pending += [(node, True), *((part, False) for part in reversed(node))]
    return done[0]


def ordered(tree: Tree) -> Tree:
    """The parts of every node by their smallest leaf, which then is the first."""
    least = fold(tree, lambda i: (i, i), lambda parts: (min(p[0] for p in parts), tuple(p[1] for p in sorted(parts))))
    return least[1]


def evaluate(tree: Tree, x: np.ndarray, add: Callable = np.add):
    """The sum of x (n, ...) in a tree's order, the parts of a node from the left."""
    return fold(tree, lambda i: x[i], lambda parts: functools.reduce(add, parts))


def layouts_of(tree: Tree, n: int, fmt: str = "fp32") -> Iterator[tuple[str, str]]:
    """(places, in_thread) of every blocked row of n elements that is added so; see `layouts.places`.

    Rows are first compared by a sum, then by their trees.
    """
    if n & (n - 1):
        return
    bits, seen = log2(n), set()
    x = np.random.default_rng(0).normal(size=(n, 16)).astype(np.float32)
    add = warp_sums.adder(fmt)
    wanted = evaluate(tree, x, add)
    for run, lanes, warps in product(range(bits + 1), range(min(bits, 5) + 1), range(min(bits, 5) + 1)):
        if run + lanes + warps <= bits:
            places = ("r" * run + "l" * lanes + "w" * warps).ljust(bits, "r")
            for in_thread in warp_sums.IN_THREAD:
                same = np.array_equal(warp_sums.total(x.T, places, fmt, in_thread), wanted)
                if places not in seen and same and tree_of(places, in_thread, fmt) == tree:
                    seen.add(places)
                    yield places, in_thread


def spelt(tree: Tree, limit: int = 200) -> str:
    """The tree as sums in brackets, x's number alone for a leaf; cut after `limit` characters."""
    text = fold(tree, str, lambda parts: "(" + " + ".join(parts) + ")")
    return text if len(text) <= limit else text[:limit] + " .."

"""All results that a sum can have, over all orders of addition: what "not reproducible" may mean for these numbers."""

from itertools import combinations
from typing import Unpack

import numpy as np

from . import border
from .arrays import add
from .arrays import round as round_values
from .errors import choose
from .policies import Rules, Stochastic
from .target import code_format

MOST = {"sequences": 16, "trees": 10}  # numbers for which the sets of subsets stay small


def reachable_sums(x, fmt, *, orders="trees", **rules: Unpack[Rules]) -> np.ndarray:
    """The distinct values of the sum of x over all orders, ascending, -0 before +0, NaN last.

    x: floats, one-dimensional, at most 10 of them ("trees") or 16 ("sequences"). orders: "trees" takes any
    bracketing of any permutation; "sequences" adds one element after the other to one accumulator, in any
    permutation, as atomic additions arrive. Elements are exact, each addition is rounded once to fmt by the rules.
    Result: float32 or float64 (k,). Raises as lp.add does, ValueError for more numbers or stochastic rounding.
    """
    most = choose("orders", orders, MOST)
    if isinstance(rules.get("rounding"), Stochastic):
        raise ValueError("a stochastic sum has no fixed set of results: choose a deterministic rounding.")
    array = border.values(x, "x").array
    if array.ndim != 1 or not 1 <= array.size <= most:
        raise ValueError(f"x has shape {array.shape}; orders={orders!r} takes one dimension with 1 to {most} numbers.")
    leaves = array.astype(np.float64)
    n = leaves.size
    if n == 1:
        return round_values(leaves, fmt, **rules)
    sums = {1 << i: leaves[i : i + 1] for i in range(n)}  # subset, as bits -> its reachable sums
    for size in range(2, n + 1):
        for chosen in combinations(range(n), size):
            whole = 0
            for i in chosen:
                whole |= 1 << i
            found = [
                np.asarray(add(sums[whole ^ part][:, None], sums[part], fmt, **rules), np.float64).reshape(-1)
                for part in _parts(whole, chosen, orders)
            ]
            sums[whole] = _distinct(np.concatenate(found))
    return sums[(1 << n) - 1].astype(border.value_dtype(code_format(fmt)))


def _parts(whole: int, chosen: tuple, orders: str) -> list[int]:
    """One side of every way to split a subset in two: single elements, or every part that holds the first element."""
    if orders == "sequences":
        return [1 << i for i in chosen]
    first, rest = 1 << chosen[0], whole ^ (1 << chosen[0])
    parts, part = [], rest
    while part:  # all subsets of the rest but the whole of it
        part = (part - 1) & rest
        parts.append(first | part)
    return parts


def _distinct(values: np.ndarray) -> np.ndarray:
    """Sorted, each value once, the zeros apart, one NaN."""
    values = np.where(np.isnan(values), np.nan, values)
    distinct = np.unique(values.view(np.int64)).view(np.float64)
    return distinct[np.lexsort((~np.signbit(distinct), distinct))]

"""Orders of summation, as rows: which partial sums a kernel keeps and how it joins them.

A SumOrder describes a reduction along one axis of n float32: thread t of `threads` holds runs of `run`
consecutive elements, runs dealt round to the threads; each thread adds its elements in ascending order, then lanes
`threads/2, .., 2, 1` apart are added (butterfly, so operands may be swapped: the sum is the same).
"""

from typing import NamedTuple

import numpy as np

from ._jit import njit
from .errors import choose


class SumOrder(NamedTuple):
    """Plain integers, so that Numba takes it as it is."""

    run: int  #: consecutive elements of a thread
    threads: int  #: lanes that share the axis, a power of two


#: name -> row. Source: Triton 3.6 lowering of tl.sum for sm_90 (in-thread sequential, shuffles descending).
ORDERS: dict[str, SumOrder] = {
    "wgmma": SumOrder(run=2, threads=4),  # a row of a tensor-core accumulator: attention's row sum
    "sequential": SumOrder(run=1, threads=1),
}


@njit
def _sum(x, order, lanes):
    """One row; lanes: scratch float32 (threads,)."""
    step = order.run * order.threads
    for t in range(order.threads):
        first = t * order.run
        total = x[first]
        for j in range(first + 1, first + order.run):
            total += x[j]
        for block in range(first + step, x.size, step):
            for j in range(block, block + order.run):
                total += x[j]
        lanes[t] = total
    width = order.threads
    while width > 1:
        width //= 2
        for t in range(width):
            lanes[t] = lanes[t] + lanes[t + width]
    return lanes[0]


@njit
def _sum_rows(x, order, out):
    lanes = np.empty(order.threads, np.float32)
    for i in range(out.size):
        out[i] = _sum(x[i], order, lanes)


def row_sum(x: np.ndarray, order) -> np.ndarray:
    """float32 sums over the last axis in an order (a name or a SumOrder). ValueError unless it divides into runs."""
    row = order if isinstance(order, SumOrder) else choose("order", order, ORDERS)
    if row.run < 1 or row.threads < 1 or row.threads & (row.threads - 1):
        raise ValueError(f"{row} is not an order: run >= 1, threads a power of two.")
    if x.ndim == 0 or x.shape[-1] == 0 or x.shape[-1] % (row.run * row.threads):
        raise ValueError(f"x of shape {x.shape} does not divide into {row.threads} threads of runs of {row.run}.")
    flat = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
    out = np.empty(len(flat), np.float32)
    _sum_rows(flat, row, out)
    return out.reshape(x.shape[:-1])[()]

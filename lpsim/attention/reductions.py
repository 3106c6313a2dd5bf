"""Sums of products of a row, in a kernel's order: `tl.sum(a * b, 1)`, whose multiplications are contracted."""

import numpy as np

from .._jit import njit
from ..core.exactsum import dot_f32
from ..core.intrinsics import fma_f32
from ..orders import SumOrder
from ..threads import parallel_for

WGMMA = SumOrder(run=2, threads=4)  # a row of a tensor-core accumulator
GRAIN = 1024  # rows that one piece of work has
LOADED = 8  # 16-bit features that a thread loads at once


@njit
def _products(a, b, order, lanes):
    """One row. A thread multiplies its second element first: x = RN(a1 b1), fma(a0, b0, x), fma(a2, b2, x), ..."""
    step = order.run * order.threads
    for t in range(order.threads):
        first = t * order.run
        x = np.float32(a[first + 1] * b[first + 1])
        x = fma_f32(a[first], b[first], x)
        for j in range(first + 2, first + order.run):
            x = fma_f32(a[j], b[j], x)
        for block in range(first + step, a.size, step):
            for j in range(block, block + order.run):
                x = fma_f32(a[j], b[j], x)
        lanes[t] = x
    width = order.threads
    while width > 1:
        width //= 2
        for t in range(width):
            lanes[t] = np.float32(lanes[t] + lanes[t + width])
    return lanes[0]


@njit
def _product_rows(a, b, order, out):
    lanes = np.empty(order.threads, np.float32)
    for i in range(out.size):
        out[i] = _products(a[i], b[i], order, lanes)


@njit
def _exact_rows(a, b, out):
    for i in range(out.size):
        out[i] = dot_f32(a[i], b[i])


def _flat(x: np.ndarray, width: int) -> np.ndarray:
    """float32 (rows, width): zeros behind the last element."""
    short = width - x.shape[-1]
    padded = np.pad(x, (*((0, 0) for _ in x.shape[:-1]), (0, short))) if short else x
    return np.ascontiguousarray(padded).reshape(-1, width)


def _rows_of_products(a: np.ndarray, b: np.ndarray, order: SumOrder) -> np.ndarray:
    out = np.empty(len(a), np.float32)
    parallel_for(lambda start, stop: _product_rows(a[start:stop], b[start:stop], order, out[start:stop]), len(a), GRAIN)
    return out


def loaded(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """sum(a * b) over features, each thread holding 8 consecutive ones; float32 (..., d) to (...,).

    Source: Triton 3.6 for sm_90, blocked layout of a 16-bit load; hardware recordings of delta.
    """
    d = a.shape[-1]
    width = max(16, 1 << (d - 1).bit_length())
    order = SumOrder(LOADED, width // LOADED)
    return _rows_of_products(_flat(a, width), _flat(b, width), order).reshape(a.shape[:-1])


def accumulated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """sum(a * b) over a row of an accumulator tile, in the order of its registers; float32 (..., n) to (...,)."""
    width = -(-a.shape[-1] // 8) * 8
    return _rows_of_products(_flat(a, width), _flat(b, width), WGMMA).reshape(a.shape[:-1])


def nearest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The float32 nearest to the exact sum(a * b) of each row; float32 (..., n) to (...,)."""
    out = np.empty(a.size // a.shape[-1], np.float32)
    _exact_rows(_flat(a, a.shape[-1]), _flat(b, b.shape[-1]), out)
    return out.reshape(a.shape[:-1])

"""The MUFU functions over arrays: out[i] = f(x[i]); x, out float32 (n,), contiguous; out may be x itself
(the same bits, but the last pass then stays scalar).

In blocks that stay in the first-level cache, three passes: make table indices (vectorised), fetch entries
(scalar: a gather costs more), compute (vectorised). Twice as fast as a loop over the scalar functions.
"""

import numpy as np

from .._jit import njit
from .intrinsics import wide_vectors
from .special_lanes import (
    EX2,
    RCP,
    RSQRT,
    SQRT,
    ex2_fixed,
    ex2_index,
    ex2_value,
    rcp_index,
    rcp_value,
    root_index,
    rsqrt_value,
    sqrt_value,
)

BLOCK = 1024
u64 = np.uint64
ONE, TWO = u64(1), u64(2)  # unsigned indices: a signed one brings a test for negative indices into the loop


@njit
def _fetch(table, index, entries, n):
    """entries[i] = table[index[i]] for i < n."""
    for i in range(u64(n)):
        entries[i] = table[u64(index[i])]


@njit
def ex2_array(x, out):
    """out[i] = ex2_f32(x[i])."""
    wide_vectors()
    fixed, index = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.uint16)
    entries = np.empty(BLOCK, np.uint64)
    halves = entries.view(np.uint32)  # little-endian: c0', then c1 and c2
    for start in range(0, x.size, BLOCK):
        base, n = u64(start), u64(min(BLOCK, x.size - start))
        for i in range(n):
            fixed[i] = ex2_fixed(x[base + i])
            index[i] = ex2_index(fixed[i])
        _fetch(EX2, index, entries, n)
        for i in range(n):
            out[base + i] = ex2_value(x[base + i], fixed[i], halves[TWO * i], halves[TWO * i + ONE])


@njit
def rcp_array(x, out):
    """out[i] = rcp_f32(x[i])."""
    index, entries = np.empty(BLOCK, np.uint16), np.empty(BLOCK, np.uint64)
    halves = entries.view(np.uint32)
    for start in range(0, x.size, BLOCK):
        base, n = u64(start), u64(min(BLOCK, x.size - start))
        for i in range(n):
            index[i] = rcp_index(x[base + i])
        _fetch(RCP, index, entries, n)
        for i in range(n):
            out[base + i] = rcp_value(x[base + i], halves[TWO * i], halves[TWO * i + ONE])


@njit
def rsqrt_array(x, out):
    """out[i] = rsqrt_f32(x[i])."""
    index, entries = np.empty(BLOCK, np.uint16), np.empty(BLOCK, np.uint64)
    halves = entries.view(np.uint32)
    for start in range(0, x.size, BLOCK):
        base, n = u64(start), u64(min(BLOCK, x.size - start))
        for i in range(n):
            index[i] = root_index(x[base + i])
        _fetch(RSQRT, index, entries, n)
        for i in range(n):
            out[base + i] = rsqrt_value(x[base + i], halves[TWO * i], halves[TWO * i + ONE])


@njit
def sqrt_array(x, out):
    """out[i] = sqrt_f32(x[i])."""
    index, entries = np.empty(BLOCK, np.uint16), np.empty(BLOCK, np.uint64)
    halves = entries.view(np.uint32)
    for start in range(0, x.size, BLOCK):
        base, n = u64(start), u64(min(BLOCK, x.size - start))
        for i in range(n):
            index[i] = root_index(x[base + i])
        _fetch(SQRT, index, entries, n)
        for i in range(n):
            out[base + i] = sqrt_value(x[base + i], halves[TWO * i], halves[TWO * i + ONE])

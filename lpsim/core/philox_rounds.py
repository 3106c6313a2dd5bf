"""Philox4x32 with any number of rounds over given counters: what `tl.randint4x` computes, word for word.

The same function as `core/philox`, of which Triton lets the caller choose the rounds. Source: Salmon et al., SC 2011.
"""

import numpy as np

from .._jit import njit
from .philox import M0, M1, SHIFT_32, U32, W0, W1

u64 = np.uint64


@njit
def randint4x(counters, seed, rounds, out):
    """out[i] = the four words of counter (low, high, 0, 0), key seed; counters uint64 (n,), out uint32 (n, 4)."""
    for i in range(counters.size):
        c0, c1, c2, c3 = counters[i] & U32, counters[i] >> SHIFT_32, u64(0), u64(0)
        k0, k1 = seed & U32, seed >> SHIFT_32
        for _ in range(rounds):
            p0 = M0 * c0
            p1 = M1 * c2
            c0, c1, c2, c3 = (p1 >> SHIFT_32) ^ c1 ^ k0, p1 & U32, (p0 >> SHIFT_32) ^ c3 ^ k1, p0 & U32
            k0 = (k0 + W0) & U32
            k1 = (k1 + W1) & U32
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = c0, c1, c2, c3

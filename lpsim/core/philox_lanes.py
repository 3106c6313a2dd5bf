"""Philox4x32-10 in vector lanes: whole blocks of random words, equal to `core/philox` word for word.

Each 32-bit word sits in a 64-bit lane. Only its low half is read, so the upper half may hold anything: that
saves the masks, and (x & m) * M is one 32 x 32 multiplication. Source: Salmon et al., SC 2011.
"""

import numpy as np

from .._jit import njit
from .philox import M0, M1, W0, W1

u64 = np.uint64
LOW, SHIFT = u64(0xFFFFFFFF), u64(32)


@njit
def blocks(first, seed, stream, step, out):
    """out[2 i], out[2 i + 1] = the 128 bits of block first + i. out: uint64 (2 n,); on a little-endian host its
    memory is the words, or the half-words, in the order of the elements."""
    key0, key1 = seed & LOW, seed >> SHIFT
    for i in range(u64(out.size >> 1)):
        block = first + i
        c0, c1, c2, c3 = block & LOW, block >> SHIFT, stream, step
        k0, k1 = key0, key1
        for _ in range(10):
            p0 = (c0 & LOW) * M0
            p1 = (c2 & LOW) * M1
            c0 = (p1 >> SHIFT) ^ c1 ^ k0
            c1 = p1
            c2 = (p0 >> SHIFT) ^ c3 ^ k1
            c3 = p0
            k0 += W0
            k1 += W1
        out[u64(2) * i] = (c0 & LOW) | (c1 << SHIFT)
        out[u64(2) * i + u64(1)] = (c2 & LOW) | (c3 << SHIFT)


def words(start: int, count: int, noise) -> np.ndarray:
    """The random words of elements start .. start + count - 1: uint16, or uint32 for more than 16 bits.

    noise: policies.Stochastic. The integer R is the word's top `bits` bits.
    """
    per_block, dtype = (8, np.uint16) if noise.bits <= 16 else (4, np.uint32)
    first, last = start // per_block, -(-(start + count) // per_block)
    out = np.empty(2 * (last - first), np.uint64)
    blocks(u64(first), u64(noise.seed), u64(noise.stream), u64(noise.step), out)
    skip = start - first * per_block
    return out.astype("<u8", copy=False).view(np.dtype(dtype).newbyteorder("<"))[skip : skip + count]

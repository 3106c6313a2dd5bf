"""Philox4x32-10 in vector lanes: whole blocks of random words, equal to `core/philox` word for word.

Each 32-bit word sits in a 64-bit lane. Only its low half is read, so the upper half may hold anything: that
saves the masks, and (x & m) * M is one 32 x 32 multiplication. Source: Salmon et al., SC 2011.
"""

from typing import NamedTuple

import numpy as np

from .._jit import njit
from .philox import M0, M1, W0, W1

u64 = np.uint64
LOW, SHIFT = u64(0xFFFFFFFF), u64(32)
BLOCKS = 257  #: in a buffer: 4 KiB, which stay in the first-level cache


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


class Words(NamedTuple):
    """A buffer that a compiled loop refills with the random words of a keyed stream, some elements at a time."""

    buffer: np.ndarray  #: uint64 (2 n,): what `blocks` writes
    words: np.ndarray  #: the same memory as uint16 (16 n,) or uint32 (8 n,), one for each element
    bits: int  #: of a word
    key: tuple[np.uint64, np.uint64, np.uint64]  #: seed, stream, step
    block: np.uint64  #: that holds the word of the first element
    skip: int  #: words of that block that belong to elements before it
    chunk: int  #: elements that one filling serves


def words(start: int, noise) -> Words:
    """The words of the elements from number `start` on; noise: policies.Stochastic with a seed.

    16-bit words, or 32-bit ones for more than 16 random bits; the integer R is a word's top `bits` bits.
    """
    dtype = np.dtype(np.uint16 if noise.bits <= 16 else np.uint32)
    per_block = 16 // dtype.itemsize
    buffer = np.empty(2 * BLOCKS, np.uint64)
    key = (u64(noise.seed), u64(noise.stream), u64(noise.step))
    block, skip = divmod(start, per_block)
    chunk = (BLOCKS - 1) * per_block  # one block less: the first may be begun in its middle
    return Words(buffer, buffer.view(dtype), 8 * dtype.itemsize, key, u64(block), skip, chunk)


@njit
def refill(source, first, count):
    """The words of elements first .. first + count - 1, counted from the start; first: a multiple of `chunk`."""
    seed, stream, step = source.key
    per_block = u64(source.words.size) // u64(source.buffer.size >> 1)
    blocks(source.block + u64(first) // per_block, seed, stream, step, source.buffer)
    return source.words[source.skip : source.skip + count]

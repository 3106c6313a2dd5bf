"""Keyed random words: Philox4x32-10. The same words for any thread, split or device.

Key = the 64-bit seed; counter = (block low, block high, stream, step). Up to 16 bits an element:
element i takes half-word i % 8 of block i // 8, low half first; above, word i % 4 of block i // 4.
The top bits of the half or word are used. At stream = step = 0 the words are tl.randint4x(seed, block).
Source: Salmon et al., SC 2011 (Random123).
"""

import numpy as np

from .._jit import njit

U32 = np.uint64(0xFFFFFFFF)
SHIFT_32 = np.uint64(32)
M0, M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
W0, W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


@njit
def philox4x32(c0, c1, c2, c3, k0, k1):
    """Four 32-bit words, as uint64, from a 128-bit counter and a 64-bit key (all uint64 below 2^32)."""
    for _ in range(10):
        p0 = M0 * c0
        p1 = M1 * c2
        c0, c1, c2, c3 = (p1 >> SHIFT_32) ^ c1 ^ k0, p1 & U32, (p0 >> SHIFT_32) ^ c3 ^ k1, p0 & U32
        k0 = (k0 + W0) & U32
        k1 = (k1 + W1) & U32
    return c0, c1, c2, c3


@njit
def random_word(index, seed, stream, step, bits):
    """The random integer R of element `index`, 0 <= R < 2^bits, as int64. index, seed: uint64; bits: 1 to 32."""
    index = np.uint64(index)
    seed = np.uint64(seed)
    halves = bits <= 16
    block = index >> np.uint64(3) if halves else index >> np.uint64(2)
    words = philox4x32(block & U32, block >> SHIFT_32, np.uint64(stream), np.uint64(step), seed & U32, seed >> SHIFT_32)
    which = (index >> np.uint64(1)) & np.uint64(3) if halves else index & np.uint64(3)
    word = words[0]
    if which == np.uint64(1):
        word = words[1]
    elif which == np.uint64(2):
        word = words[2]
    elif which == np.uint64(3):
        word = words[3]
    if halves:
        half = (word >> (np.uint64(16) * (index & np.uint64(1)))) & np.uint64(0xFFFF)
        return np.int64(half >> np.uint64(16 - bits))
    return np.int64(word >> np.uint64(32 - bits))

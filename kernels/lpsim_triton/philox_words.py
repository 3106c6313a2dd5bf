"""Philox4x32-10 words in a kernel, as `lpsim.core.philox` keys them: the same word for the same element anywhere.

counter = (block low, block high, stream, step), key = the 64-bit seed. Up to 16 bits an element: half-word i % 8 of
block i // 8, low half first; above: word i % 4 of block i // 4. At stream = step = 0 these are
tl.randint4x(seed, block).
"""

import triton
import triton.language as tl


@triton.jit
def block_words(seed, block, stream, step):
    """The four words, uint32, of int64 blocks. stream and step: integers of any width, and the constant 1 that a
    launch makes of a 1."""
    zero = tl.zeros_like(block)
    low, high = block.to(tl.uint32), (block >> 32).to(tl.uint32)
    return tl.philox(seed, low, high, (zero + stream).to(tl.uint32), (zero + step).to(tl.uint32))


@triton.jit
def words(seed, block, stream, step):
    """uint32 (blocks, 4): the words of the elements 4 block .. 4 block + 3, in order."""
    w0, w1, w2, w3 = block_words(seed, block, stream, step)
    return tl.reshape(tl.join(tl.join(w0, w2), tl.join(w1, w3)), [block.shape[0], 4])


@triton.jit
def halves(seed, block, stream, step):
    """uint32 (blocks, 8): the half-words of the elements 8 block .. 8 block + 7, in order."""
    four = words(seed, block, stream, step)
    return tl.reshape(tl.join(four & 0xFFFF, four >> 16), [block.shape[0], 8])


@triton.jit
def random_word(index, seed, stream, step, bits: tl.constexpr):
    """int64: the random integer R of each element, 0 <= R < 2^bits. index int64. A Philox call an element."""
    if bits <= 16:
        half = index & 1
        which = (index >> 1) & 3
        block = index >> 3
    else:
        which = index & 3
        block = index >> 2
    w0, w1, w2, w3 = block_words(seed, block, stream, step)
    word = tl.where(which == 0, w0, tl.where(which == 1, w1, tl.where(which == 2, w2, w3)))
    if bits <= 16:
        word = tl.where(half == 1, word >> 16, word & 0xFFFF)
    return (word >> ((16 if bits <= 16 else 32) - bits)).to(tl.int64)

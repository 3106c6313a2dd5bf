"""Digests of a unary float32 operation over all 2^32 inputs, as recorded on an H200 (data/h200/digests.json).

The inputs are cut into 256 chunks by their top 8 bits. With y_j the output bits for the input whose bit
pattern is chunk * 2^24 + j, zero-extended to 64 bits,
    H_chunk = sum over j of (y_j + 1) * (splitmix64(j) | 1)   mod 2^64,   j = 0 .. 2^24 - 1.
A single differing bit changes the digest; equal digests of all chunks mean that every result is equal.
"""

import functools
import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ._jit import PACKAGE, njit
from .core.intrinsics import bits_to_f32

CHUNKS, CHUNK_BITS = 256, 24
BLOCK = 1 << 14  # inputs at a time: x, y and the weights together stay in the second-level cache
u64 = np.uint64
GOLDEN, FACTOR1, FACTOR2 = u64(0x9E3779B97F4A7C15), u64(0xBF58476D1CE4E5B9), u64(0x94D049BB133111EB)
SHIFT1, SHIFT2, SHIFT3, ONE = u64(30), u64(27), u64(31), u64(1)

#: computes out[i] from x[i]; x float32 (n,), out unsigned (n,) or float32 (n,)
Loop = Callable[[np.ndarray, np.ndarray], None]


@functools.cache
def recorded() -> dict[str, np.ndarray]:
    """name -> uint64 (256,): the digests of the recording, one per chunk."""
    text = (PACKAGE / "data" / "h200" / "digests.json").read_text()
    digests = json.loads(text)["digests"]
    return {name: np.array([int(h, 16) for h in chunks], np.uint64) for name, chunks in digests.items()}


@njit
def fill_weights(first, out):
    """out[i] = splitmix64(first + i) | 1; out uint64 (n,). Source: Steele, Lea and Flood, OOPSLA 2014."""
    for i in range(len(out)):
        x = u64(first) + u64(i) + GOLDEN
        x = (x ^ (x >> SHIFT1)) * FACTOR1
        x = (x ^ (x >> SHIFT2)) * FACTOR2
        out[i] = (x ^ (x >> SHIFT3)) | ONE


@njit
def fill_inputs(first, out):
    """out[i] = the float32 with bit pattern first + i; out float32 (n,)."""
    for i in range(len(out)):
        out[i] = bits_to_f32(u64(first) + u64(i))


@njit
def weighted_sum(y, weights):
    """Sum of (y + 1) * weight modulo 2^64; y unsigned (n,), weights uint64 (n,)."""
    total = u64(0)
    for i in range(len(y)):
        total += (u64(y[i]) + ONE) * weights[i]
    return total


def _partial(loop: Loop, dtype, chunks: list[int], starts: range) -> np.ndarray:
    """uint64 (len(chunks),): what the blocks of inputs beginning at `starts` contribute to each chunk."""
    x, weights = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.uint64)
    out = np.empty(BLOCK, dtype)
    codes = out.view(f"u{out.itemsize}")
    totals = np.zeros(len(chunks), np.uint64)
    for start in starts:
        fill_weights(start, weights)
        for k, chunk in enumerate(chunks):
            fill_inputs((chunk << CHUNK_BITS) + start, x)
            loop(x, out)
            totals[k : k + 1] += u64(weighted_sum(codes, weights))  # as an array: wraps silently
    return totals


def digests(
    loop: Loop, dtype=np.float32, chunks: Iterable[int] = range(CHUNKS), threads: int = 2
) -> np.ndarray:
    """uint64 (number of chunks,): the digest of each chunk of inputs under `loop`.

    loop(x, out): compiled without the interpreter lock; fills out, of `dtype`, from float32 x of the same length.
    The threads share the inputs of a chunk, so the weights are made once for all chunks; sums modulo 2^64
    come out the same for any number of them.
    """
    wanted = [int(chunk) for chunk in chunks]
    if any(not 0 <= chunk < CHUNKS for chunk in wanted):
        raise ValueError(f"chunks must be 0 to {CHUNKS - 1}, got {wanted}")
    shares = [range(t * BLOCK, 1 << CHUNK_BITS, threads * BLOCK) for t in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(lambda share: _partial(loop, dtype, wanted, share), shares))
    return np.sum(parts, axis=0, dtype=np.uint64)


def mismatches(
    name: str, loop: Loop, dtype=np.float32, chunks: Iterable[int] = range(CHUNKS), threads: int = 2
):
    """list of int: the chunks in which `loop` does not give what the recording `name` says; empty if all agree."""
    wanted = list(chunks)
    ours = digests(loop, dtype, wanted, threads)
    return [chunk for chunk, digest in zip(wanted, ours, strict=True) if digest != recorded()[name][chunk]]

"""Triton's random functions as Triton 3.6 compiles them for sm_90: tl.randint4x, rand, randn and their kin.

    h200.rand(seed, offsets)        # float32, the bits of tl.rand(seed, offsets)

Philox4x32, key = the 64-bit seed (a negative one sign-extended), counter = (offset low, offset high, 0, 0); the high
word is 0 for 32-bit offsets, negative ones too. A uniform value is the word as int32, ones' complement below zero,
converted to float32 (to nearest) and multiplied by the float32 next to 4.6566127342e-10: in [0, 1).
Normal values are Box and Muller's: r = sqrt(-2 log(max(1e-7, u1))), angle = RN(2 pi u2), r cos and r sin, with
Triton's log, sqrt (approximate), cos and sin; no product is contracted.
Source: triton/language/random.py, Salmon et al. (SC 2011).
"""

import numpy as np

from .core.philox_rounds import randint4x as fill
from .threads import parallel_for

GRAIN = 1 << 14
SCALE = np.float32(4.6566127342e-10)


def randint4x(seed, offset, n_rounds: int = 10) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Four uint32 arrays of offset's shape: tl.randint4x(seed, offset, n_rounds).

    seed: an int, -2^63 <= seed < 2^64. offset: an int (a 32-bit one if it fits, as Triton takes it), or an array of
    int32, uint32 or int64. Raises TypeError and ValueError for others.
    """
    counters = _counters(offset)
    if isinstance(n_rounds, bool) or not isinstance(n_rounds, int) or n_rounds < 0:
        raise ValueError(f"n_rounds={n_rounds!r} must be an int of at least 0.")
    key = np.uint64(_seed(seed))
    flat = np.ascontiguousarray(counters).reshape(-1)
    words = np.empty((flat.size, 4), np.uint32)
    parallel_for(lambda start, stop: fill(flat[start:stop], key, n_rounds, words[start:stop]), flat.size, GRAIN)
    w0, w1, w2, w3 = (words[:, i].reshape(counters.shape) for i in range(4))
    return w0, w1, w2, w3


def randint(seed, offset, n_rounds: int = 10) -> np.ndarray:
    """uint32 of offset's shape: tl.randint, the first word of `randint4x`."""
    return randint4x(seed, offset, n_rounds)[0]


def rand4x(seed, offset, n_rounds: int = 10) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Four float32 arrays of offset's shape, in [0, 1): tl.rand4x."""
    w0, w1, w2, w3 = randint4x(seed, offset, n_rounds)
    return uniform(w0), uniform(w1), uniform(w2), uniform(w3)


def rand(seed, offset, n_rounds: int = 10) -> np.ndarray:
    """float32 of offset's shape, in [0, 1): tl.rand."""
    return uniform(randint(seed, offset, n_rounds))


def randn4x(seed, offset, n_rounds: int = 10) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Four float32 arrays of offset's shape, normal: tl.randn4x."""
    u1, u2, u3, u4 = rand4x(seed, offset, n_rounds)
    return *normal(u1, u2), *normal(u3, u4)


def randn(seed, offset, n_rounds: int = 10) -> np.ndarray:
    """float32 of offset's shape, normal: tl.randn, the first of `randn4x`."""
    w1, w2, _, _ = randint4x(seed, offset, n_rounds)
    return normal(uniform(w1), uniform(w2))[0]


def normal(u1: np.ndarray, u2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two float32 arrays, normal, from two uniform ones: tl.pair_uniform_to_normal."""
    radius = _apply("sqrt", np.float32(-2.0) * _apply("log", np.maximum(np.float32(1e-7), u1)))
    angle = np.float32(6.283185307179586) * u2
    return radius * _apply("cos", angle), radius * _apply("sin", angle)


def _apply(name: str, x: np.ndarray) -> np.ndarray:
    """An elementwise function of `core.special`, with all threads."""
    from .core.special import ARRAYS

    flat, out = np.ascontiguousarray(x).reshape(-1), np.empty(x.size, np.float32)
    parallel_for(lambda start, stop: ARRAYS[name](flat[start:stop], out[start:stop]), flat.size, GRAIN)
    return out.reshape(x.shape)


def uniform(words: np.ndarray) -> np.ndarray:
    """float32 in [0, 1) from uint32: tl.uint_to_uniform_float. Two roundings, both to nearest."""
    x = words.view(np.int32)
    return np.where(x < 0, ~x, x).astype(np.float32) * SCALE


def _seed(seed) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"seed={seed!r} must be an int.")
    if not -(1 << 63) <= int(seed) < 1 << 64:
        raise ValueError(f"seed={seed!r} must be at least -2^63 and below 2^64.")
    return int(seed) % (1 << 64)


def _counters(offset) -> np.ndarray:
    """The 64-bit counters, uint64: 32-bit offsets have no high word."""
    if isinstance(offset, int) and not isinstance(offset, bool):
        if not -(1 << 63) <= offset < 1 << 63:
            raise ValueError(f"offset={offset} must fit 64 bits.")
        offset = np.array(offset, np.int32 if -(1 << 31) <= offset < 1 << 31 else np.int64)
    array = np.asarray(offset)
    if array.dtype not in (np.int32, np.uint32, np.int64):
        raise TypeError(f"offset has dtype {array.dtype}; allowed: int32, uint32, int64.")
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{array.itemsize}")
    return bits.astype(np.uint64).reshape(array.shape)

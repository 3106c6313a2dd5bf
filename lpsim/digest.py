"""Digests of a unary float32 operation over all 2^32 inputs, as recorded on an H200 (data/h200/digests.json).

The inputs are cut into 256 chunks by their top 8 bits. With y_j the output bits for the input whose bit
pattern is chunk * 2^24 + j, zero-extended to 64 bits,
    H_chunk = sum over j of (y_j + 1) * (splitmix64(j) | 1)   mod 2^64,   j = 0 .. 2^24 - 1.
A single differing bit changes the digest; equal digests of all chunks mean that every result is equal.
"""

import functools
import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Unpack

import numpy as np

from . import fills
from ._jit import PACKAGE, njit
from .core.codec import FP32
from .core.intrinsics import bits_to_f32, f32_to_bits, select
from .core.special import BINARY, FUNCTIONS, INSTRUCTIONS, INTEGERS
from .formats import FORMATS, container_bits
from .policies import Rules
from .presets import torch_e8m0
from .target import Target
from .threads import parallel_for

CHUNKS, CHUNK_BITS = 256, 24
BLOCK = 1 << 15  # inputs at a time: x, y and the weights together stay in the second-level cache
PIECES = 64  # parts of a chunk that the threads share
u64 = np.uint64
GOLDEN, FACTOR1, FACTOR2 = u64(0x9E3779B97F4A7C15), u64(0xBF58476D1CE4E5B9), u64(0x94D049BB133111EB)
SHIFT1, SHIFT2, SHIFT3, ONE = u64(30), u64(27), u64(31), u64(1)

#: computes out[i] from x[i]; x float32 (n,), out unsigned (n,) or float32 (n,)
Loop = Callable[[np.ndarray, np.ndarray], None]


class Operation(NamedTuple):
    """How to compute a recorded operation: loop(x, out) with x float32, out of this dtype."""

    loop: Loop
    dtype: Any


@njit
def _keep_nans(x, out, kept):
    """Where x[i] is NaN, out[i] = its own bits under the mask `kept`; x float32 (n,), out uint32 (n,)."""
    for i in range(u64(x.size)):
        bits = f32_to_bits(x[i])
        is_nan = np.uint32(bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
        out[i] = select(is_nan, np.uint32(bits & np.uint32(kept)), np.uint32(out[i]))


def cast(name: str, kept_nans: int = 0, **rules: Unpack[Rules]) -> Operation:
    """`lp.encode` from float32 to a format of the registry. kept_nans: if not 0, a NaN is its own bits under it."""
    fill = fills.encode(Target(name, rules), FP32)

    def loop(x, out):
        fill.run([x], out, 0)
        if kept_nans:
            _keep_nans(x, out, kept_nans)

    return Operation(loop, np.dtype(f"u{container_bits(FORMATS[name]) // 8}"))


def _torch_e8m0(x: np.ndarray, out: np.ndarray) -> None:
    out[...] = torch_e8m0(x)


#: recorded name -> how lpsim computes it
PLAN: dict[str, Operation] = {
    "ptx:cvt.rn.bf16.f32": cast("bf16", nan="nvidia"),
    "ptx:cvt.rz.bf16.f32": cast("bf16", rounding="rtz", nan="nvidia"),
    "ptx:cvt.rn.f16.f32": cast("fp16", nan="nvidia"),
    "ptx:cvt.rz.f16.f32": cast("fp16", rounding="rtz", nan="nvidia"),
    "ptx:cvt.rn.satfinite.e4m3x2.f32": cast("e4m3fn", overflow="satfinite", nan="nvidia"),
    "ptx:cvt.rn.satfinite.e5m2x2.f32": cast("e5m2", overflow="satfinite", nan="nvidia"),
    # a NaN with a payload in the low 13 bits only becomes infinity
    "ptx:cvt.rna.tf32.f32": cast("tf32", kept_nans=0xFFFFE000, rounding="rna"),
    "torch:e4m3fn": cast("e4m3fn", nan="ones"),
    "torch:e5m2": cast("e5m2", nan="ones"),
    "torch:e4m3fnuz": cast("e4m3fnuz"),
    "torch:e5m2fnuz": cast("e5m2fnuz"),
    "torch:e8m0fnu": Operation(_torch_e8m0, np.dtype("u1")),
}
PLAN |= {  # casts that are one of these instructions
    name: PLAN[f"ptx:cvt.{instruction}.f32"]
    for name, instruction in {
        "triton:bf16": "rn.bf16",
        "triton:fp16": "rn.f16",
        "triton:e4m3": "rn.satfinite.e4m3x2",
        "triton:e5m2": "rn.satfinite.e5m2x2",
        "triton:bf16rtz": "rz.bf16",
        "triton:fp16rtz": "rz.f16",
        "torch:bf16": "rn.bf16",
        "torch:fp16": "rn.f16",
    }.items()
}
PLAN |= {
    f"{language}:{name}": Operation(loop, np.float32)
    for language, loops in (("triton", FUNCTIONS), ("ptx", INSTRUCTIONS))
    for name, loop in loops.items()
    if name not in BINARY
}
PLAN |= {f"triton:{name}": Operation(loop, dtype) for name, (loop, dtype) in INTEGERS.items()}


@functools.cache
def recorded() -> dict[str, np.ndarray]:
    """name -> uint64 (256,): the digests of the recording, one per chunk."""
    text = (PACKAGE / "data" / "h200" / "digests.json").read_text()
    digests = json.loads(text)["digests"]
    return {name: np.array([int(h, 16) for h in chunks], np.uint64) for name, chunks in digests.items()}


@njit
def fill_weights(first, out):
    """out[i] = splitmix64(first + i) | 1; out uint64 (n,). Source: Steele, Lea and Flood, OOPSLA 2014."""
    for i in range(u64(out.size)):
        x = u64(first) + u64(i) + GOLDEN
        x = (x ^ (x >> SHIFT1)) * FACTOR1
        x = (x ^ (x >> SHIFT2)) * FACTOR2
        out[i] = (x ^ (x >> SHIFT3)) | ONE


@njit
def fill_inputs(first, out):
    """out[i] = the float32 with bit pattern first + i; out float32 (n,)."""
    for i in range(u64(out.size)):
        out[i] = bits_to_f32(np.uint32(first) + np.uint32(i))


@njit
def weighted_sum(y, weights):
    """Sum of (y + 1) * weight modulo 2^64; y unsigned (n,), weights uint64 (n,)."""
    total = u64(0)
    for i in range(u64(y.size)):
        total += (u64(y[i]) + ONE) * weights[i]
    return total


def _partial(loop: Loop, dtype, chunks: list[int], start: int, stop: int) -> np.ndarray:
    """uint64 (len(chunks),): what the inputs j = start .. stop - 1 contribute to the digest of each chunk."""
    x, weights = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.uint64)
    out = np.empty(BLOCK, dtype)
    codes = out.view(f"u{out.itemsize}")
    totals = np.zeros(len(chunks), np.uint64)
    for first in range(start, stop, BLOCK):
        fill_weights(first, weights)
        for k, chunk in enumerate(chunks):
            fill_inputs((chunk << CHUNK_BITS) + first, x)
            loop(x, out)
            totals[k : k + 1] += u64(weighted_sum(codes, weights))  # as an array: wraps silently
    return totals


def digests(loop: Loop, dtype=np.float32, chunks: Iterable[int] = range(CHUNKS)) -> np.ndarray:
    """uint64 (number of chunks,): the digest of each chunk of inputs under `loop`.

    loop(x, out): fills out, of `dtype`, from float32 x of the same length; without the interpreter lock, or
    the threads wait for each other. They share the inputs of every chunk, so that weights are made once for
    all chunks. Sums modulo 2^64 are the same in any order. Raises ValueError for a chunk that does not exist.
    """
    wanted = [int(chunk) for chunk in chunks]
    if any(not 0 <= chunk < CHUNKS for chunk in wanted):
        raise ValueError(f"chunks must be 0 to {CHUNKS - 1}, got {wanted}")
    parts = np.zeros((PIECES, len(wanted)), np.uint64)

    def body(start, stop):
        parts[start * PIECES >> CHUNK_BITS] = _partial(loop, dtype, wanted, start, stop)

    parallel_for(body, 1 << CHUNK_BITS, (1 << CHUNK_BITS) // PIECES)
    return parts.sum(axis=0, dtype=np.uint64)


def mismatches(name: str, operation: Operation | None = None, chunks: Iterable[int] = range(CHUNKS)) -> list[int]:
    """The chunks in which an operation does not give what the recording `name` says; empty if all agree.

    operation: by default PLAN[name]. Raises KeyError for a name without a recording.
    """
    operation = operation or PLAN[name]
    wanted = list(chunks)
    expected = recorded()[name][wanted]
    ours = digests(operation.loop, operation.dtype, wanted)
    return [chunk for chunk, a, b in zip(wanted, ours, expected, strict=True) if a != b]

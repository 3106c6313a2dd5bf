"""Live check of Triton's random functions: tl.randint4x, tl.rand and tl.randn4x against `lpsim.triton_random`.

The others are made of these: randint is the first word, rand4x is rand of each word, randn the first of randn4x.
"""

from collections.abc import Iterator

import numpy as np
import torch
import triton
import triton.language as tl

from lpsim import border, triton_random
from lpsim.verify import Check, difference

from . import crosscheck_draws as draws

N = 1 << 20  # offsets of a case at scale 1
BLOCK = 1024
EDGES = (0, 1, -1, 2**31 - 1, -(2**31), 2**32 + 5, 2**63 - 1, -(2**63), 2**64 - 1)


@triton.jit
def randint4x_kernel(offsets, out, n, seed, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    """out (4, n), int32: the words of tl.randint4x."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    w0, w1, w2, w3 = tl.randint4x(seed, tl.load(offsets + i, inside, other=0), ROUNDS)
    tl.store(out + i, w0.to(tl.int32, bitcast=True), inside)
    tl.store(out + n + i, w1.to(tl.int32, bitcast=True), inside)
    tl.store(out + 2 * n + i, w2.to(tl.int32, bitcast=True), inside)
    tl.store(out + 3 * n + i, w3.to(tl.int32, bitcast=True), inside)


@triton.jit
def rand_kernel(offsets, out, n, seed, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    """out float32 (n,): tl.rand."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.rand(seed, tl.load(offsets + i, inside, other=0), ROUNDS), inside)


@triton.jit
def randn4x_kernel(offsets, out, n, seed, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    """out (4, n), float32: tl.randn4x."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    x0, x1, x2, x3 = tl.randn4x(seed, tl.load(offsets + i, inside, other=0), ROUNDS)
    tl.store(out + i, x0, inside)
    tl.store(out + n + i, x1, inside)
    tl.store(out + 2 * n + i, x2, inside)
    tl.store(out + 3 * n + i, x3, inside)


def normal_on_gpu(offsets: np.ndarray, seed: int, rounds: int) -> np.ndarray:
    """float32 (4, n): tl.randn4x, with contraction allowed, as kernels have it by default."""
    out = torch.empty((4, offsets.size), dtype=torch.float32, device="cuda")
    grid = (triton.cdiv(offsets.size, BLOCK),)
    given = border.to_torch(offsets).cuda()
    options = {"num_warps": 4, "enable_fp_fusion": True}
    randn4x_kernel[grid](given, out, offsets.size, seed, rounds, BLOCK, **options)  # pyright: ignore[reportIndexIssue]
    return out.cpu().numpy()


def both_on_gpu(offsets: np.ndarray, seed: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """uint32 (4, n), the words of tl.randint4x, and float32 (n,), tl.rand."""
    n = offsets.size
    given = border.to_torch(offsets).cuda()
    words = torch.empty((4, n), dtype=torch.int32, device="cuda")
    uniform = torch.empty(n, dtype=torch.float32, device="cuda")
    for kernel, out in ((randint4x_kernel, words), (rand_kernel, uniform)):
        grid = (triton.cdiv(n, BLOCK),)
        options = {"num_warps": 4, "enable_fp_fusion": False}
        kernel[grid](given, out, n, seed, rounds, BLOCK, **options)  # pyright: ignore[reportIndexIssue]
    return words.cpu().numpy().view(np.uint32), uniform.cpu().numpy()


def cases(seed: int, scale: float) -> Iterator[tuple[int, np.dtype, int, int]]:
    """(key, dtype of the offsets, rounds, number of offsets)."""
    drawn = [int(w) - (1 << 63 if i % 2 else 0) for i, w in enumerate(draws.words(seed, 7, 6))]
    n = max(1000, int(N * scale))
    for i, key in enumerate((*EDGES, *drawn)):
        for dtype in (np.int32, np.uint32, np.int64):
            yield key, np.dtype(dtype), 10, n
        yield key, np.dtype(np.int64), (7, 1, 13)[i % 3], n


def checks(seed: int, scale: float = 1.0) -> Iterator[Check]:
    """Words, uniform values and normal values. Seeds of 32 and 64 bits, negative ones too; three types of offsets."""
    totals = {name: [0, 0, ""] for name in ("tl.randint4x", "tl.rand", "tl.randn4x")}
    for stream, (key, dtype, rounds, n) in enumerate(cases(seed, scale)):
        offsets = (draws.words(seed, stream, n) >> np.uint64(64 - 8 * dtype.itemsize)).astype(dtype)
        want = {
            "tl.randint4x": np.stack(triton_random.randint4x(key, offsets, rounds)),
            "tl.rand": triton_random.rand(key, offsets, rounds),
            "tl.randn4x": np.stack(triton_random.randn4x(key, offsets, rounds)),
        }
        found = (*both_on_gpu(offsets, key, rounds), normal_on_gpu(offsets, key, rounds))
        got = dict(zip(want, found, strict=True))
        for name, total in totals.items():
            wrong, example = difference(got[name], want[name])
            total[0] += want[name].size
            total[1] += wrong
            total[2] = total[2] or (wrong and f"seed {key}, {dtype} offsets, {rounds} rounds, {example}") or ""
    for name, (compared, differing, example) in totals.items():
        yield Check(name, "live", compared, differing, example)

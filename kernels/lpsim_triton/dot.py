"""tl.dot and tl.dot_scaled in kernels of nothing else, for every format, shape and option: what the plans describe.

`dot` launches one program for each tile of a batch of matrices; it loads what lies inside, zeros elsewhere, and walks
K in blocks on one accumulator. `lpsim.tl_dot` says what comes out; crosscheck_dots compares.
"""

import triton
import triton.language as tl

OUT_DTYPES = {"fp32": tl.float32, "fp16": tl.float16, "fp64": tl.float64, "int32": tl.int32}
TORCH_NAMES = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp64": "float64",
    "e4m3fn": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "int8": "int8",
    "int32": "int32",
    "e2m1": "uint8",
}


def torch_dtype(name: str):
    """torch's dtype for one of our names; e2m1 is two codes a byte."""
    import torch

    return getattr(torch, TORCH_NAMES[name])


@triton.jit
def dot_kernel(
    a,
    b,
    c,
    d,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    ZERO: tl.constexpr,  # of the operands' dtype: 0 or 0.0
    HAS_C: tl.constexpr,
    ADDED: tl.constexpr,
    PRECISION: tl.constexpr,
    IMPRECISE: tl.constexpr,
    OUT: tl.constexpr,
):
    """d = c + a b, contiguous: a (batch, M, K), b (batch, K, N), c, d (batch, M, N). Grid: (M, N, batch) of tiles."""
    which = tl.program_id(2).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    columns = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    cells = which * M * N + rows * N + columns
    inside = (rows < M) & (columns < N)
    acc = tl.load(c + cells, mask=inside, other=0) if HAS_C else tl.zeros((BM, BN), OUT)
    for first in range(0, K, BK):
        ka, kb = first + tl.arange(0, BK)[None, :], first + tl.arange(0, BK)[:, None]
        x = tl.load(a + which * M * K + rows * K + ka, mask=(rows < M) & (ka < K), other=ZERO)
        y = tl.load(b + which * K * N + kb * N + columns, mask=(kb < K) & (columns < N), other=ZERO)
        if ADDED:
            acc += tl.dot(x, y, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE, out_dtype=OUT)
        else:
            acc = tl.dot(x, y, acc, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE, out_dtype=OUT)
    tl.store(d + cells, acc, mask=inside)


def dot(
    a,
    b,
    c=None,
    *,
    block: tuple[int, int, int],
    form: str = "chained",
    num_warps: int = 4,
    input_precision: str = "tf32",
    max_num_imprecise_acc: int | None = None,
    out_dtype: str = "fp32",
):
    """a (batch, M, K) times b (batch, K, N) on c (batch, M, N) or zeros: a tensor (batch, M, N) of out_dtype.

    CUDA tensors, contiguous, in their own dtypes. block: (M, N, K) of the tiles; the other options as in
    `lpsim.tl_dot.plan`. Raises what Triton raises for combinations that it refuses.
    """
    import torch

    a, b = a.contiguous(), b.contiguous()
    batch, m, k = a.shape
    n = b.shape[-1]
    d = torch.empty((batch, m, n), dtype=torch_dtype(out_dtype), device=a.device)
    grid = (triton.cdiv(m, block[0]), triton.cdiv(n, block[1]), batch)
    dot_kernel[grid](  # pyright: ignore[reportIndexIssue]
        a,
        b,
        d if c is None else c.contiguous(),
        d,
        m,
        n,
        k,
        *block,
        ZERO=0 if a.dtype == torch.int8 else 0.0,
        HAS_C=c is not None,
        ADDED=form == "added",
        PRECISION=input_precision,
        IMPRECISE=max_num_imprecise_acc,
        OUT=OUT_DTYPES[out_dtype],
        num_warps=num_warps,
        enable_fp_fusion=True,
    )
    return d


@triton.jit
def dot_scaled_kernel(
    a,
    a_scales,
    b,
    b_scales,
    c,
    d,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    A: tl.constexpr,
    B: tl.constexpr,
    A_PACKED: tl.constexpr,  # codes in a byte: 2 for e2m1
    B_PACKED: tl.constexpr,
    HAS_B_SCALES: tl.constexpr,
    FAST: tl.constexpr,
):
    """d = c + (a * a_scales) (b * b_scales), one tile a program: a (batch, M, K), b (batch, K, N).

    Scales: (batch, M, K / 32) and (batch, N, K / 32), as tl.dot_scaled takes them.
    """
    which = tl.program_id(0).to(tl.int64)
    rows, columns = tl.arange(0, M)[:, None], tl.arange(0, N)
    ka, kb = tl.arange(0, K // A_PACKED)[None, :], tl.arange(0, K // B_PACKED)[:, None]
    ks = tl.arange(0, K // 32)[None, :]
    cells = which * M * N + rows * N + columns[None, :]
    x = tl.load(a + which * M * (K // A_PACKED) + rows * (K // A_PACKED) + ka)
    y = tl.load(b + which * (K // B_PACKED) * N + kb * N + columns[None, :])
    xs = tl.load(a_scales + which * M * (K // 32) + rows * (K // 32) + ks)
    ys = tl.load(b_scales + which * N * (K // 32) + columns[:, None] * (K // 32) + ks) if HAS_B_SCALES else None
    acc = tl.dot_scaled(x, xs, A, y, ys, B, tl.load(c + cells), fast_math=FAST)
    tl.store(d + cells, acc)


SCALED_NAMES = {"e4m3fn": "e4m3", "e5m2": "e5m2", "e2m1": "e2m1", "bf16": "bf16", "fp16": "fp16"}  # Triton's


def dot_scaled(a, a_scales, a_name: str, b, b_scales, b_name: str, c, *, num_warps: int = 4, fast_math: bool = False):
    """One tile each: a (batch, M, K), b (batch, K, N) on c (batch, M, N): float32 (batch, M, N).

    CUDA tensors; e2m1 as uint8 with two codes along K, the first in the low half. Scales: uint8 e8m0 codes,
    a_scales (batch, M, K / 32), b_scales (batch, N, K / 32) or None.
    """
    import torch

    batch, m, n = c.shape
    a_packed, b_packed = (2 if name == "e2m1" else 1 for name in (a_name, b_name))
    d = torch.empty_like(c)
    dot_scaled_kernel[(batch,)](  # pyright: ignore[reportIndexIssue]
        a.contiguous(),
        a_scales.contiguous(),
        b.contiguous(),
        a_scales if b_scales is None else b_scales.contiguous(),
        c.contiguous(),
        d,
        m,
        n,
        a.shape[-1] * a_packed,
        SCALED_NAMES[a_name],
        SCALED_NAMES[b_name],
        a_packed,
        b_packed,
        HAS_B_SCALES=b_scales is not None,
        FAST=fast_math,
        num_warps=num_warps,
        enable_fp_fusion=True,
    )
    return d

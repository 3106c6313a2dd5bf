"""tl.sum, max, min and cumsum of a tile as plain Triton kernels: what `lp.machine("h200").sum` and its like describe.

A program reduces one tile, (N,) or (M, N), loaded with a mask. Which bits come out depends on the tile's layout, hence
on shapes, num_warps and what the compiler knows about alignment: pointers that are multiples of 16 bytes and strides
that are multiples of 16 elements count as aligned, others as not.
"""

import torch
import triton
import triton.language as tl

SUM, PRODUCTS, MAX, MIN, CUMSUM = (tl.constexpr(i) for i in range(5))
OPERATIONS = {"sum": SUM, "products": PRODUCTS, "max": MAX, "min": MIN, "cumsum": CUMSUM}
LAST = {"max": float("-inf"), "min": float("inf")}  # what a masked element loads; 0 for the others


@triton.jit
def reduced(x, y, AXIS: tl.constexpr, OPERATION: tl.constexpr):
    """One of OPERATIONS along an axis; y is used by "products" only."""
    if OPERATION == SUM:
        return tl.sum(x, AXIS)
    elif OPERATION == PRODUCTS:
        return tl.sum(x * y, AXIS)
    elif OPERATION == MAX:
        return tl.max(x, AXIS)
    elif OPERATION == MIN:
        return tl.min(x, AXIS)
    else:
        return tl.cumsum(x, AXIS)


@triton.jit
def rows_kernel(x, y, out, n, stride, last, N: tl.constexpr, OPERATION: tl.constexpr):
    """Row i of x (rows, n) to out[i], or to out[i, :] (rows, N) for cumsum."""
    row = tl.program_id(0)
    i = tl.arange(0, N)
    a = tl.load(x + row * stride + i, mask=i < n, other=last)
    b = tl.load(y + row * stride + i, mask=i < n, other=0.0)
    result = reduced(a, b, 0, OPERATION)
    if OPERATION == CUMSUM:
        tl.store(out + row * N + i, result)
    else:
        tl.store(out + row, result)


@triton.jit
def tiles_kernel(
    x, y, out, m, n, stride, last, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, OPERATION: tl.constexpr
):  # fmt: skip
    """Tile i of x (tiles, m, stride), of which n columns count, to out (tiles, N or M), or (tiles, M, N) for cumsum."""
    tile = tl.program_id(0)
    r, c = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    inside = (r < m) & (c < n)
    a = tl.load(x + (tile * m + r) * stride + c, mask=inside, other=last)
    b = tl.load(y + (tile * m + r) * stride + c, mask=inside, other=0.0)
    result = reduced(a, b, AXIS, OPERATION)
    if OPERATION == CUMSUM:
        tl.store(out + (tile * M + r) * N + c, result)
    elif AXIS == 0:
        tl.store(out + tile * N + tl.arange(0, N), result)
    else:
        tl.store(out + tile * M + tl.arange(0, M), result)


@triton.jit
def accumulator_kernel(a, b, out, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, OPERATION: tl.constexpr):
    """tl.sum or tl.max of tl.dot(a, b), a (M, 64), b (64, N): the layout of a tensor core's accumulator."""
    r, c, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, 64)
    d = tl.dot(tl.load(a + r[:, None] * 64 + k[None, :]), tl.load(b + k[:, None] * N + c[None, :]))
    tl.store(out + tl.arange(0, N if AXIS == 0 else M), reduced(d, d, AXIS, OPERATION))


def result_dtype(operation: str, dtype: torch.dtype) -> torch.dtype:
    """tl.max and tl.min widen 16 bits, tl.cumsum bf16 alone; sums stay."""
    wide = (torch.float16, torch.bfloat16) if operation in ("max", "min") else (torch.bfloat16,)
    return torch.float32 if operation not in ("sum", "products") and dtype in wide else dtype


def reduce_rows(x: torch.Tensor, y: torch.Tensor, n: int, operation: str, num_warps: int, fusion: bool):
    """Rows of x (rows, stride), n of their elements each: the results and the compiled kernel."""
    size = triton.next_power_of_2(n)
    shape = (len(x), size) if operation == "cumsum" else (len(x),)
    out = torch.empty(shape, dtype=result_dtype(operation, x.dtype), device=x.device)
    kernel = rows_kernel[(len(x),)](  # pyright: ignore[reportIndexIssue]
        x, y, out, n, x.stride(0), last(operation, x.dtype), N=size, OPERATION=OPERATIONS[operation],
        num_warps=num_warps, enable_fp_fusion=fusion,
    )  # fmt: skip
    return out[:, :n] if operation == "cumsum" else out, kernel


def reduce_tiles(x: torch.Tensor, y: torch.Tensor, n: int, axis: int, operation: str, num_warps: int, fusion: bool):
    """Tiles of x (tiles, m, stride) along axis 0 or 1, n columns each: the results and the compiled kernel."""
    tiles, m, stride = x.shape
    sides = triton.next_power_of_2(m), triton.next_power_of_2(n)
    shape = (tiles, *sides) if operation == "cumsum" else (tiles, sides[1 - axis])
    out = torch.empty(shape, dtype=result_dtype(operation, x.dtype), device=x.device)
    kernel = tiles_kernel[(tiles,)](  # pyright: ignore[reportIndexIssue]
        x, y, out, m, n, stride, last(operation, x.dtype), M=sides[0], N=sides[1], AXIS=axis,
        OPERATION=OPERATIONS[operation], num_warps=num_warps, enable_fp_fusion=fusion,
    )  # fmt: skip
    return out[:, :m, :n] if operation == "cumsum" else out[:, : (n, m)[axis]], kernel


def last(operation: str, dtype: torch.dtype):
    """What a masked element counts as."""
    if operation in LAST and not dtype.is_floating_point:
        return torch.iinfo(dtype).min if operation == "max" else torch.iinfo(dtype).max
    return LAST.get(operation, 0.0) if dtype.is_floating_point else 0


def reduce_accumulator(a: torch.Tensor, b: torch.Tensor, axis: int, operation: str, num_warps: int):
    """tl.sum or tl.max of a (M, 64) times b (64, N) along an axis: the results and the compiled kernel."""
    m, n = len(a), b.shape[1]
    out = torch.empty((n, m)[axis], dtype=torch.float32, device=a.device)
    kernel = accumulator_kernel[(1,)](  # pyright: ignore[reportIndexIssue]
        a, b, out, M=m, N=n, AXIS=axis, OPERATION=OPERATIONS[operation], num_warps=num_warps, enable_fp_fusion=True
    )
    return out, kernel

"""Triton's own casts between floats of up to 32 bits, as they compile: what `lpsim.triton_casts` is held against."""

import numpy as np
import triton
import triton.language as tl

TYPES = {
    "fp32": tl.float32,
    "bf16": tl.bfloat16,
    "fp16": tl.float16,
    "e4m3fn": tl.float8e4nv,
    "e5m2": tl.float8e5,
}
BLOCK = 1024


@triton.jit
def cast_kernel(x, out, n, SOURCE: tl.constexpr, TARGET: tl.constexpr, BLOCK: tl.constexpr):
    """out = x.to(TARGET), x being codes of SOURCE; both as integers."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, i < n, other=0).to(SOURCE, bitcast=True)
    tl.store(out + i, value.to(TARGET).to(out.dtype.element_ty, bitcast=True), i < n)


def cast(codes: np.ndarray, source: str, target: str) -> np.ndarray:
    """Codes of `target` (unsigned, fp32 too) for codes of `source`, cast on the GPU."""
    import torch

    carriers = {1: torch.int8, 2: torch.int16, 4: torch.int32}
    size = TYPES[target].primitive_bitwidth // 8
    x = torch.from_numpy(codes.view(f"i{codes.itemsize}")).cuda()
    out = torch.empty(codes.size, dtype=carriers[size], device="cuda")
    grid = (triton.cdiv(codes.size, BLOCK),)
    cast_kernel[grid](  # pyright: ignore[reportIndexIssue]
        x, out, codes.size, TYPES[source], TYPES[target], BLOCK, num_warps=4, enable_fp_fusion=False
    )
    return out.cpu().numpy().view(f"u{size}")

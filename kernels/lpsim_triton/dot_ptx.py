"""The fp8 mma.sync of PTX, which no tl.dot becomes: mma.sync.m16n8k32 written into a Triton kernel, one warp a tile.

Every thread hands its registers to the instruction and gets its registers back, so operands are laid out here as PTX
ISA's figures for m16n8k32 with 8-bit operands say: lane l holds rows l // 4 and l // 4 + 8 of a, column l // 4 of b,
four consecutive k from 4 (l % 4) and from 16 + 4 (l % 4).
"""

import numpy as np
import triton
import triton.language as tl

PTX_NAMES = {"e4m3fn": "e4m3", "e5m2": "e5m2"}
M, N, K, LANES = 16, 8, 32, 32


@triton.jit
def mma_kernel(a, b, c, d, ASM: tl.constexpr, WIDE: tl.constexpr):
    """One m16n8k32 a program. a (tiles, 4, 32), b (tiles, 2, 32) words; c, d (tiles, 4 or 2, 32): lane last."""
    which = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, 32)
    a0, a1 = tl.load(a + which * 128 + lane), tl.load(a + which * 128 + 32 + lane)
    a2, a3 = tl.load(a + which * 128 + 64 + lane), tl.load(a + which * 128 + 96 + lane)
    b0, b1 = tl.load(b + which * 64 + lane), tl.load(b + which * 64 + 32 + lane)
    if WIDE:
        c0, c1 = tl.load(c + which * 128 + lane), tl.load(c + which * 128 + 32 + lane)
        c2, c3 = tl.load(c + which * 128 + 64 + lane), tl.load(c + which * 128 + 96 + lane)
        d0, d1, d2, d3 = tl.inline_asm_elementwise(
            ASM,
            "=r,=r,=r,=r,r,r,r,r,r,r,r,r,r,r",
            [a0, a1, a2, a3, b0, b1, c0, c1, c2, c3],
            dtype=(tl.int32, tl.int32, tl.int32, tl.int32),
            is_pure=True,
            pack=1,
        )
        tl.store(d + which * 128 + lane, d0)
        tl.store(d + which * 128 + 32 + lane, d1)
        tl.store(d + which * 128 + 64 + lane, d2)
        tl.store(d + which * 128 + 96 + lane, d3)
    else:
        c0, c1 = tl.load(c + which * 64 + lane), tl.load(c + which * 64 + 32 + lane)
        d0, d1 = tl.inline_asm_elementwise(
            ASM,
            "=r,=r,r,r,r,r,r,r,r,r",
            [a0, a1, a2, a3, b0, b1, c0, c1],
            dtype=(tl.int32, tl.int32),
            is_pure=True,
            pack=1,
        )
        tl.store(d + which * 64 + lane, d0)
        tl.store(d + which * 64 + 32 + lane, d1)


def instruction(a_name: str, b_name: str, accumulator: str) -> str:
    """The PTX text, operands numbered as inline assembly numbers them."""
    kind = {"fp32": "f32", "fp16": "f16"}[accumulator]
    count = 4 if accumulator == "fp32" else 2
    lists = [[f"${i}" for i in range(first, first + n)] for first, n in ((0, count), (count, 4), (count + 4, 2))]
    lists.append([f"${i}" for i in range(count + 6, 2 * count + 6)])
    d, a, b, c = ("{" + ", ".join(names) + "}" for names in lists)
    name = f"mma.sync.aligned.m16n8k32.row.col.{kind}.{PTX_NAMES[a_name]}.{PTX_NAMES[b_name]}.{kind}"
    return f"{name} {d}, {a}, {b}, {c};"


def fragments(x: np.ndarray, rows: int) -> np.ndarray:
    """uint8 (tiles, rows, 32), k last, as words (tiles, registers, 32): of a with 16 rows, of b transposed with 8."""
    lane = np.arange(LANES)
    words = np.ascontiguousarray(x).view(np.int32)  # (tiles, rows, 8): four k each
    places = [(lane // 4 + 8 * low, lane % 4 + 4 * half) for half in (0, 1) for low in range(rows // 8)]
    return np.ascontiguousarray(np.stack([words[:, row, word] for row, word in places], 1))


def accumulators(x: np.ndarray) -> np.ndarray:
    """float32 or float16 (tiles, 16, 8) as int32 words (tiles, 4 or 2, 32)."""
    lane = np.arange(LANES)
    rows, columns = lane // 4, 2 * (lane % 4)
    if x.dtype == np.float32:
        places = [(rows + 8 * low, columns + odd) for low in (0, 1) for odd in (0, 1)]
        return np.ascontiguousarray(np.stack([x.view(np.int32)[:, row, column] for row, column in places], 1))
    pairs = np.ascontiguousarray(x).view(np.int32)  # (tiles, 16, 4): two columns each
    return np.ascontiguousarray(np.stack([pairs[:, rows + 8 * low, lane % 4] for low in (0, 1)], 1))


def tiles_of(words: np.ndarray, dtype) -> np.ndarray:
    """The inverse of `accumulators`: (tiles, 16, 8) of a dtype."""
    lane = np.arange(LANES)
    rows, columns = lane // 4, 2 * (lane % 4)
    if dtype == np.float32:
        result = np.empty((len(words), M, N), np.int32)
        for register, (low, odd) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1))):
            result[:, rows + 8 * low, columns + odd] = words[:, register]
        return result.view(np.float32)
    pairs = np.empty((len(words), M, N // 2), np.int32)
    for low in (0, 1):
        pairs[:, rows + 8 * low, lane % 4] = words[:, low]
    return pairs.view(np.float16)


def mma(a: np.ndarray, b: np.ndarray, c: np.ndarray, a_name: str, b_name: str) -> np.ndarray:
    """a (tiles, 16, 32), b (tiles, 32, 8) codes on c (tiles, 16, 8) float32 or float16, on the GPU: like c."""
    import torch

    x = torch.from_numpy(fragments(a, M)).cuda()
    y = torch.from_numpy(fragments(np.swapaxes(b, 1, 2), N)).cuda()
    z = torch.from_numpy(accumulators(c)).cuda()
    out = torch.empty_like(z)
    accumulator = "fp32" if c.dtype == np.float32 else "fp16"
    text = instruction(a_name, b_name, accumulator)
    wide = accumulator == "fp32"
    mma_kernel[(len(a),)](  # pyright: ignore[reportIndexIssue]
        x, y, z, out, text, wide, num_warps=1, enable_fp_fusion=True
    )
    return tiles_of(out.cpu().numpy(), c.dtype)

"""The output of attention rounded stochastically, from its float32 values: `lpsim.arrays.encode` on a GPU, for bf16 and
fp16, variant A, up to 16 random bits an element.

The random words are keyed, as `lpsim.core.philox` has it: an element's word depends on the seed, the stream, the step
and its place in o alone, so that the same call gives the same bits on any device and however the work is split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from lpsim.policies import Stochastic

if TYPE_CHECKING:
    import torch

ELEMENTS = 4096  # of a program


@triton.jit
def random_halves(block, seed, stream, step, SIZE: tl.constexpr):
    """(8 SIZE,) int64 below 2^16: the half-words of blocks of eight elements, low half first. block: int64 (SIZE,)."""
    low, high = block.to(tl.uint32), (block >> 32).to(tl.uint32)
    zero = tl.zeros([SIZE], tl.uint32)
    w0, w1, w2, w3 = tl.philox(seed, low, high, zero + stream.to(tl.uint32), zero + step.to(tl.uint32))
    words = tl.join(tl.join(w0, w2), tl.join(w1, w3))  # (SIZE, 2, 2): word 2 i + j of a block at [i, j]
    return tl.join(words & 0xFFFF, words >> 16).reshape(8 * SIZE).to(tl.int64)


@triton.jit
def rounded_away(x, random, BITS: tl.constexpr, HALF: tl.constexpr):
    """Codes (int64) of float32 x in fp16 if HALF, else bf16: away from zero iff floor(nu 2^BITS) + R >= 2^BITS.

    random: int64 below 2^16, whose top BITS bits are R.
    """
    bits = x.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    sign, size = bits >> 31, bits & 0x7FFFFFFF
    exponent = tl.maximum(size >> 23, 1)
    sig = size - ((exponent - 1) << 23)  # the implicit bit is there for normal numbers, and only for those
    if HALF:
        drop = tl.minimum(13 + tl.maximum(113 - exponent, 0), 45)
        base, infinity = tl.maximum(exponent - 113, 0) << 10, 0x7C00
    else:
        drop = tl.full(x.shape, 16, tl.int64)
        base, infinity = (exponent - 1) << 7, 0x7F80
    kept = sig >> drop
    nu = ((sig - (kept << drop)) << BITS) >> drop  # below 2^(23 + 16)
    up = (nu + (random >> (16 - BITS))) >> BITS
    code = tl.minimum(base + kept + up, infinity)
    code = tl.where(size == 0x7F800000, infinity, code)
    return tl.where(size > 0x7F800000, 0x7FFF, code | (sign << 15))


@triton.jit(do_not_specialize=["seed", "stream", "step", "first_block"])
def round_kernel(
    wide, o, low, seed, stream, step, first_block, size, BITS: tl.constexpr, HALF: tl.constexpr, PAIR: tl.constexpr,
    ELEMENTS: tl.constexpr,
):  # fmt: skip
    """o = wide rounded; low = RN16(wide - o) if PAIR. Flat arrays of `size` elements; seed, .., first_block: int64."""
    first = tl.program_id(0).to(tl.int64) * ELEMENTS
    at = first + tl.arange(0, ELEMENTS)
    x = tl.load(wide + at, mask=at < size, other=0.0)
    block = first_block + first // 8 + tl.arange(0, ELEMENTS // 8)
    code = rounded_away(x, random_halves(block, seed, stream, step, ELEMENTS // 8), BITS, HALF)
    rounded = code.to(tl.uint16).to(o.dtype.element_ty, bitcast=True)
    tl.store(o + at, rounded, mask=at < size)
    if PAIR:
        tl.store(low + at, (x - rounded.to(tl.float32)).to(o.dtype.element_ty), mask=at < size)


def round_output(wide: torch.Tensor, o: torch.Tensor, rounding: Stochastic, delta_from: str) -> torch.Tensor:
    """Fill o with wide, float32 and contiguous as o, rounded; what is kept beside o: as attention_forward.forward."""
    import torch

    low = o.new_empty(o.shape if delta_from == "pair" else (0,))
    seed = rounding.seed - (1 << 64) if rounding.seed >> 63 else rounding.seed
    round_kernel[(triton.cdiv(o.numel(), ELEMENTS),)](  # pyright: ignore[reportIndexIssue]
        wide, o, low, seed, rounding.stream, rounding.step, rounding.offset // 8, o.numel(), BITS=rounding.bits,
        HALF=o.dtype == torch.float16, PAIR=delta_from == "pair", ELEMENTS=ELEMENTS, num_warps=4,
        enable_fp_fusion=True,
    )  # fmt: skip
    return wide if delta_from == "O32" else low

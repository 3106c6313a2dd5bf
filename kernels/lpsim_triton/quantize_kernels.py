"""Triton kernels that round: any source to any format through the mirrored core, and binary32 to its upper bits.

Tensors come as integers of the elements' width, contiguous, n elements; element i of a keyed rounding is element
offset + i of its stream. The general kernel is `lpsim.core` itself and computes in int64; the prefix kernels are second
bodies in int32, driven by the rows that `lpsim.core.fast_plan` makes for the CPU's.
"""

import triton
import triton.language as tl

from lpsim.core import arith, codec, rounding
from lpsim.policies import NANS, SR_B, Policy

from .mirror import mirror
from .philox_words import halves, random_word, words

flush, unpack, unpack_f64, pack_f64, round_to = (
    mirror(f) for f in (arith.flush, codec.unpack, codec.unpack_f64, codec.pack_f64, rounding.round_to)
)
PAYLOADS, CANONICAL = (tl.constexpr(Policy(nan=NANS[name])) for name in ("propagate", "canonical"))
INFINITY = tl.constexpr(0x7F800000)
VARIANT_B = tl.constexpr(SR_B)
NO_WORDS, KEYED, GIVEN = 0, 1, 2  # where the random integers come from


@triton.jit
def number_of(bits, fmt: tl.constexpr):
    """The Number of a code; binary64 included."""
    if fmt.bits == 64:
        return unpack_f64(bits)
    else:
        return unpack(bits, fmt)


@triton.jit
def value_bits(code, fmt: tl.constexpr, dtype: tl.constexpr):
    """The bits, in the format `dtype`, of the value of a code of fmt, which dtype holds: nothing is rounded. A NaN
    keeps its payload where NumPy has the dtype, and has none in bf16 and fp8, as ml_dtypes casts it."""
    x = unpack(code, fmt)
    if dtype.bits == 64:
        return pack_f64(x.kind, x.sign, x.exp, x.sig)
    elif dtype.precision > 8:
        return round_to(x.kind, x.sign, x.exp, x.sig, dtype, PAYLOADS, 0).code
    else:
        return round_to(x.kind, x.sign, x.exp, x.sig, dtype, CANONICAL, 0).code


@triton.jit
def general_kernel(
    x, given, out, lost, n, offset, seed, stream, step, source: tl.constexpr, fmt: tl.constexpr, policy: tl.constexpr,
    noise: tl.constexpr, dtype: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out = codes of fmt for x, whose elements are of the format `source`; their values in `dtype` if it is not None.

    given: int64 (n,), the random integers where noise says GIVEN. lost: int32 (1,), becomes 1 if the format has no
    answer for some element, and is None where that cannot be.
    """
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    number = flush(number_of(tl.load(x + i, inside, other=0), source), source, policy)
    if noise == 1:
        word = random_word(i + offset, seed, stream, step, policy.noise_bits)
    elif noise == 2:
        word = tl.load(given + i, inside, other=0)
    else:
        word = tl.zeros_like(i)
    rounded = round_to(number.kind, number.sign, number.exp, number.sig, fmt, policy, word)
    if lost is not None:
        tl.store(lost + tl.zeros_like(i), tl.full((BLOCK,), 1, tl.int32), inside & (rounded.lost > 0))
    result = rounded.code if dtype is None else value_bits(rounded.code, fmt, dtype)
    tl.store(out + i, result.to(out.dtype.element_ty), inside)


@triton.jit
def finish(w, added, plan: tl.constexpr, as_values: tl.constexpr):
    """The code, or the float32 bits, for float32 bits w (int32) after `added` below the cut. `fast_prefix._finish`."""
    a = w & 0x7FFFFFFF
    is_nan = a > INFINITY
    magnitude = tl.where(is_nan, plan.nan, tl.minimum(a, plan.cap) + added)
    sign = (w >> 31) << 31
    if plan.nan_keep == 0:
        sign = tl.where(is_nan, 0, sign)
    bits = (magnitude | sign).to(tl.uint32, bitcast=True) >> plan.drop
    return bits << (plan.drop if as_values else plan.pad)


@triton.jit
def prefix_kernel(x, out, n, plan: tl.constexpr, as_values: tl.constexpr, BLOCK: tl.constexpr):
    """Any mode that needs no words, from binary32 to a format that is its upper bits. `fast_prefix.encode_mode`."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    w = tl.load(x + i, i < n, other=0)
    added = tl.where((w >> plan.drop & 1) != 0, plan.odd, plan.even)
    if plan.positive != plan.negative:
        added = added & tl.where(w < 0, plan.negative, plan.positive)
    tl.store(out + i, finish(w, added, plan, as_values).to(out.dtype.element_ty), i < n)


@triton.jit
def below_cut(word, bits: tl.constexpr, width: tl.constexpr, drop: tl.constexpr, centred: tl.constexpr):
    """What a random word of `width` bits adds to the discarded bits, so that their carry is the rounding.

    R is the word's top `bits` bits. Bits of R below the discarded ones cannot carry. centred: variant B, which adds
    half a step where R is coarser than the discarded bits; elsewhere A, B and C are the same.
    """
    r = word >> (width - bits)
    if bits >= drop:
        return (r >> (bits - drop)).to(tl.int32)
    elif centred:
        return ((2 * r + 1) << (drop - bits - 1)).to(tl.int32)
    else:
        return (r << (drop - bits)).to(tl.int32)


@triton.jit
def keyed_prefix_kernel(
    x, out, n, first_block, seed, stream, step, plan: tl.constexpr, policy: tl.constexpr, as_values: tl.constexpr,
    SKIP: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Stochastic rounding from binary32 to a format that is its upper bits: one Philox block for 8 (or 4) elements.

    Element 0 is element SKIP of first_block. SKIP 0 is the fast case: 16-byte loads and stores.
    """
    size: tl.constexpr = 8 if policy.noise_bits <= 16 else 4
    group = tl.program_id(0).to(tl.int64) * GROUPS
    block = first_block + group + tl.arange(0, GROUPS)
    word = halves(seed, block, stream, step) if size == 8 else words(seed, block, stream, step)
    i = group * size + tl.arange(0, GROUPS * size)
    inside = i < n
    if SKIP > 0:
        i = i - SKIP
        inside = (i >= 0) & (i < n)
    w = tl.load(x + i, inside, other=0)
    word = tl.reshape(word, [GROUPS * size])
    added = below_cut(word, policy.noise_bits, 128 // size, plan.drop, policy.rounding == VARIANT_B)
    tl.store(out + i, finish(w, added, plan, as_values).to(out.dtype.element_ty), inside)

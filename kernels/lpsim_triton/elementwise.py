"""Elementwise operations on a GPU, each as Triton compiles it: what the emulator's functions are held against.

UNARY names functions of one float32, as `lpsim.digest` does: "triton:..." is Triton's own spelling, "ptx:..." one
PTX instruction. OPERATIONS names functions of several operands; each works on float32, bfloat16 and float16.
`digests` reduces a unary function over all 2^32 inputs to 256 numbers on the GPU; `apply` gives results.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import triton
import triton.language as tl

from . import elementwise_functions as f

if TYPE_CHECKING:
    import torch

CHUNK_BITS, CHUNKS = 24, 256
BLOCK, STEPS = 2048, 32  # inputs that a program takes at a time, and how many times


FUNCTIONS = {
    "triton:exp": f.exp,
    "triton:exp2": f.exp2,
    "triton:log": f.log,
    "triton:log2": f.log2,
    "triton:sqrt": f.sqrt,
    "triton:sqrt_rn": f.sqrt_rn,
    "triton:rsqrt": f.rsqrt,
    "triton:rcp": f.rcp,
    "triton:sigmoid": f.sigmoid,
    "triton:erf": f.erf,
    "triton:sin": f.sin,
    "triton:cos": f.cos,
    "triton:floor": f.floor,
    "triton:ceil": f.ceil,
    "triton:libdevice.exp": f.libdevice_exp,
    "triton:libdevice.tanh": f.libdevice_tanh,
    "triton:int32": f.to_int32,
    "triton:int16": f.to_int16,
    "triton:int8": f.to_int8,
    "triton:bf16": f.to_bf16,
    "triton:fp16": f.to_fp16,
    "triton:e4m3": f.to_e4m3,
    "triton:e5m2": f.to_e5m2,
    "triton:bf16rtz": f.to_bf16_rtz,
    "triton:fp16rtz": f.to_fp16_rtz,
}

OPERATIONS = {
    "add": (2, f.add),
    "sub": (2, f.sub),
    "mul": (2, f.mul),
    "div": (2, f.div),
    "minimum": (2, f.minimum),
    "maximum": (2, f.maximum),
    "minimum, NaN kept": (2, f.minimum_nan),
    "maximum, NaN kept": (2, f.maximum_nan),
    "fma": (3, f.fma),
    "x*y + z": (3, f.mul_add),
    "x*y - z": (3, f.mul_sub),
    "x*y + z*w": (4, f.mul_add_mul),
    "x*y - z*w": (4, f.mul_sub_mul),
    "div_rn": (2, f.div_rn),  # float32 only
}
#: target -> function; between the two 8-bit formats Triton has no cast
CASTS = {
    "fp32": f.to_fp32,
    "bf16": f.to_bf16,
    "fp16": f.to_fp16,
    "e4m3fn": f.to_e4m3,
    "e5m2": f.to_e5m2,
}

UNARY_F32 = (
    *("ex2.approx.ftz.f32", "ex2.approx.f32", "lg2.approx.ftz.f32", "lg2.approx.f32"),
    *("rcp.approx.ftz.f32", "rcp.approx.f32", "rcp.rn.ftz.f32", "rcp.rn.f32"),
    *("rsqrt.approx.ftz.f32", "rsqrt.approx.f32", "sqrt.approx.ftz.f32", "sqrt.approx.f32"),
    *("sqrt.rn.ftz.f32", "sqrt.rn.f32", "sin.approx.ftz.f32", "sin.approx.f32"),
    *("cos.approx.ftz.f32", "cos.approx.f32", "tanh.approx.f32"),
)
BINARY_F32 = ("div.full.f32", "div.full.ftz.f32", "div.approx.f32", "div.approx.ftz.f32", "div.rn.f32")
UNARY_16 = ("ex2.approx.f16", "ex2.approx.ftz.bf16", "tanh.approx.f16", "tanh.approx.bf16")
NARROWING = {  # from float32; the name says the rounding
    "cvt.rn.bf16.f32": tl.bfloat16,
    "cvt.rz.bf16.f32": tl.bfloat16,
    "cvt.rn.f16.f32": tl.float16,
    "cvt.rz.f16.f32": tl.float16,
    "cvt.rna.tf32.f32": tl.uint32,
}


class Instruction(NamedTuple):
    """A PTX instruction: its text with $0 for the result, how its registers are constrained, the result's type."""

    text: str
    constraints: str
    result: tl.dtype
    operands: int = 1


INSTRUCTIONS = {name: Instruction(f"{name} $0, $1;", "=f,f", tl.float32) for name in UNARY_F32}
INSTRUCTIONS |= {name: Instruction(f"{name} $0, $1, $2;", "=f,f,f", tl.float32, 2) for name in BINARY_F32}
INSTRUCTIONS |= {
    name: Instruction(f"{name} $0, $1;", "=h,h", tl.bfloat16 if "bf16" in name else tl.float16) for name in UNARY_16
}
INSTRUCTIONS |= {
    name: Instruction(f"{name} $0, $1;", "=r,f" if result == tl.uint32 else "=h,f", result)
    for name, result in NARROWING.items()
}

#: names of `lpsim.digest` -> what computes them here: functions of one float32
UNARY = FUNCTIONS | {f"ptx:{name}": INSTRUCTIONS[name] for name in (*UNARY_F32, *NARROWING)}


@triton.jit
def instruction(x, y, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr, RESULT: tl.constexpr, OPERANDS: tl.constexpr):
    """One PTX instruction of one or two operands."""
    given = [x] if OPERANDS == 1 else [x, y]
    return tl.inline_asm_elementwise(
        TEXT,  # pyright: ignore[reportArgumentType]
        CONSTRAINTS,  # pyright: ignore[reportArgumentType]
        given,
        dtype=RESULT.value,
        is_pure=True,
        pack=1,
    )


@triton.jit
def evaluate(
    x, y, z, w, FUNCTION: tl.constexpr, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr, RESULT: tl.constexpr,
    OPERANDS: tl.constexpr,
):  # fmt: skip
    """FUNCTION of the operands, or, if that is None, the PTX instruction of this text."""
    if FUNCTION is None:
        return instruction(x, y, TEXT, CONSTRAINTS, RESULT, OPERANDS)
    elif OPERANDS == 1:
        return FUNCTION(x)
    elif OPERANDS == 2:
        return FUNCTION(x, y)
    elif OPERANDS == 3:
        return FUNCTION(x, y, z)
    else:
        return FUNCTION(x, y, z, w)


@triton.jit
def weights(j):
    """splitmix64(j) | 1, uint64: the weights of `lpsim.digest`."""
    x = j + 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return (x ^ (x >> 31)) | 1


@triton.jit
def digest_kernel(
    totals, chunks, FUNCTION: tl.constexpr, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr, RESULT: tl.constexpr,
    WORD: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """totals[i] += what inputs p * BLOCK * STEPS .. (p + 1) * BLOCK * STEPS - 1 of chunk chunks[i] add; grid (p, i)."""
    chunk = tl.load(chunks + tl.program_id(1)).to(tl.uint32)
    first = tl.program_id(0) * (BLOCK * STEPS)
    total = tl.zeros((BLOCK,), tl.uint64)
    for step in range(STEPS):
        j = (first + step * BLOCK + tl.arange(0, BLOCK)).to(tl.uint32)
        x = ((chunk << 24) | j).to(tl.float32, bitcast=True)
        y = evaluate(x, x, x, x, FUNCTION, TEXT, CONSTRAINTS, RESULT, 1)
        total += (y.to(WORD, bitcast=True).to(tl.uint64) + 1) * weights(j.to(tl.uint64))
    tl.atomic_add(totals + tl.program_id(1), tl.sum(total))


@triton.jit
def apply_kernel(
    out, x, y, z, w, n, FUNCTION: tl.constexpr, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr, RESULT: tl.constexpr,
    OPERANDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """out[i] = the operation on x[i], y[i], ...; pointers past the operation's operands are not read."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    a = tl.load(x + i, mask=inside, other=0.0)
    b = tl.load(y + i, mask=inside, other=0.0) if OPERANDS > 1 else a
    c = tl.load(z + i, mask=inside, other=0.0) if OPERANDS > 2 else a
    d = tl.load(w + i, mask=inside, other=0.0) if OPERANDS > 3 else a
    tl.store(out + i, evaluate(a, b, c, d, FUNCTION, TEXT, CONSTRAINTS, RESULT, OPERANDS), mask=inside)


@triton.jit
def bits_kernel(
    out, x, n, FUNCTION: tl.constexpr, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr, RESULT: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """out[i] = the bits of a function of x[i], as an integer of out's type."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n, other=0.0)
    y = evaluate(a, a, a, a, FUNCTION, TEXT, CONSTRAINTS, RESULT, 1)
    tl.store(out + i, y.to(out.dtype.element_ty, bitcast=True), mask=i < n)


def _meta(what, fusion: bool = True, **more) -> dict[str, Any]:
    """The kernels' arguments that say which operation, a Triton function or an Instruction, and how it is compiled."""
    options = {"num_warps": 4, "enable_fp_fusion": fusion}
    if isinstance(what, Instruction):
        said = {"FUNCTION": None, "TEXT": what.text, "CONSTRAINTS": what.constraints, "RESULT": what.result}
    else:
        said = {"FUNCTION": what, "TEXT": "", "CONSTRAINTS": "", "RESULT": None}
    return said | options | more


def digests(name: str, word: str, chunks: Iterable[int] = range(CHUNKS)) -> np.ndarray:
    """uint64 (number of chunks,): the digests of a function of UNARY, as `lpsim.digest.digests` defines them.

    word: the unsigned type of the result's bits: uint8, uint16 or uint32.
    """
    import torch

    wanted = torch.tensor(list(chunks), dtype=torch.int32, device="cuda")
    totals = torch.zeros(len(wanted), dtype=torch.int64, device="cuda")
    grid = ((1 << CHUNK_BITS) // (BLOCK * STEPS), len(wanted))
    meta = _meta(UNARY[name], WORD=getattr(tl, word), BLOCK=BLOCK, STEPS=STEPS)
    digest_kernel[grid](totals.view(torch.uint64), wanted, **meta)  # pyright: ignore[reportIndexIssue]
    return totals.cpu().numpy().view(np.uint64)


def apply(what, operands: int, *given: "torch.Tensor", dtype: "torch.dtype", fusion: bool = True) -> "torch.Tensor":
    """(n,) of dtype: the operation on tensors (n,) of one dtype on the GPU.

    what: a function or Instruction of this module. fusion: enable_fp_fusion.
    """
    import torch

    out = torch.empty(given[0].shape, dtype=dtype, device=given[0].device)
    n = out.numel()
    x, y, z, w = (*given, *[given[0]] * (4 - len(given)))
    meta = _meta(what, fusion, OPERANDS=operands, BLOCK=1024)
    apply_kernel[(triton.cdiv(n, 1024),)](out, x, y, z, w, n, **meta)  # pyright: ignore[reportIndexIssue]
    return out


def results(what, x: "torch.Tensor", word: str) -> "torch.Tensor":
    """(n,) of a signed integer type of word's size: the bits of a function's results on x (n,) float32."""
    import torch

    dtype = {"uint8": torch.uint8, "uint16": torch.int16, "uint32": torch.int32}[word]
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    n = out.numel()
    meta = _meta(what, BLOCK=1024)
    bits_kernel[(triton.cdiv(n, 1024),)](out, x, n, **meta)  # pyright: ignore[reportIndexIssue]
    return out

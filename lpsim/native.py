"""Operations of several operands on float32, bfloat16 and float16 as an H200 computes them: codes in, codes out.

bfloat16 and float16 arithmetic is native on sm_90 (add, sub, mul, fma .bf16 and .f16): one rounding to nearest, ties
to even, subnormals kept. Division of 16-bit values is div.full.f32 and one more rounding. Every NaN result is
canonical: 0x7FFFFFFF or 0x7FFF. Names say what is computed; "not fused" is enable_fp_fusion=False.
Source: PTX that Triton 3.6.0 emits for sm_90; results: H200 recordings of drawn operands (data/h200/elementwise.json).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import arrays
from .core import special, special_arith
from .formats import FORMATS
from .threads import parallel_for

GRAIN = 1 << 16
TYPES = ("fp32", "bf16", "fp16")
Values = np.ndarray

FP32: dict[str, Callable[..., Any]] = {
    "add": special_arith.add_array,
    "sub": special_arith.sub_array,
    "mul": special_arith.mul_array,
    "div": special.ARRAYS["div"],
    "div_rn": special.ARRAYS["div_rn"],
    "minimum": special_arith.minimum_array,
    "maximum": special_arith.maximum_array,
    "minimum, NaN kept": special_arith.minimum_nan_array,
    "maximum, NaN kept": special_arith.maximum_nan_array,
    "fma": special_arith.fma_array,
    "x*y + z": special_arith.fma_array,
    "x*y - z": special_arith.mul_sub_array,
    "x*y + z, not fused": special_arith.mul_add_apart_array,
    "x*y - z, not fused": special_arith.mul_sub_apart_array,
    "x*y + z*w": special_arith.mul_add_mul_array,
    "x*y - z*w": special_arith.mul_sub_mul_array,
    "x*y + z*w, not fused": special_arith.mul_add_mul_apart_array,
    "x*y - z*w, not fused": special_arith.mul_sub_mul_apart_array,
}


class Narrow(NamedTuple):
    """The arithmetic of one 16-bit format on float32 values of its grid."""

    fmt: str

    def add(self, x: Values, y: Values) -> Values:
        return arrays.add(x, y, self.fmt)

    def mul(self, x: Values, y: Values) -> Values:
        return arrays.mul(x, y, self.fmt)

    def fma(self, x: Values, y: Values, z: Values) -> Values:
        return arrays.fma(x, y, z, self.fmt)


#: operation -> its results before the last rounding, which leaves all but division's as they are
NARROW: dict[str, Callable[..., Values]] = {
    "add": lambda f, x, y: f.add(x, y),
    "sub": lambda f, x, y: f.add(x, -y),
    "mul": lambda f, x, y: f.mul(x, y),
    "div": lambda f, x, y: _fp32("div", x, y),
    "minimum": lambda f, x, y: _fp32("minimum", x, y),
    "maximum": lambda f, x, y: _fp32("maximum", x, y),
    "minimum, NaN kept": lambda f, x, y: _fp32("minimum, NaN kept", x, y),
    "maximum, NaN kept": lambda f, x, y: _fp32("maximum, NaN kept", x, y),
    "fma": lambda f, x, y, z: f.fma(x, y, z),
    "x*y + z": lambda f, x, y, z: f.fma(x, y, z),
    "x*y - z": lambda f, x, y, z: f.fma(x, y, -z),
    "x*y + z, not fused": lambda f, x, y, z: f.add(f.mul(x, y), z),
    "x*y - z, not fused": lambda f, x, y, z: f.add(f.mul(x, y), -z),
    "x*y + z*w": lambda f, x, y, z, w: f.fma(x, y, f.mul(z, w)),
    "x*y - z*w": lambda f, x, y, z, w: f.fma(x, y, -f.mul(z, w)),
    "x*y + z*w, not fused": lambda f, x, y, z, w: f.add(f.mul(x, y), f.mul(z, w)),
    "x*y - z*w, not fused": lambda f, x, y, z, w: f.add(f.mul(x, y), -f.mul(z, w)),
}


def _fp32(name: str, *operands: Values) -> Values:
    return on_float32(FP32[name], *operands)


def on_float32(loop: Callable[..., Any], *operands: Values) -> Values:
    """float32 (n,): a loop over float32 operands (n,), contiguous, shared by the threads."""
    out = np.empty(operands[0].shape, np.float32)

    def body(start: int, stop: int) -> None:
        loop(*(x[start:stop] for x in operands), out[start:stop])

    parallel_for(body, out.size, GRAIN)
    return out


def operands_of(name: str) -> int:
    """How many operands an operation takes."""
    if name == "fma" or "x*y" not in name:
        return 3 if name == "fma" else 2
    return 4 if "z*w" in name else 3


def names(fmt: str) -> list[str]:
    """The operations of a format."""
    return list(FP32 if fmt == "fp32" else NARROW)


def compute(name: str, fmt: str, codes: list[np.ndarray]) -> np.ndarray:
    """Codes (n,) of the results. codes: uint32 (fp32) or uint16 (bf16, fp16) arrays (n,), contiguous, one each."""
    if fmt == "fp32":
        return _fp32(name, *(x.view(np.float32) for x in codes)).view(np.uint32)
    values = [arrays.decode(x, fmt) for x in codes]
    return arrays.encode(NARROW[name](Narrow(fmt), *values), fmt, nan="nvidia")


def half(instruction: str, codes: np.ndarray) -> np.ndarray:
    """ex2 and tanh .approx on 16-bit floats, codes (n,) to codes: the float32 unit, cut to the format toward zero.

    Beyond the largest finite value that is infinity, not the largest.
    """
    loop, fmt = special.HALVES[instruction]
    wide = np.empty(codes.size, np.float32)
    loop(np.ascontiguousarray(arrays.decode(codes, fmt)), wide)
    cut = arrays.encode(wide, fmt, rounding="rtz", nan="nvidia")
    infinite = ((1 << FORMATS[fmt].bits - 1) - (1 << FORMATS[fmt].precision - 1)) if fmt == "fp16" else 0x7F80
    return np.where(wide >= np.float32(2.0**16) if fmt == "fp16" else np.isposinf(wide), np.uint16(infinite), cut)

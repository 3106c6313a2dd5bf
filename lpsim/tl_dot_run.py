"""A tl.dot computed: `plan`'s steps on arrays; and tl.dot_scaled as Triton emulates it on Hopper.

Operands here are what the kernel loads: codes of bf16, fp16, fp8; float32 and float64 values; int8 integers.
"""

import numpy as np

from . import arrays, dot_kinds
from .dot_units import DotUnit
from .errors import NotModelled, choose
from .formats import FORMATS, container_bits
from .machines import INT8
from .tl_dot import ACC, PARTS, SUM, ZERO, Plan, plan

DTYPES = {"fp32": np.float32, "fp16": np.float16, "fp64": np.float64, "int32": np.int32}


def tf32_nearest(x: np.ndarray) -> np.ndarray:
    """cvt.rna.tf32.f32 of float32 x, as float32: to nearest, ties away; a NaN keeps its upper 19 bits."""
    codes = np.asarray(arrays.encode(x, "tf32", rounding="rna", nan="nvidia"))
    return np.where(np.isnan(x), x.view(np.uint32) & np.uint32(0xFFFFE000), codes).view(np.float32)


def _bf16_codes(x: np.ndarray) -> np.ndarray:
    """cvt.rn.bf16.f32."""
    return np.asarray(arrays.encode(x, "bf16", nan="nvidia"))


def _less(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """RN(x - y) in float32; NaN as FADD writes it."""
    with np.errstate(invalid="ignore", over="ignore"):
        return dot_kinds.with_quiet_nan(x - y)


def _widened(codes: np.ndarray) -> np.ndarray:
    return (codes.astype(np.uint32) << np.uint32(16)).view(np.float32)


def parts(x: np.ndarray, split: str) -> list[np.ndarray]:
    """What tl.dot multiplies instead of float32 x: codes of the split's format, the largest part first.

    tf32 takes the words as they are: the tensor core cuts their low 13 bits. tf32x3: x to nearest, then the rest, cut.
    bf16x3, bf16x6: x to nearest, the rest to nearest, the rest of that to nearest.
    """
    if split in ("none", "ieee"):
        return [x]
    if split == "tf32":
        return [x.view(np.uint32)]
    if split == "tf32x3":
        large = tf32_nearest(x)
        return [large.view(np.uint32), _less(x, large).view(np.uint32)]
    found = []
    for _ in range(PARTS[split]):
        codes = _bf16_codes(x)
        found.append(codes)
        x = _less(x, _widened(codes))
    return found


def run(chosen: Plan, a: np.ndarray, b: np.ndarray, acc: np.ndarray | None) -> np.ndarray:
    """The result of one tl.dot: (..., M, N) in the plan's output dtype.

    a (..., M, K), b (..., K, N): codes of the plan's formats, or float32, float64, int8 arrays; the K that the plan is
    for. acc: the accumulator in the output dtype, or None for zeros.
    """
    a_parts, b_parts = parts(a, chosen.split), parts(b, chosen.split)
    a_fmt, b_fmt = (None if name == INT8 else FORMATS[name] for name in (chosen.a_fmt, chosen.b_fmt))
    shape, dtype = dot_kinds.result_shape(a, b), DTYPES[chosen.out]
    state = {ACC: np.zeros(shape, dtype) if acc is None else acc, SUM: np.zeros(shape, dtype), ZERO: None}
    for step in chosen.steps:
        if step.op == "dot":
            x, y = a_parts[step.a][..., step.start : step.stop], b_parts[step.b][..., step.start : step.stop, :]
            state[step.target] = dot_kinds.dot(x, y, state[step.source], chosen.unit, a_fmt, b_fmt)
        elif step.op == "add":
            state[step.target] = dot_kinds.late_add(state[step.target], state[step.source])
        else:
            state[step.target] = np.where(np.isnan(state[step.target]), dtype(0), state[step.target])
    return np.broadcast_to(state[ACC], shape)


def padded(x: np.ndarray, axis: int, multiple: int) -> np.ndarray:
    """x with zeros behind it along an axis, so that `multiple` divides its length: what a masked load gives."""
    missing = -x.shape[axis] % multiple
    if not missing:
        return x
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, missing)
    return np.pad(x, widths)


def tl_dot(a: np.ndarray, b: np.ndarray, acc, block: tuple[int, int, int], a_fmt, b_fmt, options: dict) -> np.ndarray:
    """A kernel's loop over K: one tl.dot of tiles (block) after the other on one accumulator.

    a (..., M, K), b (..., K, N) as `run` takes them, of any M, N and K: what a tile lacks is loaded as zero.
    options: keyword arguments of `plan`. Raises what `plan` raises.
    """
    chosen = plan(*block, a_fmt, b_fmt, **options)
    a, b = padded(a, -1, block[2]), padded(b, -2, block[2])
    for first in range(0, a.shape[-1], block[2]):
        ks = slice(first, first + block[2])
        acc = run(chosen, a[..., ks], b[..., ks, :], acc)
    return np.zeros(dot_kinds.result_shape(a, b), DTYPES[chosen.out]) if acc is None else acc


SCALED_FORMATS = ("e4m3fn", "e5m2", "e2m1", "bf16", "fp16")
SCALE_BLOCK = 32


def _element_values(codes: np.ndarray, name: str, into: str) -> np.ndarray:
    """Values of elements once they are bf16 or fp16; exact, but for one thing that Triton does.

    e5m2 becomes bf16 by a shift and a multiplication, which makes Inf and NaN the finite numbers 65536 to 114688.
    """
    fmt = FORMATS[name]
    if name == "e5m2" and into == "bf16":
        fmt = fmt._replace(nans=0, infinity=0)
    return np.asarray(arrays.decode(codes, fmt), np.float32)


def _scale_values(scales: np.ndarray, into: str) -> np.ndarray:
    """e8m0 codes as Triton makes them bf16 (code << 7) or fp16 (code << 23, rounded): code 0 is 0, code 255 is Inf."""
    wide = (scales.astype(np.uint32) << np.uint32(23)).view(np.float32)
    if into == "fp16":
        with np.errstate(over="ignore"):
            return wide.astype(np.float16).astype(np.float32)
    return wide


def scaled_operand(codes, scales, name: str, into: str, axis: int, fast_math: bool) -> np.ndarray:
    """Codes of bf16 or fp16: elements times scales, rounded once. scales None: no multiplication, no scale.

    axis: the one that is K, -1 for a and -2 for b. A scale code of 255 makes NaN, unless fast_math.
    """
    values = _element_values(codes, name, into)
    if scales is not None:
        spread = np.repeat(scales, SCALE_BLOCK, axis=axis)
        with np.errstate(invalid="ignore", over="ignore"):
            values = values * _scale_values(spread, into)  # exact in float32 or beyond what bf16 and fp16 hold
        if not fast_math:
            values = np.where(spread == 255, np.float32(np.nan), values)
    return np.asarray(arrays.encode(values, into, nan="nvidia"))


def tl_dot_scaled(a, a_scales, a_name: str, b, b_scales, b_name: str, acc, *, m: int, n: int, **options) -> np.ndarray:
    """tl.dot_scaled on Hopper (Triton 3.6): a (..., M, K), b (..., K, N) codes, one a byte; float32 (..., M, N).

    a_scales (..., M, K / 32), b_scales (..., K / 32, N): e8m0 codes, or None. m, n: the tile, which with num_warps
    decides the instruction. Elements become bf16 (fp16 if one operand is fp16), are multiplied by their scales with
    one rounding, and go through an ordinary dot on the live accumulator.
    Raises NotModelled for mma.sync with e2m1 and K = 32, whose order of k was not read.
    """
    fast_math, num_warps = options.get("fast_math", False), options.get("num_warps", 4)
    for name, argument in ((a_name, "a_fmt"), (b_name, "b_fmt")):
        choose(argument, name, dict.fromkeys(SCALED_FORMATS))
    k = a.shape[-1]
    for scales, axis, argument in ((a_scales, -1, "a_scales"), (b_scales, -2, "b_scales")):
        if k % SCALE_BLOCK or (scales is not None and scales.shape[axis] * SCALE_BLOCK != k):
            raise ValueError(f"{argument}: a scale belongs to {SCALE_BLOCK} consecutive k, and K is {k}.")
    into = "fp16" if "fp16" in (a_name, b_name) else "bf16"
    chosen = plan(m, n, k, into, num_warps=num_warps)
    x = scaled_operand(a, a_scales, a_name, into, -1, fast_math)
    y = scaled_operand(b, b_scales, b_name, into, -2, fast_math)
    unit = chosen.unit
    assert isinstance(unit, DotUnit)
    if chosen.path == "mma":
        unit = _interleaved(unit, (a_name, b_name), k)
    return run(chosen._replace(unit=unit), x, y, acc)


def _interleaved(unit: DotUnit, names: tuple[str, str], k: int) -> DotUnit:
    """mma.sync after narrow loads: a register run holds as many k as the narrowest operand packs into 32 bits."""
    width = 32 // min(container_bits(FORMATS[name]) if name != "e2m1" else 4 for name in names)
    if k < 8 * width:
        raise NotModelled(
            f"tl.dot_scaled of {' x '.join(names)} with K = {k} on mma.sync: the order of k is not known."
        )
    return unit._replace(k_width=width)


__all__ = ["DTYPES", "padded", "parts", "run", "tl_dot", "tl_dot_scaled"]

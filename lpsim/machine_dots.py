"""What the dots of `Machine` do: operands of any kind in, the row or the plan, arrays out."""

from typing import NamedTuple

import numpy as np

from . import border, dot_kinds, machines, tl_dot_run
from .dot_units import ScaledUnit
from .errors import NotModelled
from .formats import FORMATS, Format, fmt_name, lookup
from .machines import INT8
from .operands import operand

PLAIN = {np.dtype(np.float32): "fp32", np.dtype(np.float64): "fp64"}
ACCUMULATORS = {"fp32": np.float32, "fp16": np.float16, "fp64": np.float64, "int32": np.int32}


class Operand(NamedTuple):
    """One operand: its codes (or float32, float64, int8 numbers), its format's name and row."""

    array: np.ndarray
    name: str
    fmt: Format | None  #: None for int8
    torch: bool


def taken(x, name: str, fmt, plain_floats: bool = False) -> Operand:
    """x as a dot takes it. plain_floats: float32 and float64 arrays without fmt are fp32 and fp64.

    Raises TypeError for dtypes that the format does not go with, ValueError for values off its grid.
    """
    given = border.raw(x, name)
    dtype = given.array.dtype
    if dtype == np.int8 and fmt in (None, INT8):
        return Operand(given.array, INT8, None, given.torch)
    if fmt == INT8:
        raise TypeError(f"{name} has dtype {dtype}, but fmt='int8' takes int8 arrays.")
    if fmt is None and plain_floats and dtype in PLAIN:
        fmt = PLAIN[dtype]
    row = None if fmt is None else lookup(fmt)
    for wanted, plain in PLAIN.items():
        if row is not None and row == FORMATS[plain]:
            if dtype != wanted:
                raise TypeError(f"{name} has dtype {dtype}, but a dot of {plain} takes {wanted} arrays.")
            return Operand(given.array, plain, row, given.torch)
    given, codes, row = operand(x, name, fmt)
    return Operand(codes, fmt_name(row), row, given.torch)


def pair(a, b, fmt, a_fmt, b_fmt, plain_floats: bool = False) -> tuple[Operand, Operand]:
    """Both operands; a_fmt and b_fmt go before fmt."""
    return (
        taken(a, "a", a_fmt if a_fmt is not None else fmt, plain_floats),
        taken(b, "b", b_fmt if b_fmt is not None else fmt, plain_floats),
    )


def addend(c, accumulator: str, name: str = "c"):
    """(array or None, whether it came from torch) of an accumulator; TypeError for another dtype."""
    if c is None:
        return None, False
    given = border.raw(c, name)
    wanted = np.dtype(ACCUMULATORS[accumulator])
    if given.array.dtype != wanted:
        raise TypeError(f"{name} has dtype {given.array.dtype}, but the accumulator is {wanted}.")
    return given.array, given.torch


def returned(result: np.ndarray, *torch: bool):
    return border.to_torch(np.array(result)) if any(torch) else result


def _row_formats(x: Operand, y: Operand):
    return (x.fmt or INT8, y.fmt or INT8)


def dot(machine: str, a, b, c, formats: tuple, path: str | None, accumulator: str | None):
    """`Machine.dot`; formats: fmt, a_fmt, b_fmt as given."""
    x, y = pair(a, b, *formats)
    row = machines.dot_row(machine, path, *_row_formats(x, y), accumulator)
    start, torch = addend(c, machines.accumulator_of(row.unit))
    result = dot_kinds.dot(x.array, y.array, start, row.unit, x.fmt, y.fmt)
    return returned(result, x.torch, y.torch, torch)


def scales_of(scales, fmt: Format, name: str) -> np.ndarray:
    """Codes of scales: uint8, or an ml_dtypes array of their format."""
    return border.codes(scales, fmt, name).array if border.raw(scales, name).array.dtype.kind == "u" else (
        operand(scales, name, fmt)[1]
    )  # fmt: skip


def dot_scaled(machine: str, a, a_scales, b, b_scales, c, formats: tuple, scale_fmt, path: str | None):
    """`Machine.dot_scaled`: the block-scaled instruction."""
    x, y = pair(a, b, *formats)
    row = machines.scaled_row(machine, path, *_row_formats(x, y), scale_fmt)
    scale = lookup(scale_fmt, "scale_fmt")
    start, torch = addend(c, "fp32")
    scales = [scales_of(s, scale, name) for s, name in ((a_scales, "a_scales"), (b_scales, "b_scales"))]
    assert x.fmt is not None
    assert y.fmt is not None
    assert isinstance(row.unit, ScaledUnit)
    result = dot_kinds.scaled(x.array, scales[0], y.array, scales[1], start, row.unit, (x.fmt, y.fmt, scale))
    return returned(result, x.torch, y.torch, torch)


def _tile(size: int, least: int) -> int:
    """The power of two that a tile of `size` needs."""
    return max(least, 1 << (size - 1).bit_length())


def tile_of(x: Operand, y: Operand, block, least_k: int) -> tuple[int, int, int]:
    """block as given, or one tile that holds both operands."""
    if block is not None:
        m, n, k = block
        return m, n, k
    if x.array.ndim < 2 or y.array.ndim < 2:
        raise ValueError(f"a {x.array.shape} and b {y.array.shape} must be (..., M, K) and (..., K, N).")
    return _tile(x.array.shape[-2], 1), _tile(y.array.shape[-1], 1), _tile(x.array.shape[-1], least_k)


def tl_dot(machine: str, a, b, acc, formats: tuple, block, options: dict):
    """`Machine.tl_dot`."""
    x, y = pair(a, b, *formats, plain_floats=True)
    narrow = x.fmt is None or x.name in ("e4m3fn", "e5m2")
    tile = tile_of(x, y, block, 32 if narrow else 16)
    chosen = tl_dot_run.plan(*tile, *_row_formats(x, y), machine=machine, **options)
    start, torch = addend(acc, chosen.out, "acc")
    result = tl_dot_run.tl_dot(x.array, y.array, start, tile, *_row_formats(x, y), options | {"machine": machine})
    return returned(result, x.torch, y.torch, torch)


def tl_dot_scaled(machine: str, a, a_scales, b, b_scales, acc, formats: tuple, block, options: dict):
    """`Machine.tl_dot_scaled`."""
    if machine not in ("h100", "h200"):
        raise NotModelled(f"{machine}: tl.dot_scaled is modelled as Triton emulates it on sm_90 (h100, h200) only.")
    x, y = pair(a, b, *formats)
    m, n, _ = tile_of(x, y, None if block is None else (*block, 1), 32)
    scales = [
        None if s is None else scales_of(s, FORMATS["e8m0"], name)
        for s, name in ((a_scales, "a_scales"), (b_scales, "b_scales"))
    ]
    start, torch = addend(acc, "fp32", "acc")
    result = tl_dot_run.tl_dot_scaled(
        x.array, scales[0], x.name, y.array, scales[1], y.name, start, m=m, n=n, **options
    )
    return returned(result, x.torch, y.torch, torch)

"""Dots of arrays on every type of unit in `dot_units`: the table KINDS says which function computes which.

All take (a, b, c, unit, a_fmt, b_fmt): a (..., M, K) and b (..., K, N), leading dimensions broadcast; c (..., M, N) in
the accumulator's dtype, or None for zeros; they return (..., M, N) in that dtype. Operands are codes of their
formats, except for FmaUnit (float32 or float64) and IntegerUnit (int8). K is padded with zeros where a block needs it.
A NaN result of NVIDIA's units is all ones below a clear sign; of AMD's, only that it is NaN is meant.
"""

import math

import numpy as np

from . import dots
from ._jit import njit
from .arrays import decode
from .core import dpa_amd, dpa_scaled, kulisch
from .core.intrinsics import fma_f32, fma_f64
from .dot_units import DotUnit, ExactUnit, FloorUnit, FlushUnit, FmaUnit, IntegerUnit, LateUnit, ScaledUnit
from .errors import NotModelled
from .formats import Format, max_value, min_positive
from .threads import parallel_for

GRAIN = 1 << 16  #: scalar multiply-adds that one piece of work has at least
QUIET_NAN = {
    np.dtype(np.float16): np.uint16(0x7FFF),
    np.dtype(np.float32): np.uint32(0x7FFFFFFF),
    np.dtype(np.float64): np.uint64(0x7FFFFFFFFFFFFFFF),
}
SMALLEST_NORMAL = np.float32(2.0**-126)


def with_quiet_nan(x: np.ndarray) -> np.ndarray:
    """x with every NaN as NVIDIA's arithmetic writes it; in place."""
    nan = np.isnan(x)
    if nan.any():
        code = QUIET_NAN[x.dtype]
        x[nan] = code.view(x.dtype)
    return x


def late_add(c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """RN(c + d) as FADD and HADD2 add: subnormals kept, NaN all ones below a clear sign. Both of one float dtype."""
    with np.errstate(invalid="ignore", over="ignore"):
        return with_quiet_nan(np.asarray(c + d))


def result_shape(a: np.ndarray, b: np.ndarray) -> tuple[int, ...]:
    """(..., M, N); ValueError for shapes that do not fit."""
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(f"a {a.shape} and b {b.shape} do not fit: they must be (..., M, K) and (..., K, N).")
    return (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])


def _accumulator(c, shape, dtype) -> np.ndarray:
    result = np.zeros(shape, dtype)
    if c is not None:
        if c.dtype != dtype:
            raise TypeError(f"c has dtype {c.dtype}, but the accumulator is {np.dtype(dtype)}.")
        result[...] = c
    return result


def flattened(x: np.ndarray, batch: tuple[int, ...], dtype=None) -> np.ndarray:
    """(batch, rows, columns), C-contiguous and writable, whatever x's layout and broadcasting."""
    wide = np.broadcast_to(x, (*batch, *x.shape[-2:])).reshape((math.prod(batch), *x.shape[-2:]))
    return np.require(wide, dtype, requirements=["C", "W"])


def fused(a, b, c, unit: DotUnit, a_fmt: Format, b_fmt: Format) -> np.ndarray:
    """A DotUnit: `dots.dot`, with fp16 accumulators as float16."""
    if unit.exponent_bits == 8:
        return dots.dot(a, b, c, unit, a_fmt, b_fmt)
    if c is not None and c.dtype != np.float16:
        raise TypeError(f"c has dtype {c.dtype}, but the accumulator is float16.")
    wide = dots.dot(a, b, None if c is None else c.astype(np.float32), unit, a_fmt, b_fmt)
    return with_quiet_nan(wide.astype(np.float16))


def late(a, b, c, unit: LateUnit, a_fmt: Format, b_fmt: Format) -> np.ndarray:
    """A LateUnit: each k products from zero, then one addition."""
    dtype = np.float32 if unit.unit.exponent_bits == 8 else np.float16
    total = _accumulator(c, result_shape(a, b), dtype)
    for first in range(0, a.shape[-1], unit.k):
        slab = slice(first, first + unit.k)
        total = late_add(total, fused(a[..., slab], b[..., slab, :], None, unit.unit, a_fmt, b_fmt))
    return total


@njit
def _fma_rows32(a, b, c, start, stop):
    for row in range(start, stop):
        which, i = row // c.shape[1], row % c.shape[1]
        for k in range(a.shape[2]):
            for j in range(c.shape[2]):
                c[which, i, j] = fma_f32(a[which, i, k], b[which, k, j], c[which, i, j])


@njit
def _fma_rows64(a, b, c, start, stop):
    for row in range(start, stop):
        which, i = row // c.shape[1], row % c.shape[1]
        for k in range(a.shape[2]):
            for j in range(c.shape[2]):
                c[which, i, j] = fma_f64(a[which, i, k], b[which, k, j], c[which, i, j])


def fma_chain(a, b, c, unit: FmaUnit, a_fmt: Format, b_fmt: Format) -> np.ndarray:
    """An FmaUnit: float32 or float64 operands."""
    dtype, rows = (np.float32, _fma_rows32) if unit.bits == 32 else (np.float64, _fma_rows64)
    shape = result_shape(a, b)
    total = _accumulator(c, shape, dtype)
    flat = total.reshape((math.prod(shape[:-2]), *shape[-2:]))
    x, y = flattened(a, shape[:-2], dtype), flattened(b, shape[:-2], dtype)
    grain = max(1, 4 * GRAIN // max(1, shape[-1] * a.shape[-1]))
    if total.size:
        parallel_for(lambda start, stop: rows(x, y, flat, start, stop), len(flat) * shape[-2], grain)
    return with_quiet_nan(total) if a.shape[-1] else total


def integers(a, b, c, unit: IntegerUnit, a_fmt, b_fmt) -> np.ndarray:
    """An IntegerUnit: int8 operands, int32 accumulator."""
    for x, name in ((a, "a"), (b, "b")):
        if x.dtype != np.int8:
            raise TypeError(f"{name} has dtype {x.dtype}, but the instruction multiplies int8.")
    total = _accumulator(c, result_shape(a, b), np.int32).astype(np.int64)
    low, high = (np.iinfo(np.int32).min, np.iinfo(np.int32).max) if unit.saturates else (None, None)
    for first in range(0, a.shape[-1], unit.k):
        slab = slice(first, first + unit.k)
        # Exact: float64 holds every sum of so few products below 2^14.
        total += np.matmul(a[..., slab].astype(np.float64), b[..., slab, :].astype(np.float64)).astype(np.int64)
        if unit.saturates:
            np.clip(total, low, high, out=total)
    return total.astype(np.int32)


@njit
def _exact_rows(a, b, c, start, stop, a_fmt, b_fmt, unit):
    limbs = kulisch.new()
    for row in range(start, stop):
        which, i = row // c.shape[1], row % c.shape[1]
        for j in range(c.shape[2]):
            column = b[which, :, j].copy()
            c[which, i, j] = dpa_amd.exact_dot(a[which, i], column, c[which, i, j], a_fmt, b_fmt, unit, limbs)


@njit
def _floor_rows(a, b, c, start, stop, a_fmt, b_fmt, unit):
    for row in range(start, stop):
        which, i = row // c.shape[1], row % c.shape[1]
        for j in range(c.shape[2]):
            column = b[which, :, j].copy()
            c[which, i, j] = dpa_amd.floor_dot(a[which, i], column, c[which, i, j], a_fmt, b_fmt, unit)


@njit
def _scaled_rows(a, b, c, start, stop, a_scales, b_scales, formats, unit):
    for row in range(start, stop):
        which, i = row // c.shape[1], row % c.shape[1]
        for j in range(c.shape[2]):
            column, scales = b[which, :, j].copy(), b_scales[which, :, j].copy()
            c[which, i, j] = dpa_scaled.dot(
                a[which, i], column, c[which, i, j], a_scales[which, i], scales, formats, unit
            )


def _by_rows(rows, a, b, c, *more) -> np.ndarray:
    """Rows of outputs shared among threads; the compiled function works on int64 codes of an fp32 accumulator."""
    shape = result_shape(a, b)
    total = _accumulator(c, shape, np.float32)
    if total.size == 0:
        return total
    codes = total.view(np.uint32).astype(np.int64).reshape((math.prod(shape[:-2]), *shape[-2:]))
    x, y = flattened(a, shape[:-2], np.int64), flattened(b, shape[:-2], np.int64)
    grain = max(1, GRAIN // max(1, shape[-1] * a.shape[-1]))
    parallel_for(lambda start, stop: rows(x, y, codes, start, stop, *more), len(codes) * shape[-2], grain)
    return codes.astype(np.uint32).view(np.float32).reshape(shape)


def exact(a, b, c, unit: ExactUnit, a_fmt: Format, b_fmt: Format) -> np.ndarray:
    """An ExactUnit."""
    return _by_rows(_exact_rows, a, b, c, a_fmt, b_fmt, unit)


def floored(a, b, c, unit: FloorUnit, a_fmt: Format, b_fmt: Format) -> np.ndarray:
    """A FloorUnit."""
    return _by_rows(_floor_rows, a, b, c, a_fmt, b_fmt, unit)


def _flushed(x: np.ndarray, smallest: np.float32, keep_sign: bool) -> np.ndarray:
    return np.where(np.abs(x) < smallest, np.copysign(np.float32(0), x) if keep_sign else np.float32(0), x)


def flushing(a, b, c, unit: FlushUnit, a_fmt: Format, b_fmt: Format) -> np.ndarray:
    """A FlushUnit: every step a float32 operation on whole arrays."""
    total = _flushed(_accumulator(c, result_shape(a, b), np.float32), SMALLEST_NORMAL, False)
    x, y = (
        _flushed(np.asarray(decode(codes, fmt), np.float32), np.float32(2.0 ** dots.emin_of(fmt)), False)
        for codes, fmt in ((a, a_fmt), (b, b_fmt))
    )
    with np.errstate(all="ignore"):
        for first in range(0, x.shape[-1], unit.group):
            ks = range(first, first + unit.group)  # a k beyond the end is a product of +0
            terms = [_product(x, y, k) if k < x.shape[-1] else np.zeros((), np.float32) for k in ks]
            while len(terms) > 1:
                terms = [_flushed(p + q, SMALLEST_NORMAL, True) for p, q in zip(terms[::2], terms[1::2], strict=True)]
            total = _flushed(total + terms[0], SMALLEST_NORMAL, True)
    return total


def _product(x: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    return _flushed(x[..., :, k, None] * y[..., k, None, :], SMALLEST_NORMAL, True)


#: type of a unit -> the function that computes it
KINDS = {
    DotUnit: fused,
    LateUnit: late,
    FmaUnit: fma_chain,
    IntegerUnit: integers,
    ExactUnit: exact,
    FlushUnit: flushing,
    FloorUnit: floored,
}


def dot(a, b, c, unit, a_fmt, b_fmt) -> np.ndarray:
    """The dot on a unit of any type but ScaledUnit. ValueError for shapes, TypeError for dtypes that do not fit."""
    return KINDS[type(unit)](np.asarray(a), np.asarray(b), None if c is None else np.asarray(c), unit, a_fmt, b_fmt)


def scaled(a, a_scales, b, b_scales, c, unit: ScaledUnit, formats: tuple[Format, Format, Format]) -> np.ndarray:
    """A dot of blocks on a ScaledUnit: float32 (..., M, N).

    a (..., M, K), b (..., K, N): codes, one a byte, of formats[0] and formats[1]. a_scales (..., M, K / scale_block),
    b_scales (..., K / scale_block, N): codes of formats[2]. c: float32 or None. K must be a multiple of scale_block.
    Raises ValueError for shapes that do not fit, NotModelled where a group's exact sum needs more than 40 bits.
    """
    shape, k = result_shape(a, b), a.shape[-1]
    if k % unit.scale_block or a_scales.shape[-1] * unit.scale_block != k or b_scales.shape[-2] != a_scales.shape[-1]:
        raise ValueError(
            f"a {a.shape} with scales {a_scales.shape}, b {b.shape} with scales {b_scales.shape}: a scale belongs to "
            f"{unit.scale_block} consecutive k, so K must be a multiple and K / {unit.scale_block} scales be given."
        )
    spread = math.prod(max_value(fmt) / min_positive(fmt) for fmt in formats[:2])
    if unit.group > 1 and spread >= 1 << 40:
        raise NotModelled(f"groups of {unit.group} products of formats this wide are not summed exactly here.")
    batch = shape[:-2]
    scales = flattened(a_scales, batch, np.int64), flattened(b_scales, batch, np.int64)
    return _by_rows(_scaled_rows, a, b, c, *scales, formats, unit)


__all__ = ["KINDS", "dot", "late_add", "scaled", "with_quiet_nan"]

"""Dots of arrays on a dot unit: decode, split into tiles, choose the routine, share among threads.

Three routines give the same bits:
  `core/dpa`    integers, one output at a time: the reference, for every unit
  `tile_f64`    float64 vectors: any data, units that end in a truncated fp32
  `tile_i32`    float32 and int32 vectors: most data; the rest is seen, row by row, and left to `tile_f64`

For compiled code (attention): `dot_tile(a, b, c, a_emin, b_emin, unit)`, callable from any @njit function,
    a (M, K), b (K, N) float32 arrays of any layout with exact values, c (M, N) float32 in place;
    a_emin = emin_of(fmt), the exponent of the format's smallest normal number.
"""

import functools
import math

import numpy as np

from ._jit import njit
from .core import dpa
from .core.codec import pack_f64, unpack
from .core.intrinsics import bits_to_f64
from .formats import Format, container_bits, exponent_bits
from .machines import DotUnit
from .threads import parallel_for
from .tiles import covers, dot_region, dot_tile

__all__ = ["DotUnit", "covers", "dot", "dot_tile", "emin_of", "operand_values"]

ROWS = COLUMNS = 256  #: of the regions that a large dot is split into; fits the L2 cache with its panels
GRAIN = 1 << 22  #: multiply-adds that one piece of work has at least, so that threads are worth their start


def emin_of(fmt: Format) -> int:
    """Exponent of the smallest normal number: what subnormal operands and zeros of a format count from."""
    return fmt.subnormals - fmt.exponent_bias


def _is_prefix_of_fp32(fmt: Format) -> bool:
    """True if the codes are the upper bits of binary32 (bf16, tf32): a shift decodes them."""
    pattern = (1, 8, 1, 127)
    return (fmt.signed, exponent_bits(fmt), fmt.infinity, fmt.exponent_bias) == pattern and fmt.nans > 0


@njit
def _decode_all(fmt, values):
    for code in range(len(values)):
        x = unpack(code << fmt.pad, fmt)
        values[code] = np.float32(bits_to_f64(pack_f64(x.kind, x.sign, x.exp, x.sig)))


@functools.cache
def _value_table(fmt: Format) -> np.ndarray:
    values = np.empty(1 << fmt.bits, np.float32)
    _decode_all(fmt, values)
    return values


def operand_values(codes: np.ndarray, fmt: Format) -> np.ndarray:
    """Exact float32 values of codes, as a dot unit reads them: padding bits (tf32's low 13) are cut off.

    codes: uint8, uint16 or uint32 array, the container of fmt. Source: PTX ISA, wgmma .tf32.
    Raises TypeError for another dtype, ValueError for codes that are too large or formats with more than 11
    significant bits or 16 bits outside fp32's pattern.
    """
    wanted = np.dtype(f"uint{container_bits(fmt)}")
    if codes.dtype != wanted:
        raise TypeError(f"codes of {fmt} are {wanted}, got {codes.dtype}.")
    if fmt.precision > 11:
        raise ValueError(f"{fmt} has {fmt.precision} significant bits; dot units multiply at most 11.")
    if _is_prefix_of_fp32(fmt):
        words = codes.astype(np.uint32)
        words <<= np.uint32(32 - container_bits(fmt))
        if fmt.pad:
            words &= np.uint32(-(1 << (32 - fmt.bits)) & 0xFFFFFFFF)
        return words.view(np.float32)
    if codes.size and int(codes.max()) >> (fmt.bits + fmt.pad):
        raise ValueError(f"code {int(codes.max()):#x} is too large for {fmt}.")
    return _value_table(fmt)[codes >> fmt.pad]


@njit
def _dot_items(a, b, c, start, stop, a_emin, b_emin, unit, quick):
    """Regions number start .. stop of a batch: rows fastest, then columns, then matrices. c in place."""
    row_tiles = (c.shape[1] + ROWS - 1) // ROWS
    column_tiles = (c.shape[2] + COLUMNS - 1) // COLUMNS
    for item in range(start, stop):
        i0 = item % row_tiles * ROWS
        j0 = item // row_tiles % column_tiles * COLUMNS
        which = item // (row_tiles * column_tiles)
        a_rows, b_columns = a[which, i0 : i0 + ROWS], b[which, :, j0 : j0 + COLUMNS]
        dot_region(a_rows, b_columns, c[which], i0, j0, a_emin, b_emin, unit, quick)


@njit
def _dot_reference(a, b, c, start, stop, a_fmt, b_fmt, unit):
    """Rows start .. stop of a batch, counted through it, by `core/dpa`; int64 codes, c in place."""
    for row in range(start, stop):
        which, i = row // c.shape[1], row % c.shape[1]
        for j in range(c.shape[2]):
            column = b[which, :, j].copy()
            c[which, i, j] = dpa.dot(a[which, i, :], column, c[which, i, j], a_fmt, b_fmt, unit)


def _tiled(a, b, c, unit: DotUnit, a_fmt: Format, b_fmt: Format, quick: bool = True) -> None:
    # One memory layout, whatever the caller's: every other one would compile the whole dot once more.
    a_values = np.require(operand_values(a, a_fmt), requirements=["C", "W"])
    b_values = np.require(operand_values(b, b_fmt), requirements=["C", "W"])
    rows, columns = min(c.shape[1], ROWS), min(c.shape[2], COLUMNS)
    items = c.shape[0] * -(-c.shape[1] // ROWS) * -(-c.shape[2] // COLUMNS)
    grain = max(1, GRAIN // max(1, rows * columns * a.shape[2]))

    def piece(start, stop):
        _dot_items(a_values, b_values, c, start, stop, emin_of(a_fmt), emin_of(b_fmt), unit, quick)

    parallel_for(piece, items, grain)


def _by_reference(a, b, c, unit: DotUnit, a_fmt: Format, b_fmt: Format) -> None:
    container, word = (np.float32, np.uint32) if unit.exponent_bits == 8 else (np.float16, np.uint16)
    narrow = c.astype(container)
    if not np.array_equal(narrow.astype(np.float32), c, equal_nan=True):
        raise ValueError("c must hold values of the unit's accumulator, fp16.")
    codes = narrow.view(word).astype(np.int64)
    a64, b64 = a.astype(np.int64), b.astype(np.int64)

    def piece(start, stop):
        _dot_reference(a64, b64, codes, start, stop, a_fmt, b_fmt, unit)

    parallel_for(piece, c.shape[0] * c.shape[1], max(1, GRAIN // 64 // max(1, c.shape[2] * a.shape[2])))
    c[...] = codes.astype(word).view(container)


def _batched(x: np.ndarray, batch: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(x, batch + x.shape[-2:]).reshape((math.prod(batch), *x.shape[-2:]))


def dot(a, b, c, unit: DotUnit, a_fmt: Format, b_fmt: Format) -> np.ndarray:
    """The chained dot of codes on an accumulator: float32 (..., M, N), as the unit's instruction gives it.

    a (..., M, K), b (..., K, N): arrays of codes of a_fmt and b_fmt (uint8, uint16, uint32); the leading
    dimensions broadcast. c: float32, broadcast to the result, or None for zeros. K is padded with zeros to
    whole blocks; blocks follow each other on the live accumulator. NaN is 0x7FFFFFFF, a zero sum +0.
    A unit that accumulates in fp16 takes and gives fp16 values, in float32 (NaN then is any NaN).
    Raises ValueError for shapes that do not fit, TypeError for other dtypes.
    """
    a, b = np.asarray(a), np.asarray(b)
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(f"a {a.shape} and b {b.shape} do not fit: they must be (..., M, K) and (..., K, N).")
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    result = np.zeros(shape, np.float32)
    if c is not None:
        c = np.asarray(c)
        if c.dtype != np.float32:
            raise TypeError(f"c has dtype {c.dtype}, but the accumulator is float32.")
        result[...] = c
    if result.size == 0:
        return result
    flat = result.reshape((math.prod(batch), *shape[-2:]))
    routine = _tiled if covers(unit) else _by_reference
    routine(_batched(a, batch), _batched(b, batch), flat, unit, a_fmt, b_fmt)
    return result

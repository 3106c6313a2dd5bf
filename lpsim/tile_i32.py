"""One block of a dot in float32 and int32, for the rows whose data allow it; the others are flagged.

In each block every row of A and column of B is divided by its own largest power of two (its offset), so that
products are below 16 and, scaled, below 2^(2 + fraction_bits), whatever the data's range. The float32 product
of two operands of at most 11 bits is exact, scaling by a power of two is exact, conversion to int32
truncates: these are the integers of `core/dpa`. (What underflows on the way is too small to leave a bit.)

Flagged, by conditions that may be too strict but never too lax, is what this cannot hold: products all of
which lie 60 or more binades below the block's own maxima (the int8 exponents are clamped there); an alignment
exponent outside [LOWEST, 127] (subnormal or overflowing results, Inf, NaN; but not where all is zero, products
and accumulator); a sum that may have left int32. A flagged row leaves c untouched. Vectorises as `tile_f64`
does, with twice the lanes.
"""

from typing import NamedTuple

import numpy as np

from . import tile_f64
from ._jit import merged, njit
from .core.aligned import aligned
from .core.intrinsics import bits_to_f32, f32_to_bits, inlined, select, wide_vectors
from .tile_f64 import VECTOR, padded

i8, i32, u32, u64, f32 = np.int8, np.int32, np.uint32, np.uint64, np.float32

GROUP = 8  #: lanes that the compiler unrolls in the sum of products: more than these do not fit AVX2's registers
PADDED = 16  #: panels have a multiple of so many lanes, zeros beyond the unit's
CLAMPED = -62  #: least relative exponent; two of them fit in int8
DEEPEST = -60  #: flagged if all products of a row and column lie at or below this
LOWEST = -100  #: least alignment exponent that is not flagged
LARGEST_OFFSET = 126  #: not 127, whose inverse is no normal float32: operands are below 4 then, and no harm done
OFFSET_ZERO = -1000  #: offset of a block of zeros: two of them, and one beside any other, never decide E
ONLY_ZEROS = OFFSET_ZERO + 128  #: two offsets add up to this or less if a block of zeros, and none with Inf, is there
OFFSET_SPECIAL = 5000  #: offset of a block with Inf or NaN: always flagged
MAGNITUDE = 0x7FFFFFFF
BIG = 0x7C000000  #: a wrapped sum is at least this large: 16 products stay below 2^31, c below 2^26


class Panel(NamedTuple):
    """One block of an operand: arrays (lanes, width), and (width,) for the offsets."""

    values: np.ndarray  #: float32
    exponents: np.ndarray  #: int8
    offsets: np.ndarray  #: int32


class Rows(NamedTuple):
    """Work space for one row of a block, arrays (width,)."""

    largest: np.ndarray  #: int8: the largest relative exponent of the products
    e: np.ndarray  #: int32: the alignment exponent E
    scale: np.ndarray  #: float32: 2^(fraction_bits - E), relative to the offsets
    total: np.ndarray  #: int32: the sum of truncated terms
    result: np.ndarray  #: float32


@njit
def covers(unit):
    """True for units of `tile_f64` whose products, a block of them, add up to less than 2^31."""
    wide = (unit.fraction_bits <= 25) & (unit.lanes <= 16)
    narrow = (unit.fraction_bits <= 24) & (unit.lanes <= 32)
    return tile_f64.covers(unit) & (wide | narrow)


@njit
def new_panel(lanes, width):
    values, exponents = aligned(lanes * width, f32), aligned(lanes * width, i8)
    return Panel(values.reshape((lanes, width)), exponents.reshape((lanes, width)), aligned(width, i32))


@njit
def new_rows(width):
    return Rows(
        aligned(width, i8), aligned(width, i32), aligned(width, f32), aligned(width, i32), aligned(width, f32)
    )  # fmt: skip


@inlined
def _exponent(bits, emin):
    """Exponent that a float32 of these bits, the sign cut off, takes part with, at least emin; 128 for Inf and NaN."""
    return max(i32(i32(bits >> u32(23)) - i32(127)), i32(emin))


@njit
def pack(raw, emin, panel):
    """Offsets, and values and exponents relative to them, of a gathered block (`tile_f64.gather`)."""
    wide_vectors()
    lanes, n = u64(raw.shape[0]), u64(raw.shape[1])
    values, exponents, offsets = panel
    for j in range(n):
        offsets[j] = i32(0)
    for g in range(u64(0), lanes, u64(GROUP)):  # the largest magnitude has the largest exponent
        for j in range(n):
            m = offsets[j]
            for k in range(u64(GROUP)):
                m = max(m, i32(f32_to_bits(raw[g + k, j]) & u32(MAGNITUDE)))
            offsets[j] = m
    for j in range(n):
        e = _exponent(u32(offsets[j]), emin)
        e = select(e == i32(128), i32(OFFSET_SPECIAL), min(e, i32(LARGEST_OFFSET)))
        offsets[j] = select(offsets[j] == i32(0), i32(OFFSET_ZERO), e)
    for lane in range(lanes):
        for j in range(n):
            usable = (offsets[j] > i32(OFFSET_ZERO)) & (offsets[j] < i32(OFFSET_SPECIAL))
            offset, x = select(usable, offsets[j], i32(0)), raw[lane, j]
            bits = u32(f32_to_bits(x) & u32(MAGNITUDE))
            e = max(i32(_exponent(bits, emin) - offset), i32(CLAMPED))
            e = select(bits == u32(0), i32(CLAMPED), e)
            exponents[lane, j] = i8(select(usable, e, i32(0)))
            values[lane, j] = select(usable, x * bits_to_f32(i32(i32(i32(127) - offset) << 23)), f32(0))


@merged
def _largest_exponents(ea, eb, i, n, largest):
    """largest[j] = max over the block's lanes of ea + eb for n columns; returns the least of them."""
    least = i8(0)
    for j in range(n):
        m = i8(2 * CLAMPED)
        for k in range(u64(PADDED)):
            m = max(m, i8(ea[k, i] + eb[k, j]))
        largest[j] = m
        least = min(least, m)
    for g in range(u64(PADDED), u64(eb.shape[0]), u64(GROUP)):
        least = i8(0)
        for j in range(n):
            m = largest[j]
            for k in range(u64(GROUP)):
                m = max(m, i8(ea[g + k, i] + eb[g + k, j]))
            largest[j] = m
            least = min(least, m)
    return least


@merged
def _only_zeros(c, row, column, n, offset, offsets, alignment):
    """True if the columns whose E is out of range are zeros: products and c; their E is then 0, and the sum +0.

    Such columns are what causal masking leaves of the weights.
    """
    others = i32(0)
    for j in range(u64(n)):
        out = (alignment[j] < i32(LOWEST)) | (alignment[j] > i32(127))
        zero = (c[row, column + j] == f32(0)) & (i32(offset + offsets[j]) <= i32(ONLY_ZEROS))
        others = max(others, select(zero, i32(0), i32(out)))
        alignment[j] = select(out, i32(0), alignment[j])
    return others == i32(0)


@njit
def block(a, b, c, c_row, c_column, n, work, unit, flagged):
    """One block for all rows of a, in place: row c_row + i of c, n columns from c_column; returns how many are left.

    a, b: Panels; work: Rows. flagged: bool (rows,), set for the rows that are left to `tile_f64.block`.
    In a row that step 2 flags, its scales and totals may be out of range; nothing reads them.
    """
    wide_vectors()
    largest, alignment, scale, total, result = work
    width, lanes, column = u64(padded(n, VECTOR)), u64(padded(unit.lanes, GROUP)), u64(c_column)
    up, down = i32(127 + unit.fraction_bits), i32(127 - unit.fraction_bits)
    keep = u32((-1 << (23 - unit.output_fraction)) & 0xFFFFFFFF)
    left = 0
    for i in range(u64(len(flagged))):
        row, offset = u64(c_row) + i, a.offsets[i]
        # 1. The largest exponent of the products, relative to the offsets.
        least = _largest_exponents(a.exponents, b.exponents, i, width, largest)
        # 2. E, the scale 2^(fraction_bits - E) relative to the offsets, and the truncated accumulator.
        span, big = u32(0), u32(0)
        for j in range(u64(n)):
            x = c[row, column + j]
            field = i32((f32_to_bits(x) >> u32(23)) & u32(0xFF))  # 0 for c = 0: too low to decide anything
            both = i32(offset + b.offsets[j])
            e = max(i32(both + i32(largest[j])), i32(field - i32(127)))
            span = max(span, u32(e - i32(LOWEST)))
            alignment[j] = e
            scale[j] = bits_to_f32(i32(max(i32(up - i32(e - both)), i32(0)) << 23))
            total[j] = i32(x * bits_to_f32(i32(i32(up - e) << 23)))
        flagged[i] = least <= DEEPEST
        if span > u32(127 - LOWEST):
            flagged[i] |= not _only_zeros(c, row, column, n, offset, b.offsets, alignment)
        if flagged[i]:
            left += 1
            continue
        # 3. The sum of truncated products.
        for g in range(u64(0), lanes, u64(GROUP)):
            for j in range(width):
                s, t = scale[j], total[j]
                for k in range(u64(GROUP)):
                    t = i32(t + i32(a.values[g + k, i] * b.values[g + k, j] * s))
                total[j] = t
        # 4. Truncated once more: conversion rounds to nearest, one unit too large where it went up.
        for j in range(u64(n)):
            t = total[j]
            magnitude = select(t < i32(0), i32(-t), t)
            big = max(big, u32(magnitude))
            x = f32(magnitude)
            bits = select(i32(x) > magnitude, u32(f32_to_bits(x) - u32(1)), f32_to_bits(x))
            y = bits_to_f32(bits & keep) * bits_to_f32(i32(i32(alignment[j] + down) << 23))
            result[j] = bits_to_f32(f32_to_bits(y) | (u32(t) & u32(0x80000000)))
        flagged[i] = big >= BIG
        left += flagged[i]
        for j in range(u64(0 if flagged[i] else n)):
            c[row, column + j] = result[j]
    return left

"""One block of a dot in float64: exact for any data, without special cases.

Why float64 arithmetic gives the integers of `core/dpa`: operands have at most 11 significant bits, so a
product has at most 22 and its magnitude lies between 2^-272 and 2^256: exact. Multiplying by a power of two
is exact too. trunc() then leaves an integer below 2^(2 + fraction_bits), and a block's sum of them stays
below 2^53: exact in any order. Infinity and NaN go through these steps as IEEE 754 says, which is what the
hardware gives. There is no multiply-add to contract: a product is scaled and truncated before it is added.

The maximum with e_zero is taken always, not only beside a zero term: without one, c is not zero and its
exponent is at least that of the smallest normal, which is above e_zero. `covers` asks for just that.

Operands come in panels: [lane][column], columns contiguous, for one block of k. The rows of A are the
columns of its transpose. Indices are unsigned and arrays are written by one name only, so that LLVM
vectorises every loop over columns.
"""

from typing import NamedTuple

import numpy as np

from ._jit import njit
from .core.bits import where
from .core.dpa import block_k
from .core.intrinsics import bits_to_f64, f32_to_bits, f64_to_bits, select
from .policies import RTZ

i16, i32, u32, u64, f32, f64 = np.int16, np.int32, np.uint32, np.uint64, np.float32, np.float64

NOTHING = -10000  #: exponent of a zero operand: below every other, and two of them fit in int16
GROUP = 8  #: lanes that the compiler unrolls; units with other numbers of lanes are padded with zeros
VECTOR = 32  #: columns of a panel are padded to whole vectors of int8
F64_TWICE_ONE = 2 * (1023 << 52)
LEAST_NORMAL = 2.0**-126
NAN_F32 = np.uint32(0x7FFFFFFF).view(np.float32)


class Panel(NamedTuple):
    """One block of an operand, arrays (padded lanes, width)."""

    values: np.ndarray  #: float64
    exponents: np.ndarray  #: int16


class Rows(NamedTuple):
    """Work space for one row of a block, arrays (width,)."""

    largest: np.ndarray  #: int16: the largest exponent of the products
    scale: np.ndarray  #: float64: 2^(fraction_bits - E)
    total: np.ndarray  #: float64: the sum of truncated terms


@njit
def covers(unit):
    """True if float64 can compute this unit: it truncates, in fp32, with e_zero below c's exponents."""
    lane_bits = where(unit.lanes > 32, 7, 6)
    fits = (unit.fraction_bits + 2 + lane_bits <= 53) & (unit.lanes <= 64)
    return fits & (unit.rounding == RTZ) & (unit.exponent_bits == 8) & (unit.e_zero <= -126)


@njit
def padded(n, multiple):
    """n rounded up to a multiple."""
    return (n + multiple - 1) // multiple * multiple


@njit
def new_panel(lanes, width):
    return Panel(np.empty((lanes, width), f64), np.empty((lanes, width), i16))


@njit
def new_rows(width):
    return Rows(np.empty(width, i16), np.empty(width, f64), np.empty(width, f64))


@njit
def gather(x, first, number, unit, raw):
    """raw[lane, j] = x[k, first + j] for the lanes of one block of k; zeros where there is no such k or column.

    Walks x along its shorter stride, so that a transposed operand is not fetched anew for each lane.
    """
    lanes, width = u64(raw.shape[0]), u64(raw.shape[1])
    count = u64(max(min(raw.shape[1], x.shape[1] - first), 0))
    for lane in range(lanes):
        for j in range(width):
            raw[lane, j] = f32(0)
    if x.strides[0] < x.strides[1]:
        for j in range(count):
            for lane in range(u64(unit.lanes)):
                k = block_k(number, np.int64(lane), unit)
                if k < x.shape[0]:
                    raw[lane, j] = x[u64(k), u64(first) + j]
    else:
        for lane in range(u64(unit.lanes)):
            k = block_k(number, np.int64(lane), unit)
            if k < x.shape[0]:
                for j in range(count):
                    raw[lane, j] = x[u64(k), u64(first) + j]


@njit
def pack(raw, emin, panel):
    """Values and exponents (at least emin; NOTHING for zeros; 0 for Inf and NaN) of a gathered block."""
    for lane in range(u64(raw.shape[0])):
        for j in range(u64(raw.shape[1])):
            bits = f32_to_bits(raw[lane, j]) & u32(0x7FFFFFFF)
            e = max(i32(i32(bits >> u32(23)) - i32(127)), i32(emin))
            e = select(e == i32(128), i32(0), e)
            panel.exponents[lane, j] = i16(select(bits == u32(0), i32(NOTHING), e))
    for lane in range(u64(raw.shape[0])):
        for j in range(u64(raw.shape[1])):
            panel.values[lane, j] = f64(raw[lane, j])


@njit
def block(a, b, c, c_row, c_column, n, work, unit, wanted):
    """One block for the rows of a for which wanted[i] is True, in place: row c_row + i of c, n columns from c_column.

    a, b: Panels; work: Rows. Columns of the panels beyond n hold zeros; their results are not used.
    """
    largest, scale, total = work
    width, lanes, column = u64(padded(n, VECTOR)), u64(padded(unit.lanes, GROUP)), u64(c_column)
    e_zero, digits = i32(unit.e_zero), i32(unit.fraction_bits + 1023)
    # Clearing low bits of a float64 truncates it to a number of significant bits; below the normal numbers
    # of fp32 the multiples of its subnormal unit are kept instead.
    keep = -1 << (52 - unit.output_fraction)
    to_units = bits_to_f64((126 + unit.output_fraction + 1023) << 52)
    from_units = bits_to_f64((1023 - 126 - unit.output_fraction) << 52)
    for i in range(u64(len(wanted))):
        if not wanted[i]:
            continue
        row = u64(c_row) + i
        # 1. The largest exponent of the products.
        for j in range(width):
            largest[j] = i16(2 * NOTHING)
        for g in range(u64(0), lanes, u64(GROUP)):
            for j in range(width):
                m = largest[j]
                for k in range(u64(GROUP)):
                    m = max(m, i16(a.exponents[g + k, i] + b.exponents[g + k, j]))
                largest[j] = m
        # 2. The scale 2^(fraction_bits - E), and the truncated accumulator.
        for j in range(u64(n)):
            x = c[row, column + j]
            bits = f32_to_bits(x) & u32(0x7FFFFFFF)
            e = max(i32(i32(bits >> u32(23)) - i32(127)), i32(-126))
            e = select((bits == u32(0)) | (e == i32(128)), e_zero, e)
            e = max(max(e, i32(largest[j])), e_zero)
            s = bits_to_f64(np.int64(i32(digits - e)) << 52)
            scale[j] = s
            total[j] = np.trunc(f64(x) * s)
        # 3. The sum of truncated products.
        for g in range(u64(0), lanes, u64(GROUP)):
            for j in range(width):
                s, t = scale[j], total[j]
                for k in range(u64(GROUP)):
                    t += np.trunc(a.values[g + k, i] * b.values[g + k, j] * s)
                total[j] = t
        # 4. Truncated once more, to float32: too large gives Inf, NaN is canonical, a zero is +0.
        for j in range(u64(n)):
            v = bits_to_f64(f64_to_bits(total[j]) & keep) * bits_to_f64(F64_TWICE_ONE - f64_to_bits(scale[j]))
            v = select(abs(v) < LEAST_NORMAL, np.trunc(v * to_units) * from_units, v) + 0.0
            c[row, column + j] = select(v == v, f32(v), NAN_F32)

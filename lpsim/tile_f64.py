"""The dot of one tile in float64: exact for any data, without special cases.

Why float64 arithmetic gives the integers of `core/dpa`: operands have at most 11 significant bits, so a
product has at most 22 and its magnitude lies between 2^-272 and 2^256: exact. Multiplying by a power of two
is exact too. trunc() then leaves an integer below 2^(2 + fraction_bits), and a block's sum of them stays
below 2^53: exact in any order. Infinity and NaN go through these steps as IEEE 754 says, which is what the
hardware gives. There is no multiply-add to contract: a product is scaled and truncated before it is added.

The maximum with e_zero is taken always, not only beside a zero term: without one, c is not zero and its
exponent is at least that of the smallest normal, which is above e_zero. `covers` asks for just that.
"""

import numpy as np

from ._jit import njit
from .core.bits import clamp, where
from .core.dpa import block_count, block_k
from .core.intrinsics import bits_to_f64, f32_to_bits, f64_to_bits
from .policies import RTZ

i16, i32, u64, f64 = np.int16, np.int32, np.uint64, np.float64

NOTHING = -10000  #: exponent of a zero operand: below every other, and two of them fit in int16
GROUP = 8  #: lanes that the compiler unrolls; units with other numbers of lanes are padded with zeros
COLUMNS = (
    128  #: columns at a time: a block of B (32 lanes of float64 and int16) then fits in the L1 and L2 caches
)
SIXTEEN = 16  #: columns are padded to full vectors of int16

F64_ONE = 1023 << 52
NAN_F32 = np.uint32(0x7FFFFFFF).view(np.float32)


@njit
def covers(unit):
    """True if float64 can compute this unit: it truncates, in fp32's range, and e_zero is below c's exponents."""
    lane_bits = where(unit.lanes > 32, 7, 6)
    fits = (unit.fraction_bits + 2 + lane_bits <= 53) & (unit.lanes <= 64)
    return fits & (unit.rounding == RTZ) & (unit.exponent_bits == 8) & (unit.e_zero <= -126)


@njit
def padded_lanes(unit):
    """Lanes rounded up to whole groups."""
    return (unit.lanes + GROUP - 1) // GROUP * GROUP


@njit
def operand_exponent(x, emin):
    """int16 exponent that float32 x takes part with, at least emin; NOTHING for zero, 0 for NaN and Inf."""
    bits = np.int64(f32_to_bits(x)) & 0x7FFFFFFF
    e = (bits >> 23) - 127
    e = where(e < emin, emin, e)
    return i16(where(bits == 0, NOTHING, where(e == 128, 0, e)))


@njit
def pack_rows(a, emin, unit, values, exponents):
    """Rows of A in the order of the blocks: values and exponents (M, P), P = blocks * padded lanes."""
    lanes = padded_lanes(unit)
    for i in range(a.shape[0]):
        for number in range(block_count(a.shape[1], unit)):
            for lane in range(lanes):
                k = block_k(number, lane, unit)
                inside = (lane < unit.lanes) & (k < a.shape[1])
                x = a[i, k] if inside else np.float32(0)
                values[i, number * lanes + lane] = f64(x)
                exponents[i, number * lanes + lane] = operand_exponent(x, emin)


@njit
def pack_columns(b, first, count, emin, unit, values, exponents):
    """Columns first .. first + count of B, as `pack_rows`, k outermost; zeros up to the arrays' width."""
    lanes = padded_lanes(unit)
    for number in range(block_count(b.shape[0], unit)):
        for lane in range(lanes):
            p = number * lanes + lane
            k = block_k(number, lane, unit)
            if (lane < unit.lanes) & (k < b.shape[0]):
                for j in range(u64(count)):
                    x = b[k, u64(first) + j]
                    values[p, j] = f64(x)
                    exponents[p, j] = operand_exponent(x, emin)
                for j in range(u64(count), u64(values.shape[1])):
                    values[p, j] = 0.0
                    exponents[p, j] = NOTHING
            else:
                for j in range(u64(values.shape[1])):
                    values[p, j] = 0.0
                    exponents[p, j] = NOTHING


@njit
def _largest_exponents(ea, eb, i, p0, lanes, n, largest):
    """largest[j] = max over the block's lanes of ea + eb."""
    for j in range(u64(n)):
        largest[j] = i16(2 * NOTHING)
    for g in range(u64(p0), u64(p0 + lanes), u64(GROUP)):
        for j in range(u64(n)):
            m = largest[j]
            for k in range(u64(GROUP)):
                m = max(m, i16(ea[i, g + k] + eb[g + k, j]))
            largest[j] = m


@njit
def _begin(c, i, first, n, largest, unit, scale, total):
    """scale = 2^(fraction_bits - E), total = the truncated accumulator, for n columns of row i of c."""
    for j in range(u64(n)):
        x = c[i, u64(first) + j]
        bits = np.int64(f32_to_bits(x)) & 0x7FFFFFFF
        e = (bits >> 23) - 127
        e = where(e < -126, -126, e)
        e = where((bits == 0) | (e == 128), unit.e_zero, e)
        e = max(e, np.int64(largest[j]), unit.e_zero)
        s = bits_to_f64((unit.fraction_bits - e + 1023) << 52)
        scale[j] = s
        total[j] = np.trunc(f64(x) * s)


@njit
def _multiply(a, b, i, p0, lanes, n, scale, total):
    """total[j] += trunc(a * b * scale) for every lane of the block."""
    for g in range(u64(p0), u64(p0 + lanes), u64(GROUP)):
        for j in range(u64(n)):
            s, t = scale[j], total[j]
            for k in range(u64(GROUP)):
                t += np.trunc(a[i, g + k] * b[g + k, j] * s)
            total[j] = t


@njit
def _end(c, i, first, n, scale, total, unit):
    """c = total / scale, truncated to output_fraction bits, subnormals kept; NaN canonical, zero positive.

    Clearing low bits of a float64 truncates it to a number of significant bits. Below the normal range of
    fp32 the multiples of its subnormal unit are kept instead. Above, the conversion to float32 gives Inf.
    """
    keep = -1 << (52 - unit.output_fraction)
    to_units = bits_to_f64((126 + unit.output_fraction + 1023) << 52)
    from_units = bits_to_f64((1023 - 126 - unit.output_fraction) << 52)
    least_normal = bits_to_f64((1023 - 126) << 52)
    for j in range(u64(n)):
        inverse = bits_to_f64(2 * F64_ONE - f64_to_bits(scale[j]))
        v = bits_to_f64(f64_to_bits(total[j]) & keep) * inverse
        v = np.trunc(v * to_units) * from_units if abs(v) < least_normal else v
        v += 0.0  # a zero is +0
        c[i, u64(first) + j] = np.float32(v) if v == v else NAN_F32


@njit
def dot_tile(a, b, c, a_emin, b_emin, unit):
    """c = the chained dot of a and b on the accumulator c, in place; inside other compiled code too.

    a (M, K), b (K, N): float32 arrays of any layout, holding exact values of their formats (tf32 already cut
    to 19 bits; subnormals, Inf and NaN allowed). c (M, N): float32, zeros for no accumulator.
    a_emin, b_emin: exponent of the formats' smallest normal number (`operand_emin`). unit: DotUnit that
    `covers`. Zero-padding of K, the order of k and the rounding are the unit's. Source: `core/dpa`.
    """
    a_emin, b_emin = min(a_emin, unit.widened_emin), min(b_emin, unit.widened_emin)
    rows, columns = c.shape
    lanes, blocks = padded_lanes(unit), block_count(a.shape[1], unit)
    width = clamp((columns + SIXTEEN - 1) // SIXTEEN * SIXTEEN, 0, COLUMNS)
    av, ae = np.empty((rows, blocks * lanes), f64), np.empty((rows, blocks * lanes), i16)
    bv, be = np.empty((blocks * lanes, width), f64), np.empty((blocks * lanes, width), i16)
    largest, scale, total = np.empty(width, i16), np.empty(width, f64), np.empty(width, f64)
    pack_rows(a, a_emin, unit, av, ae)
    for first in range(0, columns, COLUMNS):
        n = min(COLUMNS, columns - first)
        pack_columns(b, first, n, b_emin, unit, bv, be)
        for p0 in range(0, blocks * lanes, lanes):
            for i in range(u64(rows)):
                _largest_exponents(ae, be, i, p0, lanes, width, largest)
                _begin(c, i, first, n, largest, unit, scale, total)
                _multiply(av, bv, i, p0, lanes, n, scale, total)
                _end(c, i, first, n, scale, total, unit)

"""The dot of one tile, for compiled code: block by block of k, each row by the quickest routine that may.

Columns are taken 256 at a time, so that the panels of one block stay in the L1 and L2 caches.
"""

import numpy as np

from . import tile_f64, tile_i32
from ._jit import merged, njit
from .core.dpa import block_count
from .tile_f64 import VECTOR, padded

u64 = np.uint64
COLUMNS = 256
covers = tile_f64.covers


@merged
def dot_region(a, b, c, c_row, c_column, a_emin, b_emin, unit, quick):
    """`dot_tile` on c[c_row : c_row + M, c_column : c_column + N]; returns how many rows of blocks were not quick.

    A C-contiguous c is what vectorises. quick False: float64 throughout; the same bits.
    """
    rows, columns = a.shape[0], b.shape[1]
    a_emin, b_emin = min(a_emin, unit.widened_emin), min(b_emin, unit.widened_emin)
    quick = quick and tile_i32.covers(unit)
    lanes, height = padded(unit.lanes, tile_i32.PADDED), padded(rows, VECTOR)
    width = min(padded(columns, VECTOR), COLUMNS)
    a_raw, b_raw = np.empty((lanes, height), np.float32), np.empty((lanes, width), np.float32)
    a_quick, b_quick = tile_i32.new_panel(lanes, height), tile_i32.new_panel(lanes, width)
    a_exact, b_exact = tile_f64.new_panel(lanes, height), tile_f64.new_panel(lanes, width)
    quick_work, exact_work = tile_i32.new_rows(width), tile_f64.new_rows(width)
    left, total_left = np.ones(rows, np.bool_), 0
    for first in range(0, columns, COLUMNS):
        n, column = min(COLUMNS, columns - first), u64(c_column + first)
        for number in range(block_count(a.shape[1], unit)):
            tile_f64.gather(a.T, 0, number, unit, a_raw)
            tile_f64.gather(b, first, number, unit, b_raw)
            count = rows
            if quick:
                tile_i32.pack(a_raw, a_emin, a_quick)
                tile_i32.pack(b_raw, b_emin, b_quick)
                count = tile_i32.block(a_quick, b_quick, c, c_row, column, n, quick_work, unit, left)
            if count > 0:
                tile_f64.pack(a_raw, a_emin, a_exact)
                tile_f64.pack(b_raw, b_emin, b_exact)
                tile_f64.block(a_exact, b_exact, c, c_row, column, n, exact_work, unit, left)
            total_left += count
    return total_left


@njit
def dot_tile(a, b, c, a_emin, b_emin, unit):
    """c = the chained dot of a and b on the accumulator c, in place.

    a (M, K), b (K, N): float32 arrays of any layout, holding exact values of their formats (tf32 already cut
    to 19 bits; subnormals, Inf and NaN allowed). c (M, N): float32, zeros for no accumulator; quickest if
    C-contiguous. a_emin, b_emin: exponent of the formats' smallest normal number. unit: DotUnit that `covers`.
    Zero-padding of K, the order of k and the rounding are the unit's. Source: `core/dpa`.
    """
    dot_region(a, b, c, 0, 0, a_emin, b_emin, unit, True)

"""Rows that may be the dot's, as integers, and which of them give an answer. Compiled: there may be a million.

A question fills one block, so a row answers it by one block of `core/dpa`, or two if zeros come first.
"""

import numpy as np

from .._jit import njit
from ..core import dpa
from ..dot_units import DotUnit
from ..formats import Format
from .questions import Operands

SPREAD = 12  #: rows that stand for all that have given the same answers so far
COLUMN = {field: i for i, field in enumerate(DotUnit._fields)}


@njit
def _unit(row, lanes, k_width):
    """The row with other lanes; fields in the order of DotUnit."""
    return DotUnit(
        lanes, int(row[1]), int(row[2]), int(row[3]), int(row[4]), int(row[5]), int(row[6]), k_width, int(row[8])
    )  # fmt: skip


@njit
def _block_of(a, b, c, count, fmt, row):
    """One block of count products and zeros: one zero says what all of them say, so the others are left out."""
    unit = _unit(row, min(count + 1, int(row[0])), 2)
    return dpa.block(a[:count], b[:count], c, 0, fmt, fmt, unit).code


@njit
def _answer(a, b, c, count, preceded, fmt, row):
    before = _block_of(a, b, c, 0, fmt, row) if preceded else c
    return _block_of(a, b, before, count, fmt, row)


@njit
def _first_difference(a, b, c, counts, codes, preceded, fmt, row):
    for i in range(len(codes)):
        if _answer(a[i], b[i], c[i], counts[i], preceded, fmt, row) != codes[i]:
            return i
    return -1


@njit
def _agree(a, b, c, count, code, preceded, fmt, rows, out):
    for i in range(len(rows)):
        out[i] = _answer(a, b, c, count, preceded, fmt, rows[i]) == code


def left(rows: np.ndarray, asked: Operands, codes: np.ndarray, preceded: bool, fmt: Format) -> tuple[np.ndarray, int]:
    """The rows that give these answers, and the number of the question that the last of the others failed.

    rows: int64 (N, fields of DotUnit). asked: operands as int64. preceded: zeros come first, a block or more (the
    second leaves what the first has left of an accumulator). Rows spread over all of them are asked everything; what
    one of them fails, every row is asked. So a row that gives the answers is never dropped.
    """
    failed = -1
    while len(rows):
        spread = rows[np.unique(np.linspace(0, len(rows) - 1, SPREAD).astype(int))]
        wrong = {_first_difference(*asked, codes, int(preceded), fmt, row) for row in spread} - {-1}
        if not wrong:
            break
        for failed in sorted(wrong):
            agrees = np.empty(len(rows), np.bool_)
            one = (asked.a[failed], asked.b[failed], asked.c[failed], asked.counts[failed], codes[failed])
            _agree(*one, int(preceded), fmt, rows, agrees)
            rows = rows[agrees]
    return rows, failed


@njit
def _first_difference_of_dots(a, b, c, codes, fmt, row):
    unit = _unit(row, int(row[0]), int(row[7]))
    for i in range(len(codes)):
        if dpa.dot(a[i], b[i], c[i], fmt, fmt, unit) != codes[i]:
            return i
    return -1


def left_by_dots(rows: np.ndarray, a, b, c, codes: np.ndarray, fmt: Format) -> tuple[np.ndarray, int]:
    """The same for whole dots, a and b int64 (T, K)."""
    failed = -1
    while len(rows):
        spread = rows[np.unique(np.linspace(0, len(rows) - 1, 3).astype(int))]
        wrong = {_first_difference_of_dots(a, b, c, codes, fmt, row) for row in spread} - {-1}
        if not wrong:
            break
        for failed in sorted(wrong):
            one = slice(failed, failed + 1)
            part = (a[one], b[one], c[one], codes[one], fmt)
            rows = rows[np.array([_first_difference_of_dots(*part, row) < 0 for row in rows], np.bool_)]
    return rows, failed


def crossed(rows: np.ndarray, field: str, values) -> np.ndarray:
    """Every row with every value of a field."""
    values = np.asarray(values, np.int64)
    found = np.repeat(rows, len(values), axis=0)
    found[:, COLUMN[field]] = np.tile(values, len(rows))
    return found

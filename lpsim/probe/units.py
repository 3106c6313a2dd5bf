"""The row of an unknown dot: every row that gives all answers is kept, all others are dropped.

Nothing is guessed from one answer. The candidates are all rows that `check_unit` allows; a row is dropped when
`core/dpa` computes another code for it than the dot gave. So the true row is never dropped, if the dot is a DotUnit
at all, and rows that stay together could not be told apart by any question here.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from .. import formats
from ..dot_units import NOT_WIDENED, DotUnit, check_unit
from ..errors import choose
from ..formats import Format
from ..machines import DOT_UNITS
from ..policies import RNE, RTZ
from . import families
from .blocks import Blocks, find_blocks
from .candidates import COLUMN, crossed, left, left_by_dots
from .questions import Asker, Codes, Dot, Operands, Question, numbers

CHUNK = 1024  #: questions that are asked at once
ACCUMULATORS = {"fp32": (8, 23), "fp16": (5, 10)}
E_ZEROS = range(-1000, 1)  #: that `check_unit` allows

WHY = {
    "fraction_bits": "no term reaches so far below the largest and still shows in the result",
    "rounding": "sums have no more bits than the result keeps, so none is rounded",
    "output_fraction": "sums have no more bits than this, so none is rounded to it",
    "e_zero": "no term and no result reaches so low that the exponent of zero decides what is cut",
    "widened_emin": "the cut below a subnormal operand's product shows in no result",
}


class Unseen(NamedTuple):
    """A field that the answers do not determine."""

    field: str
    least: int
    most: int
    why: str


class Found(NamedTuple):
    """What is known about a dot."""

    fmt: Format
    unit: DotUnit  #: gives every answer; of the rows that do, the one nearest to the known ones
    rows: np.ndarray  #: all that give every answer, int64 (N, fields of DotUnit)
    unseen: tuple[Unseen, ...]
    nan: int | None  #: the code of NaN as a result, None if no question gives one
    asked: int  #: dots

    def allows(self, unit: DotUnit) -> bool:
        """True if the unit gives every answer too."""
        return bool((self.rows == np.array(canonical(unit, self.fmt))).all(1).any())


def find_unit(dot: Dot, fmt, *, accumulator: str = "fp32", step: int = 1, longest: int = 1024) -> Found:
    """The DotUnit that a dot is, from its outputs alone.

    dot(a, b, c): codes of fmt (T, K), K a multiple of step, and of the accumulator (T,), in unsigned integers as
    lp.encode gives them; to the accumulator's codes (T,). accumulator: fp32 or fp16. longest: k that blocks are
    searched up to. Raises ValueError, with the question and both answers, if no DotUnit answers so.
    """
    choose("accumulator", accumulator, ACCUMULATORS)
    return found_by(Asker(dot, numbers(formats.lookup(fmt), accumulator), step), accumulator, longest)


def found_by(asker: Asker, accumulator: str, longest: int) -> Found:
    """The search itself; without the accumulator, if the asker takes it for late."""
    row, step = asker.numbers.fmt, asker.step
    blocks = find_blocks(asker, longest)
    search = _Search(asker, blocks)
    n, lanes, preceded = asker.numbers, blocks.lanes, blocks.length(step) != blocks.lanes
    search.rows = np.array(list(_widths(blocks, accumulator)), np.int64)
    search.drop(families.width_questions(n, lanes, preceded))
    fractions = np.unique(search.rows[:, COLUMN["output_fraction"]]).tolist()
    search.rows = crossed(search.rows, "e_zero", E_ZEROS)
    search.drop(families.zero_questions(n, lanes, fractions))
    grades = [NOT_WIDENED, *(n.least - j for j in range(1, row.precision))]
    search.rows = crossed(search.rows, "widened_emin", grades)
    search.drop(families.subnormal_questions(n, lanes))
    nan = search.confirm()
    return Found(row, _nearest(search.rows, row), search.rows, _unseen(search.rows, blocks), nan, asker.asked)


def canonical(unit: DotUnit, fmt: Format) -> DotUnit:
    """The spelling that `find_unit` gives to rows that compute the same for operands of fmt.

    k_width 1 is 2, and so is any width with two lanes; an exponent of widened subnormals above the format's own is
    none, one below all subnormals is that of the smallest.
    """
    least = formats.min_exp(fmt) + fmt.precision - 1
    width = 2 if unit.lanes == 2 else max(unit.k_width, 2)
    widened = NOT_WIDENED if unit.widened_emin >= least else max(unit.widened_emin, formats.min_exp(fmt))
    return unit._replace(k_width=width, widened_emin=widened if fmt.precision > 1 else NOT_WIDENED)


class _Search:
    """The rows that have given every answer so far."""

    def __init__(self, asker: Asker, blocks: Blocks):
        self.asker = asker
        self.rows = np.empty((0, len(DotUnit._fields)), np.int64)
        self.length = blocks.length(asker.step)
        self.places = [self.length - blocks.slab + k for k in blocks.places()]

    def drop(self, questions: Sequence[Question]) -> None:
        """Ask, in a mixed order, and drop every row that answers otherwise. ValueError if none is left."""
        questions = [q for q in questions if q.products and q.c == 0] if self.asker.late else questions
        order = np.random.default_rng(0).permutation(len(questions))
        fmt, preceded = self.asker.numbers.fmt, self.length != len(self.places)
        for start in range(0, len(order), CHUNK):
            asked = self.asker.products([questions[i] for i in order[start : start + CHUNK]])
            placed = asked.placed(self.places, self.length)
            codes = self.asker.ask(*placed)
            a, b, c = (x.astype(np.int64) for x in asked[:3])
            rows, failed = left(self.rows, Operands(a, b, c, asked.counts), codes, preceded, fmt)
            self.keep(rows, failed, placed, codes)

    def keep(self, rows: np.ndarray, failed: int, placed: Codes, codes: np.ndarray) -> None:
        """Go on with these rows; ValueError if there are none."""
        if not len(rows):
            raise ValueError(_refutation(placed, codes, failed))
        self.rows = rows

    def confirm(self) -> int | None:
        """Random codes of every kind, infinities and NaN too; the code that NaN has as a result."""
        n, rng = self.asker.numbers, np.random.default_rng(4)
        largest = 1 << n.fmt.bits
        seen = []
        for k in (self.length,) if self.asker.late else (self.length, 3 * self.length):
            a, b = (rng.integers(0, largest, (CHUNK, k)) << n.fmt.pad for _ in range(2))
            keep = rng.random((CHUNK, 1)) < rng.choice([0.02, 0.2, 1.0], (CHUNK, 1))
            a = np.where(rng.random((CHUNK, k)) < np.where(keep, 1.0, 0.1), a, 0)
            c = rng.integers(0, 1 << n.accumulator.bits, CHUNK)
            c[:: 1 if self.asker.late else 3] = 0
            narrow, wide = (f"u{formats.container_bits(f) // 8}" for f in (n.fmt, n.accumulator))
            placed = a.astype(narrow), b.astype(narrow), c.astype(wide)
            codes = self.asker.ask(*placed)
            rows, failed = left_by_dots(self.rows, a, b, c, codes, n.fmt)
            self.keep(rows, failed, placed, codes)
            seen.append(codes)
        codes = np.concatenate(seen)
        fraction = n.accumulator.precision - 1
        magnitude = codes & ((1 << (n.accumulator.bits - 1)) - 1)
        nans = codes[magnitude > ((1 << (n.accumulator.bits - 1 - fraction)) - 1) << fraction]
        return int(nans[0]) if len(nans) else None


def _widths(blocks: Blocks, accumulator: str) -> Iterator[DotUnit]:
    """All rows with these blocks, as far as large normal terms can tell."""
    exponent_bits, most = ACCUMULATORS[accumulator]
    for fraction, rounding, output in product(range(4, 49), (RTZ, RNE), range(1, most + 1)):
        unit = DotUnit(blocks.lanes, fraction, rounding, output, 0, exponent_bits, most, blocks.k_width)
        check_unit(unit)
        yield unit


def _refutation(placed: Codes, codes: np.ndarray, i: int) -> str:
    a, b, c = placed
    terms = [f"{x:#x} * {y:#x}" for x, y in zip(a[i].tolist(), b[i].tolist(), strict=True) if x and y]
    return (
        f"no DotUnit gives {int(codes[i]):#x} for c = {int(c[i]):#x} plus {', '.join(terms) or 'zeros'} "
        "(codes) and the answers before it."
    )


def _nearest(rows: np.ndarray, fmt: Format) -> DotUnit:
    """Of rows that cannot be told apart: a known one; else no widening, the widest output, truncation."""
    for row in DOT_UNITS.values():
        if isinstance(row.unit, DotUnit) and (rows == np.array(canonical(row.unit, fmt))).all(1).any():
            return canonical(row.unit, fmt)
    units = [DotUnit(*row) for row in rows.tolist()]
    return min(units, key=lambda u: (u.widened_emin != NOT_WIDENED, -u.output_fraction, u.rounding != RTZ))


def _unseen(rows: np.ndarray, blocks: Blocks) -> tuple[Unseen, ...]:
    found = []
    for field, why in WHY.items():
        values = rows[:, COLUMN[field]]
        if values.min() < values.max():
            found.append(Unseen(field, int(values.min()), int(values.max()), why))
    if blocks.lanes == 2:
        found.append(Unseen("k_width", 1, 1 << 30, "a block of two is a run of two, however wide a register is"))
    return tuple(found)

"""What a probe found, as plain rows for JSON and for the command line: the same for a GPU and for the emulator."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .. import formats, tile_sums
from ..errors import choose
from . import known, trees
from .late import find_late
from .questions import Dot
from .signs import find_signs
from .units import Found, find_unit


class SumCase(NamedTuple):
    """A tl.sum whose tree is looked for: rows of n elements, one to a program."""

    fmt: str
    n: int
    num_warps: int
    aligned: bool


SUMS = (
    SumCase("fp32", 512, 4, True),
    SumCase("fp32", 256, 8, False),
    SumCase("fp16", 256, 1, True),
    SumCase("bf16", 256, 4, True),
    SumCase("fp64", 64, 2, True),
)


def dot_row(dot: Dot, key: known.Key, step: int, longest: int) -> dict:
    """One dot probed: its key, and the row that it implies or the reason why there is none."""
    start = key._asdict() | {"signs": find_signs(dot, key.fmt, accumulator=key.accumulator, step=step)._asdict()}
    options = {"accumulator": key.accumulator, "step": step, "longest": longest}
    try:
        if start["signs"]["accumulator"] == "chained":
            return start | found_row(find_unit(dot, key.fmt, **options), key)
        return start | _uncut(dot, key, options)
    except ValueError as error:
        return start | {"error": str(error)}


def _uncut(dot: Dot, key: known.Key, options: dict) -> dict:
    """Added late, or a DotUnit whose cut is out of reach."""
    try:
        found, unit = find_late(dot, key.fmt, **options)
    except ValueError:
        return found_row(find_unit(dot, key.fmt, **options), key)
    return found_row(found, key, unit.k)


def found_row(found: Found, key: known.Key, late: int | None = None) -> dict:
    """The fields of the row that a unit implies. late: products that are summed before an accumulator is added."""
    return {
        "late": late,
        "unit": found.unit._asdict(),
        "unseen": [field._asdict() for field in found.unseen],
        "nan": found.nan,
        "asked": found.asked,
        "equal": [list(row) for row in known.equal_rows(found, late)],
        "paste": known.pasted(found, key.machine, key.path, late),
    }


def sum_row(reduce: trees.Reduce, case: SumCase) -> dict:
    """One sum probed: its tree, and the layouts that add so."""
    start = case._asdict()
    try:
        tree = trees.find_tree(reduce, case.n, case.fmt)
    except ValueError as error:
        return start | {"error": str(error)}
    return start | {
        "tree": trees.spelt(tree, 10**6),
        "layouts": [list(x) for x in trees.layouts_of(tree, case.n, case.fmt)],
    }


def emulated_dots(machine: str, path: str | None = None, fmt: str | None = None) -> Iterator[dict]:
    """The rows of a machine's DotUnits and LateUnits, found from the emulator's outputs.

    path, fmt: only these. ValueError for unknown names, and if no DotUnit is left.
    """
    keys = list(known.units_of(machine))
    if path is not None:
        choose("path", path, {key.path: key for key, _ in keys})
    if fmt is not None:
        name = formats.fmt_name(formats.lookup(fmt))
        choose("fmt", name, {key.fmt: key for key, _ in keys})
        keys = [(key, unit) for key, unit in keys if key.fmt == name]
    keys = [(key, unit) for key, unit in keys if path in (None, key.path)]
    if not keys:
        raise ValueError(f"{machine} has no DotUnit for path={path!r} and fmt={fmt!r}; see lpsim.machines.rows.")
    for key, unit in keys:
        yield dot_row(known.emulated(unit, formats.lookup(key.fmt)), key, 1, 1024)


def emulated_sums() -> Iterator[dict]:
    """The trees of `Machine.sum` for the H200."""
    for case in SUMS:

        def reduce(x: np.ndarray, case=case) -> np.ndarray:
            operand = x.astype(tile_sums.dtype_of(case.fmt))
            alignment = 16 if case.aligned else operand.itemsize
            return np.asarray(tile_sums.total(operand, tile_sums.Tile(num_warps=case.num_warps, alignment=alignment)))

        yield sum_row(reduce, case)


__all__ = ["SUMS", "SumCase", "dot_row", "emulated_dots", "emulated_sums", "sum_row"]

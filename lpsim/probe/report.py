"""What a probe found, as plain rows for JSON and for the command line: the same for a GPU and for the emulator."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .. import formats, tile_sums
from ..errors import choose
from . import known, trees
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
    try:
        found = find_unit(dot, key.fmt, accumulator=key.accumulator, step=step, longest=longest)
    except ValueError as error:
        return start | {"error": str(error)}
    return start | found_row(found, key)


def found_row(found: Found, key: known.Key) -> dict:
    """The fields of the row that a unit implies."""
    return {
        "unit": found.unit._asdict(),
        "unseen": [field._asdict() for field in found.unseen],
        "nan": found.nan,
        "asked": found.asked,
        "equal": [list(row) for row in known.equal_rows(found)],
        "paste": known.pasted(found, key.machine, key.path),
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
    """The rows of a machine's DotUnits, found from the emulator's outputs.

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

"""What a found row means: the known rows that it may be, and the line of code that adds it."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .. import dot_kinds, formats, machines
from ..dot_units import DotUnit, LateUnit, accumulator_of
from ..formats import Format
from ..policies import RTZ
from .questions import Dot
from .units import Found


class Key(NamedTuple):
    """Where a known row stands."""

    machine: str
    path: str
    fmt: str
    accumulator: str


def equal_rows(found: Found, late: int | None = None) -> list[Key]:
    """The rows for operands of this format that give every answer, whatever machine they are of.

    late: None for DotUnits; else the k of LateUnits, whose sums were found.
    """
    name = formats.fmt_name(found.fmt)
    rows = [(Key(*key), row.unit) for key, row in machines.DOT_UNITS.items() if key[2] == name]
    if late is None:
        return [key for key, unit in rows if isinstance(unit, DotUnit) and found.allows(unit)]
    return [key for key, u in rows if isinstance(u, LateUnit) and u.k == late and found.allows(u.unit)]


def pasted(found: Found, machine: str, path: str, late: int | None = None) -> str:
    """Python that makes the row known: `machines.add_dot_unit(..)`. late: as in `equal_rows`."""
    unit = found.unit
    names = {"rounding": "policies.RTZ" if unit.rounding == RTZ else "policies.RNE"}
    names["widened_emin"] = (
        "" if unit.widened_emin == DotUnit._field_defaults["widened_emin"] else str(unit.widened_emin)
    )
    fields = {field: names.get(field, str(value)) for field, value in unit._asdict().items()}
    text = ", ".join(f"{field}={value}" for field, value in fields.items() if value)
    unit_text = f"dot_units.DotUnit({text})"
    unit_text = unit_text if late is None else f"dot_units.LateUnit({unit_text}, k={late})"
    return (
        f"machines.add_dot_unit(\n    {machine!r}, {path!r}, {formats.fmt_name(found.fmt)!r},\n"
        f"    {unit_text},\n    source='lpsim probe, {found.asked} dots', evidence='measured',\n)"
    )


def emulated(unit: DotUnit | LateUnit, fmt: Format) -> Dot:
    """The emulator as an unknown dot."""
    row = formats.lookup(fmt)
    value, word = (np.float32, np.uint32) if accumulator_of(unit) == "fp32" else (np.float16, np.uint16)

    def dot(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        start = c.view(value)[:, None, None]
        with np.errstate(invalid="ignore", over="ignore"):
            found = dot_kinds.dot(a[:, None, :], b[:, :, None], start, unit, row, row)
        return np.ascontiguousarray(found[:, 0, 0]).view(word)

    return dot


def units_of(machine: str) -> Iterator[tuple[Key, DotUnit | LateUnit]]:
    """The DotUnits and LateUnits of a machine, by key. ValueError for an unknown one."""
    for key, row in machines.rows(machine).items():
        if isinstance(row.unit, DotUnit | LateUnit):
            yield Key(machine, *key), row.unit

"""What a found row means: the known rows that it may be, and the line of code that adds it."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .. import dots, formats, machines
from ..dot_units import DotUnit
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


def equal_rows(found: Found) -> list[Key]:
    """The rows for operands of this format that give every answer, whatever machine they are of."""
    name = formats.fmt_name(found.fmt)
    rows = ((Key(*key), row.unit) for key, row in machines.DOT_UNITS.items())
    return [key for key, unit in rows if key.fmt == name and isinstance(unit, DotUnit) and found.allows(unit)]


def pasted(found: Found, machine: str, path: str) -> str:
    """Python that makes the row known: `machines.add_dot_unit(..)`."""
    unit = found.unit
    names = {"rounding": "policies.RTZ" if unit.rounding == RTZ else "policies.RNE"}
    names["widened_emin"] = (
        "" if unit.widened_emin == DotUnit._field_defaults["widened_emin"] else str(unit.widened_emin)
    )
    fields = {field: names.get(field, str(value)) for field, value in unit._asdict().items()}
    text = ", ".join(f"{field}={value}" for field, value in fields.items() if value)
    return (
        f"machines.add_dot_unit(\n    {machine!r}, {path!r}, {formats.fmt_name(found.fmt)!r},\n"
        f"    dot_units.DotUnit({text}),\n    source='lpsim probe, {found.asked} dots', evidence='measured',\n)"
    )


def emulated(unit: DotUnit, fmt: Format) -> Dot:
    """The emulator as an unknown dot."""
    row = formats.lookup(fmt)
    value, word = (np.float32, np.uint32) if unit.exponent_bits == 8 else (np.float16, np.uint16)

    def dot(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        wide = c.view(value).astype(np.float32)
        found = dots.dot(a[:, None, :], b[:, :, None], wide[:, None, None], unit, row, row)[:, 0, 0]
        with np.errstate(invalid="ignore"):
            codes = found.astype(value).view(word).copy()
        codes[np.isnan(found)] = (1 << (8 * codes.itemsize - 1)) - 1  # a NaN through fp16 has lost its pattern
        return codes

    return dot


def units_of(machine: str) -> Iterator[tuple[Key, DotUnit]]:
    """The DotUnits of a machine, by key. ValueError for an unknown one."""
    for key, row in machines.rows(machine).items():
        if isinstance(row.unit, DotUnit):
            yield Key(machine, *key), row.unit

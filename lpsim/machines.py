"""Machines as rows of integers: what a dot instruction does is data, never a branch on a name.

Every floating-point tensor-core instruction from Volta to Blackwell is one primitive, the truncated fused
dot-product-add: the exact products of a few k and the accumulator are aligned to their largest exponent,
each is truncated, the integers are added, the sum is rounded once. `core/dpa` says it in integers. A row
(`dot_units`) holds the numbers in which the instructions differ; `dot_rows` has the rows of every modelled GPU.
Add one with `add_dot_unit`, and a machine of that name exists; no code is needed.
"""

from .dot_rows import MACHINES, SCALED
from .dot_units import EVIDENCE, NOT_WIDENED, DotRow, DotUnit, ScaledUnit, Unit, accumulator_of, check_unit
from .errors import NotModelled, choose, unknown
from .formats import FORMATS, Format, lookup

#: (machine, instruction path, format of the operands, format of the accumulator) -> row
DOT_UNITS: dict[tuple[str, str, str, str], DotRow] = {
    (machine, *key): row for machine, table in MACHINES.items() for key, row in table.items()
}
#: (machine, instruction path, format of the elements, format of the scales) -> row
SCALED_UNITS: dict[tuple[str, str, str, str], DotRow] = {
    (machine, *key): row for machine, table in SCALED.items() for key, row in table.items()
}
INT8 = "int8"  # the one operand that is no Format


def add_dot_unit(
    machine: str, path: str, fmt, unit: Unit, *, source: str, evidence: str = "published", mixes=(), scales=None
) -> None:
    """Make a unit known under (machine, path, fmt) and the accumulator it has.

    machine and path may be new names. fmt: a format's name, dtype or row, or "int8". mixes: names of other formats
    that the second operand may have. scales: for a ScaledUnit, the format of its scales. Replaces nothing: ValueError
    if that row exists, TypeError or ValueError for integers that describe no unit.
    """
    check_unit(unit)
    if evidence not in EVIDENCE:
        raise unknown("evidence", evidence, EVIDENCE)
    if isinstance(unit, ScaledUnit) != (scales is not None):
        raise ValueError(f"scales={scales!r}: a ScaledUnit needs the format of its scales, any other unit has none.")
    table = DOT_UNITS if scales is None else SCALED_UNITS
    last = accumulator_of(unit) if scales is None else _name(scales, "scales")
    key = (machine, path, _name(fmt, "fmt"), last)
    if key in table:
        raise ValueError(f"machine {machine!r} already has a dot unit for path {path!r} and format {key[2]!r}.")
    table[key] = DotRow(unit, source, evidence, tuple(mixes))


def names() -> list[str]:
    """Every machine that has a row."""
    return sorted({key[0] for key in (*DOT_UNITS, *SCALED_UNITS)})


def rows(machine: str) -> dict[tuple[str, str, str], DotRow]:
    """(path, format, accumulator) -> row: the dot instructions of a machine, with source and evidence.

    The rows of block-scaled dots are in `scaled_rows`. ValueError for an unknown machine.
    """
    choose("machine", machine, dict.fromkeys(names()))
    return {key[1:]: row for key, row in DOT_UNITS.items() if key[0] == machine}


def scaled_rows(machine: str) -> dict[tuple[str, str, str], DotRow]:
    """(path, format of elements, format of scales) -> row. ValueError for an unknown machine."""
    choose("machine", machine, dict.fromkeys(names()))
    return {key[1:]: row for key, row in SCALED_UNITS.items() if key[0] == machine}


def _name(fmt, argument: str) -> str:
    if fmt == INT8:
        return INT8
    row: Format = lookup(fmt, argument)
    return next((name for name, known in FORMATS.items() if known == row), str(row))


def dot_row(machine: str, path: str | None, a_fmt, b_fmt=None, accumulator: str | None = None) -> DotRow:
    """The row for operands of these formats (names, dtypes, Format rows, "int8"); b_fmt None means as a_fmt.

    path None: the machine's first that knows the formats. accumulator: fp32, fp16, fp64 or int32; None: the row's
    first. ValueError for an unknown machine or path, NotModelled for formats it has no row for. A mixed pair that
    was not measured itself comes back with evidence "published".
    """
    return _find(rows(machine), machine, path, (_name(a_fmt, "a_fmt"), b_fmt, accumulator), "accumulator")


def scaled_row(machine: str, path: str | None, a_fmt, b_fmt=None, scales: str | None = None) -> DotRow:
    """The row of a block-scaled dot, as `dot_row`; scales: the format of the scales, e8m0 or ue4m3."""
    table = scaled_rows(machine)
    if not table:
        raise NotModelled(f"{machine} has no block-scaled dot instruction that is modelled.")
    return _find(table, machine, path, (_name(a_fmt, "a_fmt"), b_fmt, scales), "scales")


def _find(table, machine: str, path: str | None, wanted: tuple, last: str) -> DotRow:
    a_name, b_fmt, third = wanted
    b_name = a_name if b_fmt is None else _name(b_fmt, "b_fmt")
    paths = list(dict.fromkeys(key[0] for key in table))
    if path is not None and path not in paths:
        raise unknown("path", path, paths)
    tried = paths if path is None else [path]
    where = machine if path is None else f"{machine} {path}"
    of_format = {key: row for key, row in table.items() if key[0] in tried and key[1] == a_name}
    if not of_format:
        known = sorted({key[1] for key in table if key[0] in tried})
        raise NotModelled(f"{where}: no dot unit for {a_name}; modelled: {', '.join(known)}.")
    fitting = [(key, row) for key, row in of_format.items() if third in (None, key[2])]
    if not fitting:
        have = ", ".join(sorted({key[2] for key in of_format}))
        raise NotModelled(f"{where}: no dot unit for {a_name} with {last} {third}; modelled: {have}.")
    for _, row in fitting:
        if a_name == b_name:
            return row
        if b_name in row.mixes:
            return row if row.measured_mixes else _unmeasured_mix(row, a_name, b_name)
    raise NotModelled(f"{where}: no dot unit for {a_name} x {b_name}.")


def _unmeasured_mix(row: DotRow, a_name: str, b_name: str) -> DotRow:
    if row.evidence == "provisional":
        return row
    return row._replace(evidence="published", source=f"mixed {a_name} x {b_name}: arXiv 2511.10909")


__all__ = [
    "DOT_UNITS",
    "EVIDENCE",
    "NOT_WIDENED",
    "SCALED_UNITS",
    "DotRow",
    "DotUnit",
    "add_dot_unit",
    "check_unit",
    "dot_row",
    "names",
    "rows",
    "scaled_row",
    "scaled_rows",
]

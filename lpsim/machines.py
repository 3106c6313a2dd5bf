"""Machines as rows of integers: what a dot instruction does is data, never a branch on a name.

Every floating-point tensor-core instruction from Volta to Blackwell is one primitive, the truncated fused
dot-product-add: the exact products of a few k and the accumulator are aligned to their largest exponent,
each is truncated, the integers are added, the sum is rounded once. `core/dpa` says it in integers. A row
here holds the numbers in which the instructions differ. Add one with `add_dot_unit`; no code is needed.
"""

from typing import NamedTuple

from .errors import NotModelled, unknown
from .formats import FORMATS, Format, lookup
from .policies import RNE, RTZ

NOT_WIDENED = 1 << 10  #: above every format's exponents, so that the smaller of the two is the format's own


class DotUnit(NamedTuple):
    """One dot instruction. Plain integers, so that Numba takes it as it is."""

    lanes: int  #: products added in one block
    fraction_bits: int  #: bits kept below the largest exponent when the terms are aligned
    rounding: int  #: of the sum, once per block: RTZ (overflowing to infinity all the same) or RNE
    output_fraction: int  #: fraction bits left after that rounding (fp32: 23; Hopper's fp8: 13)
    e_zero: int  #: the exponent that a zero product or a zero accumulator takes part with
    exponent_bits: int = 8  #: of the accumulator (fp32: 8, fp16: 5)
    accumulator_fraction: int = 23  #: fraction bits of its container (fp32: 23, fp16: 10)
    k_width: int = 2  #: consecutive k in one register run; each block takes two of every run
    widened_emin: int = NOT_WIDENED  #: operands are first converted, exactly, to a format with this least exponent


class DotRow(NamedTuple):
    """A unit with where it is from, and how sure that is."""

    unit: DotUnit
    source: str
    evidence: str  #: "measured" on hardware, or "published"
    mixes: tuple[str, ...] = ()  #: other formats that the second operand may have


EVIDENCE = ("measured", "published")
E4M3_AND_E5M2 = ("e4m3fn", "e5m2")

_16 = DotUnit(lanes=16, fraction_bits=25, rounding=RTZ, output_fraction=23, e_zero=-133)
_8 = _16._replace(lanes=8)
_FP8_WGMMA = DotUnit(lanes=32, fraction_bits=13, rounding=RTZ, output_fraction=13, e_zero=-133)
# Triton without wgmma: fp8 becomes fp16, and the 8-bit loads leave four consecutive k in a register.
_FP8_MMA = _16._replace(k_width=4, widened_emin=-14)

_SEEN = "all of mma.npz and mma_tiny.npz (torch 2.11, Triton 3.6.0); parameters: arXiv 2511.10909, 2512.07004"
_WGMMA, _MMA = f"wgmma, sm_90: {_SEEN}", f"mma.sync, sm_90: {_SEEN}"

#: (machine, instruction path, format of the operands) -> row
DOT_UNITS: dict[tuple[str, str, str], DotRow] = {
    ("h200", "wgmma", "bf16"): DotRow(_16, _WGMMA, "measured"),
    ("h200", "wgmma", "fp16"): DotRow(_16, _WGMMA, "measured"),
    ("h200", "wgmma", "tf32"): DotRow(_8, _WGMMA, "measured"),
    ("h200", "wgmma", "e4m3fn"): DotRow(_FP8_WGMMA, _WGMMA, "measured", mixes=E4M3_AND_E5M2),
    ("h200", "wgmma", "e5m2"): DotRow(_FP8_WGMMA, _WGMMA, "measured", mixes=E4M3_AND_E5M2),
    ("h200", "mma", "bf16"): DotRow(_16, _MMA, "measured"),
    ("h200", "mma", "fp16"): DotRow(_16, _MMA, "measured"),
    ("h200", "mma", "tf32"): DotRow(_8, _MMA, "measured"),
    ("h200", "mma", "e4m3fn"): DotRow(_FP8_MMA, f"tl.dot widens to fp16; {_MMA}", "measured"),
    ("h200", "mma", "e5m2"): DotRow(_FP8_MMA, f"tl.dot widens to fp16; {_MMA}", "measured"),
}


def check_unit(unit: DotUnit) -> DotUnit:
    """The unit itself, if its integers describe one; otherwise TypeError or ValueError."""
    for field, value in zip(DotUnit._fields, unit, strict=True):
        if type(value) is not int:
            raise TypeError(f"DotUnit.{field} must be an int, got {value!r} of type {type(value).__name__}.")
    rules = {
        "1 <= lanes <= 64": 1 <= unit.lanes <= 64,
        "4 <= fraction_bits <= 48: a block's integers stay below 2^62": 4 <= unit.fraction_bits <= 48,
        "rounding is RTZ or RNE": unit.rounding in (RTZ, RNE),
        "1 <= output_fraction <= accumulator_fraction": 1 <= unit.output_fraction <= unit.accumulator_fraction,
        "the accumulator is fp32 or fp16": (unit.exponent_bits, unit.accumulator_fraction) in ((8, 23), (5, 10)),
        "-1000 <= e_zero <= 0": -1000 <= unit.e_zero <= 0,
        "k_width is 1 or even": unit.k_width == 1 or (unit.k_width >= 2 and unit.k_width % 2 == 0),
        "runs of k_width > 2 need an even number of lanes": unit.k_width <= 2 or unit.lanes % 2 == 0,
    }
    for rule, holds in rules.items():
        if not holds:
            raise ValueError(f"{unit} is not a dot unit: {rule}.")
    return unit


def add_dot_unit(
    machine: str, path: str, fmt, unit: DotUnit, *, source: str, evidence: str = "published", mixes=()
) -> None:
    """Make a unit known under (machine, path, fmt). Replaces nothing: ValueError if that row exists."""
    name = _name(fmt, "fmt")
    if (machine, path, name) in DOT_UNITS:
        raise ValueError(f"machine {machine!r} already has a dot unit for path {path!r} and format {name!r}.")
    if evidence not in EVIDENCE:
        raise unknown("evidence", evidence, EVIDENCE)
    DOT_UNITS[machine, path, name] = DotRow(check_unit(unit), source, evidence, tuple(mixes))


def _name(fmt, argument: str) -> str:
    row: Format = lookup(fmt, argument)
    return next(name for name, known in FORMATS.items() if known == row)


def dot_row(machine: str, path: str, a_fmt, b_fmt=None) -> DotRow:
    """The row for operands of these formats (names, dtypes or Format rows); b_fmt None means as a_fmt.

    ValueError for an unknown machine or path, NotModelled for formats it has no row for. A mixed pair that
    no recording covers comes back with evidence "published".
    """
    machines = {key[0] for key in DOT_UNITS}
    if machine not in machines:
        raise unknown("machine", machine, sorted(machines))
    paths = {key[1] for key in DOT_UNITS if key[0] == machine}
    if path not in paths:
        raise unknown("path", path, sorted(paths))
    a_name = _name(a_fmt, "a_fmt")
    b_name = a_name if b_fmt is None else _name(b_fmt, "b_fmt")
    row = DOT_UNITS.get((machine, path, a_name))
    if row is None:
        known = sorted(key[2] for key in DOT_UNITS if key[:2] == (machine, path))
        raise NotModelled(f"{machine} {path}: no dot unit for {a_name}; modelled: {', '.join(known)}.")
    if a_name == b_name:
        return row
    if b_name not in row.mixes:
        raise NotModelled(f"{machine} {path}: no dot unit for {a_name} x {b_name}.")
    return row._replace(evidence="published", source=f"mixed {a_name} x {b_name}: arXiv 2511.10909")

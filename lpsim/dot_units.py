"""What dot instructions there are: one row type for each way of adding products. Plain integers throughout.

Every NVIDIA tensor core adds as `DotUnit` says, the truncated fused dot-product-add; the other types are what
does not fit: scales as operands, a late accumulator, AMD's matrix cores, chains of fma, integers.
Which function computes which type: `dot_kinds`.
"""

from typing import NamedTuple

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


class LateUnit(NamedTuple):
    """Products are summed from zero on `unit`, k of them; then one addition of the accumulator, to nearest."""

    unit: DotUnit
    k: int


class ScaledUnit(NamedTuple):
    """A dot of blocks that share scales, fp32 accumulator. Source: arXiv 2511.10909, ST-FDPA and GST-FDPA."""

    lanes: int  #: products added in one block
    group: int  #: products summed exactly before alignment; 1: each is aligned by itself, by its own exponent
    scale_block: int  #: consecutive k with one scale
    fraction_bits: int
    e_zero: int  #: exponent of a zero group or a zero accumulator


class FmaUnit(NamedTuple):
    """A chain of fused multiply-adds, k ascending, each rounded to nearest even: fp32 or fp64."""

    bits: int


class IntegerUnit(NamedTuple):
    """int8 products into an int32 accumulator: k of them are added exactly, then the sum wraps or clamps."""

    k: int
    saturates: int


class ExactUnit(NamedTuple):
    """Products and accumulator added exactly, one rounding to nearest even fp32. Source: arXiv 2511.10909, E-FDPA."""

    lanes: int


class FlushUnit(NamedTuple):
    """fp32 multiplications and additions, subnormals flushed before and after. Source: arXiv 2511.10909.

    Operands and accumulator: subnormals become +0. A product, a sum: to nearest even, then subnormals become zero of
    their sign. Products are summed pairwise in groups, and each sum is added to the accumulator.
    """

    group: int  #: 2 or 4


class FloorUnit(NamedTuple):
    """AMD CDNA3: products truncated by themselves, then joined with the accumulator under floors.

    Provisional: versions of the source disagree about the last floors. Source: arXiv 2511.10909 v2, TR-FDPA, GTR-FDPA.
    """

    lanes: int
    halves: int  #: 2: products of even and of odd k are summed apart, then joined
    fraction_bits: int  #: of the truncated products, of the joined halves and of the accumulator
    joint_bits: int  #: fraction bits of the products' sum when it meets the accumulator
    drop: int  #: an accumulator this many binades below the largest exponent is dropped; 0: never
    e_zero: int = -126


Unit = DotUnit | LateUnit | ScaledUnit | FmaUnit | IntegerUnit | ExactUnit | FlushUnit | FloorUnit


class DotRow(NamedTuple):
    """A unit with where it is from, and how sure that is."""

    unit: Unit
    source: str
    evidence: str  #: "measured" on hardware, "published", or "provisional": published in versions that disagree
    mixes: tuple[str, ...] = ()  #: other formats that the second operand may have
    measured_mixes: int = 0  #: 1 if mixed pairs were measured too


EVIDENCE = ("measured", "published", "provisional")


def accumulator_of(unit: Unit) -> str:
    """Name of the format that a unit accumulates in: fp32, fp16, fp64 or int32."""
    if isinstance(unit, LateUnit):
        return accumulator_of(unit.unit)
    if isinstance(unit, DotUnit):
        return "fp16" if unit.exponent_bits == 5 else "fp32"
    if isinstance(unit, FmaUnit):
        return f"fp{unit.bits}"
    return "int32" if isinstance(unit, IntegerUnit) else "fp32"


def _dot_rules(unit: DotUnit) -> dict[str, bool]:
    return {
        "1 <= lanes <= 64": 1 <= unit.lanes <= 64,
        "4 <= fraction_bits <= 48: a block's integers stay below 2^62": 4 <= unit.fraction_bits <= 48,
        "rounding is RTZ or RNE": unit.rounding in (RTZ, RNE),
        "1 <= output_fraction <= accumulator_fraction": 1 <= unit.output_fraction <= unit.accumulator_fraction,
        "the accumulator is fp32 or fp16": (unit.exponent_bits, unit.accumulator_fraction) in ((8, 23), (5, 10)),
        "-1000 <= e_zero <= 0": -1000 <= unit.e_zero <= 0,
        "k_width is 1 or even": unit.k_width == 1 or (unit.k_width >= 2 and unit.k_width % 2 == 0),
        "runs of k_width > 2 need an even number of lanes": unit.k_width <= 2 or unit.lanes % 2 == 0,
    }


def _late_rules(unit: LateUnit) -> dict[str, bool]:
    slab = unit.unit.lanes * max(unit.unit.k_width >> 1, 1)
    return {"k is a multiple of the unit's slab": unit.k >= slab and unit.k % slab == 0}


def _scaled_rules(unit: ScaledUnit) -> dict[str, bool]:
    return {
        "1 <= group <= lanes <= 64": 1 <= unit.group <= unit.lanes <= 64,
        "group divides lanes and scale_block": unit.lanes % unit.group == 0 and unit.scale_block % unit.group == 0,
        "8 <= fraction_bits <= 38: a block's integers stay below 2^62": 8 <= unit.fraction_bits <= 38,
        "-1000 <= e_zero <= 0": -1000 <= unit.e_zero <= 0,
    }


def _floor_rules(unit: FloorUnit) -> dict[str, bool]:
    return {
        "1 <= lanes <= 64, halves 1 or 2": 1 <= unit.lanes <= 64 and unit.halves in (1, 2),
        "4 <= fraction_bits <= joint_bits <= 40": 4 <= unit.fraction_bits <= unit.joint_bits <= 40,
        "0 <= drop": unit.drop >= 0,
        "-1000 <= e_zero <= 0": -1000 <= unit.e_zero <= 0,
    }


_RULES = {
    DotUnit: _dot_rules,
    LateUnit: _late_rules,
    ScaledUnit: _scaled_rules,
    FloorUnit: _floor_rules,
    FmaUnit: lambda unit: {"bits is 32 or 64": unit.bits in (32, 64)},
    IntegerUnit: lambda unit: {"k >= 1, saturates 0 or 1": unit.k >= 1 and unit.saturates in (0, 1)},
    ExactUnit: lambda unit: {"1 <= lanes <= 64": 1 <= unit.lanes <= 64},
    FlushUnit: lambda unit: {"group is 2 or 4": unit.group in (2, 4)},
}


def check_unit(unit: Unit) -> Unit:
    """The unit itself, if its integers describe one; otherwise TypeError or ValueError."""
    if type(unit) not in _RULES:
        known = ", ".join(kind.__name__ for kind in _RULES)
        raise TypeError(f"unit must be one of {known}, got {type(unit).__name__}.")
    kind = type(unit).__name__
    for field, value in zip(unit._fields, unit, strict=True):
        if isinstance(unit, LateUnit) and field == "unit":
            check_unit(unit.unit)
        elif type(value) is not int:
            raise TypeError(f"{kind}.{field} must be an int, got {value!r} of type {type(value).__name__}.")
    for rule, holds in _RULES[type(unit)](unit).items():
        if not holds:
            raise ValueError(f"{unit} is not a dot unit: {rule}.")
    return unit

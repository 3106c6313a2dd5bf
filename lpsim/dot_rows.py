"""The dot instructions of every modelled GPU, as rows: (machine, path, format, accumulator) -> DotRow.

A path is an instruction family: wgmma, mma (mma.sync as Triton reaches it), mma_ptx and mma_wrap (where the PTX
instruction does something else), tcgen05, mfma, ffma (the plain fma units). The first path of a machine that knows a
format is the one taken when none is named. Rows of other GPUs than the H200 are published ones.
"""

from .dot_units import (
    DotRow,
    DotUnit,
    ExactUnit,
    FloorUnit,
    FlushUnit,
    FmaUnit,
    IntegerUnit,
    LateUnit,
    ScaledUnit,
    Unit,
)
from .policies import RNE, RTZ

FP8 = ("e4m3fn", "e5m2")
FP8_FP6_FP4 = (*FP8, "e3m2", "e2m3", "e2m1")

_SIM = "arXiv 2511.10909 (MMA-Sim)"
_VECTORS = "arXiv 2512.07004 (5000 recorded outputs a case, of values near 1)"
_RECORDED = "recorded on an H200 (torch 2.11, Triton 3.6.0)"

Table = dict[tuple[str, str, str], DotRow]  # (path, format, accumulator) -> row


def _fp32(lanes: int, fraction_bits: int, **changes: int) -> DotUnit:
    """Truncated to fp32; a zero counts as 2^(-108 - fraction_bits), the exponent that loses no subnormal of fp32."""
    unit = DotUnit(lanes, fraction_bits, RTZ, output_fraction=23, e_zero=-108 - fraction_bits)
    return unit._replace(**changes)


def _fp16(lanes: int, fraction_bits: int, e_zero: int, **changes: int) -> DotUnit:
    """Rounded to nearest even in fp16."""
    unit = DotUnit(lanes, fraction_bits, RNE, 10, e_zero, exponent_bits=5, accumulator_fraction=10)
    return unit._replace(**changes)


def _rows(path: str, formats, unit: Unit, accumulator: str, source: str, evidence="published", **mixed) -> Table:
    return {(path, name, accumulator): DotRow(unit, source, evidence, **mixed) for name in formats}


def _dmma(evidence: str = "published", source: str = _SIM) -> Table:
    return _rows("mma", ["fp64"], FmaUnit(64), "fp64", f"DMMA: {source}", evidence)


_WRAPS = _rows("mma_wrap", ["int8"], IntegerUnit(32, saturates=0), "int32", "PTX ISA, mma .s8 without .satfinite")
_IMMA: Table = {
    **_rows("mma", ["int8"], IntegerUnit(32, saturates=1), "int32", "PTX ISA, mma .s8 .satfinite (as Triton emits)"),
    **_WRAPS,
}

VOLTA: Table = {
    **_rows("mma", ["fp16"], _fp32(4, 23), "fp32", f"HMMA.884: {_SIM}; {_VECTORS}"),
    **_rows("mma", ["fp16"], _fp16(4, 23, -19), "fp16", f"HMMA.884: {_SIM}; {_VECTORS}"),
}
TURING: Table = {
    **_rows("mma", ["fp16"], _fp32(8, 24), "fp32", f"HMMA.1688: {_SIM}"),
    **_rows("mma", ["fp16"], _fp16(8, 24, -20), "fp16", f"HMMA.1688: {_SIM}"),
    **_IMMA,
}
AMPERE: Table = {
    **_rows("mma", ["bf16", "fp16"], _fp32(8, 24), "fp32", f"HMMA.16816, two blocks of 8: {_SIM}; {_VECTORS}"),
    **_rows("mma", ["tf32"], _fp32(4, 24), "fp32", f"HMMA.1688.TF32, two blocks of 4: {_SIM}; {_VECTORS}"),
    **_rows("mma", ["fp16"], _fp16(8, 24, -20), "fp16", f"HMMA.16816, rounded between its two blocks: {_SIM}"),
    **_dmma(),
    **_IMMA,
}
_QMMA = f"QMMA.16832, two blocks of 16: {_SIM}; {_VECTORS}"
ADA: Table = {
    **{key: row for key, row in AMPERE.items() if key[1] != "fp64"},
    **_rows("mma", FP8, _fp32(16, 13, output_fraction=13, e_zero=-132), "fp32", _QMMA, mixes=FP8),
    **_rows("mma", FP8, _fp16(16, 13, -20), "fp16", _QMMA, mixes=FP8),
}

# mma.sync's fp8 on Hopper: ptxas unpacks to fp16; the four consecutive k of a register go to two HMMA in turn.
_INTERLEAVED = {"k_width": 4, "widened_emin": -14}
_LATE = "mma.sync .e4m3/.e5m2 as ptxas expands it: two HMMA from zero, then FADD or HADD2"


def _late(seen: str, **sure) -> Table:
    unit, narrow = _fp32(16, 25, **_INTERLEAVED), _fp16(16, 25, -21, **_INTERLEAVED)
    return {
        **_rows("mma_ptx", FP8, LateUnit(unit, 32), "fp32", f"{_LATE}; {seen}", mixes=FP8, **sure),
        **_rows("mma_ptx", FP8, LateUnit(narrow, 32), "fp16", f"{_LATE}; {seen}", mixes=FP8, **sure),
    }


def _hopper(evidence: str, wgmma: str, mma: str, others: str) -> Table:
    """others: the source of integers and chains of fma."""
    sure = {"evidence": evidence}
    mixes = {"measured_mixes": int(evidence == "measured"), **sure}
    mixed = {"mixes": FP8, **mixes}
    widened = f"tl.dot widens to fp16; {mma}"
    return {
        **_rows("wgmma", ["bf16", "fp16"], _fp32(16, 25), "fp32", wgmma, **sure),
        **_rows("wgmma", ["tf32"], _fp32(8, 25), "fp32", wgmma, **sure),
        **_rows("wgmma", FP8, _fp32(32, 13, output_fraction=13, e_zero=-133), "fp32", wgmma, **mixed),
        **_rows("wgmma", ["fp16"], _fp16(16, 25, -21), "fp16", wgmma, **sure),
        **_rows("wgmma", FP8, _fp16(32, 13, -21), "fp16", wgmma, **mixed),
        **_rows("wgmma", ["int8"], IntegerUnit(32, saturates=0), "int32", f"IGMMA wraps; {others}", **sure),
        **_rows("mma", ["bf16", "fp16"], _fp32(16, 25), "fp32", mma, **sure),
        **_rows("mma", ["tf32"], _fp32(8, 25), "fp32", mma, **sure),
        **_rows("mma", FP8, _fp32(16, 25, **_INTERLEAVED), "fp32", widened, **mixed),
        **_rows("mma", ["fp16"], _fp16(16, 25, -21), "fp16", mma, **sure),
        **_rows("mma", FP8, _fp16(16, 25, -21, **_INTERLEAVED), "fp16", widened, **mixed),
        **_rows("mma", ["int8"], IntegerUnit(32, saturates=1), "int32", f"IMMA clamps (.satfinite); {others}", **sure),
        **_dmma(evidence, others),
        **_rows("ffma", ["fp32"], FmaUnit(32), "fp32", f"FFMA, tl.dot's input_precision='ieee'; {others}", **sure),
        **_late(mma, **mixes),
        **_WRAPS,
    }


_16_BIT = f"{_SIM}; {_VECTORS}"
BLACKWELL: Table = {
    **_rows("tcgen05", ["bf16", "fp16"], _fp32(16, 25), "fp32", f"UTCHMMA: {_SIM}"),
    **_rows("tcgen05", ["tf32"], _fp32(8, 25), "fp32", f"UTCHMMA: {_SIM}"),
    **_rows("tcgen05", ["fp16"], _fp16(16, 25, -21), "fp16", f"UTCHMMA: {_SIM}"),
    **_rows("tcgen05", FP8_FP6_FP4, _fp32(32, 25), "fp32", f"UTCQMMA, kind::f8f6f4: {_SIM}", mixes=FP8_FP6_FP4),
    **_rows("tcgen05", FP8_FP6_FP4, _fp16(32, 25, -21), "fp16", f"UTCQMMA, kind::f8f6f4: {_SIM}", mixes=FP8_FP6_FP4),
    **_rows("mma", ["bf16", "fp16"], _fp32(16, 25), "fp32", f"HMMA: {_16_BIT}"),
    **_rows("mma", ["tf32"], _fp32(8, 25), "fp32", f"HMMA: {_16_BIT}"),
    **_rows("mma", ["fp16"], _fp16(16, 25, -21), "fp16", f"HMMA: {_16_BIT}"),
    **_dmma(),
    **_IMMA,
    **_late(_VECTORS),
}
RTX_BLACKWELL: Table = {
    **_rows("mma", ["bf16", "fp16"], _fp32(16, 25), "fp32", f"HMMA: {_SIM}"),
    **_rows("mma", ["tf32"], _fp32(8, 25), "fp32", f"HMMA: {_SIM}"),
    **_rows("mma", ["fp16"], _fp16(16, 25, -21), "fp16", f"HMMA: {_SIM}"),
    **_rows("mma", FP8_FP6_FP4, _fp32(32, 25), "fp32", f"QMMA: {_SIM}", mixes=FP8_FP6_FP4),
    **_rows("mma", FP8_FP6_FP4, _fp16(32, 25, -21), "fp16", f"QMMA: {_SIM}", mixes=FP8_FP6_FP4),
    **_IMMA,
}

_CHAIN = f"chain of fma: {_SIM}"
_FLUSHES = f"MFMA flushes subnormals: {_SIM}; arXiv 2403.00232"
_FLOORS = f"{_SIM}, v2; versions differ in the last floors"
CDNA1: Table = {
    **_rows("mfma", ["bf16"], ExactUnit(2), "fp32", f"MFMA: {_SIM}, E-FDPA"),
    **_rows("mfma", ["fp16"], ExactUnit(4), "fp32", f"MFMA: {_SIM}, E-FDPA"),
    **_rows("mfma", ["fp32"], FmaUnit(32), "fp32", _CHAIN),
}
CDNA2: Table = {
    **_rows("mfma", ["bf16", "fp16"], FlushUnit(4), "fp32", f"bf16: the _1k forms; {_FLUSHES}"),
    **_rows("mfma_bf16", ["bf16"], FlushUnit(2), "fp32", f"the forms without _1k; {_FLUSHES}"),
    **_rows("mfma", ["fp32"], FmaUnit(32), "fp32", _CHAIN),
    **_rows("mfma", ["fp64"], FmaUnit(64), "fp64", _CHAIN),
}
_FNUZ = ("e4m3fnuz", "e5m2fnuz")
_TR = FloorUnit(lanes=8, halves=1, fraction_bits=24, joint_bits=31, drop=0)
CDNA3: Table = {
    **_rows("mfma", ["bf16", "fp16"], _TR, "fp32", f"TR-FDPA: {_FLOORS}", "provisional"),
    **_rows("mfma", ["tf32"], _TR._replace(lanes=4), "fp32", f"TR-FDPA: {_FLOORS}", "provisional"),
    **_rows(
        "mfma",
        _FNUZ,
        FloorUnit(lanes=16, halves=2, fraction_bits=24, joint_bits=31, drop=25),
        "fp32",
        f"GTR-FDPA: {_FLOORS}",
        "provisional",
        mixes=_FNUZ,
    ),
    **_rows("mfma", ["fp32"], FmaUnit(32), "fp32", _CHAIN),
    **_rows("mfma", ["fp64"], FmaUnit(64), "fp64", _CHAIN),
}

MACHINES: dict[str, Table] = {
    "h200": _hopper("measured", f"wgmma: {_RECORDED}; {_SIM}", f"mma.sync: {_RECORDED}; {_SIM}", _RECORDED),
    "h100": _hopper("published", f"wgmma: {_16_BIT}", f"mma.sync: {_16_BIT}", "sm_90, as measured on an H200"),
    "v100": VOLTA,
    "t4": TURING,
    "a100": AMPERE,
    "l40s": ADA,
    "rtx4090": ADA,
    "b200": BLACKWELL,
    "rtx5090": RTX_BLACKWELL,
    "mi100": CDNA1,
    "mi250x": CDNA2,
    "mi300x": CDNA3,
}

# Block-scaled dots: a scale for each 32 or 16 of k is an operand.
_ST = ScaledUnit(lanes=32, group=1, scale_block=32, fraction_bits=25, e_zero=-133)
_GST = ScaledUnit(lanes=64, group=16, scale_block=32, fraction_bits=35, e_zero=-139)


def _scaled(path: str) -> Table:
    """(path, format, format of the scales) -> row."""
    four = f"kind::mxf4nvf4: {_SIM}, GST-FDPA"
    return {
        **_rows(path, FP8_FP6_FP4, _ST, "e8m0", f"kind::mxf8f6f4: {_SIM}, ST-FDPA", mixes=FP8_FP6_FP4),
        **_rows(f"{path}_mxf4", ["e2m1"], _GST, "e8m0", f"kind::mxf4: {_SIM}, GST-FDPA"),
        **_rows(f"{path}_mxf4", ["e2m1"], _GST._replace(scale_block=16), "ue4m3", four),
    }


SCALED: dict[str, Table] = {"b200": _scaled("tcgen05"), "rtx5090": _scaled("mma")}

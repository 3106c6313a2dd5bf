"""Every recording of a real H200, computed again: what `lpsim verify` tells.

Each check computes one kind of recorded result with the emulator and counts the bits that differ: dots,
attention forward and backward, unary functions by their digests over whole chunks of inputs, operations of several
operands by digests over drawn ones.
"""

import importlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from . import attention, data, digest, dots, drawn, machines, reduction_cases, replay, replay_dots
from .dot_units import DotUnit
from .formats import lookup

#: zeros and subnormals, around 1, the largest finite values and NaN; both signs
EDGE_CHUNKS = (0x00, 0x3F, 0x7F, 0x80, 0xBF, 0xFF)
OPERATION_CHUNKS = range(4)  # of 2^18 results each, of the 16 recorded
OUR_NAMES = {"e4m3": "e4m3fn"}  # in the recordings e4m3 is OCP's


class Check(NamedTuple):
    """One row of the report."""

    operation: str
    recording: str
    compared: int  #: results, or inputs of a digest
    differing: int  #: results that differ; for a digest the inputs of the chunks that do
    example: str = ""  #: the first difference, in bits


def checks(chunks: Iterable[int] = EDGE_CHUNKS) -> Iterator[Check]:
    """All checks, one by one. chunks: which of the 256 chunks of 2^24 inputs the digests are computed for."""
    yield from recorded_dots("mma")
    yield from recorded_dots("mma_tiny")
    yield from recorded_plans()
    yield from recorded_attention()
    yield from recorded_kernels()
    yield from recorded_roundings()
    yield from recorded_reductions()
    chunks = list(chunks)
    for name in digest.PLAN:
        wrong = digest.mismatches(name, chunks=chunks)
        example = f"chunk {wrong[0]:#04x}: inputs {wrong[0]:02X}000000 to {wrong[0]:02X}FFFFFF" if wrong else ""
        size = 1 << digest.CHUNK_BITS
        yield Check(name, "digests.json", len(chunks) * size, len(wrong) * size, example)
    yield from recorded_operations()


def recorded_operations() -> Iterator[Check]:
    """Elementwise operations of several operands, and casts and functions of all 16-bit and 8-bit codes."""
    stored = replay.description()
    size = stored["per_chunk"]
    for fmt in drawn.FORMATS:
        for name, wrong in replay.mismatches(fmt, OPERATION_CHUNKS).items():
            first = wrong[0] * size if wrong else 0
            example = f"seed {stored['seed']}, elements {first} to {first + size - 1}" if wrong else ""
            yield Check(name, "elementwise.json", len(OPERATION_CHUNKS) * size, len(wrong) * size, example)
    for name, recorded in replay.tables().items():
        count, first = difference(replay.table(name), recorded)
        yield Check(name, "elementwise.npz", recorded.size, count, first)


def recorded_reductions() -> Iterator[Check]:
    """tl.sum, max, min and cumsum over dtypes, tiles, axes and warps; one check for each operation and dtype."""
    cases, rows = reduction_cases.cases(), {}
    for key, words in data.arrays("reductions").items():
        index, case = int(key), cases[int(key)]
        x, y = reduction_cases.operands(case, 0, index, 0.0)
        found = reduction_cases.emulated(case, x, y)
        recorded = words.view(found.dtype)
        count, first = difference(*(reduction_cases.comparable(z) for z in (found, recorded)))
        row = rows.setdefault(f"tl.{case.operation} {case.dtype}", [0, 0, ""])
        row[0], row[1], row[2] = row[0] + recorded.size, row[1] + count, row[2] or (first and f"{case}{first}")
    for operation, row in rows.items():
        yield Check(operation, "reductions.npz", *row)


def recorded_dots(recording: str) -> Iterator[Check]:
    """tl.dot results, one check for each format and instruction path."""
    arrays = data.arrays(recording)
    labels: dict[tuple[str, str], list[str]] = {}
    for key in arrays:
        fmt, path, *_ = key.split("|")
        if key.endswith("|A"):
            labels.setdefault((fmt, path), []).append(key.removesuffix("|A"))
    for (fmt, path), runs in labels.items():
        row = lookup(OUR_NAMES.get(fmt, fmt))
        unit = machines.dot_row("h200", path, row).unit
        assert isinstance(unit, DotUnit)
        compared, differing, example = 0, 0, ""
        for run in runs:
            a, b, recorded = (arrays[f"{run}|{x}"] for x in "ABD")
            c = arrays[f"{run}|C"].view(np.float32) if f"{run}|C" in arrays else None
            count, first = difference(dots.dot(a, b, c, unit, row, row), recorded)
            compared, differing = compared + recorded.size, differing + count
            example = example or (first and f"{run}{first}")
        yield Check(f"dot {fmt} {path}", f"{recording}.npz", compared, differing, example)


def recorded_plans() -> Iterator[Check]:
    """tl.dot and tl.dot_scaled in every option, one check for each run of the live comparison that is recorded."""
    rows: dict[str, Check] = {}
    for result in replay_dots.replay():
        before = rows.get(result.operation, Check(result.operation, "dots_live.npz", 0, 0))
        pair = replay_dots.without_payload(result.found), replay_dots.without_payload(result.recorded)
        count, first = difference(*pair)
        example = before.example or (first and f"{result.inputs}{first}")
        rows[result.operation] = before._replace(
            compared=before.compared + result.recorded.size, differing=before.differing + count, example=example
        )
    yield from rows.values()


def recorded_attention() -> Iterator[Check]:
    """Runs of plain Triton kernels, forward and backward, in recipe triton."""
    for recording in ("flash_forward", "flash_backward"):
        for case in data.description(recording):
            yield _attention(recording, case, data.run(recording, case["case"]))


def _attention(recording: str, case: dict, stored: dict[str, np.ndarray]) -> Check:
    options = {"causal": case["causal"], "block": (case["block_m"], case["block_n"]), "fmt": case["dtype"]}
    q, k, v = (stored[name] for name in "qkv")
    forward = attention.forward(q, k, v, **options)
    found = {"o": forward.o, "l": forward.l, "m": forward.m}
    if "do" in stored:
        backward = attention.backward(q, k, v, forward.o, forward.lse, stored["do"], **options)
        found |= {"lse2": forward.lse, **backward._asdict()}
    compared, differing, example = 0, 0, ""
    for name, x in found.items():
        count, first = difference(x, stored[name])
        compared, differing = compared + stored[name].size, differing + count
        example = example or (first and f"{name}{first}")
    way = "forward" if recording == "flash_forward" else "forward and backward"
    mask = "causal" if case["causal"] else "full"
    label = f"attention {way}, {case['dtype']}, {mask}, d {case['head_dim']}, inputs '{case['inputs']}'"
    return Check(label, f"{recording}.npz", compared, differing, example)


def recorded_kernels() -> Iterator[Check]:
    """Outputs of lpsim_triton's attention kernels, forward and backward, with every remedy."""
    crosscheck = importlib.import_module("lpsim_triton.attention_crosscheck")  # its inputs and recipes need no GPU
    configs, stored = crosscheck.configurations(), data.arrays("attention_live")
    for number in sorted({int(key.partition("_")[0]) for key in stored}):
        found = crosscheck.emulated(number, configs[number])
        compared, differing, example = 0, 0, ""
        for name, x in found.items():
            recorded = stored[f"{number}_{name}"]
            count = crosscheck.differing(recorded, x, configs[number].dtype)  # a NaN is a NaN
            compared, differing = compared + x.size, differing + count
            example = example or (count and f"{name}: {count} values") or ""
        kept = {key: value for key, value in configs[number]._asdict().items() if value not in ("", -1)}
        label = ", ".join(f"{key} {value}" for key, value in kept.items())
        yield Check(f"attention kernel {number}: {label}", "attention_live.npz", compared, differing, example)


def recorded_roundings() -> Iterator[Check]:
    """Quantise kernels in every format and mode, operations of the mirrored core, and tl.rand."""
    recorded = importlib.import_module("lpsim_triton.recorded_quantize")
    yield from recorded.replay(data.description("quantize")["digests"])


def difference(found: np.ndarray, recorded: np.ndarray) -> tuple[int, str]:
    """How many elements differ in their bits, and the first of them; +0 and -0 differ."""
    word = np.dtype(f"u{recorded.dtype.itemsize}")
    found, recorded = (np.ascontiguousarray(x).view(word) for x in (found, recorded))
    wrong = np.argwhere(found != recorded)
    if len(wrong) == 0:
        return 0, ""
    where = tuple(int(i) for i in wrong[0])
    digits = 2 * word.itemsize
    return len(wrong), f"{list(where)}: {int(found[where]):0{digits}X}, recorded {int(recorded[where]):0{digits}X}"

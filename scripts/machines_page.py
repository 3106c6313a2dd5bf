"""Writes docs/machines.md: the dot instructions of each GPU, how they add, how sure. `python scripts/machines_page.py`

Everything on the page comes from the rows of `lpsim.machines`, the plans of `lpsim.tl_dot` and the report of the live
comparison; tests/test_machines_page.py fails if the page is not what this gives.
"""

from collections import Counter
from pathlib import Path

from lpsim import data, machines
from lpsim.dot_units import DotUnit, ExactUnit, FloorUnit, FlushUnit, FmaUnit, IntegerUnit, LateUnit, ScaledUnit
from lpsim.policies import RNE
from lpsim.tl_dot import plan

PAGE = Path(__file__).parents[1] / "docs" / "machines.md"

GPUS = {
    "h200": "NVIDIA H200 (Hopper, sm_90)",
    "h100": "NVIDIA H100 (Hopper, sm_90)",
    "v100": "NVIDIA V100 (Volta)",
    "t4": "NVIDIA T4 (Turing)",
    "a100": "NVIDIA A100 (Ampere)",
    "l40s": "NVIDIA L40S (Ada)",
    "rtx4090": "NVIDIA RTX 4090 (Ada)",
    "b200": "NVIDIA B200 (Blackwell, sm_100)",
    "rtx5090": "NVIDIA RTX 5090 (Blackwell, sm_120)",
    "mi100": "AMD MI100 (CDNA1)",
    "mi250x": "AMD MI250X (CDNA2)",
    "mi300x": "AMD MI300X (CDNA3)",
}
NOT_MODELLED = [
    ("`tl.dot` of machines other than sm_90", "what Triton generates there was not read; use `dot` with a path"),
    ("`tl.dot` in other versions of Triton than 3.6 and 3.9", "not read"),
    ("`tl.dot` of operands that a kernel loads in 8 bits and widens itself", "mma.sync groups k otherwise then"),
    ("`tl.dot` of three-dimensional tiles, of integers other than int8", "not read"),
    ("`tl.dot_scaled` on mma.sync with e2m1 and K = 32", "its order of k was not read"),
    ("`tl.dot_scaled` on Blackwell", "what Triton generates there was not read; `dot_scaled` is the instruction"),
    ("payloads of NaN in chains of fp64 fma", "results are NaN, with a payload of their own"),
    ("bits of NaN, sign of zero sums on AMD", "not published"),
    ("sparse MMA, int4, int1 and unsigned operands, DMMA in other rounding modes", "no row"),
    ("AMD i8 MFMA, CDNA4 and RDNA", "no row"),
]


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def numbers(unit) -> str:
    """A unit in words."""
    if isinstance(unit, DotUnit):
        target = "fp16" if unit.exponent_bits == 5 else "fp32"
        how = "to nearest even" if unit.rounding == RNE else "cut"
        cut = "" if unit.output_fraction == unit.accumulator_fraction else f" with {unit.output_fraction} fraction bits"
        order = f", k mod {unit.k_width} in turn" if unit.k_width > 2 else ""
        zero = f"zero counts as 2^{unit.e_zero}"
        return f"{unit.lanes} products, {unit.fraction_bits} bits, {how} to {target}{cut}, {zero}{order}"
    if isinstance(unit, LateUnit):
        return f"from zero over {unit.k} k ({numbers(unit.unit)}), then one addition of the accumulator"
    if isinstance(unit, ScaledUnit):
        group = "" if unit.group == 1 else f" in exact groups of {unit.group}"
        bits = f"{unit.fraction_bits} bits, cut to fp32"
        return f"{unit.lanes} products{group}, a scale for each {unit.scale_block} k, {bits}"
    if isinstance(unit, FmaUnit):
        return f"chain of fp{unit.bits} fma, k ascending"
    if isinstance(unit, IntegerUnit):
        return f"exact over {unit.k} k, then {'clamped' if unit.saturates else 'wrapped'}"
    if isinstance(unit, ExactUnit):
        return f"{unit.lanes} products and the accumulator exactly, one rounding to nearest even"
    if isinstance(unit, FlushUnit):
        return f"fp32 operations, subnormals flushed, products in groups of {unit.group}"
    assert isinstance(unit, FloorUnit)
    halves = "even and odd k apart, " if unit.halves == 2 else ""
    return f"{unit.lanes} products, {halves}{unit.fraction_bits} bits, joined under floors at {unit.joint_bits} bits"


def compared() -> Counter:
    """(path, format, accumulator) of the H200's rows -> outputs of the live comparison that went through them."""
    counts: Counter = Counter()
    for run in data.description("dots_live")["runs"]:
        if "accumulator" in run:
            counts["mma_ptx", run["a"], run["accumulator"]] += run["compared"]
        elif "block" in run:
            names = ("form", "num_warps", "input_precision", "max_num_imprecise_acc", "out_dtype")
            m, n, k = run["block"]
            chosen = plan(m, n, k, run["a"], run["b"], **{name: run[name] for name in names})
            counts[chosen.path, chosen.a_fmt, chosen.out] += run["compared"]
    return counts


def grouped(rows, count: Counter | None) -> list[list[str]]:
    """Rows of the table; formats of one unit, source and evidence on one line."""
    lines: dict[tuple, list] = {}
    for (path, fmt, accumulator), row in rows.items():
        line = lines.setdefault((path, accumulator, row.unit, row.source, row.evidence, bool(row.mixes)), [[], 0])
        line[0].append(fmt)
        line[1] += count[path, fmt, accumulator] if count else 0
    return [
        [
            f"`{path}`",
            ", ".join(names) + (" (mixed too)" if mixes else ""),
            accumulator,
            numbers(unit),
            source,
            evidence,
        ]
        + ([f"{outputs:,}"] if count else [])
        for (path, accumulator, unit, source, evidence, mixes), (names, outputs) in lines.items()
    ]


def rows() -> str:
    head = ["path", "operands", "accumulator", "what it does", "source", "evidence"]
    parts = []
    for name, title in GPUS.items():
        count = compared() if name == "h200" else None
        parts.append(f'### {title}: `lp.machine("{name}")`\n')
        parts.append(table(head + (["outputs compared"] if count else []), grouped(machines.rows(name), count)) + "\n")
        if scaled := machines.scaled_rows(name):
            parts.append(table([*head[:2], "scales", *head[3:]], grouped(scaled, None)) + "\n")
    return "\n".join(parts).rstrip()


def live() -> str:
    report = data.description("dots_live")
    found = [[run["operation"], f"{run['compared']:,}", f"{run['differing']:,}"] for run in report["runs"]]
    return table(["run", "outputs compared", "that differ"], found)


def total() -> str:
    report = data.description("dots_live")
    outputs, wrong = (sum(run[name] for run in report["runs"]) for name in ("compared", "differing"))
    versions = f"torch {report['torch']}, Triton {report['triton']}, CUDA {report['cuda']}"
    return f"{outputs:,} outputs on one {report['device']} ({versions}), seed {report['seed']}: {wrong} differ"


def missing() -> str:
    return table(["not modelled", "why"], [[what, why] for what, why in NOT_MODELLED])


TEXT = """# Machines: which dot instructions are modelled, and how sure that is

A dot instruction is a row of integers with a source and an evidence: *measured* was compared with the hardware bit for
bit, *published* is somebody else's model, *provisional* is one whose versions disagree. `lp.machine(name).dot_rows()`
gives the rows, `lp.machine(name).dot(...)` computes on one, and what has no row raises `NotModelled`. This page is
written by `scripts/machines_page.py`.

```python
import numpy as np
import lpsim as lp

a, b = np.full((1, 32), 1.5, np.float16), np.full((32, 1), 0.7, np.float16)
for name in ("v100", "a100", "h200", "mi250x"):
    print(name, lp.machine(name).dot(a, b)[0, 0])             # fp16 into fp32, on the machine's first path
row = lp.machine("h200").dot_rows()["wgmma", "e4m3fn", "fp32"]
print(row.unit, row.evidence)                                 # DotUnit(lanes=32, fraction_bits=13, ...) measured
```

A row of your own makes a machine of its own, without code:

```python
from lpsim.dot_units import DotUnit
from lpsim.policies import RTZ

unit = DotUnit(lanes=4, fraction_bits=23, rounding=RTZ, output_fraction=23, e_zero=-131)
lp.machines.add_dot_unit("my-chip", "dpa", "fp16", unit, source="probed by me")
print(lp.machine("my-chip").dot(a, b)[0, 0])
```

## The plan of a tl.dot

On Hopper, shapes, formats and options of a `tl.dot` decide which instruction it becomes, whether the accumulator is
live or added late, when fp8 sums move to fp32, and how fp32 is split. `lpsim.tl_dot.plan` says so as data, and
`lp.machine("h200").tl_dot(...)` computes it. Plans are those of Triton 3.6, compared with the hardware; `triton="3.9"`
gives those of 3.9, read off the code that it generates (tests/kernels/test_dot_lowering.py reads both):

```python
from lpsim import tl_dot

print(tl_dot.plan(64, 64, 128, "e4m3fn", max_num_imprecise_acc=64))
print(tl_dot.plan(16, 16, 32, "fp32", input_precision="bf16x3"))
h200 = lp.machine("h200")
x, y = (np.ones(s, np.float32) / 3 for s in ((64, 32), (32, 64)))
for precision in ("tf32", "tf32x3", "bf16x3", "bf16x6", "ieee"):
    print(precision, h200.tl_dot(x, y, input_precision=precision)[0, 0])
```

`tl_dot_scaled` is tl.dot_scaled as Triton emulates it on Hopper. There, infinities and NaN of e5m2 become the finite
numbers 65536 to 114688, because its conversion to bf16 is a shift and a multiplication.

## Rows

The dot-product-add of NVIDIA's tensor cores: so many products and the accumulator are aligned to the largest exponent,
each is cut so many bits below it, and the sum is rounded once.

<rows>

## What was compared

<total>. Inputs: normal, wide exponents, one-signed, cancelling, tiny, special values, random bits. NaN is compared by
its bits too, except in fp64. `python -m lpsim_triton.crosscheck_dots record FOLDER SEED` does it again.

<live>

## What is not modelled

<missing>
"""


def page() -> str:
    assert sorted(GPUS) == machines.names(), "a machine without a title, or the other way round"
    text = TEXT
    for part in (rows, total, live, missing):
        text = text.replace(f"<{part.__name__}>", part())
    return text


if __name__ == "__main__":
    PAGE.write_text(page())

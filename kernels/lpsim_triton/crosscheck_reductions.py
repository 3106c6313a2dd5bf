"""Do tl.sum, max, min and cumsum give the emulator's bits? Fresh inputs, live, over what a kernel's author varies.

    python -m lpsim_triton.crosscheck_reductions check FOLDER SEED SCALE     every case, into reductions.json
    python -m lpsim_triton.crosscheck_reductions record FOLDER     a few results of each kind, for tests without a GPU

The cases are those of `lpsim.reduction_cases`. The layout that Triton wrote into ttgir is compared with
`layouts.layout_of` as well.
"""

import json
import multiprocessing
import re
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

from lpsim import verify
from lpsim.instructions import machine
from lpsim.layouts import Accumulator
from lpsim.reduction_cases import DTYPES, Case, cases, comparable, emulated, layout, operands, splitmix

SMALL = 1024  #: bytes of a result that is recorded, at most
WORKERS = 8  #: processes; each compiles, runs and compares its share


def computed(case: Case, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, str]:
    """The same on the GPU, and the layout in Triton's own words."""
    import torch

    from . import reductions

    def tensor(z):
        carrier = z.view(np.int16) if z.itemsize == 2 else z
        found = torch.from_numpy(carrier).cuda()
        return found.view(torch.bfloat16 if case.dtype == "bf16" else torch.float16) if z.itemsize == 2 else found

    operation, fusion = case.operation.split(",")[0], "no fusion" not in case.operation
    n = case.shape[-1]
    a, b = tensor(x), tensor(y)
    if len(case.shape) == 1:
        out, kernel = reductions.reduce_rows(a, b, n, operation, case.num_warps, fusion)
    else:
        out, kernel = reductions.reduce_tiles(a, b, n, case.axis, operation, case.num_warps, fusion)
    out = out.cpu()
    return (out.view(torch.int16).numpy().view(DTYPES[case.dtype]) if out.element_size() == 2 else out.numpy()), (
        written_layout(kernel.asm["ttgir"])
    )


def written_layout(ttgir: str) -> str:
    """The layout of the operand of the first reduction or scan in ttgir; "" if there is none."""
    rows = dict(re.findall(r"^(#\w+) = (.*)$", ttgir, re.M))
    found = re.search(r'"tt\.(?:reduce|scan)".*?\}\) : \(tensor<[^,<>]*, (#\w+)>', ttgir, re.S)
    return rows.get(found[1], "") if found else ""


def expected_layout(case: Case) -> str:
    """`layouts.layout_of`, spelt as in ttgir."""
    names = ("sizePerThread", "threadsPerWarp", "warpsPerCTA", "order")
    fields = ", ".join(f"{name} = {list(sides)}" for name, sides in zip(names, layout(case), strict=True))
    return f"#ttg.blocked<{{{fields}}}>"


class Result(NamedTuple):
    """What came of a case: values compared, values that differ, and the first of these."""

    operation: str
    compared: int
    differing: int
    example: str


def compared(job: tuple[int, int, float]) -> Result:
    """One case, by (index, seed, scale). One that cannot be run differs, in one value."""
    index, seed, scale = job
    case = cases()[index]
    operation, name = f"tl.{case.operation} {case.dtype}", f"{case}, seed {seed}"
    try:
        x, y = operands(case, seed, index, scale)
        found, written = computed(case, x, y)
        wrong, example = verify.difference(comparable(emulated(case, x, y)), comparable(found))
    except Exception as error:  # whatever stops a case must not hide the others
        return Result(operation, 1, 1, f"{name}: {type(error).__name__}: {error}")
    if written and written != expected_layout(case):
        wrong, example = found.size, f"layout {written}, expected {expected_layout(case)}"
    return Result(operation, found.size, wrong, example and f"{name}: {example}")


def results(seed: int, scale: float) -> list[Result]:
    """Every case and the accumulators."""
    jobs = [(index, seed, scale) for index in range(len(cases()))]
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        accumulators = pool.apply_async(accumulator_result, (seed,))
        return [*pool.map(compared, jobs, chunksize=4), accumulators.get()]


def checks(seed: int, scale: float = 1.0) -> Iterator[verify.Check]:
    """A row for each operation and dtype, and for accumulators."""
    rows: dict[str, verify.Check] = {}
    for name, compared, differing, example in results(seed, scale):
        row = rows.get(name, verify.Check(name, "live", 0, 0))
        rows[name] = verify.Check(
            name, "live", row.compared + compared, row.differing + differing, row.example or example
        )
    yield from rows.values()


def accumulator_result(seed: int) -> Result:
    """tl.sum and tl.max of tl.dot's result, along both axes."""
    import torch

    from . import reductions

    count, wrong, example = 0, 0, ""
    for index, (m, n, warps) in enumerate(((64, 32, 4), (128, 64, 4), (128, 64, 8), (64, 256, 8), (256, 128, 8))):
        words = splitmix(seed, 10_000 + index, 64 * (m + n))
        x = ((words >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1.0).astype(ml_dtypes.bfloat16)
        a, b = x[: 64 * m].reshape(m, 64), x[64 * m :].reshape(64, n)
        d = np.asarray(machine("h200").dot(a, b))
        left, right = (torch.from_numpy(z.view(np.int16)).cuda().view(torch.bfloat16) for z in (a, b))
        for axis, operation in product((0, 1), ("sum", "max")):
            out, kernel = reductions.reduce_accumulator(left, right, axis, operation, warps)
            options = {"axis": axis, "tile": 2, "layout": accumulator_layout(kernel.asm["ttgir"])}
            wanted = np.asarray(getattr(machine("h200"), operation)(d, **options))
            found = out.cpu().numpy()
            differing, first = verify.difference(wanted, found)
            count, wrong = count + found.size, wrong + differing
            example = example or (first and f"{operation} of ({m}, {n}) along {axis}, {warps} warps: {first}")
    return Result("tl.sum, tl.max of an accumulator", count, wrong, example)


def accumulator_layout(ttgir: str) -> Accumulator:
    """The row that Triton wrote."""
    found = re.search(
        r"nvidia_mma<\{versionMajor = 3.*?warpsPerCTA = \[(\d+), (\d+)\].*?instrShape = \[\d+, (\d+)", ttgir
    )
    if found is None:
        raise LookupError("no wgmma accumulator in ttgir")
    down, across, columns = map(int, found.groups())
    return Accumulator((down, across), columns)


def record(folder: str) -> None:
    """Small results of every third case into FOLDER/reductions.npz."""
    arrays = {}
    for index in range(0, len(cases()), 3):
        case = cases()[index]
        out, _ = computed(case, *operands(case, 0, index, 0.0))
        if out.nbytes <= SMALL:
            arrays[str(index)] = np.ascontiguousarray(out).view(f"u{out.dtype.itemsize}")
    path = Path(folder) / "reductions.npz"
    part = path.with_suffix(".part.npz")
    np.savez_compressed(part, allow_pickle=False, **arrays)
    part.replace(path)


def check(folder: str, seed: str = "1", scale: str = "1") -> None:
    """Every result into FOLDER/reductions.json, those with a difference first."""
    found = sorted(results(int(seed), float(scale)), key=lambda result: -result.differing)
    part = Path(folder) / "reductions.part"
    part.write_text(json.dumps([result._asdict() for result in found]))
    part.replace(Path(folder) / "reductions.json")


if __name__ == "__main__":
    {"record": record, "check": check}[sys.argv[1]](*sys.argv[2:])

"""Does tl.dot on the GPU give the plan's bits? Over 10^9 outputs: formats, paths, K, forms, options, kinds of input.

    python -m lpsim_triton.crosscheck_dots record FOLDER SEED     all checks, and small results for tests without a GPU

Each run computes matrices on the GPU and beside it, and compares all bits, NaN's too (but for doubles, whose NaN
carries a payload that is not modelled). The runs are shared among processes, since each compiles its own kernel.
"""

import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lpsim import dot_kinds, threads, tl_dot_run
from lpsim.formats import FORMATS
from lpsim.machines import dot_row
from lpsim.verify import Check

from . import dot, dot_cases, dot_ptx
from .dot_cases import KINDS, PtxRun, Run, ScaledRun

WORKERS = 8  #: processes
SIDE = 1024  #: matrices of the large runs are (10, SIDE, K) x (10, K, SIDE) at scale 1
LARGE, SMALL = 10 << 20, 1 << 18  #: outputs of one run and one kind
SCALED = 16  #: tiles of a scaled run and one kind
PTX = 2048  #: tiles of a run of mma.sync and one kind


def shape_of(run: Run, scale: float) -> tuple[int, int, int]:
    """(batch, M, N) of a run's results."""
    outputs = (LARGE if run.large else SMALL) * scale
    side = max(64, min(SIDE if run.large else SIDE // 4, 1 << round(np.log2(max(outputs, 1)) / 2)))
    return max(1, round(outputs / side**2)), side, side


def arrays_of(run: Run, number: int, kind: str, seed: int, shape: tuple[int, int, int], k: int):
    """(a, b, c or None) of a run: codes, float32 or float64 and int8 numbers; c one matrix for the whole batch."""
    batch, m, n = shape
    stream = dot_cases.streams(number, KINDS.index(kind))
    seed = seed * 1024 + k
    a = dot_cases.operand(seed, next(stream), (batch, m, k), run.a, kind, -1)
    b = dot_cases.operand(seed, next(stream), (batch, k, n), run.b, kind, -2)
    c = dot_cases.accumulator(seed, next(stream), (1, m, n), run.out_dtype, kind) if run.c else None
    floats = {"fp32": np.float32, "fp64": np.float64}
    a, b = (x.view(floats[name]) if name in floats else x for x, name in ((a, run.a), (b, run.b)))
    return a, b, c


def on_gpu(run: Run, a: np.ndarray, b: np.ndarray, c: np.ndarray | None) -> np.ndarray:
    """The kernel's result."""
    x, y = _tensor(a, run.a), _tensor(b, run.b)
    z = None if c is None else _tensor(c, run.out_dtype).expand(a.shape[0], -1, -1)
    return dot.dot(x, y, z, block=run.block, **run.options()).cpu().numpy()


def emulated(run: Run, a: np.ndarray, b: np.ndarray, c: np.ndarray | None) -> np.ndarray:
    """The result of the plan for the Triton that is installed."""
    import triton

    version = {"triton": triton.__version__.rpartition(".")[0]}
    a_fmt, b_fmt = (name if name == "int8" else FORMATS[name] for name in (run.a, run.b))
    return tl_dot_run.tl_dot(a, b, c, run.block, a_fmt, b_fmt, run.options() | version)


def _tensor(x: np.ndarray, name: str):
    import torch

    signed = x.view(np.dtype(f"i{x.dtype.itemsize}")) if x.dtype.kind == "u" and x.dtype.itemsize > 1 else x
    tensor = torch.from_numpy(np.ascontiguousarray(signed)).cuda()
    return tensor.view(dot.torch_dtype(name))


def differences(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Indices (n, 3) where the bits differ; for doubles, one NaN is as good as another."""
    if wanted.dtype == np.float64:
        found, wanted = (np.where(np.isnan(x), np.nan, x) for x in (found, wanted))
    word = np.dtype(f"u{wanted.dtype.itemsize}")
    found, wanted = (np.ascontiguousarray(x).view(word) for x in (found, wanted))
    return np.empty((0, 3), np.int64) if np.array_equal(found, wanted) else np.argwhere(found != wanted)


def hexadecimal(x: np.ndarray) -> str:
    """The bits of a few numbers."""
    x = np.ascontiguousarray(x)
    return " ".join(f"{int(word):0{2 * x.dtype.itemsize}X}" for word in x.view(np.dtype(f"u{x.dtype.itemsize}")).flat)


def smallest(a, b, c, found, wanted, at) -> str:
    """The failing case with the fewest non-zero products, in bits."""
    places = [tuple(int(i) for i in place) for place in at[:64]]
    w, i, j = min(places, key=lambda p: int(np.count_nonzero((a[p[0], p[1]] != 0) & (b[p[0], :, p[2]] != 0))))
    start = "none" if c is None else hexadecimal(c[w % len(c), i, j])
    return (
        f"[{w}, {i}, {j}]: GPU {hexadecimal(wanted[w, i, j])}, lpsim {hexadecimal(found[w, i, j])}; c {start}; "
        f"a {hexadecimal(a[w, i])}; b {hexadecimal(b[w, :, j])}"
    )


def check_plain(number: int, run: Run, seed: int, scale: float) -> Check:
    """One run over all kinds of input and its K."""
    compared, differing, example = 0, 0, ""
    for kind in KINDS:
        for k in run.k:
            a, b, c = arrays_of(run, number, kind, seed, shape_of(run, scale), k)
            wanted, found = on_gpu(run, a, b, c), emulated(run, a, b, c)
            at = differences(found, wanted)
            compared, differing = compared + wanted.size, differing + len(at)
            if len(at) and not example:
                example = f"{kind}, K {k}, seed {seed} {smallest(a, b, c, found, wanted, at)}"
    return Check(str(run), "live", compared, differing, example)


def scaled_arrays(run: ScaledRun, number: int, kind: str, seed: int, tiles: int):
    """(a, a_scales, b, b_scales or None, c) of tiles: codes one a byte, scales over K as lpsim takes them."""
    m, n, k = run.tile
    stream = dot_cases.streams(4096 + number, KINDS.index(kind))
    draw = dot_cases.operand
    a = draw(seed, next(stream), (tiles, m, k), run.a, kind, -1) & _mask(run.a)
    b = draw(seed, next(stream), (tiles, k, n), run.b, kind, -2) & _mask(run.b)
    c = dot_cases.accumulator(seed, next(stream), (tiles, m, n), "fp32", kind)
    words = [dot_cases.words(seed, next(stream), tiles * rows * (k // 32)) for rows in (m, n)]
    scales = [_scales(w, kind) for w in words]
    b_scales = scales[1].reshape(tiles, k // 32, n) if run.b_scaled else None
    return a, scales[0].reshape(tiles, m, k // 32), b, b_scales, c


def _mask(name: str):
    return np.uint8(0xF) if name == "e2m1" else np.array(-1).astype(np.dtype(f"u{FORMATS[name].bits // 8}"))


def _scales(words: np.ndarray, kind: str) -> np.ndarray:
    """e8m0 codes: near 1; any, 0 and 255 among them, where inputs are of any size too."""
    near = np.uint64(120) + words % np.uint64(16)
    return (words % np.uint64(256) if kind in ("wide", "bits", "special", "tiny") else near).astype(np.uint8)


def packed(codes: np.ndarray, name: str, axis: int) -> np.ndarray:
    """e2m1 as Triton loads it: two codes along K in a byte, the first in the low half."""
    if name != "e2m1":
        return codes
    low, high = (codes[..., i::2] if axis == -1 else codes[..., i::2, :] for i in (0, 1))
    return low | high << np.uint8(4)


def scaled_pair(run: ScaledRun, a, a_scales, b, b_scales, c) -> tuple[np.ndarray, np.ndarray]:
    """(GPU's, lpsim's) results of one scaled run."""
    x, y = _tensor(packed(a, run.a, -1), run.a), _tensor(packed(b, run.b, -2), run.b)
    turned = None if b_scales is None else _tensor(np.swapaxes(b_scales, 1, 2), "e2m1")
    options = {"num_warps": run.num_warps, "fast_math": run.fast_math}
    wanted = dot.dot_scaled(x, _tensor(a_scales, "e2m1"), run.a, y, turned, run.b, _tensor(c, "fp32"), **options)
    m, n, _ = run.tile
    found = tl_dot_run.tl_dot_scaled(a, a_scales, run.a, b, b_scales, run.b, c, m=m, n=n, **options)
    return wanted.cpu().numpy(), found


def check_scaled(number: int, run: ScaledRun, seed: int, scale: float) -> Check:
    """One scaled run over all kinds of input."""
    compared, differing, example = 0, 0, ""
    for kind in KINDS:
        a, a_scales, b, b_scales, c = scaled_arrays(run, number, kind, seed, max(1, round(SCALED * scale)))
        wanted, found = scaled_pair(run, a, a_scales, b, b_scales, c)
        at = differences(found, wanted)
        compared, differing = compared + wanted.size, differing + len(at)
        if len(at) and not example:
            example = f"{kind}, seed {seed} {smallest(a, b, c, found, wanted, at)}"
    return Check(str(run), "live", compared, differing, example)


def ptx_arrays(run: PtxRun, number: int, kind: str, seed: int, tiles: int):
    """(a, b, c) of tiles of m16n8k32."""
    stream = dot_cases.streams(8192 + number, KINDS.index(kind))
    a = dot_cases.operand(seed, next(stream), (tiles, dot_ptx.M, dot_ptx.K), run.a, kind, -1)
    b = dot_cases.operand(seed, next(stream), (tiles, dot_ptx.K, dot_ptx.N), run.b, kind, -2)
    return a, b, dot_cases.accumulator(seed, next(stream), (tiles, dot_ptx.M, dot_ptx.N), run.accumulator, kind)


def check_ptx(number: int, run: PtxRun, seed: int, scale: float) -> Check:
    """One run of the fp8 mma.sync of PTX over all kinds of input."""
    unit = dot_row("h200", "mma_ptx", run.a, run.b, run.accumulator).unit
    compared, differing, example = 0, 0, ""
    for kind in KINDS:
        a, b, c = ptx_arrays(run, number, kind, seed, max(1, round(PTX * scale)))
        wanted = dot_ptx.mma(a, b, c, run.a, run.b)
        found = dot_kinds.dot(a, b, c, unit, FORMATS[run.a], FORMATS[run.b])
        at = differences(found, wanted)
        compared, differing = compared + wanted.size, differing + len(at)
        if len(at) and not example:
            example = f"{kind}, seed {seed} {smallest(a, b, c, found, wanted, at)}"
    return Check(str(run), "live", compared, differing, example)


def all_runs() -> list:
    """Every run; its place here is its number."""
    return [*dot_cases.runs(), *dot_cases.scaled_runs(), *dot_cases.ptx_runs()]


def check(job: tuple[int, int, float]) -> Check:
    """Number of a run, seed, scale: one row."""
    number, seed, scale = job
    run = all_runs()[number]
    which = {Run: check_plain, ScaledRun: check_scaled, PtxRun: check_ptx}[type(run)]
    return which(number, run, seed, scale)


def _share_cores() -> None:
    threads.set_threads(max(1, (os.cpu_count() or WORKERS) // WORKERS))


def checks(seed: int, scale: float = 1.0) -> Iterator[Check]:
    """A row for each run; more than 10^9 outputs in all at scale 1. Example: the smallest failing case in bits."""
    with multiprocessing.get_context("spawn").Pool(WORKERS, _share_cores) as pool:
        yield from pool.imap(check, [(number, seed, scale) for number in range(len(all_runs()))])


RECORDED = 6  #: rows and columns of a recorded result
RECORDED_KINDS = ("cancelling", "tiny", "special", "bits")


def recordings(seed: int) -> dict[str, np.ndarray]:
    """Small results of the rarer runs, by "number|kind|name": A, B, C, D, and of scaled runs SA, SB; C, SB if any."""
    arrays = {}
    for number, run in enumerate(all_runs()):
        if isinstance(run, Run) and not dot_cases.is_rare(run):
            continue
        which = {Run: _recording, ScaledRun: _scaled_recording, PtxRun: _ptx_recording}[type(run)]
        for kind in RECORDED_KINDS:
            arrays |= {f"{number}|{kind}|{name}": x for name, x in which(run, number, kind, seed).items()}
    return arrays


def _recording(run: Run, number: int, kind: str, seed: int) -> dict[str, np.ndarray]:
    k = run.block[2] if run.a in ("fp32", "fp64") or run.block[2] > 64 else 2 * run.block[2]
    a, b, c = arrays_of(run, number, kind, seed, (1, RECORDED, RECORDED), k)
    return {"A": a[0], "B": b[0], "D": on_gpu(run, a, b, c)[0]} | ({} if c is None else {"C": c[0]})


def _scaled_recording(run: ScaledRun, number: int, kind: str, seed: int) -> dict[str, np.ndarray]:
    """The upper left corner of one tile: an output depends on its own row and column alone."""
    a, a_scales, b, b_scales, c = scaled_arrays(run, number, kind, seed, 1)
    wanted, _ = scaled_pair(run, a, a_scales, b, b_scales, c)
    n = RECORDED
    kept = {"A": a[0, :n], "B": b[0, :, :n], "C": c[0, :n, :n], "D": wanted[0, :n, :n], "SA": a_scales[0, :n]}
    return kept if b_scales is None else kept | {"SB": b_scales[0, :, :n]}


def _ptx_recording(run: PtxRun, number: int, kind: str, seed: int) -> dict[str, np.ndarray]:
    a, b, c = ptx_arrays(run, number, kind, seed, 1)
    wanted = dot_ptx.mma(a, b, c, run.a, run.b)
    n = RECORDED
    return {"A": a[0, :n], "B": b[0, :, :n], "C": c[0, :n, :n], "D": wanted[0, :n, :n]}


def record(folder: str, seed: str) -> None:
    """dots_live.npz, the recordings, and dots_live.json: the device and a row for each run, with what it compared.

    Written under other names, then renamed.
    """
    import torch
    import triton

    def part(row: Check, run) -> dict:
        return {"compared": row.compared, "differing": row.differing, "example": row.example, **run.described()}

    rows = [part(row, run) for row, run in zip(checks(int(seed)), all_runs(), strict=True)]
    versions = {"torch": torch.__version__, "triton": triton.__version__, "cuda": torch.version.cuda}
    report = {"device": torch.cuda.get_device_name(), **versions, "seed": int(seed), "runs": rows}
    path = Path(folder) / "dots_live.json"
    path.with_suffix(".part").write_text(json.dumps(report, indent=0))
    path.with_suffix(".part").replace(path)
    np.savez_compressed(path.with_suffix(".part.npz"), allow_pickle=False, **recordings(int(seed)))
    path.with_suffix(".part.npz").replace(path.with_suffix(".npz"))


if __name__ == "__main__":
    _, command, *arguments = sys.argv
    {"record": record}[command](*arguments)

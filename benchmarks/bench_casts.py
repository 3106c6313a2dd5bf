"""How fast casts and elementwise operations are, beside their peers in the same run.

    python benchmarks/bench_casts.py [--elements 10000000] > benchmarks/results/casts.json
    python benchmarks/speed_page.py > docs/speed.md

A child process for one core (pinned; its clock is the thread's own, so that what others take on a shared machine
does not count) and one for two (wall clock). In each row the contestants take turns: a warm-up, then
five rounds; the time is the median of the five. Outputs are allocated beforehand wherever the library allows
it. torch, ml_dtypes and gfloat take part if they are installed; CPFloat is C without a package on PyPI and is
not here. gfloat is slow and gets a sixteenth of the elements.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np

import lpsim as lp

ROUNDS = 5
GFLOAT_SHARE = 16
USER = lp.Format(12, 6, 31, nans=1, infinity=1)
NOISE = {"rounding": lp.stochastic(bits=16, seed=0, stream=1)}
ML_DTYPES = {
    "bf16": ml_dtypes.bfloat16,
    "fp16": np.float16,
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
}
HAS = {name: importlib.util.find_spec(name) is not None for name in ("torch", "gfloat")}
#: a contestant: what to time, and how many elements one call treats
Contestant = tuple[Callable[[], object], int]


def torch_dtype(name: str):
    import torch

    known = {"fp16": "float16", "bf16": "bfloat16"}
    return getattr(torch, known.get(name, f"float8_{name}"))


def copying(source, target) -> Callable[[], object]:
    return lambda: np.copyto(target, source, casting="unsafe")


def torch_copy(x: np.ndarray, name: str) -> Callable[[], object]:
    import torch

    source, target = torch.from_numpy(x), torch.empty(x.shape, dtype=torch_dtype(name))
    return lambda: target.copy_(source)


def gfloat_round(x: np.ndarray, name: str, bits: int = 0) -> Contestant:
    from gfloat import RoundMode, formats, round_ndarray

    known = {
        "bf16": formats.format_info_bfloat16,
        "fp16": formats.format_info_binary16,
        "e4m3fn": formats.format_info_ocp_e4m3,
        "e5m2": formats.format_info_ocp_e5m2,
    }
    few = x[: x.size // GFLOAT_SHARE].astype(np.float64)
    if not bits:
        return lambda: round_ndarray(known[name], few, RoundMode.TiesToEven), few.size
    rng = np.random.default_rng(0)

    def stochastic():
        words = rng.integers(0, 1 << bits, few.size)
        return round_ndarray(known[name], few, RoundMode.Stochastic, srbits=words, srnumbits=bits)

    return stochastic, few.size


def casts(x: np.ndarray, wide: np.ndarray) -> dict[str, dict[str, Contestant]]:
    """Rows of `encode` with out=."""
    n, rows = x.size, {}
    for name in ("bf16", "fp16", "e4m3fn", "e5m2", "e4m3fnuz"):
        codes = np.empty(n, np.uint16 if name in ("bf16", "fp16") else np.uint8)
        row = {"lpsim": (lambda name=name, codes=codes: lp.encode(x, name, out=codes), n)}
        row["ml_dtypes"] = (copying(x, np.empty(n, ML_DTYPES[name])), n)
        if HAS["torch"]:
            row["torch"] = (torch_copy(x, name), n)
        if HAS["gfloat"] and name != "e4m3fnuz":
            row["gfloat"] = gfloat_round(x, name)
        rows[f"encode {name}"] = row
    codes, small = np.empty(n, np.uint16), np.empty(n, np.uint8)
    rows["encode a user's 12 bits"] = {"lpsim": (lambda: lp.encode(x, USER, out=codes), n)}
    rows["encode bf16 toward zero"] = {"lpsim": (lambda: lp.encode(x, "bf16", rounding="rtz", out=codes), n)}
    rows["encode fp16 toward zero"] = {"lpsim": (lambda: lp.encode(x, "fp16", rounding="rtz", out=codes), n)}
    noisy = {"lpsim": (lambda: lp.encode(x, "bf16", out=codes, **NOISE), n)}
    if HAS["gfloat"]:
        noisy["gfloat"] = gfloat_round(x, "bf16", bits=16)
    rows["encode bf16 stochastic, 16 bits"] = noisy
    rows["encode e4m3fn stochastic, 16 bits"] = {"lpsim": (lambda: lp.encode(x, "e4m3fn", out=small, **NOISE), n)}
    rows["encode bf16 from float64"] = {"lpsim": (lambda: lp.encode(wide, "bf16", out=codes), n)}
    rows["encode e4m3fn from float64"] = {"lpsim": (lambda: lp.encode(wide, "e4m3fn", out=small), n)}
    return rows


def values(x: np.ndarray) -> dict[str, dict[str, Contestant]]:
    """Rows of `round` and `decode`."""
    n, rows, out = x.size, {}, np.empty(x.size, np.float32)
    for name in ("bf16", "e4m3fn"):
        back = np.empty(n, ML_DTYPES[name])
        row = {"lpsim": (lambda name=name: lp.round(x, name, out=out), n)}
        row["ml_dtypes"] = (lambda back=back: (copying(x, back)(), copying(back, out)()), n)
        if HAS["torch"]:
            import torch

            narrow, result = torch.empty(n, dtype=torch_dtype(name)), torch.empty(n)
            source = torch.from_numpy(x)
            row["torch"] = (lambda a=narrow, b=result, s=source: b.copy_(a.copy_(s)), n)
        rows[f"round {name}"] = row
    for name in ("bf16", "fp16", "e4m3fn"):
        codes = lp.encode(x, name)
        row = {"lpsim": (lambda name=name, codes=codes: lp.decode(codes, name, out=out), n)}
        row["ml_dtypes"] = (copying(codes.view(ML_DTYPES[name]), out), n)
        if HAS["torch"]:
            import torch

            source = torch.from_numpy(codes.view(np.uint8)).view(torch_dtype(name))
            result = torch.from_numpy(out)
            row["torch"] = (lambda a=source, b=result: b.copy_(a), n)
        rows[f"decode {name}"] = row
    return rows


def operations(x: np.ndarray) -> dict[str, dict[str, Contestant]]:
    """Rows of operations on bf16: float32 on its grid, and arrays of bfloat16."""
    n, rows = x.size, {}
    a, b, c = (lp.round(np.roll(x, shift), "bf16") for shift in (0, 1, 2))
    short = [v.astype(ml_dtypes.bfloat16) for v in (a, b)]
    out, short_out = np.empty(n, np.float32), np.empty(n, ml_dtypes.bfloat16)
    for name in ("add", "mul"):
        ours = getattr(lp, name)
        ufunc = {"add": np.add, "mul": np.multiply}[name]
        rows[f"{name} bf16 in float32"] = {"lpsim": (lambda f=ours: f(a, b, "bf16", out=out), n)}
        row = {"lpsim": (lambda f=ours: f(*short, "bf16", out=short_out), n)}
        row["ml_dtypes"] = (lambda f=ufunc: f(*short, out=short_out), n)
        if HAS["torch"]:
            import torch

            tensors = [torch.from_numpy(v.view(np.int16)).view(torch.bfloat16) for v in (*short, short_out)]
            theirs = getattr(torch, name)
            row["torch"] = (lambda f=theirs, t=tensors: f(t[0], t[1], out=t[2]), n)
        rows[f"{name} bfloat16 arrays"] = row
    rows["fma bf16 in float32"] = {"lpsim": (lambda: lp.fma(a, b, c, "bf16", out=out), n)}
    rows["add float32 to e4m3fn"] = {"lpsim": (lambda: lp.add(x, c, "e4m3fn", out=out), n)}
    return rows


def measure(row: dict[str, Contestant], clock: Callable[[], float]) -> dict[str, float]:
    """ns an element, by contestant: median of rounds in which they take turns."""
    for call, _ in row.values():
        call()
    seconds = {name: [] for name in row}
    for _ in range(ROUNDS):
        for name, (call, _) in row.items():
            began = clock()
            call()
            seconds[name].append(clock() - began)
    return {name: round(statistics.median(seconds[name]) / row[name][1] * 1e9, 4) for name in row}


def child(cores: int, n: int) -> dict[str, dict[str, float]]:
    """All rows on this many cores."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    lp.set_threads(cores)
    if HAS["torch"]:
        import torch

        torch.set_num_threads(cores)
    x = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    rows = {"copy float32": {"numpy": (copying(x, np.empty_like(x)), n)}}
    rows |= casts(x, x.astype(np.float64) * 1.0000001) | values(x) | operations(x)
    results = {}
    clock = time.thread_time if cores == 1 else time.perf_counter
    for name, row in rows.items():
        results[name] = measure({**row, "copy": rows["copy float32"]["numpy"]}, clock)
        print(f"{cores} cores, {name}: {results[name]}", file=sys.stderr, flush=True)
    return results


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=10_000_000)
    parser.add_argument("--child", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(child(given.child, given.elements)))
        return
    results = {}
    for cores in (1, 2):
        command = [sys.executable, __file__, "--child", str(cores), "--elements", str(given.elements)]
        results[str(cores)] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    packages = ["numpy", "numba", "ml_dtypes", *(name for name, there in HAS.items() if there)]
    about = {
        "elements": given.elements,
        "machine": platform.machine(),
        "cpu": cpu_name(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "packages": {name: importlib.metadata.version(name) for name in packages},
    }
    print(json.dumps({"about": about, "ns_per_element": results}, indent=1))


if __name__ == "__main__":
    main()

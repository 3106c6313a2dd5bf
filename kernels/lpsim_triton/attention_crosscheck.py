"""Do the attention kernels give the emulator's bits? A few hundred configurations, forward and backward.

    python -m lpsim_triton.attention_crosscheck check REPORT.json       on a machine with the GPU and Numba
    python -m lpsim_triton.attention_crosscheck run FOLDER              on the GPU: outputs into FOLDER
    python -m lpsim_triton.attention_crosscheck compare FOLDER REPORT.json     anywhere: against the emulator
    python -m lpsim_triton.attention_crosscheck keep FOLDER RECORDINGS.npz     a few of the outputs, for tests

Inputs come from integers, so both sides make the same ones. o, lse, delta, dq, dk and dv are compared bit for bit;
a NaN equals a NaN whatever its payload. The emulator's backward starts from its own o and lse, so that an error in
the forward pass is seen again behind it.
"""

import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

from lpsim.recipes import dynamic

from .remedies import Remedy

DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp16": np.dtype(np.float16)}
RESULTS = ("o", "lse", "delta", "dq", "dk", "dv")
REMEDIES = {
    "plain": Remedy(),
    "dynamic": Remedy(dynamic(2.0)),
    "dynamic, beta 7": Remedy(dynamic(7.0, 2e-3)),
    "guarded": Remedy(dynamic(2.0, guard=True)),
    "wide-o": Remedy(delta_from="O32"),
    "rounded-l": Remedy(l_from="rounded"),
}
INPUTS = ("normal", "sharp", "sink", "ties", "one-signed", "identical", "huge", "tiny", "subnormal")
TIED_AND_HUGE = "tied and huge"  # where the published dynamic maximum underflows every weight: NaN, on both sides
NON_FINITE = "non-finite"
PER_FILE = 90


class Config(NamedTuple):
    """One comparison; q is (1, heads, n, d), k and v (1, kv_heads, n_keys, d)."""

    dtype: str
    d: int
    causal: bool
    inputs: str
    remedy: str = "plain"
    keys: int = 64
    n: int = 128
    n_keys: int = 128
    heads: int = 1
    kv_heads: int = 1


def configurations() -> list[Config]:
    """All of them, in a fixed order: the index names the outputs and seeds the inputs."""
    both = (False, True)
    plain = [Config(*row) for row in product(DTYPES, (32, 64, 128, 256), both, INPUTS)]
    plain += [Config(*row, keys=128) for row in product(DTYPES, (64, 128), both, INPUTS)]
    remedied = [
        Config(dtype, d, causal, inputs, remedy, n=192, n_keys=192)
        for (remedy, inputs), (dtype, d, causal) in product(
            product(list(REMEDIES)[1:], ("ties", "identical", "sharp", "one-signed", "huge", TIED_AND_HUGE)),
            (("bf16", 64, True), ("fp16", 128, False)),
        )
    ]
    remedied += [
        Config("bf16", 128, causal, "ties", remedy, keys=128, n=256, n_keys=256)
        for remedy, causal in product(list(REMEDIES)[1:], both)
    ]
    tiles = [
        Config(dtype, d, causal, "normal", keys=keys, n=256, n_keys=256)
        for dtype, d, causal, keys in product(DTYPES, (64, 128), both, (16, 32, 128))
    ]
    lengths = [
        Config("bf16", d, causal, "normal", n=n, n_keys=n_keys, heads=heads, kv_heads=kv_heads)
        for (n, n_keys), (heads, kv_heads), d, causal in product(
            ((100, 100), (1, 1), (200, 200), (72, 136), (321, 64)), ((2, 2), (4, 2)), (16, 64), both
        )
        if not causal or n == n_keys
    ]
    special = [Config(dtype, d, False, NON_FINITE) for dtype, d in product(DTYPES, (64, 128))]
    return plain + remedied + tiles + lengths + special


def normals(seed: int, which: int, shape: tuple[int, ...]) -> np.ndarray:
    """Nearly normal float64: each the sum of four 16-bit integers from Philox, centred, of variance 1."""
    words = np.random.Philox(key=[seed, which]).random_raw(int(np.prod(shape)))
    total = sum(((words >> np.uint64(16 * i)) & np.uint64(0xFFFF)).astype(np.int64) for i in range(4))
    return ((total - 2 * 65535) / (65536 / np.sqrt(3.0))).reshape(shape)


def inputs(index: int, config: Config) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """q, k, v, do in the config's dtype."""
    of_q, of_k = (1, config.heads, config.n, config.d), (1, config.kv_heads, config.n_keys, config.d)
    q, k, v, do = (normals(index, i, shape) for i, shape in enumerate((of_q, of_k, of_k, of_q)))
    kind = config.inputs
    if kind == "sharp":
        q *= 6.0
    elif kind == "sink":  # every query likes the first key, which carries little
        q[..., 0] = 3.0 + 0.25 * q[..., 0]
        k[..., 0, 0] = 16.0
        v[..., 0, :] *= 0.125
    elif kind == "ties":  # neighbours are the same key, and scores are small integers, so that maxima tie
        q, k = np.round(q), np.round(k)
        k[..., 1::2, :] = k[..., : k.shape[-2] // 2 * 2 : 2, :]
        v = -np.abs(v) - 1.0
    elif kind == "one-signed":
        v = -np.abs(v) - 0.5
        q *= 2.0
    elif kind == "identical":
        k[:] = k[..., :1, :]
    elif kind == "huge":  # logits in the thousands
        q, k = 24.0 * q, 24.0 * k
    elif kind == TIED_AND_HUGE:
        q, k = 24.0 * np.abs(q), 24.0 * np.abs(k)
        k[:] = k[..., :1, :]
    elif kind == NON_FINITE:
        q[..., 3, 5], k[..., 7, 1], v[..., 9, 2], do[..., 11, 3] = np.nan, np.inf, -np.inf, np.nan
    elif kind == "tiny":
        q, k = q * 2.0**-12, k * 2.0**-12
    elif kind == "subnormal":  # v in the subnormals of fp16; bf16 products with do near fp32's
        v = v * (2.0**-16 if config.dtype == "fp16" else 2.0**-122)
    dtype = DTYPES[config.dtype]
    return tuple(x.astype(np.float32).astype(dtype) for x in (q, k, v, do))  # pyright: ignore


def on_gpu(index: int, config: Config) -> dict[str, np.ndarray]:
    """The kernels' results: 16-bit codes, and float32."""
    import torch

    from . import attention_backward, attention_forward

    dtype = torch.bfloat16 if config.dtype == "bf16" else torch.float16
    q, k, v, do = (torch.from_numpy(x.view(np.int16)).view(dtype).cuda() for x in inputs(index, config))
    remedy = REMEDIES[config.remedy]
    rule = attention_forward.Rule(config.causal, config.d**-0.5, config.keys, remedy.maximum, remedy.l_from)
    o, o_wide, lse = attention_forward.forward(q, k, v, rule, wide_o=remedy.delta_from == "O32")
    kept = o if remedy.delta_from == "O" else o_wide
    dq, dk, dv, delta = attention_backward.backward(q, k, v, kept, lse, do, rule)
    results = {}
    for name, x in zip(RESULTS, (o, lse, delta, dq, dk, dv), strict=True):
        codes = x.dtype == dtype
        results[name] = x.view(torch.int16).cpu().numpy().view(np.uint16) if codes else x.cpu().numpy()
    return results


def all_on_gpu() -> list[dict[str, np.ndarray]]:
    """`on_gpu` of every configuration. In several processes: compiling the kernels is what takes time."""
    with multiprocessing.get_context("spawn").Pool(min(os.cpu_count() or 1, 16)) as pool:
        return pool.starmap(on_gpu, enumerate(configurations()), chunksize=3)


def emulated(index: int, config: Config) -> dict[str, np.ndarray]:
    """The same from lpsim.attention."""
    from lpsim import attention, recipes

    q, k, v, do = inputs(index, config)
    remedy = REMEDIES[config.remedy]
    kept = "O" if remedy.delta_from == "O" else "fp32"
    recipe = recipes.with_switch("triton", maximum=remedy.maximum, l_from=remedy.l_from, kept=kept)
    block = (64, config.keys)
    out = attention.forward(q, k, v, recipe=recipe, causal=config.causal, block=block)
    back = attention.backward(q, k, v, out.kept, out.lse, do, recipe=recipe, causal=config.causal, block=block)
    results = dict(zip(RESULTS, (out.o, out.lse, back.delta, back.dq, back.dk, back.dv), strict=True))
    return {name: x.view(np.uint16) if x.dtype.itemsize == 2 else x for name, x in results.items()}


def is_nan(x: np.ndarray, dtype: str) -> np.ndarray:
    return np.isnan(x if x.dtype == np.float32 else x.view(DTYPES[dtype]).astype(np.float32))


def differing(a: np.ndarray, b: np.ndarray, dtype: str) -> int:
    """In how many elements two results of one shape have different bits, NaN being one value."""
    if a.shape != b.shape or a.dtype != b.dtype:
        raise ValueError(f"{a.shape} {a.dtype} against {b.shape} {b.dtype}")
    unsigned = f"u{a.dtype.itemsize}"
    different = a.view(unsigned) != b.view(unsigned)
    return int(np.count_nonzero(different & ~(is_nan(a, dtype) & is_nan(b, dtype))))


def versions() -> dict[str, str]:
    """What made the recorded bits."""
    import subprocess

    import torch
    import triton
    from triton.backends.nvidia.compiler import get_ptxas

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
    return {
        "device": torch.cuda.get_device_name(),
        "driver": driver,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "ptxas": get_ptxas(90).version,
    }


def run(folder: Path) -> None:
    """Every configuration on the GPU; results and versions into the folder, PER_FILE configurations a file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "versions.json").write_text(json.dumps(versions(), indent=1) + "\n")
    results = all_on_gpu()
    for first in range(0, len(results), PER_FILE):
        indices = range(first, min(first + PER_FILE, len(results)))
        arrays = {f"{i}_{name}": x for i in indices for name, x in results[i].items()}
        np.savez_compressed(folder / f"outputs{first // PER_FILE}.npz", **arrays)  # pyright: ignore


def recorded(folder: Path) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """(index, results) of what `run` left."""
    for path in sorted(folder.glob("outputs*.npz")):
        with np.load(path) as arrays:
            for i in sorted({int(name.split("_")[0]) for name in arrays.files}):
                yield i, {name: arrays[f"{i}_{name}"] for name in RESULTS}


def worth_keeping() -> list[int]:
    """A few configurations, small ones first, that between them show every value of every field."""
    configs, seen, kept = configurations(), set(), []
    by_size = sorted(range(len(configs)), key=lambda i: configs[i].heads * configs[i].n * configs[i].d)
    for i in by_size:
        config = configs[i]
        shows = {*config._asdict().items(), (config.inputs, config.dtype)}
        if shows - seen:
            seen |= shows
            kept.append(i)
    return sorted(kept)


def keep(folder: Path, path: Path) -> None:
    """The results of `worth_keeping` from what `run` left, as one file."""
    wanted = set(worth_keeping())
    kept = {f"{i}_{name}": x for i, results in recorded(folder) if i in wanted for name, x in results.items()}
    np.savez_compressed(path, **kept)  # pyright: ignore


def compare(results: Iterator[tuple[int, dict[str, np.ndarray]]], made_by: dict[str, str]) -> dict:
    """The report: for every configuration and result how many values there are and how many differ."""
    configs = configurations()
    rows = []
    for i, got in results:
        want = emulated(i, configs[i])
        counts = {name: [got[name].size, differing(got[name], want[name], configs[i].dtype)] for name in RESULTS}
        nans = sum(int(is_nan(x, configs[i].dtype).sum()) for x in got.values())
        rows.append({**configs[i]._asdict(), "values_and_differing": counts, "nan": nans})
    values = sum(count[0] for row in rows for count in row["values_and_differing"].values())
    wrong = sum(count[1] for row in rows for count in row["values_and_differing"].values())
    return {**made_by, "configurations": len(rows), "values": values, "differing": wrong, "rows": rows}


def write_report(report: dict, path: Path) -> None:
    """One configuration a line."""
    rows = ",\n".join("  " + json.dumps(row) for row in report["rows"])
    head = json.dumps({key: value for key, value in report.items() if key != "rows"}, indent=1)
    path.write_text(f'{head[:-2]},\n "rows": [\n{rows}\n ]\n}}\n')


def main(arguments: list[str]) -> int:
    match arguments:
        case ["run", folder]:
            run(Path(folder))
            return 0
        case ["keep", folder, path]:
            keep(Path(folder), Path(path))
            return 0
        case ["compare", folder, path]:
            made_by = json.loads((Path(folder) / "versions.json").read_text())
            report = compare(recorded(Path(folder)), made_by)
        case ["check", path]:
            report = compare(iter(enumerate(all_on_gpu())), versions())
        case _:
            sys.stderr.write(f"{__doc__}\n")
            return 2
    write_report(report, Path(path))
    sys.stdout.write(
        f"{report['configurations']} configurations, {report['values']} values, {report['differing']} differing\n"
    )
    return int(report["differing"] != 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

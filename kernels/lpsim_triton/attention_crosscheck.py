"""Do the attention kernels give the emulator's bits? Several hundred configurations, forward and backward.

    python -m lpsim_triton.attention_crosscheck REPORT.json RECORDINGS.npz [FIRST]

on a machine with the GPU and Numba: the report of all configurations (from number FIRST on), and the kernels' results
in a few of them, for tests elsewhere. o, lse, delta, dq, dk and dv are compared bit for bit; a NaN equals a NaN
whatever its payload. The emulator's backward starts from its own o and lse, so that a wrong forward pass is seen again
behind it.
"""

import json
import multiprocessing
import os
import sys
from pathlib import Path

import numpy as np

from lpsim.threads import set_threads

from .attention_cases import ALL_DTYPES, FLOAT8, REMEDIES, Config, configurations, inputs, mask

RESULTS = ("o", "lse", "delta", "dq", "dk", "dv")
FLOAT8_SCALES = (0.5, 0.75, 3.0)  # what e4m3 q, k and v are multiplied by
PER_FILE = 90


def results_of(config: Config) -> tuple[str, ...]:
    """e4m3 attention has no gradients."""
    return RESULTS[:2] if config.dtype == FLOAT8 else RESULTS


def on_gpu(index: int, config: Config) -> dict[str, np.ndarray]:
    """The kernels' results: 16-bit codes, and float32."""
    import torch

    from . import attention_backward, attention_forward

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, FLOAT8: torch.float8_e4m3fn}[config.dtype]
    small = config.dtype == FLOAT8
    q, k, v, do = (
        torch.from_numpy(x.view(np.int8 if small else np.int16)).cuda().view(dtype) for x in inputs(index, config)
    )
    given, shown = mask(index, config), None
    if given is not None:
        shown = torch.from_numpy(given).cuda()
        shown = shown.to(torch.bfloat16) if config.mask == "bias16" else shown
    remedy, scale = REMEDIES[config.remedy], config.d**-0.5
    rule = attention_forward.Rule(
        config.causal, scale * FLOAT8_SCALES[0] * FLOAT8_SCALES[1] if small else scale, config.keys, remedy.maximum,
        remedy.l_from, remedy.delta_from, remedy.rounding, None if config.left < 0 else (config.left, config.right),
        FLOAT8_SCALES[2] if small else 1.0,
    )  # fmt: skip
    o, more, lse = attention_forward.forward(q, k, v, rule, mask=shown)
    found = (o, lse)
    if not small:
        dq, dk, dv, delta = attention_backward.backward(q, k, v, o, more, lse, do, rule, mask=shown)
        found = (o, lse, delta, dq, dk, dv)
    return {
        name: x.view(torch.int16).cpu().numpy().view(np.uint16) if x.element_size() == 2 else x.cpu().numpy()
        for name, x in zip(results_of(config), found, strict=True)
    }


def emulated(index: int, config: Config) -> dict[str, np.ndarray]:
    """The same from lpsim.attention."""
    from lpsim import attention, recipes

    q, k, v, do = inputs(index, config)
    remedy = REMEDIES[config.remedy]
    kept = {"O32": "fp32", "pair": "pair"}.get(remedy.delta_from, "O")
    delta_from = remedy.delta_from if remedy.delta_from in ("P", "PV") else "O"
    recipe = recipes.with_switch(
        "triton", maximum=remedy.maximum, l_from=remedy.l_from, kept=kept, delta_from=delta_from
    )  # fmt: skip
    small = config.dtype == FLOAT8
    if remedy.rounding is not None or small:
        site = recipes.Site("bf16" if small else "input", remedy.rounding or "rne")
        recipe = recipes.with_site(recipe, O=site)
    given = mask(index, config)
    options = {"causal": config.causal, "block": (config.rows, config.keys)}
    options["window"] = None if config.left < 0 else (config.left, config.right)
    if given is not None:
        options["mask" if given.dtype == bool else "bias"] = given
    if small:
        out = attention.forward(q, k, v, recipe=recipe, scales=FLOAT8_SCALES, **options)
        return {"o": as_codes(np.asarray(out.o)), "lse": out.lse}
    out = attention.forward(q, k, v, recipe=recipe, **options)
    back = attention.backward(q, k, v, out.kept, out.lse, do, recipe=recipe, **options)
    results = dict(zip(RESULTS, (out.o, out.lse, back.delta, back.dq, back.dk, back.dv), strict=True))
    return {name: x.view(np.uint16) if x.dtype.itemsize == 2 else x for name, x in results.items()}


def as_codes(o: np.ndarray) -> np.ndarray:
    """bf16 codes of values that bf16 holds."""
    from lpsim.arrays import encode

    return np.asarray(encode(o, "bf16", nan="nvidia"))


def is_nan(x: np.ndarray, dtype: str) -> np.ndarray:
    if x.dtype == np.float32:
        return np.isnan(x)
    return np.isnan(x.view(ALL_DTYPES["bf16" if dtype == FLOAT8 else dtype]).astype(np.float32))


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


def worth_keeping() -> list[int]:
    """A few configurations, small ones first, that between them show every value of every field, and windows."""
    configs, seen, kept = configurations(), set(), []
    by_size = sorted(range(len(configs)), key=lambda i: configs[i].heads * configs[i].n * configs[i].d)
    for i in by_size:
        config = configs[i]
        shows = {item for item in config._asdict().items() if item[0] not in ("left", "right")}
        shows |= {(config.inputs, config.dtype), ("window", config.left >= 0, config.right > 0)}
        if shows - seen:
            seen |= shows
            kept.append(i)
    return sorted(kept)


def keep(results: dict[int, dict[str, np.ndarray]], path: Path) -> None:
    """Those of `worth_keeping`, as one file."""
    wanted = [i for i in worth_keeping() if i in results]
    kept = {f"{i}_{name}": x for i in wanted for name, x in results[i].items()}
    with path.open("wb") as file:
        np.savez_compressed(file, **kept)  # pyright: ignore


def both(first: int) -> tuple[dict[int, dict[str, np.ndarray]], dict[int, dict[str, np.ndarray]]]:
    """Results of the kernels and of the emulator, by number, from configuration `first` on. In several processes:
    the one side waits for compilers, the other for arithmetic."""
    numbered = list(enumerate(configurations()))[first:]
    processes, context = min(os.cpu_count() or 1, 16), multiprocessing.get_context("spawn")
    with context.Pool(processes) as gpu:
        coming = gpu.starmap_async(on_gpu, numbered, chunksize=1)
        for i in range(0, len(numbered), 100):  # the compiled emulator is cached before many processes want it
            emulated(*numbered[i])
        with context.Pool(processes, set_threads, (1,)) as cpu:
            want = cpu.starmap(emulated, numbered, chunksize=3)
        got = coming.get()
    order = [i for i, _ in numbered]
    return dict(zip(order, got, strict=True)), dict(zip(order, want, strict=True))


def compare(got: dict[int, dict[str, np.ndarray]], want: dict[int, dict[str, np.ndarray]], made_by: dict) -> dict:
    """The report: for every configuration and result how many values there are and how many differ."""
    configs = configurations()
    rows = []
    for i, found in got.items():
        config = configs[i]
        counts = {name: [x.size, differing(x, want[i][name], config.dtype)] for name, x in found.items()}
        nans = sum(int(is_nan(x, config.dtype).sum()) for x in found.values())
        rows.append({**config._asdict(), "values_and_differing": counts, "nan": nans})
    values = sum(count[0] for row in rows for count in row["values_and_differing"].values())
    wrong = sum(count[1] for row in rows for count in row["values_and_differing"].values())
    return {**made_by, "configurations": len(rows), "values": values, "differing": wrong, "rows": rows}


def write_report(report: dict, path: Path) -> None:
    """One configuration a line."""
    rows = ",\n".join("  " + json.dumps(row) for row in report["rows"])
    head = json.dumps({key: value for key, value in report.items() if key != "rows"}, indent=1)
    path.write_text(f'{head[:-2]},\n "rows": [\n{rows}\n ]\n}}\n')


def main(arguments: list[str]) -> int:
    if len(arguments) not in (2, 3):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    got, want = both(int(arguments[2]) if len(arguments) == 3 else 0)
    report = compare(got, want, versions())
    write_report(report, Path(arguments[0]))
    keep(got, Path(arguments[1]))
    sys.stdout.write(
        f"{report['configurations']} configurations, {report['values']} values, {report['differing']} differing\n"
    )
    return int(report["differing"] != 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""Recorded results of tl.dot and tl.dot_scaled, computed again: the runs that lpsim_triton.crosscheck_dots keeps."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from . import data, dot_kinds, tl_dot_run
from .formats import FORMATS
from .machines import dot_row

RECORDING = "dots_live"
PLAN_OPTIONS = ("form", "num_warps", "input_precision", "max_num_imprecise_acc", "out_dtype")


class Replayed(NamedTuple):
    """One recorded result and what the emulator gives for it."""

    operation: str
    inputs: str  #: kind of input
    found: np.ndarray
    recorded: np.ndarray


def replay() -> Iterator[Replayed]:
    """Every recorded result, run by run."""
    runs, arrays = data.description(RECORDING)["runs"], data.arrays(RECORDING)
    for number, kind in dict.fromkeys(tuple(key.split("|")[:2]) for key in arrays):
        run = runs[int(number)]
        stored = {
            name: arrays[key]
            for name in ("A", "B", "C", "D", "SA", "SB")
            if (key := f"{number}|{kind}|{name}") in arrays
        }
        yield Replayed(run["operation"], kind, computed(run, stored), stored["D"])


def computed(run: dict, stored: dict[str, np.ndarray]) -> np.ndarray:
    """What the emulator gives for a run's description and its stored operands A, B, C, SA, SB."""
    a, b, c = stored["A"], stored["B"], stored.get("C")
    if "tile" in run:
        m, n, _ = run["tile"]
        options = {"num_warps": run["num_warps"], "fast_math": run["fast_math"]}
        scales = stored["SA"], stored.get("SB")
        return tl_dot_run.tl_dot_scaled(a, scales[0], run["a"], b, scales[1], run["b"], c, m=m, n=n, **options)
    if "accumulator" in run:
        unit = dot_row("h200", "mma_ptx", run["a"], run["b"], run["accumulator"]).unit
        return dot_kinds.dot(a, b, c, unit, FORMATS[run["a"]], FORMATS[run["b"]])
    a_fmt, b_fmt = (name if name == "int8" else FORMATS[name] for name in (run["a"], run["b"]))
    return tl_dot_run.tl_dot(a, b, c, tuple(run["block"]), a_fmt, b_fmt, {name: run[name] for name in PLAN_OPTIONS})


def without_payload(x: np.ndarray) -> np.ndarray:
    """x, doubles with one NaN for all: what NaN's payload becomes in a chain of fp64 fma is not modelled."""
    return np.where(np.isnan(x), np.nan, x) if x.dtype == np.float64 else x

"""What quantise kernels, twins and Triton's random functions gave on a GPU, as digests to be computed again.

    python -m lpsim_triton.recorded_quantize FILE.json        on the GPU: record

A digest is the first 16 hexadecimal digits of SHA-256 of a result's bytes. The inputs follow from the seed, so `replay`
needs no GPU.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lpsim import live, triton_random
from lpsim.verify import Check

from . import crosscheck_draws as draws
from . import crosscheck_quantize as quantize

SEED, SCALE = 20261130, 0.002
SEEDS = (0, 1, -1, 2**31 - 1, -(2**31), 2**32 + 5, 2**63 - 1, -(2**63), 2**64 - 1, 0x0123456789ABCDEF)
ROUNDS = (10, 7)
OFFSETS = 1000


class Item(NamedTuple):
    """One recorded result, and how either side computes it."""

    family: str
    label: str
    on_gpu: Callable[[], np.ndarray]
    emulated: Callable[[], np.ndarray]


def items() -> Iterator[Item]:
    """Everything that is recorded, in a fixed order."""
    for i, case in enumerate(quantize.cases(SEED, SCALE)):
        if case.what != "round" or case.source in ("fp32", "fp64"):  # values of fewer bits are codes: encode has them
            yield _case(i, case)
    for i, case in enumerate(quantize.quick_cases(SEED, SCALE)):
        yield _case(i, case._replace(n=10_000 + i))
    for i, seed in enumerate(SEEDS):
        for dtype in (np.int32, np.uint32, np.int64):
            for rounds in ROUNDS:
                yield _random(i, seed, np.dtype(dtype), rounds)


def _case(index: int, case: quantize.Case) -> Item:
    operands = quantize.inputs(SEED, index, case)
    rules = ", ".join(f"{name}={value!r}" for name, value in case.rules)
    label = f"{index}: {case.what} {case.source} to {case.fmt}, {rules}, {case.n}"
    return Item(
        quantize.label(case),
        label,
        lambda: quantize.on_gpu(case, operands),
        lambda: np.asarray(quantize.emulated(case, operands)),
    )


def _random(index: int, seed: int, dtype: np.dtype, rounds: int) -> Item:
    offsets = (draws.words(SEED, index, OFFSETS) >> np.uint64(64 - 8 * dtype.itemsize)).astype(dtype)

    def on_gpu() -> np.ndarray:
        from . import crosscheck_random

        words, uniform = crosscheck_random.both_on_gpu(offsets, seed, rounds)
        return np.concatenate([words.reshape(-1), uniform.view(np.uint32)])

    def emulated() -> np.ndarray:
        words = np.concatenate(triton_random.randint4x(seed, offsets, rounds))
        return np.concatenate([words, triton_random.rand(seed, offsets, rounds).view(np.uint32)])

    return Item("tl.randint4x, tl.rand", f"seed {seed}, {dtype} offsets, {rounds} rounds", on_gpu, emulated)


def digest(x: np.ndarray) -> str:
    """16 hexadecimal digits of a result's bytes, little-endian."""
    return hashlib.sha256(np.ascontiguousarray(x).astype(x.dtype.newbyteorder("<")).tobytes()).hexdigest()[:16]


def record(path: Path) -> None:
    """Every item on the GPU, into a file of `replay`."""
    from . import crosscheck

    found = {item.label: digest(item.on_gpu()) for item in items()}
    live.write(json.dumps({**crosscheck.versions(), "seed": SEED, "digests": found}, indent=1) + "\n", path)


def replay(recorded: dict[str, str]) -> Iterator[Check]:
    """A row a family: results compared, by their digests. KeyError for an item that was not recorded."""
    totals: dict[str, list] = {}
    for item in items():
        total = totals.setdefault(item.family, [0, 0, ""])
        want = item.emulated()
        total[0] += want.size
        if digest(want) != recorded[item.label]:
            total[1] += want.size
            total[2] = total[2] or item.label
    for family, (compared, differing, example) in totals.items():
        yield Check(family, "quantize.json", compared, differing, example)


if __name__ == "__main__":
    record(Path(sys.argv[1]))

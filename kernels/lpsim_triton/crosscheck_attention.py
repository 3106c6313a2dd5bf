"""Live check of the attention kernels: `attention_crosscheck`'s configurations on inputs that follow from the seed."""

import multiprocessing
import os
from collections.abc import Iterator

from lpsim.threads import set_threads
from lpsim.verify import Check

from . import attention_crosscheck as attention

ROOM = 1 << 16  # inputs follow from seed * ROOM + the configuration's number


def compare(number: int, config) -> list[tuple[str, int, int, str]]:
    """(result, values, differing, example) of one configuration."""
    got, want = attention.on_gpu(number, config), attention.emulated(number, config)
    if got.keys() != want.keys():
        return [("results", 1, 1, f"{sorted(got)} where {sorted(want)} are right")]
    found = []
    for name, x in got.items():
        wrong = attention.differing(x, want[name], config.dtype)
        found.append((name, x.size, wrong, f"{name}, inputs {number}, {config}" if wrong else ""))
    return found


def label(config) -> str:
    """The row of the report that a configuration counts towards."""
    window = "window" if config.left >= 0 or config.right >= 0 else ""
    return ", ".join(part for part in (f"attention {config.dtype}", config.remedy, config.mask, window) if part)


def checks(seed: int, scale: float = 1.0) -> Iterator[Check]:
    """A row for each dtype and remedy, masks and windows apart; scale below 1 takes every so manyth configuration."""
    numbered = list(enumerate(attention.configurations()))[:: max(1, round(1 / scale))]
    jobs = [(seed * ROOM + i, config) for i, config in numbered]
    attention.emulated(*jobs[0])  # compiled once, before the processes need it
    totals: dict[str, list] = {}
    with multiprocessing.get_context("spawn").Pool(min(os.cpu_count() or 1, 16), set_threads, (1,)) as pool:
        for (_, config), results in zip(numbered, pool.starmap(compare, jobs, chunksize=1), strict=True):
            total = totals.setdefault(label(config), [0, 0, ""])
            for _, compared, wrong, example in results:
                total[0], total[1], total[2] = total[0] + compared, total[1] + wrong, total[2] or example
    for name, (compared, wrong, example) in totals.items():
        yield Check(name, "live", compared, wrong, example)

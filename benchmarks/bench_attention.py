"""How fast emulated attention is on the CPU, beside float32 attention in torch and sgemm in the same run.

    python benchmarks/bench_attention.py [--heads 12] > benchmarks/results/attention.json
    python benchmarks/speed_page.py > docs/speed.md

One layer of GPT-2 small (12 heads, 1024 x 64, recipe triton) and changes of it. A child process for one core (pinned;
its clock is the thread's own, so that what others take on a shared machine does not count) and one for two (wall
clock). Contestants take turns: a warm-up, then three rounds; the time is the least of the three.
  arrays   the reading version: the same bits tile by tile on arrays of the whole call
  torch    scaled_dot_product_attention in float32; backward is forward and backward less forward
  sgemm    torch's float32 matrix products of one head, scaled to the multiply-adds of the tiles that are visited
"""

import argparse
import importlib.metadata
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import ml_dtypes
import numpy as np
from bench_casts import cpu_name

import lpsim as lp
from lpsim import recipes
from lpsim.attention import backward_machine, inputs, on_machine, visible

ROUNDS, TILE = 3, 64
BF16 = ml_dtypes.bfloat16
#: name -> dtype, rows, head size, causal, factor of q
CASES = {
    "GPT-2 layer": (BF16, 1024, 64, True, 1.0),
    "not causal": (BF16, 1024, 64, False, 1.0),
    "fp16": (np.float16, 1024, 64, True, 1.0),
    "head size 128": (BF16, 1024, 128, True, 1.0),
    "sharp: q x 16": (BF16, 1024, 64, True, 16.0),
}


def multiply_adds(heads: int, n: int, d: int, causal: bool) -> int:
    """Of one dot over all tiles that are visited."""
    tiles = -(-n // TILE)
    return heads * d * TILE * TILE * (tiles * (tiles + 1) // 2 if causal else tiles * tiles)


def by_arrays(q, k, v, do, o, lse, causal: bool) -> dict[str, Callable[[], object]]:
    rules = recipes.recipe("triton")
    call = inputs.prepare(q, k, v, rules, causal, None, None, None, visible.Options())
    gradient = inputs.read_operand(inputs.read(do, "do", None)[1], call.fmt)
    values = np.asarray(o).astype(np.float32)

    def forward():
        state = on_machine.State(call, rules, "h200")
        for tile in visible.tiles(call):
            state.step(tile)
        return state.output()

    return {
        "forward arrays": forward,
        "backward arrays": lambda: backward_machine.backward(call, rules, "h200", values, lse, gradient),
    }


def peers(q, k, v, do, causal: bool) -> dict[str, Callable[[], object]]:
    import torch

    q, k, v, do = (torch.from_numpy(np.asarray(x).astype(np.float32))[None] for x in (q, k, v, do))
    attention = torch.nn.functional.scaled_dot_product_attention
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    scores = torch.matmul(q[0, 0], k[0, 0].T)
    return {
        "forward torch": lambda: attention(q, k, v, is_causal=causal),
        "both torch": lambda: torch.autograd.grad(attention(*leaves, is_causal=causal), leaves, do),
        "sgemm": lambda: (torch.matmul(q[0, 0], k[0, 0].T), torch.matmul(scores, v[0, 0])),
    }


def measure(calls: dict[str, Callable[[], object]], clock: Callable[[], float]) -> dict[str, float]:
    """Milliseconds of each, the least of the rounds."""
    for call in calls.values():
        call()
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            began = clock()
            call()
            least[name] = min(least[name], (clock() - began) * 1e3)
    return least


def case(heads: int, dtype, n: int, d: int, causal: bool, factor: float, clock) -> dict[str, float]:
    """One row: milliseconds of every contestant."""
    rng = np.random.default_rng(0)
    q, k, v, do = (rng.standard_normal((heads, n, d)).astype(np.float32).astype(dtype) for _ in range(4))
    q = (q.astype(np.float32) * factor).astype(dtype)
    found = lp.attention.forward(q, k, v, causal=causal)
    calls = {
        "forward lpsim": lambda: lp.attention.forward(q, k, v, causal=causal),
        "backward lpsim": lambda: lp.attention.backward(q, k, v, found.o, found.lse, do, causal=causal),
        **by_arrays(q, k, v, do, found.o, found.lse, causal),
        **peers(q, k, v, do, causal),
    }
    row = measure(calls, clock)
    one_head = row.pop("sgemm") / (2 * n * n * d)  # milliseconds a multiply-add
    work = multiply_adds(heads, n, d, causal)
    row |= {"forward sgemm": 2 * work * one_head, "backward sgemm": 5 * work * one_head}
    row["backward torch"] = row.pop("both torch") - row["forward torch"]
    return {name: round(value, 2) for name, value in row.items()}


def child(cores: int, heads: int) -> dict:
    """All rows on this many cores, and the memory that they took."""
    import torch

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    lp.set_threads(cores)
    torch.set_num_threads(cores)
    clock = time.thread_time if cores == 1 else time.perf_counter
    rows = {}
    for name, given in CASES.items():
        rows[name] = case(heads, *given, clock)
        print(f"{cores} cores, {name}: {rows[name]}", file=sys.stderr, flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"milliseconds": rows, "peak_mb": round(peak)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--child", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(child(given.child, given.heads)))
        return
    results = {}
    for cores in (1, 2):
        command = [sys.executable, __file__, "--child", str(cores), "--heads", str(given.heads)]
        results[str(cores)] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    about = {
        "heads": given.heads,
        "machine": platform.machine(),
        "cpu": cpu_name(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "packages": {name: importlib.metadata.version(name) for name in ("numpy", "numba", "ml_dtypes", "torch")},
    }
    print(json.dumps({"about": about, "cores": results}, indent=1))


if __name__ == "__main__":
    main()

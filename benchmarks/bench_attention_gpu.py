"""How fast are the attention kernels on a GPU, beside PyTorch's? TF/s of forward and backward, one run, one machine.

    PYTHONPATH=.:kernels python benchmarks/bench_attention_gpu.py [REPORT.json]

bf16, batch 4, 16 heads, 4096 rows and keys, causal and full, head sizes 64 and 128, inputs from a normal distribution.
Floating-point operations are counted as usual: 4 n^2 d a head forward, 10 n^2 d backward, half of it if causal. The
backward time is of everything a training step needs: delta, dk, dv and dq. Each number is the median of three medians,
taken in turns, since the clock of a busy GPU wanders by several per cent; each after the same load, 80 ms of
cuDNN's forward pass: a GPU at its power limit has the clock that what ran before left it.
"""

import json
import statistics
import sys
from itertools import product
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from triton.testing import do_bench

import lpsim as lp
from lpsim_triton import attention_backward, attention_crosscheck, attention_forward
from lpsim_triton.remedies import REMEDIES, Remedy

BATCH, HEADS, N = 4, 16, 4096
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
FORWARD, BACKWARD = ("forward",), ("backward",)
#: name -> (remedy, passes that it changes, mask)
OURS = {
    "lpsim": (Remedy(), FORWARD + BACKWARD, None),
    "lpsim, dynamic maximum": (REMEDIES["dynamic"], FORWARD, None),
    "lpsim, guarded maximum": (REMEDIES["guarded"], FORWARD, None),
    "lpsim, every maximum": (REMEDIES["guarded-every"], FORWARD, None),
    "lpsim, guarded by row": (REMEDIES["guarded-row"], FORWARD, None),
    "lpsim, o in float32 too": (REMEDIES["wide-o"], FORWARD + BACKWARD, None),
    "lpsim, o as two bf16": (REMEDIES["pair-o"], FORWARD + BACKWARD, None),
    "lpsim, o stochastic": (Remedy(rounding=lp.stochastic(bits=16, seed=0, stream=0)), FORWARD, None),
    "lpsim, delta from P": (REMEDIES["delta-p"], BACKWARD, None),
    "lpsim, delta from P v": (REMEDIES["delta-pv"], BACKWARD, None),
    "lpsim, bool mask": (Remedy(), FORWARD + BACKWARD, "bool"),
    "lpsim, float32 bias": (Remedy(), FORWARD + BACKWARD, "bias"),
}
SHAPES = tuple(product((64, 128), (True, False)))


def peers(q, k, v, do, causal: bool) -> dict:
    """{(backend, pass): function}"""
    found = {}
    for name, backend in BACKENDS.items():
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]

        def forward(backend=backend):
            with sdpa_kernel(backend), torch.no_grad():
                return scaled_dot_product_attention(q, k, v, is_causal=causal)

        with sdpa_kernel(backend):
            out = scaled_dot_product_attention(*leaves, is_causal=causal)

        def backward(out=out, leaves=leaves):
            return torch.autograd.grad(out, leaves, do, retain_graph=True)

        found[name, "forward"], found[name, "backward"] = forward, backward
    return found


def tensors(d: int) -> list[torch.Tensor]:
    """q, k, v, do"""
    torch.manual_seed(0)
    return [torch.randn(BATCH, HEADS, N, d, device="cuda").bfloat16() for _ in range(4)]


def mask_of(kind: str | None) -> torch.Tensor | None:
    """One for all batches and heads; most pairs count."""
    if kind is None:
        return None
    drawn = torch.randn(1, 1, N, N, device="cuda")
    return drawn if kind == "bias" else drawn > -2


def ours(name: str, q, k, v, do, causal: bool) -> dict:
    """{(name, pass): function} of one entry of OURS."""
    remedy, passes, kind = OURS[name]
    rule = attention_forward.Rule(
        causal, q.shape[-1] ** -0.5, remedy.keys, remedy.maximum, remedy.l_from, remedy.delta_from, remedy.rounding
    )
    mask = mask_of(kind)
    o, more, lse = attention_forward.forward(q, k, v, rule, mask=mask)
    functions = {
        "forward": lambda: attention_forward.forward(q, k, v, rule, mask=mask),
        "backward": lambda: attention_backward.backward(q, k, v, o, more, lse, do, rule, mask=mask),
    }
    return {(name, which): functions[which] for which in passes}


def float8(q, k, v, causal: bool) -> dict:
    """{(name, pass): function}: e4m3 inputs, forward only."""
    small = [x.to(torch.float8_e4m3fn) for x in (q, k, v)]
    rule = attention_forward.Rule(causal, q.shape[-1] ** -0.5)
    return {("lpsim, float8", "forward"): lambda: attention_forward.forward(*small, rule)}


def measure(d: int, causal: bool) -> list[dict]:
    q, k, v, do = tensors(d)
    functions = peers(q, k, v, do, causal) | float8(q, k, v, causal)
    for name in OURS:
        functions |= ours(name, q, k, v, do, causal)
    times, load = {key: [] for key in functions}, functions["cudnn", "forward"]
    for _ in range(3):
        for key, function in functions.items():
            do_bench(load, warmup=1, rep=80)
            times[key].append(do_bench(function, warmup=15, rep=50, return_mode="median"))
    rows = []
    for (name, which), measured in times.items():
        operations = {"forward": 4, "backward": 10}[which] * BATCH * HEADS * N * N * d / (2 if causal else 1)
        median = statistics.median(measured)
        rows.append(
            {
                "d": d, "causal": causal, "pass": which, "who": name, "ms": round(median, 4),
                "tflops": round(operations / median / 1e9, 1),
                "from": round(operations / max(measured) / 1e9, 1), "to": round(operations / min(measured) / 1e9, 1),
            }
        )  # fmt: skip
    return rows


def main() -> None:
    rows = [row for d, causal in SHAPES for row in measure(d, causal)]
    for row in rows:
        where = f"d {row['d']:3} {'causal' if row['causal'] else 'full':6} {row['pass']:8} {row['who']:24}"
        print(f"{where} {row['tflops']:6} TF/s ({row['from']} to {row['to']})  {row['ms']} ms")
    if len(sys.argv) > 1:
        report = {**attention_crosscheck.versions(), "batch": BATCH, "heads": HEADS, "n": N, "rows": rows}
        Path(sys.argv[1]).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

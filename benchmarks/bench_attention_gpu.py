"""How fast are the attention kernels on a GPU, beside PyTorch's? TF/s of forward and backward, one run, one machine.

    PYTHONPATH=.:kernels python benchmarks/bench_attention_gpu.py [REPORT.json]

bf16, batch 4, 16 heads, 4096 rows and keys, causal and full, head sizes 64 and 128, inputs from a normal distribution.
Floating-point operations are counted as usual: 4 n^2 d a head forward, 10 n^2 d backward, half of it if causal. The
backward time is of everything a training step needs: delta, dk, dv and dq. Each number is the median of three medians,
taken in turns, since the clock of a busy GPU wanders by several per cent.
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

from lpsim.recipes import PLAIN
from lpsim_triton import attention_backward, attention_crosscheck, attention_forward
from lpsim_triton.remedies import REMEDIES

BATCH, HEADS, N = 4, 16, 4096
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


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


def ours(q, k, v, do, causal: bool) -> dict:
    scale = q.shape[-1] ** -0.5
    rules = {
        "lpsim": attention_forward.Rule(causal, scale, maximum=PLAIN),
        "lpsim, dynamic maximum": attention_forward.Rule(causal, scale, maximum=REMEDIES["dynamic"].maximum),
        "lpsim, guarded maximum": attention_forward.Rule(causal, scale, maximum=REMEDIES["guarded"].maximum),
    }
    found = {
        (name, "forward"): lambda rule=rule: attention_forward.forward(q, k, v, rule) for name, rule in rules.items()
    }
    rule = rules["lpsim"]
    found["lpsim, o in float32 too", "forward"] = lambda: attention_forward.forward(q, k, v, rule, wide_o=True)
    o, o_wide, lse = attention_forward.forward(q, k, v, rule, wide_o=True)
    found["lpsim", "backward"] = lambda: attention_backward.backward(q, k, v, o, lse, do, rule)
    found["lpsim, o in float32 too", "backward"] = lambda: attention_backward.backward(q, k, v, o_wide, lse, do, rule)
    return found


def measure(d: int, causal: bool) -> list[dict]:
    torch.manual_seed(0)
    q, k, v, do = (torch.randn(BATCH, HEADS, N, d, device="cuda").bfloat16() for _ in range(4))
    functions = peers(q, k, v, do, causal) | ours(q, k, v, do, causal)
    times = {key: [] for key in functions}
    for _ in range(3):
        for key, function in functions.items():
            times[key].append(do_bench(function, warmup=20, rep=60, return_mode="median"))
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
    rows = [row for d, causal in product((64, 128), (True, False)) for row in measure(d, causal)]
    for row in rows:
        where = f"d {row['d']:3} {'causal' if row['causal'] else 'full':6} {row['pass']:8} {row['who']:24}"
        print(f"{where} {row['tflops']:6} TF/s ({row['from']} to {row['to']})  {row['ms']} ms")
    if len(sys.argv) > 1:
        report = {**attention_crosscheck.versions(), "batch": BATCH, "heads": HEADS, "n": N, "rows": rows}
        Path(sys.argv[1]).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

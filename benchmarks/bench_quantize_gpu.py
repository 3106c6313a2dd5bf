"""Speed of the quantise kernels beside a plain copy from float32 to bfloat16, in one run on one GPU.

    python benchmarks/bench_quantize_gpu.py [REPORT.json]

TB/s read and written, medians of three rounds. The copy is PyTorch's and a Triton kernel of the same shape as ours.
"""

import json
import statistics
import sys
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.testing import do_bench

import lpsim as lp
from lpsim_triton import attention_crosscheck, quantize

N = 1 << 28
SMALL = 1 << 24  # for the general kernel, which is bound by arithmetic


@triton.jit
def copy_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n).to(tl.bfloat16), i < n)


def noise(**options):
    return lp.stochastic(**({"bits": 16, "seed": 1, "stream": 2} | options))


def functions(x, bf16, codes) -> dict:
    """name -> (bytes moved per element, function)"""

    def triton_copy():
        copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, bf16, x.numel(), 1024, num_warps=4, enable_fp_fusion=False)

    def encode(**rules):
        return lambda: quantize.encode(x, "bf16", out=codes, **rules)

    return {
        "copy, PyTorch": (6, lambda: bf16.copy_(x)),
        "copy, Triton": (6, triton_copy),
        "bf16 stochastic A, 16 bits": (6, encode(rounding=noise())),
        "bf16 stochastic B, 12 bits": (6, encode(rounding=noise(bits=12, variant="B"))),
        "bf16 stochastic A, 24 bits": (6, encode(rounding=noise(bits=24))),
        "bf16 rne": (6, encode()),
        "bf16 rtn, satfinite": (6, encode(rounding="rtn", overflow="satfinite")),
    }


def narrow(x, eight, sixteen) -> dict:
    """Casts from binary32 with a kernel in 32-bit integers."""
    clamped = {"overflow": "satfinite"}
    return {
        "e4m3fn rne": (5, lambda: quantize.encode(x, "e4m3fn", out=eight, **clamped)),
        "e4m3fn stochastic A, 16 bits": (
            5,
            lambda: quantize.encode(x, "e4m3fn", out=eight, rounding=noise(), **clamped),
        ),
        "fp16 rne": (6, lambda: quantize.encode(x, "fp16", out=sixteen)),
    }


def general(x) -> dict:
    """Casts by the mirrored core, in 64-bit integers."""
    return {
        "float64 to bf16 rne": (10, lambda: quantize.encode(x, "bf16")),
        "float64 to e4m3fn stochastic C, 20 bits": (
            9,
            lambda: quantize.encode(x, "e4m3fn", rounding=noise(bits=20, variant="C")),
        ),
    }


def measure(table: dict, n: int) -> list[dict]:
    times = {name: [] for name in table}
    for _ in range(3):
        for name, (_, function) in table.items():
            times[name].append(do_bench(function, warmup=20, rep=80, return_mode="median"))
    return [
        {
            "what": name,
            "elements": n,
            "ms": round(statistics.median(ms), 4),
            "tb_per_s": round(table[name][0] * n / statistics.median(ms) / 1e9, 3),
            "elements_per_ns": round(n / statistics.median(ms) / 1e6, 1),
        }
        for name, ms in times.items()
    ]


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(N, device="cuda")
    bf16, codes = (torch.empty_like(x, dtype=dtype) for dtype in (torch.bfloat16, torch.uint16))
    rows = measure(functions(x, bf16, codes), N)
    rows += measure(narrow(x, torch.empty_like(x, dtype=torch.uint8), codes), N)
    rows += measure(general(x[:SMALL].double()), SMALL)
    best = max(row["tb_per_s"] for row in rows if row["what"].startswith("copy"))
    for row in rows:
        row["of_copy"] = round(row["tb_per_s"] / best, 3)
        print(f"{row['what']:40} {row['tb_per_s']:6} TB/s  {row['of_copy']:5} of the copy  {row['ms']} ms")
    if len(sys.argv) > 1:
        report = {**attention_crosscheck.versions(), "rows": rows}
        Path(sys.argv[1]).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

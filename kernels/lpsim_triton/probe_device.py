"""A real GPU's dots and sums as functions of codes, for `lpsim.probe` to find out what they are.

    python -m lpsim_triton.probe_device REPORT.json     every format and path of tl.dot, and a few sums

Each test is one element on the diagonal of a 64 x 64 tile: row i of a, column i of b and element (i, i) of c.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import triton
import triton.language as tl

from lpsim.errors import choose
from lpsim.probe import known, report
from lpsim.probe.questions import Dot
from lpsim.tile_sums import dtype_of

from . import reductions

SIDE = 64
#: format -> torch's type, and the least K of one tl.dot
OPERANDS = {
    "bf16": (torch.bfloat16, 16),
    "fp16": (torch.float16, 16),
    "tf32": (torch.float32, 16),
    "e4m3fn": (torch.float8_e4m3fn, 32),
    "e5m2": (torch.float8_e5m2, 32),
}
WARPS = {"wgmma": 4, "mma": 2}
LONGEST = 256  #: k that blocks are looked for


@triton.jit
def diagonal_kernel(a, b, c, out, k, STEP: tl.constexpr, SIDE: tl.constexpr):
    """out[i] = c[i] + a[i, :] . b[i, :], chained over k in steps; one program has SIDE tests."""
    test = tl.program_id(0) * SIDE
    i = tl.arange(0, SIDE)
    own = i[:, None] == i[None, :]
    start = tl.load(c + test + i)
    acc = tl.where(own, start[:, None], 0.0).to(start.dtype)
    for first in range(0, k, STEP):
        at = first + tl.arange(0, STEP)
        x = tl.load(a + (test + i[:, None]) * k + at[None, :])
        y = tl.load(b + (test + i[None, :]) * k + at[:, None])
        acc = tl.dot(x, y, acc, out_dtype=start.dtype)
    tl.store(out + test + i[:, None] + i[None, :] * 0, acc, mask=own)


def on_gpu(key: known.Key) -> Dot:
    """The instruction as `find_unit` asks it; RuntimeError if Triton chose another one."""
    dtype, step = OPERANDS[key.fmt]
    wide = torch.float32 if key.accumulator == "fp32" else torch.float16

    def tensor(codes: np.ndarray, kind: torch.dtype) -> torch.Tensor:
        carrier = codes.view(np.dtype(f"i{codes.itemsize}"))
        return torch.from_numpy(np.ascontiguousarray(carrier)).cuda().view(kind)

    def dot(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        missing = -len(a) % SIDE
        a, b = (np.pad(x, ((0, missing), (0, 0))) for x in (a, b))
        x, y, start = tensor(a, dtype), tensor(b, dtype), tensor(np.pad(c, (0, missing)), wide)
        out = torch.empty_like(start)
        kernel = diagonal_kernel[(len(a) // SIDE,)](  # pyright: ignore[reportIndexIssue]
            x, y, start, out, a.shape[1], STEP=step, SIDE=SIDE, num_warps=WARPS[key.path], num_stages=1,
            enable_fp_fusion=False,
        )  # fmt: skip
        if ("wgmma" in kernel.asm["ptx"]) != (key.path == "wgmma"):
            raise RuntimeError(f"Triton {triton.__version__} compiled {key} to another instruction.")
        codes = out.view(torch.int32 if wide is torch.float32 else torch.int16).cpu().numpy()
        return codes.view(c.dtype)[: len(c)]

    return dot


def instructions(path: str | None = None, fmt: str | None = None) -> Iterator[known.Key]:
    """What Triton reaches on an sm_90: every format and path with an fp32 accumulator, fp16 with its own.

    path, fmt: only these; ValueError for unknown ones.
    """
    name = torch.cuda.get_device_name()
    for way in WARPS if path is None else (choose("path", path, {p: p for p in WARPS}),):
        for operand in OPERANDS if fmt is None else (choose("fmt", fmt, {f: f for f in OPERANDS}),):
            yield known.Key(name, way, operand, "fp32")
            if operand == "fp16":
                yield known.Key(name, way, operand, "fp16")


def dots(path: str | None = None, fmt: str | None = None) -> Iterator[dict]:
    """A row of the report for each instruction."""
    for key in instructions(path, fmt):
        yield report.dot_row(on_gpu(key), key, OPERANDS[key.fmt][1], LONGEST)


def sums() -> Iterator[dict]:
    """A row of the report for each sum."""
    for case in report.SUMS:

        def reduce(x: np.ndarray, case=case) -> np.ndarray:
            padded = np.pad(x, ((0, 0), (0, not case.aligned))).astype(dtype_of(case.fmt))
            carrier = padded.view(np.int16) if padded.itemsize == 2 else padded
            operand = torch.from_numpy(carrier).cuda()
            if padded.itemsize == 2:
                operand = operand.view(torch.float16 if case.fmt == "fp16" else torch.bfloat16)
            out, _ = reductions.reduce_rows(operand, operand, case.n, "sum", case.num_warps, True)
            return out.double().cpu().numpy()

        yield report.sum_row(reduce, case)


def probed(path: str | None = None, fmt: str | None = None) -> dict:
    """Everything, or the dots of a path or a format, with what it ran on."""
    return {
        "device": torch.cuda.get_device_name(),
        "capability": list(torch.cuda.get_device_capability()),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "dots": list(dots(path, fmt)),
        "sums": list(sums()) if fmt is None else [],
    }


def main(path: str) -> None:
    """Write the report, under another name first."""
    found = probed()
    part = Path(path).with_suffix(".part")
    part.write_text(json.dumps(found, indent=1))
    part.replace(path)


if __name__ == "__main__":
    main(sys.argv[1])

"""Record elementwise operations on a GPU: what the emulator's functions were derived from and are checked against.

    python scripts/record_elementwise.py digests FOLDER       digests.json: functions of one float32, all 2^32 inputs
    python scripts/record_elementwise.py operations FOLDER    elementwise.json and .npz: several operands (lpsim.drawn)
                                                              as digests; casts and functions of all 16-bit codes
    python scripts/record_elementwise.py dumps FOLDER         special functions over whole binades, from which
                                                              derive_mufu_normalised.py chooses its samples

Needs torch, Triton and a CUDA device, and lpsim and lpsim_triton on the path. lpsim/data/h200 holds what was kept of
a run on an H200 with torch 2.11.0+cu130 and Triton 3.6.0.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from lpsim import digest, drawn
from lpsim_triton import elementwise
from lpsim_triton.crosscheck import versions
from lpsim_triton.crosscheck_elementwise import applied, codes_of, gpu_operations, on_gpu, unary_names, word
from lpsim_triton.elementwise import CASTS, INSTRUCTIONS, UNARY_16

SEED, DRAWS, PER_CHUNK = 2026, 1 << 22, 1 << 18
NARROW = {"bf16": 16, "fp16": 16, "e4m3fn": 8, "e5m2": 8}
#: function -> the binades [2^first, 2^(first + count)) of its dump
BINADES = {"lg2.approx.ftz.f32": (-1, 2), "sin.approx.ftz.f32": (-3, 6), "cos.approx.ftz.f32": (0, 2)}
BINADES_TANH = ((-12, 8), (-4, 4), (0, 5))
DEFINITION = (
    "H_c = sum_i (y_i + 1) * (splitmix64(i) | 1) mod 2^64 over i = c * per_chunk .. (c + 1) * per_chunk - 1;"
    " y_i = bits of result i"
)


def digests(folder: Path) -> None:
    found = {name: [f"{h:016x}" for h in elementwise.digests(name, word(name))] for name in unary_names()}
    text = json.dumps({**versions(), "definition": "see lpsim.digest", "digests": found}, indent=0)
    (folder / "digests.json").write_text(text)


def weighted(codes: np.ndarray) -> list[str]:
    """A digest for every PER_CHUNK results, as DEFINITION says."""
    weights = np.empty(PER_CHUNK, np.uint64)
    totals = []
    for first in range(0, codes.size, PER_CHUNK):
        digest.fill_weights(first, weights)
        total = int(digest.weighted_sum(codes[first : first + PER_CHUNK], weights)) % (1 << 64)
        totals.append(f"{total:016x}")
    return totals


def drawn_digests() -> dict[str, list[str]]:
    """Every operation of several operands -> its digests."""
    found = {}
    for fmt in drawn.FORMATS:
        tensors = [on_gpu(x, fmt) for x in drawn.codes(SEED, 0, DRAWS, fmt)]
        for name, (what, count, fusion) in gpu_operations(fmt).items():
            found[name] = weighted(applied(what, count, tensors[:count], fmt, fusion))
    return found


def tables() -> dict[str, np.ndarray]:
    """Casts between formats and functions of 16-bit floats -> results for all codes."""
    every = {fmt: on_gpu(np.arange(1 << bits, dtype=f"u{bits // 8}"), fmt) for fmt, bits in NARROW.items()}
    found = {}
    for source, tensor in every.items():
        for target, function in CASTS.items():
            if target != source and not (NARROW[source] == 8 and NARROW.get(target) == 8):
                found[f"cast {source} {target}"] = applied(function, 1, [tensor], target)
    for name in UNARY_16:
        fmt = "bf16" if "bf16" in name else "fp16"
        found[name] = applied(INSTRUCTIONS[name], 1, [every[fmt]], fmt)
    return found


def operations(folder: Path) -> None:
    head = {
        "about": "Digests of elementwise operations of several operands on an H200.",
        **versions(),
        "source": "scripts/record_elementwise.py operations",
        "operands": "lpsim.drawn.codes(seed, 0, draws, format)",
        "definition": DEFINITION,
        "seed": SEED,
        "draws": DRAWS,
        "per_chunk": PER_CHUNK,
        "digests": drawn_digests(),
    }
    text = json.dumps(head, indent=1).replace("\n   ", " ").replace("\n  ]", "]") + "\n"
    (folder / "elementwise.json").write_text(text)
    np.savez_compressed(folder / "elementwise.npz", **tables())


def binades(name: str, first: int, count: int) -> np.ndarray:
    """uint32 (count * 2^23,): the bits of the results for every float32 from 2^first to 2^(first + count)."""
    start = (first + 127) << 23
    x = torch.arange(start, start + (count << 23), dtype=torch.int32, device="cuda").view(torch.float32)
    return codes_of(elementwise.apply(INSTRUCTIONS[name], 1, x, dtype=torch.float32))


def dump(path: Path, bits: np.ndarray) -> None:
    """The differences of the bits, from zero on, as four planes of bytes, low ones first, compressed with xz."""
    steps = np.diff(bits.view(np.int32), prepend=np.int32(0)).view(np.uint8).reshape(-1, 4)
    planes = np.ascontiguousarray(steps.T)
    with path.open("wb") as file:
        subprocess.run(["xz", "-2", "-T0", "--block-size=16MiB"], input=planes.tobytes(), stdout=file, check=True)


def dumps(folder: Path) -> None:
    for name, (first, count) in BINADES.items():
        dump(folder / f"{name.split('.')[0]}.xz", binades(name, first, count))
    for first, count in BINADES_TANH:
        dump(folder / f"tanh{first + 12}.xz", binades("tanh.approx.f32", first, count))


if __name__ == "__main__":
    what, target = sys.argv[1], Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    {"digests": digests, "operations": operations, "dumps": dumps}[what](target)

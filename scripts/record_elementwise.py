"""Record elementwise operations on a GPU: what the emulator's functions were derived from and are checked against.

    python scripts/record_elementwise.py digests FOLDER       unary functions, all 2^32 inputs, as digests
    python scripts/record_elementwise.py operations FOLDER    several operands (lpsim.drawn), and all 16-bit codes
    python scripts/record_elementwise.py dumps FOLDER         special functions over whole binades, for derivations

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
from lpsim_triton.elementwise import CASTS, INSTRUCTIONS, OPERATIONS, UNARY

SEED, DRAWS, PER_CHUNK, KEPT = 2026, 1 << 22, 1 << 18, 1 << 15
TYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "e4m3fn": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
#: function -> the binades [2^first, 2^(first + count)) of its dump
BINADES = {"lg2.approx.ftz.f32": (-1, 2), "sin.approx.ftz.f32": (-3, 6), "cos.approx.ftz.f32": (0, 2)}
BINADES_TANH = ((-12, 8), (-4, 4), (0, 5))


def words(name: str) -> str:
    """The unsigned type of a unary function's results."""
    if name.endswith(("int8", "e4m3", "e5m2")):
        return "uint8"
    return "uint16" if any(part in name for part in ("bf16", "fp16", "f16", "int16")) else "uint32"


def on_gpu(codes: np.ndarray, fmt: str) -> torch.Tensor:
    signed = codes.view(f"i{codes.itemsize}") if codes.itemsize > 1 else codes
    return torch.from_numpy(signed).cuda().view(TYPES[fmt])


def codes_of(x: torch.Tensor) -> np.ndarray:
    raw = x.view(CARRIERS[x.element_size()]).cpu().numpy()
    return raw.view(f"u{raw.itemsize}")


def digests(folder: Path) -> None:
    found = {}
    for name in UNARY:
        found[name] = [f"{h:016X}" for h in elementwise.digests(name, words(name))]
        print(name, flush=True)
    (folder / "digests.json").write_text(json.dumps(found))


def weighted(codes: np.ndarray) -> list[int]:
    """A digest for every PER_CHUNK results: sum of (y + 1) * (splitmix64(i) | 1), i counting from the first."""
    weights = np.empty(PER_CHUNK, np.uint64)
    totals = []
    for first in range(0, codes.size, PER_CHUNK):
        digest.fill_weights(first, weights)
        totals.append(int(digest.weighted_sum(codes[first : first + PER_CHUNK], weights)) % (1 << 64))
    return totals


def operations(folder: Path) -> None:
    kept, found = {}, {}

    def keep(name, y):
        codes = codes_of(y)
        found[name] = weighted(codes)
        kept[name] = codes[:KEPT]

    for fmt in drawn.FORMATS:
        operands = [on_gpu(x, fmt) for x in drawn.codes(SEED, 0, DRAWS, fmt)]
        for name, (count, function) in OPERATIONS.items():
            if name == "div_rn" and fmt != "fp32":
                continue
            for fusion in (True, False) if "*" in name else (True,):
                y = elementwise.apply(function, count, *operands[:count], dtype=TYPES[fmt], fusion=fusion)
                keep(f"{fmt}: {name}" + ("" if fusion else ", not fused"), y)
        if fmt == "fp32":
            for name in elementwise.BINARY_F32:
                keep(f"ptx:{name}", elementwise.apply(INSTRUCTIONS[name], 2, *operands[:2], dtype=TYPES[fmt]))
    for source in TYPES:
        codes = np.arange(1 << 16, dtype=np.uint16) if source in ("bf16", "fp16") else np.arange(256, dtype=np.uint8)
        for target, function in CASTS.items():
            if source in ("fp32", target) or {source, target} == {"e4m3fn", "e5m2"}:
                continue
            kept[f"cast {source} {target}"] = codes_of(
                elementwise.apply(function, 1, on_gpu(codes, source), dtype=TYPES[target])
            )
    for name in elementwise.UNARY_16:
        fmt = "bf16" if "bf16" in name else "fp16"
        every = on_gpu(np.arange(1 << 16, dtype=np.uint16), fmt)
        kept[f"ptx:{name}"] = codes_of(elementwise.apply(INSTRUCTIONS[name], 1, every, dtype=TYPES[fmt]))
    np.savez_compressed(folder / "operations.npz", **kept)
    (folder / "operations.json").write_text(json.dumps(found))


def binades(name: str, first: int, count: int) -> np.ndarray:
    """uint32 (count * 2^23,): the bits of the results for every float32 from 2^first to 2^(first + count)."""
    start = (first + 127) << 23
    x = torch.arange(start, start + (count << 23), dtype=torch.int32, device="cuda").view(torch.float32)
    return codes_of(elementwise.apply(INSTRUCTIONS[name], 1, x, dtype=torch.float32))


def dump(path: Path, bits: np.ndarray) -> None:
    """The first bits, then their differences as four planes of bytes, low ones first, compressed with xz."""
    steps = np.diff(bits.view(np.int32), prepend=np.int32(0)).view(np.uint8).reshape(-1, 4)
    planes = np.ascontiguousarray(steps.T)
    with path.open("wb") as file:
        subprocess.run(["xz", "-2", "-T0", "--block-size=16MiB"], input=planes.tobytes(), stdout=file, check=True)


def dumps(folder: Path) -> None:
    for name, (first, count) in BINADES.items():
        dump(folder / f"{name.split('.')[0]}.xz", binades(name, first, count))
        print(name, flush=True)
    for first, count in BINADES_TANH:
        dump(folder / f"tanh{first + 12}.xz", binades("tanh.approx.f32", first, count))
        print("tanh", first, flush=True)
    fractions = np.random.default_rng(5).integers(0, 1 << 23, 1 << 11, dtype=np.uint32)
    codes = ((np.arange(512, dtype=np.uint32) << np.uint32(23))[:, None] | fractions).ravel()
    kept = {"x": codes}
    for name in (*BINADES, "tanh.approx.f32"):
        y = elementwise.apply(INSTRUCTIONS[name], 1, on_gpu(codes, "fp32"), dtype=torch.float32)
        kept[name] = codes_of(y)
    np.savez_compressed(folder / "scattered.npz", **kept)


if __name__ == "__main__":
    what, target = sys.argv[1], Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    {"digests": digests, "operations": operations, "dumps": dumps}[what](target)

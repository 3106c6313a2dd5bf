"""Elementwise operations on this machine's GPU against the emulator, live, bit for bit.

Functions of one float32 are compared on all 2^32 inputs, by digests of 2^24 inputs each (`lpsim.digest`); operations
of several operands on operands that `lpsim.drawn` draws from the seed, so that a case is named by seed and index;
casts from 8 and 16 bits, and the 16-bit forms of ex2 and tanh, on all codes.
"""

import multiprocessing
import os
from collections.abc import Iterator

import numpy as np

from lpsim import digest, drawn, native, replay, threads
from lpsim.core import special
from lpsim.verify import Check

TYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "e4m3fn": "float8_e4m3fn", "e5m2": "float8_e5m2"}
DRAWS, PIECE = 100 << 20, 1 << 24  # operands of each operation, and how many at a time
PROCESSES, PARTS = 16, 4  # of the emulator, and parts of one function's chunks


def on_gpu(codes: np.ndarray, fmt: str):
    """Codes of fmt (n,) as a tensor of its type on the GPU."""
    import torch

    signed = codes.view(f"i{codes.itemsize}") if codes.itemsize > 1 else codes
    return torch.from_numpy(signed).cuda().view(getattr(torch, TYPES[fmt]))


def codes_of(x) -> np.ndarray:
    """The bits of a tensor of any type, as unsigned integers on the CPU."""
    import torch

    carrier = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.element_size()]
    raw = x.view(carrier).cpu().numpy()
    return raw.view(f"u{raw.itemsize}")


def applied(what, operands: int, tensors: list, fmt: str, fusion: bool = True) -> np.ndarray:
    """Codes (n,) of an operation's results on the GPU; fmt: their format."""
    import torch

    from . import elementwise

    result = elementwise.apply(what, operands, *tensors, dtype=getattr(torch, TYPES[fmt]), fusion=fusion)
    return codes_of(result)


def unary_names() -> list[str]:
    """The functions of one float32 that are compared: those that the emulator plans and a kernel here computes."""
    from .elementwise import UNARY

    return [name for name in digest.PLAN if name in UNARY]


def word(name: str) -> str:
    """The unsigned type of a function's results."""
    return f"uint{8 * np.dtype(digest.PLAN[name].dtype).itemsize}"


def chosen_chunks(seed: int, scale: float) -> list[int]:
    """All 256 chunks of inputs, or the share of them that scale names, drawn from the seed."""
    count = max(1, min(digest.CHUNKS, round(digest.CHUNKS * scale)))
    return sorted(int(i) for i in np.random.default_rng(seed).permutation(digest.CHUNKS)[:count])


def warm_up(names: list[str]) -> None:
    """Compile the emulator's functions of these names, into the cache that all processes share."""
    x, few = np.ones(4, np.float32), {fmt: drawn.codes(0, 0, 4, fmt) for fmt in drawn.FORMATS}
    for name in names:
        if name in digest.PLAN:
            operation = digest.PLAN[name]
            operation.loop(x, np.empty(4, operation.dtype))
        else:
            replay.compute(name, few[replay.format_of(name)])


def first_difference(name: str, chunk: int) -> str:
    """The smallest input of a chunk on which GPU and emulator differ, in bits."""
    from . import elementwise

    inputs = np.arange(chunk << digest.CHUNK_BITS, (chunk + 1) << digest.CHUNK_BITS, dtype=np.uint32)
    operation = digest.PLAN[name]
    ours = np.empty(inputs.size, operation.dtype)
    operation.loop(inputs.view(np.float32), ours)
    ours = ours.view(f"u{ours.itemsize}")
    theirs = codes_of(elementwise.results(elementwise.UNARY[name], on_gpu(inputs, "fp32"), word(name)))
    wrong = np.flatnonzero(ours != theirs)
    if wrong.size == 0:
        return f"chunk {chunk:#04x}: digests differ, results do not"
    i = wrong[0]
    return f"x {inputs[i]:08X}: emulator {ours[i]:X}, GPU {theirs[i]:X}"


def emulated(name: str, chunks: list[int]) -> np.ndarray:
    """uint64 (len(chunks),): the emulator's digests, by one thread: processes do not wait for each other."""
    threads.set_threads(1)
    operation = digest.PLAN[name]
    return digest.digests(operation.loop, operation.dtype, chunks)


def same_loop(names: list[str]) -> dict[str, str]:
    """Each name -> the first name that is the same function of the emulator: what is equal is computed once."""
    firsts: dict[tuple, str] = {}
    return {
        name: firsts.setdefault((digest.PLAN[name].loop, np.dtype(digest.PLAN[name].dtype).str), name) for name in names
    }


def unary(seed: int, scale: float) -> Iterator[Check]:
    """One check for each function of one float32. The emulator works in processes, the GPU while they compile."""
    from . import elementwise

    names, chunks = unary_names(), chosen_chunks(seed, scale)
    first = same_loop(names)
    everything, workers = [*names, *replay.names()], min(PROCESSES, os.cpu_count() or 1)
    parts = [chunks[i::PARTS] for i in range(min(PARTS, len(chunks)))]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        compiling = pool.map_async(warm_up, [everything[i::workers] for i in range(workers)])
        theirs = {name: elementwise.digests(name, word(name), chunks) for name in names}
        compiling.get()
        distinct = list(dict.fromkeys(first.values()))
        tasks = {name: [pool.apply_async(emulated, (name, part)) for part in parts] for name in distinct}
        for name in names:
            ours = np.empty(len(chunks), np.uint64)
            for i, task in enumerate(tasks[first[name]]):
                ours[i::PARTS] = task.get()
            wrong = [chunk for chunk, a, b in zip(chunks, ours, theirs[name], strict=True) if a != b]
            example = first_difference(name, wrong[0]) if wrong else ""
            size = 1 << digest.CHUNK_BITS
            yield Check(name, "live", len(chunks) * size, len(wrong) * size, example)


def gpu_operations(fmt: str) -> dict[str, tuple]:
    """`lpsim.replay`'s names of the operations on fmt -> (function or instruction, operands, fusion)."""
    from .elementwise import BINARY_F32, INSTRUCTIONS, OPERATIONS

    found: dict[str, tuple] = {}
    for name, (count, function) in OPERATIONS.items():
        if name not in native.names(fmt):
            continue
        found[f"{fmt}: {name}"] = (function, count, True)
        if "*" in name:
            found[f"{fmt}: {name}, not fused"] = (function, count, False)
    if fmt == "fp32":
        found |= {f"ptx:{name}": (INSTRUCTIONS[name], 2, True) for name in BINARY_F32}
    return found


def smallest(operands: list[np.ndarray], ours: np.ndarray, theirs: np.ndarray, wrong: np.ndarray) -> str:
    """Of the differing cases the one with the smallest codes, first operand first."""
    cases = np.stack([x[wrong] for x in operands])
    i = wrong[np.lexsort(cases[::-1])[0]]
    digits = 2 * ours.itemsize
    given = ", ".join(f"{name} {x[i]:0{digits}X}" for name, x in zip("xyzw", operands, strict=False))
    return f"{given}: emulator {ours[i]:0{digits}X}, GPU {theirs[i]:0{digits}X}"


def several(fmt: str, seed: int, scale: float) -> Iterator[Check]:
    """One check for each operation of several operands on fmt."""
    total = max(PIECE // 64, round(DRAWS * scale))
    operations = gpu_operations(fmt)
    differing, examples = dict.fromkeys(operations, 0), dict.fromkeys(operations, "")
    for first in range(0, total, PIECE):
        codes = drawn.codes(seed, first, min(PIECE, total - first), fmt)
        tensors = [on_gpu(x, fmt) for x in codes]
        for name, (what, count, fusion) in operations.items():
            theirs = applied(what, count, tensors[:count], fmt, fusion)
            ours = replay.compute(name, codes)
            wrong = np.flatnonzero(ours != theirs)
            differing[name] += wrong.size
            if wrong.size and not examples[name]:
                examples[name] = smallest(list(codes[:count]), ours, theirs, wrong)
    for name in operations:
        yield Check(name, "live", total, differing[name], examples[name])


def tables() -> Iterator[Check]:
    """One check for each cast from 8 or 16 bits and each function of 16-bit floats, on all codes."""
    from .elementwise import CASTS, INSTRUCTIONS

    for name in replay.tables():
        if name.startswith("cast "):
            _, source, target = name.split()
            what = CASTS[target]
        else:
            source = target = special.HALVES[name][1]
            what = INSTRUCTIONS[name]
        bits = 16 if source in ("bf16", "fp16") else 8
        codes = np.arange(1 << bits, dtype=f"u{bits // 8}")
        theirs = applied(what, 1, [on_gpu(codes, source)], target)
        ours = replay.table(name)
        wrong = np.flatnonzero(ours != theirs)
        example = smallest([codes.astype(ours.dtype)], ours, theirs, wrong) if wrong.size else ""
        yield Check(name, "live", codes.size, wrong.size, example)


def checks(seed: int, scale: float = 1.0) -> Iterator[Check]:
    """All checks. scale: the share of the inputs of one operand (in chunks) and of the drawn operands."""
    yield from unary(seed, scale)
    for fmt in drawn.FORMATS:
        yield from several(fmt, seed, scale)
    yield from tables()

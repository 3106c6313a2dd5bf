"""Recorded elementwise operations of an H200, computed again: of several operands, and on all 16-bit codes.

data/h200/elementwise.json: digests of results on operands that `lpsim.drawn` draws, as its text defines them.
data/h200/elementwise.npz: results of casts and of ex2 and tanh .approx for every code of their format.
Made by scripts/record_elementwise.py.
"""

import functools
from collections.abc import Iterable

import numpy as np

from . import data, digest, drawn, machine_elementwise, native
from .core import special
from .formats import FORMATS

#: format -> its dtype's name in ml_dtypes
DTYPES = {"bf16": "bfloat16", "e4m3fn": "float8_e4m3fn", "e5m2": "float8_e5m2"}


@functools.cache
def description() -> dict:
    """The parsed elementwise.json."""
    return data.description("elementwise")


def names() -> list[str]:
    """The recorded operations of several operands: "bf16: add", "ptx:div.full.f32", .."""
    return list(description()["digests"])


def compute(name: str, operands: np.ndarray) -> np.ndarray:
    """Codes (n,) of the operation on codes (4, n) of its format, as many of them as it takes."""
    if name.startswith("ptx:"):
        loop = special.ARRAYS[name.removeprefix("ptx:")]
        return native.on_float32(loop, *(np.ascontiguousarray(x).view(np.float32) for x in operands[:2])).view(
            np.uint32
        )
    fmt, _, operation = name.partition(": ")
    used = operands[: native.operands_of(operation)]
    return native.compute(operation, fmt, [np.ascontiguousarray(codes) for codes in used])


def format_of(name: str) -> str:
    """The format of an operation's operands and result."""
    return "fp32" if name.startswith("ptx:") else name.partition(":")[0]


def mismatches(fmt: str, chunks: Iterable[int] | None = None) -> dict[str, list[int]]:
    """Each recorded operation on `fmt` -> the chunks whose results differ from what is computed now.

    chunks: which of them to compute, None for all.
    """
    stored = description()
    size = stored["per_chunk"]
    wrong: dict[str, list[int]] = {name: [] for name in names() if format_of(name) == fmt}
    weights = np.empty(size, np.uint64)
    for chunk in range(stored["draws"] // size) if chunks is None else chunks:
        operands = drawn.codes(stored["seed"], chunk * size, size, fmt)
        digest.fill_weights(chunk * size, weights)
        for name, found in wrong.items():
            codes = compute(name, operands)
            if int(digest.weighted_sum(codes, weights)) % (1 << 64) != int(stored["digests"][name][chunk], 16):
                found.append(chunk)
    return wrong


def tables() -> dict[str, np.ndarray]:
    """name -> recorded codes, one for every code of the source: "cast e5m2 bf16", "ex2.approx.f16", .."""
    return data.arrays("elementwise")


def table(name: str) -> np.ndarray:
    """What `tables` records under this name, computed: codes for all codes of the source format in order."""
    if not name.startswith("cast "):
        return native.half(name, np.arange(1 << 16, dtype=np.uint16))
    import ml_dtypes

    _, source, target = name.split()
    dtype = np.float16 if source == "fp16" else getattr(ml_dtypes, DTYPES[source])
    codes = np.arange(1 << FORMATS[source].bits, dtype=f"u{FORMATS[source].bits // 8}")
    return np.asarray(machine_elementwise.cast("h200", codes.view(dtype), target, None))

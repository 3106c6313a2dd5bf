"""What the dots are checked on: the runs (formats, tiles, options) and the kinds of input, all from a seed.

A word is splitmix64 of (seed, stream, index); codes are made of words by integer operations, so a case can be made
again from its name.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lpsim.formats import FORMATS, exponent_bits, max_finite

from .crosscheck_draws import words

KINDS = ("normal", "wide", "one-signed", "cancelling", "tiny", "special", "bits")
u64 = np.uint64


class Run(NamedTuple):
    """tl.dot of matrices of one format pair on one tile, with one set of options."""

    a: str
    b: str
    block: tuple[int, int, int]
    k: tuple[int, ...] = (32,)  #: of the matrices; each in turn
    form: str = "chained"
    num_warps: int = 4
    input_precision: str = "tf32"
    max_num_imprecise_acc: int | None = None
    out_dtype: str = "fp32"
    c: bool = True
    large: bool = False  #: one of those that make the great number of outputs

    def options(self) -> dict:
        """Keyword arguments of `lpsim.tl_dot.plan` and `lpsim_triton.dot.dot`."""
        names = ("form", "num_warps", "input_precision", "max_num_imprecise_acc", "out_dtype")
        return {name: getattr(self, name) for name in names}

    def described(self) -> dict:
        """What a recording says of it."""
        return {"operation": str(self), "a": self.a, "b": self.b, "block": self.block, **self.options()}

    def __str__(self) -> str:
        operands = self.a if self.a == self.b else f"{self.a} x {self.b}"
        tile = "x".join(map(str, self.block))
        more = [f"form={self.form}"] if self.form != "chained" else []
        more += [f"input_precision={self.input_precision}"] if self.a == "fp32" else []
        more += (
            [f"max_num_imprecise_acc={self.max_num_imprecise_acc}"] if self.max_num_imprecise_acc is not None else []
        )
        more += [] if self.c else ["no c"]
        return ", ".join([f"tl.dot {operands} -> {self.out_dtype}", f"tile {tile}", f"{self.num_warps} warps", *more])


class ScaledRun(NamedTuple):
    """tl.dot_scaled of one format pair on tiles (m, n, k)."""

    a: str
    b: str
    tile: tuple[int, int, int]
    num_warps: int = 4
    fast_math: bool = False
    b_scaled: bool = True

    def described(self) -> dict:
        """What a recording says of it."""
        options = {"num_warps": self.num_warps, "fast_math": self.fast_math}
        return {"operation": str(self), "a": self.a, "b": self.b, "tile": self.tile, **options}

    def __str__(self) -> str:
        tile = "x".join(map(str, self.tile))
        more = (["fast_math"] if self.fast_math else []) + ([] if self.b_scaled else ["b without scales"])
        return ", ".join([f"tl.dot_scaled {self.a} x {self.b}", f"tile {tile}", f"{self.num_warps} warps", *more])


class PtxRun(NamedTuple):
    """mma.sync.m16n8k32 of one fp8 format pair, as PTX has it."""

    a: str
    b: str
    accumulator: str

    def described(self) -> dict:
        """What a recording says of it."""
        return {"operation": str(self), "a": self.a, "b": self.b, "accumulator": self.accumulator}

    def __str__(self) -> str:
        return f"mma.sync.m16n8k32 {self.a} x {self.b} -> {self.accumulator}"


PAIRS = [(name, name) for name in ("bf16", "fp16", "fp32", "e4m3fn", "e5m2")]
MIXED = [("e4m3fn", "e5m2"), ("e5m2", "e4m3fn")]


def runs() -> list[Run]:
    """All runs of tl.dot, in a fixed order: the index is the stream of the inputs."""
    tile = (64, 64, 32)
    found = [Run(a, b, tile, large=True) for a, b in PAIRS + MIXED]
    found += [Run(a, b, tile, num_warps=2, large=True) for a, b in PAIRS + MIXED]
    found += [Run(a, b, (64, 64, 64), (128, 208, 512)) for a, b in PAIRS + MIXED]
    found += [Run(a, b, (32, 32, 64), (128, 208, 512)) for a, b in PAIRS + MIXED]
    found += [Run(a, b, (64, 64, 32), (44,), num_warps=w) for a, b in (PAIRS[0], PAIRS[3]) for w in (1, 4)]
    tiles = [((64, 8, 32), 4), ((64, 16, 32), 4), ((64, 16, 32), 8), ((128, 256, 32), 8), ((16, 16, 32), 1)]
    found += [Run(a, b, shape, num_warps=w) for a, b in (PAIRS[0], PAIRS[3]) for shape, w in tiles]
    found += [Run(a, b, (64, 32, 32), c=False, num_warps=w) for a, b in PAIRS for w in (4, 2)]
    found += [Run(a, b, (64, 64, 32), (64,), form="added") for a, b in PAIRS + MIXED[:1]]
    found += [Run(a, b, (64, 64, 64), (128,), "added", 2) for a, b in (PAIRS[0], PAIRS[3])]
    narrow = [("fp16", "fp16"), ("e4m3fn", "e4m3fn"), ("e5m2", "e5m2"), MIXED[0]]
    found += [Run(a, b, (64, 64, 32), (32, 80), num_warps=w, out_dtype="fp16") for a, b in narrow for w in (4, 2)]
    found += [Run(*narrow[1], (64, 64, 64), (128,), "added", out_dtype="fp16")]
    for limit in (0, 32, 64, 96, 128):
        found.append(Run("e4m3fn", "e4m3fn", (64, 64, 128), (256,), max_num_imprecise_acc=limit))
    found += [Run("e5m2", "e4m3fn", (64, 64, 128), (256,), "added", max_num_imprecise_acc=n) for n in (0, 32, 64)]
    found += [Run("bf16", "bf16", (64, 64, 64), (128,), "added", max_num_imprecise_acc=32)]
    schemes = ("tf32x3", "bf16x3", "bf16x6", "ieee")
    found += [Run("fp32", "fp32", (64, 32, 32), (64,), num_warps=w, input_precision=s) for s in schemes for w in (4, 2)]
    found += [Run("fp32", "fp32", (64, 32, 32), (64,), "added", input_precision=s) for s in ("tf32x3", "ieee")]
    found += [Run("fp64", "fp64", (32, 32, 16), (64,), out_dtype="fp64")]
    found += [Run("int8", "int8", (64, 64, 32), (96,), num_warps=w, out_dtype="int32") for w in (4, 2)]
    return found


def scaled_runs() -> list[ScaledRun]:
    """All runs of tl.dot_scaled."""
    tile = (64, 64, 64)
    pairs = [("e4m3fn", "e4m3fn"), ("e5m2", "e4m3fn"), ("e2m1", "e2m1"), ("e2m1", "e5m2"), ("bf16", "e4m3fn")]
    found = [ScaledRun(a, b, tile, w) for a, b in pairs for w in (4, 2)]
    found += [ScaledRun("fp16", "e5m2", tile), ScaledRun("e4m3fn", "e5m2", (128, 64, 128))]
    return found + [
        ScaledRun("e4m3fn", "e4m3fn", tile, fast_math=True),
        ScaledRun("e5m2", "bf16", tile, b_scaled=False),
    ]


def ptx_runs() -> list[PtxRun]:
    """All runs of the fp8 mma.sync of PTX."""
    pairs = [("e4m3fn", "e4m3fn"), ("e5m2", "e5m2"), *MIXED]
    return [PtxRun(a, b, accumulator) for accumulator in ("fp32", "fp16") for a, b in pairs]


def is_rare(run: Run) -> bool:
    """True for what older recordings of tl.dot do not have: other options, accumulators, mixed or other formats."""
    plain = (run.form, run.input_precision, run.max_num_imprecise_acc, run.out_dtype) == (
        "chained",
        "tf32",
        None,
        "fp32",
    )
    return not run.large and not (plain and run.a == run.b)


def specials(name: str) -> np.ndarray:
    """Codes at the ends of a format and around 1, both signs; Inf and NaN where there are any."""
    fmt = FORMATS[name]
    trailing, sign = fmt.precision - 1, 1 << (fmt.bits - 1)
    one, top = fmt.exponent_bias << trailing, max_finite(fmt)
    positive = [0, 1, 2, (1 << trailing) - 1, 1 << trailing, one - 1, one, one + 1, 3 * one // 2, top - 1, top]
    positive += list(range(top + 1, top + 1 + min(3, sign - top - 1))) + [sign - 1]
    return np.array(positive + [sign | code for code in positive], u64)


def _fields(w: np.ndarray, name: str, kind: str, smallest: bool) -> np.ndarray:
    """Exponent fields by kind. smallest: tiny means the lowest there are, else those whose products are."""
    fmt = FORMATS[name]
    highest = max_finite(fmt) >> (fmt.precision - 1)
    drawn = (w >> u64(52)) & u64(0x7FF)
    if kind == "wide":
        return drawn % u64(highest + 1)
    if kind == "tiny":
        half = {8: 72, 11: 516}.get(exponent_bits(fmt), 0)  # products around the accumulator's smallest
        lowest = 0 if smallest or not half else fmt.exponent_bias - half
        return u64(lowest) + drawn % u64(12 if half and not smallest else 3)
    near = np.bitwise_count(drawn & u64(0x3F)).astype(u64)  # 0 to 6, as a coin falls
    return np.minimum(u64(max(fmt.exponent_bias - 3, 0)) + near, u64(highest))


def codes(w: np.ndarray, name: str, kind: str, smallest: bool = False) -> np.ndarray:
    """Codes of a float format from words of the same shape, in the smallest unsigned integers that hold them."""
    fmt = FORMATS[name]
    container = np.dtype(f"u{max(1, fmt.bits // 8)}")
    if kind == "bits":
        return (w >> u64(64 - fmt.bits)).astype(container)
    trailing = fmt.precision - 1
    sign = (w >> u64(51) & u64(0 if kind == "one-signed" else 1)) << u64(fmt.bits - 1)
    fraction = (w ^ (w >> u64(11))) & u64((1 << min(trailing, 40)) - 1)
    if trailing > 40:
        fraction = (w * u64(0x9E3779B97F4A7C15)) >> u64(64 - trailing)
    made = np.minimum((_fields(w, name, kind, smallest) << u64(trailing)) | fraction, u64(max_finite(fmt))) | sign
    if kind == "special":
        table = specials(name)
        made = np.where((w >> u64(44)) & u64(63) == 0, table[((w >> u64(20)) % u64(len(table))).astype(np.int64)], made)
    return made.astype(container)


def operand(seed: int, stream: int, shape: tuple[int, ...], name: str, kind: str, axis: int) -> np.ndarray:
    """Codes (int8: numbers) of one operand; axis: where its k is, -1 or -2. Kind cancelling: neighbours in k cancel."""
    w = words(seed, stream, int(np.prod(shape))).reshape(shape)
    if name == "int8":
        drawn = (w >> u64(56)).astype(np.uint8).view(np.int8)
        return np.abs(np.maximum(drawn, np.int8(-127))) if kind == "one-signed" else drawn
    made = codes(w, name, kind)
    if kind == "cancelling":
        even, odd = (slice(None, None, 2),), (slice(1, None, 2),)
        behind = () if axis == -1 else (slice(None),)
        sign = made.dtype.type(1 << (8 * made.dtype.itemsize - 1))
        own = made[(..., *odd, *behind)] & made.dtype.type(1)
        twin = made[(..., *even, *behind)]
        made[(..., *odd, *behind)] = twin ^ own if axis == -1 else twin ^ sign
    return made


def accumulator(seed: int, stream: int, shape: tuple[int, ...], name: str, kind: str) -> np.ndarray:
    """c in its dtype. int32: near the largest where products are one-signed, so that sums leave the range."""
    w = words(seed, stream, int(np.prod(shape))).reshape(shape)
    if name == "int32":
        far = (w >> u64(32)).astype(np.uint32).view(np.int32)
        return np.int32(2**31 - 1) - (w & u64(0xFFFFF)).astype(np.int32) if kind == "one-signed" else far
    made = codes(w, name, kind, smallest=True)
    return made.view(np.dtype(f"f{made.dtype.itemsize}"))


def streams(run: int, kind: int) -> Iterator[int]:
    """Numbers of the streams of words of one run and kind: a, b, c, scales."""
    first = (run * len(KINDS) + kind) * 16
    return iter(range(first, first + 16))

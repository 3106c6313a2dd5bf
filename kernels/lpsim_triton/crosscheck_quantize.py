"""Live check of `quantize` and `mirror`: the kernels on a GPU against the emulator, over fresh inputs.

Every format of the registry is a target of every rounding mode; the other policies rotate with the seed, so that runs
with other seeds see other combinations. Compiling is most of the time, so that cases run in processes.
"""

import functools
import multiprocessing
import os
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from lpsim import arrays, border, formats
from lpsim.formats import FORMATS
from lpsim.policies import NANS, OVERFLOWS, ROUNDINGS, SUBNORMALS, VARIANTS, policy, stochastic
from lpsim.threads import set_threads
from lpsim.verify import Check, difference

from . import crosscheck_draws as draws

N = 1 << 20  # elements of a case at scale 1
QUICK_N = 1 << 24  # of a case of the quick kernels
TARGETS = tuple(name for name in FORMATS if name != "fp64")
SOURCES = {
    "fp32": np.dtype(np.float32),
    "fp64": np.dtype(np.float64),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2),
}


class Case(NamedTuple):
    """One call on both sides."""

    what: str  #: encode, round, decode, or an operation
    fmt: str
    source: str = "fp32"
    rules: Any = ()  #: items of Rules
    n: int = N


def rules_of(fmt: str, rounding, turn: int) -> tuple:
    """Rules with this rounding; which overflow, NaN and subnormals go with it depends on `turn`."""
    chosen = {
        "rounding": rounding,
        "overflow": list(OVERFLOWS)[turn % 3],
        "nan": list(NANS)[turn // 3 % 4],
        "subnormals": list(SUBNORMALS)[turn // 5 % 4],
    }
    if not formats.has_nan(FORMATS[fmt]):  # other policies refuse NaN
        chosen |= {"overflow": "satfinite", "nan": "nvidia"}
    return tuple(chosen.items())


def roundings(seed: int, turn: int) -> list:
    """Every mode; the stochastic ones with other bits and keys each turn."""
    keyed = [
        stochastic(
            bits=1 + (turn * 7 + i * 11) % 32, seed=seed - (1 << 62) * (turn % 2), stream=(turn * 977) % (1 << 32),
            step=turn, offset=(turn * 12345) % 1000 + (turn % 3 << 36), variant=variant,
        )
        for i, variant in enumerate(VARIANTS)
    ]  # fmt: skip
    return [*ROUNDINGS, *keyed]


def cases(seed: int, scale: float) -> list[Case]:
    """Every call of this seed, those that compile longest first."""
    n, turn, found = max(1000, int(N * scale)), seed % 1000, []
    for i, (fmt, source) in enumerate(product(TARGETS, ("fp32", "fp64"))):
        for j, rounding in enumerate(roundings(seed, turn + i)):
            found.append(Case("encode", fmt, source, rules_of(fmt, rounding, turn + 4 * i + j), n))
    for i, (fmt, source) in enumerate(product(("bf16", "e4m3fn", "e2m1"), list(SOURCES)[2:])):
        found.append(Case("encode", fmt, source, rules_of(fmt, roundings(seed, i)[(turn + i) % 9], turn + i), n))
    for i, (fmt, source) in enumerate(product(TARGETS, SOURCES)):
        if border.holds(SOURCES[source], FORMATS[fmt]):
            found.append(Case("round", fmt, source, rules_of(fmt, roundings(seed, i)[(turn + i) % 9], turn + i), n))
    found += [Case("decode", fmt, n=n) for fmt in TARGETS]
    for i, (name, fmt) in enumerate(product(("div", "sqrt", "fma", "add", "sub", "mul"), TARGETS)):
        found.append(Case(name, fmt, "fp64", rules_of(fmt, list(ROUNDINGS)[(turn + i) % 6], turn + i), n))
    return [*(c for c in found if c.what == "div"), *(c for c in found if c.what != "div")]


def quick_cases(seed: int, scale: float) -> list[Case]:
    """Large calls of the kernels that have a second body: from binary32, to bf16, tf32 and narrow formats."""
    n = max(10_000, int(QUICK_N * scale)) + 5
    found = []
    for fmt, what in product(("bf16", "tf32", "fp16", "e4m3fn", "e5m2", "e4m3fnuz"), ("encode", "round")):
        for i, rounding in enumerate(ROUNDINGS):
            rules = {"rounding": rounding, "overflow": ("ieee", "satfinite")[(seed + i) % 2]}
            rules["nan"] = ("canonical", "nvidia", "ones")[(seed + i) % 3]
            found.append(Case(what, fmt, "fp32", tuple(rules.items()), n))
        for i, (variant, bits) in enumerate(
            (("A", 16), ("B", 16), ("A", 1 + seed % 16), ("B", 1 + seed % 13), ("A", 24))
        ):
            noise = stochastic(bits=bits, seed=~seed, stream=i, step=seed % 7, offset=8 * i + i % 2, variant=variant)
            found.append(Case(what, fmt, "fp32", (("rounding", noise),), n))
    return found


@functools.lru_cache(maxsize=1)
def raw_floats(seed: int, n: int) -> np.ndarray:
    """n float32 of random bits: what the quick cases share, since drawing takes longer than rounding."""
    return (draws.words(seed, 1 << 40, n) >> np.uint64(32)).astype(np.uint32).view(np.float32)


def inputs(seed: int, index: int, case: Case) -> list[np.ndarray]:
    """The operands of a case."""
    fmt = FORMATS[case.fmt]
    if case.n > N:
        return [raw_floats(seed, case.n)]
    if case.what == "decode":
        return [draws.codes(seed, index, case.n, fmt)]
    count = {"encode": 1, "round": 1, "sqrt": 1, "fma": 3}.get(case.what, 2)
    return [draws.floats(seed, index + (i << 32), case.n, SOURCES[case.source], fmt) for i in range(count)]


def emulated(case: Case, operands: list[np.ndarray]) -> np.ndarray:
    """The emulator's answer."""
    return getattr(arrays, case.what)(*operands, case.fmt, **dict(case.rules))


def to_cuda(x: np.ndarray):
    """The array as a CUDA tensor of its own dtype."""
    return border.to_torch(x).cuda()


def on_gpu(case: Case, operands: list[np.ndarray]) -> np.ndarray:
    """The kernels' answer, as the emulator's dtype."""
    from . import quantize

    given = [to_cuda(x) for x in operands]
    if case.what in ("encode", "round", "decode"):
        result = getattr(quantize, case.what)(*given, case.fmt, **dict(case.rules))
    else:
        result = _operation(case, given)
    return border.raw(result.cpu(), "result").array


def _operation(case: Case, given: list):
    import torch

    from . import operations, quantize

    fmt, rules = FORMATS[case.fmt], dict(case.rules)
    function, count = operations.ARITHMETIC[case.what]
    a, b, c = (x.view(torch.int64) for x in [*given, given[0], given[0]][:3])
    out = torch.empty(case.n, dtype=torch.int64, device="cuda")
    operations.arithmetic_kernel[(-(-case.n // 256),)](  # pyright: ignore[reportIndexIssue]
        a, b, c, out, case.n, function, count, fmt, policy(**rules), 256, num_warps=4, enable_fp_fusion=False
    )
    container = quantize.CODES[formats.container_bits(fmt)]
    codes = out.to(quantize.CARRIERS[container.itemsize]).view(container)
    return quantize.decode(codes, case.fmt).to(torch.float64)


def run(seed: int, index: int, case: Case) -> tuple[int, int, str]:
    """compared, differing, and the smallest failing case in bits."""
    operands = inputs(seed, index, case)
    want, got = np.asarray(emulated(case, operands)), on_gpu(case, operands)
    if (want.shape, want.dtype) != (got.shape, got.dtype):
        return want.size, want.size, f"{got.dtype} {got.shape} where {want.dtype} {want.shape} is right"
    wrong, _ = difference(got, want)
    return want.size, wrong, smallest(case, operands, got, want) if wrong else ""


def smallest(case: Case, operands: list[np.ndarray], got: np.ndarray, want: np.ndarray) -> str:
    """The failing element whose first operand is smallest, in bits."""
    given = [x.view(f"u{x.itemsize}") for x in operands]
    g, w = (x.view(f"u{x.itemsize}") for x in (got, want))
    failing = np.flatnonzero(g != w)
    sign = given[0].dtype.type(1 << (8 * given[0].itemsize - 1))
    i = int(failing[np.argmin(given[0][failing] & ~sign)])
    bits = ", ".join(f"{int(x[i]):0{2 * x.itemsize}X}" for x in given)
    rules = ", ".join(f"{name}={value!r}" for name, value in case.rules)
    answers = f"gives {int(g[i]):0{2 * g.itemsize}X}, emulated {int(w[i]):0{2 * w.itemsize}X}"
    return f"{case.what} {case.source} -> {case.fmt} {rules}, element {i}: {bits} {answers}"


def _worker(seed: int, index: int, case: Case) -> tuple[int, int, str]:
    set_threads(1)
    return run(seed, index, case)


def checks(seed: int, scale: float = 1.0) -> Iterator[Check]:
    """A row for each operation and target format; the quick kernels have rows of their own."""
    small = cases(seed, scale)
    emulated(small[0], inputs(seed, 0, small[0]._replace(n=1)))  # compiled once, before the processes need it
    with multiprocessing.get_context("spawn").Pool(min(os.cpu_count() or 1, 16)) as pool:
        jobs = [pool.apply_async(_worker, (seed, i, case)) for i, case in enumerate(small)]
        quick = quick_cases(seed, scale)
        yield from rows(
            [f"quick {c.what} fp32 to {c.fmt}" for c in quick], (run(seed, i, c) for i, c in enumerate(quick))
        )
        yield from rows([label(case) for case in small], (job.get() for job in jobs))


def label(case: Case) -> str:
    """The row of the report that a case counts towards."""
    if case.what in ("encode", "round"):
        return f"{case.what} to {case.fmt}"
    return f"{case.what} {case.fmt}"


def rows(labels: list[str], results: Iterator[tuple[int, int, str]]) -> Iterator[Check]:
    """One Check for each label: counts added, the first example kept."""
    found: dict[str, Check] = {}
    for name, (compared, differing, example) in zip(labels, results, strict=True):
        sofar = found.get(name, Check(name, "live", 0, 0))
        found[name] = Check(
            name, "live", sofar.compared + compared, sofar.differing + differing, sofar.example or example
        )
    yield from found.values()

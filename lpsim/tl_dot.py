"""The plan of a tl.dot: what one becomes on Hopper, as data. `tl_dot_run` computes it, bit for bit.

Shapes, formats and options decide which instruction is taken, how k is grouped, whether the accumulator is live (an
operand of the instruction) or added late, and into which parts fp32 operands are split. Nothing else does: tiles of
M and N, swizzles, stages and pipelining change no bit.
Source: the code that Triton 3.6.0 generates for sm_90, read case by case (kernels/lpsim_triton/crosscheck_dots.py
compares the plans with an H200); for 3.9.0 the code alone, see VERSIONS.
"""

from typing import NamedTuple

from .dot_units import Unit
from .errors import NotModelled, choose
from .formats import FORMATS, Format, lookup
from .machines import INT8, dot_row

FP8 = ("e4m3fn", "e5m2")
SIXTEEN = ("bf16", "fp16")
LIVE = 1 << 30  #: Triton's max_num_imprecise_acc for fp8 on Hopper when none is given
WGMMA_K = 32  #: products of an fp8 wgmma
#: version of Triton -> the fewest columns of a tile that goes to wgmma; all else that decides bits is the same
VERSIONS = {"3.6": 16, "3.9": 8}

ACC, SUM, PART, ZERO = "acc", "sum", "part", "zero"


class Step(NamedTuple):
    """One step on registers named acc (the accumulator), sum and part; zero is always 0.

    dot        target = the unit's chained dot of parts a, b over k in start .. stop, on `source`
    add        target = RN(target + source), one addition of the accumulator's format
    clear_nan  NaN elements of target become 0
    """

    op: str
    target: str
    source: str = ZERO
    a: int = 0  #: which part of the first operand: 0 is the largest
    b: int = 0
    start: int = 0
    stop: int = 0

    def __str__(self) -> str:
        if self.op == "dot":
            return f"{self.target} = dot(a{self.a}, b{self.b}, k {self.start}..{self.stop - 1}) on {self.source}"
        return f"{self.target} = {self.target} + {self.source}" if self.op == "add" else f"NaN in {self.target} to 0"


class Plan(NamedTuple):
    """What one tl.dot does."""

    path: str  #: the instruction family: wgmma, mma, ffma
    unit: Unit  #: of every dot step
    a_fmt: str  #: format of the operands as the unit reads them
    b_fmt: str
    split: str  #: how fp32 operands become parts (SPLITS); "none" otherwise
    out: str  #: format of accumulator and result
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        operands = self.a_fmt if self.a_fmt == self.b_fmt else f"{self.a_fmt} x {self.b_fmt}"
        parts = f", operands split by {self.split}" if PARTS[self.split] > 1 else ""
        return "\n".join([f"{self.path}, {operands} -> {self.out}{parts}", *(f"  {step}" for step in self.steps)])


#: input_precision -> (format of the parts, pairs of parts (a, b) in their order); the last pair follows clear_nan
SPLITS: dict[str, tuple[str, tuple[tuple[int, int], ...]]] = {
    "tf32": ("tf32", ((0, 0),)),
    "tf32x3": ("tf32", ((1, 0), (0, 1), (0, 0))),
    "bf16x3": ("bf16", ((1, 0), (0, 1), (0, 0))),
    "bf16x6": ("bf16", ((1, 1), (2, 0), (0, 2), (1, 0), (0, 1), (0, 0))),
    "ieee": ("fp32", ((0, 0),)),
}
PARTS = {"none": 1, "tf32": 1, "tf32x3": 2, "bf16x3": 2, "bf16x6": 3, "ieee": 1}  #: of each operand
FORMS = ("chained", "added")
OUTS = {"fp16": ("fp32", "fp16"), "fp8": ("fp32", "fp16"), INT8: ("int32",), "fp64": ("fp64",)}


def plan(
    m: int,
    n: int,
    k: int,
    a_fmt,
    b_fmt=None,
    *,
    form: str = "chained",
    num_warps: int = 4,
    input_precision: str = "tf32",
    max_num_imprecise_acc: int | None = None,
    out_dtype: str | None = None,
    machine: str = "h200",
    triton: str = "3.6",
) -> Plan:
    """The Plan of one tl.dot of an (m, k) and a (k, n) tile on Hopper.

    a_fmt, b_fmt: bf16, fp16, fp32, fp64, e4m3fn, e5m2 or "int8"; b_fmt None means as a_fmt; only fp8 mixes.
    form: "chained" for acc = tl.dot(a, b, acc), "added" for acc += tl.dot(a, b). The others as in tl.dot;
    input_precision concerns fp32 operands only. out_dtype: fp32 or fp16, None for what tl.dot takes by itself.
    triton: a version in VERSIONS. Operands must have been loaded in the format given: 8-bit loads that the kernel
    widens itself group k otherwise.
    Raises ValueError for what Triton refuses too, NotModelled for machines other than h100 and h200.
    """
    if machine not in ("h100", "h200"):
        raise NotModelled(f"machine={machine!r}: plans of tl.dot are known for sm_90 (h100, h200) only.")
    choose("form", form, dict.fromkeys(FORMS))
    a_name, b_name = _operand(a_fmt, "a_fmt"), _operand(a_fmt if b_fmt is None else b_fmt, "b_fmt")
    if a_name != b_name and not (a_name in FP8 and b_name in FP8):
        raise ValueError(f"a_fmt={a_name!r}, b_fmt={b_name!r}: tl.dot mixes fp8 formats only.")
    _check_shape(m, n, k, a_name, num_warps)
    split = choose("input_precision", input_precision, {name: name for name in SPLITS})
    split = split if a_name == "fp32" else "none"
    imprecise = _imprecise(max_num_imprecise_acc, k, a_name in FP8)
    out = _out(a_name, out_dtype)
    wide = m >= 64 and n >= choose("triton", triton, VERSIONS) and num_warps % 4 == 0
    path = _path(wide, a_name, split, imprecise)
    unit_fmt = SPLITS[split][0] if split != "none" else a_name
    unit = dot_row(machine, path, unit_fmt, b_name if a_name in FP8 else None, out).unit
    promoted = imprecise if path == "wgmma" and a_name in FP8 and out == "fp32" and imprecise <= k else 0
    steps = _steps(k, split, promoted, live=form == "chained" or imprecise == 0)
    return Plan(path, unit, unit_fmt, b_name if a_name in FP8 else unit_fmt, split, out, steps)


def _operand(fmt, argument: str) -> str:
    if fmt == INT8:
        return INT8
    row: Format = lookup(fmt, argument)
    known = {name: name for name in (*SIXTEEN, "fp32", "fp64", *FP8)}
    name = next((name for name in known if FORMATS[name] == row), str(fmt))
    return choose(argument, name, known | {INT8: INT8})


def _check_shape(m: int, n: int, k: int, name: str, num_warps: int) -> None:
    least = 32 if name in (*FP8, INT8) else 16
    for argument, value in (("m", m), ("n", n), ("k", k), ("num_warps", num_warps)):
        if type(value) is not int or value < 1 or value & (value - 1):
            raise ValueError(f"{argument}={value!r}: tl.dot takes powers of two.")
    if k < least:
        raise ValueError(f"k={k}: tl.dot needs k >= {least} for {name}.")


def _imprecise(given: int | None, k: int, fp8: bool) -> int:
    """max_num_imprecise_acc as tl.dot resolves it."""
    if given is None:
        return LIVE if fp8 else 0
    if type(given) is not int or given < 0:
        raise ValueError(f"max_num_imprecise_acc={given!r} must be an integer >= 0, or None.")
    if fp8 and given > k:
        raise ValueError(f"max_num_imprecise_acc={given}: tl.dot allows at most k, {k}.")
    return given


def _out(name: str, out_dtype: str | None) -> str:
    kind = "fp8" if name in FP8 else name
    allowed = OUTS.get(kind, ("fp32",))
    return allowed[0] if out_dtype is None else choose("out_dtype", out_dtype, {x: x for x in allowed})


def _path(wide: bool, name: str, split: str, imprecise: int) -> str:
    """wgmma where the tile is wide enough; fp8 that must be precise goes to mma.sync, widened to fp16."""
    if split == "ieee":
        return "ffma"
    return "wgmma" if wide and name != "fp64" and not (name in FP8 and imprecise < WGMMA_K) else "mma"


def _steps(k: int, split: str, promoted: int, live: bool) -> tuple[Step, ...]:
    """promoted: most fp8 products that may be summed before fp32 takes over; 0: no limit."""
    if split in SPLITS and len(SPLITS[split][1]) > 1:
        return _split_steps(k, SPLITS[split][1])
    target = ACC if live else SUM
    steps = []
    if promoted:
        group = -(-promoted // WGMMA_K) * WGMMA_K
        for start in range(0, k, group):
            first = start == 0 and not live  # a sum begins as its first part
            steps.append(Step("dot", target if first else PART, ZERO, start=start, stop=min(start + group, k)))
            steps += [] if first else [Step("add", target, PART)]
    else:
        steps.append(Step("dot", target, ACC if live else ZERO, stop=k))
    return (*steps, *([] if live else [Step("add", ACC, SUM)]))


def _split_steps(k: int, pairs: tuple[tuple[int, int], ...]) -> tuple[Step, ...]:
    """Small products first, all on one sum; the accumulator is added last."""
    steps = [Step("dot", PART, PART if i else ZERO, a, b, 0, k) for i, (a, b) in enumerate(pairs)]
    return (*steps[:-1], Step("clear_nan", PART), steps[-1], Step("add", ACC, PART))


__all__ = ["PARTS", "SPLITS", "Plan", "Step", "plan"]

"""Ways to fill a piece of a result: the plain loops for everything, the vectorised ones where they apply.

A Fill's `run(operands, out, start)` fills out, a piece of the flat result that begins at element `start`, from
the same pieces of the operands. The plain ones work through int64 buffers of `grain` elements.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from . import exact, formats
from .core import fast_loops, fast_plan, fast_prefix, loops, philox_lanes
from .formats import FORMATS, Format
from .policies import SATURATE, Stochastic
from .target import Target

FP32, FP64 = FORMATS["fp32"], FORMATS["fp64"]
FAST_OPERATIONS = {
    loops.add: fast_loops.add32,
    loops.sub: fast_loops.sub32,
    loops.mul: fast_loops.mul32,
    loops.div: fast_loops.div32,
    loops.sqrt: fast_loops.sqrt32,
    loops.fma: fast_loops.fma32,
}


class Fill(NamedTuple):
    """A way to fill, and how many elements to give it at a time."""

    run: Callable[[list[np.ndarray], np.ndarray, int], None]
    grain: int


BUFFER = 1 << 14  # elements in a work buffer: small enough for the cache
DIRECT = 1 << 18  # elements at a time where nothing is buffered


def bits_of(values: np.ndarray) -> np.ndarray:
    """The values as bits of binary64, int64."""
    return values.astype(np.float64).view(np.int64)


def encode_exact(target: Target) -> Fill:
    """Integers and Fractions to codes."""

    def run(operands, out, start):
        codes = np.empty(out.size, np.int64)
        words = target.words(start, out.size)
        target.refuse_lost(loops.encode_parts(*exact.parts(operands[0]), codes, target.fmt, target.policy, words))
        out[...] = codes

    return Fill(run, BUFFER)


def encode(target: Target, source: Format) -> Fill:
    """Floats of the format `source` to codes."""
    if (quick := _quick_encode(target, source)) is not None:
        return quick

    def run(operands, out, start):
        codes = np.empty(out.size, np.int64)
        words = target.words(start, out.size)
        lost = loops.encode(bits_of(operands[0]), codes, source, target.fmt, target.policy, words)
        target.refuse_lost(lost)
        out[...] = codes

    return Fill(run, BUFFER)


def decode(fmt: Format) -> Fill:
    """Codes to values of out's dtype, which must hold them."""
    if fmt.bits <= 16:
        table = _values(fmt)

        def look_up(operands, out, start):
            out[...] = table[operands[0]]

        return Fill(look_up, BUFFER)
    return Fill(lambda operands, out, start: _decode(operands[0], fmt, out), BUFFER)


def convert(target: Target, source: Format) -> Fill:
    """Codes of the format `source` to codes."""
    from_values = _quick_encode(target, FP32)
    if from_values is not None and source.bits <= 16 and formats.fits(source, FP32):
        table = _values(source)

        def through(operands, out, start):
            from_values.run([table[operands[0]]], out, start)

        return Fill(through, BUFFER)

    def run(operands, out, start):
        codes = np.empty(out.size, np.int64)
        words = target.words(start, out.size)
        bits = operands[0].astype(np.int64)
        target.refuse_lost(loops.convert(bits, codes, source, target.fmt, target.policy, words))
        out[...] = codes

    return Fill(run, BUFFER)


def rounded(target: Target, source: Format) -> Fill:
    """Floats of the format `source` to values."""
    if (quick := _quick_round(target, source)) is not None:
        return quick

    def loop(bits, codes, fmt, policy, words):
        return loops.encode(bits, codes, source, fmt, policy, words)

    return operation(target, loop, [])


def operation(target: Target, loop, sources: list[Format]) -> Fill:
    """Float operands of these formats to values, by a loop of `core/loops` or its vectorised twin."""
    plan = fast_plan.values(target.fmt, target.policy, 53)
    fast = FAST_OPERATIONS.get(loop)
    if fast is not None and plan is not None and all(formats.fits(source, FP32) for source in sources):

        def quick(operands, out, start):
            narrow = [np.ascontiguousarray(x, np.float32) for x in operands]
            _into(out, np.float32, lambda result: fast(*narrow, result, plan))

        return Fill(quick, BUFFER if FP32 not in sources else DIRECT)

    def run(operands, out, start):
        codes = np.empty(out.size, np.int64)
        words = target.words(start, out.size)
        target.refuse_lost(loop(*(bits_of(x) for x in operands), codes, target.fmt, target.policy, words))
        _decode(codes, target.fmt, out)

    return Fill(run, BUFFER)


def _quick_encode(target: Target, source: Format) -> Fill | None:
    """The vectorised cast from binary32, from binary64, or from a format that binary32 holds; None if there is none."""
    from_32 = formats.fits(source, FP32)
    if target.noise is not None:
        return _quick_stochastic(target, target.noise) if from_32 and target.noise.words is None else None
    fmt, policy = target.fmt, target.policy
    plan, kernel = fast_plan.codes(fmt, policy, 53), fast_loops.encode64
    if from_32 and fast_plan.is_prefix(fmt) and fmt != FP32 and policy.overflow != SATURATE:
        plan, kernel = fast_plan.codes(fmt, policy, 24), fast_prefix.encode
    elif from_32 and not fast_plan.is_prefix(fmt) and (narrow := fast_plan.codes(fmt, policy, 24)) is not None:
        plan, kernel = narrow, fast_loops.encode32
    if plan is None:
        return None
    dtype = np.float32 if from_32 else np.float64

    def run(operands, out, start):
        kernel(np.ascontiguousarray(operands[0], dtype), out, plan)

    return Fill(run, DIRECT if source in (FP32, FP64) else BUFFER)


def _quick_stochastic(target: Target, noise: Stochastic) -> Fill | None:
    plan = fast_plan.stochastic_prefix(target.fmt, target.policy)
    if plan is None:
        return None

    def run(operands, out, start):
        words = philox_lanes.words(noise.offset + start, out.size, noise)
        x = np.ascontiguousarray(operands[0], np.float32)
        fast_prefix.encode_stochastic(x, words, out, plan, noise.bits, words.dtype.itemsize * 8)

    return Fill(run, BUFFER)


def _quick_round(target: Target, source: Format) -> Fill | None:
    if target.noise is not None:
        return None
    wide = source == FP64
    fmt, policy = target.fmt, target.policy
    if not wide and fast_plan.is_prefix(fmt) and fmt != FP32 and policy.overflow != SATURATE:
        kernel, plan = fast_prefix.round_values, fast_plan.codes(fmt, policy, 24)
    else:
        kernel, plan = fast_loops.round64, fast_plan.values(fmt, policy, 53)
        narrow = None if wide else fast_plan.values(fmt, policy, 24)
        if narrow is not None and not fast_plan.is_prefix(fmt):
            kernel, plan = fast_loops.round32, narrow
    if plan is None:
        return None
    dtype = np.float64 if wide else np.float32

    def run(operands, out, start):
        x = np.ascontiguousarray(operands[0], dtype)
        _into(out, dtype, lambda result: kernel(x, result, plan))

    return Fill(run, DIRECT if source in (FP32, FP64) else BUFFER)


def _into(out: np.ndarray, dtype, fill: Callable[[np.ndarray], None]) -> None:
    """Let `fill` write out, or where out's dtype is another one, a buffer that is then cast (exactly)."""
    if out.dtype == dtype:
        fill(out)
    else:
        buffer = np.empty(out.size, dtype)
        fill(buffer)
        out[...] = buffer


def _decode(codes: np.ndarray, fmt: Format, out: np.ndarray) -> None:
    bits = codes.astype(np.int64)
    loops.decode(bits, bits, fmt)
    out[...] = bits.view(np.float64)


@lru_cache(maxsize=64)
def _values(fmt: Format) -> np.ndarray:
    """Values of all codes of a format of at most 16 bits: float32, or float64 where needed."""
    codes = np.arange(1 << (fmt.bits + fmt.pad))
    table = np.empty(codes.size, np.float32 if formats.fits(fmt, FP32) else np.float64)
    with np.errstate(invalid="ignore"):
        _decode(codes, fmt, table)
    return table

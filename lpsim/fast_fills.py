"""The vectorised ways to fill a piece of a result; None where there is none and `fills` takes the plain loops."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .core import fast_loops, fast_modes, fast_narrow, fast_operations, fast_plan, fast_prefix, loops, philox_lanes
from .formats import FORMATS, Format
from .formats import fits as _fits
from .policies import IEEE, RNE, SR_A, Stochastic
from .target import Target

FP32, FP64, BF16 = FORMATS["fp32"], FORMATS["fp64"], FORMATS["bf16"]


fits = lru_cache(maxsize=512)(_fits)  # compares Fractions: 20 us, in every call


class Kernels(NamedTuple):
    """The vectorised twins of an operation's plain loop."""

    any: Callable  #: any float32 operands
    grid: Callable | None = None  #: the same to bf16 or less, faster where they lie on its grid
    codes: Any = None  #: codes of bf16


#: by loop of core/loops
OPERATIONS = {
    loops.add: Kernels(fast_operations.add32, fast_narrow.add_any, fast_narrow.add),
    loops.sub: Kernels(fast_operations.sub32, fast_narrow.sub_any, fast_narrow.sub),
    loops.mul: Kernels(fast_operations.mul32, fast_narrow.mul_any, fast_narrow.mul),
    loops.div: Kernels(fast_operations.div32, fast_narrow.div_any, fast_narrow.div),
    loops.sqrt: Kernels(fast_operations.sqrt32, fast_narrow.sqrt_any, fast_narrow.sqrt),
    loops.fma: Kernels(fast_operations.fma32, fast_narrow.fma_any),
}


class Fill(NamedTuple):
    """A way to fill, and how many elements to give it at a time."""

    run: Callable[[list[np.ndarray], np.ndarray, int], None]
    grain: int


BUFFER = 1 << 14  # elements in a work buffer: small enough for the cache
DIRECT = 1 << 19  # elements at a time where nothing is buffered


def grain(source: Format) -> int:
    """Elements at a time of operands that loops over binary32 or binary64 read as they are, or cast first."""
    return DIRECT if source in (FP32, FP64) else BUFFER


def into(out: np.ndarray, dtype, fill: Callable[[np.ndarray], None]) -> None:
    """Let `fill` write out, or where out's dtype is another one, buffers that are then cast (exactly)."""
    if out.dtype == dtype:
        fill(out)
    else:
        buffer = np.empty(out.size, dtype)
        fill(buffer)
        out[...] = buffer


def encode(target: Target, source: Format) -> Fill | None:
    """The cast from binary32, from binary64, or from a format that binary32 holds."""
    fmt, policy = target.fmt, target.policy
    from_32 = fits(source, FP32)
    if target.noise is not None:
        return _stochastic(target, target.noise, source, from_32)
    kernel, plan = _pick(fmt, policy, from_32)
    if plan is None:
        return None
    return _plain_cast(kernel, plan, source, from_32)


def _pick(fmt, policy, from_32: bool):
    """The kernel for codes and its plan; the plan is None if there is none."""
    if from_32 and (plan := fast_plan.prefix(fmt, policy)) is not None:
        shortest = policy.rounding == RNE and policy.overflow == IEEE
        return fast_prefix.encode_nearest if shortest else fast_prefix.encode_mode, plan
    if policy.rounding != RNE:
        return fast_modes.encode_directed, fast_plan.grid(fmt, policy, 53)
    if from_32 and fmt.pad == 0 and (plan := fast_plan.grid(fmt, policy, 24)) is not None:
        return fast_loops.encode32, plan
    return fast_loops.encode64, fast_plan.grid(fmt, policy, 53)


def _plain_cast(kernel, plan, source: Format, from_32: bool) -> Fill:
    dtype = np.float32 if from_32 else np.float64

    def run(operands, out, start):
        kernel(np.ascontiguousarray(operands[0], dtype), out, plan)

    return Fill(run, grain(source))


def _stochastic(target: Target, noise: Stochastic, source: Format, from_32: bool) -> Fill | None:
    """The cast to codes with random words, keyed or given."""
    dtype = np.float32 if from_32 else np.float64
    plan = fast_plan.prefix(target.fmt, target.policy)
    if plan is not None and from_32 and noise.words is None:
        return _keyed(fast_prefix.encode_keyed, plan, noise, source, dtype)
    plan = fast_plan.grid(target.fmt, target.policy, 53)
    if plan is None:
        return None
    if noise.words is None:
        return _keyed(fast_modes.encode_keyed, plan, noise, source, dtype)

    def run(operands, out, start):
        x = np.ascontiguousarray(operands[0], dtype)
        fast_modes.encode_stochastic(x, target.words(start, out.size), out, plan, noise.bits, noise.bits)

    return Fill(run, grain(source))


def _keyed(kernel, plan, noise: Stochastic, source: Format, dtype) -> Fill:
    def run(operands, out, start):
        x = np.ascontiguousarray(operands[0], dtype)
        kernel(x, philox_lanes.words(noise.offset + start, noise), out, plan, noise.bits)

    return Fill(run, grain(source))


def rounded(target: Target, source: Format) -> Fill | None:
    """Rounding to values without codes on the way."""
    fmt, policy, wide = target.fmt, target.policy, source == FP64
    plan = None if wide else fast_plan.prefix(fmt, policy)
    if plan is not None and target.noise is not None and target.noise.words is None:
        return _values_with_words(plan, target.noise, source)
    if policy.rounding >= SR_A:
        return None
    if plan is not None:
        shortest = policy.rounding == RNE and policy.overflow == IEEE
        kernel, dtype = fast_prefix.round_nearest if shortest else fast_prefix.round_mode, np.float32
    elif policy.rounding != RNE:
        return None
    elif not wide and (plan := fast_plan.grid(fmt, policy, 24)) is not None:
        kernel, dtype = fast_loops.round32, np.float32
    elif (plan := fast_plan.grid(fmt, policy, 53)) is not None:
        kernel, dtype = fast_loops.round64, np.float64 if wide else np.float32
    else:
        return None

    def run(operands, out, start):
        x = np.ascontiguousarray(operands[0], dtype)
        into(out, dtype, lambda values: kernel(x, values, plan))

    return Fill(run, grain(source))


def _values_with_words(plan, noise: Stochastic, source: Format) -> Fill:
    def run(operands, out, start):
        words = philox_lanes.words(noise.offset + start, noise)
        x = np.ascontiguousarray(operands[0], np.float32)
        into(out, np.float32, lambda values: fast_prefix.round_keyed(x, words, values, plan, noise.bits))

    return Fill(run, grain(source))


def operation(target: Target, loop, sources: list[Format]) -> Fill | None:
    """Operands of formats that binary32 holds to values, nearest-even."""
    fmt, policy = target.fmt, target.policy
    wide = fast_plan.grid(fmt, policy, 53)
    if loop not in OPERATIONS or wide is None or policy.rounding != RNE:
        return None
    if not all(fits(source, FP32) for source in sources):
        return None
    kernels = OPERATIONS[loop]
    narrow = fast_plan.prefix(fmt, policy) if policy.overflow == IEEE and fmt.precision <= BF16.precision else None
    if narrow is None or kernels.grid is None:
        return _on_float32(kernels.any, (wide,), sources)
    if fmt == BF16 and set(sources) == {BF16} and kernels.codes is not None:
        return _on_bf16(kernels, narrow, wide)
    return _on_float32(kernels.grid, (narrow, wide), sources)


def _on_float32(kernel, plans: tuple, sources: list[Format]) -> Fill:
    def run(operands, out, start):
        x = [np.ascontiguousarray(x, np.float32) for x in operands]
        into(out, np.float32, lambda values: kernel(*x, values, *plans))

    return Fill(run, DIRECT if FP32 in sources else BUFFER)


def _on_bf16(kernels: Kernels, narrow, wide) -> Fill:
    """bfloat16 arrays, as codes where the result is one too (out= may ask for another dtype)."""
    through_values = _on_float32(kernels.grid, (narrow, wide), [BF16])

    def run(operands, out, start):
        if out.dtype.name != "bfloat16":
            through_values.run(operands, out, start)
        else:
            codes = [np.ascontiguousarray(x).view(np.uint16) for x in operands]
            kernels.codes(*codes, out.view(np.uint16), narrow)

    return Fill(run, DIRECT)

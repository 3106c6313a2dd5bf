"""Elementwise functions on arrays: encode, decode, convert, round, and the operations with one rounding.

Shapes broadcast as in NumPy; any layout is taken; `out=` is filled and returned. Work goes through buffers
of a fixed size, so memory beyond the output is constant, and is shared by the threads of `lp.set_threads`.

The keyword arguments of all of them (`policies.Rules`), with their defaults:
rounding="rne"       rne rna rtz rtp rtn rto, or lp.stochastic(...)
overflow="ieee"      ieee saturate satfinite
nan="canonical"      canonical propagate nvidia
subnormals="keep"    keep flush_in flush_out flush
"""

from collections.abc import Callable
from typing import Unpack

import numpy as np

from . import border, exact
from .core import loops
from .core.codec import FP64
from .formats import Format, fmt_name, lookup
from .policies import Rules, Stochastic, policy
from .threads import parallel_for

GRAIN = 1 << 14  # elements in a work buffer, and in a thread's turn: small enough for the cache
NO_WORDS = np.empty(0, np.int64)


def encode(x, fmt, *, out=None, **rules: Unpack[Rules]):
    """Codes of fmt for x: one rounding from any source.

    x: floats (NumPy, ml_dtypes, CPU torch), int8..int64, uint64, Python ints or Fractions, of any shape.
    Result: uint8, uint16 or uint32 of x's shape (tf32: the 19-bit code << 13).
    Raises TypeError for other inputs; ValueError for unknown names, and for an answer that fmt has no code
    for (NaN, or overflow to infinity, where there is neither).
    """
    target = _Target(fmt, rules)
    integers = border.exact_numbers(x, "x")
    if integers is not None:
        kernel, given = target.bind(loops.encode_parts), integers
        load = exact.parts
    else:
        given = border.values(x, "x")
        source = border.source_format(given.array)
        kernel, load = target.bind(loops.encode, source), _bits

    def piece(operands, start, stop):
        codes = np.empty(stop - start, np.int64)
        kernel(load(operands[0]), codes, start)
        return codes

    return _map(piece, (given,), border.code_dtype(target.fmt), out, target)


def decode(codes, fmt, *, out=None):
    """Values of codes, exact: float32, or float64 for formats that float32 does not hold.

    codes: uint8, uint16 or uint32 as `encode` gives them, a Python int, or an array of fmt's own dtype.
    Raises TypeError for other dtypes, ValueError for codes out of range.
    """
    fmt = _code_format(fmt, "fmt")
    given = border.codes(codes, fmt)
    return _map(lambda operands, *_: _decoded(operands[0], fmt), (given,), border.value_dtype(fmt), out)


def convert(codes, source, fmt, *, out=None, **rules: Unpack[Rules]):
    """Codes of `source` to codes of `fmt`, one rounding. Inputs and errors as in `decode` and `encode`."""
    source, target = _code_format(source, "source"), _Target(fmt, rules)
    given = border.codes(codes, source)
    kernel = target.bind(loops.convert, source)

    def piece(operands, start, stop):
        result = np.empty(stop - start, np.int64)
        kernel((operands[0].astype(np.int64),), result, start)
        return result

    return _map(piece, (given,), border.code_dtype(target.fmt), out, target)


def round(x, fmt, *, out=None, **rules: Unpack[Rules]):
    """x rounded to the grid of fmt, as values; dtype and shape of x are kept.

    x: floats of any shape. Raises ValueError if x's dtype cannot hold fmt's grid; the rest as in `encode`.
    """
    target = _Target(fmt, rules)
    given = border.values(x, "x")
    if not border.holds(given.array.dtype, target.fmt):
        raise ValueError(
            f"x has dtype {given.array.dtype}, which cannot hold the values of {fmt_name(target.fmt)}: "
            "pass float32 or float64, or use lp.encode."
        )
    kernel = target.bind(loops.encode, border.source_format(given.array))
    return _values(kernel, (given,), given.array.dtype, out, target)


def add(a, b, fmt, *, out=None, **rules: Unpack[Rules]):
    """a + b, operands taken exactly, rounded once to fmt. Float arrays that broadcast; values come back."""
    return _operation(loops.add, {"a": a, "b": b}, fmt, rules, out)


def sub(a, b, fmt, *, out=None, **rules: Unpack[Rules]):
    """a - b, operands taken exactly, rounded once to fmt. Float arrays that broadcast; values come back."""
    return _operation(loops.sub, {"a": a, "b": b}, fmt, rules, out)


def mul(a, b, fmt, *, out=None, **rules: Unpack[Rules]):
    """a * b, operands taken exactly, rounded once to fmt. Float arrays that broadcast; values come back."""
    return _operation(loops.mul, {"a": a, "b": b}, fmt, rules, out)


def div(a, b, fmt, *, out=None, **rules: Unpack[Rules]):
    """a / b, operands taken exactly, rounded once to fmt; x / 0 is infinite, 0 / 0 is NaN."""
    return _operation(loops.div, {"a": a, "b": b}, fmt, rules, out)


def sqrt(a, fmt, *, out=None, **rules: Unpack[Rules]):
    """The square root of a, taken exactly, rounded once to fmt; NaN below zero."""
    return _operation(loops.sqrt, {"a": a}, fmt, rules, out)


def fma(a, b, c, fmt, *, out=None, **rules: Unpack[Rules]):
    """a * b + c, the product exact, rounded once to fmt. (fma in fp32 and then narrowed is another function.)"""
    return _operation(loops.fma, {"a": a, "b": b, "c": c}, fmt, rules, out)


class _Target:
    """The format and the policy of a call, and the random words of its elements."""

    def __init__(self, fmt, rules: Rules):
        self.fmt = _code_format(fmt, "fmt")
        self.policy = policy(**rules)
        rounding = rules.get("rounding")
        self.noise = rounding if isinstance(rounding, Stochastic) else None

    def bind(self, loop, *formats: Format) -> Callable:
        """kernel(operands, codes, start): the loop with formats, policy and the words of elements start.. on."""

        def kernel(operands, codes, start):
            words = self._words(start, codes.size)
            if loop(*operands, codes, *formats, self.fmt, self.policy, words):
                raise ValueError(
                    f"{fmt_name(self.fmt)} has neither NaN nor infinity to answer with: pass overflow='satfinite' "
                    "(and nan='nvidia' if NaN may become the largest value)."
                )

        return kernel

    def check_words(self, shape: tuple) -> None:
        if self.noise is not None and self.noise.words is not None and self.noise.words.shape != shape:
            raise ValueError(f"words has shape {self.noise.words.shape}, but the result has shape {shape}.")

    def _words(self, start: int, count: int) -> np.ndarray:
        noise = self.noise
        if noise is None:
            return NO_WORDS
        if noise.words is not None:
            return np.ascontiguousarray(noise.words.reshape(-1)[start : start + count])
        words = np.empty(count, np.int64)
        seed = np.uint64(noise.seed)
        loops.fill_words(words, noise.offset + start, seed, noise.stream, noise.step, noise.bits)
        return words


def _code_format(fmt, argument: str) -> Format:
    fmt = lookup(fmt, argument)
    if fmt == FP64:
        raise ValueError(f"{argument}='fp64' is a source of values only: float64 arrays are their own values.")
    return fmt


def _bits(values: np.ndarray) -> tuple[np.ndarray]:
    """One-tuple: the values as bits of binary64."""
    with np.errstate(invalid="ignore"):  # widening a signalling NaN
        return (values.astype(np.float64).view(np.int64),)


def _decoded(codes: np.ndarray, fmt: Format) -> np.ndarray:
    bits = codes.astype(np.int64)
    loops.decode(bits, bits, fmt)
    return bits.view(np.float64)


def _operation(loop, operands: dict, fmt, rules: Rules, out):
    target = _Target(fmt, rules)
    given = tuple(border.values(x, name) for name, x in operands.items())
    dtype = border.value_dtype(target.fmt, *(x.array for x in given))
    return _values(target.bind(loop), given, dtype, out, target)


def _values(kernel, given: tuple, dtype: np.dtype, out, target: _Target):
    """Run a kernel that makes codes, and give back their values."""

    def piece(operands, start, stop):
        codes = np.empty(stop - start, np.int64)
        kernel(tuple(_bits(x)[0] for x in operands), codes, start)
        return _decoded(codes, target.fmt)

    return _map(piece, given, dtype, out, target)


def _map(piece: Callable, given: tuple, dtype: np.dtype, out, target: _Target | None = None):
    """Fill the result piece by piece: piece(flat operands[start:stop], start, stop) gives that part of it."""
    try:
        shape = np.broadcast_shapes(*(x.array.shape for x in given))
    except ValueError:
        shapes = " and ".join(str(x.array.shape) for x in given)
        raise ValueError(f"operands of shapes {shapes} do not broadcast.") from None
    if target is not None:
        target.check_words(shape)
    result = border.output(out, shape, dtype)
    flat_result = result.reshape(-1) if result.flags.c_contiguous else np.empty(result.size, dtype)
    flat = [border.flat_broadcast(x.array, shape) for x in given]

    def body(start: int, stop: int) -> None:
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinity on their way to a narrower dtype
            flat_result[start:stop] = piece([x[start:stop] for x in flat], start, stop)

    parallel_for(body, result.size, GRAIN)
    if not result.flags.c_contiguous:
        result[...] = flat_result.reshape(shape)
    if out is not None:
        return out
    scalar = result[()]
    return border.to_torch(result) if any(x.torch for x in given) else scalar

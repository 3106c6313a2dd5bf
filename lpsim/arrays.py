"""Elementwise functions on arrays: encode, decode, convert, round, and the operations with one rounding.

Shapes broadcast as in NumPy; any layout is taken; `out=` is filled and returned. Work goes through buffers
of a fixed size, so memory beyond the output is constant, and is shared by the threads of `lp.set_threads`.

The keyword arguments of all of them (`policies.Rules`), with their defaults:
rounding="rne"       rne rna rtz rtp rtn rto, or lp.stochastic(...)
overflow="ieee"      ieee saturate satfinite
nan="canonical"      canonical propagate nvidia
subnormals="keep"    keep flush_in flush_out flush
"""

from typing import Unpack

import numpy as np

from . import border, fills
from .core import loops
from .fills import Fill
from .formats import fmt_name
from .policies import Rules
from .target import Target, code_format
from .threads import parallel_for


def encode(x, fmt, *, out=None, **rules: Unpack[Rules]):
    """Codes of fmt for x: one rounding from any source.

    x: floats (NumPy, ml_dtypes, CPU torch), int8..int64, uint64, Python ints or Fractions, of any shape.
    Result: uint8, uint16 or uint32 of x's shape (tf32: the 19-bit code << 13).
    Raises TypeError for other inputs; ValueError for unknown names, and for an answer that fmt has no code
    for (NaN, or overflow to infinity, where there is neither).
    """
    target = Target(fmt, rules)
    exact = border.exact_numbers(x, "x")
    if exact is not None:
        return _map(fills.encode_exact(target), (exact,), border.code_dtype(target.fmt), out, target)
    given = border.values(x, "x")
    fill = fills.encode(target, border.source_format(given.array))
    return _map(fill, (given,), border.code_dtype(target.fmt), out, target)


def decode(codes, fmt, *, out=None):
    """Values of codes, exact: float32, or float64 for formats that float32 does not hold.

    codes: uint8, uint16 or uint32 as `encode` gives them, a Python int, or an array of fmt's own dtype.
    Raises TypeError for other dtypes, ValueError for codes out of range.
    """
    row = code_format(fmt)
    given = border.codes(codes, row)
    return _map(fills.decode(row), (given,), border.value_dtype(row), out)


def convert(codes, source, fmt, *, out=None, **rules: Unpack[Rules]):
    """Codes of `source` to codes of `fmt`, one rounding. Inputs and errors as in `decode` and `encode`."""
    row, target = code_format(source, "source"), Target(fmt, rules)
    given = border.codes(codes, row)
    return _map(fills.convert(target, row), (given,), border.code_dtype(target.fmt), out, target)


def round(x, fmt, *, out=None, **rules: Unpack[Rules]):
    """x rounded to the grid of fmt, as values; dtype and shape of x are kept.

    x: floats of any shape. Raises ValueError if x's dtype cannot hold fmt's grid; the rest as in `encode`.
    """
    target = Target(fmt, rules)
    given = border.values(x, "x")
    if not border.holds(given.array.dtype, target.fmt):
        raise ValueError(
            f"x has dtype {given.array.dtype}, which cannot hold the values of {fmt_name(target.fmt)}: "
            "pass float32 or float64, or use lp.encode."
        )
    fill = fills.rounded(target, border.source_format(given.array))
    return _map(fill, (given,), given.array.dtype, out, target)


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


def _operation(loop, operands: dict, fmt, rules: Rules, out):
    target = Target(fmt, rules)
    given = tuple(border.values(x, name) for name, x in operands.items())
    dtype = border.value_dtype(target.fmt, *(x.array for x in given))
    fill = fills.operation(target, loop, [border.source_format(x.array) for x in given])
    return _map(fill, given, dtype, out, target)


def _map(fill: Fill, given: tuple, dtype: np.dtype, out, target: Target | None = None):
    """Fill the result piece by piece, with all threads."""
    try:
        shape = np.broadcast_shapes(*(x.array.shape for x in given))
    except ValueError:
        shapes = " and ".join(str(x.array.shape) for x in given)
        raise ValueError(f"operands of shapes {shapes} do not broadcast.") from None
    if target is not None:
        target.check_words(shape)
    result = border.output(out, shape, dtype)
    flat_result = result.reshape(-1) if result.flags.c_contiguous else np.empty(result.size, dtype)
    flat = [border.flat_broadcast(_apart(x.array, out), shape) for x in given]

    def body(start: int, stop: int) -> None:
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinity on their way to another dtype
            fill.run([x[start:stop] for x in flat], flat_result[start:stop], start)

    parallel_for(body, result.size, fill.grain)
    if not result.flags.c_contiguous:
        result[...] = flat_result.reshape(shape)
    if out is not None:
        return out
    return border.to_torch(result) if any(x.torch for x in given) else result[()]


def _apart(x: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    """x, copied if writing out could change elements of it that are read later."""
    if out is None or not np.may_share_memory(x, out):
        return x
    same = x.__array_interface__["data"] == out.__array_interface__["data"] and x.strides == out.strides
    return x if same and x.shape == out.shape and x.itemsize == out.itemsize else x.copy()

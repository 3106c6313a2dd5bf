"""Comparisons, minimum and maximum explained: no rounding, but rules for NaN, for zeros, and for which operand wins."""

from dataclasses import dataclass

import numpy as np

from .. import border, spell
from ..core import compare as core
from ..formats import Format, fmt_name
from ..target import code_format
from .table import Table

RELATIONS = {-1: "a < b", 0: "a = b", 1: "a > b", 2: "unordered: NaN is neither less, equal nor greater"}


@dataclass(frozen=True)
class Choice(Table):
    """The result of a minimum, a maximum (its code), or a comparison (-1, 0, 1, or 2 where NaN is in it)."""

    result: int


def compare(a: int, b: int, fmt) -> Choice:
    """How two codes compare. Raises as lp.less does."""
    row, a, b = _operands(a, b, fmt)
    found = int(core.order(a, b, row))
    text = RELATIONS[found]
    if found == 0 and a != b:
        text += ": +0 and -0 are equal"
    rows = (*_shown(a, b, row), ("order", text))
    return Choice(f"{a:#x} against {b:#x} in {fmt_name(row)}", rows, found)


def minimum(a: int, b: int, fmt) -> Choice:
    """lp.minimum of two codes."""
    return _extreme("minimum", core.minimum, a, b, fmt)


def maximum(a: int, b: int, fmt) -> Choice:
    """lp.maximum of two codes."""
    return _extreme("maximum", core.maximum, a, b, fmt)


def minimum_number(a: int, b: int, fmt) -> Choice:
    """lp.minimum_number of two codes."""
    return _extreme("minimum_number", core.minimum_number, a, b, fmt)


def maximum_number(a: int, b: int, fmt) -> Choice:
    """lp.maximum_number of two codes."""
    return _extreme("maximum_number", core.maximum_number, a, b, fmt)


def _extreme(name: str, function, a: int, b: int, fmt) -> Choice:
    row, a, b = _operands(a, b, fmt)
    found = int(function(a, b, row))
    rows = (*_shown(a, b, row), ("rule", _rule(name, a, b, found, row)), ("result", spell.code(found, row)))
    return Choice(f"{name}({a:#x}, {b:#x}) in {fmt_name(row)}", rows, found)


def _rule(name: str, a: int, b: int, found: int, row: Format) -> str:
    nan_a, nan_b = core.is_nan(a, row), core.is_nan(b, row)
    if nan_a and nan_b:
        return "both are NaN: the first, quiet, without payload"
    if nan_a or nan_b:
        nan = "a" if nan_a else "b"
        number = name.endswith("number")
        return f"{nan} is NaN: {'the other, which is a number' if number else 'NaN, quiet, without payload'}"
    if a == b:
        return "the operands are equal"
    which = "smaller" if name.startswith("minimum") else "larger"
    zeros = "; -0 lies below +0" if core.order(a, b, row) == 0 else ""
    return f"{'a' if found == a else 'b'} is the {which}{zeros}"


def _operands(a: int, b: int, fmt) -> tuple[Format, int, int]:
    row = code_format(fmt)
    codes = [border.codes(code, row, name).array for name, code in (("a", a), ("b", b))]
    if any(np.ndim(code) for code in codes):
        raise TypeError("two codes are compared at a time, not arrays.")
    return row, int(codes[0]), int(codes[1])


def _shown(a: int, b: int, row: Format) -> tuple:
    return (("a", spell.code(a, row)), ("b", spell.code(b, row)))

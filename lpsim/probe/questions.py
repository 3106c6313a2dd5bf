"""Questions to an unknown dot: a few products and an accumulator, as codes; the answer is a code.

A dot unit is probed through `dot(a, b, c)`: integer codes a, b (T, K) and c (T,) to codes (T,), T independent dots.
A question names its terms by value; this module finds the operands and the codes.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .. import arrays, formats
from ..formats import FORMATS, Format

Codes = tuple[np.ndarray, np.ndarray, np.ndarray]
Dot = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


class Numbers(NamedTuple):
    """What operands and accumulators can express: exponents of powers of two."""

    fmt: Format  #: of the operands
    accumulator: Format  #: fp32 or fp16, of c and of the result
    least: int  #: exponent of the smallest normal operand
    most: int  #: of the largest power of two among the operands
    c_least: int  #: the same of the accumulator
    c_most: int
    c_last: int  #: exponent of the accumulator's smallest subnormal

    @property
    def top(self) -> int:
        """A large exponent that products and accumulators have, with room for sums of many below infinity."""
        return min(2 * self.most, self.c_most - 8)


def numbers(fmt: Format, accumulator: str) -> Numbers:
    """ValueError for operands without a sign or a zero: nothing cancels, or nothing can be left out."""
    if not (fmt.signed and fmt.zero) or fmt.precision > 11:
        raise ValueError(f"{formats.fmt_name(fmt)} cannot be probed: a sign, a zero and at most 11 significant bits.")
    row = FORMATS[accumulator]
    return Numbers(fmt, row, *_exponents(fmt), *_exponents(row), formats.min_exp(row))


def _exponents(fmt: Format) -> tuple[int, int]:
    largest = formats.max_value(fmt)
    return formats.min_exp(fmt) + fmt.precision - 1, largest.numerator.bit_length() - largest.denominator.bit_length()


class Question(NamedTuple):
    """One dot: the accumulator's value, and factors of its products, in the lanes of one block."""

    c: float
    products: tuple[tuple[float, float], ...]


def power(exponent: int, n: Numbers, sign: float = 1.0) -> tuple[float, float] | None:
    """Normal factors of sign * 2^exponent; None if there are none."""
    if not 2 * n.least <= exponent <= 2 * n.most:
        return None
    first = min(max(exponent // 2, n.least), n.most)
    if not n.least <= exponent - first <= n.most:
        first = exponent - n.least if exponent - first < n.least else exponent - n.most
    return sign * 2.0**first, 2.0 ** (exponent - first)


def in_accumulator(value: float, n: Numbers) -> bool:
    """True if c can be the value."""
    if value == 0:
        return True
    exponent = math.frexp(value)[1] - 1
    quantum = max(exponent - n.accumulator.precision + 1, n.c_last)
    return exponent <= n.c_most and math.ldexp(value, -quantum).is_integer()


def exponent_of(question: Question) -> float:
    """The largest exponent among the terms; -inf if all are zero. Of normal operands."""
    exponents = [sum(math.frexp(x)[1] - 1 for x in pair) for pair in question.products]
    return max([*exponents, math.frexp(question.c)[1] - 1 if question.c else -math.inf])


class Asker:
    """A dot with its formats, the k that a block multiplies and the length of a dot; counts what is asked."""

    def __init__(self, dot: Dot, n: Numbers, step: int, late: bool = False):
        """late: the accumulator takes no part in blocks, so questions do without it."""
        self.dot, self.numbers, self.step, self.late, self.asked = dot, n, step, late, 0

    def codes(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Codes:
        """Values to codes; they must be on the grid."""
        fmt, row = self.numbers.fmt, self.numbers.accumulator
        return np.asarray(arrays.encode(a, fmt)), np.asarray(arrays.encode(b, fmt)), np.asarray(arrays.encode(c, row))

    def products(self, questions: Sequence[Question]) -> "Operands":
        """The codes of questions, products side by side."""
        counts = np.array([len(question.products) for question in questions], np.int64)
        factors = np.zeros((2, len(questions), max(1, int(counts.max()))))
        for row, question in enumerate(questions):
            if question.products:
                factors[:, row, : counts[row]] = np.transpose(question.products)
        a, b, c = self.codes(factors[0], factors[1], np.array([question.c for question in questions], np.float64))
        return Operands(a, b, c, counts)

    def ask(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        """The codes that the dot answers, int64."""
        self.asked += len(a)
        found = np.asarray(self.dot(a, b, c))
        if found.shape != (len(a),) or found.dtype.kind not in "ui":
            raise TypeError(f"dot must return codes of shape {(len(a),)}, got {found.dtype} {found.shape}.")
        return found.astype(np.int64)


class Operands(NamedTuple):
    """Codes of questions: products (T, W) of which `counts` are given, accumulators (T,)."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    counts: np.ndarray

    def placed(self, places: Sequence[int], length: int) -> Codes:
        """a, b (T, length) with the products at these k, and c."""
        a, b = (np.zeros((len(self.c), length), self.a.dtype) for _ in range(2))
        where = list(places[: self.a.shape[1]])
        a[:, where], b[:, where] = self.a, self.b
        return a, b, self.c

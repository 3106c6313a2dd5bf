"""What a few direct questions say about a dot, whether or not it is a DotUnit: if it is none, a hint why."""

import math
from typing import NamedTuple

import numpy as np

from ..formats import Format, container_bits, has_nan, lookup, magnitude_bits, max_finite
from .questions import Asker, Dot, Question, in_accumulator, numbers, power


class Signs(NamedTuple):
    """Answers in words and codes."""

    accumulator: str  #: "chained": cut beside large products; "uncut": added after them, or exactly
    subnormal_operands: str  #: "kept" or "lost"
    subnormal_accumulators: str
    subnormal_results: str
    nan: int | None  #: code of Inf - Inf, or of NaN times 1; None if the format has neither


def find_signs(dot: Dot, fmt, *, accumulator: str = "fp32", step: int = 1) -> Signs:
    """The signs of a dot; arguments and errors as in `find_unit`.

    The accumulator is a small one beside products +M and -M at k = 0 and 1, at all depths that the formats have. A
    chained unit loses it where its fraction ends, if that is within reach; one that adds it late never does.
    Subnormals may also be lost because zero has too large an exponent (`DotUnit.e_zero`).
    """
    asker = Asker(dot, numbers(lookup(fmt), accumulator), step)
    n = asker.numbers
    largest, smallest = power(n.top, n), power(n.top, n, -1.0)
    assert largest is not None, "the top is a product"
    assert smallest is not None, "and so is its negative"
    depths = [d for d in range(1, 100) if n.top - d >= n.c_last]
    beside = _values(asker, [Question(2.0 ** (n.top - d), (largest, smallest)) for d in depths])
    kept = beside == [2.0 ** (n.top - d) for d in depths]
    low = n.c_least - 2
    operand = _values(asker, [Question(0.0, ((2.0 ** (n.least - 1), 2.0**n.most),))])[0]
    stored = _values(asker, [Question(2.0**low, ())])[0]
    product = power(low, n)
    made = _values(asker, [Question(0.0, (product,))])[0] if product else None
    return Signs(
        "uncut" if kept else "chained",
        _kept(operand == 2.0 ** (n.least - 1 + n.most)),
        _kept(stored == 2.0**low),
        _kept(made == 2.0**low) if made is not None else "out of reach",
        _nan(asker),
    )


def _kept(true: bool) -> str:
    return "kept" if true else "lost"


def _values(asker: Asker, questions: list[Question]) -> list[float]:
    """Results as numbers, products at k = 0, 1, ..; a question whose accumulator cannot be is answered by NaN."""
    possible = [q for q in questions if in_accumulator(q.c, asker.numbers)]
    operands = asker.products(possible)
    length = math.ceil(2 / asker.step) * asker.step
    codes = asker.ask(*operands.placed(range(2), length))
    wide = np.float32 if asker.numbers.accumulator.bits == 32 else np.float16
    found = codes.astype(f"u{wide().itemsize}").view(wide).astype(np.float64)
    answers = dict(zip(possible, found.tolist(), strict=True))
    return [answers.get(q, math.nan) for q in questions]


def _nan(asker: Asker) -> int | None:
    """Inf * 1 - Inf * 1, or NaN * 1."""
    fmt: Format = asker.numbers.fmt
    one = int(asker.codes(np.ones(1), np.ones(1), np.zeros(1))[0][0])
    if fmt.infinity:
        infinity = (max_finite(fmt) + 1) << fmt.pad
        pair = [infinity, infinity | 1 << (magnitude_bits(fmt) + fmt.pad)]
    elif has_nan(fmt):
        pair = [((max_finite(fmt) + 1) if fmt.nans else 1 << magnitude_bits(fmt)) << fmt.pad, 0]
    else:
        return None
    length = math.ceil(2 / asker.step) * asker.step
    a, b = (np.zeros((1, length), f"u{container_bits(fmt) // 8}") for _ in range(2))
    a[0, :2], b[0, :2] = pair, [one, one if pair[1] else 0]
    return int(asker.ask(a, b, np.zeros(1, f"u{container_bits(asker.numbers.accumulator) // 8}"))[0])

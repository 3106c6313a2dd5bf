"""Questions that tell dot units apart, each family after one thing that can be seen in a result.

A term is (who, exponent, significand): who is "p" for a product or "c" for the accumulator. Three arrangements show
the lowest bit that is kept of a term far below the largest one:
  cancelled   +x - x + low          the result is what alignment left of low
  borrowed    -x + low              truncation of the sum gives the next number towards zero if low is there
  decided     x + half + low        half an ulp of x is a tie, which low decides for rounding to nearest
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .questions import Numbers, Question, exponent_of, in_accumulator, power

DEPTH = 60  #: binades between the largest term and the lowest that is asked for
RANDOM = 500  #: random questions of a family


class Term(NamedTuple):
    """significand * 2^exponent, held by a product or by the accumulator."""

    who: str
    exponent: int
    significand: float = 1.0


def question(terms: Iterable[Term], n: Numbers, lanes: int, preceded: bool) -> Question | None:
    """The question, or None if a term cannot be expressed.

    preceded: blocks of zeros come first, which cut an accumulator below 1 in a way that is not known yet.
    """
    c, products = 0.0, []
    for who, exponent, significand in terms:
        if who == "c":
            c += significand * 2.0**exponent
            continue
        factors = power(exponent, n)
        if factors is None:
            return None
        products.append((factors[0] * significand, factors[1]))
    if len(products) > lanes or not in_accumulator(c, n) or (preceded and 0 < abs(c) < 1):
        return None
    return Question(c, tuple(products))


def shown(top: int, low: int) -> Iterator[list[Term]]:
    """2^low beside 2^top: cancelled, and borrowed."""
    for who in "pc":
        yield [Term("p", top), Term("p", top, -1.0), Term(who, low)]
        yield [Term("p", top), Term("p", top, -1.0), Term(who, low, 1.75)]
        for other in "pc":
            yield [Term(who, top, -1.0), Term(other, low)]
            yield [Term(who, top), Term(other, low, -1.0)]


def decided(top: int, low: int, half: int) -> Iterator[list[Term]]:
    """2^low decides a tie between 2^top and the number after it, 2^(half + 1) further."""
    for who in "pc":
        for sign in (1.0, -1.0):
            yield [Term(who, top), Term("p", half), Term("p", low, sign)]
            yield [Term("p", top), Term(who, half), Term("p" if who == "c" else "c", low, sign)]
            yield [Term("p", top), Term("c", half), Term("c", low, sign)]
            yield [Term(who, top), Term("p", half), Term("c", low, sign)]
            yield [Term("c", top), Term("c", half), Term("p", low, sign)]


def width_questions(n: Numbers, lanes: int, preceded: bool) -> list[Question]:
    """For fraction bits, output fraction and rounding. The largest exponent is 0 or more in every block, so that
    zeros do not count, and operands are normal."""
    found = []
    for top in sorted({n.top, min(n.c_most - 8, 60), min(n.top, 16)}):
        for depth in range(DEPTH):
            low = top - depth
            found += [question(terms, n, lanes, preceded) for terms in shown(top, low)]
            for half in sorted({1, 11, 24, depth // 2, depth - 1} & set(range(1, depth))):
                found += [question(terms, n, lanes, preceded) for terms in decided(top, low, top - half)]
    asked = _asked(found) + random_questions(n, lanes, np.random.default_rng(1), 0)
    return [q for q in asked if exponent_of(q) >= 0 and not (preceded and 0 < abs(q.c) < 1)]


def zero_questions(n: Numbers, lanes: int, output_fractions: Sequence[int]) -> list[Question]:
    """For the exponent of zeros: single small terms, and sums at the lowest results that there are."""
    found = []
    for exponent in range(min(n.c_last, 2 * n.least) - 1, 12):
        found += [question([Term(who, exponent, s)], n, lanes, False) for who in "pc" for s in (1.0, -1.5)]
    for last in sorted({n.c_least - fraction for fraction in output_fractions}):
        for above in (-8, -6, -4, -2, -1, 0, 1, 2, 5, 12, 22):
            for depth in range(1, DEPTH):
                x, low = last + above, last + above - depth
                for count in sorted({1, 4, lanes - 1}):
                    found.append(question([Term("p", x, -1.0)] * count + [Term("p", low)], n, lanes, False))
                    found.append(question([Term("p", x)] * count + [Term("p", low)], n, lanes, False))
                found.append(question([Term("p", x + 1), Term("p", x), Term("p", low)], n, lanes, False))
                found.append(question([Term("p", x), Term("p", x, -1.0), Term("c", low)], n, lanes, False))
    return _asked(found) + random_questions(n, lanes, np.random.default_rng(2), n.c_last - 12)


def subnormal_questions(n: Numbers, lanes: int) -> list[Question]:
    """For the exponent of subnormal operands: they are the largest terms, and something below them shows the cut."""
    found = []
    last = n.least - n.fmt.precision + 1
    for x in [2.0**j for j in range(last, n.least)] + [2.0**n.least - 2.0**last]:
        for b in sorted({n.most, n.most - 1, (n.most + n.least) // 2, 0, n.least + 2}):
            plus, minus = (x, 2.0**b), (-x, 2.0**b)
            found += [Question(0.0, (plus,)), Question(0.0, (plus, plus))]
            for depth in range(DEPTH):
                for sign in (1.0, -1.0):
                    c, low = sign * 2.0 ** (n.least + b - depth), power(n.least + b - depth, n, sign)
                    beside = [(c, ())] if in_accumulator(c, n) else []
                    beside += [(0.0, (low,))] if low else []
                    for value, rest in beside:
                        found += [Question(value, (*pair, *rest)) for pair in ((plus, minus), (plus,))]
    fitting = [q for q in dict.fromkeys(found) if len(q.products) <= lanes]
    return fitting + random_questions(n, lanes, np.random.default_rng(3), None)


def random_questions(n: Numbers, lanes: int, rng, bottom: int | None, count: int = RANDOM) -> list[Question]:
    """Random significands, exponents and signs.

    bottom: least exponent of the largest term; below 0, the largest stay within 60 binades above it. None: any
    exponents, and subnormal operands in half of the questions.
    """
    lowest = 2 * n.least if bottom is None else max(bottom, 2 * n.least)
    highest = n.top if bottom is None or bottom >= 0 else min(n.top, lowest + 60)
    found = []
    for _ in range(count):
        largest, spread = int(rng.integers(lowest, highest + 1)), int(rng.choice([2, 8, 20, 50]))
        many = int(rng.integers(1, min(lanes, int(rng.choice([2, 6, 64]))) + 1))
        products = [_random_product(largest - int(rng.integers(0, spread)), n, rng) for _ in range(many)]
        if bottom is None and rng.integers(0, 2):
            products = [_random_subnormal(n, rng) for _ in products]
        if len(products) < lanes and rng.integers(0, 2):
            products.append((-products[0][0], products[0][1]))
        c = float(rng.integers(-1, 2)) * (1 + int(rng.integers(0, 1024)) / 1024)
        c *= 2.0 ** (largest - int(rng.integers(0, spread)) + 1)
        found.append(Question(c if in_accumulator(c, n) else 0.0, tuple(products)))
    return found


def _random_product(exponent: int, n: Numbers, rng) -> tuple[float, float]:
    factors = power(min(max(exponent, 2 * n.least), 2 * n.most - 2), n) or (0.0, 0.0)
    grain = 1 << (n.fmt.precision - 1)
    x, y = (f * (1 + int(rng.integers(0, grain)) / grain) if abs(f) < 2.0**n.most else f for f in factors)
    return x * float(rng.choice([-1.0, 1.0])), y


def _random_subnormal(n: Numbers, rng) -> tuple[float, float]:
    grain = 1 << (n.fmt.precision - 1)
    x = 2.0**n.least * int(rng.integers(1 - grain, grain)) / grain
    return x, 2.0 ** int(rng.integers(n.least, n.most + 1))


def _asked(found: list[Question | None]) -> list[Question]:
    return list(dict.fromkeys(q for q in found if q is not None))

"""Several roundings unfolded: sums and dot products step by step, and the two-step forms beside the one rounding."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Unpack

import numpy as np

from .. import border, reductions, spell, sums
from ..core.sum_loops import ADD, CAST, FMA, MUL, SUB, WITHIN
from ..formats import fmt_name
from ..policies import Rules, Stochastic, stochastic
from ..target import Target
from . import operations
from .operations import Explanation
from .table import Table

OPERATIONS = {CAST: operations.cast, ADD: operations.add, SUB: operations.sub, MUL: operations.mul, FMA: operations.fma}
ARITY = {CAST: 1, ADD: 2, SUB: 2, MUL: 2, FMA: 3}


@dataclass(frozen=True)
class Steps(Table):
    """Roundings one after another. A line for each; `steps` holds them unfolded."""

    steps: tuple[Explanation, ...]
    value: float
    error: Fraction | None  #: result minus exact value, signed; None where either is not finite


def sum(x: Iterable, fmt, *, order="sequential", accumulate=None, **rules: Unpack[Rules]) -> Steps:
    """Every step of lp.sum of one-dimensional x, in the order in which they happen. Raises as lp.sum does."""
    leaves = border.values(x, "x").array
    trace = sums.trace(leaves, fmt, order=order, accumulate=accumulate, **rules)
    exact = _total([(float(v),) for v in leaves])
    title = f"sum of {leaves.size} in {fmt_name(trace.plan.final.fmt)}, {_named(order)}"
    return _unfold(title, trace, exact, order, fmt, rules)


def dot(a: Iterable, b: Iterable, fmt, *, order="sequential", accumulate=None, fused=False, **rules: Unpack[Rules]):
    """Every step of lp.dot of one-dimensional a and b. Raises as lp.dot does."""
    trace = sums.trace_dot(a, b, fmt, order=order, accumulate=accumulate, fused=fused, **rules)
    x, y = border.values(a, "a").array, border.values(b, "b").array
    exact = _total([(float(u), float(v)) for u, v in zip(x, y, strict=True)])
    how = "fused" if fused else "products rounded"
    title = f"dot of {x.size} in {fmt_name(trace.plan.final.fmt)}, {_named(order)}, {how}"
    return _unfold(title, trace, exact, order, fmt, rules)


def encode_via(x, fmt, *, through, **rules: Unpack[Rules]) -> Steps:
    """lp.encode_via of one number, beside the one rounding of lp.encode."""
    first = operations.encode(x, through, **rules)
    return _two("through " + str(through), first, operations.convert(first.code, through, fmt, **rules),
                operations.encode(x, fmt, **rules))  # fmt: skip


def mul_then_add(a: float, b: float, c: float, fmt, **rules: Unpack[Rules]) -> Steps:
    """lp.mul_then_add of three numbers, beside the one rounding of lp.fma."""
    first = operations.mul(a, b, fmt, **rules)
    return _two("multiply, then add", first, operations.add(first.value, c, fmt, **rules),
                operations.fma(a, b, c, fmt, **rules))  # fmt: skip


def fma_via_fp32(a: float, b: float, c: float, fmt, **rules: Unpack[Rules]) -> Steps:
    """lp.fma_via_fp32 of three numbers, beside the one rounding of lp.fma."""
    first = operations.fma(a, b, c, "fp32")
    return _two("fma in fp32, then narrowed", first, operations.encode(first.value, fmt, **rules),
                operations.fma(a, b, c, fmt, **rules))  # fmt: skip


def _two(title: str, first: Explanation, second: Explanation, once: Explanation) -> Steps:
    same = "the same" if once.code == second.code else "not the same"
    rows = (_line(1, first), _line(2, second), ("one rounding", f"{once.value!r}: {same}"))
    start = None if once.error is None else Fraction(once.value) - once.error
    error = None if start is None or not math.isfinite(second.value) else Fraction(second.value) - start
    return Steps(f"{once.title}, {title}", (*rows, *_error(error, second)), (first, second), second.value, error)


def _unfold(title: str, trace: sums.Trace, exact: Fraction | None, order, fmt, rules: Rules) -> Steps:
    words = Target(fmt, rules).words(0, len(trace.steps))
    row = reductions.lookup(order)
    steps = []
    for i, (op, a, b, c, result, level) in enumerate(trace.steps):
        target = (trace.plan.within, trace.plan.across, trace.plan.partial, trace.plan.final)[int(level)]
        own = _rules(rules, words[i : i + 1], row.within_rounding if level == WITHIN else None)
        operands = np.array([a, b, c]).view(np.float64)[: ARITY[int(op)]]
        step = OPERATIONS[int(op)](*(float(x) for x in operands), target.fmt, **own)
        seen = float(np.int64(result).view(np.float64))
        assert step.value == seen or (math.isnan(seen) and math.isnan(step.value)), (i, step.value, seen)
        steps.append(step)
    lines = [_line(i + 1, step) for i, step in enumerate(steps)]
    if exact is not None:
        lines.append(("exact", f"{float(exact)!r} = {spell.exact(exact)}"))
    lines.append(("result", repr(trace.value)))
    error = None if exact is None or not math.isfinite(trace.value) else Fraction(trace.value) - exact
    lines += _error(error, steps[-1]) if steps else []
    return Steps(title, tuple(lines), tuple(steps), trace.value, error)


def _rules(rules: Rules, word: np.ndarray, mode: str | None) -> Rules:
    """The rules of one step: its own random integer, or the mode of its level."""
    noise = rules.get("rounding")
    if mode is not None:
        return Rules(**{**rules, "rounding": mode})
    if isinstance(noise, Stochastic):
        return Rules(**{**rules, "rounding": stochastic(bits=noise.bits, words=word, variant=noise.variant)})
    return rules


def _line(number: int, step: Explanation) -> tuple[str, str]:
    error = "" if not step.error else f"   error {float(step.error):+.6g}"
    return str(number), f"{step.title} = {step.value!r}   {dict(step.rows)['rule']}{error}"


def _error(error: Fraction | None, last: Explanation) -> list[tuple[str, str]]:
    return [] if error is None else [("error", spell.error(error, last.step))]


def _total(products: list[tuple]) -> Fraction | None:
    """The exact sum of products; None if an element is not finite."""
    total = Fraction(0)
    for factors in products:
        if not all(math.isfinite(x) for x in factors):
            return None
        total += math.prod((Fraction(x) for x in factors), start=Fraction(1))
    return total


def _named(order) -> str:
    return order if isinstance(order, str) else str(reductions.lookup(order))

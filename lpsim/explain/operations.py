"""One rounding unfolded: operands, alignment, kept | guard sticky, neighbours, rule, signed error.

The decision shown is the core's own step (core.rounding.Rounded); the exact result beside it is a Fraction,
computed apart from it.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Unpack

import numpy as np

from .. import border, exact, spell
from ..core import arith
from ..core.codec import FINITE, FP64, NAN, Number, pack_f64, unpack, unpack_f64
from ..core.rounding import Rounded, round_to
from ..formats import Format, fmt_name, lookup
from ..policies import Policy, Rules, Stochastic, policy
from .table import Table

ROOT_BITS = 240  # of a square root, for an error that is itself rounded far below what is printed


@dataclass(frozen=True)
class Explanation(Table):
    """One rounding, unfolded."""

    step: Rounded
    code: int
    value: float
    error: Fraction | None  #: rounded minus exact; None where either is not finite


def encode(x, fmt, **rules: Unpack[Rules]) -> Explanation:
    """How x (a float, an int or a Fraction) is rounded to fmt. Raises as lp.encode does."""
    fmt, rule, word = _target(fmt, rules)
    if isinstance(x, (float, np.floating)):
        given = _number(x, "x")
        source = border.float_format(np.asarray(x).dtype) or FP64
        rows, number = _flushed("x", spell.binary64(float(x)), given, source, rule)
        known = _fraction(number)
    elif _is_exact(x):
        x = x if isinstance(x, Fraction) else int(x)
        known = Fraction(x)
        sign, exp, sig = (int(part[0]) for part in exact.parts(np.array([known], dtype=object)))
        rows, number = [], Number(FINITE, sign, exp, sig)
    else:
        raise TypeError(f"x={x!r} must be a float, an int or a Fraction.")
    step = Rounded(*round_to(*number, fmt, rule, word))
    return _explain(f"{spell.number(x)} to {fmt_name(fmt)}", rows, step, known, fmt, rules)


def convert(code: int, source, fmt, **rules: Unpack[Rules]) -> Explanation:
    """How the code of one format becomes a code of another. Raises as lp.convert does."""
    origin = _code_format(source, "source")
    fmt, rule, word = _target(fmt, rules)
    checked = border.codes(code, origin, "code").array
    if checked.ndim:
        raise TypeError(f"code has shape {checked.shape}, but one code is explained at a time.")
    bits = int(checked)
    rows, number = _flushed(fmt_name(origin), spell.code(bits, origin), Number(*unpack(bits, origin)), origin, rule)
    step = Rounded(*round_to(*number, fmt, rule, word))
    title = f"{fmt_name(origin)} {bits:#x} to {fmt_name(fmt)}"
    return _explain(title, rows, step, _fraction(number), fmt, rules)


def add(a: float, b: float, fmt, **rules: Unpack[Rules]) -> Explanation:
    """a + b in fmt, one rounding."""
    return _operation("+", arith.add, lambda x, y: x + y, (a, b), fmt, rules)


def sub(a: float, b: float, fmt, **rules: Unpack[Rules]) -> Explanation:
    """a - b in fmt, one rounding."""
    return _operation("-", arith.sub, lambda x, y: x - y, (a, b), fmt, rules)


def mul(a: float, b: float, fmt, **rules: Unpack[Rules]) -> Explanation:
    """a * b in fmt, one rounding."""
    return _operation("*", arith.mul, lambda x, y: x * y, (a, b), fmt, rules)


def div(a: float, b: float, fmt, **rules: Unpack[Rules]) -> Explanation:
    """a / b in fmt, one rounding."""
    return _operation("/", arith.div, lambda x, y: x / y if y else None, (a, b), fmt, rules)


def sqrt(a: float, fmt, **rules: Unpack[Rules]) -> Explanation:
    """The square root of a in fmt, one rounding. The exact value is shown to 240 bits."""
    return _operation("sqrt", arith.sqrt, _root, (a,), fmt, rules)


def fma(a: float, b: float, c: float, fmt, **rules: Unpack[Rules]) -> Explanation:
    """a * b + c in fmt, the product exact, one rounding."""
    return _operation("fma", arith.fma, lambda x, y, z: x * y + z, (a, b, c), fmt, rules)


def cast(a: float, fmt, **rules: Unpack[Rules]) -> Explanation:
    """A partial sum on its way to fmt; unlike `encode`, it is flushed where it is subnormal in fmt."""

    def core(n, fmt, rule, word):
        return round_to(*arith.flush(n, fmt, rule), fmt, rule, word)

    return _operation("cast", core, lambda x: x, (a,), fmt, rules)


def _target(fmt, rules: Rules) -> tuple[Format, Policy, int]:
    """The format, the policy, and the random integer of element 0 (or the one given)."""
    row = _code_format(fmt, "fmt")
    noise = rules.get("rounding")
    if not isinstance(noise, Stochastic):
        return row, policy(**rules), 0
    if noise.words is not None:
        if noise.words.size != 1:
            raise ValueError(f"one rounding takes one word, got {noise.words.size}.")
        return row, policy(**rules), int(noise.words.reshape(-1)[0])
    from ..core.philox import random_word

    seed = np.uint64(noise.seed or 0)  # never None here: lp.stochastic asks for seed or words
    word = random_word(np.uint64(noise.offset), seed, noise.stream, noise.step, noise.bits)
    return row, policy(**rules), int(word)


def _code_format(fmt, argument: str) -> Format:
    row = lookup(fmt, argument)
    if row == FP64:
        raise ValueError(f"{argument}='fp64' is a source of values only: a float is its own value.")
    return row


def _is_exact(x) -> bool:
    """True for ints and Fractions; NumPy's narrow unsigned integers are codes, as in lp.encode."""
    if isinstance(x, np.integer):
        return np.asarray(x).dtype not in border.CODE_DTYPES.values()
    return isinstance(x, int | Fraction) and not isinstance(x, bool)


def _flushed(label: str, text: str, n: Number, source: Format, rule: Policy) -> tuple[list, Number]:
    """The rows of one operand, and what it counts as: zero of its sign if it is subnormal and is flushed."""
    used = Number(*arith.flush(n, source, rule))
    rows = [(label, text)]
    if used != n:
        rows.append(("flushed", f"{label} is subnormal in {fmt_name(source)} and counts as {spell.value(used)}"))
    return rows, used


def _number(x, name: str) -> Number:
    """A float, or an int that is one exactly, as a Number; TypeError for anything else."""
    wider = np.asarray(x).dtype.itemsize > 8  # a long double
    if wider or isinstance(x, bool) or not isinstance(x, (float, int, np.floating)):
        raise TypeError(f"{name}={x!r} must be a float.")
    if isinstance(x, int) and (abs(x) >= 1 << 1024 or int(float(x)) != x):
        raise TypeError(f"{name}={x!r} is not a binary64 value: pass the float that is meant.")
    return Number(*unpack_f64(int(np.float64(x).view(np.int64))))


def _fraction(n: Number) -> Fraction | None:
    if n.kind != FINITE:
        return None
    return (-1) ** n.sign * Fraction(n.sig) * Fraction(2) ** n.exp


def _root(x: Fraction) -> Fraction | None:
    if x < 0:
        return None
    scaled = (x.numerator << 2 * ROOT_BITS) // x.denominator
    return Fraction(math.isqrt(scaled), 1 << ROOT_BITS)


def _operation(symbol: str, core, formula, operands: tuple, fmt, rules: Rules) -> Explanation:
    fmt, rule, word = _target(fmt, rules)
    numbers = [_number(x, name) for x, name in zip(operands, "abc", strict=False)]
    step = Rounded(*core(*numbers, fmt, rule, word))
    rows, known = [], []
    for x, name, n in zip(operands, "abc", numbers, strict=False):
        more, used = _flushed(name, spell.operand(float(x), fmt), n, fmt, rule)
        rows += more
        known.append(_fraction(used))
    value = None if None in known else formula(*known)
    if symbol in ("+", "-") and value is not None:
        right = -known[1] if symbol == "-" else known[1]
        rows += spell.alignment(known[0], right)
    texts = [spell.number(x) for x in operands]
    title = f" {symbol} ".join(texts) if symbol in "+-*/" else f"{symbol}({', '.join(texts)})"
    return _explain(f"{title} in {fmt_name(fmt)}", rows, step, value, fmt, rules)


def _explain(title: str, rows: list, step: Rounded, value: Fraction | None, fmt: Format, rules: Rules) -> Explanation:
    if step.lost:
        raise ValueError(f"{fmt_name(fmt)} has neither NaN nor infinity to answer with; see overflow= and nan=.")
    result = Number(*unpack(step.code, fmt))
    got = _fraction(result)
    error = None if value is None or got is None else got - value
    noise = rules.get("rounding")
    lines = list(rows)
    if value is not None:
        lines.append(("exact", spell.exact(value)))
        lines += spell.cut(step, value, fmt)
    lines.append(("rule", spell.rule(step, result, rules, fmt)))
    if isinstance(noise, Stochastic) and value is not None:
        lines.append(("probability", spell.probability(step, value, noise)))
    lines.append(("result", spell.code(step.code, fmt)))
    if error is not None:
        lines.append(("error", spell.error(error, step)))
    bits = pack_f64(*result)
    rounded = math.nan if result.kind == NAN else float(np.int64(bits).view(np.float64))
    return Explanation(title, tuple(lines), step, int(step.code), rounded, error)

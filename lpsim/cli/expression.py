"""One expression, as text, to one explained rounding."""

import re

from .. import explain

NUMBER = r"[+-]?(?:0x[0-9a-f.]+(?:p[+-]?\d+)?|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?|nan)"
CAST = re.compile(rf"\s*({NUMBER})\s*", re.IGNORECASE)
BINARY = re.compile(rf"\s*({NUMBER})\s*([-+*/])\s*({NUMBER})\s*", re.IGNORECASE)
CALL = re.compile(rf"\s*(sqrt|fma)\s*\(\s*({NUMBER}(?:\s*,\s*{NUMBER})*)\s*\)\s*", re.IGNORECASE)
OPERATIONS = {"+": explain.add, "-": explain.sub, "*": explain.mul, "/": explain.div}
CALLS = {"sqrt": (explain.sqrt, 1), "fma": (explain.fma, 3)}


def evaluate(text: str, fmt: str, **rules) -> explain.Explanation:
    """The explanation of '449', '-2.40625 + -2.296875', 'sqrt(2)' or 'fma(1, 2, 3)' in fmt. ValueError for other text.

    Numbers are read as the nearest binary64; a decimal that is alone is read exactly.
    """
    if found := CAST.fullmatch(text):
        return explain.encode(_exact(found[1]), fmt, **rules)
    if found := BINARY.fullmatch(text):
        return OPERATIONS[found[2]](number(found[1]), number(found[3]), fmt, **rules)
    if found := CALL.fullmatch(text):
        function, arity = CALLS[found[1].lower()]
        operands = [number(part.strip()) for part in found[2].split(",")]
        if len(operands) != arity:
            raise ValueError(f"{found[1]} takes {arity} number{'s' * (arity > 1)}, got {len(operands)}.")
        return function(*operands, fmt, **rules)
    raise ValueError(
        f"{text!r} is not an expression: write a number, 'a + b' (or - * /), 'sqrt(a)' or 'fma(a, b, c)', "
        "with decimal or hexadecimal numbers, inf or nan."
    )


def number(text: str) -> float:
    """The nearest binary64 of a decimal or hexadecimal number; ValueError for one that is none or is too large."""
    try:
        value = float.fromhex(text) if "0x" in text.lower() else float(text)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is not a binary64 number: {error}.") from None
    if abs(value) == float("inf") and "inf" not in text.lower():
        raise ValueError(f"{text!r} is above the largest binary64 number: write inf if infinity is meant.")
    digits = text.lower().partition("p" if "0x" in text.lower() else "e")[0]
    if value == 0.0 and set(digits) & set("123456789abcdef"):
        raise ValueError(f"{text!r} is below the smallest binary64 number: write 0 if zero is meant.")
    return value


def _exact(text: str):
    """The number itself as a Fraction if binary64 would round it; else a float (which knows -0, inf and nan)."""
    from fractions import Fraction

    nearest = number(text)
    if "0x" in text.lower() or nearest == 0.0 or nearest != nearest or abs(nearest) == float("inf"):
        return nearest
    return nearest if Fraction(text) == Fraction(nearest) else Fraction(text)

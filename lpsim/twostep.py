"""Two roundings under honest names, to be compared with the one rounding of lp.fma, lp.encode and lp.convert.

These are what people often have when they think they have one rounding; where the first result falls on a
midpoint of the second grid, the two differ. Each step's format is in the function's name or an argument.
"""

from typing import Unpack

from .arrays import add, convert, encode, fma, mul
from .arrays import round as round_values
from .policies import Rules, Stochastic


def fma_via_fp32(a, b, c, fmt, *, out=None, **rules: Unpack[Rules]):
    """a * b + c rounded to fp32 (nearest even, as an fp32 fma does), then rounded to fmt by the rules.

    Values come back, as from lp.fma, but float32 or float64 always. Raises as lp.fma does.
    """
    first = fma(a, b, c, "fp32")
    return round_values(first, fmt, out=out, **rules)


def mul_then_add(a, b, c, fmt, *, out=None, **rules: Unpack[Rules]):
    """a * b rounded to fmt, then that + c rounded to fmt, both by the rules. Values come back, as from lp.fma."""
    _refuse_noise(rules)
    return add(mul(a, b, fmt, **rules), c, fmt, out=out, **rules)


def encode_via(x, fmt, *, through, out=None, **rules: Unpack[Rules]):
    """Codes of fmt for x rounded to the format `through` first, both times by the rules.

    x: as in lp.encode. An overflow in the first step is one in the end too, even where fmt reaches further.
    Raises as lp.encode and lp.convert do.
    """
    _refuse_noise(rules)
    return convert(encode(x, through, **rules), through, fmt, out=out, **rules)


def round_via(x, fmt, *, through, out=None, **rules: Unpack[Rules]):
    """x rounded to the grid of `through` and then to that of fmt, as values; both times by the rules.

    Raises as lp.round does, also for a dtype that cannot hold the first grid.
    """
    _refuse_noise(rules)
    return round_values(round_values(x, through, **rules), fmt, out=out, **rules)


def _refuse_noise(rules: Rules) -> None:
    if isinstance(rules.get("rounding"), Stochastic):
        raise ValueError("two roundings need two streams of random words: call the two steps one by one.")

"""Why a result is what it is: operands, alignment, kept | guard sticky, neighbours, rule, signed error.

print(lp.explain.add(-2.40625, -2.296875, "bf16"))
lp.explain.encode(449, "e4m3fn")                   # in a notebook: a table
lp.explain.sum([1.0, 2.0**-8, 2.0**-8], "bf16")    # every step; .steps[1] unfolds one
"""

from .choices import compare, maximum, maximum_number, minimum, minimum_number
from .operations import Explanation, add, convert, div, encode, fma, mul, sqrt, sub
from .steps import Steps, dot, encode_via, fma_via_fp32, mul_then_add, sum
from .table import Table

__all__ = [
    "Explanation", "Steps", "Table", "add", "compare", "convert", "div", "dot", "encode", "encode_via", "fma",
    "fma_via_fp32", "maximum", "maximum_number", "minimum", "minimum_number", "mul", "mul_then_add", "sqrt", "sub",
    "sum",
]  # fmt: skip

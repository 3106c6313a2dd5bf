"""The operations table: name, compiled function of the core, exact oracle, arity.

Tests of the core and of the arrays, benchmarks and the docs read it, so that an operation is listed once.
"""

from collections.abc import Callable
from typing import NamedTuple

import oracle
from lpsim.core import arith


class Operation(NamedTuple):
    """`core(Number, ..., fmt, policy, word) -> Rounded`; `oracle(Value, ..., rounding) -> Value`, exact."""

    name: str
    core: Callable
    oracle: Callable
    arity: int


OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation("add", arith.add, oracle.add, 2),
        Operation("sub", arith.sub, oracle.sub, 2),
        Operation("mul", arith.mul, oracle.mul, 2),
        Operation("div", arith.div, oracle.div, 2),
        Operation("sqrt", arith.sqrt, oracle.sqrt, 1),
        Operation("fma", arith.fma, oracle.fma, 3),
    )
}

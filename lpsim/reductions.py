"""Orders of a sum or dot product as rows: which elements meet in which partial sum, and what partial sums are kept in.

"sequential"  ((x0 + x1) + x2) + ...
"pairwise"    (first n // 2) + (the rest), each half in the same way
"tree"        neighbours x0 + x1, x2 + x3, ..., level by level; an odd last one moves up
"halves"      x[i] + x[i + n / 2], until one is left (a butterfly of lanes)
"kahan"       sequential with Kahan's compensation
"wgmma"       attention's row sum on Hopper: runs of 2 dealt to 4 lanes, each sequential; lanes by halves
blocked(128)  blocks of 128 consecutive elements, each sequential; their sums sequential
split_k(4)    4 parts of equal length (the last may be shorter), each sequential; their sums sequential
"""

from typing import NamedTuple

from .core.sum_loops import (
    ACROSS,
    FINAL,
    FMA,
    HALVES,
    KAHAN,
    MUL,
    PAIRWISE,
    PARTIAL,
    SEQUENTIAL,
    TREE,
    WITHIN,
    Plan,
    Target,
)
from .errors import choose
from .formats import Format, max_finite
from .policies import ROUNDINGS, Policy
from .target import code_format

JOINS = {"sequential": SEQUENTIAL, "kahan": KAHAN, "pairwise": PAIRWISE, "tree": TREE, "halves": HALVES}


class Order(NamedTuple):
    """One order of reduction. Two levels: elements of a block are joined, then the blocks' sums."""

    inner: str = "sequential"  #: how the elements of a block are joined: a name of `JOINS`
    outer: str = "sequential"  #: how the sums of the blocks are joined
    size: int = 0  #: elements of a block; 0: as many as `parts` asks for
    parts: int = 1  #: number of blocks, if size is 0
    run: int = 0  #: if not 0, runs of this many elements are dealt to the blocks in turn (n must divide)
    within: Format | None = None  #: sums inside a block are rounded to it; None: to the accumulator's format
    within_rounding: str | None = None  #: and in this mode; None: in the call's
    partial: Format | None = None  #: a block's sum is stored in it; None: as it is


ORDERS: dict[str, Order] = {
    **{name: Order(inner=name) for name in JOINS},
    "wgmma": Order(outer="halves", parts=4, run=2),  # lpsim.orders: Triton 3.6, sm_90
}


def blocked(size: int, *, inner="sequential", outer="sequential", within=None, rounding=None, partial=None) -> Order:
    """Blocks of `size` consecutive elements: two-level accumulation.

    within, rounding: the format and mode of the sums inside a block, as a tensor core's own accumulator has them;
    partial: the format that a block's sum is stored in. Formats by name or row. Raises as `check` does.
    """
    return check(Order(inner, outer, size, 1, 0, _format(within, "within"), rounding, _format(partial, "partial")))


def split_k(parts: int, *, inner="sequential", outer="sequential", partial=None) -> Order:
    """`parts` parts of ceil(n / parts) consecutive elements, each summed by itself and stored in `partial`."""
    return check(Order(inner, outer, 0, parts, partial=_format(partial, "partial")))


def _format(fmt, argument: str) -> Format | None:
    return None if fmt is None else code_format(fmt, argument)


def check(order: Order) -> Order:
    """The order itself, if it describes one; otherwise TypeError or ValueError."""
    choose("inner", order.inner, JOINS)
    choose("outer", order.outer, JOINS)
    for name in ("size", "parts", "run"):
        if type(getattr(order, name)) is not int:
            raise TypeError(f"{name}={getattr(order, name)!r} must be an int.")
    if order.size < 0 or order.parts < 1 or order.run < 0 or (order.size and order.parts > 1):
        raise ValueError(f"{order} is not an order: size >= 0, parts >= 1, run >= 0, and either size or parts.")
    if order.run and order.size:
        raise ValueError("runs are dealt to parts, not to blocks of a size.")
    if order.within_rounding is not None:
        choose("rounding", order.within_rounding, ROUNDINGS)
    return order


def lookup(order) -> Order:
    """An Order from a name of `ORDERS` or a row. ValueError for other names."""
    return check(order) if isinstance(order, Order) else choose("order", order, ORDERS)


def block_size(order: Order, n: int) -> int:
    """Elements of a block of a reduction of n >= 1. ValueError if runs do not divide n."""
    if order.run and n % (order.run * order.parts):
        raise ValueError(f"{n} elements do not divide into {order.parts} parts dealt in runs of {order.run}.")
    return min(order.size or -(-n // order.parts), n)


def resolve(order: Order, n: int, fmt: Format, accumulate: Format, policy: Policy, fresh: bool) -> Plan:
    """The Plan for n >= 1 leaves; fresh: leaves are exact values, not yet rounded to anything."""
    size = block_size(order, n)
    blocks = -(-n // size)
    within = order.within or accumulate
    inside = policy if order.within_rounding is None else policy._replace(
        rounding=ROUNDINGS[order.within_rounding], noise_bits=0
    )  # fmt: skip
    across = blocks > 1 or order.outer == "kahan"
    unrounded = fresh and n == 1 and order.inner != "kahan"
    rounded_to = accumulate if across else None if unrounded else within
    return Plan(
        JOINS[order.inner],
        JOINS[order.outer],
        size,
        int(order.partial is not None and blocks > 1),
        int(rounded_to != fmt),
        _target(within, inside, WITHIN),
        _target(accumulate, policy, ACROSS),
        _target(order.partial or accumulate, policy, PARTIAL),
        _target(fmt, policy, FINAL),
    )


def _target(fmt: Format, policy: Policy, level: int) -> Target:
    """Where results are normal, lie below the last binade, and are rounded to nearest even, binary64 helps to round."""
    plain = policy.rounding == ROUNDINGS["rne"] and not (policy.flush_in or policy.flush_out)
    if not (plain and fmt.signed and fmt.subnormals and fmt.precision >= 2):  # one bit: the even *code* decides ties
        return Target(fmt, policy, level, 0, 0, 0)
    lowest, highest = 1 - fmt.exponent_bias, (max_finite(fmt) >> (fmt.precision - 1)) - fmt.exponent_bias - 1
    return Target(fmt, policy, level, 53 - fmt.precision, max(lowest + 1023, 1), min(highest + 1023, 2045))


def roundings(plan: Plan, n: int, kind: int) -> int:
    """How many roundings one reduction of n leaves does; kind: CAST (a sum), MUL or FMA (a dot product)."""
    blocks = -(-n // plan.size)
    tail = n - (blocks - 1) * plan.size
    inside = (blocks - 1) * _join_count(plan.inner, plan.size) + _join_count(plan.inner, tail)
    inside = n if kind == FMA else inside + n * (kind == MUL)
    return inside + blocks * plan.stores + _join_count(plan.outer, blocks) + plan.casts


def _join_count(how: int, n: int) -> int:
    return 4 * n - 3 if how == KAHAN else n - 1

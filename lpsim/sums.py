"""Sums and dot products whose order, formats and roundings are arguments.

    lp.sum(x, "bf16")                                            # sequential, every partial sum a bf16
    lp.sum(x, "bf16", accumulate="fp32", order="tree")           # fp32 inside, one cast at the end
    lp.sum(x, "fp32", order=lp.blocked(128, within=acc, rounding="rtz"))
    lp.dot(a, b, "fp32", order=lp.split_k(4, partial="bf16"), fused=True)

Elements are exact values, as in lp.add: n of them take n - 1 additions, each with one rounding. A single
element is rounded once; no element at all gives +0.
Stochastic rounding: output i (C order) has the random integers offset + i * k .. offset + (i + 1) * k - 1 of its
stream, k being the number of roundings of one output, one after another in the order in which they happen.
"""

import math
from typing import NamedTuple, Unpack

import numpy as np

from . import border, dots, reductions
from .core.sum_loops import CAST, FMA, MUL, Plan, reduce_rows
from .formats import Format
from .machines import DotUnit
from .operands import operand
from .policies import Rules
from .reductions import Order
from .target import Target, code_format
from .threads import parallel_for

GRAIN = 1 << 14  # elements of work for a thread at a time; they are copied as float64
NO_STEPS = np.empty((0, 6), np.int64)


class Trace(NamedTuple):
    """One reduction with all of its roundings: steps (k, 6) are op, a, b, c, result (bits of float64), level."""

    value: float
    steps: np.ndarray
    plan: Plan


def sum(x, fmt, *, order="sequential", accumulate=None, axis=-1, keepdims=False, out=None, **rules: Unpack[Rules]):
    """Sums of x along an axis, every addition rounded once to the format of the accumulator.

    x: floats of any shape. fmt: of the result, and of the partial sums unless accumulate= names another format
    (the total is then rounded once more, to fmt). order: a name of `reductions.ORDERS` or a row. axis: an int, or
    None for all elements in C order. Values come back, as from lp.add. The rules hold for every rounding.
    Raises as lp.add does, and ValueError for an order that does not fit the length or an axis that does not exist.
    """
    job = _Job(fmt, accumulate, order, CAST, rules)
    given = border.values(x, "x")
    rows, kept = _rows(given.array, axis, keepdims)
    return job.run([rows], kept, border.value_dtype(job.target.fmt, given.array), out, given.torch)


def dot(
    a, b, fmt=None, *, order=None, accumulate=None, fused=None, unit: DotUnit | None = None, a_fmt=None, b_fmt=None,
    out=None, **rules: Unpack[Rules],
):  # fmt: skip
    """Dot products over the last axes of a and b, which broadcast: values of shape (...), as from lp.add.

    fmt, accumulate, order ("sequential" if None): as in `sum`. fused=False (the default): each product is rounded
    to the accumulator, then added. fused=True: a chain of fma, each rounded once, the first product rounded; only
    in orders whose blocks are sequential.
    unit: a dot instruction's row (lp.machines) instead of all of these: float32 of its arithmetic, blocks on the
    live accumulator from +0. Operands are then values or codes on the grid of a_fmt and b_fmt, or of their dtype.
    Raises as lp.add does; TypeError for arguments that do not go together, ValueError for shapes that do not fit.
    """
    if unit is not None:
        if any(given is not None for given in (fmt, order, accumulate, fused)) or rules:
            raise TypeError(
                "unit= brings its own formats, order and rounding: pass nothing else with it but a_fmt, b_fmt."
            )
        return _unit_dot(a, b, unit, a_fmt, b_fmt, out)
    if fmt is None or a_fmt is not None or b_fmt is not None:
        raise TypeError("dot needs fmt=, the format of its result (a_fmt and b_fmt belong to unit=).")
    job = _Job(fmt, accumulate, "sequential" if order is None else order, FMA if fused else MUL, rules)
    if fused and job.order.inner != "sequential":
        raise ValueError(f"fused=True is a chain of fma, but the order joins by {job.order.inner!r}.")
    given = border.values(a, "a"), border.values(b, "b")
    arrays = [x.array for x in given]
    if any(x.ndim == 0 for x in arrays) or arrays[0].shape[-1] != arrays[1].shape[-1]:
        raise ValueError(f"a {arrays[0].shape} and b {arrays[1].shape} do not fit: their last axes must be equal.")
    shape = _broadcast(*arrays)
    rows = [np.broadcast_to(x, shape) for x in arrays]
    dtype = border.value_dtype(job.target.fmt, *arrays)
    return job.run(rows, shape[:-1], dtype, out, any(x.torch for x in given))


def trace(x, fmt, *, order="sequential", accumulate=None, **rules: Unpack[Rules]) -> Trace:
    """The sum of one-dimensional x with all of its steps; arguments as in `sum`."""
    return _trace(_Job(fmt, accumulate, order, CAST, rules), [border.values(x, "x").array])


def trace_dot(a, b, fmt, *, order="sequential", accumulate=None, fused=False, **rules: Unpack[Rules]) -> Trace:
    """The dot product of one-dimensional a and b with all of its steps; arguments as in `dot`."""
    job = _Job(fmt, accumulate, order, FMA if fused else MUL, rules)
    return _trace(job, [border.values(a, "a").array, border.values(b, "b").array])


class _Job:
    """What to do with rows of leaves; `run` does it for all of them."""

    def __init__(self, fmt, accumulate, order, kind: int, rules: Rules):
        self.target = Target(fmt, rules)
        self.accumulate: Format = self.target.fmt if accumulate is None else code_format(accumulate, "accumulate")
        self.order: Order = reductions.lookup(order)
        self.kind = kind
        for row in (self.accumulate, self.order.within, self.order.partial):
            if row is not None:
                border.value_dtype(row)  # ValueError if its values lie beyond float64

    def plan(self, n: int) -> Plan:
        policy, fresh = self.target.policy, self.kind == CAST
        return reductions.resolve(self.order, n, self.target.fmt, self.accumulate, policy, fresh)

    def run(self, rows: list, shape: tuple, dtype, out, torch: bool):
        """rows: one array or two, (..., n), the leading axes those of the result in C order."""
        n = rows[0].shape[-1]
        plan = self.plan(max(n, 1))
        count = reductions.roundings(plan, max(n, 1), self.kind)
        noise = self.target.noise
        if noise is not None and noise.words is not None and noise.words.shape != (*shape, count):
            raise ValueError(
                f"words has shape {noise.words.shape}, but {count} roundings for each output make {(*shape, count)}."
            )
        result = border.output(out, shape, dtype)
        flat = np.empty(math.prod(shape), dtype)

        def body(start, stop):
            words = self.target.words(start * count, (stop - start) * count).reshape(stop - start, -1)
            values, _ = _reduce(self._leaves(rows, start, stop), self.kind, plan, words, NO_STEPS, self.target)
            with np.errstate(invalid="ignore", over="ignore"):
                flat[start:stop] = values

        parallel_for(body, flat.size, max(1, GRAIN // max(1, n)))
        result[...] = flat.reshape(shape)
        if out is not None:
            return out
        return border.to_torch(result) if torch else result[()]

    def _leaves(self, rows: list, start: int, stop: int) -> list[np.ndarray]:
        """Bits of the leaves of outputs start .. stop - 1, int64 (stop - start, n), dealt to the parts."""
        index = np.unravel_index(np.arange(start, stop), rows[0].shape[:-1]) if rows[0].ndim > 1 else (None,)
        found = []
        for x in rows:
            leaves = np.array(x[index], np.float64).reshape(stop - start, -1)
            leaves = leaves if leaves.shape[1] else np.zeros((stop - start, 1))
            if self.order.run:
                parts, run = self.order.parts, self.order.run
                leaves = leaves.reshape(stop - start, -1, parts, run).swapaxes(1, 2)
            found.append(np.ascontiguousarray(leaves).reshape(stop - start, -1).view(np.int64))
        return found


def _reduce(leaves: list, kind: int, plan: Plan, words, steps, target: Target) -> tuple[np.ndarray, int]:
    """float64 results of rows of leaves, and the number of roundings of the last row."""
    a, b = leaves[0], leaves[-1]
    state, bits = np.zeros(2, np.int64), np.empty(len(a), np.int64)
    partials = np.empty(-(-a.shape[1] // plan.size), np.int64)
    reduce_rows(a, b, kind, plan, words, steps, state, partials, bits)
    target.refuse_lost(int(state[1]))
    return bits.view(np.float64), int(state[0])


def _trace(job: _Job, rows: list) -> Trace:
    if any(x.ndim != 1 or x.shape != rows[0].shape for x in rows):
        raise ValueError(f"one reduction is traced at a time: one-dimensional, not {[x.shape for x in rows]}.")
    n = max(rows[0].size, 1)
    plan = job.plan(n)
    count = reductions.roundings(plan, n, job.kind)
    steps = np.empty((count, 6), np.int64)
    words = job.target.words(0, count).reshape(1, -1)
    values, done = _reduce(job._leaves(rows, 0, 1), job.kind, plan, words, steps, job.target)
    assert done == count, (done, count)
    return Trace(float(values[0]), steps, plan)


def _rows(x: np.ndarray, axis, keepdims: bool) -> tuple[np.ndarray, tuple]:
    """x with the summed axis last, and the shape of the result."""
    if axis is None:
        return x.reshape(-1), (1,) * x.ndim if keepdims else ()
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise TypeError(f"axis={axis!r} must be an int, or None for all elements.")
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"axis={axis} does not exist in an array of shape {x.shape}.")
    rows = np.moveaxis(x, axis, -1)
    kept = list(x.shape)
    kept[axis] = 1
    return rows, tuple(kept) if keepdims else rows.shape[:-1]


def _broadcast(a: np.ndarray, b: np.ndarray) -> tuple:
    try:
        return np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise ValueError(f"operands of shapes {a.shape} and {b.shape} do not broadcast.") from None


def _unit_dot(a, b, unit: DotUnit, a_fmt, b_fmt, out):
    given_a, codes_a, row_a = operand(a, "a", a_fmt)
    given_b, codes_b, row_b = operand(b, "b", b_fmt)
    if codes_a.ndim == 0 or codes_b.ndim == 0 or codes_a.shape[-1] != codes_b.shape[-1]:
        raise ValueError(f"a {codes_a.shape} and b {codes_b.shape} do not fit: their last axes must be equal.")
    found = dots.dot(codes_a[..., None, :], codes_b[..., :, None], None, unit, row_a, row_b)[..., 0, 0]
    result = border.output(out, found.shape, np.dtype(np.float32))
    result[...] = found
    if out is not None:
        return out
    return border.to_torch(result) if given_a.torch or given_b.torch else result[()]


__all__ = ["Trace", "dot", "sum", "trace", "trace_dot"]

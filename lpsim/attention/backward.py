"""Flash attention, backward: delta, then dV, dS, dQ and dK tile by tile, in any recipe."""

from typing import NamedTuple

import numpy as np

from .. import border, recipes
from ..errors import NotModelled
from ..formats import fmt_name
from . import backward_machine, backward_nearest, exact, inputs, lanes, lanes_backward, visible
from .sites import FP32, site_format, stored

ARITHMETICS = {"machine": backward_machine.backward, "nearest": backward_nearest.backward}


class Backward(NamedTuple):
    """Gradients of q (..., n, d) and of k and v (..., n_keys, d), and delta (..., n)."""

    dq: np.ndarray
    dk: np.ndarray
    dv: np.ndarray
    delta: np.ndarray


def backward(
    q, k, v, o, lse, do, *, recipe: str | recipes.Recipe = "triton", causal=False, scale=None, block=None,
    machine="h200", fmt=None, window=None, mask=None, bias=None,
) -> Backward:  # fmt: skip
    """The gradients of attention as a recipe computes them, bit for bit.

    q, k, v and the options: as `forward` took them, but with machine arithmetic rows and keys of block are multiples
    of 16, unless one tile holds them all. o: what it returned as `kept`, (..., n, d); o of that result if
    the recipe keeps nothing else. lse: as it returned it, (..., n), float32, in the recipe's base.
    do: the gradient of o, (..., n, d), in q's format.
    Result: dq, dk, dv in q's dtype (float32 where their sites are wider), delta float32. Grouped query heads add
    into one dk and dv. A row that sees no key has zero gradients and adds nothing.
    NaN and Inf go through as IEEE 754 has it, but dS of a masked pair is +0 whatever dP and delta are: a row whose o
    is NaN reaches the keys that it sees. 0 times a NaN or infinite q, k or do is NaN where tiles meet.
    recipe exact takes any float o, lse (base e) and do and gives float64.
    Arithmetic: recipe triton is that of three compiled kernels, recorded on an H200 (`backward_machine`); paper is
    an fp32 backward from the rounded S, l, m and O of its forward pass, gradients rounded to bf16
    (`backward_nearest`); fa2 and naive round at their sites.
    Raises TypeError and ValueError for arguments that do not fit, NotModelled for e4m3fn.
    """
    rules = recipes.recipe(recipe)
    seen = visible.Options(window, mask, bias)
    call = inputs.prepare(q, k, v, rules, causal, scale, block, fmt, seen)
    return run(call, rules, machine, o, lse, do, fmt)


def run(call: inputs.Call, rules: recipes.Recipe, machine: str, o, lse, do, fmt) -> Backward:
    """`backward` once q, k, v and the options are checked."""
    inputs.check_multiples(call, rules, "backward", 16, 16)
    shape = (*call.batch, *call.q.codes.shape[1:])
    if fmt_name(call.fmt) not in inputs.MODELLED:
        raise NotModelled(f"the gradients of attention in {fmt_name(call.fmt)} are not modelled.")
    if rules.arithmetic == "exact":
        matrix = call.q.codes.shape
        output, gradient = (_wide(x, name, shape).reshape(matrix) for x, name in ((o, "o"), (do, "do")))
        statistics = _wide(lse, "lse", shape[:-1]).reshape(matrix[:2])
        found = exact.backward(call, output, statistics, gradient, rules.delta_from)
        return _result(call, *(x.reshape(_shape(call, name)) for name, x in found._asdict().items()))
    gradient = _gradient(do, call, fmt, shape)
    output = _output(o, call, rules, shape)
    statistics = inputs.of_shape(lse, "lse", shape[:-1], np.float32).reshape(call.q.codes.shape[:2])
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        plain, given = call._replace(watch=None), (rules, machine, output, statistics, gradient)
        quick, arrays = lanes.covers(plain, rules, machine), ARITHMETICS[rules.arithmetic]
        found = lanes_backward.backward(plain, *given) if quick else arrays(call, *given)
        if quick and call.watch is not None:  # the loops show nothing
            arrays(call.watch.watched(call), *given)
        gradients = []
        for site, x, axes in (("dQ", found.dq, "rf"), ("dK", found.dk, "kf"), ("dV", found.dv, "kf")):
            x = x.reshape(_shape(call, site.lower()))
            gradients.append(stored(getattr(rules, site), x, call.fmt, call.dtype))
            if call.watch is not None:
                values = stored(getattr(rules, site), x, call.fmt, np.dtype(np.float32))
                call.see(site, getattr(rules, site), axes, None, x[None], values[None])
    return _result(call, *gradients, found.delta.reshape(shape[:-1]))


def _shape(call: inputs.Call, name: str) -> tuple[int, ...]:
    like = {"dq": call.q, "dk": call.k, "dv": call.v, "delta": call.q}[name].codes.shape[1:]
    batch = call.kv_batch if name in ("dk", "dv") else call.batch
    return (*batch, like[0]) if name == "delta" else (*batch, *like)


def _wide(x, name: str, shape: tuple) -> np.ndarray:
    array = border.values(x, name).array.astype(np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; it must be {shape}.")
    return array


def _gradient(do, call: inputs.Call, fmt, shape: tuple) -> inputs.Operand:
    _, codes, row = inputs.read(do, "do", fmt)
    if row != call.fmt:
        raise ValueError(f"do has format {fmt_name(row)}, but q, k and v have {fmt_name(call.fmt)}.")
    if codes.shape != shape:
        raise ValueError(f"do has shape {codes.shape}; it must be that of q, {shape}.")
    return inputs.read_operand(codes, row)


def _output(o, call: inputs.Call, rules: recipes.Recipe, shape: tuple) -> np.ndarray:
    """o as float32 values, (batch, n, d): in the format of its site, or any float32 where more of it is kept."""
    row = site_format(rules.O, call.fmt)
    if rules.kept != "O" or row == FP32:
        return inputs.of_shape(o, "o", shape, np.float32).reshape(call.q.codes.shape)
    _, codes, _ = inputs.read(o, "o", row)
    if codes.shape != shape:
        raise ValueError(f"o has shape {codes.shape}; it must be that of q, {shape}.")
    return inputs.read_operand(codes, row).values


def _result(call: inputs.Call, *fields) -> Backward:
    fields = [np.ascontiguousarray(x) for x in fields]
    return Backward(*(border.to_torch(x) if call.torch else x for x in fields))

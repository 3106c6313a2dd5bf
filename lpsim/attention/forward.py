"""Flash attention, forward: tiles of keys go by, in every recipe the same loop."""

from typing import NamedTuple

import numpy as np

from .. import arrays, border, recipes
from ..formats import Format
from . import exact, inputs, on_machine, on_nearest
from .sites import site_format

STATES = {"machine": on_machine.State, "nearest": on_nearest.State}


class Forward(NamedTuple):
    """Output (..., n, d) and the softmax statistics (..., n) in the recipe's own base."""

    o: np.ndarray
    m: np.ndarray
    l: np.ndarray
    lse: np.ndarray
    base: float


def forward(
    q, k, v, *, recipe: str | recipes.Recipe = "triton", causal=False, scale=None, block=None, machine="h200", fmt=None
) -> Forward:
    """Attention as a recipe computes it, bit for bit.

    q (..., n, d), k and v (..., n_keys, d): bfloat16 or float16 arrays (ml_dtypes, NumPy, CPU torch), or with fmt=
    float32 arrays on that format's grid, or its codes (uint16). d: a multiple of 16, 16 to 256.
    recipe: a name (triton, paper, exact) or a recipes.Recipe. scale: of the scores, None for 1/sqrt(d).
    block: (query rows, keys) of a tile, None for the recipe's own; it must divide the sequence. machine: whose
    rows a recipe with machine arithmetic uses.
    Result: o in q's dtype (float32 where the site O is wider), m, l, lse float32; recipe exact gives float64
    throughout. m and lse are in units of the recipe's base: 2 or e.
    NaN and Inf go through as IEEE 754 and the instructions have it.
    Raises TypeError and ValueError for arguments that do not fit, NotModelled for formats without a model.
    """
    rules = recipes.recipe(recipe)
    call = inputs.prepare(q, k, v, rules, causal, scale, block, fmt)
    shape = (*call.batch, call.q.codes.shape[1])
    if rules.arithmetic == "exact":
        o, m, l, lse = exact.forward(call)
        return _result(call, o.reshape(*shape, -1), (m, l, lse), shape, rules.base)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        state = STATES[rules.arithmetic](call, rules, machine)
        for first_key in range(0, call.k.codes.shape[1], call.keys):
            rows, keys, hidden = _tile(call, first_key)
            state.step(rows, keys, hidden)
        o, m, l, lse = state.output()
    o = _rounded_output(call, rules, o.reshape(*shape, -1))
    return _result(call, o, (m, l, lse), shape, rules.base)


def _tile(call: inputs.Call, first_key: int) -> tuple[slice, slice, np.ndarray | None]:
    """The query rows whose tiles reach this key tile, its keys, and which of its scores are masked."""
    n = call.q.codes.shape[1]
    keys = slice(first_key, first_key + call.keys)
    if not call.causal:
        return slice(0, n), keys, None
    first_row = first_key // call.rows * call.rows
    columns = np.arange(keys.start, keys.stop)
    hidden = np.arange(first_row, n)[:, None] < columns[None, :]
    return slice(first_row, n), keys, hidden


def _rounded_output(call: inputs.Call, rules: recipes.Recipe, o: np.ndarray) -> np.ndarray:
    """o at its site: codes if the user gave codes, q's dtype if that holds them, else float32."""
    fmt: Format = site_format(rules.O, call.fmt) if rules.O is not None else site_format(recipes.Site("fp32"), call.fmt)
    rounding = rules.O.rounding if rules.O is not None else "rne"
    codes = np.asarray(arrays.encode(o, fmt, rounding=rounding, nan="nvidia"))
    if call.dtype.kind == "u" and fmt == call.fmt:
        return codes
    values = np.asarray(arrays.decode(codes, fmt))
    keeps = call.dtype.kind != "u" and border.holds(call.dtype, fmt)
    if keeps and border.float_format(call.dtype) == fmt:
        return codes.view(call.dtype)
    return values.astype(call.dtype if keeps else np.float32)


def _result(call: inputs.Call, o: np.ndarray, rows: tuple, shape: tuple, base: float) -> Forward:
    fields = [o, *(np.ascontiguousarray(x).reshape(shape) for x in rows)]
    if call.torch:
        fields = [border.to_torch(field) for field in fields]
    return Forward(*fields, base)

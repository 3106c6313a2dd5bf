"""Flash attention, forward: tiles of keys go by, in every recipe the same loop."""

from typing import NamedTuple

import numpy as np

from .. import border, instructions, recipes
from . import exact, inputs, kept, lanes, lanes_forward, on_machine, on_nearest, visible
from .sites import stored

STATES = {"machine": on_machine.State, "nearest": on_nearest.State}


class _Fields(NamedTuple):
    o: np.ndarray
    m: np.ndarray
    l: np.ndarray
    lse: np.ndarray
    base: float


class Forward(_Fields):
    """Output o (..., n, d), the softmax statistics m, l, lse (..., n), and their base: five fields.

    kept, beside them: what `backward` is to be given as o; o itself unless the recipe keeps more of it.
    """

    kept: np.ndarray


def forward(
    q, k, v, *, recipe: str | recipes.Recipe = "triton", causal=False, scale=None, block=None, machine="h200",
    fmt=None, window=None, mask=None, bias=None, scales=None,
) -> Forward:  # fmt: skip
    """Attention as a recipe computes it, bit for bit.

    q (..., n, d), k and v (..., n_keys, d): bfloat16 or float16 arrays (ml_dtypes, NumPy, CPU torch), or with fmt=
    float32 arrays on that format's grid, or its codes (uint16); recipes with machine arithmetic take e4m3fn too.
    d: a multiple of 16, 16 to 256. Grouped queries: q (..., heads, n, d), k and v (..., heads / group, n_keys, d).
    recipe: a name (triton, paper, fa2, naive, exact) or a recipes.Recipe. scale: of the scores, None for 1/sqrt(d).
    block: (query rows, keys) of a tile, None for the recipe's own; the last tiles of a sequence may be smaller. With
    machine arithmetic keys is a multiple of 8, unless one tile holds them all.
    machine: whose rows a recipe with machine arithmetic uses.
    causal: row i sees the keys 0..i. window: an int or (left, right): row i sees i - left .. i + right.
    mask: bool, broadcast to (..., n, n_keys), True where a row may see a key. bias: float32, broadcast alike, added
    to the scaled scores; -inf masks. scales: three numbers that q, k and v are to be multiplied by (e4m3fn).
    Result: o in q's dtype (float32 where the site O is wider), m, l, lse float32; recipe exact gives float64
    throughout. m and lse are in units of the recipe's base: 2 or e. A row that sees no key has o = 0, lse = -inf.
    NaN and Inf go through as IEEE 754 and the instructions have it.
    Raises TypeError and ValueError for arguments that do not fit, NotModelled for formats without a model.
    """
    rules = recipes.recipe(recipe)
    instructions.machine(machine)  # an unknown name is refused, also where a recipe uses no machine's rows
    seen = visible.Options(window, mask, bias)
    call = inputs.prepare(q, k, v, rules, causal, scale, block, fmt, seen, scales)
    return run(call, rules, machine)


def run(call: inputs.Call, rules: recipes.Recipe, machine: str) -> Forward:
    """`forward` once its arguments are checked."""
    inputs.check_multiples(call, rules, "forward", 1, 8)
    shape = (*call.batch, call.q.codes.shape[1])
    if rules.arithmetic == "exact":
        o, m, l, lse = exact.forward(call, rules.maximum)
        o = o.reshape(*shape, -1)
        return _result(call, (o, o), (m, l, lse), shape, rules.base)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        plain = call._replace(watch=None)
        quick = lanes.covers(plain, rules, machine)
        found = lanes_forward.forward(plain, rules, machine) if quick else tile_by_tile(call, rules, machine)
        exact_o, m, l, lse = found
        if quick and call.watch is not None:  # the loops show nothing
            tile_by_tile(call.watch.watched(call), rules, machine)
        exact_o = exact_o.reshape(*shape, -1)
        o = stored(rules.O, exact_o, call.fmt, call.dtype)
        if call.watch is not None:
            values = exact_o.astype(np.float32) if rules.O is None else np.asarray(kept.values(rules, o, call.fmt))
            matrix = call.q.codes.shape
            call.see("O", rules.O, "rf", None, exact_o.reshape(matrix), values.reshape(matrix))
        saved = kept.keep(rules, exact_o, o, call.fmt)
    return _result(call, (o, saved), (m, l, lse), shape, rules.base)


def tile_by_tile(call: inputs.Call, rules: recipes.Recipe, machine: str):
    """o, not yet rounded, m, l and lse, on arrays of the whole call: every recipe and option but `exact`."""
    state = STATES[rules.arithmetic](call, rules, machine)
    for tile in visible.tiles(call):
        state.step(tile)
    return state.output()


def _result(call: inputs.Call, outputs: tuple, rows: tuple, shape: tuple, base: float) -> Forward:
    o, m, l, lse, saved = (
        border.to_torch(x) if call.torch else x
        for x in (outputs[0], *(np.ascontiguousarray(x).reshape(shape) for x in rows), outputs[1])
    )
    result = Forward(o, m, l, lse, base)
    result.kept = saved
    return result

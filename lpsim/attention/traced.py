"""`lp.attention.trace`: every site of chosen rows, keys and features of one attention matrix."""

from collections.abc import Iterable

from .. import recipes
from ..trace import Trace
from . import inputs, visible
from .backward import run as run_backward
from .forward import run as run_forward
from .watch import Watch


def trace(
    q, k, v, do=None, *, rows: Iterable[int], keys: Iterable[int] = (), features: Iterable[int] = (),
    recipe: str | recipes.Recipe = "triton", causal=False, scale=None, block=None, machine="h200", fmt=None,
    window=None, mask=None, bias=None,
) -> Trace:  # fmt: skip
    """A Trace of the forward pass, and of the backward pass if do is given; its methods and `lp.trace.diff` read it.

    q (n, d), k and v (n_keys, d), do (n, d): one matrix. rows, keys, features: which elements are kept; a site without
    keys (m, l) or features is kept for the rows alone. Options as in `forward`.
    The sites are those of `recipes`; S of machine arithmetic is not yet scaled, acc is kept after each key tile.
    Raises as `forward`, TypeError for indices that are no ints, ValueError for recipe exact, which rounds
    nowhere, and for indices out of range.
    """
    rules = recipes.recipe(recipe)
    if rules.arithmetic == "exact":
        raise ValueError("recipe 'exact' has no sites: trace another, and compare results with it.")
    seen = visible.Options(window, mask, bias)
    call = inputs.prepare(q, k, v, rules, causal, scale, block, fmt, seen)
    if call.batch:
        raise ValueError(
            f"q has shape {(*call.batch, *call.q.codes.shape[1:])}; one matrix (n, d) is traced at a time."
        )
    n, d = call.q.codes.shape[1:]
    chosen = (
        _indices(rows, "rows", n),
        _indices(keys, "keys", call.visible.n_keys),
        _indices(features, "features", d),
    )
    found = Trace(rules.name, *chosen)
    call = call._replace(watch=Watch(found, call.fmt))
    result = run_forward(call, rules, machine)
    if do is not None:
        run_backward(call, rules, machine, result.kept, result.lse, do, fmt)
    return found


def _indices(given: Iterable[int], name: str, size: int) -> tuple[int, ...]:
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise TypeError(f"{name}={given!r} must be a sequence of ints.")
    listed = list(given)
    for i in listed:
        if not visible.is_int(i):
            raise TypeError(f"{name}: {i!r} must be an int.")
    chosen = tuple(int(i) for i in listed)
    for i in chosen:
        if not 0 <= i < size:
            raise ValueError(f"{name}: {i} is not from 0 to {size - 1}.")
    return chosen

"""Which rows of a call are biased, and by how much: what `bias` needs, read off q, k and v."""

from typing import NamedTuple

import numpy as np

from .. import recipes
from . import bias as closed_form
from . import exact, inputs, visible
from .sites import at

#: natural units by which the smallest float32 weight lies below 1: a shift beyond that leaves a row without weights
UNDERFLOW = 87.3
TYPICAL_ULPS = 192.0  #: how many ulps a V is large: 128 to 256 in bf16


class Detection(NamedTuple):
    """One entry a query row, arrays (..., n); 0 where a row sees no key."""

    ties: np.ndarray  #: int64: keys whose weight, rounded to the inputs' format, is 1
    positive: np.ndarray  #: float64: share of V > 0 over the tied keys and all features
    mass: np.ndarray  #: float64: the weights of the other keys together, that of a tied key being 1
    residual: np.ndarray  #: float64: their mean V over that of the tied keys, over features whose tied V have one sign
    predicted: np.ndarray  #: float64: mean signed error over features, in ulps of what is rounded: O, or the stored sum
    unsafe: np.ndarray  #: bool: the published dynamic maximum leaves no weight of the row, which is then 0 / 0


def detect(
    q, k, v, *, recipe="triton", beta: float = 2.0, causal: bool = False, scale=None, fmt=None, mask=None, bias=None,
    window=None,
) -> Detection:  # fmt: skip
    """The rows of attention whose output is biased: tied maxima, the signs of their V, the mass of the other keys.

    q, k, v: (..., n, d) and (..., n_keys, d), as in `forward`, with its mask, bias and window. recipe: where rounding
    happens; one that stores acc (`paper`) is predicted by `bias.stored_sum`, others by `bias.rounded_quotient`.
    beta: of the published dynamic maximum, for `unsafe`. Scores are exact, but for a rounding that the recipe has at S.
    The prediction is a mean over V with random last bits, in bf16. What has no direction counts as 0: a row without
    ties, a feature whose tied V have both signs, a pull of the other keys beyond one step of the grid.
    Raises TypeError and ValueError as `forward` does, and for a beta that `recipes.dynamic` refuses.
    """
    rule, base = recipes.dynamic(beta), recipes.recipe(recipe)
    call = inputs.prepare(q, k, v, base, causal, scale, None, fmt, visible.Options(window, mask, bias))
    s = exact.scores(call)
    if base.S is not None:
        s = np.asarray(at(base.S, s.astype(np.float32), call.fmt), np.float64)
    top = s.max(axis=-1)
    seen = top > -np.inf
    p = np.exp(s - np.where(seen, top, 0.0)[..., None])
    tied = np.asarray(at(recipes.Site("input"), p.astype(np.float32), call.fmt)) == 1.0
    found = _statistics(tied, p, call.spread(call.v.values.astype(np.float64)))
    ties, positive, mass, signs, ratio = found
    one_sign = signs != 0
    residual = np.where(one_sign, ratio, 0.0).sum(axis=-1) / np.maximum(one_sign.sum(axis=-1), 1)
    away = _stored(ties, mass, residual) if base.acc is not None else _quotients(ties, mass, ratio)
    predicted = (np.where(one_sign, away, 0.0) * signs).mean(axis=-1)
    shift = np.where(top > 0, (rule.beta - 1.0) * top, -top)
    unsafe = seen & (ties > 1) & (shift > UNDERFLOW)
    shape = (*call.batch, s.shape[1])
    return Detection(*(x.reshape(shape) for x in (ties, positive, mass, residual, predicted, unsafe)))


def _statistics(tied: np.ndarray, p: np.ndarray, v: np.ndarray):
    """ties, positive, mass (batch, n); signs and ratio (batch, n, d): the sign that all tied V of a feature have, or 0,
    and the mean V of the other keys over that of the tied ones."""
    ties = tied.sum(axis=-1)
    rest = np.where(tied, 0.0, p)
    mass = rest.sum(axis=-1)
    above, below = tied.astype(float) @ (v > 0), tied.astype(float) @ (v < 0)
    signs = np.where(above == ties[..., None], 1.0, np.where(below == ties[..., None], -1.0, 0.0))
    signs = np.where(ties[..., None] > 0, signs, 0.0)
    of_tied = (tied.astype(float) @ v) / np.maximum(ties, 1)[..., None]
    of_rest = (rest @ v) / np.where(mass > 0, mass, 1.0)[..., None]
    ratio = np.divide(of_rest, of_tied, out=np.zeros_like(of_rest), where=of_tied != 0)
    return ties, above.mean(axis=-1) / np.maximum(ties, 1), mass, signs, ratio


def _quotients(ties: np.ndarray, mass: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """`bias.rounded_quotient` for rows with several ties, (batch, n, d); 0 for others."""
    found = np.zeros(ratio.shape)
    for row in zip(*np.nonzero(ties > 1), strict=True):
        count, weight = int(ties[row]), float(mass[row])
        pulls = TYPICAL_ULPS * weight * (ratio[row] - 1.0) / (count + weight)
        errors = [closed_form.rounded_quotient(count, weight, float(x), TYPICAL_ULPS) for x in ratio[row]]
        found[row] = np.where(np.abs(pulls) < 1.0 / count, errors, 0.0)
    return found


def _stored(ties: np.ndarray, mass: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """`bias.stored_sum` for rows with several ties, counted away from zero, (batch, n, 1); 0 for others."""
    found = np.zeros((*ties.shape, 1))
    for row in zip(*np.nonzero(ties > 1), strict=True):
        pull = -TYPICAL_ULPS * float(mass[row]) * float(residual[row])  # as if all V were negative
        found[row] = -closed_form.stored_sum(int(ties[row]), pull) if pull > -1.0 else 0.0
    return found

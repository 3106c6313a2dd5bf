"""What the forward pass keeps of O for delta = rowsum(dO o O): O, more of it, or a control of the same size.

`recipes.Recipe.kept`:
  O          the output as stored
  fp32       the output before it was rounded
  pair       O + RN(o - O), both in O's format, o the output in float32 (the sum is exact in float32)
  Sham(..)   O + (o - O) or O - (o - O), by a fair keyed coin for each element
"""

import numpy as np

from .. import arrays
from ..core.loops import fill_words
from ..formats import Format
from ..recipes import Recipe, Sham
from .sites import site_format


def values(recipe: Recipe, o: np.ndarray, input_fmt: Format) -> np.ndarray:
    """A stored output as float32."""
    return (
        np.asarray(arrays.decode(o, site_format(recipe.O, input_fmt))) if o.dtype.kind == "u" else o.astype(np.float32)
    )


def keep(recipe: Recipe, exact: np.ndarray, o: np.ndarray, input_fmt: Format) -> np.ndarray:
    """What backward takes as o; float32 of o's shape unless it is o itself. exact: before rounding, float32 or 64."""
    if recipe.kept == "O":
        return o
    wide = exact.astype(np.float32)
    fmt, rounded = site_format(recipe.O, input_fmt), values(recipe, o, input_fmt)
    if recipe.kept == "fp32":
        return wide
    if recipe.kept == "pair":
        return rounded + np.asarray(arrays.round(wide - rounded, fmt))
    assert isinstance(recipe.kept, Sham)
    words = np.empty(wide.size, np.int64)
    fill_words(words, 0, np.uint64(recipe.kept.seed), recipe.kept.stream, 0, 1)
    lost = wide - rounded
    return rounded + np.where(words.reshape(wide.shape) == 1, lost, -lost)

"""Rounding at a site of a recipe."""

import numpy as np

from .. import arrays
from ..formats import FORMATS, Format, lookup
from ..recipes import Site

FP32 = FORMATS["fp32"]


def site_format(site: Site, input_fmt: Format) -> Format:
    """The format of a site; "input" means that of q, k and v."""
    return input_fmt if site.fmt == "input" else lookup(site.fmt)


def at(site: Site | None, x: np.ndarray, input_fmt: Format) -> np.ndarray:
    """float32 x rounded as the site says; x itself where it says nothing."""
    if site is None or site_format(site, input_fmt) == FP32:
        return x
    return np.asarray(arrays.round(x, site_format(site, input_fmt), rounding=site.rounding))

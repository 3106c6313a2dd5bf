"""Rounding at a site of a recipe, and results in the dtype that the user passed."""

import numpy as np

from .. import arrays, border
from ..formats import FORMATS, Format, lookup
from ..recipes import Recipe, Site

FP32 = FORMATS["fp32"]


def site_format(site: Site | None, input_fmt: Format) -> Format:
    """The format of a site; "input" means that of q, k and v, and no site float32."""
    if site is None:
        return FP32
    return input_fmt if site.fmt == "input" else lookup(site.fmt)


def at(site: Site | None, x: np.ndarray, input_fmt: Format) -> np.ndarray:
    """float32 x rounded as the site says; x itself where it says nothing."""
    if site is None or site_format(site, input_fmt) == FP32:
        return x
    return np.asarray(arrays.round(x, site_format(site, input_fmt), rounding=site.rounding))


def passed(call, recipe: Recipe, name: str, x: np.ndarray, axes: str, tile, each_tile: bool = False) -> np.ndarray:
    """`at` the site of this name, seen by whoever watches; axes: of x behind the batch, as `Watch.see` has them."""
    site = getattr(recipe, name)
    after = at(site, x, call.fmt)
    call.see(name, site, axes, tile, x, after, each_tile)
    return after


def operand_codes(site: Site | None, x: np.ndarray, input_fmt: Format) -> tuple[np.ndarray, Format]:
    """float32 x as codes for a dot, and their format; no site means the input's, for a dot takes no float32.

    8-bit formats saturate, as the instruction that narrows to them does.
    """
    site = site or Site("input")
    fmt = site_format(site, input_fmt)
    overflow = "satfinite" if fmt.bits <= 8 else "ieee"
    return np.asarray(arrays.encode(x, fmt, rounding=site.rounding, nan="nvidia", overflow=overflow)), fmt


def stored(site: Site | None, x: np.ndarray, input_fmt: Format, dtype: np.dtype) -> np.ndarray:
    """x at its site: codes if the user gave codes, the user's dtype if that holds them, else float32."""
    fmt = site_format(site, input_fmt)
    rounding = site.rounding if site is not None else "rne"
    codes = np.asarray(arrays.encode(x, fmt, rounding=rounding, nan="nvidia"))
    if dtype.kind == "u" and fmt == input_fmt:
        return codes
    keeps = dtype.kind != "u" and border.holds(dtype, fmt)
    if keeps and border.float_format(dtype) == fmt:
        return codes.view(dtype)
    return np.asarray(arrays.decode(codes, fmt)).astype(dtype if keeps else np.float32)

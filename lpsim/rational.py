"""Codes as exact rationals, for formats whose values no float dtype holds, and for exact arithmetic on any."""

from fractions import Fraction

import numpy as np

from . import border, formats
from .core.codec import INFINITE, NAN, unpack
from .formats import Format
from .target import code_format


def decode_exact(codes, fmt):
    """Values of codes as Fractions, in an object array of their shape; one code gives one value.

    codes: as in lp.decode. Infinity and NaN are floats, since no Fraction is; both zeros are Fraction(0).
    Raises as lp.decode does, but for no format.
    """
    row = code_format(fmt)
    given = border.codes(codes, row).array
    distinct, where = np.unique(given, return_inverse=True)
    values = np.empty(distinct.size, object)
    values[:] = [_value(int(code), row) for code in distinct]
    found = values[where.reshape(-1)].reshape(given.shape)
    return found if given.ndim else found[()]


def _value(code: int, fmt: Format) -> Fraction | float:
    n = unpack(code, fmt)
    if n.kind == NAN:
        return float("nan")
    if n.kind == INFINITE:
        return float("-inf") if n.sign else float("inf")
    magnitude = formats.magnitude_value(fmt, (code >> fmt.pad) & formats.top_magnitude(fmt))
    return -magnitude if n.sign else magnitude

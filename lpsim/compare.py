"""Comparisons, minimum, maximum, negation and absolute value of arrays of codes.

Codes need their format: 0x80 is -0 in e4m3fn and the only NaN in e4m3fnuz, where abs and neg leave it alone.
All take codes as lp.decode does (uint8, uint16, uint32, an array of fmt's own dtype, a Python int), broadcast,
take out=, and raise as lp.decode does. Values are compared by NumPy; only codes are compared here.
"""

import numpy as np

from . import border
from ._jit import njit
from .arrays import _map
from .core import compare
from .fills import BUFFER, Fill
from .formats import Format, fmt_name
from .target import code_format

BELOW, EQUAL, ABOVE, UNORDERED = -1, 0, 1, 2


def neg(codes, fmt, *, out=None):
    """Codes of -x. The sign of NaN flips too; the only NaN of a format and its only zero stay. Exact.

    ValueError for a format without a sign.
    """
    return _codes("neg", _signed(fmt), out, codes=codes)


def abs(codes, fmt, *, out=None):
    """Codes of |x|. The sign of NaN is cleared; the only NaN of a format stays. Exact."""
    return _codes("abs", fmt, out, codes=codes)


def copysign(codes, signs, fmt, *, out=None):
    """Codes with the signs of other codes. Exact. ValueError for a format without a sign."""
    return _codes("copysign", _signed(fmt), out, codes=codes, signs=signs)


def minimum(a, b, fmt, *, out=None):
    """Codes of the smaller operand, -0 below +0. NaN if one is NaN: the first NaN, quiet, sign kept, no payload.

    Source: IEEE 754-2019 9.6, minimum; NVIDIA min.NaN.
    """
    return _codes("minimum", fmt, out, a=a, b=b)


def maximum(a, b, fmt, *, out=None):
    """Codes of the larger operand, +0 above -0. NaN as in `minimum`. Source: IEEE 754-2019 9.6, maximum."""
    return _codes("maximum", fmt, out, a=a, b=b)


def minimum_number(a, b, fmt, *, out=None):
    """As `minimum`, but the number where only one operand is NaN. Source: IEEE 754-2019 9.6, minimumNumber."""
    return _codes("minimum_number", fmt, out, a=a, b=b)


def maximum_number(a, b, fmt, *, out=None):
    """As `maximum`, but the number where only one operand is NaN. Source: IEEE 754-2019 9.6, maximumNumber."""
    return _codes("maximum_number", fmt, out, a=a, b=b)


def equal(a, b, fmt, *, out=None):
    """True where a = b: the zeros are equal, NaN equals nothing. bool array."""
    return _relation((EQUAL,), a, b, fmt, out)


def not_equal(a, b, fmt, *, out=None):
    """True where not a = b, so wherever one is NaN."""
    return _relation((BELOW, ABOVE, UNORDERED), a, b, fmt, out)


def less(a, b, fmt, *, out=None):
    """True where a < b; False where one is NaN."""
    return _relation((BELOW,), a, b, fmt, out)


def less_equal(a, b, fmt, *, out=None):
    """True where a <= b; False where one is NaN."""
    return _relation((BELOW, EQUAL), a, b, fmt, out)


def greater(a, b, fmt, *, out=None):
    """True where a > b; False where one is NaN."""
    return _relation((ABOVE,), a, b, fmt, out)


def greater_equal(a, b, fmt, *, out=None):
    """True where a >= b; False where one is NaN."""
    return _relation((ABOVE, EQUAL), a, b, fmt, out)


def isnan(codes, fmt, *, out=None):
    """True where a code is NaN."""
    return _test("isnan", fmt, out, codes=codes)


def isinf(codes, fmt, *, out=None):
    """True where a code is an infinity."""
    return _test("isinf", fmt, out, codes=codes)


def signbit(codes, fmt, *, out=None):
    """True where the sign bit is set, of -0 and NaN as well (and of fnuz's only NaN)."""
    return _test("signbit", fmt, out, codes=codes)


UNARY = {name: i for i, name in enumerate(("neg", "abs", "isnan", "isinf", "signbit"))}
BINARY = {
    name: i for i, name in enumerate(("order", "minimum", "maximum", "minimum_number", "maximum_number", "copysign"))
}


@njit
def _unary(which, a, out, fmt):
    """out[i] from a[i], int64 both; which: a number of UNARY. out and a may be one array."""
    for i in range(out.size):
        if which == 0:
            out[i] = compare.neg(a[i], fmt)
        elif which == 1:
            out[i] = compare.absolute(a[i], fmt)
        elif which == 2:
            out[i] = compare.is_nan(a[i], fmt)
        elif which == 3:
            out[i] = compare.is_infinite(a[i], fmt)
        else:
            out[i] = compare.sign(a[i], fmt)


@njit
def _binary(which, a, b, out, fmt):
    """out[i] from a[i] and b[i], int64 all; which: a number of BINARY. out and a may be one array."""
    for i in range(out.size):
        if which == 0:
            out[i] = compare.order(a[i], b[i], fmt)
        elif which == 1:
            out[i] = compare.minimum(a[i], b[i], fmt)
        elif which == 2:
            out[i] = compare.maximum(a[i], b[i], fmt)
        elif which == 3:
            out[i] = compare.minimum_number(a[i], b[i], fmt)
        elif which == 4:
            out[i] = compare.maximum_number(a[i], b[i], fmt)
        else:
            out[i] = compare.copysign(a[i], b[i], fmt)


def _apply(name: str, row: Format, pieces: list) -> np.ndarray:
    """int64 results of the named loop on pieces of codes."""
    wide = [piece.astype(np.int64) for piece in pieces]
    if len(wide) == 1:
        _unary(UNARY[name], wide[0], wide[0], row)
    else:
        _binary(BINARY[name], wide[0], wide[1], wide[0], row)
    return wide[0]


def _filled(name: str, fmt, out, dtype, finish, **operands):
    row = code_format(fmt)
    given = tuple(border.codes(codes, row, argument) for argument, codes in operands.items())

    def run(pieces, result, start):
        result[...] = finish(_apply(name, row, pieces))

    return _map(Fill(run, BUFFER), given, dtype or border.code_dtype(row), out)


def _codes(name: str, fmt, out, **operands):
    return _filled(name, fmt, out, None, lambda found: found, **operands)


def _test(name: str, fmt, out, **operands):
    return _filled(name, fmt, out, np.dtype(bool), lambda found: found > 0, **operands)


def _relation(holds: tuple, a, b, fmt, out):
    return _filled("order", fmt, out, np.dtype(bool), lambda found: np.isin(found, holds), a=a, b=b)


def _signed(fmt) -> Format:
    row = code_format(fmt)
    if not row.signed:
        raise ValueError(f"{fmt_name(row)} has no sign.")
    return row

"""Operands of dots and of attention: values on a format's grid, or its codes."""

import numpy as np

from . import border, formats
from .arrays import decode, encode
from .formats import Format


def operand(x, name: str, fmt) -> tuple[border.Given, np.ndarray, Format]:
    """An operand of a dot or of attention: as given, its codes, their format.

    Values must lie on the grid of fmt, or of their own dtype if fmt is None; codes (unsigned integers) need fmt.
    tf32 is the exception that hardware makes: any float32, or its 32 bits, is taken and its low 13 bits are
    cut off (PTX ISA, wgmma). Raises TypeError and ValueError otherwise.
    """
    array = border.raw(x, name).array
    row = None if fmt is None else formats.lookup(fmt)
    if row is not None and row == formats.FORMATS["tf32"] and array.dtype in (np.float32, np.uint32):
        given = border.raw(x, name)
        return given, given.array.view(np.uint32) & np.uint32(0xFFFFE000), row
    if array.dtype.kind == "u":
        if row is None:
            raise TypeError(f"{name} has dtype {array.dtype}: codes need fmt=, the format that they are codes of.")
        given = border.codes(x, row, name)
        return given, given.array, row
    given = border.values(x, name)
    own = border.float_format(given.array.dtype)
    if row is None:
        if own is None or own in (formats.FORMATS["fp32"], formats.FORMATS["fp64"]):
            raise TypeError(f"{name} has dtype {given.array.dtype}: say with fmt= on which format's grid it is.")
        row = own
    return given, on_grid(given.array, row, name), row


def on_grid(array: np.ndarray, row: Format, name: str) -> np.ndarray:
    """Codes of values that are on the format's grid already; ValueError if one is not."""
    codes = np.asarray(encode(array, row, nan="propagate"))
    values = np.asarray(decode(codes, row))
    with np.errstate(invalid="ignore"):
        exact = array.astype(np.float64)
    off = ~((values == exact) | (np.isnan(values) & np.isnan(exact)))
    if off.any():
        where = tuple(int(i) for i in np.argwhere(off)[0])
        raise ValueError(
            f"{name}{list(where)} = {exact[where]!r} is not a value of {formats.fmt_name(row)}: round it first, "
            f"lp.round({name}, {formats.fmt_name(row)!r})."
        )
    return codes

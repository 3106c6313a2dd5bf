"""Integers and Fractions on their way to a rounding: sign, exponent and a significand with a sticky last bit."""

from fractions import Fraction

import numpy as np

BITS = 61  # of a significand; its last bit then lies far below any cut


def parts(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(sign, exp, sig), int64, of int64, uint64 or exact Python numbers."""
    if numbers.dtype.kind == "O":
        exact = (x if isinstance(x, Fraction) else Fraction(int(x)) for x in numbers.flat)
        rows = np.array([_fraction_parts(x) for x in exact], np.int64).reshape(-1, 3)
        return tuple(np.ascontiguousarray(column) for column in rows.T)  # type: ignore[return-value]
    sign = (numbers < 0).astype(np.int64)
    magnitude = np.where(numbers < 0, -numbers.astype(np.uint64), numbers.astype(np.uint64))
    wide = magnitude >= np.uint64(1 << 60)
    halved = (magnitude >> np.uint64(4)) | ((magnitude & np.uint64(15)) != 0)
    sig = np.where(wide, halved, magnitude).astype(np.int64)
    return sign, np.where(wide, 4, 0).astype(np.int64), sig


def _fraction_parts(x: Fraction) -> tuple[int, int, int]:
    numerator, denominator = abs(x.numerator), x.denominator
    exp = numerator.bit_length() - denominator.bit_length() - BITS
    if numerator == 0:
        return 0, 0, 0
    scaled, divisor = (numerator << -exp, denominator) if exp < 0 else (numerator, denominator << exp)
    sig, rest = divmod(scaled, divisor)  # BITS or BITS + 1 bits
    return int(x < 0), exp, sig | (rest > 0)

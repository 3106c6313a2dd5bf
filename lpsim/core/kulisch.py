"""An exact accumulator: a sum of products as one long integer, whatever their exponents. Slow, and never wrong.

Limbs of 32 bits in int64, so that carries may wait until the end. Source: Kulisch, "Computer Arithmetic and
Validity", the long accumulator.
"""

import numpy as np

from .._jit import njit
from .bits import mask, where

LOWEST = -320  #: weight of the first bit: below the smallest product of two bf16, 2^-266
LIMBS = 24  #: up to 2^448, above the largest product


@njit
def clear(limbs):
    """No addend yet. limbs: int64 (LIMBS,)."""
    limbs[:] = 0


@njit
def new():
    """An empty accumulator: int64 (LIMBS,)."""
    return np.zeros(LIMBS, np.int64)


@njit
def add(limbs, sign, exp, sig):
    """limbs += (-1)^sign * sig * 2^exp. 0 <= sig < 2^30, LOWEST <= exp < 384; at most 2^20 addends."""
    place = exp - LOWEST
    limb = place >> 5
    moved = sig << (place & 31)
    low, high = moved & mask(32), moved >> 32
    limbs[limb] += where(sign > 0, 0 - low, low)
    limbs[limb + 1] += where(sign > 0, 0 - high, high)


@njit
def _carry(limbs):
    """Limbs to 0 .. 2^32 - 1, the last one keeping the sign."""
    for i in range(LIMBS - 1):
        limbs[i + 1] += limbs[i] >> 32
        limbs[i] &= mask(32)


@njit
def total(limbs):
    """(sign, exp, sig) of the sum, sig < 2^62, its last bit also meaning "or a little more"; the limbs are used up."""
    _carry(limbs)
    sign = where(limbs[LIMBS - 1] < 0, 1, 0)
    if sign > 0:
        for i in range(LIMBS):
            limbs[i] = -limbs[i]
        _carry(limbs)
    top = LIMBS - 1
    while top > 1 and limbs[top] == 0:
        top -= 1
    sticky = where((limbs[top - 1] & 3) > 0, 1, 0)
    for i in range(top - 1):
        sticky |= where(limbs[i] != 0, 1, 0)
    sig = (limbs[top] << 30) | (limbs[top - 1] >> 2) | sticky
    return sign, LOWEST + 32 * (top - 1) + 2, sig

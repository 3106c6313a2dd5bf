"""Two-limb integers, value = hi * 2^62 + lo with 0 <= lo < 2^62: room for an exact product and an addend."""

from .._jit import njit
from .bits import bit_length, clamp, mask, where


@njit
def multiply(a, b):
    """(hi, lo) of a * b. 0 <= a, b < 2^53."""
    a1, a0 = a >> 27, a & mask(27)
    b1, b0 = b >> 27, b & mask(27)
    middle = a1 * b0 + a0 * b1
    low = a0 * b0 + ((middle & mask(27)) << 27)
    high = a1 * b1 + (middle >> 27) + (low >> 54)
    return high >> 8, ((high & mask(8)) << 54) | (low & mask(54))


@njit
def length(hi, lo):
    """Bits needed to write the number."""
    return where(hi > 0, bit_length(hi) + 62, bit_length(lo))


@njit
def shift_left(hi, lo, n):
    """The number times 2^n, 0 <= n <= 124; it must stay below 2^124."""
    whole = n >= 62
    hi = where(whole, lo, hi)
    lo = where(whole, 0, lo)
    n = clamp(where(whole, n - 62, n), 0, 62)
    carried = lo >> (62 - n)
    return (hi << n) | carried, (lo & mask(62 - n)) << n


@njit
def shift_right_sticky(hi, lo, n):
    """The number divided by 2^n, any n >= 0, last bit set if a one was shifted out."""
    whole = n >= 62
    lost = where(whole, lo, 0)
    lo = where(whole, hi, lo)
    hi = where(whole, 0, hi)
    n = clamp(where(whole, n - 62, n), 0, 62)
    lost = lost | (lo & mask(n))
    lo = (lo >> n) | ((hi & mask(n)) << (62 - n))
    return hi >> n, lo | where(lost > 0, 1, 0)


@njit
def subtract(hi, lo, hi2, lo2):
    """The first number minus the second, which must not be larger."""
    borrow = where(lo < lo2, 1, 0)
    return hi - hi2 - borrow, lo - lo2 + (borrow << 62)


@njit
def add(hi, lo, hi2, lo2):
    """The sum; it must stay below 2^124."""
    low = lo + lo2
    return hi + hi2 + (low >> 62), low & mask(62)


@njit
def narrow(hi, lo):
    """(sig, shift): the number as sig * 2^shift, sig below 2^61, last bit set if anything was lost."""
    n = clamp(length(hi, lo) - 61, 0, 124)
    _, low = shift_right_sticky(hi, lo, n)
    return low, n


__all__ = ["add", "length", "multiply", "narrow", "shift_left", "shift_right_sticky", "subtract"]

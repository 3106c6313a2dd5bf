"""The squarer of the MUFU interpolator: it drops low partial products instead of adding them."""

from .._jit import njit


@njit
def squarer(x):
    """S(x), 15 bits. 0 <= x < 2^17.

    Definition: the folded partial products of x^2 are x_i*x_j in column i + j + 1 (i < j) and x_i in
    column 2i; all columns below 19 are left out, and the sum is shifted right by 19.
    With x = 2^9*H + L that leaves H*H less its lowest column and, of the cross terms, x_i*(H >> (9 - i)).
    Source: Oberman and Siu, ARITH-17 (2005); which columns: confirmed by 2^23 H200 results per table.
    """
    high = x >> 9
    cross = ((x >> 8) & 1) * (high >> 1) + ((x >> 7) & 1) * (high >> 2) + ((x >> 6) & 1) * (high >> 3)
    cross = cross + ((x >> 5) & 1) * (high >> 4) + ((x >> 4) & 1) * (high >> 5)
    cross = cross + ((x >> 3) & 1) * (high >> 6) + ((x >> 2) & 1) * (high >> 7)
    return ((high * high) >> 1) + cross

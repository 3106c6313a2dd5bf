"""Scalar functions on int64, pure and compiled: the only place where bits are made and lost.

The dialect (so that one text runs in Numba, in Python and in Triton): int64 everywhere;
`where(c, a, b)` instead of `if`; no early return; no `//`, `%` or `abs`; shift counts in 0..62;
magnitudes below 2^62.
"""

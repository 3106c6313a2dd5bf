"""Compiled loops over the core, and the way from the oracle's Values and policy names to its integers.

All arrays are int64, so that each loop is compiled once.
"""

from fractions import Fraction

import numpy as np

import oracle
from lpsim._jit import njit
from lpsim.core import arith
from lpsim.core.codec import FINITE, INFINITE, NAN, unpack
from lpsim.core.rounding import round_to
from lpsim.policies import VARIANTS, Policy, policy

MODES = ("rne", "rna", "rtz", "rtp", "rtn", "rto")
NAMES = ("add", "sub", "mul", "div", "sqrt", "fma")


def make_policy(rounding="rne", overflow="ieee", nan="canonical", subnormals="keep", bits=0) -> Policy:
    """The Policy row; rounding is one of MODES, or "A", "B", "C" with that many random bits."""
    if rounding in VARIANTS:
        return policy("rne", overflow, nan, subnormals)._replace(rounding=VARIANTS[rounding], noise_bits=bits)
    return policy(rounding, overflow, nan, subnormals)


def number_of(value: oracle.Value, payload: int = 0) -> tuple[int, int, int, int]:
    """(kind, sign, exp, sig) of a Value whose magnitude is an integer below 2^62 times a power of two."""
    sign, x = value
    if isinstance(x, str):
        return (NAN, sign, 0, payload) if x == oracle.NAN else (INFINITE, sign, 0, 0)
    down = (x.numerator & -x.numerator).bit_length() - 1 if x else 0
    sig, exp = x.numerator >> down, down - x.denominator.bit_length() + 1
    assert x == Fraction(sig) * Fraction(2) ** exp, f"{x} is not an integer times a power of two"
    assert sig < 2**62, x
    return FINITE, sign, exp, sig


def numbers(values) -> np.ndarray:
    """int64 (n, 4) array of `number_of`."""
    return np.array([number_of(value) for value in values], dtype=np.int64).reshape(-1, 4)


def value_of(kind: int, sign: int, exp: int, sig: int) -> oracle.Value:
    """The Value of a Number of the core."""
    if kind != FINITE:
        return oracle.Value(int(sign), oracle.NAN if kind == NAN else oracle.INF)
    return oracle.Value(int(sign), int(sig) * Fraction(2) ** int(exp))


@njit
def _round_all(rows, words, fmt, policy, codes):
    for i in range(rows.shape[0]):
        step = round_to(rows[i, 0], rows[i, 1], rows[i, 2], rows[i, 3], fmt, policy, words[i])
        codes[i] = -1 if step.lost else step.code


def round_all(rows: np.ndarray, fmt, policy: Policy, words=0) -> np.ndarray:
    """Codes of the Numbers in the rows, -1 where refused; words: one random integer for all, or one each."""
    codes = np.empty(len(rows), np.int64)
    _round_all(rows, np.broadcast_to(np.asarray(words, np.int64), len(rows)).copy(), fmt, policy, codes)
    return codes


@njit
def _unpack_all(codes, fmt, rows):
    for i in range(codes.shape[0]):
        x = unpack(codes[i], fmt)
        rows[i, 0], rows[i, 1], rows[i, 2], rows[i, 3] = x.kind, x.sign, x.exp, x.sig


def unpack_all(codes, fmt) -> np.ndarray:
    """int64 (n, 4) array of the Numbers that the codes stand for."""
    codes = np.asarray(codes, dtype=np.int64)
    rows = np.empty((len(codes), 4), np.int64)
    _unpack_all(codes, fmt, rows)
    return rows


@njit
def _apply_all(name, a, b, c, source, fmt, policy, words, codes):
    for i in range(a.shape[0]):
        x, y, z = unpack(a[i], source), unpack(b[i], source), unpack(c[i], source)
        if name == 0:
            step = arith.add(x, y, fmt, policy, words[i])
        elif name == 1:
            step = arith.sub(x, y, fmt, policy, words[i])
        elif name == 2:
            step = arith.mul(x, y, fmt, policy, words[i])
        elif name == 3:
            step = arith.div(x, y, fmt, policy, words[i])
        elif name == 4:
            step = arith.sqrt(x, fmt, policy, words[i])
        else:
            step = arith.fma(x, y, z, fmt, policy, words[i])
        codes[i] = -1 if step.lost else step.code


def apply_all(name: str, operands, fmt, policy: Policy, source=None, words=0) -> np.ndarray:
    """Codes of one operation, -1 where refused; operands: int64 arrays of codes of `source` (fmt if None)."""
    operands = [np.ascontiguousarray(operand, np.int64) for operand in operands]
    a, b, c = (*operands, *operands[:1] * (3 - len(operands)))
    codes = np.empty(len(a), np.int64)
    words = np.broadcast_to(np.asarray(words, np.int64), len(a)).copy()
    _apply_all(NAMES.index(name), a, b, c, source or fmt, fmt, policy, words, codes)
    return codes

"""The plain loops over int64 arrays: core functions, element by element. General, and the oracle of every fast one.

a, b, c: bits of binary64 values. words: the random integers R, or an empty array where the rounding needs none.
out: container codes. All arrays are int64, C-contiguous and one-dimensional.
Loops that round return 1 if some answer is NaN and fmt has none, else 0.
"""

import numpy as np

from .._jit import njit
from . import arith
from .codec import FINITE, pack_f64, unpack, unpack_f64
from .philox import random_word
from .rounding import round_to


@njit
def _word(words, i):
    return words[i] if words.size > 0 else 0


@njit
def fill_words(out, start, seed, stream, step, bits):
    """out[i] = the random integer of element start + i."""
    for i in range(out.size):
        out[i] = random_word(np.uint64(start) + np.uint64(i), seed, stream, step, bits)


@njit
def encode(a, out, source, fmt, policy, words):
    """out[i] = a[i] rounded to fmt. source: the format whose subnormals `flush_in` means."""
    lost = 0
    for i in range(out.size):
        x = arith.flush(unpack_f64(a[i]), source, policy)
        step = round_to(x.kind, x.sign, x.exp, x.sig, fmt, policy, _word(words, i))
        out[i] = step.code
        lost |= step.lost
    return lost


@njit
def encode_parts(sign, exp, sig, out, fmt, policy, words):
    """out[i] = (-1)^sign * sig * 2^exp rounded to fmt: integers and fractions that no binary64 holds."""
    lost = 0
    for i in range(out.size):
        step = round_to(FINITE, sign[i], exp[i], sig[i], fmt, policy, _word(words, i))
        out[i] = step.code
        lost |= step.lost
    return lost


@njit
def convert(codes, out, source, fmt, policy, words):
    """out[i] = the value of codes[i] in source, rounded to fmt."""
    lost = 0
    for i in range(out.size):
        x = arith.flush(unpack(codes[i], source), source, policy)
        step = round_to(x.kind, x.sign, x.exp, x.sig, fmt, policy, _word(words, i))
        out[i] = step.code
        lost |= step.lost
    return lost


@njit
def decode(codes, out, fmt):
    """out[i] = bits of the binary64 with the value of codes[i]; codes and out may be one array."""
    for i in range(out.size):
        x = unpack(codes[i], fmt)
        out[i] = pack_f64(x.kind, x.sign, x.exp, x.sig)


@njit
def add(a, b, out, fmt, policy, words):
    """out[i] = a[i] + b[i] rounded to fmt."""
    lost = 0
    for i in range(out.size):
        step = arith.add(unpack_f64(a[i]), unpack_f64(b[i]), fmt, policy, _word(words, i))
        out[i] = step.code
        lost |= step.lost
    return lost


@njit
def sub(a, b, out, fmt, policy, words):
    """out[i] = a[i] - b[i] rounded to fmt."""
    lost = 0
    for i in range(out.size):
        step = arith.sub(unpack_f64(a[i]), unpack_f64(b[i]), fmt, policy, _word(words, i))
        out[i] = step.code
        lost |= step.lost
    return lost


@njit
def mul(a, b, out, fmt, policy, words):
    """out[i] = a[i] * b[i] rounded to fmt."""
    lost = 0
    for i in range(out.size):
        step = arith.mul(unpack_f64(a[i]), unpack_f64(b[i]), fmt, policy, _word(words, i))
        out[i] = step.code
        lost |= step.lost
    return lost


@njit
def div(a, b, out, fmt, policy, words):
    """out[i] = a[i] / b[i] rounded to fmt."""
    lost = 0
    for i in range(out.size):
        step = arith.div(unpack_f64(a[i]), unpack_f64(b[i]), fmt, policy, _word(words, i))
        out[i] = step.code
        lost |= step.lost
    return lost


@njit
def sqrt(a, out, fmt, policy, words):
    """out[i] = the square root of a[i] rounded to fmt."""
    lost = 0
    for i in range(out.size):
        step = arith.sqrt(unpack_f64(a[i]), fmt, policy, _word(words, i))
        out[i] = step.code
        lost |= step.lost
    return lost


@njit
def fma(a, b, c, out, fmt, policy, words):
    """out[i] = a[i] * b[i] + c[i] rounded to fmt."""
    lost = 0
    for i in range(out.size):
        x, y, z = unpack_f64(a[i]), unpack_f64(b[i]), unpack_f64(c[i])
        step = arith.fma(x, y, z, fmt, policy, _word(words, i))
        out[i] = step.code
        lost |= step.lost
    return lost

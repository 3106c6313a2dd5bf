"""Scalar functions on codes, for a user's own @njit code (they run in plain Python too).

    @numba.njit
    def running_sum(codes, fmt):
        total = 0
        for code in codes:
            total = lp_add(total, code, fmt)
        return total

with `lp_add = lp.scalar.add` and `fmt = lp.lookup("bf16")`, an argument or a global. `rules` is a row from
`lp.scalar.policy(rounding="rtz", ...)`, built outside compiled code; its default is nearest-even, ieee,
canonical, subnormals kept. `word` is the random integer R of a stochastic rounding (`random_word`).
Codes go in as integers of any width and come out as int64. The check for an answer that a format has no
code for (NaN in e2m1) is the caller's here: `step` functions of lpsim.core tell.
"""

import numpy as np

from ._jit import njit
from .core import arith, compare
from .core.codec import Number, pack_f64
from .core.codec import unpack as _unpack
from .core.codec import unpack_f64 as _unpack_f64
from .core.intrinsics import bits_to_f32 as _bits_to_f32
from .core.intrinsics import bits_to_f64 as _bits_to_f64
from .core.intrinsics import f32_to_bits as _f32_to_bits
from .core.intrinsics import f64_to_bits as _f64_to_bits
from .core.philox import random_word
from .core.rounding import round_to
from .policies import Policy, policy

DEFAULT = Policy()


@njit
def bits_to_f32(bits):
    """float32 with these 32 bits."""
    return _bits_to_f32(np.int64(bits))


@njit
def f32_to_bits(x):
    """The 32 bits of a float32, as int64. A float64 is narrowed first."""
    return np.int64(_f32_to_bits(np.float32(x)))


@njit
def encode(x, fmt, rules=DEFAULT, word=0):
    """Code of fmt for the float x."""
    n = arith.flush(_unpack_f64(_f64_to_bits(np.float64(x))), fmt, rules)
    return round_to(n.kind, n.sign, n.exp, n.sig, fmt, rules, word).code


@njit
def decode(code, fmt):
    """float64 value of a code; exact."""
    n = _unpack(np.int64(code), fmt)
    return _bits_to_f64(pack_f64(n.kind, n.sign, n.exp, n.sig))


@njit
def convert(code, source, fmt, rules=DEFAULT, word=0):
    """Code of fmt for a code of source."""
    n = arith.flush(_unpack(np.int64(code), source), source, rules)
    return round_to(n.kind, n.sign, n.exp, n.sig, fmt, rules, word).code


@njit
def add(a, b, fmt, rules=DEFAULT, word=0):
    """Code of a + b."""
    return arith.add(_unpack(np.int64(a), fmt), _unpack(np.int64(b), fmt), fmt, rules, word).code


@njit
def sub(a, b, fmt, rules=DEFAULT, word=0):
    """Code of a - b."""
    return arith.sub(_unpack(np.int64(a), fmt), _unpack(np.int64(b), fmt), fmt, rules, word).code


@njit
def mul(a, b, fmt, rules=DEFAULT, word=0):
    """Code of a * b."""
    return arith.mul(_unpack(np.int64(a), fmt), _unpack(np.int64(b), fmt), fmt, rules, word).code


@njit
def div(a, b, fmt, rules=DEFAULT, word=0):
    """Code of a / b."""
    return arith.div(_unpack(np.int64(a), fmt), _unpack(np.int64(b), fmt), fmt, rules, word).code


@njit
def sqrt(a, fmt, rules=DEFAULT, word=0):
    """Code of the square root of a."""
    return arith.sqrt(_unpack(np.int64(a), fmt), fmt, rules, word).code


@njit
def fma(a, b, c, fmt, rules=DEFAULT, word=0):
    """Code of a * b + c, rounded once."""
    x, y, z = _unpack(np.int64(a), fmt), _unpack(np.int64(b), fmt), _unpack(np.int64(c), fmt)
    return arith.fma(x, y, z, fmt, rules, word).code


@njit
def neg(a, fmt):
    """Code of -a; the only NaN or zero of a format stays. Signed formats only."""
    return compare.neg(np.int64(a), fmt)


@njit
def abs(a, fmt):
    """Code of |a|; the only NaN of a format stays."""
    return compare.absolute(np.int64(a), fmt)


@njit
def isnan(a, fmt):
    """True if a is NaN."""
    return compare.is_nan(np.int64(a), fmt) > 0


@njit
def minimum(a, b, fmt):
    """Code of the smaller; NaN if one is NaN (IEEE minimum)."""
    return compare.minimum(np.int64(a), np.int64(b), fmt)


@njit
def maximum(a, b, fmt):
    """Code of the larger; NaN if one is NaN (IEEE maximum)."""
    return compare.maximum(np.int64(a), np.int64(b), fmt)


@njit
def minimum_number(a, b, fmt):
    """Code of the smaller; the number if only one is NaN (IEEE minimumNumber)."""
    return compare.minimum_number(np.int64(a), np.int64(b), fmt)


@njit
def maximum_number(a, b, fmt):
    """Code of the larger; the number if only one is NaN (IEEE maximumNumber)."""
    return compare.maximum_number(np.int64(a), np.int64(b), fmt)


@njit
def order(a, b, fmt):
    """-1, 0, 1 as a is below, equal to, above b; 2 if one is NaN."""
    return compare.order(np.int64(a), np.int64(b), fmt)


__all__ = [
    "Number", "abs", "add", "bits_to_f32", "convert", "decode", "div", "encode", "f32_to_bits", "fma", "isnan",
    "maximum", "maximum_number", "minimum", "minimum_number", "mul", "neg", "order", "policy", "random_word", "sqrt",
    "sub",
]  # fmt: skip

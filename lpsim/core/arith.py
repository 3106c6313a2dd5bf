"""add, sub, mul, div, sqrt, fma: exact on integers, then one `round_to`.

Operands are Numbers (codec.unpack, codec.unpack_f64): any binary64 value, so a sum of two float64
is rounded once to bf16 as well. Every function returns the Rounded step. An exact result is kept in
61 bits, the last of which may mean "or a little more": 33 random bits below the 24 of fp32 still fit.
Source: IEEE 754-2019 5.4.1 (operations), 6.2 (NaN), 6.3 (sign of zero).
"""

from .._jit import njit
from ..policies import RTN
from . import wide
from .bits import bit_length, clamp, shift_sticky, where
from .codec import FINITE, INFINITE, NAN, Number
from .rounding import round_to

FAR = -(1 << 20)  # exponent of a zero that must never set the alignment


@njit
def flush(x, fmt, policy):
    """x, or zero of its sign if it is below fmt's normal range and the policy flushes operands."""
    min_normal_exp = 1 - fmt.exponent_bias
    tiny = (policy.flush_in > 0) & (x.kind == FINITE) & (bit_length(x.sig) + x.exp - 1 < min_normal_exp)
    return Number(x.kind, x.sign, x.exp, where(tiny, 0, x.sig))


@njit
def _first_nan(a, b):
    """a if it is NaN, else b: the operand whose payload a NaN result carries."""
    is_a = a.kind == NAN
    return Number(NAN, where(is_a, a.sign, b.sign), 0, where(is_a, a.sig, b.sig))


@njit
def _special(a, b, invalid, infinite, sign):
    """kind, sign and payload when an operand decides the result: NaN first, then invalid, then infinity."""
    nan = _first_nan(a, b)
    any_nan = (a.kind == NAN) | (b.kind == NAN)
    kind = where(any_nan | invalid, NAN, where(infinite, INFINITE, FINITE))
    sign = where(any_nan, nan.sign, where(invalid, 0, sign))
    return kind, sign, where(any_nan, nan.sig, 0)


@njit
def add(a, b, fmt, policy, word):
    """a + b rounded once.

    NaN if an operand is NaN or the operands are infinities of opposite sign; x + -x = +0 (-0 in rtn).
    The larger operand is moved to the top of 61 bits; what the smaller one loses is at least 59 bits
    below the leading bit of the sum, since sums that cancel have exponents that differ by at most one.
    """
    a = flush(a, fmt, policy)
    b = flush(b, fmt, policy)
    top_a = where(a.sig == 0, FAR, bit_length(a.sig) + a.exp)
    top_b = where(b.sig == 0, FAR, bit_length(b.sig) + b.exp)
    exp = where(top_a > top_b, top_a, top_b) - 60
    sig_a = where(a.sig == 0, 0, shift_sticky(a.sig, a.exp - exp))
    sig_b = where(b.sig == 0, 0, shift_sticky(b.sig, b.exp - exp))

    total = where(a.sign > 0, 0 - sig_a, sig_a) + where(b.sign > 0, 0 - sig_b, sig_b)
    both = a.sign & b.sign
    zero_sign = where(policy.rounding == RTN, a.sign | b.sign, both)
    sign = where(total == 0, zero_sign, where(total < 0, 1, 0))
    total = where(total < 0, 0 - total, total)

    any_infinite = (a.kind == INFINITE) | (b.kind == INFINITE)
    invalid = (a.kind == INFINITE) & (b.kind == INFINITE) & (a.sign != b.sign)
    infinite_sign = where(a.kind == INFINITE, a.sign, b.sign)
    kind, sign, payload = _special(a, b, invalid, any_infinite, where(any_infinite, infinite_sign, sign))
    return round_to(kind, sign, exp, where(kind == FINITE, total, payload), fmt, policy, word)


@njit
def sub(a, b, fmt, policy, word):
    """a - b rounded once: a + (-b), the sign of a NaN operand kept."""
    return add(a, Number(b.kind, where(b.kind == NAN, b.sign, 1 - b.sign), b.exp, b.sig), fmt, policy, word)


@njit
def mul(a, b, fmt, policy, word):
    """a * b rounded once; NaN for infinity times zero."""
    a = flush(a, fmt, policy)
    b = flush(b, fmt, policy)
    hi, lo = wide.multiply(where(a.kind == FINITE, a.sig, 0), where(b.kind == FINITE, b.sig, 0))
    sig, shift = wide.narrow(hi, lo)
    infinite = (a.kind == INFINITE) | (b.kind == INFINITE)
    zero = ((a.kind == FINITE) & (a.sig == 0)) | ((b.kind == FINITE) & (b.sig == 0))
    kind, sign, payload = _special(a, b, infinite & zero, infinite, a.sign ^ b.sign)
    return round_to(kind, sign, a.exp + b.exp + shift, where(kind == FINITE, sig, payload), fmt, policy, word)


@njit
def fma(a, b, c, fmt, policy, word):
    """a * b + c rounded once: the product is exact.

    NaN for infinity times zero, whatever c is, and for opposite infinities. Product and addend are moved to
    the top of 123 bits; see `add` for why what the smaller one loses cannot matter.
    """
    a = flush(a, fmt, policy)
    b = flush(b, fmt, policy)
    c = flush(c, fmt, policy)
    hi, lo = wide.multiply(where(a.kind == FINITE, a.sig, 0), where(b.kind == FINITE, b.sig, 0))
    sig_c = where(c.kind == FINITE, c.sig, 0)
    sign_p = a.sign ^ b.sign
    n_p, n_c = wide.length(hi, lo), bit_length(sig_c)
    top_p = where(n_p == 0, FAR, n_p + a.exp + b.exp)
    top_c = where(n_c == 0, FAR, n_c + c.exp)
    hi, lo = wide.shift_left(hi, lo, 122 - n_p)
    hi_c, lo_c = wide.shift_left(0, sig_c, 122 - n_c)
    top = where(top_p > top_c, top_p, top_c)
    hi, lo = wide.shift_right_sticky(hi, lo, top - top_p)
    hi_c, lo_c = wide.shift_right_sticky(hi_c, lo_c, top - top_c)

    product_larger = (hi > hi_c) | ((hi == hi_c) & (lo >= lo_c))
    big_hi, big_lo = where(product_larger, hi, hi_c), where(product_larger, lo, lo_c)
    small_hi, small_lo = where(product_larger, hi_c, hi), where(product_larger, lo_c, lo)
    sum_hi, sum_lo = wide.add(big_hi, big_lo, small_hi, small_lo)
    gap_hi, gap_lo = wide.subtract(big_hi, big_lo, small_hi, small_lo)
    same = sign_p == c.sign
    sig, shift = wide.narrow(where(same, sum_hi, gap_hi), where(same, sum_lo, gap_lo))
    zero_sign = where(policy.rounding == RTN, sign_p | c.sign, sign_p & c.sign)
    sign = where(sig == 0, zero_sign, where(product_larger, sign_p, c.sign))

    infinite_p = (a.kind == INFINITE) | (b.kind == INFINITE)
    zero = ((a.kind == FINITE) & (a.sig == 0)) | ((b.kind == FINITE) & (b.sig == 0))
    clash = infinite_p & (c.kind == INFINITE) & (sign_p != c.sign)
    invalid = (infinite_p & zero) | (clash & (a.kind != NAN) & (b.kind != NAN))
    infinite_sign = where(infinite_p, sign_p, c.sign)
    any_infinite = infinite_p | (c.kind == INFINITE)
    first = _first_nan(a, b)
    ab = Number(where((a.kind == NAN) | (b.kind == NAN), NAN, FINITE), first.sign, 0, first.sig)
    kind, sign, payload = _special(ab, c, invalid, any_infinite, where(any_infinite, infinite_sign, sign))
    return round_to(kind, sign, top - 122 + shift, where(kind == FINITE, sig, payload), fmt, policy, word)


@njit
def div(a, b, fmt, policy, word):
    """a / b rounded once; x / 0 is infinite, 0 / 0 and infinity / infinity are NaN. 61 quotient bits, one by one."""
    a = flush(a, fmt, policy)
    b = flush(b, fmt, policy)
    up_a, up_b = 53 - bit_length(a.sig), 53 - bit_length(b.sig)
    remainder = where(a.kind == FINITE, a.sig, 0) << clamp(up_a, 0, 53)
    divisor = where((b.kind == FINITE) & (b.sig > 0), b.sig << clamp(up_b, 0, 52), 1 << 52)
    quotient = remainder & 0
    for _ in range(61):
        fits = where(remainder >= divisor, 1, 0)
        quotient = (quotient << 1) | fits
        remainder = (remainder - divisor * fits) << 1
    quotient = quotient | where(remainder > 0, 1, 0)

    zero_a = (a.kind == FINITE) & (a.sig == 0)
    zero_b = (b.kind == FINITE) & (b.sig == 0)
    both_infinite = (a.kind == INFINITE) & (b.kind == INFINITE)
    infinite = (a.kind == INFINITE) | (zero_b & (a.kind == FINITE))
    kind, sign, payload = _special(a, b, (zero_a & zero_b) | both_infinite, infinite, a.sign ^ b.sign)
    quotient = where(b.kind == INFINITE, 0, quotient)
    exp = (a.exp - up_a) - (b.exp - up_b) - 60
    return round_to(kind, sign, exp, where(kind == FINITE, quotient, payload), fmt, policy, word)


@njit
def sqrt(a, fmt, policy, word):
    """Square root rounded once; NaN below zero, sqrt(-0) = -0. 59 root bits, one by one; the first may be 0."""
    a = flush(a, fmt, policy)
    up = 54 - bit_length(a.sig)
    up = up + ((a.exp - up) & 1)  # an even exponent
    radicand = shift_sticky(where(a.kind == FINITE, a.sig, 0), where(a.sig == 0, 0, up))
    root = radicand & 0
    remainder = radicand & 0
    for i in range(59):
        pair = where(i < 28, (radicand >> clamp(54 - 2 * i, 0, 62)) & 3, 0)
        remainder = (remainder << 2) | pair
        trial = (root << 2) | 1
        fits = where(remainder >= trial, 1, 0)
        remainder = remainder - trial * fits
        root = (root << 1) | fits
    root = root | where(remainder > 0, 1, 0)

    zero = (a.kind == FINITE) & (a.sig == 0)
    invalid = (a.sign > 0) & (a.kind != NAN) & (zero == False)  # noqa: E712  `not` is no operation on a Triton block
    kind, sign, payload = _special(a, a, invalid, a.kind == INFINITE, a.sign)
    exp = ((a.exp - up) >> 1) - 31
    return round_to(kind, sign, exp, where(kind == FINITE, root, payload), fmt, policy, word)


__all__ = ["add", "div", "flush", "fma", "mul", "sqrt", "sub"]

"""AMD's matrix cores in integers: the exact sum of CDNA1 and the floored one of CDNA3.

Source: arXiv 2511.10909 (E-FDPA, TR-FDPA, GTR-FDPA). Results go to fp32, to nearest even. NaN is 0x7FFFFFFF here;
what the hardware's NaN looks like is not known.
"""

from .._jit import njit
from ..dot_units import NOT_WIDENED, DotUnit
from ..policies import RNE
from . import kulisch
from .bits import bit_length, clamp, where
from .codec import FINITE, INFINITE
from .dpa import Term, accumulator, finish, joined_kind, product

NO_EXPONENT = -(1 << 12)  #: below every exponent
OVERFLOWS = 128  #: a product of 2^128 or more is infinite in a FloorUnit


@njit
def nearest(fraction_bits, e_zero):
    """What these units share with a DotUnit that rounds to nearest fp32."""
    return DotUnit(1, fraction_bits, RNE, 23, e_zero, 8, 23, 2, NOT_WIDENED)


@njit
def exact_block(a, b, c, first, a_fmt, b_fmt, unit, limbs):
    """E-FDPA: code of c plus the products of `unit.lanes` k from `first`, added exactly, rounded once.

    a, b: int64 codes; k beyond their end count as zeros. limbs: scratch, `kulisch.new()`.
    """
    plain = nearest(0, 0)
    kulisch.clear(limbs)
    term = accumulator(c, plain)
    kind, sign = term.kind, term.sign
    kulisch.add(limbs, term.sign, term.exp, term.sig)
    for k in range(first, min(first + unit.lanes, len(a))):
        term = product(a[k], b[k], a_fmt, b_fmt, plain)
        kind, sign = joined_kind(kind, sign, term)
        kulisch.add(limbs, term.sign, term.exp, term.sig)
    negative, exp, sig = kulisch.total(limbs)
    total = where(kind == FINITE, where(negative > 0, 0 - sig, sig), 0)
    return finish(kind, sign, exp, total, plain).code


@njit
def exact_dot(a, b, c, a_fmt, b_fmt, unit, limbs):
    """Code of the chained dot of two 1-D int64 arrays of codes on the accumulator's code c: an ExactUnit."""
    for first in range(0, len(a), unit.lanes):
        c = exact_block(a, b, c, first, a_fmt, b_fmt, unit, limbs)
    return c


@njit
def floor_shift(x, n):
    """x * 2^n, rounded toward -infinity. |x| * 2^n < 2^62."""
    return where(n >= 0, x << clamp(n, 0, 62), x >> clamp(0 - n, 0, 62))


@njit
def bounded_product(a, b, a_fmt, b_fmt, plain):
    """The exact product as a Term; infinite from 2^128 on."""
    term = product(a, b, a_fmt, b_fmt, plain)
    large = (term.kind == FINITE) & (bit_length(term.sig) + term.exp > OVERFLOWS)
    return Term(where(large, INFINITE, term.kind), term.sign, term.exp, where(large, 0, term.sig), term.e)


@njit
def truncated_sum(a, b, first, step, a_fmt, b_fmt, unit):
    """(kind, sign, e, total): products of k = first, first + step, .. of one block, cut at 2^(e - fraction_bits).

    e: the largest exponent of these products; a zero, and a k beyond the end, takes part with e_zero.
    """
    plain = nearest(unit.fraction_bits, unit.e_zero)
    stop = first - first % unit.lanes + unit.lanes
    kind, sign, e = FINITE, 0, where(stop > len(a), unit.e_zero, NO_EXPONENT)
    stop = min(stop, len(a))
    for k in range(first, stop, step):
        term = bounded_product(a[k], b[k], a_fmt, b_fmt, plain)
        kind, sign = joined_kind(kind, sign, term)
        e = max(e, term.e)
    total = 0
    for k in range(first, stop, step):
        term = bounded_product(a[k], b[k], a_fmt, b_fmt, plain)
        shift = term.exp - (e - unit.fraction_bits)
        magnitude = where(shift >= 0, term.sig << clamp(shift, 0, 62), term.sig >> clamp(0 - shift, 0, 62))
        total += where(term.sign > 0, 0 - magnitude, magnitude)
    return kind, sign, e, total


@njit
def floor_block(a, b, c, first, a_fmt, b_fmt, unit):
    """TR-FDPA (halves 1) or GTR-FDPA (halves 2): code of c plus the products of `unit.lanes` k from `first`.

    1. the products of each half: truncated at the half's largest exponent, added
    2. the halves: floored at the larger of their exponents, e, added
    3. with E the larger of e and c's exponent: the sum floored at 2^(E - joint_bits), c at 2^(E - fraction_bits)
    4. the total rounded to nearest even
    """
    plain = nearest(unit.joint_bits, unit.e_zero)
    kind, sign, e, total = truncated_sum(a, b, first, unit.halves, a_fmt, b_fmt, unit)
    if unit.halves == 2:
        kind2, sign2, e2, total2 = truncated_sum(a, b, first + 1, 2, a_fmt, b_fmt, unit)
        kind, sign = joined_kind(kind, sign, Term(kind2, sign2, 0, 0, 0))
        top = max(e, e2)
        total = floor_shift(total, e - top) + floor_shift(total2, e2 - top)
        e = top
    addend = accumulator(c, plain)
    kind, sign = joined_kind(kind, sign, addend)
    top = max(e, addend.e)
    signed = where(addend.sign > 0, 0 - addend.sig, addend.sig)
    floored = floor_shift(signed, addend.exp - (top - unit.fraction_bits))
    floored = where((unit.drop > 0) & (addend.e < top - unit.drop), 0, floored)
    extra = unit.joint_bits - unit.fraction_bits
    total = floor_shift(total, e - top + extra) + floor_shift(floored, extra)
    return finish(kind, sign, top, total, plain).code


@njit
def floor_dot(a, b, c, a_fmt, b_fmt, unit):
    """Code of the chained dot of two 1-D int64 arrays of codes on the accumulator's code c: a FloorUnit."""
    for first in range(0, len(a), unit.lanes):
        c = floor_block(a, b, c, first, a_fmt, b_fmt, unit)
    return c

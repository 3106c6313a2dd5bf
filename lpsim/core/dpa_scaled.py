"""Block-scaled dots in integers: the truncated fused dot-product-add with scales as operands.

As `dpa`, with two changes. ST-FDPA: the exponents of both scales are added to a product's. GST-FDPA: the products of
a group of k are summed exactly first, multiplied by the significands of both scales, and take part in the
alignment with the scales' exponents alone, however large the sum is. Source: arXiv 2511.10909.
"""

from .._jit import njit
from ..dot_units import NOT_WIDENED, DotUnit
from ..policies import RTZ
from .bits import where
from .codec import FINITE, NAN, min_exp, unpack
from .dpa import Term, accumulator, finish, joined_kind, operand_exponent, product, truncated


@njit
def as_dot_unit(unit):
    """What a scaled unit shares with a DotUnit that truncates to fp32."""
    return DotUnit(unit.lanes, unit.fraction_bits, RTZ, 23, unit.e_zero, 8, 23, 2, NOT_WIDENED)


@njit
def group_term(a, b, first, a_scale, b_scale, formats, unit):
    """The products of `unit.group` k from `first`, scaled, as one Term. k beyond the end count as zeros.

    NaN if a scale is NaN, whatever the elements are. formats: of a, of b, of the scales. The exact sum of a group
    needs products within 40 bits of each other (e2m1, e2m3, e3m2, e4m3fn).
    """
    a_fmt, b_fmt, scale_fmt = formats
    plain = as_dot_unit(unit)
    x, y = unpack(a_scale, scale_fmt), unpack(b_scale, scale_fmt)
    scales_e = operand_exponent(x, scale_fmt, plain) + operand_exponent(y, scale_fmt, plain)
    lowest = min_exp(a_fmt) + min_exp(b_fmt)
    kind, sign, total, e, zeros = FINITE, 0, 0, unit.e_zero, True
    for k in range(first, min(first + unit.group, len(a))):
        term = product(a[k], b[k], a_fmt, b_fmt, plain)
        kind, sign = joined_kind(kind, sign, term)
        moved = term.sig << (term.exp - lowest) if term.sig > 0 else 0
        total += where(term.sign > 0, 0 - moved, moved)
        e = where((term.sig > 0) & (unit.group == 1), term.e + scales_e, e)
        zeros = zeros & (term.sig == 0)
    e = where((unit.group > 1) & (not zeros), scales_e, e)
    kind = where((x.kind == NAN) | (y.kind == NAN), NAN, kind)
    magnitude = where(total < 0, 0 - total, total) * x.sig * y.sig
    sign = where(kind == FINITE, where(total < 0, 1, 0), sign)
    return Term(kind, sign, lowest + x.exp + y.exp, where(kind == FINITE, magnitude, 0), e)


@njit
def block(a, b, c, number, a_scales, b_scales, formats, unit):
    """One ST-FDPA or GST-FDPA on the accumulator's code c: the k from number * lanes. Result: dpa.Block.

    a, b: int64 codes, equally long; a_scales, b_scales: int64 codes, one for each scale_block of k.
    """
    plain = as_dot_unit(unit)
    term = accumulator(c, plain)
    kind, sign, e_max = term.kind, term.sign, term.e
    start, stop = number * unit.lanes, min((number + 1) * unit.lanes, len(a))
    for first in range(start, stop, unit.group):
        which = first // unit.scale_block
        term = group_term(a, b, first, a_scales[which], b_scales[which], formats, unit)
        kind, sign = joined_kind(kind, sign, term)
        e_max = max(e_max, term.e)
    total = truncated(accumulator(c, plain), e_max, plain)
    for first in range(start, stop, unit.group):
        which = first // unit.scale_block
        term = group_term(a, b, first, a_scales[which], b_scales[which], formats, unit)
        total += truncated(term, e_max, plain)
    return finish(kind, sign, e_max, total, plain)


@njit
def dot(a, b, c, a_scales, b_scales, formats, unit):
    """Code of the chained dot of two 1-D int64 arrays of codes, with their scales, on the accumulator's code c."""
    for number in range((len(a) + unit.lanes - 1) // unit.lanes):
        c = block(a, b, c, number, a_scales, b_scales, formats, unit).code
    return c

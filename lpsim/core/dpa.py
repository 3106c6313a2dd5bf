"""The tensor core's dot in integers: the truncated fused dot-product-add, one block after another.

The reference: short, exact, slow. `dots` computes the same bits faster and is compared with it.
Source: arXiv 2511.10909 (T-FDPA); parameters in `machines`.

One block, for `lanes` products and the accumulator c:
  1. a term is an exact product, significand times significand, not normalised, or c itself; its exponent
     is the sum of the operands' exponents; a zero term has exponent e_zero
  2. the largest exponent E of the block says where everything is cut: each term is truncated toward zero
     to a multiple of 2^(E - fraction_bits)
  3. these integers are added exactly (so their order is irrelevant) and the sum is rounded once
"""

from typing import NamedTuple

from .._jit import njit
from ..formats import Format
from ..policies import CANONICAL, IEEE, Policy
from .bits import bit_length, clamp, where
from .codec import FINITE, INFINITE, NAN, infinity_code, min_exp, unpack
from .rounding import round_to


class Term(NamedTuple):
    """One addend: (-1)^sign * sig * 2^exp, taking part in the alignment with exponent e."""

    kind: int
    sign: int
    exp: int
    sig: int
    e: int


class Block(NamedTuple):
    """One block, with what decided it."""

    code: int  #: the new accumulator, container form
    e_max: int  #: the exponent that the terms were aligned to
    total: int  #: the sum of the truncated terms, in units of 2^(e_max - fraction_bits)
    kind: int  #: FINITE, INFINITE or NAN


@njit
def accumulator_format(unit):
    """Format of c and of the result's container: fp32 or fp16."""
    w, f = unit.exponent_bits, unit.accumulator_fraction
    return Format(1 + w + f, f + 1, (1 << (w - 1)) - 1, (1 << f) - 1, 1, 1, 1, 1, 1, 0)


@njit
def output_format(unit):
    """What the sum is rounded to: perhaps fewer fraction bits, in the accumulator's container."""
    w, f = unit.exponent_bits, unit.output_fraction
    return Format(1 + w + f, f + 1, (1 << (w - 1)) - 1, (1 << f) - 1, 1, 1, 1, 1, 1, unit.accumulator_fraction - f)


@njit
def operand_exponent(x, fmt, unit):
    """Exponent of a finite operand: of its leading bit, or of the lowest binade if x lies below that.

    Conversion to a wider format lowers that bound and so normalises some subnormals.
    """
    own = min_exp(fmt) + fmt.precision - 1
    lowest = where(unit.widened_emin < own, unit.widened_emin, own)
    leading = bit_length(x.sig) - 1 + x.exp
    return where(leading < lowest, lowest, leading)


@njit
def product(a, b, a_fmt, b_fmt, unit):
    """The exact product of two codes as a Term. NaN * _, Inf * 0 -> NaN; Inf * _ -> Inf."""
    x = unpack(a, a_fmt)
    y = unpack(b, b_fmt)
    x_zero = (x.kind == FINITE) & (x.sig == 0)
    y_zero = (y.kind == FINITE) & (y.sig == 0)
    is_inf = (x.kind == INFINITE) | (y.kind == INFINITE)
    is_nan = (x.kind == NAN) | (y.kind == NAN) | (is_inf & (x_zero | y_zero))
    kind = where(is_nan, NAN, where(is_inf, INFINITE, FINITE))
    sig = where(kind == FINITE, x.sig * y.sig, 0)
    e = operand_exponent(x, a_fmt, unit) + operand_exponent(y, b_fmt, unit)
    return Term(kind, x.sign ^ y.sign, x.exp + y.exp, sig, where(sig == 0, unit.e_zero, e))


@njit
def accumulator(code, unit):
    """The accumulator's code as a Term."""
    fmt = accumulator_format(unit)
    c = unpack(code, fmt)
    sig = where(c.kind == FINITE, c.sig, 0)
    return Term(c.kind, c.sign, c.exp, sig, where(sig == 0, unit.e_zero, c.exp + fmt.precision - 1))


@njit
def truncated(term, e_max, unit):
    """The term as a signed integer in units of 2^(e_max - fraction_bits), cut toward zero."""
    shift = term.exp - (e_max - unit.fraction_bits)
    magnitude = where(shift >= 0, term.sig << clamp(shift, 0, 62), term.sig >> clamp(0 - shift, 0, 62))
    return where(term.sign > 0, 0 - magnitude, magnitude)


@njit
def joined_kind(kind, sign, term):
    """Kind and sign of a sum to which a term is added, Inf and NaN only: Inf - Inf and NaN are NaN."""
    clash = (kind == INFINITE) & (term.kind == INFINITE) & (sign != term.sign)
    is_nan = (kind == NAN) | (term.kind == NAN) | clash
    is_inf = (kind == INFINITE) | (term.kind == INFINITE)
    return where(is_nan, NAN, where(is_inf, INFINITE, FINITE)), where(kind == INFINITE, sign, term.sign)


@njit
def finish(kind, sign, e_max, total, unit):
    """The block's result: the sum rounded once, Inf above the largest finite value in every mode.

    NaN             -> all ones below a clear sign (0x7FFFFFFF)
    rounded to zero -> +0, whatever the sign of the sum
    """
    fmt = output_format(unit)
    magnitude = where(total < 0, 0 - total, total)
    sign = where(kind == FINITE, where(total < 0, 1, 0), sign)
    policy = Policy(unit.rounding, IEEE, CANONICAL, 0, 0, 0)
    step = round_to(kind, sign, e_max - unit.fraction_bits, magnitude, fmt, policy, 0)
    code = where((step.overflow > 0) | (kind == INFINITE), infinity_code(sign, fmt) << fmt.pad, step.code)
    is_zero = (code << 1) & ((1 << (fmt.bits + fmt.pad)) - 1) == 0
    code = where(is_zero, 0, code)
    return Block(where(kind == NAN, (1 << (fmt.bits + fmt.pad - 1)) - 1, code), e_max, total, kind)


@njit
def block(a, b, c, number, a_fmt, b_fmt, unit):
    """One T-FDPA: codes a[k], b[k] for the k of `block_k(number, lane, unit)`, and the accumulator's code c.

    a, b: 1-D int64 arrays of codes, equally long; k beyond their end count as zeros. Result: Block.
    """
    term = accumulator(c, unit)
    kind, sign, e_max = term.kind, term.sign, term.e
    for lane in range(unit.lanes):
        k = block_k(number, lane, unit)
        term = product(a[k], b[k], a_fmt, b_fmt, unit) if k < len(a) else Term(FINITE, 0, 0, 0, unit.e_zero)
        kind, sign = joined_kind(kind, sign, term)
        e_max = max(e_max, term.e)
    total = truncated(accumulator(c, unit), e_max, unit)
    for lane in range(unit.lanes):
        k = block_k(number, lane, unit)
        if k < len(a):
            total += truncated(product(a[k], b[k], a_fmt, b_fmt, unit), e_max, unit)
    return finish(kind, sign, e_max, total, unit)


@njit
def block_k(number, lane, unit):
    """Which k the given lane of the block of this number multiplies.

    Registers hold runs of k_width consecutive k, and each block takes two of every run: with k_width 4 and
    16 lanes the first block of 32 k takes those with k mod 4 in {0, 1}, the second the others.
    """
    turns = max(unit.k_width >> 1, 1)  # blocks that share a slab of k
    if turns == 1:
        return number * unit.lanes + lane
    slab, turn = number // turns, number % turns
    return slab * unit.lanes * turns + (lane >> 1) * unit.k_width + 2 * turn + (lane & 1)


@njit
def block_count(k, unit):
    """Blocks in a dot of length k; whole slabs, padded with zeros."""
    turns = max(unit.k_width >> 1, 1)
    slab = unit.lanes * turns
    return (k + slab - 1) // slab * turns


@njit
def dot(a, b, c, a_fmt, b_fmt, unit):
    """Code of the chained dot of two 1-D int64 arrays of codes on the accumulator's code c."""
    for number in range(block_count(len(a), unit)):
        c = block(a, b, c, number, a_fmt, b_fmt, unit).code
    return c

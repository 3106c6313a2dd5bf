"""Every kind of dot in exact rationals, one output at a time: what `lpsim.dot_kinds` is compared with.

Written from the definitions (arXiv 2511.10909; PTX ISA for integers), on the numbers of tests/oracle.py. Operands and
accumulators are codes; results are codes of fp32 (fp16 where said), NaN is None.
"""

import math
from fractions import Fraction

from lpsim.formats import FORMATS
from oracle import INF, NAN, Value, decode, encode

FP32, FP16 = FORMATS["fp32"], FORMATS["fp16"]
TWO = Fraction(2)


def signed(x: Value) -> Fraction:
    return -x.magnitude if x.sign else x.magnitude


def product(x: Value, y: Value) -> Value:
    sign = x.sign ^ y.sign
    magnitudes = {x.magnitude, y.magnitude}
    if NAN in magnitudes or (INF in magnitudes and 0 in magnitudes):
        return Value(0, NAN)
    return Value(sign, INF) if INF in magnitudes else Value(sign, x.magnitude * y.magnitude)


def special(terms) -> Value | None:
    """The sum if a term is NaN or infinite, else None."""
    kinds = [x for x in terms if x.magnitude in (NAN, INF)]
    if not kinds:
        return None
    clash = len({x.sign for x in kinds}) > 1
    return Value(0, NAN) if clash or any(x.magnitude == NAN for x in kinds) else kinds[0]


def code(x: Value | Fraction, rounding: str, fmt=FP32):
    """Code of a result rounded once; None for NaN, +0 for every zero."""
    if isinstance(x, Fraction):
        x = Value(int(x < 0), abs(x))
    if x.magnitude == NAN:
        return None
    infinite = x.magnitude != INF and rounding == "rtz" and x.magnitude >= TWO ** (fmt.exponent_bias + 1)
    found = encode(Value(x.sign, INF) if infinite else x, fmt, rounding)
    return 0 if not found % 2 ** (fmt.bits - 1) else found


def operand_exponent(magnitude: Fraction, fmt) -> int:
    """Of the leading bit, or of the smallest normal number below it."""
    lowest = fmt.subnormals - fmt.exponent_bias
    return max(lowest, floor_log2(magnitude)) if magnitude else lowest


def floor_log2(x: Fraction) -> int:
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if x >= TWO**e else e - 1


def scaled_block(a, b, c, scales, formats, unit):
    """ST-FDPA and GST-FDPA. scales: (of a, of b) for each scale_block."""
    a_fmt, b_fmt, scale_fmt = formats
    terms, exponents = [], []
    for first in range(0, len(a), unit.group):
        sa, sb = (decode(x, scale_fmt) for x in scales[first // unit.scale_block])
        xs = [(decode(x, a_fmt), decode(y, b_fmt)) for x, y in zip(a, b, strict=True)][first : first + unit.group]
        products = [product(x, y) for x, y in xs]
        if NAN in (sa.magnitude, sb.magnitude):
            products = [Value(0, NAN)]
        found = special(products)
        e = operand_exponent(sa.magnitude, scale_fmt) + operand_exponent(sb.magnitude, scale_fmt) if not found else 0
        if found:
            terms.append(found)
            continue
        total = sum((signed(x) for x in products), Fraction(0)) * sa.magnitude * sb.magnitude
        if unit.group == 1:
            e += sum(operand_exponent(x.magnitude, fmt) for x, fmt in zip(xs[0], (a_fmt, b_fmt), strict=True))
        terms.append(Value(int(total < 0), abs(total)))
        exponents.append(e if any(x.magnitude for x in products) else unit.e_zero)
    start = decode(c, FP32)
    if (found := special([*terms, start])) is not None:
        return code(found, "rtz")
    exponents.append(operand_exponent(start.magnitude, FP32) if start.magnitude else unit.e_zero)
    step = TWO ** (max(exponents) - unit.fraction_bits)
    return code(sum(math.trunc(signed(x) / step) for x in [*terms, start]) * step, "rtz")


def exact_block(a, b, c, a_fmt, b_fmt):
    """E-FDPA: one rounding of the exact sum."""
    terms = [product(decode(x, a_fmt), decode(y, b_fmt)) for x, y in zip(a, b, strict=True)] + [decode(c, FP32)]
    found = special(terms)
    return code(sum((signed(x) for x in terms), Fraction(0)) if found is None else found, "rne")


def floor_block(a, b, c, a_fmt, b_fmt, unit):
    """TR-FDPA and GTR-FDPA."""
    factors = [(decode(x, a_fmt), decode(y, b_fmt)) for x, y in zip(a, b, strict=True)]
    products = [product(x, y) for x, y in factors]
    products = [
        Value(x.sign, INF) if x.magnitude not in (NAN, INF) and x.magnitude >= TWO**128 else x for x in products
    ]
    start = decode(c, FP32)
    if (found := special([*products, start])) is not None:
        return code(found, "rne")
    halves = [
        _half(products[i :: unit.halves], factors[i :: unit.halves], a_fmt, b_fmt, unit) for i in range(unit.halves)
    ]
    e = max(x for x, _ in halves)
    step = TWO ** (e - unit.fraction_bits)
    total = halves[0][1] if unit.halves == 1 else sum(math.floor(x / step) for _, x in halves) * step
    c_e = operand_exponent(start.magnitude, FP32) if start.magnitude else unit.e_zero
    top = max(e, c_e)
    joint, own = TWO ** (top - unit.joint_bits), TWO ** (top - unit.fraction_bits)
    addend = 0 if unit.drop and c_e < top - unit.drop else math.floor(signed(start) / own) * own
    return code(math.floor(total / joint) * joint + addend, "rne")


def _half(products, factors, a_fmt, b_fmt, unit):
    """(largest exponent, sum of the products truncated there)."""
    exponents = [
        operand_exponent(x.magnitude, a_fmt) + operand_exponent(y.magnitude, b_fmt)
        if x.magnitude and y.magnitude
        else unit.e_zero
        for x, y in factors
    ]
    step = TWO ** (max(exponents) - unit.fraction_bits)
    return max(exponents), sum(math.trunc(signed(x) / step) for x in products) * step


def integer_dot(a, b, c, unit):
    """int32: k products at a time, exact, then wrapped or clamped."""
    for first in range(0, len(a), unit.k):
        c += sum(x * y for x, y in zip(a[first : first + unit.k], b[first : first + unit.k], strict=True))
        c = min(max(c, -(2**31)), 2**31 - 1) if unit.saturates else (c + 2**31) % 2**32 - 2**31
    return c


def flushed(x: Fraction, smallest: Fraction) -> Fraction:
    return Fraction(0) if abs(x) < smallest else x


def flush_dot(a, b, c, a_fmt, b_fmt, unit):
    """FTZ-AddMul on finite operands; zeros have no sign here, which changes no sum but that of zeros."""
    smallest = TWO**-126

    def rounded(x: Fraction) -> Fraction:
        found = decode(encode(Value(int(x < 0), abs(x)), FP32, "rne"), FP32)
        return flushed(signed(found), smallest)

    xs, ys = (
        [flushed(signed(decode(x, fmt)), TWO ** (1 - fmt.exponent_bias)) for x in codes]
        for codes, fmt in ((a, a_fmt), (b, b_fmt))
    )
    total = flushed(signed(decode(c, FP32)), smallest)
    products = [rounded(x * y) for x, y in zip(xs, ys, strict=True)]
    for first in range(0, len(products), unit.group):
        terms = products[first : first + unit.group]
        while len(terms) > 1:
            terms = [rounded(x + y) for x, y in zip(terms[::2], terms[1::2], strict=True)]
        total = rounded(total + terms[0])
    return code(total, "rne")

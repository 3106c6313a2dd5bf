"""The exact-rational oracle: what a format, a rounding and an operation are, from their definitions.

Nothing here is taken from the code under test but the rows of `lpsim.formats`, as plain integers. A
number is rounded by looking for its two neighbours among the values that the codes stand for, with
Fractions; there are no shifts, no guard and no sticky bits, so no mistake in handling them can be shared.
Sources: IEEE 754-2019 3.4, 4.3, 5.4.1, 6.2, 6.3, 7.4; OCP OFP8 1.0 and MX 1.0; IEEE P3109 (interim
report) for stochastic rounding and formats without -0. Where they are silent: ties go to the even *code*;
round-to-odd and modes that point toward zero stop at the largest finite value; see also `encode`.
"""

from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

NAN, INF = "nan", "inf"


class Value(NamedTuple):
    """A sign and an exact magnitude (a Fraction, INF or NAN). The sign tells -0 from +0."""

    sign: int
    magnitude: Fraction | str


def number(x) -> Value:
    """The Value of a Python number (a float is taken exactly, its sign of zero included)."""
    if isinstance(x, float):
        sign = int(str(x).startswith("-"))
        if x != x or x in (float("inf"), float("-inf")):
            return Value(sign, NAN if x != x else INF)
        return Value(sign, abs(Fraction(x)))
    return Value(int(x < 0), abs(Fraction(x)))


# Codes --------------------------------------------------------------------------------------------


def largest(fmt) -> int:
    """Magnitude of the largest finite code: infinity and the NaNs stand above it."""
    return 2 ** (fmt.bits - fmt.signed) - 1 - fmt.nans - fmt.infinity


@lru_cache(maxsize=1 << 17)
def grid(magnitude: int, fmt) -> Fraction:
    """Value of a magnitude, whether or not the format uses it for something else."""
    field, fraction = divmod(magnitude, 2 ** (fmt.precision - 1))
    fraction = Fraction(fraction, 2 ** (fmt.precision - 1))
    if field == 0 and fmt.subnormals:
        return fraction * Fraction(2) ** (1 - fmt.exponent_bias)
    return (1 + fraction) * Fraction(2) ** (field - fmt.exponent_bias)


def decode(code: int, fmt) -> Value:
    """The Value of a code in container form."""
    code >>= fmt.pad
    half = 2 ** (fmt.bits - 1)
    sign, magnitude = divmod(code, half) if fmt.signed else (0, code)
    if magnitude > largest(fmt) + fmt.infinity:
        return Value(sign, NAN)
    if magnitude > largest(fmt):
        return Value(sign, INF)
    if sign and magnitude == 0 and not fmt.negative_zero:
        return Value(0, NAN)
    return Value(sign, grid(magnitude, fmt))


def nan_code(sign: int, payload: int, fmt, nan: str) -> int | None:
    """The NaN a policy asks for, without padding; None if there is none. payload: 52 bits, as in binary64."""
    if fmt.nans == 0:
        return 2 ** (fmt.bits - 1) if fmt.signed and not fmt.negative_zero else None
    top = 2 ** (fmt.bits - fmt.signed) - 1
    signed = sign * fmt.signed * 2 ** (fmt.bits - 1)
    if nan == "nvidia":
        return top
    if fmt.nans == 1 or nan == "ones":
        return top + signed
    trailing = fmt.precision - 1
    if fmt.nans != 2**trailing - 1:
        raise ValueError(f"{fmt}: which of its NaNs is canonical is not defined")
    quiet = top - 2 ** (trailing - 1) + 1  # all ones in the exponent field, the leading fraction bit
    return (quiet | (payload >> (52 - trailing) if nan == "propagate" else 0)) + signed


# Rounding -----------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 17)
def neighbours(x: Fraction, fmt) -> tuple[int, Fraction]:
    """(m, nu): x lies the fraction nu, 0 <= nu < 1, of the way from the value of m to that of m + 1.

    The grid goes on above the largest finite value. Below a grid without zero: its lowest value, nu = 0.
    The guess assumes equal steps within a binade; that the answer encloses x is checked, not assumed.
    """
    if x < grid(0, fmt):
        return 0, Fraction(0)
    field = x.numerator.bit_length() - x.denominator.bit_length() + fmt.exponent_bias if x else 0
    if x < grid(max(field, 0) * 2 ** (fmt.precision - 1), fmt):
        field -= 1
    first = max(field, 0) * 2 ** (fmt.precision - 1)
    m = first + int((x - grid(first, fmt)) / (grid(first + 1, fmt) - grid(first, fmt)))
    below, above = grid(m, fmt), grid(m + 1, fmt)
    assert below <= x < above, (x, fmt, m)
    return m, (x - below) / (above - below)


def nearest_integer(x: Fraction) -> int:
    """x to the nearest integer, ties to even (that is how Fractions round)."""
    return round(x)


def grows(m: int, nu: Fraction, sign: int, rounding: str, bits: int, word: int) -> bool:
    """Whether the magnitude m becomes m + 1."""
    half = Fraction(1, 2)
    if rounding == "rne":
        return nu > half or (nu == half and m % 2 == 1)
    if rounding == "rna":
        return nu >= half
    if rounding == "rtz":
        return False
    if rounding == "rtp":
        return nu > 0 and not sign
    if rounding == "rtn":
        return nu > 0 and bool(sign)
    if rounding == "rto":
        return nu > 0 and m % 2 == 0
    if rounding == "A":
        return nu * 2**bits // 1 + word >= 2**bits
    if rounding == "B":
        return nu * 2 ** (bits + 1) // 1 + 2 * word + 1 >= 2 ** (bits + 1)
    if rounding == "C":
        return nearest_integer(nu * 2**bits) + word >= 2**bits
    raise ValueError(rounding)


def encode(value: Value, fmt, rounding="rne", overflow="ieee", nan="canonical", **more) -> int | None:
    """The code, in container form, of a Value rounded once; None (refused) for NaN in a format without.

    NaN: the policy's; where there is none, "nvidia" gives the largest value (PTX cvt to e2m1, e2m3, e3m2).
    Infinity: itself, or NaN where there is none; satfinite clamps.
    Rounded above the largest value: as infinity under ieee unless the mode points inward; else clamped.
    Negative into unsigned: NaN under ieee and where there is no zero, else zero (saturate leaves -Inf NaN);
    what rounds to -0 is zero.
    Zero where there is none: NaN. -0 where there is none: zero. Flushing acts on the rounded result.
    more: flush_out=False, bits=0, word=0 (stochastic), payload=0 (of a NaN).
    """
    answer = _answer(value, fmt, rounding, overflow, more)
    if answer == NAN:
        answer = nan_code(value.sign, more.get("payload", 0), fmt, nan)
        if answer is None and value.magnitude == NAN and nan == "nvidia":
            answer = largest(fmt)
    return None if answer is None else answer << fmt.pad


def _answer(value: Value, fmt, rounding: str, overflow: str, more: dict):
    """The code without padding, or NAN."""
    sign, x = value
    if x == NAN or (x == 0 and not fmt.zero):
        return NAN
    if x == INF:
        m, over, clamps = largest(fmt), True, overflow == "satfinite"
    else:
        m, nu = neighbours(x, fmt)
        m += grows(m, nu, sign, rounding, more.get("bits", 0), more.get("word", 0))
        inward = rounding in ("rtz", "rto") or rounding == ("rtn", "rtp")[sign]
        over, clamps = m > largest(fmt), overflow != "ieee" or inward
        if more.get("flush_out") and fmt.subnormals and m < 2 ** (fmt.precision - 1):
            m = 0
    signed = sign * 2 ** (fmt.bits - 1) if fmt.signed else 0
    if sign and not fmt.signed and (m > 0 or not fmt.zero):
        answered = overflow == "satfinite" or (overflow == "saturate" and x != INF)
        return 0 if answered and fmt.zero else NAN
    if over:
        return largest(fmt) + signed if clamps else largest(fmt) + 1 + signed if fmt.infinity else NAN
    return 0 if m == 0 and not fmt.negative_zero else m + signed


# Operations: exact Values; only a NaN that decides the result has a sign worth comparing ----------------


def first_nan(*operands: Value) -> Value | None:
    """The first NaN operand: a NaN result takes its sign (and payload)."""
    return next((operand for operand in operands if operand.magnitude == NAN), None)


INVALID = Value(0, NAN)


def flush(value: Value, fmt) -> Value:
    """Zero of its sign for a magnitude below the normal range."""
    tiny = not isinstance(value.magnitude, str) and value.magnitude < Fraction(2) ** (1 - fmt.exponent_bias)
    return Value(value.sign, Fraction(0)) if tiny else value


def add(a: Value, b: Value, rounding="rne") -> Value:
    """a + b; an exact zero is +0, -0 in rtn or when both are -0."""
    if nan := first_nan(a, b):
        return nan
    if a.magnitude == INF or b.magnitude == INF:
        clash = a.magnitude == b.magnitude and a.sign != b.sign
        return INVALID if clash else a if a.magnitude == INF else b
    total = (-1) ** a.sign * a.magnitude + (-1) ** b.sign * b.magnitude
    if total == 0:
        return Value(a.sign if a.sign == b.sign else int(rounding == "rtn"), Fraction(0))
    return Value(int(total < 0), abs(total))


def sub(a: Value, b: Value, rounding="rne") -> Value:
    """a + (-b); a NaN keeps its sign."""
    return first_nan(a, b) or add(a, Value(1 - b.sign, b.magnitude), rounding)


def mul(a: Value, b: Value, rounding="rne") -> Value:
    """a * b."""
    if nan := first_nan(a, b):
        return nan
    if INF in (a.magnitude, b.magnitude):
        return INVALID if 0 in (a.magnitude, b.magnitude) else Value(a.sign ^ b.sign, INF)
    return Value(a.sign ^ b.sign, a.magnitude * b.magnitude)


def div(a: Value, b: Value, rounding="rne") -> Value:
    """a / b."""
    if nan := first_nan(a, b):
        return nan
    sign = a.sign ^ b.sign
    if a.magnitude == INF:
        return INVALID if b.magnitude == INF else Value(sign, INF)
    if b.magnitude == INF:
        return Value(sign, Fraction(0))
    if b.magnitude == 0:
        return INVALID if a.magnitude == 0 else Value(sign, INF)
    return Value(sign, a.magnitude / b.magnitude)


def fma(a: Value, b: Value, c: Value, rounding="rne") -> Value:
    """a * b + c."""
    product = mul(a, b)
    return first_nan(a, b, c) or (product if product.magnitude == NAN else add(product, c, rounding))


def sqrt(a: Value, rounding="rne") -> Value:
    """The root, or a rational so close that no value or midpoint of 200 bits lies between them."""
    if a.magnitude == NAN or (a.magnitude == 0):
        return a
    if a.sign:
        return INVALID
    if a.magnitude == INF:
        return a
    p, q = a.magnitude.numerator, a.magnitude.denominator
    scale = 2 ** (200 + q.bit_length())
    root = isqrt(p * q * scale**2)
    exact = root * root == p * q * scale**2
    return Value(0, Fraction(2 * root + (not exact), 2 * q * scale))

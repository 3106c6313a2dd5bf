"""What the vectorised loops need to know of a format and a policy: rows of integers.

`grid` and `prefix` return None where only the plain loop answers: flushing, payloads kept, unsigned formats,
one bit of precision, formats with no NaN to answer with, and grids that the source is too narrow for.
"""

from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from .. import formats
from ..formats import FORMATS, Format
from ..policies import IEEE, NVIDIA, ONES, PROPAGATE, RNA, RNE, RTN, RTO, RTP, RTZ, SATFINITE, SATURATE, SR_A, Policy
from .codec import pack_f64, unpack

#: precision -> width and exponent bias of the two sources
SOURCES = {24: (32, 127), 53: (64, 1023)}


class Side(NamedTuple):
    """What large magnitudes of one sign become. Bits of the source format; comparisons are with |x|."""

    cap: int  #: magnitudes above it may be replaced by it before rounding
    infinity_from: int  #: magnitudes above it become infinity (a NaN's bits if none does)
    nan_from: int  #: magnitudes above it become NaN: infinity, the overflow border, or just below them


class Plan(NamedTuple):
    """One cast from binary32 or binary64 to codes or to values. Nonnegative bit patterns and counts."""

    drop: int  #: bits between the source's significand and the target's
    lowest: int  #: the smallest normal target value, as bits of the source
    positive: Side
    negative: Side
    top: int  #: code of the largest finite value
    infinity: int  #: code of infinity
    nan: int  #: code of NaN, sign not included unless the format has one NaN only
    infinity_value: int  #: infinity and NaN as bits of the source
    nan_value: int
    nan_sign: int  #: 1 if NaN keeps its sign
    zero_sign: int  #: 1 if zero keeps its sign
    sign_shift: int  #: from the source's sign bit to the target's
    pad: int  #: zero bits below the code
    overflow: int  #: source bits that stand for a code above `top`: infinity, or a NaN
    rounding: int  #: as in `policies`
    noise_bits: int


class Prefix(NamedTuple):
    """One cast from binary32 to a format that is its upper bits. 32-bit patterns and counts.

    A magnitude is rounded by adding `even` or `odd` (after the last kept bit) under the mask of its sign,
    and cutting.
    """

    drop: int  #: bits cut off
    pad: int  #: zero bits below the code
    cap: int  #: larger magnitudes become it: infinity, or the largest finite value
    nan: int  #: what NaN becomes
    nan_keep: int  #: the bits of a NaN that stay: its sign or nothing
    even: int
    odd: int
    positive: int
    negative: int


@lru_cache(maxsize=512)
def grid(fmt: Format, policy: Policy, precision: int) -> Plan | None:
    """The Plan for a source of this precision (24: binary32, 53: binary64); None where it does not apply."""
    if not _covered(fmt, policy) or not _wide_enough(fmt, precision):
        return None
    if policy.rounding != RNE and not 0 <= _lowest(fmt) - fmt.precision + 1023 < 1023:
        return None  # core/fast_modes divides by the lowest ulp
    width, bias = SOURCES[precision]
    top = formats.max_finite(fmt)
    nan, nan_sign = _nan(fmt, policy)
    return Plan(
        drop=precision - fmt.precision,
        lowest=(_lowest(fmt) + bias) << (precision - 1),
        positive=_side(0, fmt, policy, precision),
        negative=_side(1, fmt, policy, precision),
        top=top if policy.overflow == IEEE else (1 << (width - 1)) - 1,
        infinity=top + 1,
        nan=nan,
        infinity_value=_infinity(precision),
        nan_value=_bits(nan, fmt, precision),
        nan_sign=nan_sign,
        zero_sign=fmt.negative_zero,
        sign_shift=width - fmt.bits,
        pad=fmt.pad,
        overflow=_infinity(precision) + 1 - fmt.infinity,
        rounding=policy.rounding,
        noise_bits=policy.noise_bits,
    )


@lru_cache(maxsize=512)
def prefix(fmt: Format, policy: Policy) -> Prefix | None:
    """The Prefix for a cast from binary32 to bf16, tf32 or another format that is its upper bits; else None."""
    if not is_prefix(fmt) or not _covered(fmt, policy):
        return None
    if policy.overflow == SATURATE or policy.rounding > SR_A:
        return None
    drop = 24 - fmt.precision
    half, ones = 1 << (drop - 1), (1 << drop) - 1
    even, odd = {RNE: (half - 1, half), RNA: (half, half), RTO: (ones, 0), RTP: (ones, ones), RTN: (ones, ones)}.get(
        policy.rounding, (0, 0)
    )
    nan, nan_sign = _nan(fmt, policy)
    cap = formats.max_finite(fmt) << drop if policy.overflow == SATFINITE else _infinity(24)
    return Prefix(
        drop,
        fmt.pad,
        cap,
        nan << drop,
        nan_sign << 31,
        even,
        odd,
        0 if policy.rounding == RTN else ones,
        0 if policy.rounding == RTP else ones,
    )


def is_prefix(fmt: Format) -> bool:
    """True if codes are the upper bits of binary32, and fewer than all: bf16, tf32. Cutting is then a shift."""
    exponent = formats.exponent_bits(fmt) == 8 and 2 <= fmt.precision < 24
    return exponent and fmt == formats.ieee(fmt.bits, fmt.precision)._replace(pad=fmt.pad)


def _side(sign: int, fmt: Format, policy: Policy, precision: int) -> Side:
    """What overflows: from where, and what infinity itself becomes."""
    _, bias = SOURCES[precision]
    infinity, none = _infinity(precision), _infinity(precision) + 1
    inward = policy.rounding in (RTZ, RTO) or policy.rounding == (RTN, RTP)[sign]
    if policy.overflow != IEEE or inward:
        infinite = infinity - 1 if policy.overflow != SATFINITE else none
        nan_from = infinity - 1 if policy.overflow != SATFINITE and not fmt.infinity else infinity
        return Side(_bits(formats.max_finite(fmt), fmt, precision), infinite, nan_from)
    cap = (_highest(fmt) + 2 + bias) << (precision - 1)
    if policy.rounding >= SR_A:  # the word decides whether a value overflows: see `Plan.top`
        return Side(cap, infinity - 1 if fmt.infinity else none, infinity - 1 + fmt.infinity)
    border = _border(fmt, policy, precision)
    return Side(cap, border, infinity) if fmt.infinity else Side(cap, none, border)


def _border(fmt: Format, policy: Policy, precision: int) -> int:
    """The largest source magnitude that does not overflow."""
    top = formats.max_finite(fmt)
    largest, beyond = formats.magnitude_value(fmt, top), formats.magnitude_value(fmt, top + 1)
    if policy.rounding in (RTP, RTN):
        return _bits(top, fmt, precision)
    middle = _exact((largest + beyond) / 2, precision)
    return middle if policy.rounding == RNE and top % 2 == 0 else middle - 1


def _covered(fmt: Format, policy: Policy) -> bool:
    answers = formats.has_nan(fmt) or (policy.nan == NVIDIA and policy.overflow == SATFINITE)
    plain = policy.nan != PROPAGATE and not (policy.flush_in or policy.flush_out)
    return bool(plain and answers and fmt.signed and fmt.precision >= 2)


def _wide_enough(fmt: Format, precision: int) -> bool:
    """True if all of the target's grid, and some room above, is normal in the source."""
    _, bias = SOURCES[precision]
    drop = precision - fmt.precision
    return drop >= 1 and _lowest(fmt) + bias >= 1 and _highest(fmt) + 2 + drop < bias


def _lowest(fmt: Format) -> int:
    """Exponent of the smallest normal value."""
    return formats.min_exp(fmt) + fmt.precision - 1


def _highest(fmt: Format) -> int:
    """Exponent of the largest finite value."""
    return (formats.max_finite(fmt) >> (fmt.precision - 1)) - fmt.exponent_bias


def _nan(fmt: Format, policy: Policy) -> tuple[int, int]:
    """NaN's code without a sign, and whether it takes one."""
    if not formats.has_nan(fmt):
        return formats.max_finite(fmt), 0
    if fmt.nans == 0:
        return 1 << formats.magnitude_bits(fmt), 0
    top = formats.top_magnitude(fmt)
    if policy.nan == NVIDIA:
        return top, 0
    return (top if policy.nan == ONES else top - fmt.nans + ((fmt.nans + 1) >> 1)), 1


def _infinity(precision: int) -> int:
    """Infinity as bits of the source."""
    return ((1 << (SOURCES[precision][0] - precision)) - 1) << (precision - 1)


def _exact(value: Fraction, precision: int) -> int:
    """A positive normal value as bits of the source, which must hold it."""
    exp = value.numerator.bit_length() - value.denominator.bit_length()  # denominators are powers of two
    sig = value / Fraction(2) ** (exp - precision + 1)
    assert sig.denominator == 1
    assert 1 << (precision - 1) <= sig < 1 << precision
    return ((exp + SOURCES[precision][1] - 1) << (precision - 1)) + int(sig)


def _bits(code: int, fmt: Format, precision: int) -> int:
    """The value of a code as bits of the source format."""
    x = unpack(code << fmt.pad, fmt)
    wide = pack_f64(x.kind, x.sign, x.exp, x.sig)
    if precision == 53:
        return wide & ((1 << 64) - 1)
    from .rounding import round_to

    return round_to(x.kind, x.sign, x.exp, x.sig, FORMATS["fp32"], Policy(nan=PROPAGATE), 0).code

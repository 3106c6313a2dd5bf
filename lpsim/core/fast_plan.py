"""What the vectorised loops of `core/fast_loops` need to know of a format and a policy: rows of integers.

`codes` and `values` return None where only the plain loop answers: stochastic and directed rounding, flushing,
payloads kept, unsigned formats, formats with no NaN to answer with, and grids that the source is too narrow for.
"""

from typing import NamedTuple

from .. import formats
from ..formats import FORMATS, Format
from ..policies import IEEE, NVIDIA, ONES, PROPAGATE, RNE, SATFINITE, SATURATE, SR_A, Policy
from .codec import pack_f64, unpack

#: precision, width and exponent bias of the two sources
SOURCES = {24: (32, 127), 53: (64, 1023)}


class Plan(NamedTuple):
    """One cast to codes. All integers are nonnegative bit patterns or counts."""

    drop: int  #: bits between the source's significand and the target's
    lowest: int  #: the smallest normal target value, as bits of the source
    cap: int  #: a power of two surely past the overflow border, as bits of the source
    limit: int  #: finite codes above it become it (all ones if they become NaN)
    nan_above: int  #: codes above it become NaN (all ones if none does)
    nan_from: int  #: source magnitudes above it become NaN: infinity, or just below it
    infinity: int  #: code of infinity, where it is not NaN
    nan: int  #: code of NaN, sign not included unless the format has one NaN only
    nan_sign: int  #: 1 if NaN keeps its sign
    zero_sign: int  #: 1 if zero keeps its sign
    sign_shift: int  #: from the source's sign bit to the target's
    pad: int  #: zero bits below the code


class ValuePlan(NamedTuple):
    """One rounding to values: bits of the source format throughout."""

    drop: int
    lowest: int
    cap: int
    largest: int  #: the largest finite target value
    overflow: int  #: what larger ones become: itself, infinity or NaN
    infinity: int  #: what infinity becomes
    nan: int  #: what NaN becomes
    nan_sign: int
    zero_sign: int


def codes(fmt: Format, policy: Policy, precision: int) -> Plan | None:
    """The Plan for a source of this precision (24: binary32, 53: binary64); None where it does not apply."""
    if not _covered(fmt, policy, precision):
        return None
    width, bias = SOURCES[precision]
    ones, top = (1 << (width - 1)) - 1, formats.max_finite(fmt)
    overflow_is_nan = policy.overflow == IEEE and not fmt.infinity
    infinity_is_nan = policy.overflow != SATFINITE and not fmt.infinity
    source_infinity = ((1 << (width - precision)) - 1) << (precision - 1)
    return Plan(
        precision - fmt.precision,
        (_lowest(fmt) + bias) << (precision - 1),
        (_highest(fmt) + 2 + bias) << (precision - 1),
        ones if overflow_is_nan else top + (policy.overflow == IEEE),
        top if overflow_is_nan else ones,
        source_infinity - infinity_is_nan,
        top if policy.overflow == SATFINITE else top + 1,
        *_nan(fmt, policy),
        fmt.negative_zero,
        width - fmt.bits,
        fmt.pad,
    )


def values(fmt: Format, policy: Policy, precision: int) -> ValuePlan | None:
    """The ValuePlan for a source of this precision; None where it does not apply."""
    plan = codes(fmt, policy, precision)
    if plan is None:
        return None
    largest = _bits(formats.max_finite(fmt), fmt, precision)
    nan = _bits(plan.nan, fmt, precision)
    infinity = _bits(plan.infinity, fmt, precision) if plan.nan_from & ((1 << (precision - 1)) - 1) == 0 else nan
    overflow = nan if plan.limit > formats.top_magnitude(fmt) else _bits(plan.limit, fmt, precision)
    return ValuePlan(
        plan.drop, plan.lowest, plan.cap, largest, overflow, infinity, nan, plan.nan_sign, plan.zero_sign
    )  # fmt: skip


def is_prefix(fmt: Format) -> bool:
    """True if codes are the upper bits of binary32: bf16, tf32. Cutting is then a shift."""
    return formats.exponent_bits(fmt) == 8 and fmt == formats.ieee(fmt.bits, fmt.precision)._replace(pad=fmt.pad)


def stochastic_prefix(fmt: Format, policy: Policy) -> Plan | None:
    """The Plan for `fast_loops.stochastic_prefix`: variant A from binary32 to a format that is its upper bits."""
    if policy.rounding != SR_A or not is_prefix(fmt) or policy.overflow == SATURATE:
        return None
    return codes(fmt, policy._replace(rounding=RNE), 24)


def _covered(fmt: Format, policy: Policy, precision: int) -> bool:
    _, bias = SOURCES[precision]
    drop = precision - fmt.precision
    answers = formats.has_nan(fmt) or (policy.nan == NVIDIA and policy.overflow == SATFINITE)
    plain = policy.rounding == RNE and policy.nan != PROPAGATE and not (policy.flush_in or policy.flush_out)
    wide_enough = drop >= 1 and _lowest(fmt) + bias >= 1 and _highest(fmt) + 2 + drop < bias
    if precision == 24 and is_prefix(fmt):
        wide_enough = drop >= 1
    return bool(plain and answers and fmt.signed and fmt.precision >= 2 and wide_enough)


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


def _bits(code: int, fmt: Format, precision: int) -> int:
    """The value of a code as bits of the source format."""
    x = unpack(code << fmt.pad, fmt)
    wide = pack_f64(x.kind, x.sign, x.exp, x.sig)
    if precision == 53:
        return wide & ((1 << 64) - 1)
    source = FORMATS["fp32"]
    from .rounding import round_to

    policy = Policy(nan=PROPAGATE)
    return round_to(x.kind, x.sign, x.exp, x.sig, source, policy, 0).code

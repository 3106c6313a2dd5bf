"""Numbers and roundings as text: bits with their point, neighbours, rules in words."""

from fractions import Fraction

from . import formats
from .core.codec import FINITE, INFINITE, NAN, Number, unpack
from .core.rounding import Rounded
from .formats import FORMATS, Format, fmt_name
from .policies import SR_B, SR_C, VARIANTS, Rules, Stochastic

SHOWN = 40  # discarded bits that are printed


def number(x) -> str:
    """A number as its shortest decimal."""
    return repr(float(x)) if not isinstance(x, int | Fraction) else str(x)


def code(bits: int, fmt: Format) -> str:
    """Value, fields and hexadecimal of a code: -4.6875 = 1 10000001 0010110 = 0xC096."""
    raw = bits >> fmt.pad
    width = formats.exponent_bits(fmt)
    digits = f"{raw:0{fmt.bits}b}"
    fields = [digits[: fmt.signed], digits[fmt.signed : fmt.signed + width], digits[fmt.signed + width :]]
    hexadecimal = f"0x{bits:0{-(-(fmt.bits + fmt.pad) // 4)}X}"
    return f"{value(Number(*unpack(bits, fmt)))} = {' '.join(f for f in fields if f)} = {hexadecimal}"


def value(n: Number) -> str:
    """The number as a decimal, or its special name."""
    sign = "-" if n.sign else ""
    if n.kind == NAN:
        return f"{sign}NaN"
    if n.kind == INFINITE:
        return f"{sign}inf"
    return repr((-1.0) ** n.sign * float(n.sig) * 2.0**n.exp)


def binary64(x: float) -> str:
    """A binary64 value and, if it is finite, its exact significand."""
    return f"{x!r} = {exact(Fraction(x))}" if x == x and abs(x) != float("inf") else repr(x)


def operand(x: float, fmt: Format) -> str:
    """An operand as a code of fmt if it is one, else as binary32 or binary64."""
    import numpy as np

    from .arrays import decode, encode

    for row in (fmt, FORMATS["fp32"]):
        if formats.has_nan(row) or x == x:
            bits = int(
                encode(
                    x,
                    row,
                    overflow="ieee" if row.infinity else "satfinite",
                    nan="nvidia" if not formats.has_nan(row) else "canonical",
                )
            )
            back = float(decode(np.array([bits], dtype=f"uint{formats.container_bits(row)}"), row)[0])
            if back == x or (back != back and x != x):
                return code(bits, row) + ("" if row == fmt else f"  (fp32: more bits than {fmt_name(fmt)})")
    return binary64(x) + "  (binary64)"


def exact(x: Fraction) -> str:
    """-1.00101101 x 2^2, cut with dots after 60 bits."""
    if x == 0:
        return "0"
    top = _top(x)
    return f"{_sign(x)}{_digits(abs(x), top, 60)} x 2^{top}"


def alignment(a: Fraction, b: Fraction) -> list[tuple[str, str]]:
    """Both operands over one exponent, and their sum below the line."""
    if a == 0 or b == 0:
        return []
    top = max(_top(a), _top(b))
    last = min(_last_weight(a), _last_weight(b))
    places = top - last
    if places > 64:
        return []
    lines = []
    for label, x in (("aligned a", a), ("aligned b", b), ("sum", a + b)):
        whole = abs(x) / Fraction(2) ** last
        digits = f"{int(whole):0{places + 1}b}"
        split = len(digits) - places
        lines.append((label, f"{_sign(x)}{digits[:split]:>3}.{digits[split:] or '0'} x 2^{top}"))
    return lines


def cut(step: Rounded, x: Fraction, fmt: Format) -> list[tuple[str, str]]:
    """kept | guard sticky, and the neighbours with their midpoint."""
    if x == 0:
        return []
    unit = Fraction(2) ** step.exp
    discarded = _fraction_digits(abs(x) / unit % 1)
    low, high = (Fraction(s) * unit * (-1 if x < 0 else 1) for s in (step.kept, step.kept + 1))
    kept = f"{step.kept:0{fmt.precision}b}"
    point = kept[:-1] if fmt.precision == 1 else f"{kept[0]}.{kept[1:]}"
    rows = [("kept | rest", f"{_sign(x)}{point or kept} | {discarded}   guard {step.guard}, sticky {step.sticky}")]
    if discarded != "0" and abs(low) <= formats.max_value(fmt):
        rows.append(("neighbours", f"{_decimal(low)} and {_decimal(high)}, midpoint {_decimal((low + high) / 2)}"))
    return rows


def rule(step: Rounded, result: Number, rules: Rules, fmt: Format) -> str:
    """The decision in words, and whether the rounded result was flushed after it."""
    flushes = rules.get("subnormals", "keep") in ("flush", "flush_out")
    flushed = flushes and result.kind == FINITE and result.sig == 0 and step.kept + step.up > 0
    return _decision(step, result, rules, fmt) + ("; a subnormal result is flushed to zero" if flushed else "")


def _decision(step: Rounded, result: Number, rules: Rules, fmt: Format) -> str:
    rounding = rules.get("rounding", "rne")
    name = f"stochastic {rounding.variant}" if isinstance(rounding, Stochastic) else str(rounding)
    if step.kind == NAN or (result.kind == NAN and step.kind == FINITE and not step.overflow):
        return "NaN: there is no number to give"
    if step.kind == INFINITE:
        return f"infinity; overflow={rules.get('overflow', 'ieee')!r}"
    if step.overflow:
        became = {
            FINITE: "the largest finite value",
            INFINITE: "infinity",
            NAN: "NaN, since there is no infinity",
        }
        limit = _decimal(formats.max_value(fmt))
        policy = rules.get("overflow", "ieee")
        return f"above the largest finite value {limit}: overflow={policy!r} gives {became[result.kind]}"
    if not step.guard and not step.sticky:
        return "exact: nothing is discarded"
    moved = "away from zero" if step.up else "toward zero"
    if name not in ("rne", "rna"):
        return f"{name}: {moved}"
    if step.guard and step.sticky:
        return f"{name}: above the midpoint, {moved}"
    if not step.guard:
        return f"{name}: below the midpoint, {moved}"
    parity = "odd" if step.kept & 1 else "even"
    why = "ties go away from zero" if name == "rna" else f"the kept part is {parity}, ties go to even"
    return f"{name}: a tie; {why}: {moved}"


def probability(step: Rounded, x: Fraction, noise: Stochastic) -> str:
    """How many of the 2^bits random integers round away from zero."""
    nu = abs(x) / Fraction(2) ** step.exp % 1
    count = away_count(nu, noise.bits, noise.variant)
    total = 1 << noise.bits
    share = f"{count} of {total} random integers = {count / total:.6g}"
    return f"away from zero for {share} (discarded fraction {float(nu):.6g})"


def away_count(nu: Fraction, bits: int, variant: str) -> int:
    """For how many R, 0 <= R < 2^bits, the fraction nu rounds away. Source: P3109, StochasticA/B/C."""
    scaled = nu * (1 << bits)
    mode = VARIANTS[variant]
    if mode == SR_B:
        # floor(2 scaled) + 2R + 1 >= 2^(bits+1)  <=>  R >= (2^(bits+1) - 1 - floor(2 scaled)) / 2, rounded up
        return min(1 << bits, (int(2 * scaled) + 1) // 2)
    return round(scaled) if mode == SR_C else int(scaled)


def error(e: Fraction, step: Rounded) -> str:
    """The signed error, rounded minus exact, in absolute terms and in units of the last place."""
    ulps = e / Fraction(2) ** step.exp
    return f"{float(e):+.17g} (rounded - exact) = {float(ulps):+.12g} ulp" if e else "0"


def _sign(x: Fraction) -> str:
    return "-" if x < 0 else "+"


def _top(x: Fraction) -> int:
    """Exponent of the leading bit."""
    x = abs(x)
    top = x.numerator.bit_length() - x.denominator.bit_length()
    return top if Fraction(2) ** top <= x else top - 1


def _last_weight(x: Fraction) -> int:
    """Exponent of the last set bit of a dyadic number."""
    return (x.numerator & -x.numerator).bit_length() - x.denominator.bit_length()


def _digits(x: Fraction, top: int, limit: int) -> str:
    """x / 2^top in binary, 1.xxx, at most `limit` places."""
    rest = x / Fraction(2) ** top - 1
    return f"1.{_fraction_digits(rest, limit)}"


def _fraction_digits(x: Fraction, limit: int = SHOWN) -> str:
    """Binary places of 0 <= x < 1; dots if there are more than `limit`."""
    digits = ""
    while x and len(digits) < limit:
        x *= 2
        digits += "1" if x >= 1 else "0"
        x -= int(x)
    return (digits or "0") + ("..." if x else "")


def _decimal(x: Fraction) -> str:
    return repr(float(x))

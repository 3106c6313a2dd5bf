"""Number formats as rows of integers. The arithmetic never knows a format's name.

A format is read off its row: codes count upwards from zero, magnitude by magnitude; the last `nans`
magnitudes are NaN, the one before them is infinity if there is one, all others are finite.
"""

from typing import NamedTuple

from .errors import unknown


class Format(NamedTuple):
    """One binary format. Plain integers, so that Numba and Triton take it as it is."""

    bits: int  #: bits of a code, padding not counted
    precision: int  #: bits of the significand, the implicit one included
    exponent_bias: int  #: value of a normal code = significand * 2^(field - exponent_bias)
    nans: int = 0  #: how many magnitudes at the top are NaN
    infinity: int = 0  #: 1 if the magnitude below the NaNs is infinity
    signed: int = 1  #: 1 if the top bit is a sign
    zero: int = 1  #: 1 if magnitude 0 is zero; 0 if it is an ordinary power of two (e8m0)
    negative_zero: int = 1  #: 1 if sign 1, magnitude 0 is -0; 0 if it is the one NaN (fnuz, P3109)
    subnormals: int = 1  #: 1 if exponent field 0 has no implicit bit
    pad: int = 0  #: zero bits below the code in its container (tf32: 13)


def ieee(bits: int, precision: int) -> Format:
    """The IEEE 754 pattern: bias 2^(w-1) - 1, field all ones for infinity and NaN."""
    bias = (1 << (bits - precision - 1)) - 1
    return Format(bits, precision, bias, nans=(1 << (precision - 1)) - 1, infinity=1)


#: name -> (row, where it is defined)
REGISTRY: dict[str, tuple[Format, str]] = {
    "bf16": (ieee(16, 8), "bfloat16: the upper half of IEEE 754 binary32"),
    "fp16": (ieee(16, 11), "IEEE 754-2019 binary16"),
    "fp32": (ieee(32, 24), "IEEE 754-2019 binary32"),
    "fp64": (ieee(64, 53), "IEEE 754-2019 binary64 (a source of values, not a target)"),
    "tf32": (ieee(19, 11)._replace(pad=13), "NVIDIA TF32: PTX ISA, wgmma and mma .tf32"),
    "e4m3fn": (Format(8, 4, 7, nans=1), "OCP OFP8 1.0, E4M3"),
    "e5m2": (ieee(8, 3), "OCP OFP8 1.0, E5M2"),
}
FORMATS: dict[str, Format] = {name: row for name, (row, _) in REGISTRY.items()}

#: other people's names for the same formats (ml_dtypes, torch, NumPy)
ALIASES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "e4m3fn",
    "float8_e5m2": "e5m2",
}


def check(row: Format) -> Format:
    """The row itself, if its integers describe a format; otherwise TypeError or ValueError."""
    for field, value in zip(Format._fields, row, strict=True):
        if type(value) is not int:
            raise TypeError(f"Format.{field} must be an int, got {value!r} of type {type(value).__name__}")
    if row == FORMATS["fp64"]:
        return row
    width = row.bits - row.signed - row.precision + 1
    rules = {
        "flags are 0 or 1": all(
            flag in (0, 1) for flag in (row.infinity, row.signed, row.zero, row.negative_zero, row.subnormals)
        ),
        "2 <= bits and bits + pad <= 32, pad >= 0": 2 <= row.bits <= 32 - row.pad and row.pad >= 0,
        "precision >= 1 with at least one exponent bit": row.precision >= 1 and width >= 1,
        "a -0 needs a sign and a zero": not row.negative_zero or (row.signed and row.zero),
        "zero and subnormals go together": row.zero == row.subnormals,
        "nans >= 0 and a finite non-zero code is left": row.nans >= 0
        and (row.bits < 2 or (1 << (row.bits - row.signed)) - row.nans - row.infinity >= 1 + row.zero),
    }
    for rule, holds in rules.items():
        if not holds:
            raise ValueError(f"{row} is not a format: {rule}")
    if min_exp(row) < -1022 or max_finite(row) >> (row.precision - 1) > row.exponent_bias + 1023:
        raise ValueError(f"{row} is not a format: its values must be normal numbers of binary64")
    return row


def fmt_name(row: Format) -> str:
    """The registered name of a row, or its fields."""
    return next((name for name, known in FORMATS.items() if known == row), str(tuple(row)))


def lookup(fmt, argument: str = "fmt") -> Format:
    """A checked row from a row, a name of ours, or a dtype (or dtype name) of NumPy, ml_dtypes or torch."""
    if isinstance(fmt, Format):
        return check(fmt)
    name = fmt if isinstance(fmt, str) else dtype_name(fmt)
    name = ALIASES.get(name, name)
    if name in FORMATS:
        return FORMATS[name]
    raise unknown(argument, fmt, FORMATS)


def dtype_name(dtype) -> str:
    """'float8_e5m2' from np.dtype, an ml_dtypes scalar type, or torch.float8_e5m2."""
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return str(name).removeprefix("torch.")


# What follows from a row. core/codec compiles the first four as they stand, so they call nothing.


def magnitude_bits(fmt):
    """Bits of a code without its sign."""
    return fmt.bits - fmt.signed


def top_magnitude(fmt):
    """The largest magnitude a code can hold, whatever it means."""
    return (1 << (fmt.bits - fmt.signed)) - 1


def max_finite(fmt):
    """Magnitude of the largest finite code."""
    return (1 << (fmt.bits - fmt.signed)) - 1 - fmt.nans - fmt.infinity


def min_exp(fmt):
    """Weight, as a power of two, of the last significand bit in the lowest binade."""
    return fmt.subnormals - fmt.exponent_bias - (fmt.precision - 1)


def has_nan(fmt):
    """1 if some code is NaN."""
    return 1 if fmt.nans > 0 or (fmt.signed and not fmt.negative_zero) else 0


def exponent_bits(fmt: Format) -> int:
    """Width of the exponent field."""
    return magnitude_bits(fmt) - fmt.precision + 1


def magnitude_value(fmt: Format, magnitude: int) -> float:
    """Value of a finite magnitude, exact in binary64."""
    field, fraction = magnitude >> (fmt.precision - 1), magnitude & ((1 << (fmt.precision - 1)) - 1)
    implicit = 1 if field > 0 or not fmt.subnormals else 0
    exp = max(field, fmt.subnormals) - fmt.exponent_bias - (fmt.precision - 1)
    return float((implicit << (fmt.precision - 1)) + fraction) * 2.0**exp


def max_value(fmt: Format) -> float:
    """The largest finite value."""
    return magnitude_value(fmt, max_finite(fmt))


def min_normal(fmt: Format) -> float:
    """The smallest value with an implicit bit."""
    return magnitude_value(fmt, fmt.subnormals << (fmt.precision - 1))


def min_positive(fmt: Format) -> float:
    """The smallest value above zero."""
    return magnitude_value(fmt, fmt.zero)


def container_bits(fmt: Format) -> int:
    """8, 16 or 32: the unsigned integer that holds a code and its padding."""
    return next(width for width in (8, 16, 32, 64) if fmt.bits + fmt.pad <= width)


def fits(inner: Format, outer: Format) -> bool:
    """True if every finite value of `inner` is a value of `outer`."""
    return (
        inner.precision <= outer.precision
        and min_exp(inner) >= min_exp(outer)
        and max_value(inner) <= max_value(outer)
        and (outer.signed or not inner.signed)
    )

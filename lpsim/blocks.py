"""Block formats: codes that share a scale. MXFP8, MXFP6, MXFP4 (OCP MX 1.0) and NVFP4.

    packed = lp.blocks.encode(x, "mxfp4", scale_rule="floor")
    lp.blocks.decode(packed, "mxfp4")                       # float64, exact

Elements come one code a byte; packing them into fewer bits is the caller's. Every rounding is of an exact
value: no scale passes through float32 or bf16 on its way.
"""

from typing import NamedTuple

import numpy as np

from . import border, formats
from .arrays import decode as decode_codes
from .arrays import div
from .arrays import encode as encode_values
from .errors import choose
from .formats import FORMATS, Format, fmt_name


class BlockFormat(NamedTuple):
    """`block` neighbours along an axis share one scale."""

    element: Format
    scale: Format  #: e8m0, a power of two; or ue4m3 below a float32 scale of the whole tensor
    block: int
    source: str

    @property
    def powers(self) -> bool:
        """True if scales are powers of two, so that a rule must say which."""
        return self.scale == FORMATS["e8m0"]


def _mx(element: str) -> BlockFormat:
    return BlockFormat(FORMATS[element], FORMATS["e8m0"], 32, "OCP MX 1.0, 5.2 and 6.3")


BLOCKS: dict[str, BlockFormat] = {
    "mxfp8_e4m3": _mx("e4m3fn"),
    "mxfp8_e5m2": _mx("e5m2"),
    "mxfp6_e3m2": _mx("e3m2"),
    "mxfp6_e2m3": _mx("e2m3"),
    "mxfp4": _mx("e2m1"),
    "nvfp4": BlockFormat(FORMATS["e2m1"], FORMATS["ue4m3"], 16, "NVIDIA NVFP4: block 16, ue4m3, float32 tensor scale"),
}
SCALE_RULES = ("floor", "ceil", "nearest")
NONFINITE = ("refuse", "block", "element")
SCALE_BIAS, LARGEST_SCALE, SCALE_NAN = 127, 254, 255  # of e8m0 codes: 2^(code - 127)


class Blocks(NamedTuple):
    """An encoded array."""

    codes: np.ndarray  #: uint8, the shape of the values
    scales: np.ndarray  #: uint8, the same shape, its axis divided by the block
    tensor_scale: np.float32 | None = None  #: nvfp4 only


def power_scale(amax, emax: int, rule: str) -> np.ndarray:
    """uint8 codes of e8m0 for the largest magnitudes of blocks: 2^(log2 of amax, made whole by the rule, - emax).

    amax: finite float64 >= 0, any shape. emax: exponent of the element format's largest value. The rules:
      floor    the largest power of two not above amax (OCP MX 1.0, 6.3): elements up to 2 * 2^emax may saturate
      ceil     the smallest power of two not below amax: no element saturates, but half of the range may be idle
      nearest  the power of two nearest to amax; in the middle, 1.5 * 2^k, the larger
    Exponents beyond e8m0 become its ends, 2^-127 and 2^127; so does amax = 0, to 2^-127. ValueError for other rules.
    """
    choose("scale_rule", rule, dict.fromkeys(SCALE_RULES, 0))
    fraction, exponent = np.frexp(np.asarray(amax, np.float64))  # amax = fraction * 2^exponent, 0.5 <= fraction < 1
    up = {"floor": fraction >= 1, "ceil": fraction > 0.5, "nearest": fraction >= 0.75}[rule]
    code = np.where(fraction == 0, 0, exponent - 1 + up - emax + SCALE_BIAS)
    return np.clip(code, 0, LARGEST_SCALE).astype(np.uint8)


def encode(x, fmt: str, *, scale_rule: str | None = None, axis: int = -1, tensor_scale=None, nonfinite="refuse"):
    """Blocks of x along an axis: scales from the largest magnitude of each block, elements to nearest even, saturated.

    x: floats of any shape and size; the axis must be a multiple of the block. fmt: a name of `BLOCKS`.
    scale_rule: floor, ceil or nearest, see `power_scale`; libraries differ, so it has no default (not for nvfp4).
    tensor_scale (nvfp4 only): a positive float32, or None for the nearest float32 to max|x| / (448 * 6), 1 for zeros.
    nvfp4's block scale is amax / (6 * tensor_scale) rounded once to ue4m3 and saturated; where it is zero, so are
    the elements. Elements are x / scale, rounded once; zeros keep their sign.
    nonfinite, for NaN and infinity: "refuse" (ValueError); "block": the scale is NaN, and so every value of the block,
    its codes are 0; "element": left out of the maximum, NaN stays NaN, infinity clamps (formats that have a NaN).
    Raises ValueError for other names, shapes and scales, TypeError for what is no float.
    """
    row = _row(fmt, scale_rule)
    choose("nonfinite", nonfinite, dict.fromkeys(NONFINITE, 0))
    if nonfinite == "element" and not formats.has_nan(row.element):
        raise ValueError(f"nonfinite='element', but {fmt_name(row.element)} has no NaN.")
    given = border.values(x, "x")
    blocks = _split(np.asarray(given.array).astype(np.float64), axis, row.block)
    finite = np.isfinite(blocks)
    if nonfinite == "refuse" and not finite.all():
        raise ValueError("x holds NaN or infinity: pass nonfinite='block' (the whole block) or 'element'.")
    bad = np.logical_not(np.all(finite, axis=-1) | (nonfinite != "block"))
    kept = np.where(np.expand_dims(bad, -1), 0.0, blocks)
    amax = np.max(np.abs(kept), axis=-1, where=np.isfinite(kept), initial=0.0)
    if row.powers:
        if tensor_scale is not None:
            raise ValueError(f"{fmt} has no tensor scale.")
        scales = power_scale(amax, _emax(row.element), str(scale_rule))
        elements = encode_values(kept * _powers(scales)[..., None], row.element, overflow="satfinite")
        whole = None
    else:
        whole = _tensor_scale(amax, row, tensor_scale)
        scales, elements = _nvfp4(kept, amax, whole, row)
    scales = np.where(bad, np.uint8(formats.top_magnitude(row.scale)), scales)
    codes = np.moveaxis(elements.reshape(*scales.shape[:-1], -1), -1, axis)
    scales = np.moveaxis(scales, -1, axis)
    if given.torch:
        return Blocks(border.to_torch(codes), border.to_torch(scales), whole)
    return Blocks(np.ascontiguousarray(codes), np.ascontiguousarray(scales), whole)


def decode(blocks: Blocks, fmt: str, *, axis: int = -1):
    """Values of blocks: element * scale (* tensor scale), float64, exact. A NaN scale makes its whole block NaN.

    blocks: as `encode` gives them, or a tuple (codes, scales, tensor_scale). Raises as lp.decode does, and
    ValueError if codes, scales and tensor scale do not fit together.
    """
    row = _row(fmt)
    codes, scales, whole = blocks
    if (whole is None) != row.powers:
        raise ValueError(f"{fmt} {'has no' if row.powers else 'needs its'} tensor scale.")
    given = border.codes(codes, row.element)
    elements = _split(np.asarray(decode_codes(given.array, row.element)).astype(np.float64), axis, row.block)
    factors = np.asarray(decode_codes(border.codes(scales, row.scale, "scales").array, row.scale)).astype(np.float64)
    factors = np.moveaxis(factors, axis, -1) if factors.ndim else factors
    if factors.shape != elements.shape[:-1]:
        raise ValueError(f"scales of shape {np.shape(scales)} do not fit codes of shape {np.shape(codes)}.")
    if whole is not None:
        factors = factors * np.float64(_checked(whole))
    with np.errstate(invalid="ignore"):  # infinity in an element, NaN in its scale
        values = elements * factors[..., None]
    values = np.ascontiguousarray(np.moveaxis(values.reshape(*factors.shape[:-1], -1), -1, axis))
    return border.to_torch(values) if given.torch else values


def _row(fmt: str, scale_rule: str | None = "floor") -> BlockFormat:
    row = choose("fmt", fmt, BLOCKS)
    if row.powers and scale_rule is None:
        raise ValueError(f"{fmt} needs scale_rule=: one of {', '.join(SCALE_RULES)}; libraries differ.")
    if not row.powers and scale_rule not in (None, "floor"):
        raise ValueError(f"{fmt} has no scale rule: its scales are rounded to nearest even in ue4m3.")
    return row


def _split(x: np.ndarray, axis: int, block: int) -> np.ndarray:
    """The axis last, cut into blocks: (..., number of blocks, block). ValueError if it does not divide."""
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"axis={axis} does not exist in an array of shape {x.shape}.")
    x = np.moveaxis(x, axis, -1)
    if x.shape[-1] % block:
        raise ValueError(f"axis {axis} has length {x.shape[-1]}, which is not a multiple of the block of {block}.")
    return x.reshape(*x.shape[:-1], x.shape[-1] // block, block)


def _emax(element: Format) -> int:
    """Exponent of the largest value: 8 for e4m3fn, 15 for e5m2, 2 for e2m1."""
    largest = formats.max_value(element)
    return largest.numerator.bit_length() - largest.denominator.bit_length()  # the denominator is a power of two


def _powers(scales: np.ndarray) -> np.ndarray:
    """2^-exponent of e8m0 codes: dividing by a power of two is exact wherever the element is not zero anyway."""
    return np.ldexp(1.0, SCALE_BIAS - scales.astype(np.int64))


def _tensor_scale(amax: np.ndarray, row: BlockFormat, given) -> np.float32:
    if given is not None:
        return _checked(given)
    largest = amax.max(initial=0.0)
    if largest == 0:
        return np.float32(1)
    limit = float(formats.max_value(row.element) * formats.max_value(row.scale))
    return _checked(np.float32(div(largest, limit, "fp32")))


def _checked(tensor_scale) -> np.float32:
    found = np.float32(tensor_scale)
    if np.ndim(tensor_scale) or not (np.isfinite(found) and found > 0 and float(found) == float(tensor_scale)):
        raise ValueError(f"tensor_scale={tensor_scale!r} must be a positive, finite float32.")
    return found


def _nvfp4(x: np.ndarray, amax: np.ndarray, whole: np.float32, row: BlockFormat) -> tuple[np.ndarray, np.ndarray]:
    """Scales and elements of blocks on the last axis; products with the tensor scale have at most 28 bits."""
    unit = np.float64(whole) * float(formats.max_value(row.element))
    factors = np.asarray(div(amax, unit, row.scale, overflow="satfinite"))
    scales = np.asarray(encode_values(factors, row.scale))
    zero = (factors == 0)[..., None]
    divisor = np.where(zero, 1.0, factors.astype(np.float64)[..., None] * np.float64(whole))
    quotient = div(np.where(zero, np.copysign(0.0, x), x), divisor, row.element, overflow="satfinite")
    return scales, np.asarray(encode_values(quotient, row.element))

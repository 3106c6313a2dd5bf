"""Ways to fill a piece of a result: the plain loops for everything, the vectorised ones where they apply.

A Fill's `run(operands, out, start)` fills out, a piece of the flat result that begins at element `start`, from
the same pieces of the operands. The plain ones work through int64 buffers of `grain` elements.
"""

from functools import lru_cache

import numpy as np

from . import exact, fast_fills, formats
from .core import fast_decode, fast_plan, loops
from .fast_fills import BUFFER, DIRECT, Fill, into
from .formats import FORMATS, Format
from .target import Target

FP32 = FORMATS["fp32"]


def bits_of(values: np.ndarray) -> np.ndarray:
    """The values as bits of binary64, int64."""
    return values.astype(np.float64).view(np.int64)


def encode_exact(target: Target) -> Fill:
    """Integers and Fractions to codes."""

    def run(operands, out, start):
        codes = np.empty(out.size, np.int64)
        words = target.words(start, out.size)
        target.refuse_lost(loops.encode_parts(*exact.parts(operands[0]), codes, target.fmt, target.policy, words))
        out[...] = codes

    return Fill(run, BUFFER)


def encode(target: Target, source: Format) -> Fill:
    """Floats of the format `source` to codes."""
    if (quick := fast_fills.encode(target, source)) is not None:
        return quick

    def run(operands, out, start):
        codes = np.empty(out.size, np.int64)
        words = target.words(start, out.size)
        lost = loops.encode(bits_of(operands[0]), codes, source, target.fmt, target.policy, words)
        target.refuse_lost(lost)
        out[...] = codes

    return Fill(run, BUFFER)


def decode(fmt: Format) -> Fill:
    """Codes to values of out's dtype, which must hold them."""
    if fast_plan.is_prefix(fmt):
        up = 32 - fmt.bits - fmt.pad

        def shift(operands, out, start):
            codes = np.ascontiguousarray(operands[0])
            into(out, np.float32, lambda values: fast_decode.decode_prefix(codes, values, up))

        return Fill(shift, DIRECT)
    if 8 < fmt.bits <= 16 and formats.exponent_bits(fmt) <= 7 and fmt == formats.ieee(fmt.bits, fmt.precision):
        up, special = 24 - fmt.precision, formats.max_finite(fmt) + 1
        scale = np.float32(2.0 ** (127 - fmt.exponent_bias))

        def multiply(operands, out, start):
            codes = np.ascontiguousarray(operands[0])
            sign_shift = 32 - fmt.bits
            into(out, np.float32, lambda x: fast_decode.decode_ieee(codes, x, up, scale, special, sign_shift))

        return Fill(multiply, DIRECT)
    if fmt.bits <= 16:
        table = values_of_codes(fmt)

        def look_up(operands, out, start):
            codes = np.ascontiguousarray(operands[0])
            into(out, table.dtype, lambda values: fast_decode.look_up(codes, table, values))

        return Fill(look_up, DIRECT)
    return Fill(lambda operands, out, start: _decode(operands[0], fmt, out), BUFFER)


def convert(target: Target, source: Format) -> Fill:
    """Codes of the format `source` to codes."""
    from_values = fast_fills.encode(target, FP32)
    if from_values is not None and source.bits <= 16 and formats.fits(source, FP32):
        to_values = decode(source)

        def through(operands, out, start):
            values = np.empty(out.size, np.float32)
            to_values.run(operands, values, start)
            from_values.run([values], out, start)

        return Fill(through, BUFFER)

    def run(operands, out, start):
        codes = np.empty(out.size, np.int64)
        words = target.words(start, out.size)
        bits = operands[0].astype(np.int64)
        target.refuse_lost(loops.convert(bits, codes, source, target.fmt, target.policy, words))
        out[...] = codes

    return Fill(run, BUFFER)


def rounded(target: Target, source: Format) -> Fill:
    """Floats of the format `source` to values."""
    if (quick := fast_fills.rounded(target, source)) is not None:
        return quick
    if (to_codes := fast_fills.encode(target, source)) is not None:
        to_values, dtype = decode(target.fmt), f"uint{formats.container_bits(target.fmt)}"

        def through(operands, out, start):
            codes = np.empty(out.size, dtype)
            to_codes.run(operands, codes, start)
            to_values.run([codes], out, start)

        return Fill(through, BUFFER)

    def loop(bits, codes, fmt, policy, words):
        return loops.encode(bits, codes, source, fmt, policy, words)

    return operation(target, loop, [])


def operation(target: Target, loop, sources: list[Format]) -> Fill:
    """Float operands of these formats to values, by a loop of `core/loops` or its vectorised twin."""
    if (quick := fast_fills.operation(target, loop, sources)) is not None:
        return quick

    def run(operands, out, start):
        codes = np.empty(out.size, np.int64)
        words = target.words(start, out.size)
        target.refuse_lost(loop(*(bits_of(x) for x in operands), codes, target.fmt, target.policy, words))
        _decode(codes, target.fmt, out)

    return Fill(run, BUFFER)


def _decode(codes: np.ndarray, fmt: Format, out: np.ndarray) -> None:
    bits = codes.astype(np.int64)
    loops.decode(bits, bits, fmt)
    out[...] = bits.view(np.float64)


@lru_cache(maxsize=64)
def values_of_codes(fmt: Format) -> np.ndarray:
    """Values of all codes of a format of at most 16 bits: float32, or float64 where needed."""
    codes = np.arange(1 << (fmt.bits + fmt.pad))
    table = np.empty(codes.size, np.float32 if formats.fits(fmt, FP32) else np.float64)
    with np.errstate(invalid="ignore"):
        _decode(codes, fmt, table)
    return table

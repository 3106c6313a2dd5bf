"""Operands drawn from a seed and an index: the same codes wherever they are drawn, so that a case has a name.

Element i of every operand depends on (seed, i) alone. Sixteen kinds of element follow one another: raw random
bits, special values against each other, operands of nearly equal size (sums that cancel and round), operands of few
significant bits (ties), equal ones up to the last bits, and the smallest and largest there are.
"""

from typing import NamedTuple

import numpy as np

from . import formats
from ._jit import njit
from .formats import Format
from .threads import parallel_for

u64, i64 = np.uint64, np.int64
GRAIN = 1 << 16
FORMATS = ("fp32", "bf16", "fp16")
OPERANDS = 4
KINDS = 16
#: kind of element -> how its operands are drawn
RAW, SPECIAL, NEAR, SHORT, EQUAL, EXTREME = 0, 5, 7, 11, 14, 15
GOLDEN, FACTOR1, FACTOR2 = u64(0x9E3779B97F4A7C15), u64(0xBF58476D1CE4E5B9), u64(0x94D049BB133111EB)
SHIFT1, SHIFT2, SHIFT3 = u64(30), u64(27), u64(31)


class Layout(NamedTuple):
    """What drawing needs to know of a format: widths of its fields and the exponent field of 1."""

    bits: int
    fraction: int
    bias: int


def layout(fmt: Format) -> Layout:
    """The Layout of a format with IEEE's fields: fp32, bf16, fp16."""
    return Layout(fmt.bits, fmt.precision - 1, fmt.exponent_bias)


def special_codes(fmt: Format) -> np.ndarray:
    """int64: zeros, subnormals and normals at their ends, around 1, powers of two, infinities and NaN of both signs."""
    bits, fraction, bias = layout(fmt)
    top = (1 << (bits - 1)) - (1 << fraction)  # infinity
    one = bias << fraction
    positive = [0, 1, 2, 3, (1 << fraction) - 1, 1 << fraction, (1 << fraction) + 1, 2 << fraction]
    positive += [one - 1, one, one + 1, one + (1 << fraction), one + (3 << fraction) // 2, one + (1 << fraction) - 1]
    positive += [one - (1 << fraction), one + (fraction << fraction), one - (fraction << fraction)]
    positive += [one + ((fraction + 1) << fraction), one - ((fraction + 1) << fraction)]
    positive += [(one >> 1) & -(1 << fraction), one + (one >> 1 & -(1 << fraction))]
    positive += [top - (2 << fraction), top - (1 << fraction), top - (1 << fraction) - 1, top - 1, top]
    positive += [top + 1, top + (1 << (fraction - 1)), top + (1 << fraction) - 1]
    return np.array(positive + [code + (1 << (bits - 1)) for code in positive], np.int64)


@njit
def splitmix64(x):
    """The mixing function of SplitMix64, uint64 to uint64. Source: Steele, Lea and Flood, OOPSLA 2014."""
    x = u64(x) + GOLDEN
    x = (x ^ (x >> SHIFT1)) * FACTOR1
    x = (x ^ (x >> SHIFT2)) * FACTOR2
    return x ^ (x >> SHIFT3)


@njit
def _fields(word, field, span, layout):
    """A code with random sign and fraction whose exponent field is within `span` below and above `field`."""
    top = (i64(1) << (layout.bits - 1 - layout.fraction)) - 1
    near = field + i64((word >> u64(40)) % u64(2 * span + 1)) - span
    near = min(max(near, i64(0)), top)
    sign = i64(word >> u64(63))
    fraction = i64(word & u64((1 << layout.fraction) - 1))
    return (sign << (layout.bits - 1)) | (near << layout.fraction) | fraction


@njit
def _shortened(code, word, layout):
    """The code with all but a few of its upper fraction bits cleared."""
    cleared = i64((word >> u64(32)) % u64(layout.fraction + 1))
    return (code >> cleared) << cleared


@njit
def _kind_of(index):
    """RAW, SPECIAL, NEAR, SHORT, EQUAL or EXTREME."""
    k = index & (KINDS - 1)
    if k < SPECIAL:
        return RAW
    if k < NEAR:
        return SPECIAL
    if k < SHORT:
        return NEAR
    return SHORT if k < EQUAL else k


@njit
def _code(kind, word, operand, before, specials, layout):
    """The code of one operand. before: int64 (4,), the codes of the operands drawn so far."""
    raw = i64(word & u64((1 << layout.bits) - 1))
    magnitude = (i64(1) << (layout.bits - 1)) - 1
    if kind == RAW or (operand == 0 and kind != SPECIAL and kind != EXTREME):
        return _shortened(raw, word, layout) if kind == SHORT else raw
    if kind == SPECIAL:
        return specials[i64((word >> u64(20)) % u64(specials.size))]
    if kind == EXTREME:
        high = (i64(1) << (layout.bits - 1 - layout.fraction)) - 2
        return _fields(word, high if (word >> u64(33)) & u64(1) else i64(0), 2, layout)
    if kind == EQUAL:
        near = (before[operand - 1] & magnitude) + i64((word >> u64(40)) & u64(3)) - 1
        return max(near, i64(0)) | (i64(word >> u64(63)) << (layout.bits - 1))
    field = (before[operand - 1] & magnitude) >> layout.fraction
    if operand == 2:  # near the product of the first two
        field += ((before[0] & magnitude) >> layout.fraction) - layout.bias
    if operand == 3:  # so that the third and fourth multiply to about as much
        field = ((before[0] & magnitude) >> layout.fraction) + ((before[1] & magnitude) >> layout.fraction)
        field -= (before[2] & magnitude) >> layout.fraction
    code = _fields(word, field, layout.fraction + 3, layout)
    return _shortened(code, word, layout) if kind == SHORT else code


@njit
def _fill(key, first, specials, layout, out):
    """out[o, i]: the code of operand o of element first + i; out int64 or unsigned (operands, n)."""
    codes = np.zeros(OPERANDS, np.int64)
    for i in range(out.shape[1]):
        index = i64(first + i)
        kind = _kind_of(index)
        state = splitmix64(u64(key) ^ u64(index))
        for o in range(OPERANDS):
            state = splitmix64(state)
            codes[o] = _code(kind, state, o, codes, specials, layout)
        for o in range(out.shape[0]):
            out[o, i] = codes[o]


def codes(seed: int, first: int, n: int, fmt: str, operands: int = OPERANDS) -> np.ndarray:
    """uint16 or uint32 (operands, n): codes of elements first .. first + n - 1. fmt: fp32, bf16 or fp16."""
    row = formats.FORMATS[fmt]
    out = np.empty((operands, n), f"u{row.bits // 8}")
    shape, specials = layout(row), special_codes(row)
    key = u64(splitmix64(u64((3 * seed + FORMATS.index(fmt)) % (1 << 64))))  # a Python int beyond int64 otherwise

    def body(start: int, stop: int) -> None:
        _fill(key, first + start, specials, shape, out[:, start:stop])

    parallel_for(body, n, GRAIN)
    return out


__all__ = ["codes", "layout", "special_codes", "splitmix64"]

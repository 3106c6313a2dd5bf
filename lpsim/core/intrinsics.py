"""Bit casts and fused multiply-add for compiled code: one instruction each, usable in any @njit function.

Only binary32 and binary64 as the host's own registers hold them. Numba calls no method of NumPy for
these without allocating memory, so they are written as LLVM. LLVM vectorises all of them.

A NaN may lose its payload's meaning in arithmetic, but not here: the casts move bits and nothing else.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import types

from .._jit import njit


def inlined(function):
    """`njit`, and always inlined: LLVM leaves large bodies uninlined, and a loop around one stays scalar."""
    dispatcher = njit(function)
    dispatcher.targetoptions["forceinline"] = True
    return dispatcher


def _intrinsic(function) -> Callable[..., Any]:
    """numba.extending.intrinsic. The first parameter, Numba's typing context, is none of the caller's."""
    return extending.intrinsic(function)


def _cast(argument, result):
    """An intrinsic's typing and code generator for an LLVM bitcast between two Numba types."""

    def generate(context, builder, signature, args):
        return builder.bitcast(args[0], context.get_value_type(result))

    return result(argument), generate


@_intrinsic
def f32_to_bits(typingctx, x):
    """uint32 bit pattern of a float32. Any other type is refused when compiling: nothing is rounded."""
    if x == types.float32:
        return _cast(types.float32, types.uint32)


@_intrinsic
def bits_to_f32(typingctx, bits):
    """float32 with the low 32 bits of `bits`, an integer of any width; exact, NaN payloads included."""
    if isinstance(bits, types.Integer):

        def generate(context, builder, signature, args):
            word = context.cast(builder, args[0], bits, types.uint32)
            return builder.bitcast(word, ir.FloatType())

        return types.float32(bits), generate


@_intrinsic
def f64_to_bits(typingctx, x):
    """int64 bit pattern of a float64, as `core.codec` takes and gives it."""
    if x == types.float64:
        return _cast(types.float64, types.int64)


@_intrinsic
def bits_to_f64(typingctx, bits):
    """float64 with the 64 bits of an int64 or uint64; exact, NaN payloads included."""
    if bits in (types.int64, types.uint64):
        return _cast(bits, types.float64)


@_intrinsic
def select(typingctx, condition, a, b):
    """a if condition else b (of one type) as one instruction, never a branch: a loop over it vectorises."""
    if condition == types.boolean and a == b:

        def generate(context, builder, signature, args):
            return builder.select(args[0], args[1], args[2])

        return a(condition, a, b), generate


@_intrinsic
def wide_vectors(typingctx):
    """Lets LLVM vectorise the function that calls this with all that the host has: no instruction, the same bits.

    On many processors with AVX-512 it takes half of a vector's width otherwise, lest the clock slow down. Worth it
    where nearly all of the time goes to vector instructions. Not for what is inlined: that is compiled before.
    """

    def generate(context, builder, signature, args):
        # llvmlite's add() knows LLVM's own attributes only, not those with a value.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), generate


def _fma(kind):
    """Typing and code generator of llvm.fma for one type."""

    def generate(context, builder, signature, args):
        return builder.fma(*args)

    return kind(kind, kind, kind), generate


@_intrinsic
def fma_f32(typingctx, a, b, c):
    """float32 a * b + c with one rounding to nearest, subnormals kept. All three must be float32.

    Source: IEEE 754-2019 5.4.1. Where the host has no such instruction LLVM calls the C library's fmaf,
    which glibc computes exactly too. (Rounding a float64 a * b + c instead would round twice.)
    """
    if a == b == c == types.float32:
        return _fma(types.float32)


@_intrinsic
def fma_f64(typingctx, a, b, c):
    """float64 a * b + c with one rounding to nearest; as `fma_f32`."""
    if a == b == c == types.float64:
        return _fma(types.float64)

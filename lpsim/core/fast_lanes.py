"""Shifts that keep their width. Numba makes uint32 >> uint32 a 64-bit shift, which halves the lanes of a vector.

Each is one instruction, usable in any @njit function.
"""

from numba.core import types

from .intrinsics import _intrinsic


def _shift(build):
    """An intrinsic's body: both operands uint32, or both uint64 or int64. The count must be below the width."""

    def typed(x, n):
        if x == n and x in (types.uint32, types.uint64, types.int64):
            return x(x, n), lambda context, builder, signature, args: build(builder, *args)

    return typed


@_intrinsic
def shift_right(typingctx, x, n):
    """x >> n, zeros coming in from the left; uint32, uint64 or int64 throughout. n: 0 to the width less one."""
    return _shift(lambda builder, *args: builder.lshr(*args))(x, n)


@_intrinsic
def shift_left(typingctx, x, n):
    """x << n modulo 2^width; uint32, uint64 or int64 throughout. n: 0 to the width less one."""
    return _shift(lambda builder, *args: builder.shl(*args))(x, n)

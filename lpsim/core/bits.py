"""The integer vocabulary: choose, count, shift without losing what was shifted out."""

from numba.core import types
from numba.extending import lower_builtin, type_callable

from .._jit import njit


def where(condition, a, b):
    """a if condition else b; both are evaluated. Integers become int64 (two booleans stay boolean)."""
    return a if condition else b


@type_callable(where)
def _type_where(context):
    """One select instruction: as a compiled function it would be built again for every mix of types."""

    def typer(condition, a, b):
        if all(isinstance(types.unliteral(x), types.Boolean) for x in (a, b)):
            return types.boolean
        if all(isinstance(types.unliteral(x), types.Integer | types.Boolean) for x in (condition, a, b)):
            return types.int64

    return typer


@lower_builtin(where, types.Any, types.Any, types.Any)
def _lower_where(context, builder, signature, args):
    condition, a, b = (
        context.cast(builder, value, given, wanted)
        for value, given, wanted in zip(
            args, signature.args, (types.boolean, signature.return_type, signature.return_type), strict=True
        )
    )
    return builder.select(condition, a, b)


@njit
def mask(n):
    """n ones. 0 <= n <= 62."""
    return (1 << n) - 1


@njit
def bit_length(x):
    """Bits needed to write x. 0 <= x < 2^62."""
    n = x & 0
    big = (x >> 32) > 0
    n = n + where(big, 32, 0)
    x = where(big, x >> 32, x)
    big = (x >> 16) > 0
    n = n + where(big, 16, 0)
    x = where(big, x >> 16, x)
    big = (x >> 8) > 0
    n = n + where(big, 8, 0)
    x = where(big, x >> 8, x)
    big = (x >> 4) > 0
    n = n + where(big, 4, 0)
    x = where(big, x >> 4, x)
    big = (x >> 2) > 0
    n = n + where(big, 2, 0)
    x = where(big, x >> 2, x)
    big = (x >> 1) > 0
    n = n + where(big, 1, 0)
    x = where(big, x >> 1, x)
    return n + x


@njit
def clamp(x, low, high):
    """x, but not below low and not above high."""
    x = where(x < low, low, x)
    return where(x > high, high, x)


@njit
def shift_right_sticky(x, n):
    """x >> n, with the last bit set if a one was shifted out. 0 <= x < 2^62, any n >= 0.

    The last bit then says "or a little more", which is all that rounding further up needs to know.
    """
    n = clamp(n, 0, 62)
    return (x >> n) | where((x & mask(n)) > 0, 1, 0)


@njit
def shift_sticky(x, n):
    """x * 2^n for n of either sign; to the right as in `shift_right_sticky`. The result must stay below 2^62."""
    return where(n >= 0, x << clamp(n, 0, 62), shift_right_sticky(x, clamp(0 - n, 0, 62)))

"""A kernel that calls any twin of a core function with what its parameters are."""

import triton
import triton.language as tl

from lpsim.core.codec import Number


@tl.core.builtin
def arguments(x, kinds, fmt, policy, _semantic=None):
    """The block x as every integer that a function takes, alone or in Numbers; the rows as they are."""
    rows = {"fmt": fmt, "policy": policy}
    number = Number(x, x, x, x)
    types = tl.tuple_type([x.type] * len(number), Number._fields)
    return tuple(rows.get(kind) or (tl.tuple(number, types) if kind == "number" else x) for kind in kinds.value.split())


@tl.core.builtin
def total(result, _semantic=None):
    """The sum of all parts of a result, as int64: nothing is left out as unused."""
    parts = result.values if isinstance(result, tl.tuple) else [result]
    found = _semantic.cast(parts[0], tl.int64)
    for part in parts[1:]:
        found = _semantic.add(found, _semantic.cast(part, tl.int64), False)
    return found


@triton.jit
def call(
    x, out, function: tl.constexpr, kinds: tl.constexpr, fmt: tl.constexpr, policy: tl.constexpr, BLOCK: tl.constexpr
):
    """out = the sum of what function returns for arguments that are all x."""
    i = tl.arange(0, BLOCK)
    tl.store(out + i, total(function(*arguments(tl.load(x + i), kinds, fmt, policy))))

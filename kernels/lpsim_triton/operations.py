"""One rounded operation on binary64 values, through the mirrored core: the kernels of the live check of `mirror`."""

import triton
import triton.language as tl

from lpsim.core import arith, codec, compare

from .mirror import mirror

unpack_f64 = mirror(codec.unpack_f64)
#: name -> (twin, how many operands it takes)
ARITHMETIC = {
    name: (mirror(getattr(arith, name)), operands)
    for name, operands in {"add": 2, "sub": 2, "mul": 2, "div": 2, "sqrt": 1, "fma": 3}.items()
}
COMPARISONS = {
    name: (mirror(getattr(compare, name)), operands)
    for name, operands in {
        "order": 2, "minimum": 2, "maximum": 2, "minimum_number": 2, "maximum_number": 2, "copysign": 2,
        "neg": 1, "absolute": 1, "quiet": 1, "is_nan": 1, "is_infinite": 1,
    }.items()
}  # fmt: skip


@triton.jit
def arithmetic_kernel(
    a, b, c, out, n, function: tl.constexpr, operands: tl.constexpr, fmt: tl.constexpr, policy: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """out = codes of fmt: function of the binary64 bits a, b, c (int64), as many as it takes."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = unpack_f64(tl.load(a + i, i < n, other=0))
    if operands == 1:
        step = function(x, fmt, policy, 0)
    else:
        y = unpack_f64(tl.load(b + i, i < n, other=0))
        if operands == 2:
            step = function(x, y, fmt, policy, 0)
        else:
            step = function(x, y, unpack_f64(tl.load(c + i, i < n, other=0)), fmt, policy, 0)
    tl.store(out + i, step.code, i < n)


@triton.jit
def comparison_kernel(
    a, b, out, n, function: tl.constexpr, operands: tl.constexpr, fmt: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """out = function of the codes a, b (int64) of fmt."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(a + i, i < n, other=0)
    result = function(x, fmt) if operands == 1 else function(x, tl.load(b + i, i < n, other=0), fmt)
    tl.store(out + i, result, i < n)

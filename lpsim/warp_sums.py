"""Sums, maxima and scans of a tile as a Triton program computes them: registers, then lanes, then warps.

  1. a thread joins its own elements, ascending: one after the other (Triton 3.6), or in a balanced tree (3.9)
  2. lanes 16, 8, 4, 2, 1 apart, as far as they are on the axis, are joined: v = v + shuffled v
  3. each warp's lane 0 writes to shared memory; there the warps are joined in the same way
The value that is stored is lane 0's. A multiplication before the sum is contracted with enable_fp_fusion:
  several elements a thread    RN(x1 y1), then fma(x0, y0, .), then fma(xj, yj, .) for j = 2, 3, ..
  one element a thread         fma(x, y, shuffled RN(x y)): lanes then hold different values
Source: PTX and SASS of Triton 3.6.0 and 3.9.0 for sm_90; 3.6 confirmed on an H200 (lpsim_triton.crosscheck_reductions).
"""

from collections.abc import Callable

import numpy as np

from . import arrays
from .errors import NotModelled, choose

#: how a thread joins its own elements, by the version of Triton
IN_THREAD = ("sequential", "tree")

Add = Callable[[np.ndarray, np.ndarray], np.ndarray]


def adder(fmt: str) -> Add:
    """The addition of a format on its values: fp16 and bf16 round after each one, integers wrap."""
    return np.add if fmt in ("fp32", "fp64", "int32") else lambda a, b: arrays.add(a, b, fmt)


def total(x: np.ndarray, places: str, fmt: str = "fp32", in_thread: str = "sequential") -> np.ndarray:
    """tl.sum of each row. x: (..., n) values of fmt, n = 2 ** len(places); (...,) of x's dtype, NaN as numpy has it.

    fmt: fp32, fp64 or int32 (x of that dtype), fp16 or bf16 (x float32 on that grid).
    places: where an index's bits lie, see `layouts.places`.
    """
    held, lanes, warps = _dealt(x, places)
    add = adder(fmt)
    joined = _tree(held, add, halves=fmt in ("fp16", "bf16")) if _is_tree(in_thread) else _sequence(held, add)
    return _butterfly(_butterfly(joined, lanes, add), warps, add)[0]


def total_of_products(
    x: np.ndarray, y: np.ndarray, places: str, fmt: str = "fp32", in_thread: str = "sequential", fusion: bool = True
) -> np.ndarray:
    """tl.sum(x * y) of each row, of operands as in `total`; fusion as the launch option enable_fp_fusion.

    Raises NotModelled for what is contracted in fp64, and in 16 bits, where LLVM pairs multiplications and additions
    in ways that change with the kernel around them.
    """
    mul = np.multiply if fmt in ("fp32", "fp64") else lambda a, b: arrays.mul(a, b, fmt)
    if not fusion or fmt == "int32" or ("r" not in places and "l" not in places):
        products = x * y if fmt == "int32" else mul(x, y)
        return total(products, places, fmt, in_thread)
    tree = _is_tree(in_thread)
    if fmt != "fp32":
        raise NotModelled(f"tl.sum(x * y) with contraction is not modelled in {fmt}; fusion=False is, and fp32.")
    (a, lanes, warps), (b, _, _) = _dealt(x, places), _dealt(y, places)
    add = adder(fmt)

    def fma(p, q, r):
        return arrays.fma(p, q, r, fmt)

    if len(a) > 1:
        joined = fma(a[0], b[0], mul(a[1], b[1]))
        if tree:  # the first level of the tree is contracted, the others are additions
            joined = _tree(fma(a[0::2], b[0::2], mul(a[1::2], b[1::2])), add, False)
        for p, q in zip(a[2:], b[2:], strict=True) if not tree else ():
            joined = fma(p, q, joined)
    else:
        (a_low, a_high), (b_low, b_high) = _halves(a[0], lanes), _halves(b[0], lanes)
        joined = fma(a_low, b_low, mul(a_high, b_high))
        lanes //= 2
    return _butterfly(_butterfly(joined, lanes, add), warps, add)[0]


def running(x: np.ndarray, places: str, fmt: str = "fp32") -> np.ndarray:
    """tl.cumsum along each row. x as in `total`; the result has its shape.

    A thread's run of neighbours is a prefix sum; the runs' sums are scanned by lanes 1, 2, 4, 8, 16 apart; the carry
    is the sum of the warps' totals before, one after the other; a run's other elements get the sum at the end of the
    lane before. Source: PTX of Triton 3.6.0 for sm_90.
    """
    run, lanes, warps, repeats = _scan_sides(places)
    add = adder(fmt)
    x = np.moveaxis(x, -1, 0)  # rows last: a shuffle is then one operation on all of them
    runs = x.reshape(repeats, warps, lanes, run, *x.shape[1:]).copy()
    for j in range(1, run):
        runs[:, :, :, j] = add(runs[:, :, :, j], runs[:, :, :, j - 1])
    ends = runs[:, :, :, -1].copy()
    distance = 1
    while distance < lanes:
        ends[:, :, distance:] = add(ends[:, :, distance:], ends[:, :, :-distance])
        distance *= 2
    totals = ends[:, :, -1].copy().reshape(repeats * warps, *x.shape[1:])
    ends = ends.reshape(repeats * warps, lanes, *x.shape[1:])
    runs = runs.reshape(repeats * warps, lanes, run, *x.shape[1:])
    carry = totals[0]
    for group in range(1, len(totals)):
        ends[group] = add(ends[group], carry)
        if run > 1:
            runs[group, 0, :-1] = add(runs[group, 0, :-1], carry)
        carry = add(carry, totals[group])
    if run > 1:
        runs[:, 1:, :-1] = add(runs[:, 1:, :-1], ends[:, :-1, None])
    runs[:, :, -1] = ends
    return np.moveaxis(runs.reshape(x.shape), 0, -1)


def extreme(x: np.ndarray, smallest: bool = False) -> np.ndarray:
    """tl.max (or min) of float32, float64 or int32 rows, (..., n) to (...,): one result whatever the order.

    A NaN loses against any number, +0 is above -0; NaN alone gives NaN. Source: PTX ISA, max.f32 without .NaN.
    """
    if x.dtype.kind == "i":
        return x.min(-1) if smallest else x.max(-1)
    nothing = np.isnan(x)  # NumPy's fmax lets a signalling NaN win
    filled = np.where(nothing, np.inf if smallest else -np.inf, x).astype(x.dtype)
    found = filled.min(-1) if smallest else filled.max(-1)
    winning = (x == 0) & (np.signbit(x) if smallest else ~np.signbit(x))  # the zero that wins against the other
    zero = np.where(winning.any(-1) != smallest, np.float32(0.0), np.float32(-0.0)).astype(x.dtype)
    return np.where(nothing.all(-1), x.dtype.type(np.nan), np.where(found == 0, zero, found))


def _dealt(x: np.ndarray, places: str) -> tuple[np.ndarray, int, int]:
    """x as (registers, lanes * warps, ...), warps the slower; and how many lanes and warps share the axis."""
    bits = len(places)
    cube = np.moveaxis(x, -1, 0).reshape((2,) * bits + x.shape[:-1])  # axis i is bit bits - 1 - i
    order = [bits - 1 - i for kind in "rwl" for i in reversed(range(bits)) if places[i] == kind]
    cube = cube.transpose(*order, *range(bits, cube.ndim))
    lanes, warps = 1 << places.count("l"), 1 << places.count("w")
    return np.ascontiguousarray(cube).reshape(-1, warps * lanes, *x.shape[:-1]), lanes, warps


def _halves(x: np.ndarray, lanes: int) -> tuple[np.ndarray, np.ndarray]:
    """The lower and the upper half of the lanes of each warp, (warps * lanes / 2, ...) each."""
    x = x.reshape(-1, lanes, *x.shape[1:])
    return tuple(np.concatenate(half) for half in (x[:, : lanes // 2], x[:, lanes // 2 :]))  # pyright: ignore


def _butterfly(x: np.ndarray, side: int, add: Add) -> np.ndarray:
    """x (groups * side, ...): the halves of each group joined until one is left; (groups, ...)."""
    x = x.reshape(-1, side, *x.shape[1:])
    while side > 1:
        side //= 2
        x = add(x[:, :side], x[:, side:])
    return x[:, 0]


def _sequence(held: np.ndarray, add: Add) -> np.ndarray:
    joined = held[0]
    for element in held[1:]:
        joined = add(joined, element)
    return joined


def _tree(held: np.ndarray, add: Add, halves: bool) -> np.ndarray:
    """Neighbours joined, level by level. halves: 16-bit additions come two at a time, even and odd elements apart."""
    if halves and len(held) > 1:
        return add(_tree(held[0::2], add, False), _tree(held[1::2], add, False))
    while len(held) > 1:
        held = add(held[0::2], held[1::2])
    return held[0]


def _scan_sides(places: str) -> tuple[int, int, int, int]:
    """Sizes of runs, lanes, warps and repeats of a blocked axis; NotModelled for another."""
    rest = places
    sides = []
    for kind in "rlwr":
        count = len(rest) - len(rest.lstrip(kind))
        sides.append(1 << count)
        rest = rest[count:]
    if rest:
        raise NotModelled(f"tl.cumsum along an axis laid out as {places!r} is not modelled; blocked layouts are.")
    run, lanes, warps, repeats = sides
    return (run, lanes, warps, repeats) if lanes * warps > 1 else (run * repeats, 1, 1, 1)


def _is_tree(in_thread: str) -> bool:
    return choose("in_thread", in_thread, {name: name == "tree" for name in IN_THREAD})

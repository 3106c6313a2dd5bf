"""Where a Triton program keeps the elements of a tile: registers, lanes and warps, as rows.

What a reduction along an axis adds first follows from it alone (`warp_sums`). A tile's side is a power of two, so an
index along an axis is a few bits; `places` says for each bit, the lowest first, whether it picks one of a thread's
own registers ("r"), a lane of the warp ("l") or a warp ("w"): "rrlllllwwr" is a row of 1024 float32 with four warps.
Source: the layouts that Triton 3.6 writes into ttgir for sm_90 (`#ttg.blocked`, `#ttg.nvidia_mma` version 3).
"""

from math import prod
from typing import NamedTuple

LANES = 32  #: of a warp
BYTES = 16  #: that a thread loads at once, at most


class Layout(NamedTuple):
    """A blocked layout, as Triton's: one entry for each axis of the tile."""

    size_per_thread: tuple[int, ...]  #: neighbouring elements that one thread holds
    threads_per_warp: tuple[int, ...]  #: 32 in all
    warps_per_cta: tuple[int, ...]  #: num_warps in all
    order: tuple[int, ...]  #: axes, the one that is contiguous in memory first


class Accumulator(NamedTuple):
    """The layout of a wgmma accumulator, (M, N) with M >= 64: what tl.dot leaves."""

    warps_per_cta: tuple[int, int]  #: (num_warps, 1) for most shapes
    columns: int  #: of one instruction, the n of its instrShape


def layout_of(shape, itemsize: int, num_warps: int = 4, *, alignment: int = BYTES, order=None) -> Layout:
    """The layout that Triton chooses for a tile that is loaded from memory.

    shape: sides of the tile, powers of two. itemsize: bytes of an element. num_warps: a power of two, 1 to 32.
    alignment: bytes that divide the address of every row of the tile, as far as the compiler knows (a pointer and
    strides that are multiples of 16: 16; others: itemsize). order: axes, the contiguous one first; None: C order.
    A thread holds as many neighbours as one 16-byte load brings, if the tile has that many for each thread; lanes,
    then warps, are dealt along the contiguous axis first; what is left of them goes to the last axis.
    Source: ttgir of Triton 3.6 for sm_90; lpsim_triton.crosscheck_reductions compares the two. Raises ValueError.
    """
    shape = tuple(shape)
    order = tuple(reversed(range(len(shape)))) if order is None else tuple(order)
    if sorted(order) != list(range(len(shape))):
        raise ValueError(f"order={order} must name each axis of a tile of shape {shape} once.")
    for name, sides in (("shape", shape), ("num_warps", (num_warps,)), ("itemsize", (itemsize,))):
        check_powers(name, sides)
    check_powers("alignment", (alignment,))
    if num_warps > LANES:
        raise ValueError(f"num_warps={num_warps} must be a power of two from 1 to 32.")
    at_once = max(1, min(BYTES, alignment) // itemsize)
    size = [1] * len(shape)
    size[order[0]] = min(at_once, shape[order[0]], max(1, prod(shape) // (LANES * num_warps)))
    threads, warps = [1] * len(shape), [1] * len(shape)
    lanes_left, warps_left = LANES, num_warps
    for axis in order:
        wanted = max(1, shape[axis] // size[axis])
        threads[axis] = min(wanted, lanes_left)
        warps[axis] = min(max(1, wanted // threads[axis]), warps_left)
        lanes_left //= threads[axis]
        warps_left //= warps[axis]
    threads[order[-1]] *= lanes_left
    warps[order[-1]] *= warps_left
    return Layout(tuple(size), tuple(threads), tuple(warps), order)


def places(layout: Layout | Accumulator, shape, axis: int) -> str:
    """The bits of an index along the axis of a tile of this shape, lowest first: "r", "l" or "w" each.

    A tile smaller than the layout leaves lanes or warps with copies; those bits do not appear. Raises ValueError.
    """
    check_powers("shape", shape)
    if not 0 <= axis < len(shape):
        raise ValueError(f"axis={axis} does not exist in a tile of shape {tuple(shape)}.")
    bits = _accumulator(layout, axis) if isinstance(layout, Accumulator) else _blocked(layout, axis)
    count = log2(shape[axis])
    return (bits + "r" * count)[:count]


def _blocked(layout: Layout, axis: int) -> str:
    parts = zip("rlw", (layout.size_per_thread, layout.threads_per_warp, layout.warps_per_cta), strict=True)
    return "".join(kind * log2(sides[axis]) for kind, sides in parts)


def _accumulator(layout: Accumulator, axis: int) -> str:
    """Thread t of a warp holds rows t // 4 and t // 4 + 8 and columns 2 (t % 4) + {0, 1}, and so on every 8."""
    warps = "w" * log2(layout.warps_per_cta[axis])
    return "lll" + "r" + warps if axis == 0 else "rll" + "r" * log2(layout.columns // 8) + warps


def log2(power: int) -> int:
    """The exponent of a power of two."""
    return power.bit_length() - 1


def check_powers(name: str, sides) -> None:
    """ValueError that names the argument unless all are powers of two."""
    if any(type(side) is not int or side < 1 or side & (side - 1) for side in sides):
        given = sides[0] if len(sides) == 1 else tuple(sides)
        raise ValueError(f"{name}={given} must be of powers of two, ints.")


__all__ = ["Accumulator", "Layout", "layout_of", "places"]

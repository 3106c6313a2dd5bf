"""What `Machine.sum`, `max`, `min` and `cumsum` do with a user's array: dtype, padding, layout, NaN."""

from typing import NamedTuple, TypedDict

import numpy as np

from . import border, layouts, warp_sums
from .errors import NotModelled
from .layouts import Accumulator, Layout

#: dtype -> format and the code of the NaN that the GPU's arithmetic gives
ROWS = {
    "float32": ("fp32", np.uint32(0x7FFFFFFF)),
    "float64": ("fp64", None),  # the payload of a double's NaN is not modelled
    "float16": ("fp16", np.uint16(0x7FFF)),
    "bfloat16": ("bf16", np.uint16(0x7FFF)),
    "int32": ("int32", None),
}


def dtype_of(fmt: str) -> np.dtype:
    """The dtype of a format that reductions are modelled for."""
    name = next(name for name, (own, _) in ROWS.items() if own == fmt)
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


class Options(TypedDict, total=False):
    """How a kernel holds x: keyword arguments of `Machine.sum`, `max`, `min` and `cumsum`."""

    axis: int  #: the reduced axis of x, one of the tile's (default: the last)
    tile: int  #: axes of the tile, 1 or 2, the last ones of x; the others number programs (default: 1)
    num_warps: int  #: (default: 4)
    alignment: int  #: bytes that divide the address of every row, see `layouts.layout_of` (default: 16)
    layout: Layout | Accumulator | None  #: in place of the one that follows from shape, num_warps and alignment
    in_thread: str  #: "sequential" (Triton 3.6, the default) or "tree" (3.9)


class Tile(NamedTuple):
    """`Options` with their defaults."""

    axis: int = -1
    tile: int = 1
    num_warps: int = 4
    alignment: int = layouts.BYTES
    layout: Layout | Accumulator | None = None
    in_thread: str = "sequential"


def tile_of(options: Options) -> Tile:
    """TypeError for an option that does not exist."""
    strange = options.keys() - set(Tile._fields)
    if strange:
        raise TypeError(f"{', '.join(sorted(strange))}: no such option; there are {', '.join(Tile._fields)}.")
    return Tile(**options)


@np.errstate(invalid="ignore", over="ignore")  # NaN and infinity are results like any other
def total(x, tile: Tile, times=None, fusion: bool = True):
    """tl.sum of x, or of x * times with or without contraction."""
    given, fmt, nan = _given(x, "x")
    rows, places = _rows(given.array, tile, 0)
    if times is None and not places:  # nothing is added: a NaN is as it was
        return _result(np.take(given.array, 0, _axis(given.array, tile)), given, given.array.dtype, None)
    if times is None:
        found = warp_sums.total(rows, places, fmt, tile.in_thread)
    else:
        other, other_fmt, _ = _given(times, "times")
        if other_fmt != fmt or other.array.shape != given.array.shape:
            raise TypeError(
                f"times is {other.array.dtype} {other.array.shape}, but x is {given.array.dtype} {given.array.shape}: "
                "they must be alike."
            )
        factors, _ = _rows(other.array, tile, 0)
        if fusion and fmt == "fp32" and tile.tile == 2 and set(places) == {"l"}:
            raise NotModelled(
                "tl.sum(x * times) with contraction and one element a thread: lanes hold different sums, and which of "
                "them is stored is not modelled for tile=2; fusion=False is."
            )
        found = warp_sums.total_of_products(rows, factors, places, fmt, tile.in_thread, fusion)
    return _result(found, given, given.array.dtype, nan)


@np.errstate(invalid="ignore", over="ignore")
def running(x, tile: Tile):
    """tl.cumsum of x; bf16 comes back as float32, as in Triton. The layout is that of the stored result."""
    given, fmt, nan = _given(x, "x")
    dtype = given.array.dtype
    if fmt == "bf16":
        fmt, nan = ROWS["float32"]
        dtype = np.dtype(np.float32)
    n = given.array.shape[_axis(given.array, tile)]
    rows, places = _rows(given.array, tile, 0, dtype.itemsize)
    found = np.moveaxis(warp_sums.running(rows, places, fmt)[..., :n], -1, _axis(given.array, tile))
    result = np.asarray(_result(found, given._replace(torch=False), dtype, nan))
    first = [slice(None)] * found.ndim
    first[_axis(given.array, tile)] = slice(0, 1)
    result[tuple(first)] = _widened(given.array[tuple(first)], dtype)  # nothing is added to the first: its NaN is kept
    return border.to_torch(result) if given.torch else result


@np.errstate(invalid="ignore")
def extreme(x, tile: Tile, smallest: bool):
    """tl.max or tl.min of x; fp16 and bf16 come back as float32, as in Triton."""
    given, fmt, nan = _given(x, "x")
    dtype = np.dtype(np.float32) if fmt in ("fp16", "bf16") else given.array.dtype
    info = np.iinfo(np.int32) if fmt == "int32" else None
    last = (np.inf if smallest else -np.inf) if info is None else (info.max if smallest else info.min)
    rows, places = _rows(given.array, tile, last)
    found = warp_sums.extreme(rows, smallest)
    if not places and fmt != "fp16":  # nothing is compared: a NaN is as it was, but for cvt.f32.f16
        return _result(_widened(np.take(given.array, 0, _axis(given.array, tile)), dtype), given, dtype, None)
    return _result(found, given, dtype, None if nan is None else ROWS["float32"][1])


def _widened(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """x in a dtype that holds it; bf16 by a shift, which keeps a NaN as it is."""
    if x.dtype.name != "bfloat16":
        return x.astype(dtype)
    return (
        (np.ascontiguousarray(x).view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).reshape(x.shape)
    )


def _given(x, name: str) -> tuple[border.Given, str, np.integer | None]:
    given = border.raw(x, name)
    if given.array.dtype.name not in ROWS:
        border.values(x, name)  # says what is wrong with codes and objects
        raise TypeError(f"{name} has dtype {given.array.dtype}; reductions are modelled for {', '.join(ROWS)}.")
    return given, *ROWS[given.array.dtype.name]


def _axis(x: np.ndarray, tile: Tile) -> int:
    """The reduced axis, counted from x's first."""
    if tile.tile not in (1, 2) or x.ndim < tile.tile:
        raise ValueError(f"tile={tile.tile} must be 1 or 2, and x of shape {x.shape} have as many axes.")
    axis = tile.axis if tile.axis < 0 else tile.axis - x.ndim
    if not -tile.tile <= axis < 0:
        raise ValueError(f"axis={tile.axis} is not among the last {tile.tile} of x of shape {x.shape}, the tile's.")
    return axis + x.ndim


def _rows(x: np.ndarray, tile: Tile, fill, itemsize: int | None = None) -> tuple[np.ndarray, str]:
    """Rows along the axis, padded as a masked load pads them: (..., 2 ** k); and where their bits lie.

    itemsize: of the array whose load or store gives the layout, if it is not x.
    """
    axis = _axis(x, tile)
    if 0 in x.shape[x.ndim - tile.tile :]:
        raise ValueError(f"x of shape {x.shape} has an empty tile.")
    shape = tuple(1 << (side - 1).bit_length() for side in x.shape[x.ndim - tile.tile :])
    layout = tile.layout
    if layout is None:
        layout = layouts.layout_of(shape, itemsize or x.dtype.itemsize, tile.num_warps, alignment=tile.alignment)
    places = layouts.places(layout, shape, axis - (x.ndim - tile.tile))
    rows = np.moveaxis(x, axis, -1)
    rows = rows.astype(np.float32) if x.dtype.itemsize == 2 else rows
    missing = (1 << len(places)) - rows.shape[-1]
    padding = [(0, 0)] * (rows.ndim - 1) + [(0, missing)]
    return np.pad(rows, padding, constant_values=fill) if missing else rows, places


def _result(found: np.ndarray, given: border.Given, dtype: np.dtype, nan):
    """The result in its dtype, NaN as the GPU writes it."""
    result = np.array(found, dtype)
    if nan is not None:
        with np.errstate(invalid="ignore"):
            result.view(nan.dtype)[np.isnan(np.asarray(found, np.float64 if dtype.itemsize == 8 else np.float32))] = nan
    return border.to_torch(result) if given.torch else result[()]

"""The reductions that are compared with a real H200, and their inputs: recordings and live runs share them.

Dtypes, sizes (powers of two and not), axes, 1 to 8 warps, aligned and not, with and without contraction. Inputs come
from splitmix64 of (seed, index), so that a case can be made again from its name.
"""

from itertools import product
from typing import NamedTuple

import numpy as np

from . import layouts, tile_sums
from .instructions import machine

DTYPES = {fmt: tile_sums.dtype_of(fmt) for fmt in ("fp32", "fp16", "bf16", "fp64", "int32")}
OPERATIONS = ("sum", "products", "products, no fusion", "max", "min", "cumsum")
SIDES = ((1,), (2,), (5,), (32,), (64,), (100,), (256,), (1000,), (4096,))
TILES = ((8, 8), (16, 100), (64, 32), (3, 512), (128, 128), (40, 24))
INPUTS = ("normal", "wide", "cancelling", "bits")
ELEMENTS = 1 << 20  #: of a case's input, at scale 1


class Case(NamedTuple):
    """One comparison: tiles of this shape, reduced along an axis."""

    operation: str
    dtype: str
    shape: tuple[int, ...]
    axis: int
    num_warps: int
    aligned: bool
    inputs: str


def cases() -> list[Case]:
    """All of them, in a fixed order: the index seeds the inputs. Warps, alignment and inputs take turns."""
    found = []
    one, two = [(side, 0) for side in SIDES], [(tile, axis) for tile in TILES for axis in (0, 1)]
    for number, (operation, dtype, (shape, axis)) in enumerate(product(OPERATIONS, DTYPES, one + two)):
        warps, aligned = (1, 2, 4, 8)[number % 4], number // 4 % 4 != 3
        case = Case(operation, dtype, shape, axis, warps, aligned, INPUTS[(number // 3 + number // 21) % 4])
        found += [case] if modelled(case) else []
    alone = product(("sum", "max", "min", "cumsum"), DTYPES)  # nothing is joined: what becomes of a NaN?
    found += [Case(operation, dtype, (1,), 0, 1, True, "bits") for operation, dtype in alone]
    return found


def modelled(case: Case) -> bool:
    """False for contractions that `Machine.sum` refuses: not in fp32, or one element a thread in a 2-D tile's rows."""
    if case.operation != "products" or case.dtype == "int32":
        return True
    places = layouts.places(layout(case), padded(case), case.axis)
    return case.dtype == "fp32" and (len(case.shape) == 1 or places.strip("l") != "" or places == "")


def padded(case: Case) -> tuple[int, ...]:
    """Sides of the tile, powers of two."""
    return tuple(1 << (side - 1).bit_length() for side in case.shape)


def layout(case: Case) -> layouts.Layout:
    """The layout of the operand, for a scan of the result."""
    size = DTYPES[case.dtype].itemsize
    aligned = case.aligned
    if case.operation == "cumsum":  # the results are stored in whole tiles, bf16 as float32
        size, aligned = (4 if case.dtype == "bf16" else size), True
    return layouts.layout_of(padded(case), size, case.num_warps, alignment=layouts.BYTES if aligned else size)


def splitmix(seed: int, index: int, count: int) -> np.ndarray:
    """uint64 (count,): splitmix64 from a state made of (seed, index). Source: Steele, Lea, Flood, OOPSLA 2014."""
    start = (seed * 0x9E3779B97F4A7C15 + index * 0xD1342543DE82EF95) & (1 << 64) - 1
    with np.errstate(over="ignore"):
        z = np.uint64(start) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def inputs(case: Case, words: np.ndarray, shape: tuple) -> np.ndarray:
    """An array of the case's dtype and kind from words."""
    dtype, words = DTYPES[case.dtype], words.reshape(shape)
    if case.inputs == "bits" or case.dtype == "int32":
        return (words >> np.uint64(64 - 8 * dtype.itemsize)).astype(f"u{dtype.itemsize}").view(dtype)
    x = (words >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1.0
    if case.inputs == "wide":
        x = np.ldexp(x, (words & np.uint64(31)).astype(np.int64) - (24 if case.dtype == "fp16" else 16))
    if case.inputs == "cancelling":
        x[..., 1::2] = -x[..., : x.shape[-1] // 2 * 2 : 2] * (1 + 2.0**-7)
    return x.astype(dtype)


def operands(case: Case, seed: int, index: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """x and y, C order, (programs, *rows, stride): elements beyond the tile's columns are never read."""
    columns = case.shape[-1]
    stride = -(-columns // 16) * 16 + (not case.aligned)
    rows = case.shape[:-1]
    one = int(np.prod(rows, dtype=np.int64)) * stride
    programs = max(2, int(ELEMENTS * scale) // one)
    words = splitmix(seed, index, 2 * programs * one)
    x, y = (inputs(case, half, (programs, *rows, stride)) for half in np.split(words, 2))
    return x, y


def emulated(case: Case, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What `lp.machine("h200")` gives for the tiles' columns."""
    x, y = (z[..., : case.shape[-1]] for z in (x, y))
    h200 = machine("h200")
    options: tile_sums.Options = {"axis": case.axis - len(case.shape), "tile": len(case.shape)}
    options["num_warps"] = case.num_warps
    aligned = case.aligned or case.operation == "cumsum"
    options["alignment"] = layouts.BYTES if aligned else x.itemsize
    if case.operation.startswith("products"):
        return np.asarray(h200.sum(x, times=y, fusion=case.operation == "products", **options))
    return np.asarray(getattr(h200, case.operation)(x, **options))


def comparable(x: np.ndarray) -> np.ndarray:
    """A double's NaN as one NaN, since its payload is not modelled; other results as they are."""
    return np.where(np.isnan(x), np.nan, x) if x.dtype == np.float64 else x

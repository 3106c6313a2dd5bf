"""Blocked attention in compiled loops, in one memory layout: what the passes share.

The arithmetic of `on_machine` and `backward_machine`, which stay as the reading version, as the oracle of the
tests and for every option that is not here. There a call walks over whole arrays; here one piece of it (a chunk
of query rows, a key head) stays in the second-level cache from the scores to the output.

Everything is transposed so that a vector's lanes are independent rows of the softmax: S^T = K Q^T, O^T = V^T P^T.
Then maxima and sums of a row are plain loops over keys in the kernel's order, and the dots (`tile_i32`, and
`tile_f64` for the rows that it leaves) have as many columns as possible. A dot is symmetric in its operands.
"""

from typing import NamedTuple

import numpy as np

from .. import tile_f64, tile_i32
from .._jit import merged, njit
from ..core import fast_plan
from ..core.aligned import aligned
from ..core.fast_loops import round32
from ..core.fast_prefix import round_nearest
from ..dot_units import DotUnit
from ..dots import emin_of
from ..errors import NotModelled
from ..formats import FORMATS, Format
from ..machines import DOT_UNITS, DotRow, dot_row
from ..policies import IEEE, NVIDIA, RNE, Policy
from ..recipes import Recipe, Site
from .inputs import Call
from .sites import site_format
from .visible import EVERYWHERE

u64, f32 = np.uint64, np.float32
DEEP = 16  #: k that one block of the units in question multiplies
LANES = 256  #: rows side by side: panels of a block then stay in the first-level cache
LARGEST_TILE = 1024  #: keys of a tile whose scores one piece of work holds, LANES wide
FP16, BF16 = FORMATS["fp16"], FORMATS["bf16"]


class Blocks(NamedTuple):
    """An operand cut into blocks of DEEP k, arrays (groups, blocks, DEEP, width): as it is, and for `tile_i32`."""

    raw: np.ndarray  #: float32
    values: np.ndarray  #: float32
    exponents: np.ndarray  #: int8
    offsets: np.ndarray  #: int32 (groups, blocks, width)


class Cast(NamedTuple):
    """Rounding to the inputs' format, RN. Compiled code takes both plans; `upper` says which one is meant."""

    upper: bool  #: bf16: the upper half of float32
    prefix: fast_plan.Prefix
    grid: fast_plan.Plan


class Work(NamedTuple):
    """What the dots of one piece of work need beside their operands."""

    unit: DotUnit
    emin: int  #: exponent of the operands' smallest normal number
    rows: tile_i32.Rows
    left: np.ndarray  #: bool: rows that are left to float64


def covers(call: Call, recipe: Recipe, machine: str) -> bool:
    """True if the loops here compute this call: nothing watched, masked or biased but by causality, no odd site."""
    if recipe.arithmetic != "machine":
        return False
    shown, unit = call.visible, _row(call, machine).unit
    plain_mask = shown.hidden is None and shown.bias is None and shown.left >= EVERYWHERE
    plain_mask = plain_mask and shown.right in (0, EVERYWHERE) and call.watch is None
    plain_unit = isinstance(unit, DotUnit) and unit.lanes == DEEP and unit.k_width <= 2 and tile_i32.covers(unit)
    sites = all(getattr(recipe, name) is None for name in ("S", "m", "l", "acc", "dP"))
    sites = sites and all(_of_input(getattr(recipe, name), call.fmt) for name in ("P", "PdV", "dS"))
    sizes = call.keys <= LARGEST_TILE and call.fmt in (BF16, FP16)
    return bool(plain_mask and plain_unit and sites and sizes)


def _of_input(site: Site | None, fmt: Format) -> bool:
    return site is None or (site_format(site, fmt) == fmt and site.rounding == "rne")


def _row(call: Call, machine: str) -> DotRow:
    """The row of the call's dots. NotModelled for a machine without wgmma, which the recorded kernels use."""
    having = sorted({name for name, path, *_ in DOT_UNITS if path == "wgmma"})
    if machine not in having:
        raise NotModelled(
            f"machine={machine!r} has no wgmma, whose arithmetic attention of machine recipes is modelled with; "
            f"machines that have it: {', '.join(having)}."
        )
    return dot_row(machine, "wgmma", call.fmt)


def unit_of(call: Call, machine: str) -> DotUnit:
    """The unit of the call's dots. NotModelled for units of another kind than Hopper's."""
    unit = _row(call, machine).unit
    if not isinstance(unit, DotUnit):
        raise NotModelled(f"attention with the unit {unit} of machine {machine!r} is not modelled, only a DotUnit.")
    return unit


def cast_to(fmt: Format) -> Cast:
    """The Cast to bf16 or fp16."""
    policy = Policy(rounding=RNE, overflow=IEEE, nan=NVIDIA)
    prefix, grid = fast_plan.prefix(BF16, policy), fast_plan.grid(FP16, policy, 24)
    assert prefix is not None
    assert grid is not None
    return Cast(fmt == BF16, prefix, grid)


def operand_emin(fmt: Format, unit: DotUnit) -> int:
    """The exponent from which on the unit counts subnormal operands."""
    return min(emin_of(fmt), unit.widened_emin)


def new_blocks(groups: int, blocks: int, width: int, *leading: int) -> Blocks:
    """Room for an operand; leading dimensions (heads) before the others."""
    shape = (*leading, groups, blocks, DEEP, width)
    return Blocks(
        np.empty(shape, f32), np.empty(shape, f32), np.empty(shape, np.int8), np.empty((*shape[:-2], width), np.int32)
    )


@merged
def new_work(unit, emin, width, rows):
    """Work for panels of this width and operands of so many rows."""
    return Work(unit, emin, tile_i32.new_rows(width), np.empty(rows, np.bool_))


@njit
def room(groups, blocks, width):
    """As `new_blocks`, in compiled code."""
    size, shape = groups * blocks * DEEP * width, (groups, blocks, DEEP, width)
    return Blocks(
        aligned(size, f32).reshape(shape),
        aligned(size, f32).reshape(shape),
        aligned(size, np.int8).reshape(shape),
        aligned(groups * blocks * width, np.int32).reshape((groups, blocks, width)),
    )


@njit
def zeros(rows, width):
    """A float32 matrix of zeros, rows whole vectors."""
    x = aligned(rows * width, f32)
    x[:] = f32(0)
    return x.reshape((rows, width))


@njit
def cut(x, width):
    """The room of one group, without its content, as one of so many columns."""
    blocks, size = x.raw.shape[1], x.raw.shape[1] * DEEP * width
    shape = (1, blocks, DEEP, width)
    return Blocks(
        x.raw.reshape(x.raw.size)[:size].reshape(shape),
        x.values.reshape(x.values.size)[:size].reshape(shape),
        x.exponents.reshape(x.exponents.size)[:size].reshape(shape),
        x.offsets.reshape(x.offsets.size)[: blocks * width].reshape((1, blocks, width)),
    )


@njit
def rows_of(x):
    """What one group holds as it is, a view (k, width): write here, and `pack`."""
    return x.raw.reshape((x.raw.shape[1] * DEEP, x.raw.shape[3]))


@merged
def panel_of(x, group, number):
    """One block of Blocks, as `tile_i32` takes it."""
    return tile_i32.Panel(x.values[group, number], x.exponents[group, number], x.offsets[group, number])


@njit
def pack(x, emin):
    """Makes values, exponents and offsets of all that x holds as it is."""
    for group in range(x.raw.shape[0]):
        for number in range(x.raw.shape[1]):
            tile_i32.pack(x.raw[group, number], emin, panel_of(x, group, number))


@njit
def turned(x, start, step, rows, tile, emin, out):
    """Rows start, start + step, .. of x (n, d), `rows` of them, as columns: a group for each tile, blocks along d.

    Columns beyond the last row of a tile are zero.
    """
    for group in range(out.raw.shape[0]):
        begin = start + group * tile * step
        count = min(tile, rows - group * tile)
        for number in range(out.raw.shape[1]):
            raw = out.raw[group, number]
            for j in range(count):
                row = u64(begin + j * step)
                for lane in range(u64(DEEP)):
                    raw[lane, u64(j)] = x[row, u64(number * DEEP) + lane]
            for lane in range(u64(DEEP)):
                for j in range(u64(count), u64(raw.shape[1])):
                    raw[lane, j] = f32(0)
    pack(out, emin)


@njit
def upright(x, tile, emin, out):
    """x (n, width): a group for each tile of its rows, blocks along them, columns as they are; zeros beyond."""
    for group in range(out.raw.shape[0]):
        count = min(tile, x.shape[0] - group * tile)
        for number in range(out.raw.shape[1]):
            raw = out.raw[group, number]
            for lane in range(u64(DEEP)):
                row = number * DEEP + np.int64(lane)
                filled = x.shape[1] if row < count else 0
                for j in range(u64(filled)):
                    raw[lane, j] = x[u64(group * tile + row), j]
                for j in range(u64(filled), u64(raw.shape[1])):
                    raw[lane, j] = f32(0)
    pack(out, emin)


@merged
def _exact(a, b, c, rows, n, work):
    """`accumulate` in float64, one block, for the rows that are left."""
    a_exact, b_exact = tile_f64.new_panel(DEEP, a.shape[1]), tile_f64.new_panel(DEEP, b.shape[1])
    tile_f64.pack(a, work.emin, a_exact)
    tile_f64.pack(b, work.emin, b_exact)
    rest = tile_f64.new_rows(b.shape[1])
    tile_f64.block(a_exact, b_exact, c, 0, u64(0), n, rest, work.unit, work.left[:rows])


@njit
def accumulate(a, a_group, b, c, rows, n, first, last, work):
    """c[:rows, :n] = the dot on it, blocks first .. last: columns of a group of a times columns of b's only group.

    b may have more columns than n: the others are left out.
    """
    for number in range(first, last):
        x, y = panel_of(a, a_group, number), panel_of(b, 0, number)
        count = tile_i32.block(x, y, c, 0, u64(0), n, work.rows, work.unit, work.left[:rows])
        if count > 0:
            _exact(a.raw[a_group, number], b.raw[0, number], c, rows, n, work)


@merged
def rounded(x, out, cast):
    """out = x rounded, as values; float32, of one shape, contiguous, two arrays."""
    if cast.upper:
        round_nearest(x.reshape(x.size), out.reshape(out.size), cast.prefix)
    else:
        round32(x.reshape(x.size), out.reshape(out.size), cast.grid)

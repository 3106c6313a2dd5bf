"""Flash attention forward, machine arithmetic, a chunk of query rows at a time: the quick body of `on_machine`.

Lane j of a chunk is its row stop - 1 - j: counted from the end, the rows that a key tile still reaches under
causal masking are the first lanes, and panels can be cut to them. Pieces of work are (chunk, head); keys and
values are packed once for each key head before.
"""

from typing import NamedTuple

import numpy as np

from .._jit import merged, njit
from ..core.aligned import aligned
from ..recipes import Recipe
from ..threads import parallel_for
from ..tile_f64 import VECTOR, padded
from . import lanes, lanes_softmax, softmax
from .inputs import Call
from .lanes import DEEP, LANES, Blocks, accumulate
from .lanes_softmax import MINUS_INFINITY

u64, f32 = np.uint64, np.float32


class Job(NamedTuple):
    """The numbers that all pieces of one call share."""

    n_keys: int
    rows: int  #: of a query tile
    keys: int  #: of a key tile
    causal: bool
    l_rounded: bool  #: l sums the rounded weights
    scale: np.float32  #: of the scores, log2 units
    offset: np.float32
    emin: int


class Tile(NamedTuple):
    """Work space of a key tile, for as many lanes as it reaches: arrays (keys, width)."""

    s: np.ndarray  #: scores, then exact weights
    p: np.ndarray  #: exponents, then rounded weights: what packed holds as it is
    packed: Blocks


@merged
def _tile(scores, weights, width):
    """A Tile of so many lanes in the room of one of LANES: scores a vector, weights Blocks."""
    packed = lanes.cut(weights, width)
    keys = packed.raw.shape[1] * DEEP
    return Tile(scores[: keys * width].reshape((keys, width)), lanes.rows_of(packed), packed)


@merged
def _hide(s, first, count, n, stop):
    """-inf for keys behind their row: lane j is row stop - 1 - j."""
    for k in range(count):
        for j in range(u64(max(stop - (first + k), 0)), u64(n)):
            s[u64(k), j] = MINUS_INFINITY


@merged
def _chunk(q, first, stop, keys, values, job, rule, cast, unit, o, m, l):
    """Rows first .. stop of one head. q (n, d); keys, values: Blocks; results o (n, d), m and l (n,)."""
    width, d = padded(stop - first, VECTOR), q.shape[1]
    x, acc = lanes_softmax.new_lanes(width), lanes.zeros(d, width)
    work = lanes.new_work(unit, job.emin, width, max(d, job.keys))
    n, keys_padded = stop - first, padded(job.keys, DEEP)
    queries, weights = lanes.room(1, d // DEEP, width), lanes.room(1, keys_padded // DEEP, width)
    lanes.turned(q, stop - 1, np.int64(-1), n, n, job.emin, queries)
    scores = aligned(keys_padded * width, f32)
    tile = _tile(scores, weights, width)
    for number in range(keys.raw.shape[0]):
        key = number * job.keys
        n = stop - max(first, key // job.rows * job.rows if job.causal else 0)
        if n <= 0:
            break
        if padded(n, VECTOR) != tile.s.shape[1]:
            tile = _tile(scores, weights, padded(n, VECTOR))
        s, p, count = tile.s, tile.p, min(job.keys, job.n_keys - key)
        s[:count] = f32(0)
        accumulate(keys, number, queries, s, count, n, np.int64(0), keys.raw.shape[1], work)
        s[count:] = MINUS_INFINITY
        if job.causal:
            _hide(s, key, count, n, stop)
        lanes_softmax.advance(s, p, s.shape[0], n, job.scale, job.offset, rule, job.l_rounded, cast, x)
        lanes_softmax.rescale(acc, n, x)
        lanes.pack(tile.packed, job.emin)
        accumulate(values, number, tile.packed, acc, d, n, np.int64(0), values.raw.shape[1], work)
    lanes_softmax.normalise(acc, stop - first, x, stop, o)
    for j in range(stop - first):
        m[stop - 1 - j], l[stop - 1 - j] = x.m[j], x.l[j]


@merged
def _head(x, head):
    return Blocks(x.raw[head], x.values[head], x.exponents[head], x.offsets[head])


@njit
def _pieces(q, keys, values, start, stop, group, job, rule, cast, unit, o, m, l):
    """Chunks number start .. stop: heads fastest, and the last chunks, which reach most keys, first."""
    heads, n = q.shape[0], q.shape[1]
    chunks = (n + LANES - 1) // LANES
    for item in range(start, stop):
        head, chunk = item % heads, chunks - 1 - item // heads
        kv, first = head // group, chunk * LANES
        last = min(first + LANES, n)
        _chunk(
            q[head], first, last, _head(keys, kv), _head(values, kv), job, rule, cast, unit,
            o[head], m[head], l[head],
        )  # fmt: skip


def forward(call: Call, recipe: Recipe, machine: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """o, not yet rounded, m, l and lse, float32, flattened to rows: what `on_machine.State.output` gives."""
    (batch, n, d), n_keys = call.q.values.shape, call.visible.n_keys
    unit, offset = lanes.unit_of(call, machine), np.float32(recipe.maximum.offset)
    job = Job(
        n_keys, call.rows, call.keys, call.visible.right == 0, recipe.l_from == "rounded",
        np.float32(call.scale) * softmax.LOG2_E, offset, lanes.operand_emin(call.fmt, unit),
    )  # fmt: skip
    rule, cast = softmax.rule(recipe.maximum, softmax.LOG2_E), lanes.cast_to(call.fmt)
    heads, tiles = len(call.k.values), -(-n_keys // call.keys)
    keys = lanes.new_blocks(tiles, d // DEEP, padded(call.keys, VECTOR), heads)
    values = lanes.new_blocks(tiles, -(-call.keys // DEEP), padded(d, VECTOR), heads)
    q, k, v = (np.ascontiguousarray(x.values) for x in (call.q, call.k, call.v))

    def pack(start: int, stop: int) -> None:
        for head in range(start, stop):
            lanes.turned(k[head], 0, 1, n_keys, call.keys, job.emin, _head(keys, head))
            lanes.upright(v[head], call.keys, job.emin, _head(values, head))

    parallel_for(pack, heads, 1)

    o, m, l = np.empty((batch, n, d), np.float32), np.empty((batch, n), np.float32), np.empty((batch, n), np.float32)

    def pieces(start: int, stop: int) -> None:
        _pieces(q, keys, values, start, stop, call.group, job, rule, cast, unit, o, m, l)

    parallel_for(pieces, batch * -(-n // LANES), 1)
    m, l, lse = m.reshape(-1), l.reshape(-1), np.empty(batch * n, np.float32)
    softmax.log_sums(m - offset, l, lse)
    if call.v_scale != 1:
        o *= np.float32(call.v_scale)
    return o.reshape(m.size, d), m, l, lse

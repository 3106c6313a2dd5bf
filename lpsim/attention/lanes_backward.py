"""Flash attention backward, machine arithmetic, a key head at a time: the quick body of `backward_machine`.

Lanes are keys, LANES of them; query rows go by in steps. So S = Q K^T, dP = dO V^T, dV^T = dO^T P and
dK^T = Q^T dS have vectors of keys, and under causal masking a step reaches the first lanes only. dQ^T = K^T dS^T
has query rows as lanes: those of several steps, counted from the last one, so that here too the rows which a key
tile reaches come first. Every accumulator meets its blocks in the kernels' order: dK and dV query rows ascending,
the heads of a group one after the other; dQ keys ascending.
"""

from typing import NamedTuple

import numpy as np

from .._jit import merged, njit
from ..core.aligned import aligned
from ..core.intrinsics import fma_f32
from ..core.special_loops import ex2_array
from ..recipes import Recipe
from ..threads import parallel_for
from ..tile_f64 import VECTOR, padded
from . import lanes
from .backward_machine import Backward
from .exact import Gradients
from .inputs import Call, Operand
from .lanes import DEEP, LANES, Blocks, accumulate
from .softmax import LOG2_E

u64, f32 = np.uint64, np.float32
STEPS = (64, 48, 32, 16)  #: query rows taken at once: the first number that divides the query tile


class Job(NamedTuple):
    """The numbers that all pieces of one call share."""

    n: int
    n_keys: int
    rows: int  #: of a query tile
    keys: int  #: of a key tile
    step: int
    causal: bool
    scale: np.float32  #: of the scores, log2 units
    emin: int


class Queries(NamedTuple):
    """One head's rows, a group for each step: as rows of S and dP, and as the terms of dK and dV."""

    q: Blocks  #: blocks along features
    do: Blocks
    q_upright: Blocks  #: blocks along rows
    do_upright: Blocks


class Room(NamedTuple):
    """Work space for the steps of a chunk: the keys of the chunk, packed, and room for steps of LANES keys."""

    k: Blocks
    v: Blocks
    p: Blocks
    ds: Blocks
    work: np.ndarray  #: float32
    lanes: Blocks  #: for dQ: dS, rows as lanes


class Step(NamedTuple):
    """Work space of a step, for as many keys as it reaches: arrays (rows, width)."""

    s: np.ndarray  #: scores, then exact weights
    x: np.ndarray  #: exponents, then exact dS
    dp: np.ndarray
    p: Blocks  #: rounded weights
    ds: Blocks  #: rounded


@merged
def _new_room(d, job):
    rows = padded(job.step, DEEP)
    return Room(
        lanes.room(1, d // DEEP, LANES),
        lanes.room(1, d // DEEP, LANES),
        lanes.room(1, rows // DEEP, LANES),
        lanes.room(1, rows // DEEP, LANES),
        aligned(3 * rows * LANES, f32),
        lanes.room(1, LANES // DEEP, LANES),
    )


@merged
def _step_in(room, rows, n):
    """A Step of so many rows and keys."""
    width = padded(n, VECTOR)
    work = room.work[: 3 * rows * width].reshape((3, rows, width))
    return Step(work[0], work[1], work[2], lanes.cut(room.p, width), lanes.cut(room.ds, width))


@njit
def _differences(s, dp, x, p, ds, lse, delta, hidden_from, n, scale, cast):
    """From S and dP of some rows: p = P = EX2(fma(S, scale, -lse)), ds = P (dP - delta), both rounded.

    s, dp, x, p, ds: float32 (rows, width), contiguous, s and x work space from then on; lse, delta: (rows,).
    Row i does not see the keys from hidden_from + i on: P and dS are +0 there, whatever dP and delta are.
    """
    for i in range(u64(s.shape[0])):
        for j in range(u64(n)):
            x[i, j] = fma_f32(s[i, j], scale, -lse[i])
    ex2_array(x.reshape(x.size), s.reshape(s.size))
    for i in range(u64(s.shape[0])):
        for j in range(u64(n)):
            x[i, j] = f32(s[i, j] * f32(dp[i, j] - delta[i]))
    for i in range(s.shape[0]):
        for j in range(u64(max(hidden_from + i, 0)), u64(n)):
            s[u64(i), j] = x[u64(i), j] = f32(0)
    lanes.rounded(s, p, cast)
    lanes.rounded(x, ds, cast)


@merged
def _add_dq(k_upright, chunk, used, ds, top, stop, dq, packed, job, work):
    """dq += K^T dS^T for the keys of a chunk; lane j of dq is row stop - 1 - j, of the rows top .. stop.

    Key tile after key tile where they reach different rows. packed: room for dS.
    """
    first, begin = chunk * LANES, 0
    lanes.turned(ds, stop - 1 - top, np.int64(-1), stop - top, stop - top, job.emin, packed)
    while begin < used:
        tile = (first + begin) // job.keys * job.keys
        n, end = stop - top, used
        if job.causal and first + used > top:
            n, end = stop - max(top, tile // job.rows * job.rows), min(tile + job.keys - first, used)
        if n <= 0:
            break
        accumulate(k_upright, chunk, packed, dq, dq.shape[0], n, begin // DEEP, (end + DEEP - 1) // DEEP, work)
        begin = end


@merged
def _reached(begin, first, used, job):
    """How many keys of the chunk the query tile of this row visits: whole key tiles."""
    if not job.causal:
        return used
    last = begin // job.rows * job.rows + job.rows
    return min((last + job.keys - 1) // job.keys * job.keys - first, used)


@njit
def _queries(q, do, job):
    """The rows of one head, packed."""
    steps, d = (job.n + job.step - 1) // job.step, q.shape[1]
    height, blocks = padded(job.step, VECTOR), (job.step + DEEP - 1) // DEEP
    x = Queries(
        lanes.room(steps, d // DEEP, height),
        lanes.room(steps, d // DEEP, height),
        lanes.room(steps, blocks, d),
        lanes.room(steps, blocks, d),
    )
    lanes.turned(q, np.int64(0), np.int64(1), job.n, job.step, job.emin, x.q)
    lanes.turned(do, np.int64(0), np.int64(1), job.n, job.step, job.emin, x.do)
    lanes.upright(q, job.step, job.emin, x.q_upright)
    lanes.upright(do, job.step, job.emin, x.do_upright)
    return x


@merged
def _step(x, number, room, first, n, lse, delta, ds, top, job, cast, work, dk, dv):
    """One step of rows with the first n keys of a chunk: dk and dv (d, LANES) grow, ds (rows, LANES) keeps its dS."""
    begin, d = number * job.step, dk.shape[0]
    count = min(job.step, job.n - begin)
    step = _step_in(room, count, n)
    s, dp, p, rounded = step.s, step.dp, lanes.rows_of(step.p), lanes.rows_of(step.ds)
    s[:], dp[:], p[count:], rounded[count:] = f32(0), f32(0), f32(0), f32(0)
    accumulate(x.q, number, room.k, s, count, n, np.int64(0), d // DEEP, work)
    accumulate(x.do, number, room.v, dp, count, n, np.int64(0), d // DEEP, work)
    hidden_from = begin + 1 - first if job.causal else n
    rows = slice(begin, begin + count)
    _differences(s, dp, step.x, p[:count], rounded[:count], lse[rows], delta[rows], hidden_from, n, job.scale, cast)
    blocks = (count + DEEP - 1) // DEEP
    lanes.pack(step.p, job.emin)
    accumulate(x.do_upright, number, step.p, dv, d, n, np.int64(0), blocks, work)
    lanes.pack(step.ds, job.emin)
    accumulate(x.q_upright, number, step.ds, dk, d, n, np.int64(0), blocks, work)
    for i in range(u64(count)):
        for j in range(u64(n)):
            ds[u64(begin - top) + i, j] = rounded[i, j]


@merged
def _chunk(x, k, v, k_upright, chunk, lse, delta, room, job, cast, work, dq, dk, dv):
    """All rows of one head with the keys of one chunk. dq (groups, d, LANES); dk, dv (d, LANES)."""
    first = chunk * LANES
    used = min(LANES, job.n_keys - first)
    steps, each = x.q.raw.shape[0], LANES // job.step
    ds = lanes.zeros(LANES, LANES)
    lanes.turned(k, first, np.int64(1), used, used, job.emin, room.k)
    lanes.turned(v, first, np.int64(1), used, used, job.emin, room.v)
    for group in range(dq.shape[0]):
        top = group * each * job.step
        stop = min(top + each * job.step, job.n)
        if _reached(stop - 1, first, used, job) <= 0:
            continue
        for number in range(group * each, min(group * each + each, steps)):
            n = _reached(number * job.step, first, used, job)
            if n > 0:
                _step(x, number, room, first, n, lse, delta, ds, top, job, cast, work, dk, dv)
        _add_dq(k_upright, chunk, used, ds, top, stop, dq[group], room.lanes, job, work)


@njit
def _unturned(x, start, step, rows, scale, out):
    """out[start + step j] = x[:, j] * scale for the lanes of x; float32 x (d, lanes), out (n, d)."""
    for j in range(rows):
        for c in range(u64(x.shape[0])):
            out[u64(start + step * j), c] = f32(x[c, u64(j)] * scale)


@njit
def _heads(q, k, v, do, lse, delta, start, stop, group, scale, job, cast, unit, dq, dk, dv):
    """Key heads start .. stop with the `group` query heads of each."""
    d, chunks = q.shape[2], (job.n_keys + LANES - 1) // LANES
    rows = LANES // job.step * job.step
    groups = (job.n + rows - 1) // rows
    work = lanes.new_work(unit, job.emin, LANES, max(d, job.step))
    k_upright, room = lanes.room(chunks, LANES // DEEP, d), _new_room(d, job)
    for kv in range(start, stop):
        lanes.upright(k[kv], np.int64(LANES), job.emin, k_upright)
        sums = lanes.zeros(2 * chunks * d, LANES).reshape((2, chunks, d, LANES))
        for head in range(kv * group, kv * group + group):
            x, dq_sums = _queries(q[head], do[head], job), lanes.zeros(groups * d, LANES).reshape((groups, d, LANES))
            for c in range(chunks):
                _chunk(
                    x, k[kv], v[kv], k_upright, c, lse[head], delta[head], room, job, cast, work,
                    dq_sums, sums[0, c], sums[1, c],
                )  # fmt: skip
            for g in range(groups):
                last = min(g * rows + rows, job.n)
                _unturned(dq_sums[g], last - 1, -1, last - g * rows, scale, dq[head])
        for c in range(chunks):
            used = min(LANES, job.n_keys - c * LANES)
            _unturned(sums[0, c], c * LANES, 1, used, scale, dk[kv])
            _unturned(sums[1, c], c * LANES, 1, used, f32(1), dv[kv])


def backward(call: Call, recipe: Recipe, machine: str, o: np.ndarray, lse: np.ndarray, do: Operand) -> Gradients:
    """dq, dk, dv as float32, not yet at their sites, and delta: what `backward_machine.backward` gives."""
    delta = np.ascontiguousarray(Backward(call, recipe, machine, lse, do).delta(o))
    unit = lanes.unit_of(call, machine)
    step = next((size for size in STEPS if call.rows % size == 0), STEPS[0])
    job = Job(
        call.visible.n, call.visible.n_keys, call.rows, call.keys, step, call.visible.right == 0,
        np.float32(call.scale) * LOG2_E, lanes.operand_emin(call.fmt, unit),
    )  # fmt: skip
    cast = lanes.cast_to(call.fmt)
    q, k, v, gradient = (np.ascontiguousarray(x.values) for x in (call.q, call.k, call.v, do))
    lse, scale = np.ascontiguousarray(lse), np.float32(call.scale)
    dq, dk, dv = np.empty_like(q), np.empty_like(k), np.empty_like(v)

    def heads(start: int, stop: int) -> None:
        _heads(q, k, v, gradient, lse, delta, start, stop, call.group, scale, job, cast, unit, dq, dk, dv)

    parallel_for(heads, len(k), 1)
    return Gradients(dq, dk, dv, delta)

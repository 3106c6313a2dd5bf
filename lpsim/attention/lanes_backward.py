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
from ..core.intrinsics import fma_f32
from ..core.special_loops import ex2_array
from ..dot_units import DotUnit
from ..recipes import Recipe
from ..threads import parallel_for
from . import lanes
from .backward_machine import Backward
from .exact import Gradients
from .inputs import Call, Operand
from .lanes import DEEP, LANES, VECTOR, Block, Blocks, Cast, block_of, multiply, padded
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
    cast: Cast
    emin: int
    unit: DotUnit


class Queries(NamedTuple):
    """One head's rows, a group for each step: as rows of S and dP, and as the terms of dK and dV."""

    q: Blocks  #: blocks along features
    do: Blocks
    q_upright: Blocks  #: blocks along rows
    do_upright: Blocks


class Step(NamedTuple):
    """Work space of a step, arrays (step, width), for as many keys as it reaches; and these keys, packed."""

    k: Blocks
    v: Blocks
    packed: Blocks  #: one block of p or of ds
    s: np.ndarray  #: scores, then exact weights
    x: np.ndarray  #: exponents, then exact dS
    dp: np.ndarray
    p: np.ndarray  #: rounded weights
    ds: np.ndarray  #: rounded


@merged
def _new_step(k, v, first, n, job):
    """A Step for the n keys from first on."""
    width, blocks = padded(n, VECTOR), k.shape[1] // DEEP
    packed_k, packed_v = lanes.room(1, blocks, width), lanes.room(1, blocks, width)
    lanes.turned(k, first, 1, n, n, job.emin, packed_k)
    lanes.turned(v, first, 1, n, n, job.emin, packed_v)
    work = np.zeros((5, job.step, width), f32)
    return Step(packed_k, packed_v, lanes.room(1, 1, width), work[0], work[1], work[2], work[3], work[4])


@merged
def _dot(rows, number, columns, out, count, n, work):
    """out[:count, :n] = the rows of a step times the keys, over all features."""
    for i in range(u64(count)):
        for j in range(u64(n)):
            out[i, j] = f32(0)
    for b in range(rows.raw.shape[1]):
        multiply(block_of(rows, number, b), block_of(columns, 0, b), out, count, n, work)


@merged
def _weights(step, lse, begin, count, n, job):
    """step.s = P = EX2(fma(S, scale, -lse)), step.p the same rounded."""
    for i in range(u64(count)):
        taken = lse[u64(begin) + i]
        for j in range(u64(n)):
            step.x[i, j] = fma_f32(step.s[i, j], job.scale, -taken)
    x, s = step.x[:count], step.s[:count]
    ex2_array(x.reshape(x.size), s.reshape(s.size))


@merged
def _hide(step, begin, count, first, n):
    """P = 0 for keys behind their row."""
    for i in range(count):
        for j in range(u64(max(begin + i + 1 - first, 0)), u64(n)):
            step.s[u64(i), j] = f32(0)


@merged
def _differences(step, delta, begin, count, n, job):
    """step.ds = P (dP - delta), rounded, and step.p = P rounded; zeros in rows up to a whole block."""
    for i in range(u64(count)):
        mean = delta[u64(begin) + i]
        for j in range(u64(n)):
            step.x[i, j] = f32(step.s[i, j] * f32(step.dp[i, j] - mean))
    lanes.rounded(step.s[:count], step.p[:count], job.cast)
    lanes.rounded(step.x[:count], step.ds[:count], job.cast)
    for i in range(u64(count), u64(padded(count, DEEP))):
        for j in range(u64(step.p.shape[1])):
            step.p[i, j] = step.ds[i, j] = f32(0)


@merged
def _add(terms, number, factors, packed, c, count, n, work):
    """c[:, :n] += terms^T factors over the rows of a step; factors: rounded, (step, width)."""
    panel = block_of(packed, 0, 0).quick
    for b in range((count + DEEP - 1) // DEEP):
        raw = factors[b * DEEP : b * DEEP + DEEP]
        lanes.tile_i32.pack(raw, work.emin, panel)
        multiply(block_of(terms, number, b), Block(raw, panel), c, c.shape[0], n, work)


@merged
def _add_dq(k_upright, first, lanes_used, ds, top, stop, dq, job, work):
    """dq[:, :] += K^T dS^T for the keys of a chunk; lane j of dq is row stop - 1 - j, of the rows top .. stop."""
    for begin in range(0, lanes_used, DEEP):
        key = first + begin
        reach = key // job.keys * job.keys // job.rows * job.rows if job.causal else 0
        n = stop - max(top, reach)
        if n <= 0:
            break
        packed = lanes.room(1, 1, padded(n, VECTOR))
        block = block_of(packed, 0, 0)
        for j in range(u64(n)):
            row = u64(stop - 1 - top) - j
            for lane in range(u64(DEEP)):
                block.raw[lane, j] = ds[row, u64(begin) + lane]
        for lane in range(u64(DEEP)):
            for j in range(u64(n), u64(block.raw.shape[1])):
                block.raw[lane, j] = f32(0)
        lanes.tile_i32.pack(block.raw, work.emin, block.quick)
        multiply(block_of(k_upright, key // DEEP, 0), block, dq, dq.shape[0], n, work)


@merged
def _reached(begin, first, lanes_used, job):
    """How many keys of the chunk the query tile of this row visits: whole key tiles."""
    if not job.causal:
        return lanes_used
    last = begin // job.rows * job.rows + job.rows
    return min((last + job.keys - 1) // job.keys * job.keys - first, lanes_used)


@merged
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
    lanes.turned(q, 0, 1, job.n, job.step, job.emin, x.q)
    lanes.turned(do, 0, 1, job.n, job.step, job.emin, x.do)
    lanes.upright(q, job.step, job.emin, x.q_upright)
    lanes.upright(do, job.step, job.emin, x.do_upright)
    return x


@merged
def _chunk(x, k, v, k_upright, first, lse, delta, job, work, dq, dk, dv):
    """All rows of one head with the keys first .. first + LANES. dq (groups, d, LANES); dk, dv (d, LANES)."""
    used = min(LANES, job.n_keys - first)
    steps, each = x.q.raw.shape[0], LANES // job.step
    ds = np.zeros((LANES, padded(used, DEEP)), f32)
    step, reach = _new_step(k, v, first, used, job), used
    for group in range(dq.shape[0]):
        top = group * each * job.step
        for number in range(group * each, min(group * each + each, steps)):
            begin = number * job.step
            count, n = min(job.step, job.n - begin), _reached(begin, first, used, job)
            if n <= 0:
                continue
            if n != reach:
                step, reach = _new_step(k, v, first, n, job), n
            _dot(x.q, number, step.k, step.s, count, n, work)
            _weights(step, lse, begin, count, n, job)
            if job.causal:
                _hide(step, begin, count, first, n)
            _dot(x.do, number, step.v, step.dp, count, n, work)
            _differences(step, delta, begin, count, n, job)
            _add(x.do_upright, number, step.p, step.packed, dv, count, n, work)
            _add(x.q_upright, number, step.ds, step.packed, dk, count, n, work)
            for i in range(u64(count)):
                for j in range(u64(n)):
                    ds[u64(begin - top) + i, j] = step.ds[i, j]
        stop = min(top + each * job.step, job.n)
        _add_dq(k_upright, first, used, ds, top, stop, dq[group], job, work)


@merged
def _unturned(x, start, step, rows, scale, out):
    """out[start + step j] = x[:, j] * scale for the lanes of x; float32 x (d, lanes), out (n, d)."""
    for j in range(rows):
        for c in range(u64(x.shape[0])):
            out[u64(start + step * j), c] = f32(x[c, u64(j)] * scale)


@njit
def _heads(q, k, v, do, lse, delta, start, stop, group, scale, job, dq, dk, dv):
    """Key heads start .. stop with the `group` query heads of each."""
    d, chunks = q.shape[2], (job.n_keys + LANES - 1) // LANES
    rows = LANES // job.step * job.step
    groups = (job.n + rows - 1) // rows
    work = lanes.new_work(job.unit, job.emin, LANES, max(d, job.step))
    k_upright = lanes.room((job.n_keys + DEEP - 1) // DEEP, 1, d)
    for kv in range(start, stop):
        lanes.upright(k[kv], DEEP, job.emin, k_upright)
        sums = np.zeros((2, chunks, d, LANES), f32)
        for head in range(kv * group, kv * group + group):
            x, dq_sums = _queries(q[head], do[head], job), np.zeros((groups, d, LANES), f32)
            for c in range(chunks):
                _chunk(
                    x, k[kv], v[kv], k_upright, c * LANES, lse[head], delta[head], job, work,
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
        np.float32(call.scale) * LOG2_E, lanes.cast_to(call.fmt), lanes.operand_emin(call.fmt, unit), unit,
    )  # fmt: skip
    q, k, v, gradient = (np.ascontiguousarray(x.values) for x in (call.q, call.k, call.v, do))
    lse, scale = np.ascontiguousarray(lse), np.float32(call.scale)
    dq, dk, dv = np.empty_like(q), np.empty_like(k), np.empty_like(v)

    def heads(start: int, stop: int) -> None:
        _heads(q, k, v, gradient, lse, delta, start, stop, call.group, scale, job, dq, dk, dv)

    parallel_for(heads, len(k), 1)
    return Gradients(dq, dk, dv, delta)

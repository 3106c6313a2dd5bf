"""Special functions of an H200 by name: scalars for compiled code, and loops over arrays.

    from lpsim.core.special import ex2_f32, ARRAYS
    ARRAYS["exp2"](x, out)          # float32 (n,), contiguous; out may be x itself, several times slower

ARRAYS has the functions of Triton (as version 3.6 compiles them for sm_90) by their names there, and the PTX
instructions by theirs. "div" and "div_rn" take two operands: loop(x, y, out).
How sure: each unary function equals H200 recordings of all 2^32 inputs (`lpsim.digest.PLAN`). div.full is
recorded for the dividend 1 only; its recipe is that of the compiled code.
Not modelled: MUFU.LG2, SIN, COS, TANH (and so lg2, sin, cos and tanh .approx), and the f16 and bf16 forms.
"""

import numpy as np

from .._jit import njit
from .special_lanes import ex2_f32, rcp_f32, rsqrt_f32, sqrt_f32
from .special_log import log2_f32, log_f32
from .special_loops import BLOCK, ex2_array, rcp_array, rsqrt_array, sqrt_array, u64
from .special_recipes import (
    LOG2_E,
    ONE_F,
    canonical,
    div_full_f32,
    div_rn_f32,
    divisor_scale,
    ex2_approx_f32,
    ex2_operand,
    ex2_result,
    exp_f32,
    f32,
    rcp_rn_f32,
    sigmoid_f32,
    sigmoid_operand,
    sqrt_rn_f32,
)


@njit
def ex2_approx_array(x, out):
    """out[i] = ex2_approx_f32(x[i])."""
    t, y = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    for start in range(0, x.size, BLOCK):
        base, n = u64(start), u64(min(BLOCK, x.size - start))
        for i in range(n):
            t[i] = ex2_operand(x[base + i])
        ex2_array(t[:n], y[:n])
        for i in range(n):
            out[base + i] = ex2_result(x[base + i], y[i])


@njit
def exp_array(x, out):
    """out[i] = exp_f32(x[i])."""
    t = np.empty(BLOCK, np.float32)
    for start in range(0, x.size, BLOCK):
        base, n = u64(start), u64(min(BLOCK, x.size - start))
        for i in range(n):
            t[i] = f32(x[base + i] * LOG2_E)
        ex2_approx_array(t[:n], out[start : start + n])


@njit
def div_full_array(x, y, out):
    """out[i] = div_full_f32(x[i], y[i])."""
    t, r = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    for start in range(0, x.size, BLOCK):
        base, n = u64(start), u64(min(BLOCK, x.size - start))
        for i in range(n):
            t[i] = f32(y[base + i] * divisor_scale(y[base + i]))
        rcp_array(t[:n], r[:n])
        for i in range(n):
            out[base + i] = canonical(f32(f32(x[base + i] * divisor_scale(y[base + i])) * r[i]))


@njit
def reciprocal_array(x, out):
    """out[i] = div_full_f32(1, x[i])."""
    one = np.full(BLOCK, ONE_F, np.float32)
    for start in range(0, x.size, BLOCK):
        n = min(BLOCK, x.size - start)
        div_full_array(one[:n], x[start : start + n], out[start : start + n])


@njit
def sigmoid_array(x, out):
    """out[i] = sigmoid_f32(x[i])."""
    t, y = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    for start in range(0, x.size, BLOCK):
        base, n = u64(start), u64(min(BLOCK, x.size - start))
        for i in range(n):
            t[i] = sigmoid_operand(x[base + i])
        ex2_approx_array(t[:n], y[:n])
        for i in range(n):
            t[i] = f32(ONE_F + y[i])
        reciprocal_array(t[:n], out[start : start + n])


@njit
def log_array(x, out):
    """out[i] = log_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = log_f32(x[i])


@njit
def log2_array(x, out):
    """out[i] = log2_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = log2_f32(x[i])


@njit
def sqrt_rn_array(x, out):
    """out[i] = sqrt_rn_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = sqrt_rn_f32(x[i])


@njit
def rcp_rn_array(x, out):
    """out[i] = rcp_rn_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = rcp_rn_f32(x[i])


@njit
def div_rn_array(x, y, out):
    """out[i] = div_rn_f32(x[i], y[i])."""
    for i in range(u64(x.size)):
        out[i] = div_rn_f32(x[i], y[i])


ARRAYS = {
    "exp2": ex2_array,
    "exp": exp_array,
    "log": log_array,
    "log2": log2_array,
    "sqrt": sqrt_array,
    "sqrt_rn": sqrt_rn_array,
    "rsqrt": rsqrt_array,
    "rcp": reciprocal_array,
    "sigmoid": sigmoid_array,
    "div": div_full_array,
    "div_rn": div_rn_array,
    "ex2.approx.ftz.f32": ex2_array,
    "ex2.approx.f32": ex2_approx_array,
    "rcp.approx.ftz.f32": rcp_array,
    "rcp.rn.f32": rcp_rn_array,
    "rsqrt.approx.ftz.f32": rsqrt_array,
    "sqrt.approx.ftz.f32": sqrt_array,
    "sqrt.rn.f32": sqrt_rn_array,
}

#: The same functions on one float32, for compiled code.
SCALARS = {
    "exp2": ex2_f32,
    "exp": exp_f32,
    "log": log_f32,
    "log2": log2_f32,
    "sqrt": sqrt_f32,
    "sqrt_rn": sqrt_rn_f32,
    "rsqrt": rsqrt_f32,
    "sigmoid": sigmoid_f32,
    "div": div_full_f32,
    "div_rn": div_rn_f32,
    "ex2.approx.ftz.f32": ex2_f32,
    "ex2.approx.f32": ex2_approx_f32,
    "rcp.approx.ftz.f32": rcp_f32,
    "rcp.rn.f32": rcp_rn_f32,
    "rsqrt.approx.ftz.f32": rsqrt_f32,
    "sqrt.approx.ftz.f32": sqrt_f32,
    "sqrt.rn.f32": sqrt_rn_f32,
}

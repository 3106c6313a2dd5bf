"""Special functions of an H200 by name: scalars for compiled code, and loops over arrays.

    from lpsim.core.special import ex2_f32, ARRAYS
    ARRAYS["exp2"](x, out)          # float32 (n,), contiguous; out may be x itself, several times slower

ARRAYS has the functions of Triton (as version 3.6 compiles them for sm_90) by their names there, and the PTX
instructions by theirs; those of BINARY take two operands: loop(x, y, out).
How sure: each unary function equals H200 recordings of all 2^32 inputs (`lpsim.digest.PLAN`), the binary ones
recordings of drawn operands (`lpsim.replay`).
"""

import numpy as np

from .._jit import njit
from . import special_plain_loops as plain
from .special_lanes import ex2_f32, rcp_f32, rsqrt_f32, sqrt_f32
from .special_libdevice import ceil_f32, erf_f32, exp_libdevice_f32, floor_f32, tanh_f32
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
from .special_trig import cos_f32, sin_f32
from .special_wrappers import (
    cos_approx_f32,
    div_approx_f32,
    div_approx_ftz_f32,
    div_full_ftz_f32,
    lg2_approx_f32,
    lg2_ftz_f32,
    rcp_approx_f32,
    rcp_rn_ftz_f32,
    rsqrt_approx_f32,
    sin_approx_f32,
    sqrt_approx_f32,
    sqrt_rn_ftz_f32,
    tanh_approx_f32,
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


#: Triton's names
FUNCTIONS = {
    "exp2": ex2_array,
    "exp": exp_array,
    "log": plain.log_array,
    "log2": plain.log2_array,
    "sqrt": sqrt_array,
    "sqrt_rn": plain.sqrt_rn_array,
    "rsqrt": rsqrt_array,
    "rcp": reciprocal_array,
    "sigmoid": sigmoid_array,
    "erf": plain.erf_array,
    "sin": plain.sin_array,
    "cos": plain.cos_array,
    "floor": plain.floor_array,
    "ceil": plain.ceil_array,
    "libdevice.exp": plain.exp_libdevice_array,
    "libdevice.tanh": plain.tanh_array,
    "div": div_full_array,
    "div_rn": plain.div_rn_array,
}
INSTRUCTIONS = {
    "ex2.approx.ftz.f32": ex2_array,
    "ex2.approx.f32": ex2_approx_array,
    "lg2.approx.ftz.f32": plain.lg2_ftz_array,
    "lg2.approx.f32": plain.lg2_approx_array,
    "rcp.approx.ftz.f32": rcp_array,
    "rcp.approx.f32": plain.rcp_approx_array,
    "rcp.rn.ftz.f32": plain.rcp_rn_ftz_array,
    "rcp.rn.f32": plain.rcp_rn_array,
    "rsqrt.approx.ftz.f32": rsqrt_array,
    "rsqrt.approx.f32": plain.rsqrt_approx_array,
    "sqrt.approx.ftz.f32": sqrt_array,
    "sqrt.approx.f32": plain.sqrt_approx_array,
    "sqrt.rn.ftz.f32": plain.sqrt_rn_ftz_array,
    "sqrt.rn.f32": plain.sqrt_rn_array,
    "sin.approx.ftz.f32": plain.sin_approx_array,
    "sin.approx.f32": plain.sin_approx_array,
    "cos.approx.ftz.f32": plain.cos_approx_array,
    "cos.approx.f32": plain.cos_approx_array,
    "tanh.approx.f32": plain.tanh_approx_array,
    "div.full.f32": div_full_array,
    "div.full.ftz.f32": plain.div_full_ftz_array,
    "div.approx.f32": plain.div_approx_array,
    "div.approx.ftz.f32": plain.div_approx_ftz_array,
    "div.rn.f32": plain.div_rn_array,
}
ARRAYS = FUNCTIONS | INSTRUCTIONS
BINARY = tuple(name for name in ARRAYS if name.startswith("div"))

#: Triton's casts to integers: loop, and the dtype of its result
INTEGERS = {
    "int32": (plain.int32_array, np.int32),
    "int16": (plain.int16_array, np.int16),
    "int8": (plain.int8_array, np.int8),
}
#: instructions on 16-bit floats: the float32 function whose result is cut to the format (tests and `Machine.ptx`)
HALVES = {
    "ex2.approx.f16": (ex2_array, "fp16"),
    "ex2.approx.ftz.bf16": (ex2_array, "bf16"),
    "tanh.approx.f16": (plain.tanh_approx_array, "fp16"),
    "tanh.approx.bf16": (plain.tanh_approx_array, "bf16"),
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
    "erf": erf_f32,
    "sin": sin_f32,
    "cos": cos_f32,
    "floor": floor_f32,
    "ceil": ceil_f32,
    "libdevice.exp": exp_libdevice_f32,
    "libdevice.tanh": tanh_f32,
    "div": div_full_f32,
    "div_rn": div_rn_f32,
    "ex2.approx.ftz.f32": ex2_f32,
    "ex2.approx.f32": ex2_approx_f32,
    "lg2.approx.ftz.f32": lg2_ftz_f32,
    "lg2.approx.f32": lg2_approx_f32,
    "rcp.approx.ftz.f32": rcp_f32,
    "rcp.approx.f32": rcp_approx_f32,
    "rcp.rn.ftz.f32": rcp_rn_ftz_f32,
    "rcp.rn.f32": rcp_rn_f32,
    "rsqrt.approx.ftz.f32": rsqrt_f32,
    "rsqrt.approx.f32": rsqrt_approx_f32,
    "sqrt.approx.ftz.f32": sqrt_f32,
    "sqrt.approx.f32": sqrt_approx_f32,
    "sqrt.rn.ftz.f32": sqrt_rn_ftz_f32,
    "sqrt.rn.f32": sqrt_rn_f32,
    "sin.approx.f32": sin_approx_f32,
    "cos.approx.f32": cos_approx_f32,
    "tanh.approx.f32": tanh_approx_f32,
    "div.full.f32": div_full_f32,
    "div.full.ftz.f32": div_full_ftz_f32,
    "div.approx.f32": div_approx_f32,
    "div.approx.ftz.f32": div_approx_ftz_f32,
    "div.rn.f32": div_rn_f32,
}

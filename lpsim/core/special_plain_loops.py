"""Loops over the scalar special functions that have no faster form: out[i] = f(x[i]), or f(x[i], y[i]).

x, y, out: float32 (n,), contiguous; out may be an operand, or integers for int32, int16 and int8.
"""

import numpy as np

from .._jit import njit
from .special_libdevice import (
    ceil_f32,
    erf_f32,
    exp_libdevice_f32,
    floor_f32,
    int16_f32,
    int32_f32,
    tanh_f32,
)
from .special_log import log2_f32, log_f32
from .special_recipes import div_rn_f32, rcp_rn_f32, sqrt_rn_f32
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

u64 = np.uint64


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
def erf_array(x, out):
    """out[i] = erf_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = erf_f32(x[i])


@njit
def sin_array(x, out):
    """out[i] = sin_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = sin_f32(x[i])


@njit
def cos_array(x, out):
    """out[i] = cos_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = cos_f32(x[i])


@njit
def floor_array(x, out):
    """out[i] = floor_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = floor_f32(x[i])


@njit
def ceil_array(x, out):
    """out[i] = ceil_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = ceil_f32(x[i])


@njit
def exp_libdevice_array(x, out):
    """out[i] = exp_libdevice_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = exp_libdevice_f32(x[i])


@njit
def tanh_array(x, out):
    """out[i] = tanh_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = tanh_f32(x[i])


@njit
def int32_array(x, out):
    """out[i] = int32_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = int32_f32(x[i])


@njit
def int16_array(x, out):
    """out[i] = int16_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = int16_f32(x[i])


@njit
def int8_array(x, out):
    """out[i] = the low byte of int16_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = np.int8(int16_f32(x[i]) & 0xFF)


@njit
def lg2_ftz_array(x, out):
    """out[i] = lg2_ftz_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = lg2_ftz_f32(x[i])


@njit
def lg2_approx_array(x, out):
    """out[i] = lg2_approx_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = lg2_approx_f32(x[i])


@njit
def rcp_approx_array(x, out):
    """out[i] = rcp_approx_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = rcp_approx_f32(x[i])


@njit
def rcp_rn_ftz_array(x, out):
    """out[i] = rcp_rn_ftz_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = rcp_rn_ftz_f32(x[i])


@njit
def rsqrt_approx_array(x, out):
    """out[i] = rsqrt_approx_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = rsqrt_approx_f32(x[i])


@njit
def sqrt_approx_array(x, out):
    """out[i] = sqrt_approx_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = sqrt_approx_f32(x[i])


@njit
def sqrt_rn_ftz_array(x, out):
    """out[i] = sqrt_rn_ftz_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = sqrt_rn_ftz_f32(x[i])


@njit
def sin_approx_array(x, out):
    """out[i] = sin_approx_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = sin_approx_f32(x[i])


@njit
def cos_approx_array(x, out):
    """out[i] = cos_approx_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = cos_approx_f32(x[i])


@njit
def tanh_approx_array(x, out):
    """out[i] = tanh_approx_f32(x[i])."""
    for i in range(u64(x.size)):
        out[i] = tanh_approx_f32(x[i])


@njit
def div_rn_array(x, y, out):
    """out[i] = div_rn_f32(x[i], y[i])."""
    for i in range(u64(x.size)):
        out[i] = div_rn_f32(x[i], y[i])


@njit
def div_full_ftz_array(x, y, out):
    """out[i] = div_full_ftz_f32(x[i], y[i])."""
    for i in range(u64(x.size)):
        out[i] = div_full_ftz_f32(x[i], y[i])


@njit
def div_approx_array(x, y, out):
    """out[i] = div_approx_f32(x[i], y[i])."""
    for i in range(u64(x.size)):
        out[i] = div_approx_f32(x[i], y[i])


@njit
def div_approx_ftz_array(x, y, out):
    """out[i] = div_approx_ftz_f32(x[i], y[i])."""
    for i in range(u64(x.size)):
        out[i] = div_approx_ftz_f32(x[i], y[i])

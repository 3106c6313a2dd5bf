"""Functions of Triton's language, one device function each, as kernels/elementwise calls them."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def exp(x):
    return tl.exp(x)


@triton.jit
def exp2(x):
    return tl.exp2(x)


@triton.jit
def log(x):
    return tl.log(x)


@triton.jit
def log2(x):
    return tl.log2(x)


@triton.jit
def sqrt(x):
    return tl.sqrt(x)


@triton.jit
def sqrt_rn(x):
    return tl.sqrt_rn(x)


@triton.jit
def rsqrt(x):
    return tl.rsqrt(x)


@triton.jit
def rcp(x):
    return 1.0 / x


@triton.jit
def sigmoid(x):
    return tl.sigmoid(x)


@triton.jit
def erf(x):
    return tl.erf(x)


@triton.jit
def sin(x):
    return tl.sin(x)


@triton.jit
def cos(x):
    return tl.cos(x)


@triton.jit
def floor(x):
    return tl.floor(x)


@triton.jit
def ceil(x):
    return tl.ceil(x)


@triton.jit
def libdevice_exp(x):
    return libdevice.exp(x)


@triton.jit
def libdevice_tanh(x):
    return libdevice.tanh(x)


@triton.jit
def to_int32(x):
    return x.to(tl.int32)


@triton.jit
def to_int16(x):
    return x.to(tl.int16)


@triton.jit
def to_int8(x):
    return x.to(tl.int8)


@triton.jit
def to_fp32(x):
    return x.to(tl.float32)


@triton.jit
def to_bf16(x):
    return x.to(tl.bfloat16)


@triton.jit
def to_fp16(x):
    return x.to(tl.float16)


@triton.jit
def to_e4m3(x):
    return x.to(tl.float8e4nv)


@triton.jit
def to_e5m2(x):
    return x.to(tl.float8e5)


@triton.jit
def to_bf16_rtz(x):
    return x.to(tl.bfloat16, fp_downcast_rounding="rtz")


@triton.jit
def to_fp16_rtz(x):
    return x.to(tl.float16, fp_downcast_rounding="rtz")


@triton.jit
def add(x, y):
    return x + y


@triton.jit
def sub(x, y):
    return x - y


@triton.jit
def mul(x, y):
    return x * y


@triton.jit
def div(x, y):
    return (x / y).to(x.dtype)


@triton.jit
def div_rn(x, y):
    return tl.div_rn(x, y)


@triton.jit
def minimum(x, y):
    return tl.minimum(x, y)


@triton.jit
def maximum(x, y):
    return tl.maximum(x, y)


@triton.jit
def minimum_nan(x, y):
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def maximum_nan(x, y):
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def fma(x, y, z):
    return tl.fma(x, y, z)


@triton.jit
def mul_add(x, y, z):
    return x * y + z


@triton.jit
def mul_sub(x, y, z):
    return x * y - z


@triton.jit
def mul_add_mul(x, y, z, w):
    return x * y + z * w


@triton.jit
def mul_sub_mul(x, y, z, w):
    return x * y - z * w

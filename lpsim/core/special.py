"""Special functions of an H200 by name; see below for what each is made of."""

from .special_lanes import ex2_f32, rcp_f32, rsqrt_f32, sqrt_f32

__all__ = ["ex2_f32", "rcp_f32", "rsqrt_f32", "sqrt_f32"]

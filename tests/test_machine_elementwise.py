"""lp.machine("h200"): elementwise methods take what they say, and refuse the rest."""

import ml_dtypes
import numpy as np
import pytest

import lpsim as lp
from lpsim import native
from lpsim.core import special

H200 = lp.machine("h200")
BF16 = ml_dtypes.bfloat16
X = np.array([0.5, -1.5, 3.0, 1e-40, 1e30, -0.0, np.inf, -np.inf, np.nan], np.float32)


def same(found, wanted) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert found.tobytes() == wanted.tobytes()


def refuses(error, call, *words: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    for word in words:
        assert word in str(caught.value), (word, str(caught.value))


@pytest.mark.parametrize("name", ["erf", "sin", "cos", "floor", "ceil", "sqrt_rn"])
def test_functions_are_the_loops(name):
    out = np.empty_like(X)
    special.ARRAYS[name](X, out)
    same(getattr(H200, name)(X), out)
    same(getattr(H200, name)(X.reshape(3, 3).T), out.reshape(3, 3).T.copy())


def test_libdevice_and_instructions_by_name():
    out = np.empty_like(X)
    special.ARRAYS["libdevice.tanh"](X, out)
    same(H200.libdevice("tanh", X), out)
    special.ARRAYS["tanh.approx.f32"](X, out)
    same(H200.ptx("tanh.approx.f32", X), out)
    refuses(ValueError, lambda: H200.libdevice("tan", X), "name='tan'", "tanh")
    refuses(ValueError, lambda: H200.ptx("libdevice.exp", X), "instruction='libdevice.exp'")
    refuses(TypeError, lambda: H200.ptx("div.full.f32", X), "2 operands, got 1")
    refuses(TypeError, lambda: H200.ptx("sin.approx.f32", X, X), "1 operands, got 2")
    same(H200.ptx("div.full.f32", X, X[::-1]), H200.div(X, X[::-1]))


def test_instructions_on_sixteen_bits():
    half = np.linspace(-20, 20, 41).astype(np.float16)
    found = H200.ptx("ex2.approx.f16", half)
    assert found.dtype == np.float16
    exact = np.exp2(half.astype(np.float64))
    inside = (exact > 2.0**-14) & (exact < 65504)
    assert np.max(np.abs(found[inside] / exact[inside] - 1)) < 2.0**-9.9  # PTX ISA
    assert np.isposinf(found[half >= 16]).all()
    same(H200.ptx("tanh.approx.bf16", half.astype(BF16)[:0]), np.empty(0, BF16))
    refuses(TypeError, lambda: H200.ptx("ex2.approx.f16", X), "float32", "float16")


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
def test_arithmetic_keeps_the_dtype_and_broadcasts(dtype):
    x = np.arange(1, 7).astype(dtype).reshape(2, 3)
    y = np.array([1, 2, 4]).astype(dtype)
    same(H200.add(x, y), (x.astype(np.float32) + y.astype(np.float32)).astype(dtype))
    same(H200.sub(x, y), (x.astype(np.float32) - y.astype(np.float32)).astype(dtype))
    same(H200.mul(x, y), (x.astype(np.float32) * y.astype(np.float32)).astype(dtype))
    same(H200.div(x, y), (x.astype(np.float32) / y.astype(np.float32)).astype(dtype))  # powers of two: exact
    same(H200.fma(x, y, x), H200.mul_add(x, y, x))
    same(H200.minimum(x, y), np.minimum(x, y))
    same(H200.maximum(x, 2.0), np.maximum(x, dtype(2)))
    assert type(H200.add(x[0, 0], y[0])) is dtype


def test_fusion_is_an_argument():
    x = np.float32(1 + 2.0**-12)
    assert H200.mul_add(x, x, np.float32(-1.0)) == 2.0**-11 + 2.0**-24
    assert H200.mul_add(x, x, np.float32(-1.0), fp_fusion=False) == 2.0**-11
    assert H200.mul_add_mul(x, x, x, x, subtract=True) == 2.0**-24  # of the two products one is rounded
    assert H200.mul_add_mul(x, x, x, x, subtract=True, fp_fusion=False) == 0
    assert H200.mul_add(x, x, np.float32(1.0), subtract=True) == 2.0**-11 + 2.0**-24


def test_nan_in_minimum_is_an_argument():
    nan, one = np.float32(np.nan), np.float32(1)
    assert H200.minimum(nan, one) == 1
    assert np.isnan(H200.minimum(nan, one, propagate_nan=True))
    assert np.isnan(H200.maximum(nan, nan))
    assert H200.maximum(nan, nan).view(np.uint32) == 0x7FFFFFFF


def test_operands_that_do_not_go_together():
    refuses(TypeError, lambda: H200.add(X[:3], X[:3].astype(np.float16)), "x: float32", "y: float16")
    refuses(TypeError, lambda: H200.add(np.ones(2), np.ones(2)), "float64")
    refuses(TypeError, lambda: H200.mul(X, 0.1), "y=0.1", "float32")
    refuses(ValueError, lambda: H200.mul(X, X[:4]), "shape")
    refuses(TypeError, lambda: H200.div_rn(X.astype(BF16), X.astype(BF16)), "bfloat16", "float32")


def test_casts_to_integers_and_between_narrow_floats():
    same(H200.cast(X, "int32"), np.array([0, -1, 3, 0, 2**31 - 1, 0, 2**31 - 1, -(2**31), 0], np.int32))
    same(H200.cast(np.float32(300), "int8"), np.int8(44))
    refuses(ValueError, lambda: H200.cast(X, "int8", rounding="rne"), "rounding='rne'", "rtz")
    refuses(TypeError, lambda: H200.cast(X[:3].astype(np.float16), "int32"), "float16")
    e5m2 = np.array([1.5, np.inf, np.nan], ml_dtypes.float8_e5m2)
    assert [hex(code) for code in H200.cast(e5m2, "bf16")] == ["0x3fc0", "0x4780", "0x47c0"]
    assert [hex(code) for code in H200.cast(e5m2, "fp32")] == ["0x3fc00000", "0x7f800000", "0x7fffffff"]
    assert hex(H200.cast(np.array(0x7F81, np.uint16).view(BF16), "fp32")) == "0x7f810000"
    refuses(ValueError, lambda: H200.cast(e5m2, "fp32", rounding="rne"), "exact")
    refuses(lp.NotModelled, lambda: H200.cast(e5m2, "e4m3fn"), "e5m2", "e4m3fn")


@pytest.mark.parametrize("call", [lambda m: m.sin(X), lambda m: m.add(X, X), lambda m: m.cast(X, "int32")])
def test_other_machines_have_no_elementwise_instructions(call):
    refuses(lp.NotModelled, lambda: call(lp.machine("v100")), "v100")


def test_operations_have_methods():
    assert {native.operands_of(name) for name in native.NARROW} == {2, 3, 4}

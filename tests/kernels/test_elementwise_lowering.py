"""Triton compiling elementwise operations for sm_90, no GPU needed: the PTX that the emulator's functions stand for."""

import importlib
import re

import pytest

POINTERS = {"fp32": "*fp32", "bf16": "*bf16", "fp16": "*fp16", "e4m3fn": "*fp8e4nv", "e5m2": "*fp8e5"}


@pytest.fixture(scope="module")
def elementwise(triton):
    """The module of the kernels."""
    return importlib.import_module("lpsim_triton.elementwise")


def ptx(triton, elementwise, what, operands, source, target=None, fusion=True) -> str:
    """The PTX of apply_kernel for an operation on operands of the format `source`, results of `target`."""
    from triton.backends.compiler import GPUTarget

    constants = elementwise._meta(what, fusion, OPERANDS=operands, BLOCK=1024)
    launch = {name: constants.pop(name) for name in ("num_warps", "enable_fp_fusion")}
    if constants["RESULT"] is not None:  # as a launch passes it
        constants["RESULT"] = elementwise.tl.constexpr(constants["RESULT"])
    types = {"out": POINTERS[target or source], **dict.fromkeys("xyzw", POINTERS[source]), "n": "i32"}
    types |= dict.fromkeys(constants, "constexpr")
    kernel = triton.compiler.ASTSource(elementwise.apply_kernel, types, constants)
    return triton.compile(kernel, target=GPUTarget("cuda", 90, 32), options=launch).asm["ptx"]


def arithmetic(text: str) -> list[str]:
    """The floating-point instructions in order, without their rounding mode: add.f32, fma.bf16x2, .."""
    found = re.findall(
        r"^\s*(add|sub|mul|fma|div|min|max|neg|cvt)((?:\.\w+)*\.b?f16(?:x2)?|(?:\.\w+)*\.f32)\b", text, re.M
    )
    return [f"{operation}{kind.replace('.rn', '')}" for operation, kind in found]


@pytest.mark.parametrize(
    ("name", "fusion", "expected"),
    [
        ("add", True, ["add"]),
        ("sub", True, ["sub"]),
        ("mul", True, ["mul"]),
        ("fma", False, ["fma"]),
        ("x*y + z", True, ["fma"]),
        ("x*y + z", False, ["mul", "add"]),
        ("x*y + z*w", True, ["mul", "fma"]),
        ("x*y + z*w", False, ["mul", "mul", "add"]),
        ("x*y - z*w", False, ["mul", "mul", "sub"]),
        ("minimum", True, ["min"]),
        ("maximum, NaN kept", True, ["max.NaN"]),
    ],
)
@pytest.mark.parametrize("fmt", ["fp32", "bf16", "fp16"])
def test_arithmetic_is_native_and_fusion_is_as_asked(triton, elementwise, name, fusion, expected, fmt):
    operands, function = elementwise.OPERATIONS[name]
    found = arithmetic(ptx(triton, elementwise, function, operands, fmt, fusion=fusion))
    kind = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}[fmt]
    assert {instruction.replace("x2", "") for instruction in found} == {f"{step}.{kind}" for step in expected}
    if fmt == "fp32":  # 1024 elements on 128 threads
        assert sorted(found) == sorted(8 * [f"{step}.f32" for step in expected])


def test_division(triton, elementwise):
    operands, function = elementwise.OPERATIONS["div"]
    assert set(arithmetic(ptx(triton, elementwise, function, operands, "fp32"))) == {"div.full.f32"}
    narrow = ptx(triton, elementwise, function, operands, "bf16")
    assert "div.full.f32" in narrow
    assert "cvt.rn.bf16.f32" in narrow
    assert "div.rn.f32" in ptx(triton, elementwise, elementwise.OPERATIONS["div_rn"][1], 2, "fp32")


#: function -> what its PTX has: instructions and constants that the emulator's recipe names
RECIPES = {
    "triton:exp2": ["ex2.approx.ftz.f32"],
    "triton:exp": ["0f3FB8AA3B", "ex2.approx.f32"],
    "triton:sqrt": ["sqrt.approx.ftz.f32"],
    "triton:rsqrt": ["rsqrt.approx.ftz.f32"],
    "triton:rcp": ["0f3F800000", "div.full.f32"],
    "triton:erf": ["0f3F8060FE", "0f3789CA3C", "0f38B1E96A", "ex2.approx.ftz.f32"],
    "triton:sin": ["0f3F22F983", "0fBFC90FDA", "0f47CE4780", "0d3BF921FB54442D19", "0fB94D4153", "0f37CBAC00"],
    "triton:cos": ["0f3F22F983", "0fBFC90FDA", "0f47CE4780", "0d3BF921FB54442D19", "0fB94D4153", "0f37CBAC00"],
    "triton:libdevice.exp": ["0f3BBB989D", "cvt.ftz.sat.f32.f32", "fma.rm.ftz.f32", "0f32A57060", "ex2.approx.ftz.f32"],
    "triton:libdevice.tanh": ["0f3F19999A", "0f3C80F082", "0f4038AA3B", "rcp.approx.ftz.f32", "0f41102CB4"],
    "triton:floor": ["cvt.rmi.ftz.f32.f32"],
    "triton:ceil": ["cvt.rpi.ftz.f32.f32"],
}


@pytest.mark.parametrize("name", RECIPES)
def test_functions_are_the_recipes(triton, elementwise, name):
    text = ptx(triton, elementwise, elementwise.UNARY[name], 1, "fp32")
    assert [part for part in RECIPES[name] if part not in text] == []


@pytest.mark.parametrize("name", ["lg2.approx.f32", "tanh.approx.f32", "div.approx.ftz.f32", "ex2.approx.ftz.bf16"])
def test_instructions_are_passed_on(triton, elementwise, name):
    what = elementwise.INSTRUCTIONS[name]
    fmt = "bf16" if "bf16" in name else "fp32"
    assert re.search(rf"\b{re.escape(name)} %", ptx(triton, elementwise, what, what.operands, fmt))


@pytest.mark.parametrize(
    ("source", "target", "instruction"),
    [
        ("bf16", "fp32", "cvt.f32.bf16"),
        ("fp16", "bf16", "cvt.rn.bf16.f32"),
        ("bf16", "e4m3fn", "cvt.rn.satfinite.e4m3x2.f32"),
        ("fp16", "e5m2", "cvt.rn.satfinite.e5m2x2.f16x2"),
        ("e4m3fn", "fp16", "cvt.rn.f16x2.e4m3x2"),
        ("e5m2", "bf16", "mul.rn.bf16x2"),
    ],
)
def test_casts(triton, elementwise, source, target, instruction):
    assert instruction in ptx(triton, elementwise, elementwise.CASTS[target], 1, source, target)

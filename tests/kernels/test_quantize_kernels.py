"""The kernels compile for sm_90 for every format and mode, and the quick ones to what makes them quick."""

import importlib
from itertools import product

import pytest

from lpsim.formats import FORMATS, container_bits
from lpsim.policies import ROUNDINGS, policy, stochastic

KEY = {"seed": "i64", "stream": "i64", "step": "i64"}
TARGETS = [name for name in FORMATS if name != "fp64"]


@pytest.fixture(scope="module")
def kernels(triton):
    return importlib.import_module("lpsim_triton.quantize_kernels")


@pytest.fixture(scope="module")
def launches(triton):
    return importlib.import_module("lpsim_triton.quantize_launch")


def compiled(triton, kernel, types: dict, constants: dict):
    """The kernel for aligned pointers and a length that 16 divides, as the launches have it for most elements."""
    from triton.backends.compiler import GPUTarget

    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    aligned = [i for i, (name, kind) in enumerate(signature.items()) if kind.startswith("*") or name == "n"]
    attributes = {(i,): [["tt.divisibility", 16]] for i in aligned}
    source = triton.compiler.ASTSource(kernel, signature, constants, attributes)
    options = {"enable_fp_fusion": False, "num_warps": 4}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


@pytest.mark.parametrize("fmt", TARGETS)
def test_the_general_kernel(triton, kernels, fmt):
    noise = stochastic(bits=1 + TARGETS.index(fmt) * 2, seed=0, stream=0, variant="ABC"[TARGETS.index(fmt) % 3])
    rows = {"source": FORMATS["fp32"], "fmt": FORMATS[fmt], "policy": policy(noise), "BLOCK": 256}
    types = {"x": "*i32", "out": "*i64", "n": "i32", "offset": "i64", **KEY}
    constants = {**rows, "given": None, "lost": None, "noise": kernels.KEYED, "dtype": FORMATS["fp64"]}
    assert compiled(triton, kernels.general_kernel, types, constants).metadata.shared == 0


@pytest.mark.parametrize("source", ["fp64", "fp16", "e5m2"])
def test_other_sources_and_given_words(triton, kernels, source):
    rows = {
        "source": FORMATS[source],
        "fmt": FORMATS["e2m1"],
        "policy": policy("rne", subnormals="flush"),
        "BLOCK": 256,
    }
    bits = FORMATS[source].bits
    types = {"x": f"*i{bits}", "given": "*i64", "out": f"*i{bits}", "lost": "*i32", "n": "i32", "offset": "i64", **KEY}
    constants = {**rows, "noise": kernels.GIVEN, "dtype": FORMATS[source]}
    compiled(triton, kernels.general_kernel, types, constants)


QUICK = [*product(("bf16", "e4m3fn"), (*ROUNDINGS, "A", "B")), *product(("tf32", "fp16", "e4m3fnuz"), ("rne", "A"))]


@pytest.mark.parametrize(("fmt", "rounding"), QUICK)
def test_the_quick_kernels_move_16_bytes(triton, launches, fmt, rounding):
    keyed = rounding in "AB"
    chosen = policy(stochastic(bits=11, seed=0, stream=0, variant=rounding) if keyed else rounding)
    rule = launches.Rule(FORMATS["fp32"], FORMATS[fmt], chosen)
    container = container_bits(FORMATS[fmt])
    plan = launches.plan_of(rule)
    narrow = isinstance(plan, launches.Narrow)
    types = {"x": "*i32", "out": f"*i{container}", "n": "i32"} | ({"first_block": "i64", **KEY} if keyed else {})
    constants = {"plan": plan} | ({"SKIP": 0, "GROUPS": 128} if keyed else {"BLOCK": 1024})
    if not narrow:
        constants |= {"as_values": False} | ({"policy": chosen} if keyed else {})
    names = ("keyed_narrow_kernel", "narrow_kernel", "keyed_prefix_kernel", "prefix_kernel")
    kernel = compiled(triton, getattr(launches, names[2 * (not narrow) + (not keyed)]), types, constants)
    ptx = kernel.asm["ptx"]
    assert "ld.global.v4.b32" in ptx
    if container >= 16:
        assert "st.global.v4.b32" in ptx
    if container == 16:  # a thread has the 8 elements of its block
        assert kernel.metadata.shared == 0
    if keyed:  # one block of ten rounds, two 32-bit products each, for the 8 elements of a thread
        assert 16 <= ptx.count("mul.hi.u32") <= 20  # Triton 3.9 takes both halves of four products at once
        assert "mul.hi.u64" not in ptx


def test_plans_go_where_they_should(launches):
    def plan(fmt, rounding="rne", source="fp32", dtype=None, **rules):
        rows = FORMATS[source], FORMATS[fmt], policy(rounding, **rules), dtype and FORMATS[dtype]
        return type(launches.plan_of(launches.Rule(*rows))).__name__

    def noise(bits, variant="A"):
        return stochastic(bits=bits, seed=0, stream=0, variant=variant)

    assert [plan(fmt) for fmt in ("bf16", "tf32", "fp16", "e4m3fn", "e8m0", "e2m1")] == (
        ["Prefix", "Prefix", "Narrow", "Narrow", "NoneType", "NoneType"]
    )
    assert plan("e2m1", overflow="satfinite", nan="nvidia") == "Narrow"
    assert [plan("bf16", noise(bits, v)) for bits, v in ((32, "B"), (16, "C"), (15, "C"))] == (
        ["Prefix", "Prefix", "NoneType"]
    )
    assert [plan("fp16", noise(bits, v)) for bits, v in ((16, "B"), (17, "A"), (8, "C"))] == (
        ["Narrow", "NoneType", "NoneType"]
    )
    for wrong in ({"nan": "propagate"}, {"subnormals": "flush_out"}, {"source": "bf16"}, {"dtype": "fp64"}):
        assert plan("fp16", **wrong) == "NoneType", wrong

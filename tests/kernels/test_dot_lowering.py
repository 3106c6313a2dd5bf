"""Triton compiling tl.dot for sm_90, no GPU needed: instruction, types, additions, order of k are the plan's."""

import importlib
import re

import pytest

from lpsim import tl_dot

POINTERS = {
    "bf16": "*bf16", "fp16": "*fp16", "fp32": "*fp32", "fp64": "*fp64", "int8": "*i8", "int32": "*i32",
    "e4m3fn": "*fp8e4nv", "e5m2": "*fp8e5",
}  # fmt: skip
WGMMA_TYPES = {"bf16": "bf16", "fp16": "f16", "tf32": "tf32", "e4m3fn": "e4m3", "e5m2": "e5m2", "int8": "s8"}
MMA_TYPES = WGMMA_TYPES | {"e4m3fn": "f16", "e5m2": "f16", "fp64": "f64"}  # fp8 is widened

#: tile, formats, options of the plan
CASES = [
    ((64, 64, 32), "bf16", "bf16", {}),
    ((64, 8, 32), "bf16", "bf16", {}),
    ((64, 8, 32), "e4m3fn", "e4m3fn", {}),
    ((64, 16, 32), "fp16", "fp16", {"num_warps": 8}),
    ((32, 64, 32), "fp16", "fp16", {"out_dtype": "fp16"}),
    ((64, 64, 32), "e4m3fn", "e5m2", {}),
    ((64, 64, 64), "e5m2", "e5m2", {"num_warps": 2}),
    ((64, 64, 128), "e4m3fn", "e4m3fn", {"max_num_imprecise_acc": 64}),
    ((64, 64, 128), "e4m3fn", "e4m3fn", {"max_num_imprecise_acc": 32, "form": "added"}),
    ((64, 64, 64), "e4m3fn", "e4m3fn", {"max_num_imprecise_acc": 0, "form": "added"}),
    ((64, 64, 64), "e4m3fn", "e4m3fn", {"form": "added", "out_dtype": "fp16"}),
    ((64, 64, 32), "bf16", "bf16", {"form": "added", "max_num_imprecise_acc": 32}),
    ((64, 32, 32), "fp32", "fp32", {"input_precision": "tf32x3"}),
    ((64, 32, 32), "fp32", "fp32", {"input_precision": "bf16x6", "num_warps": 2}),
    ((64, 32, 32), "fp32", "fp32", {"input_precision": "ieee", "form": "added"}),
    ((32, 32, 16), "fp64", "fp64", {"out_dtype": "fp64"}),
    ((64, 64, 32), "int8", "int8", {"out_dtype": "int32", "num_warps": 2}),
    ((64, 64, 32), "int8", "int8", {"out_dtype": "int32"}),
]


@pytest.fixture(scope="module")
def dot(triton):
    """The module of the kernels."""
    return importlib.import_module("lpsim_triton.dot")


def compiled(triton, dot, block, a, b, options):
    """The compiled kernel: its PTX and ttgir."""
    from triton.backends.compiler import GPUTarget

    out = options.get("out_dtype", "fp32")
    constants = {
        "BM": block[0],
        "BN": block[1],
        "BK": block[2],
        "ZERO": 0 if a == "int8" else 0.0,
        "HAS_C": True,
        "ADDED": options.get("form") == "added",
        "PRECISION": options.get("input_precision", "tf32"),
        "IMPRECISE": options.get("max_num_imprecise_acc"),
        "OUT": dot.OUT_DTYPES[out],
    }
    types = {
        "a": POINTERS[a],
        "b": POINTERS[b],
        "c": POINTERS[out],
        "d": POINTERS[out],
        "M": "i32",
        "N": "i32",
        "K": "i32",
    }
    types |= dict.fromkeys(constants, "constexpr")
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(7)}
    source = triton.compiler.ASTSource(dot.dot_kernel, types, constants, aligned)
    launch = {"num_warps": options.get("num_warps", 4), "enable_fp_fusion": True}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=launch).asm


@pytest.mark.parametrize(("block", "a", "b", "options"), CASES, ids=str)
def test_triton_compiles_the_plan(triton, dot, block, a, b, options):
    chosen = tl_dot.plan(*block, a, b, **options, triton=triton.__version__.rpartition(".")[0])
    asm = compiled(triton, dot, block, a, b, options)
    per_thread = block[0] * block[1] // (32 * options.get("num_warps", 4))
    found = {
        "wgmma": re.findall(r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k\d+\.\w+\.(\w+)\.(\w+)", asm["ptx"]),
        "mma": re.findall(r"mma\.sync\.aligned\.m\d+n8k\d+\.row\.col(?:\.satfinite)?\.\w+\.(\w+)\.(\w+)\.", asm["ptx"]),
        "ffma": [("fp32", "fp32")] * (len(re.findall(r"fma\.rn\.f32", asm["ptx"])) // (per_thread * block[2])),
    }
    types = {"wgmma": WGMMA_TYPES, "mma": MMA_TYPES, "ffma": {"fp32": "fp32"}}[chosen.path]
    assert [path for path, instructions in found.items() if instructions] == [chosen.path]
    assert set(found[chosen.path]) == {(types[chosen.a_fmt], types[chosen.b_fmt])}
    additions = len(re.findall(r"add(?:\.rn)?\.f32", asm["ptx"])) + 2 * len(
        re.findall(r"add(?:\.rn)?\.f16x2", asm["ptx"])
    )
    assert additions == per_thread * sum(step.op == "add" for step in chosen.steps)
    assert (".satfinite.s32" in asm["ptx"]) == (a == "int8" and chosen.path == "mma")
    if chosen.path == "mma" and chosen.a_fmt in ("bf16", "fp16", "e4m3fn", "e5m2"):
        widths = {int(width) for width in re.findall(r"= tt\.dot .*?kWidth = (\d)", asm["ttgir"])}
        assert widths == {chosen.unit.k_width}


@pytest.mark.parametrize(
    ("a", "b", "num_warps", "k_width"),
    [("e4m3fn", "e5m2", 4, 0), ("e4m3fn", "e5m2", 2, 4), ("e2m1", "e5m2", 2, 8), ("bf16", "e4m3fn", 2, 4)],
)
def test_dot_scaled_becomes_a_dot_of_bf16(triton, dot, a, b, num_warps, k_width):
    """The path, and how many consecutive k a register run of mma.sync holds (0: wgmma, which has no runs)."""
    from triton.backends.compiler import GPUTarget

    packs = [2 if name == "e2m1" else 1 for name in (a, b)]
    names = ("M", "N", "K", "A", "B", "A_PACKED", "B_PACKED", "HAS_B_SCALES", "FAST")
    values = (64, 64, 64, dot.SCALED_NAMES[a], dot.SCALED_NAMES[b], *packs, True, False)
    pointers = POINTERS | {"e2m1": "*u8"}
    types = {"a": pointers[a], "a_scales": "*u8", "b": pointers[b], "b_scales": "*u8", "c": "*fp32", "d": "*fp32"}
    types |= dict.fromkeys(names, "constexpr")
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(6)}
    source = triton.compiler.ASTSource(dot.dot_scaled_kernel, types, dict(zip(names, values, strict=True)), aligned)
    launch = {"num_warps": num_warps, "enable_fp_fusion": True}
    asm = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=launch).asm
    path = "mma.sync" if k_width else "wgmma.mma_async"
    assert set(re.findall(r"(wgmma\.mma_async|mma\.sync)\.\S*\.bf16\.bf16", asm["ptx"])) == {path}
    assert {int(width) for width in re.findall(r"= tt\.dot .*?kWidth = (\d)", asm["ttgir"])} == {k_width} - {0}


def test_the_gpu_gives_the_plans_bits(gpu):
    """A few runs of the live comparison, small; `lpsim verify` runs them all."""
    crosscheck = importlib.import_module("lpsim_triton.crosscheck_dots")
    runs = crosscheck.all_runs()
    for number in range(0, len(runs), 7):
        row = crosscheck.check((number, 5, 1e-3))
        assert row.differing == 0, row
        assert row.compared > 0

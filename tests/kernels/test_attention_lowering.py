"""Triton compiling the plain attention kernels for sm_90, no GPU needed: which instructions, and how rows are summed.

The order of a sum follows the layout of what is summed: an accumulator's, as the emulator has it.
"""

import importlib
import re

import pytest

POINTERS = {"bf16": "*bf16", "fp16": "*fp16", "fp8e4nv": "*bf16"}  # of o


def compiled(triton, kernel, dtype, sizes, tuples, constants, stages):
    """The compiled kernel. sizes: (rows, keys, d) of its tiles; tuples: types of its tuple arguments."""
    from triton.backends.compiler import GPUTarget

    rows, keys, d = sizes
    pairs = constants["PAIRS"]
    blocks = {"q_desc": (rows, d), "do_desc": (rows, d), "k_desc": (keys, d), "v_desc": (keys, d)}
    if dtype == "fp8e4nv":
        blocks["v_desc"] = (d, keys)
    descriptors = {name: f"tensordesc<{dtype}[1, 1, {a}, {b}]>" for name, (a, b) in blocks.items()}
    if pairs.mask:
        kind = "i8" if pairs.mask == "bool" else "fp32"
        descriptors["mask_desc"] = f"tensordesc<{kind}[1, 1, {rows if pairs.rows else 1}, {keys}]>"
    else:
        constants = constants | {"mask_desc": None}
    floats = {"scale": "fp32", "v_scale": "fp32", "softmax_scale": "fp32", "o_more": "*fp32", "lse": "*fp32"}
    types = descriptors | tuples | floats | {"o": POINTERS[dtype], "delta": "*fp32"}
    signature = {
        name: "constexpr" if name in constants else types.get(name, "i32") for name in kernel.arg_names
    }  # fmt: skip
    source = triton.compiler.ASTSource(kernel, signature, constants)
    options = {"num_warps": 4, "num_stages": stages, "enable_fp_fusion": True}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm


def sums(ttgir: str) -> list[str]:
    """The layout of every reduction that adds."""
    blocks = re.findall(r'"tt\.reduce"\([^)]*\)(.*?)\}\) : \(([^)]*)\)', ttgir, re.S)
    return [types.split(",")[-1].strip(" >") for body, types in blocks if "arith.addf" in body]


MASKS = [
    {"causal": True},
    {"causal": False, "window": True},
    {"causal": False, "mask": "bool", "rows": True},
    {"causal": False, "mask": "bool"},
    {"causal": True, "mask": "bias", "rows": True, "heads": True},
    {"causal": False, "mask": "bias", "window": True},
]


@pytest.mark.parametrize("rounded_l", [False, True])
@pytest.mark.parametrize(("dtype", "d"), [("bf16", 64), ("fp16", 128), ("fp8e4nv", 64)])
@pytest.mark.parametrize("conditions", MASKS, ids=str)
def test_weights_are_summed_as_the_accumulator_lies(triton, conditions, dtype, d, rounded_l):
    forward = importlib.import_module("lpsim_triton.attention_forward")
    pairs = importlib.import_module("lpsim_triton.attention_seen").Pairs(**conditions)
    tiles = importlib.import_module("lpsim_triton.attention_tiles")
    variant = tiles.Variant(dtype != "fp16", True, False, dtype == "bf16", rounded_l, "", dtype == "fp8e4nv")
    constants = {"HEAD": d, "ROWS": 64, "KEYS": 64, "PAIRS": pairs, "WITH": variant, "GROUP": 4}
    tuples = {"numbers": ("fp32", "fp32"), "sides": ("i32", "i32")}
    asm = compiled(triton, forward.forward_kernel, dtype, (64, 64, d), tuples, constants, 1 if pairs.mask else 2)
    found = sums(asm["ttgir"])
    assert found
    assert all(layout.startswith("#mma") for layout in found)
    kind = {"bf16": "bf16", "fp16": "f16", "fp8e4nv": "e4m3"}[dtype]
    dots = re.findall(r"wgmma\.mma_async\S*\.f32\.(\w+)\.(\w+)", asm["ptx"])
    assert dots
    assert set(dots) == {(kind, kind)}


@pytest.mark.parametrize("from_p", [True, False])
@pytest.mark.parametrize("conditions", MASKS[:4], ids=str)
def test_delta_is_summed_as_the_accumulator_lies(triton, conditions, from_p):
    module = importlib.import_module("lpsim_triton.attention_delta_again")
    pairs = importlib.import_module("lpsim_triton.attention_seen").Pairs(**conditions)
    constants = {"HEAD": 64, "ROWS": 64, "KEYS": 128, "PAIRS": pairs, "FROM_P": from_p, "GROUP": 4}
    asm = compiled(triton, module.delta_again_kernel, "bf16", (64, 128, 64), {"sides": ("i32", "i32")}, constants, 2)
    found = sums(asm["ttgir"])
    assert len(found) == 1
    assert found[0].startswith("#mma")
    # a thread has 64 scores, each an fma, and 2 rows; a row's products are contracted: one is rounded, fma for the
    # others. Were p and dp masked by the same select, it would be moved behind their product, and none would be left.
    assert asm["ptx"].count("fma.rn.f32") == 64 + 2 * ((128 if from_p else 64) // 4 - 1)
    assert len(re.findall(r"\bmul\S*f32", asm["ptx"])) == 2


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("conditions", MASKS[:3] + [{"causal": False}], ids=str)
def test_gradients_of_masked_pairs_are_cleared_and_others_cost_nothing(triton, conditions, ragged):
    """p and ds by a select in every loop with masked pairs or missing rows, and no select in the others."""
    module = importlib.import_module("lpsim_triton.attention_backward_kernels")
    pairs = importlib.import_module("lpsim_triton.attention_seen").Pairs(**conditions)
    constants = {"HEAD": 64, "ROWS": 64, "KEYS": 64, "PAIRS": pairs, "GROUP": 4}
    types = {"sides": ("i32", "i32"), "dk_out": "*bf16", "dv_out": "*bf16", "dq_out": "*bf16"}
    more = {"STORE": False, "RAGGED": ragged, "ds_desc": None}
    asm = compiled(triton, module.dk_dv_kernel, "bf16", (64, 64, 64), types, constants | more, 1)
    masked_only = pairs.window or bool(pairs.mask)
    loops = 1 if masked_only else pairs.causal + ragged
    assert selects(asm["ttgir"]) == 2 * loops
    assert asm["ttgir"].count("math.exp2") == (1 if masked_only else 1 + loops)
    if not ragged:
        asm = compiled(triton, module.dq_kernel, "bf16", (64, 64, 64), types, constants, 1)
        assert selects(asm["ttgir"]) == 1  # p is only a factor of ds


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_the_overlapped_kernels_clear_them_in_loops_of_their_own(triton, causal, ragged):
    """dk, dv: p and ds by a select in each loop with masked pairs or missing rows; dq: ds under a condition."""
    module = importlib.import_module("lpsim_triton.attention_backward_async")
    constants = {"HEAD": 64, "ROWS": 64, "CAUSAL": causal, "STORE": True, "GROUP": 4, "STAGES": 2, "RAGGED": ragged}
    ttgir = overlapped(triton, module.dk_dv_kernel, constants)
    groups = 2  # of warps, each with its own text
    assert selects(ttgir) == groups * 2 * (causal + ragged)
    assert ttgir.count("math.exp2") == groups * (1 + causal + ragged)
    if not ragged:
        module = importlib.import_module("lpsim_triton.attention_dq_async")
        constants = {"HEAD": 64, "KEYS": 64, "CAUSAL": causal, "GROUP": 4, "STAGES": 2}
        assert selects(overlapped(triton, module.dq_kernel, constants)) == groups


def overlapped(triton, kernel, constants) -> str:
    """The TTGIR of a Gluon kernel for bf16, d 64 and tiles of 64."""
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon._runtime import GluonASTSource

    tile, layout = "1, 1, 64, 64", gl.NVMMASharedLayout(128, 16, rank=4)
    types = {f"{name}_desc": f"tensordesc<bf16[{tile}],{layout!r}>" for name in ("q", "k", "v", "do")}
    types["ds_desc"] = f"tensordesc<bf16[1, 64, 64],{gl.NVMMASharedLayout(128, 16, rank=3)!r}>"
    types |= {name: "*bf16" for name in ("dk", "dv", "dq")} | {"lse": "*fp32", "delta": "*fp32"}
    types |= {"scale": "fp32", "softmax_scale": "fp32"}
    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in kernel.arg_names}
    options = {"num_warps": 4, "enable_fp_fusion": True}
    source = GluonASTSource(kernel, signature, constants)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ttgir"]


def selects(ttgir: str) -> int:
    """How often a tile of float32 is chosen element by element."""
    return len(re.findall(r"arith\.select .*tensor<64x64xf32", ttgir))

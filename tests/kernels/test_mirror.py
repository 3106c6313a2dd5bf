"""Every core function has a Triton twin that compiles for sm_90, and the twin computes in int64."""

import importlib
import inspect

import pytest

from lpsim.core import arith, bits, codec, compare, rounding, wide
from lpsim.formats import FORMATS
from lpsim.policies import policy, stochastic

CORE = [bits, codec, rounding, arith, wide, compare]
FUNCTIONS = {
    f"{module.__name__.rpartition('.')[2]}.{name}": function
    for module in CORE
    for name, function in vars(module).items()
    if hasattr(function, "py_func") and function.py_func.__module__ == module.__name__
}
NUMBERS = ("a", "b", "c", "x")  # what arith calls its operands


@pytest.fixture(scope="module")
def mirrored(triton):
    """tests/kernels/mirror_probe.py's kernel, which calls any twin, and `mirror`."""
    return importlib.import_module("probe_kernels"), importlib.import_module("lpsim_triton.mirror").mirror


def compiled(triton, kernel, signature: dict, constants: dict):
    from triton.backends.compiler import GPUTarget

    types = {name: signature.get(name, "constexpr") for name in kernel.arg_names}
    source = triton.compiler.ASTSource(kernel, types, constants)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"enable_fp_fusion": False})


def kinds(name: str) -> str:
    """What each parameter of a core function is: a row, a Number, or an integer. Words, since Triton takes a str."""
    module = name.partition(".")[0]
    parameters = inspect.signature(FUNCTIONS[name].py_func).parameters
    rows = {"fmt": "fmt", "policy": "policy"}
    found = (rows.get(p) or ("number" if module == "arith" and p in NUMBERS else "integer") for p in parameters)
    return " ".join(found)


def test_there_are_functions():
    assert {"arith.fma", "rounding.round_to", "codec.unpack", "wide.narrow", "compare.order", "bits.mask"} <= {
        *FUNCTIONS
    }
    assert len(FUNCTIONS) >= 43


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_twin_compiles(triton, mirrored, name):
    probe, mirror = mirrored
    constants = {
        "function": mirror(FUNCTIONS[name]),
        "kinds": kinds(name),
        "fmt": FORMATS["bf16"],
        "policy": policy(stochastic(bits=11, seed=0, stream=0, variant="C")),
        "BLOCK": 128,
    }
    kernel = compiled(triton, probe.call, {"x": "*i32", "out": "*i64"}, constants)
    assert "target sm_90" in kernel.asm["ptx"]


def test_a_twin_that_stayed_in_int32_would_be_seen(triton, mirrored):
    """mask(40) of int32 operands is 2^40 - 1 only if the shift is one of 64 bits."""
    probe, mirror = mirrored
    constants = {"function": mirror(bits.mask), "kinds": "integer", "fmt": None, "policy": None, "BLOCK": 32}
    ptx = compiled(triton, probe.call, {"x": "*i32", "out": "*i64"}, constants).asm["ptx"]
    assert "shl.b64" in ptx
    assert "shl.b32" not in ptx


def test_floats_and_unsigned_64_bits_are_refused(triton, mirrored):
    probe, mirror = mirrored
    constants = {"function": mirror(bits.mask), "kinds": "integer", "fmt": None, "policy": None, "BLOCK": 32}
    for word in ("fp32", "u64"):
        with pytest.raises(triton.CompilationError) as error:
            compiled(triton, probe.call, {"x": f"*{word}", "out": "*i64"}, constants)
        causes = [str(error.value)]
        cause = error.value.__cause__
        while cause is not None:
            causes.append(str(cause))
            cause = cause.__cause__
        assert any("takes integers that int64 holds" in text for text in causes)


def test_the_text_is_the_core_functions_own(triton, mirrored):
    _, mirror = mirrored
    for function in FUNCTIONS.values():
        text = inspect.getsource(function.py_func)
        assert mirror(function).src in text


def test_compiled_kernels_are_not_kept_when_mirror_changes(mirrored, monkeypatch):
    _, mirror = mirrored
    twin = mirror(bits.mask)
    before = twin.cache_key
    assert twin.cache_key == before
    monkeypatch.setattr(importlib.import_module("lpsim_triton.mirror"), "DIGEST", "another")
    assert twin.cache_key != before

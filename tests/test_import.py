"""`import lpsim` is light: it loads nothing heavy, fast, from anywhere."""

import importlib.util
import json

import pytest

from processes import ROOT, copy_package, forbid_caches, run_python

HEAVY = ["numba", "llvmlite", "torch", "triton", "matplotlib", "hypothesis", "ml_dtypes", "lpsim_triton"]
LOADED = f"import sys, json; print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
ENCODE = "import numpy as np; print(lpsim.encode(np.array([1.0, -3.0], np.float32), 'bf16').tolist())"


def test_import_loads_nothing_heavy():
    assert json.loads(run_python("import lpsim\n" + LOADED)) == []


def test_the_list_of_heavy_modules_is_seen_when_loaded():
    assert json.loads(run_python("import numba, ml_dtypes, hypothesis, llvmlite\n" + LOADED)) == [
        "numba",
        "llvmlite",
        "hypothesis",
        "ml_dtypes",
    ]


def test_import_takes_less_than_150_ms():
    """Best of ten, beyond the start of the interpreter. The bound is a promise, not a measurement."""
    program = "import time\nbegan = time.perf_counter()\nimport lpsim\nprint(time.perf_counter() - began)"
    assert min(float(run_python(program)) for _ in range(10)) < 0.15


def test_a_read_only_installation_without_a_home_computes(tmp_path):
    source = copy_package(tmp_path)
    forbid_caches(source / "lpsim")
    assert run_python("import lpsim\n" + ENCODE, source) == "[16256, 49216]\n"  # 0x3F80, 0xC040


def test_unknown_attribute_is_an_attribute_error():
    import lpsim

    with pytest.raises(AttributeError, match="encoode"):
        getattr(lpsim, "encoode")  # noqa: B009


@pytest.mark.torch
def test_arrays_of_numpy_do_not_load_an_installed_torch():
    assert importlib.util.find_spec("torch"), "torch must be there to be loaded"
    loaded = run_python("import lpsim\n" + ENCODE + "\n" + LOADED).splitlines()
    assert loaded[0] == "[16256, 49216]"
    assert "torch" not in json.loads(loaded[1])


def test_formats_answer_to_dtypes_of_torch(torch):
    from lpsim import formats

    for dtype, name in [
        (torch.bfloat16, "bf16"),
        (torch.float16, "fp16"),
        (torch.float32, "fp32"),
        (torch.float8_e4m3fn, "e4m3fn"),
        (torch.float8_e5m2, "e5m2"),
    ]:
        assert formats.lookup(dtype) == formats.FORMATS[name]


def test_no_function_has_the_name_of_a_module():
    """Importing lpsim.maximum anywhere would put the module in the place of lp.maximum."""
    modules = {path.stem for path in (ROOT / "lpsim").iterdir() if path.suffix == ".py" or path.is_dir()}
    functions = set(json.loads(run_python("import json, lpsim; print(json.dumps(list(lpsim._HOME)))")))
    assert functions & modules == set()

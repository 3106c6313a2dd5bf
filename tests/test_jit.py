"""The one door to the compiler: a cache that an edit anywhere empties, and that may be missing."""

import json
import os
from pathlib import Path

import pytest

from processes import copy_package, forbid_caches, run_python

# A caller in one file (here: a loop over an array) of a core function in another.
CALLER = """
import numpy as np
from ._jit import njit
from .core.codec import unpack

@njit
def significands(codes, fmt, out):
    for i in range(codes.size):
        out[i] = unpack(np.int64(codes[i]), fmt).sig
"""
PROGRAM = """
import json
import numpy as np
from lpsim import _jit, _caller, formats
out = np.zeros(3, np.int64)
_caller.significands(np.array([0x3F80, 0x4049, 0x0001], np.uint16), formats.FORMATS["bf16"], out)
stats = _caller.significands.stats
hits, misses = sum(stats.cache_hits.values()), sum(stats.cache_misses.values())
found = _jit.cache_directory()  # its last part names the version
directory = str(found and found.parent)
print(json.dumps({"sig": out.tolist(), "hits": hits, "misses": misses, "directory": directory}))
"""
RIGHT = [0x80, 0xC9, 0x01]  # 1.0, 3.140625 and the smallest subnormal in bfloat16


def compute(source: Path, home: Path | None = None) -> dict:
    return json.loads(run_python(PROGRAM, source, home))


@pytest.fixture
def package(tmp_path):
    source = copy_package(tmp_path / "source")
    (source / "lpsim" / "_caller.py").write_text(CALLER)
    return source


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{path.name} no longer contains this once: {old}"
    path.write_text(text.replace(old, new))


def test_an_edit_in_core_reaches_a_cached_caller_in_another_file(package):
    first = compute(package)
    assert first == {
        "sig": RIGHT,
        "hits": 0,
        "misses": 1,
        "directory": str(package / "lpsim" / "__pycache__" / "lpsim"),
    }
    assert compute(package) == first | {"hits": 1, "misses": 0}  # nothing changed: loaded, not compiled

    replace(package / "lpsim/core/bits.py", "return (1 << n) - 1\n", "return (1 << n) - 2\n")
    edited = compute(package)
    assert edited["sig"] == [0x80, 0xC8, 0x00]  # the fraction mask lost its last bit
    assert (edited["hits"], edited["misses"]) == (0, 1)


def test_read_only_package_without_a_home_compiles_afresh(package):
    forbid_caches(package / "lpsim")
    uncached = {"sig": RIGHT, "hits": 0, "misses": 1, "directory": "None"}
    assert compute(package) == uncached
    assert compute(package, home=Path("/dev/null/nowhere")) == uncached
    assert not list(package.rglob("*.nbi"))


def test_read_only_package_uses_the_cache_of_the_user(package, tmp_path):
    forbid_caches(package / "lpsim")
    cache = tmp_path / "home" / ".cache" / "lpsim"
    assert compute(package, tmp_path / "home") == {
        "sig": RIGHT,
        "hits": 0,
        "misses": 1,
        "directory": str(cache),
    }
    assert compute(package, tmp_path / "home")["hits"] == 1
    assert list(cache.rglob("*.nbi"))


def test_the_digest_covers_every_source_file_and_coefficient_table(package):
    program = "from lpsim import _jit; print(_jit.package_digest())"
    lpsim = package / "lpsim"

    def digest() -> str:
        return run_python(program, package)

    seen = [digest()]
    assert digest() == seen[0]
    edits = [lpsim / "core" / "codec.py", lpsim / "formats.py", lpsim / "data" / "a_new_table.json"]
    for path in edits:
        path.write_text((path.read_text() if path.exists() else "") + "\n")
        seen.append(digest())
    edits[0].rename(lpsim / "core" / "renamed.py")
    seen.append(digest())
    assert len(set(seen)) == len(seen)


def test_an_entry_that_no_longer_loads_is_left_alone(package):
    """A cache entry names the classes of its arguments. One of an older version may name a class that is gone."""
    caller = package / "lpsim" / "_caller.py"
    row = "\nfrom typing import NamedTuple\nclass Row(NamedTuple):\n    sig: int\n"
    row += "@njit\ndef get(row):\n    return row.sig\n"
    caller.write_text(CALLER + row)
    program = "from lpsim import _caller; print(_caller.get(_caller.{}(7)))"
    assert run_python(program.format("Row"), package) == "7\n"
    caller.write_text(CALLER + row.replace("Row(", "Line("))
    assert run_python(program.format("Line"), package) == "7\n"


def test_only_the_versions_used_last_are_kept(package):
    caches = package / "lpsim" / "__pycache__" / "lpsim"
    for age in range(8):
        (caches / f"older{age}").mkdir(parents=True)
        os.utime(caches / f"older{age}", (1e9 - age, 1e9 - age))
    own = Path(run_python("from lpsim import _jit; print(_jit.cache_directory())", package).strip())
    assert {path.name for path in caches.iterdir()} == {own.name, "older0", "older1", "older2"}

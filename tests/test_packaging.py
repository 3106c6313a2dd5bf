"""Wheel, source distribution and editable installation hold the same two packages, data included."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from processes import ROOT, forbid_caches, run_python

ROOTS = {"lpsim": ROOT, "lpsim_triton": ROOT / "kernels"}  # package -> its source root


def contents(package: str) -> set[str]:
    """Every file of a package in the sources, relative to its source root; no caches."""
    files = (ROOTS[package] / package).rglob("*")
    kept = [p for p in files if p.is_file() and "__pycache__" not in p.parts]
    return {p.relative_to(ROOTS[package]).as_posix() for p in kept}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """(wheel, source distribution) as hatchling builds them from the working tree."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def test_wheel_holds_both_packages_and_nothing_else(built):
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
    information = {name for name in names if ".dist-info/" in name}
    assert names - information == contents("lpsim") | contents("lpsim_triton")
    assert any(name.endswith("licenses/LICENSE") for name in information)
    assert any(name.startswith("lpsim/data/") for name in names)


def test_source_distribution_holds_what_a_build_and_the_tests_need(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {
        "pyproject.toml",
        "LICENSE",
        "README.md",
        "Makefile",
        "tests/conftest.py",
        "scripts/setup_venv.sh",
    }
    assert contents("lpsim") | {f"kernels/{name}" for name in contents("lpsim_triton")} | needed <= names


def test_an_installed_wheel_computes_where_nothing_can_be_written(built, tmp_path):
    with zipfile.ZipFile(built[0]) as wheel:
        wheel.extractall(tmp_path)
    forbid_caches(tmp_path / "lpsim")
    program = "import lpsim, lpsim_triton, numpy as np; x = np.array([1.0, -3.0], np.float32)\n"
    program += "print(lpsim.__file__, lpsim_triton.__file__, lpsim.encode(x, 'bf16').tolist(), sep='\\n')"
    where = [str(tmp_path / package / "__init__.py") for package in ROOTS]
    assert run_python(program, tmp_path).splitlines() == [*where, "[16256, 49216]"]


def test_both_packages_are_found_from_the_two_source_roots():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    roots = [(ROOT / folder).resolve() for folder in settings["dev-mode-dirs"]]
    packages = [ROOT / path for path in settings["targets"]["wheel"]["packages"]]
    assert roots == list(ROOTS.values())
    assert {path.name: path.parent for path in packages} == ROOTS

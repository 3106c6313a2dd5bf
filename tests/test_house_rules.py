"""House rules that a program can check: each rule is a function from a file to its offences."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from processes import ROOT

MAX_FILE, MAX_FUNCTION = 300, 60
COMPILERS = {"njit", "jit", "vectorize", "guvectorize", "cfunc", "stencil", "generated_jit"}
PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def project_files() -> list[Path]:
    """Every file that git tracks or would track; without git, every file that is not a cache."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        paths = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [p for p in ROOT.rglob("*") if not {".venv", "__pycache__", ".git"} & set(p.parts)]
    return sorted(path for path in paths if path.is_file())


FILES = project_files()
PYTHON = [path.relative_to(ROOT) for path in FILES if path.suffix == ".py"]
TEXT = [path.relative_to(ROOT) for path in FILES if path.suffix in {"", ".py", ".md", ".toml", ".yaml", ".sh", ".json"}]
LIBRARY = [path for path in PYTHON if path.parts[0] in ("lpsim", "kernels")]


def name_of(node: ast.AST) -> str:
    """'njit' for `njit`, `numba.njit` and `numba.njit(...)`; '' for what has no name."""
    if isinstance(node, ast.Call):
        return name_of(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def compilers(tree: ast.Module) -> list[str]:
    """Uses of Numba's compilers: `from numba import njit`, `numba.njit`, `nb.vectorize`."""
    found, numba_names = [], {"numba"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            numba_names |= {a.asname for a in node.names if a.name == "numba" and a.asname}
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "numba":
            found += [alias.name for alias in node.names if alias.name in COMPILERS or alias.name == "*"]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in COMPILERS and name_of(node.value) in numba_names:
            found.append(ast.unparse(node))
    return found


def unsafe_options(tree: ast.Module) -> list[str]:
    """fastmath, parallel and cache=True as keywords; prange; loading pickles."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword):
            on = not (isinstance(node.value, ast.Constant) and not node.value.value)
            if node.arg in ("fastmath", "parallel", "cache", "allow_pickle") and on:
                found.append(ast.unparse(node))
        elif isinstance(node, ast.Name | ast.Attribute) and name_of(node) == "prange":
            found.append("prange")
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in PICKLES]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module] if (node.module or "").split(".")[0] in PICKLES else []
            found += [alias.name for alias in node.names if alias.name == "prange"]
    return found


def prints(tree: ast.Module) -> list[str]:
    """Calls of print; whole programs print through the command line only."""
    return [ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.Call) and name_of(n) == "print"]


def skips(tree: ast.Module) -> list[str]:
    """Tests that are skipped wherever they run, or expected to fail. `skipif` names what a system lacks."""
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    marks = [node for node in attributes if node.attr in ("skip", "xfail", "importorskip")]
    return [ast.unparse(node) for node in marks if name_of(node.value) in ("pytest", "mark")]


def length(node: ast.FunctionDef) -> int:
    """Lines of a function, its docstring not counted: to say more is no offence."""
    first = node.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return span(node) - (span(first) if documented else 0)


def span(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def long_parts(source: str) -> list[str]:
    """A file of MAX_FILE lines or more, and functions of MAX_FUNCTION lines or more."""
    lines = len(source.splitlines())
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    found = [f"{lines} lines"] if lines >= MAX_FILE else []
    return found + [f"{f.name}: {length(f)} lines" for f in functions if length(f) >= MAX_FUNCTION]


def foreign_paths(text: str) -> list[str]:
    """Absolute paths of somebody's machine, which mean nothing to a reader."""
    return re.findall(r"(?<![\w.~/:-])/(?:work|home|root|tmp|opt|mnt|Users)/[\w./-]*", text)


def unfinished(text: str) -> list[str]:
    """Notes to oneself."""
    return re.findall(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b", text)


def parsed(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(), str(path))


@pytest.mark.parametrize("path", [p for p in LIBRARY if p != Path("lpsim/_jit.py")], ids=str)
def test_only_one_door_to_the_compiler(path):
    assert compilers(parsed(path)) == []


@pytest.mark.parametrize("path", PYTHON, ids=str)
def test_no_unsafe_option(path):
    assert unsafe_options(parsed(path)) == []


@pytest.mark.parametrize("path", [p for p in LIBRARY if p.stem != "cli" and "cli" not in p.parts], ids=str)
def test_only_the_command_line_prints(path):
    assert prints(parsed(path)) == []


@pytest.mark.parametrize("path", [p for p in PYTHON if p.parts[0] == "tests"], ids=str)
def test_no_test_is_skipped(path):
    found = skips(parsed(path))
    if path == Path("tests/conftest.py"):  # the fixture `gpu`: no device, no test
        assert found == ["pytest.importorskip", "pytest.skip"]
    else:
        assert found == []


@pytest.mark.parametrize("path", PYTHON, ids=str)
def test_files_and_functions_are_small(path):
    assert long_parts((ROOT / path).read_text()) == []


@pytest.mark.parametrize("path", TEXT, ids=str)
def test_no_path_of_somebodys_machine_and_nothing_unfinished(path):
    text = (ROOT / path).read_text()
    assert foreign_paths(text) + unfinished(text) == []


OFFENCES = [
    (compilers, "from numba import njit"),
    (compilers, "import numba\n@numba.njit\ndef f(): pass"),
    (compilers, "import numba as nb\nf = nb.vectorize(g)"),
    (unsafe_options, "njit(fastmath=True)(f)"),
    (unsafe_options, "njit(fastmath={'nnan'})(f)"),
    (unsafe_options, "@njit(cache=True)\ndef f(): pass"),
    (unsafe_options, "np.load(path, allow_pickle=True)"),
    (unsafe_options, "for i in numba.prange(3): pass"),
    (unsafe_options, "import pickle"),
    (unsafe_options, "from joblib import dump"),
    (prints, "print(1)"),
    (skips, "pytest.skip('later', allow_module_level=True)"),
    (skips, "@pytest.mark.skip\ndef test(): pass"),
    (skips, "@pytest.mark.xfail(strict=False)\ndef test(): pass"),
    (skips, "torch = pytest.importorskip('torch')"),
]


@pytest.mark.parametrize(("rule", "source"), OFFENCES)
def test_an_offence_is_seen(rule, source):
    assert len(rule(ast.parse(source))) == 1


def test_an_offence_in_text_is_seen():
    assert long_parts("def f():\n    'says what'\n" + "    pass\n" * 59) == ["f: 60 lines"]
    assert long_parts("\n" * MAX_FILE) == ["300 lines"]
    assert len(foreign_paths("see /" + "home/me/notes and ./tmp/x and docs/tmp/y")) == 1
    assert len(unfinished("# TO" + "DO: later")) == 1


def test_what_is_allowed_is_not_an_offence():
    fine = "from lpsim._jit import njit\nfrom numba.extending import intrinsic\nnp.load(p, allow_pickle=False)\n"
    assert compilers(ast.parse(fine)) + unsafe_options(ast.parse(fine)) == []

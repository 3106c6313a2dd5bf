"""The layers: a module imports only from rows above it, and core functions keep to their dialect."""

import ast
from fnmatch import fnmatch
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

#: From the ground up. A module may import from its own row (without a cycle) and from the rows before it.
#: A module belongs to the first pattern that fits; one that fits none is an error: give it a place.
ROWS = [
    ["lpsim._jit", "lpsim.errors", "lpsim.threads"],
    [
        "lpsim.formats",
        "lpsim.policies",
        "lpsim.presets",
        "lpsim.machines",
        "lpsim.dot_units",
        "lpsim.dot_rows",
        "lpsim.softmax_shift",
        "lpsim.recipes",
        "lpsim.data",
        "lpsim.data.*",
    ],
    ["lpsim.core", "lpsim.core.bits", "lpsim.core.intrinsics"],
    ["lpsim.core.codec"],
    ["lpsim.core.rounding"],
    ["lpsim.core.*"],
    [
        "lpsim.border",
        "lpsim.exact",
        "lpsim.target",
        "lpsim.fast_fills",
        "lpsim.fills",
        "lpsim.arrays",
        "lpsim.operands",
        "lpsim.rational",
        "lpsim.blocks",
        "lpsim.compare",
        "lpsim.twostep",
        "lpsim.probability",
        "lpsim.scalar",
        "lpsim.spell",
    ],
    [
        "lpsim.sums",
        "lpsim.reductions",
        "lpsim.reachable",
        "lpsim.orders",
        "lpsim.layouts",
        "lpsim.warp_sums",
        "lpsim.dots",
        "lpsim.dot_kinds",
        "lpsim.tl_dot",
        "lpsim.tl_dot_run",
        "lpsim.tile*",
        "lpsim.digest",
        "lpsim.triton_random",
        "lpsim.drawn",
        "lpsim.native",
    ],
    ["lpsim.explain", "lpsim.explain.*", "lpsim.trace"],
    ["lpsim.instructions", "lpsim.machine_*"],  # Machine: rows and the functions above, by instruction name
    ["lpsim.attention", "lpsim.attention.*"],
    ["lpsim.training", "lpsim.training.*"],
    ["lpsim"],  # the face: everything above, by name and on demand
    ["lpsim.testing", "lpsim.testing.*"],
    [
        "lpsim.verify",
        "lpsim.reduction_cases",
        "lpsim.probe",
        "lpsim.probe.*",
        "lpsim.replay*",
        "lpsim.live",
        "lpsim.demo",
        "lpsim.demo.*",
        "lpsim.cli",
        "lpsim.cli.*",
        "lpsim.__main__",
    ],
    ["lpsim_triton", "lpsim_triton.*"],
]
#: Optional or heavy: only inside functions, never when lpsim is imported.
ON_DEMAND = {"torch", "triton", "matplotlib", "hypothesis"}
#: The mirror dialect binds these; philox (32 x 32 bit products) is exempt and not among them.
DIALECT = ["bits", "codec", "rounding", "arith", "wide", "compare"]


def sources(*folders: str) -> dict[str, ast.Module]:
    """Module name -> syntax tree, for every .py file below the folders (each inside its source root)."""
    trees = {}
    for folder in folders:
        top = ROOT / folder
        for path in sorted(top.rglob("*.py")):
            parts = path.relative_to(top.parent).with_suffix("").parts
            trees[".".join(parts).removesuffix(".__init__")] = ast.parse(path.read_text(), str(path))
    return trees


MODULES = sources("lpsim", "kernels/lpsim_triton")


def rank(module: str) -> int:
    for i, row in enumerate(ROWS):
        if any(fnmatch(module, pattern) for pattern in row):
            return i
    raise LookupError(f"{module} has no place in tests/test_layers.py: ROWS")


def imported(module: str, tree: ast.Module, known=MODULES) -> set[str]:
    """All modules that a module imports anywhere, functions included; `known` tells modules from names."""
    packages = {name for name in known if any(other.startswith(name + ".") for other in known)}
    package = module if module in packages else module.rpartition(".")[0]
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join(above if node.level else []) + ("." if node.level and node.module else "")
            base += node.module or ""
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in known else base)
    return found - {module}


def upward(module: str, tree: ast.Module, known=MODULES) -> list[str]:
    """The imports of a module that break the order of ROWS."""
    ours = {name for name in imported(module, tree, known) if name.split(".")[0] in ("lpsim", "lpsim_triton")}
    return sorted(name for name in ours if rank(name) > rank(module))


@pytest.mark.parametrize("module", MODULES)
def test_no_upward_import(module):
    assert upward(module, MODULES[module]) == []


def test_no_cycle():
    graph = {module: imported(module, tree) & MODULES.keys() for module, tree in MODULES.items()}
    TopologicalSorter(graph).prepare()  # CycleError names the cycle


def module_level_imports(tree: ast.Module) -> set[str]:
    """First components of what is imported when the module is, `if` and `try` blocks included."""
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    lazy = {id(inner) for function in functions for inner in ast.walk(function)}
    now = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom) and id(n) not in lazy]
    names = {alias.name for n in now if isinstance(n, ast.Import) for alias in n.names}
    names |= {n.module for n in now if isinstance(n, ast.ImportFrom) and n.level == 0 and n.module}
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("module", [m for m in MODULES if m.split(".")[0] == "lpsim"])
def test_optional_packages_are_imported_on_demand_only(module):
    allowed = {"hypothesis"} if module.startswith("lpsim.testing.") else set()
    assert module_level_imports(MODULES[module]) & ON_DEMAND - allowed == set()


@pytest.mark.parametrize("module", ["lpsim", "lpsim.errors", "lpsim.formats", "lpsim.policies"])
def test_what_is_imported_first_needs_no_compiler(module):
    assert module_level_imports(MODULES[module]) & {"numba", "llvmlite", "ml_dtypes"} == set()


def off_dialect(tree: ast.Module) -> list[str]:
    """What a compiled core function may not contain: each would differ between Numba, Python and Triton."""
    found = []
    for function in (n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name != "where"):
        if not any("njit" in ast.unparse(decorator) for decorator in function.decorator_list):
            continue
        for node in ast.walk(function):
            operator = getattr(node, "op", None)
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            early = isinstance(node, ast.Return) and node is not function.body[-1]
            branch = isinstance(node, ast.If | ast.IfExp | ast.While | ast.BoolOp)
            branch = branch or (isinstance(node, ast.For) and not ast.unparse(node.iter).startswith("range("))
            if isinstance(operator, ast.FloorDiv | ast.Mod | ast.Div) or name == "abs" or early or branch:
                found.append(f"{function.name}, line {node.lineno}: {ast.unparse(node)}")
    return found


@pytest.mark.parametrize("name", DIALECT)
def test_core_keeps_to_the_dialect(name):
    assert off_dialect(MODULES[f"lpsim.core.{name}"]) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("lpsim.formats", "from .core import bits"),
        ("lpsim.formats", "from . import arrays"),
        ("lpsim.core.codec", "from .rounding import round_to"),
        ("lpsim.core.bits", "from ..core import codec"),
        ("lpsim.arrays", "def f():\n    import lpsim"),
        ("lpsim.cli", "import lpsim_triton"),
        ("lpsim.cli", "from lpsim_triton import anything"),
    ],
)
def test_an_upward_import_is_seen(module, line):
    known = MODULES | dict.fromkeys(["lpsim.arrays", "lpsim.cli"], ast.parse(""))
    assert len(upward(module, ast.parse(line), known)) == 1


@pytest.mark.parametrize(
    "body",
    [
        "x // 2",
        "x % 2",
        "x / 2",
        "abs(x)",
        "1 if x else 2",
        "x and 1",
        "x\n    for i in (1, 2): pass",
    ],
)
def test_a_step_off_the_dialect_is_seen(body):
    assert off_dialect(ast.parse(f"@njit\ndef f(x):\n    return {body}\n")) != []


def test_an_early_return_is_seen():
    assert off_dialect(ast.parse("@njit\ndef f(x):\n    if x:\n        return 1\n    return x\n")) != []


def test_a_hidden_module_level_import_is_seen():
    tree = ast.parse("try:\n    import torch.nn\nexcept ImportError:\n    pass\ndef f():\n    import matplotlib\n")
    assert module_level_imports(tree) == {"torch"}

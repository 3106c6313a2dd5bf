"""`mirror`: the Triton twin of a core function, from the same source text. There is no second copy of the arithmetic.

    round_to = mirror(rounding.round_to)        # to be called from kernels; fmt and policy are tl.constexpr rows

A body sees other names than in Numba, and that is all:

- a core function's name is its twin; functions of a row alone (lpsim.formats) are computed when the kernel compiles;
- `where` selects int64 (two booleans stay boolean), a global int is a tl.constexpr;
- every integer is made int64: arguments, what is assigned, results. Triton computes in int32 where operands or small
  constants are int32, and would be wrong without a word: magnitudes in core functions reach 2^62.

core/{bits,codec,rounding,arith,wide,compare} keep to a dialect for this; tests/test_layers.py enforces it.
"""

import ast
import hashlib
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import triton
import triton.language as tl
from numba.core.dispatcher import Dispatcher

CORE = "lpsim.core."
ROWS = ("fmt", "policy")  # what core functions call their rows: constants of the kernel


DIGEST = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


class Twin(triton.JITFunction):
    """A JITFunction that computes in int64."""

    @property
    def cache_key(self) -> str:
        """Triton keeps compiled kernels by what their functions say; what this module makes of a text counts too."""
        return hashlib.sha256((super().cache_key + DIGEST).encode()).hexdigest()

    def parse(self) -> ast.Module:
        """What Triton compiles: the function's own syntax tree, every assigned or returned value through `_int64`."""
        tree = super().parse()
        function = tree.body[0]
        assert isinstance(function, ast.FunctionDef)
        entry = [ast.parse(f"{name} = {name}").body[0] for name in self.arg_names if name not in ROWS]
        function.body[:0] = entry
        for node in ast.walk(function):
            if isinstance(node, ast.Assign | ast.Return):
                assert node.value is not None
                node.value = ast.Call(ast.Name("_int64", ast.Load()), [node.value], [])
        return ast.fix_missing_locations(tree)


@tl.core.builtin
def _int64(x, _semantic: Any = None):
    """x with every integer in it as int64; booleans stay. TypeError for what int64 does not hold."""
    if isinstance(x, tl.tuple):
        parts = [_int64(part, _semantic=_semantic) for part in x.values]
        return tl.tuple(parts, tl.tuple_type([part.type for part in parts], x.type.fields))
    x = _semantic.to_tensor(x)
    if x.dtype in (tl.int1, tl.int64):
        return x
    if not x.dtype.is_int() or x.dtype == tl.uint64:
        raise TypeError(f"a core function takes integers that int64 holds, got {x.dtype}")
    return _semantic.cast(x, tl.int64)


@tl.core.builtin
def where(condition, a, b, _semantic: Any = None):
    """a if condition else b, elementwise, with the types of lpsim.core.bits.where."""
    if isinstance(condition, tl.constexpr):
        return a if condition.value else b
    condition, a, b = (_semantic.to_tensor(x) for x in (condition, a, b))
    if not (a.dtype == tl.int1 and b.dtype == tl.int1):
        a, b = (_semantic.cast(x, tl.int64) for x in (a, b))
    return _semantic.where(_semantic.cast(condition, tl.int1), a, b)


_MODULES: dict[str, dict] = {}


def _names(module: str) -> dict:
    """The names that the twins of this module's functions see: their globals. Filled once."""
    if module not in _MODULES:
        names = _MODULES[module] = {"__name__": module, "_int64": _int64}
        seen = {name: _seen(x, names) for name, x in vars(sys.modules[module]).items()}
        names |= {name: x for name, x in seen.items() if x is not None} | {"where": where}
    return _MODULES[module]


def _seen(x, names: dict):
    """What a twin sees where its module has x; None for what device code cannot use."""
    if isinstance(x, Dispatcher):
        body = x.py_func
        if body.__module__ != names["__name__"]:
            return mirror(x)
        return Twin(FunctionType(body.__code__, names, body.__name__, body.__defaults__))
    if type(x) is int:
        return tl.constexpr(x)
    if isinstance(x, ModuleType) and x.__name__.startswith(CORE):
        module = ModuleType(x.__name__)
        vars(module).update(_names(x.__name__))
        return module
    return x if isinstance(x, type) and hasattr(x, "_fields") else None


def mirror(function):
    """The twin of a compiled core function: a Triton function for blocks or scalars.

    Arguments are integers that int64 holds, and NamedTuples of them; formats and policies are tl.constexpr. Results
    are int64, as NamedTuples where the core function returns one. A kernel that passes floats does not compile.
    """
    body = function.py_func
    if body.__module__ == "lpsim.formats":
        return triton.constexpr_function(body)
    return _names(body.__module__)[body.__name__]

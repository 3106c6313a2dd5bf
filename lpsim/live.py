"""The live half of `lpsim verify`: kernels on this machine's GPU against the emulator, and the report of a run.

The kernels are a package of their own, `lpsim_triton`, that nothing in lpsim imports: it is asked for by name, in
functions. A report is a dictionary, kept as JSON; `page` writes it for readers.
"""

import datetime
import importlib
import json
import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from .verify import Check

#: what a live run needs, beside a GPU
NEEDED = ("triton", "torch", "lpsim_triton")


def why_not() -> str:
    """Why no live check can run here; empty if one can."""
    for name in NEEDED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            return f"{name} cannot be imported ({error}); the kernels need the extra: pip install lpsim-numerics[gpu]"
    if not importlib.import_module("torch").cuda.is_available():
        return "torch finds no CUDA device"
    return ""


def kernels() -> ModuleType:
    """lpsim_triton.crosscheck, which runs the families of kernels. RuntimeError says what is missing."""
    if reason := why_not():
        raise RuntimeError(f"no live check: {reason}.")
    return importlib.import_module("lpsim_triton.crosscheck")


def fresh_seed() -> int:
    """A 31-bit seed that nobody chose."""
    return int.from_bytes(os.urandom(4), "little") >> 1


def made_by() -> dict[str, str]:
    """What computed the emulator's side of a report."""
    import llvmlite
    import numba
    import numpy

    from . import __version__

    return {
        "lpsim": __version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "machine": platform.machine(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def report(rows: Iterable[tuple[str, Check]], head: dict) -> dict:
    """head with the totals and one entry a check. rows: (family, Check)."""
    listed = [{"family": family, **check._asdict()} for family, check in rows]
    return {
        **head,
        "compared": sum(row["compared"] for row in listed),
        "differing": sum(row["differing"] for row in listed),
        "rows": listed,
    }


def write(text: str, path: Path) -> None:
    """The text as a file, whole or not at all: to a temporary name beside it, then renamed."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def as_json(found: dict) -> str:
    """A report as JSON, one check a line."""
    head = json.dumps({key: value for key, value in found.items() if key != "rows"}, indent=1)
    rows = ",\n".join("  " + json.dumps(row) for row in found["rows"])
    return f'{head[:-2]},\n "rows": [\n{rows}\n ]\n}}\n'


def page(found: dict) -> Iterator[str]:
    """The lines of a report as Markdown tables, a family each."""
    families = dict.fromkeys(row["family"] for row in found["rows"])
    for family in families:
        rows = [row for row in found["rows"] if row["family"] == family]
        total, wrong = (sum(row[name] for row in rows) for name in ("compared", "differing"))
        yield f"\n## {family}: {total:,} compared, {wrong:,} differ\n"
        yield "| operation | compared | differ |"
        yield "|---|---:|---:|"
        for row in rows:
            yield f"| {row['operation'].replace('|', ', ')} | {row['compared']:,} | {row['differing']:,} |"
        for row in rows:
            if row["differing"]:
                yield f"\n`{row['operation']}`: {row['example']}"

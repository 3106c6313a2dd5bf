"""The rows of `lpsim probe`: from the GPU of this machine, or from the emulator itself."""

import importlib
import json
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ..probe import report


def rows(machine: str | None, path: str | None, fmt: str | None, working) -> dict:
    """What was found: {"dots": rows, "sums": rows} and what it ran on.

    machine: a name of `lp.machine`, whose emulation is probed; None for this machine's GPU. ValueError for unknown
    names, RuntimeError without a GPU.
    """
    with working("asking (the first questions compile the candidates)"):
        if machine is None:
            return _on_gpu(path, fmt)
        found = {"device": f"emulated {machine}", "dots": list(report.emulated_dots(machine, path, fmt))}
        return found | {"sums": list(report.emulated_sums()) if machine == "h200" and fmt is None else []}


def _on_gpu(path: str | None, fmt: str | None) -> dict:
    hint = "name a machine to probe the emulator instead: lpsim probe --machine h200"
    try:
        torch = importlib.import_module("torch")
        device = importlib.import_module("lpsim_triton.probe_device")
    except ImportError as error:
        raise RuntimeError(f"probing a GPU needs torch and Triton ({error}); {hint}.") from None
    if not torch.cuda.is_available():
        raise RuntimeError(f"torch sees no GPU here; {hint}.")
    return device.probed(path, fmt)


def told(found: dict, out: Console) -> bool:
    """Print what was found. False if a dot or a sum is none that lpsim has a row for."""
    table = Table("dot", "lanes", "F", "rounds", "bits", "e_zero", "k_width", "asked")
    table.title = f"dots of {found['device']}, from their outputs alone"
    failed = [row for row in (*found["dots"], *found["sums"]) if "error" in row]
    for row in found["dots"]:
        if "unit" in row:
            table.add_row(_name(row) + _late(row), *_fields(row), f"{row['asked']:,}")
    if table.row_count:
        out.print(table)
        out.print(
            "F: fraction bits kept in alignment; bits: of the result's fraction; ~: no output shows it, see below."
        )
    for row in found["dots"]:
        if "unit" in row:
            out.print(f"{_name(row)} is {_equal(row)}", soft_wrap=True)
        for field in row.get("unseen", ()):
            values = f"{field['field']} may be {field['least']} to {field['most']}"
            out.print(f"  {values}: {field['why']}", soft_wrap=True)
    for row in found["sums"]:
        if "tree" in row:
            aligned = "aligned" if row["aligned"] else "not aligned"
            layouts = (
                " or ".join(f"{places} ({in_thread})" for places, in_thread in row["layouts"]) or "no known layout"
            )
            name = f"tl.sum of {row['n']} {row['fmt']}, {row['num_warps']} warps, {aligned}"
            out.print(f"{name}: {layouts}; {row['tree'][:60]} ..", markup=False, soft_wrap=True)
    for text in dict.fromkeys(row["paste"] for row in found["dots"] if "paste" in row and not row["equal"]):
        out.print(f"\nA new row:\n{text}", markup=False, soft_wrap=True)
    for row in failed:
        out.print(f"{row}", markup=False, soft_wrap=True)
    return not failed


def _name(row: dict) -> str:
    return f"{row['path']} {row['fmt']}, {row['accumulator']}"


def _late(row: dict) -> str:
    return f", c late every {row['late']} k" if row.get("late") else ""


def _fields(row: dict) -> Iterable[str]:
    unit, unseen = row["unit"], {field["field"] for field in row["unseen"]}
    for field in ("lanes", "fraction_bits", "rounding", "output_fraction", "e_zero", "k_width"):
        value = {0: "rne", 2: "rtz"}[unit[field]] if field == "rounding" else unit[field]
        yield f"~{value}" if field in unseen else str(value)


def _equal(row: dict) -> str:
    return ", ".join(f"{machine} {path}" for machine, path, *_ in row["equal"]) or "no known row"


def written(found: dict, path: Path) -> None:
    """All rows as JSON, under another name first."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found, indent=1))
    part.replace(path)

"""docs/exhaustive.md from the JUnit file of `make test-exhaustive`: what was walked, how much of it, how it ended.

    python scripts/exhaustive_report.py .pytest_cache/exhaustive.xml > docs/exhaustive.md

A row for each test function: the first line of its docstring (or its name), how many parameter sets it ran
with, the inputs that they recorded, and the seconds they took together. Exit status 1 if anything failed.
"""

import ast
import datetime
import os
import platform
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]


class Case(NamedTuple):
    """One test with one set of parameters."""

    module: str
    name: str
    inputs: int
    seconds: float
    passed: bool


def cases(report: Path) -> list[Case]:
    """Every test case of the JUnit file."""
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        properties = {p.get("name"): p.get("value") for p in case.iter("property")}
        found.append(
            Case(
                case.get("classname", "").rpartition(".")[2],
                case.get("name", "").partition("[")[0],
                int(properties.get("inputs") or 0),
                float(case.get("time", 0)),
                all(case.find(tag) is None for tag in ("failure", "error", "skipped")),
            )
        )
    return found


def first_lines(module: str) -> dict[str, str]:
    """Test function -> first line of its docstring, or its name in words."""
    tree = ast.parse((ROOT / "tests" / f"{module}.py").read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    words = {f.name: f.name.removeprefix("test_").replace("_", " ") for f in functions}
    return {f.name: (ast.get_docstring(f) or words[f.name]).splitlines()[0] for f in functions}


def table(rows: list[Case]) -> list[str]:
    lines = ["| what | cases | inputs | seconds | failed |", "|---|---:|---:|---:|---:|"]
    for module, name in dict.fromkeys((row.module, row.name) for row in rows):
        group = [row for row in rows if (row.module, row.name) == (module, name)]
        inputs, seconds = sum(row.inputs for row in group), sum(row.seconds for row in group)
        failed = sum(not row.passed for row in group)
        count = f"{inputs:,}" if inputs else ""
        what = f"{first_lines(module)[name]} (`{module}.{name}`)"
        lines.append(f"| {what} | {len(group)} | {count} | {seconds:.0f} | {failed} |")
    return lines


def main() -> None:
    rows = cases(Path(sys.argv[1]))
    failed = sum(not row.passed for row in rows)
    print("# Whole input spaces\n")
    print(
        "Made by `scripts/exhaustive_report.py` (`make test-exhaustive` calls it). The casts over all 2^32 inputs are"
    )
    print("`make test-digests`. An input is a tuple of operands in one mode.\n")
    print("\n".join(table(rows)))
    print(f"\n{len(rows)} cases, {sum(row.inputs for row in rows):,} inputs recorded, {failed} failed.")
    modules = ", ".join(dict.fromkeys(row.module for row in rows))
    print(f"Test modules in this run: {modules}.")
    print(f"{datetime.date.today()}, {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}.")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

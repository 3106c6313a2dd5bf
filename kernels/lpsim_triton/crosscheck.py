"""The live check of everything: each family of kernels on this GPU against the emulator, over inputs from a seed.

    python -m lpsim_triton.crosscheck [--seed N] [--scale S] [--report FILE.json] [FAMILY ...]

`lpsim verify` runs this too. A family is a module crosscheck_<family> with checks(seed, scale). One that is missing,
does not import or breaks off is a row that differs: nothing is left out silently. With --report the file is written
again after every family; rows of other families that it has already, from the same seed and versions, are kept.
"""

import argparse
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from lpsim import live
from lpsim.verify import Check

FAMILIES = ("elementwise", "dots", "reductions", "quantize", "random", "attention")


def checks(seed: int, scale: float = 1.0, families: tuple[str, ...] = FAMILIES) -> Iterator[tuple[str, Check]]:
    """(family, Check) for every operation of the families."""
    for family in families:
        try:
            module = importlib.import_module(f".crosscheck_{family}", __package__)
            for check in module.checks(seed, scale):
                yield family, check
        except Exception as error:  # whatever it is, it is reported
            text = " ".join(f"{type(error).__name__}: {error}".split())
            yield family, Check(f"{family} did not finish", "live", 0, 1, text[:500])


def versions() -> dict[str, str]:
    """What ran the kernels."""
    import torch
    import triton
    from triton.backends.nvidia.compiler import get_ptxas

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    major, minor = torch.cuda.get_device_capability()
    return {
        "device": torch.cuda.get_device_name(),
        "capability": f"{major}.{minor}",
        "driver": subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0],
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "triton": triton.__version__,
        "ptxas": get_ptxas(10 * major + minor).version,
    }


def head(seed: int, scale: float) -> dict:
    """Everything in a report but its rows."""
    return {**versions(), **live.made_by(), "seed": seed, "scale": scale}


def _kept(path: Path, top: dict, families: tuple[str, ...]) -> list[tuple[str, Check]]:
    """Rows of other families in the report that lies at path, if it is of the same run: all but the date agrees."""
    if not path.exists():
        return []
    old = json.loads(path.read_text())
    if any(old.get(key) != value for key, value in top.items() if key != "date"):
        return []
    rows = [(row.pop("family"), Check(**row)) for row in old["rows"]]
    return [(family, check) for family, check in rows if family not in families]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lpsim_triton.crosscheck", description="Live check; see the module."
    )
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"{', '.join(FAMILIES)}; default: all")
    parser.add_argument("--seed", type=int, default=live.fresh_seed())
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--report", type=Path)
    given = parser.parse_args(arguments)
    if unknown := set(given.families) - {*FAMILIES}:
        parser.error(f"no family {', '.join(sorted(unknown))}; there are {', '.join(FAMILIES)}")
    families = tuple(given.families) or FAMILIES
    top = head(given.seed, given.scale)
    found = _kept(given.report, top, families) if given.report else []
    for family in families:
        began = time.monotonic()
        rows = list(checks(given.seed, given.scale, (family,)))
        found += rows
        total, wrong = (sum(getattr(check, name) for _, check in rows) for name in ("compared", "differing"))
        took = time.monotonic() - began
        sys.stdout.write(f"{family}: {total:,} compared, {wrong:,} differ, {took:.0f} s\n")
        for _, check in rows:
            if check.differing:
                sys.stdout.write(f"  {check.operation}: {check.differing:,} of {check.compared:,}; {check.example}\n")
        if given.report:
            live.write(live.as_json(live.report(found, top)), given.report)
    return int(any(check.differing for _, check in found))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""What `lpsim verify` does: replay the recordings, run the live check where there is a GPU, tell, write a report."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from .. import live, verify
from ..verify import Check


class Request(NamedTuple):
    """What was asked for, checked."""

    chunks: range | tuple[int, ...]
    seed: int | None  #: None: no live check
    scale: float
    report: Path | None


def request(everything: bool, want_live: bool | None, seed: int | None, scale: float, report: Path | None) -> Request:
    """The Request for these options; ValueError or RuntimeError for what cannot be done.

    want_live: None means where there is a GPU. A seed asks for the live check too.
    """
    if not 0 < scale <= 16:
        raise ValueError(f"--scale {scale} must be above 0 and at most 16.")
    if seed is not None and not 0 <= seed < 1 << 31:
        raise ValueError(f"--seed {seed} must be at least 0 and below 2^31.")
    if seed is not None and want_live is False:
        raise ValueError("--seed is the live check's: leave out --no-live or --seed.")
    if report is not None and not report.parent.is_dir():
        raise ValueError(f"--report {report}: there is no folder {report.parent}.")
    if want_live or seed is not None:
        live.kernels()  # RuntimeError says what is missing
        want_live = True
    elif want_live is None:
        want_live = not live.why_not()
    chosen = None if not want_live else live.fresh_seed() if seed is None else seed
    return Request(range(256) if everything else verify.EDGE_CHUNKS, chosen, scale, report)


def run(asked: Request, out: Console, working: Callable[[str], AbstractContextManager]) -> bool:
    """Compare, print a table for each half, write the report. True if every bit agrees."""
    replayed = (("recordings", check) for check in verify.checks(asked.chunks))
    with working("comparing with recordings (the first call of a function compiles it)"):
        rows = _table(out, "recordings of an H200, computed again", replayed)
    head = live.made_by()
    if asked.seed is None:
        out.print(f"No live check: {live.why_not() or '--no-live'}.", markup=False, soft_wrap=True)
    else:
        kernels = live.kernels()
        head = kernels.head(asked.seed, asked.scale)
        with working(f"running kernels on the GPU, seed {asked.seed}"):
            rows += _table(out, f"{head['device']}, seed {asked.seed}", kernels.checks(asked.seed, asked.scale))
    found = live.report(rows, head)
    if asked.report is not None:
        live.write(live.as_json(found), asked.report)
    for _, check in rows:
        if check.differing:
            out.print(f"{check.operation}: {check.example}", markup=False, soft_wrap=True)
    out.print(
        f"{found['differing']:,} of {found['compared']:,} differ."
        if found["differing"]
        else "Every compared bit agrees."
    )
    return not found["differing"]


def _table(out: Console, title: str, rows: Iterator[tuple[str, Check]]) -> list[tuple[str, Check]]:
    """Print the rows as a table, and return them."""
    table, listed = Table("operation", "against", "compared", "differ", title=title), []
    for family, check in rows:
        table.add_row(check.operation, check.recording, f"{check.compared:,}", f"{check.differing:,}")
        listed.append((family, check))
    out.print(table)
    return listed

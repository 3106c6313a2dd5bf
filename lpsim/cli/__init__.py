"""The command line: the only place that prints."""

import time
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="Bit-exact low-precision arithmetic: every bit right, and explained.",
)
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def refuse(error: Exception) -> typer.Exit:
    """Print an error's sentence; the exit status is 2, as for a wrong option."""
    err.print("[red]error:[/red]", end=" ")
    err.print(str(error), markup=False, soft_wrap=True)  # its brackets are its own
    return typer.Exit(2)


@app.command()
def formats() -> None:
    """List the number formats, with what follows from each row."""
    from .. import formats as rows

    table = Table("name", "bits", "p", "bias", "largest", "least normal", "least", "inf", "NaN", "-0")
    for name, (row, _) in rows.REGISTRY.items():
        table.add_row(
            name,
            str(row.bits),
            str(row.precision),
            str(row.exponent_bias),
            f"{float(rows.max_value(row)):.3g}",
            f"{float(rows.min_normal(row)):.3g}",
            f"{float(rows.min_positive(row)):.3g}",
            "yes" if row.infinity else "no",
            "yes" if rows.has_nan(row) else "no",
            "yes" if row.negative_zero else "no",
        )
    out.print(table)
    out.print("p: precision, the implicit bit included. Values to three digits; rows are exact in lpsim.formats.\n")
    for name, (_, source) in rows.REGISTRY.items():
        out.print(f"[bold]{name:>7}[/bold]  {source}")


@app.command(context_settings={"ignore_unknown_options": True})
def explain(
    expression: Annotated[str, typer.Argument(help="One quoted expression: '-2.40625 + -2.296875', '449', 'sqrt(2)'.")],
    fmt: Annotated[str, typer.Option("--fmt", help="The format to round to; `lpsim formats` lists them.")] = "bf16",
    rounding: Annotated[str, typer.Option(help="rne, rna, rtz, rtp, rtn or rto.")] = "rne",
    overflow: Annotated[str, typer.Option(help="ieee, saturate or satfinite.")] = "ieee",
    nan: Annotated[str, typer.Option(help="canonical, propagate, nvidia or ones.")] = "canonical",
) -> None:
    """Show one rounding in bits: alignment, kept | rest, neighbours, the rule, the signed error.

    An expression is a number (a cast), two numbers joined by + - * or /, sqrt(a), or fma(a, b, c). Numbers are
    decimal or hexadecimal (0x1.8p-3), inf or nan.
    """
    from . import expression as parser

    try:
        out.print(
            str(parser.evaluate(expression, fmt, rounding=rounding, overflow=overflow, nan=nan)),
            markup=False,
            soft_wrap=True,
        )
    except (ValueError, TypeError) as error:
        raise refuse(error) from None


@app.command()
def demo(
    figure: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("lpsim-demo.png"),
) -> None:
    """Re-compute a recorded H200 attention, then show how a tied maximum biases bf16 outputs, and what removes it."""
    from . import story

    started = time.monotonic()
    agrees = story.replay(out, _working)
    story.additions(out)
    story.build_up(out, _working, figure)
    out.print(f"\nDone in {time.monotonic() - started:.1f} s.")
    if not agrees:
        raise typer.Exit(1)


@app.command()
def verify(
    everything: Annotated[
        bool, typer.Option("--all", help="All 2^32 inputs of every digest, not only six chunks of 2^24: many minutes.")
    ] = False,
    live: Annotated[
        bool | None,
        typer.Option("--live/--no-live", help="Run kernels on this machine's GPU too. Default: if there is one."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the live inputs. Default: a new one, which is told.")
    ] = None,
    scale: Annotated[
        float, typer.Option(help="How many live inputs; 1 is as in docs/verified.md, many minutes.")
    ] = 0.02,
    report: Annotated[Path | None, typer.Option(help="Write all rows to this file as JSON.")] = None,
) -> None:
    """Compare the emulator with a real H200, bit for bit: with recordings and, where there is a GPU, live.

    The exit status is 1 if a bit differs, and 2 if what was asked for cannot be run.
    """
    from . import verification

    try:
        request = verification.request(everything, live, seed, scale, report)
    except (ValueError, RuntimeError) as error:
        raise refuse(error) from None
    if not verification.run(request, out, _working):
        raise typer.Exit(1)


@app.command()
def probe(
    machine: Annotated[
        str | None, typer.Option(help="Probe the emulation of this machine (h200, a100, ..), not this machine's GPU.")
    ] = None,
    path: Annotated[str | None, typer.Option(help="Only this instruction path: wgmma, mma, ..")] = None,
    fmt: Annotated[str | None, typer.Option(help="Only this operand format; `lpsim formats` lists them.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write all rows to this file as JSON.")] = None,
) -> None:
    """Find out what a GPU's dots and sums do, from their outputs alone, and print the row that they imply.

    The exit status is 1 if a dot or a sum is of no kind that lpsim has rows for, and 2 if there is nothing to probe.
    """
    from . import probing

    try:
        found = probing.rows(machine, path, fmt, _working)
    except (ValueError, RuntimeError) as error:
        raise refuse(error) from None
    if report is not None:
        probing.written(found, report)
    if not probing.told(found, out):
        raise typer.Exit(1)


@contextmanager
def _working(text: str):
    """A spinner with the elapsed time on standard error while something is computed."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        progress.add_task(text, total=None)
        yield

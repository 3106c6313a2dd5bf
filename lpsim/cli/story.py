"""The three parts of `lpsim demo`, told. Every number printed here was computed in this run."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from .. import explain
from ..demo import buildup, figure, recorded

RESIDUAL = -0.0008654594421387  # what many keys with small weights had added up to in the paper's example


def replay(out: Console, working) -> bool:
    """Part (a): recorded H200 runs, computed again. True if every bit agrees."""
    out.rule("1. A recorded H200 run of flash attention, computed again on this machine")
    table = Table("inputs", "format", "q, k, v", "causal", "O", "l", "m", "bits", title="values that differ")
    wrong = bits = 0
    for case in recorded.cases():
        with working(f"recipe triton on recorded inputs '{case['inputs']}' (the first call compiles)"):
            found = recorded.replay(case)
        counts = [str(found.differing[name]) for name in ("o", "l", "m")]
        shape = "x".join(map(str, found.shape))
        table.add_row(found.inputs, found.fmt, shape, "yes" if found.causal else "no", *counts, f"{found.bits:,}")
        wrong += sum(found.differing.values())
        bits += found.bits
    out.print(table)
    verdict = "all of them agree" if wrong == 0 else f"[red]{wrong} values differ[/red]"
    out.print(f"{bits:,} bits of a real GPU compared with the emulator's: {verdict}.\n")
    return wrong == 0


def additions(out: Console) -> None:
    """Part (b): the paper's bf16 addition, without and with the small residual."""
    out.rule("2. Why the error has one sign: the paper's addition, in bits")
    tie = explain.add(-2.40625, -2.296875, "bf16")
    broken = explain.add(-2.40625 + RESIDUAL, -2.296875, "bf16")
    for text, step in (
        ("Two keys share the maximum, so their weights are exactly 1, and V itself is added:", tie),
        ("The same, after other keys have left a residual of the same sign in the fp32 sum:", broken),
    ):
        out.print(f"\n{text}")
        out.print(str(step), markup=False, soft_wrap=True)
    assert tie.error is not None
    assert broken.error is not None
    first, second = f"error {float(tie.error):+.6f}", f"error {float(broken.error):+.6f}"
    out.print(
        f"\nAlone the sum is a tie and goes to even: {first}. The residual, however small, puts it past the midpoint: "
        f"{second}. Ties split both ways; a residual of V's own sign sends all of them away from zero: a bias.\n"
    )


def build_up(out: Console, working, path: Path) -> None:
    """Parts (c) and (d): the signed error of O key by key, the remedy, and the figure."""
    out.rule("3. The signed error of O, key by key")
    curves = {}
    for name, series in buildup.compared().items():
        with working(f"attention over the keys 0..t for each t: {name}"):
            curves[name] = buildup.curve(series)
    first, second = buildup.TIED
    size, mass = f"{buildup.ROWS} rows x {buildup.FEATURES} features", f"{buildup.residual_mass():.1e}"
    out.print(f"{size} of negative V. Keys {first} and {second} share the maximum; the others weigh {mass} as much.")
    out.print("Mean of O minus exact O in bf16 ulps, with its standard error:")
    table = Table("recipe", "one key leads", "tie begins", "after all keys")
    for name, curve in curves.items():
        shown = [f"{curve.mean[t]:+.3f} ± {curve.deviation[t]:.3f}" for t in (second - 1, second, -1)]
        table.add_row(name, *shown)
    out.print(table)
    out.print(
        "Recipe paper rounds P V before it divides by l: the sum of two V is a tie or exact, and the residual has V's "
        "own sign, so ties go away from zero. Recipe triton, the real kernel, rounds once, after the division: there "
        "the residual pulls O toward the other keys' V, and the error takes that direction. The dynamic maximum makes "
        "the tied weights ordinary numbers below 1: nothing lands on a tie, and the error has no preferred sign."
    )
    _save(out, curves, path)


def _save(out: Console, curves: dict, path: Path) -> None:
    try:
        figure.save(curves, path)
    except ImportError:
        out.print(
            '\nNo figure: matplotlib is not installed. It comes with: pip install "lpsim-numerics[plot]"',
            markup=False,
        )
    else:
        out.print(f"\nFigure: {path.resolve()}", markup=False, soft_wrap=True)

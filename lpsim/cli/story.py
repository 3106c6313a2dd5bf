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
    table = Table("inputs", "format", "q, k, v", "causal", "O differing", "l differing", "m differing", "bits compared")
    wrong = bits = 0
    for case in recorded.cases():
        with working(f"recipe triton on recorded inputs '{case['inputs']}' (the first call compiles)"):
            found = recorded.replay(case)
        counts = [f"{found.differing[name]} of {found.compared[name]}" for name in ("o", "l", "m")]
        shape = " x ".join(map(str, found.shape))
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
    out.print(
        f"\nAlone the sum is a tie and goes to even: error {float(tie.error):+.6f}. The residual, however small, puts it "
        f"past the midpoint: error {float(broken.error):+.6f}.\nTies split both ways; a residual of V's own sign sends "
        "all of them away from zero. That is a bias.\n"
    )


def build_up(out: Console, working, path: Path) -> None:
    """Parts (c) and (d): the signed error of O key by key, the remedy, and the figure."""
    out.rule("3. The signed error of O, key by key")
    qkv = buildup.inputs()
    curves = {}
    for name, recipe in buildup.recipes_compared().items():
        with working(f"attention over the keys 0..t for each t, recipe {name}"):
            curves[name] = buildup.curve(name, recipe, qkv)
    first, second = buildup.TIED
    table = Table("recipe", f"before key {second} (no tie)", f"keys 0..{second}", "all keys", "standard error")
    for name, curve in curves.items():
        shown = (curve.mean[second - 1], curve.mean[second], curve.mean[-1])
        table.add_row(name, *(f"{x:+.3f}" for x in shown), f"{curve.deviation[-1]:.3f}")
    out.print(
        f"{buildup.BATCH} rows x {buildup.FEATURES} features; keys {first} and {second} share the maximum, the others weigh "
        f"{buildup.residual_mass(qkv):.1e} as much together; V is negative.\nMean of O minus exact O, in bf16 ulps:"
    )
    out.print(table)
    _explain_triton(out, working)
    _save(out, curves, path)


def _explain_triton(out: Console, working) -> None:
    """In the real kernel the other keys' V decides the sign: show both sides."""
    recipe = buildup.recipes_compared()["triton"]
    means = {}
    for factor in (0.2, 1.0, 1.5):
        with working(f"recipe triton, V of the other keys times {factor}"):
            means[factor] = buildup.curve("triton", recipe, buildup.inputs(factor)).mean[-1]
    out.print(
        "Recipe paper rounds P V before it divides by l: the sum of two V lies on a tie or next to one, and the "
        "residual has V's sign.\nRecipe triton, the real kernel, rounds once, after the division. There the sign depends "
        "on the other keys' V:\n"
        + "\n".join(f"  times {factor:<4} mean signed error {mean:+.3f} ulp" for factor, mean in means.items())
    )


def _save(out: Console, curves: dict, path: Path) -> None:
    try:
        figure.save(curves, path)
    except ImportError:
        out.print('\nNo figure: matplotlib is not installed. It comes with: pip install "lpsim-numerics[plot]"', markup=False)
    else:
        out.print(f"\nFigure: {path.resolve()}", markup=False, soft_wrap=True)

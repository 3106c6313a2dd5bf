"""One figure of the build-up: signed error of O against the number of keys seen, a panel a rounding plan."""

import os
from pathlib import Path

from . import buildup

COLOURS = {"plain": "#b2182b", "dynamic": "#2166ac"}


def save(curves: dict[str, buildup.Curve], path: Path) -> None:
    """Write the PNG under a temporary name, then rename it. ImportError where matplotlib is not installed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.4), sharey=True, layout="constrained")
    for panel, recipe in zip(panels, ("paper", "triton"), strict=True):
        _draw(panel, recipe, curves)
    panels[0].set_ylabel("signed error of O in bf16 ulps\n(mean over rows and features, with 2 standard errors)")
    figure.suptitle("A tied maximum biases the output, and the rounding plan decides how")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        figure.savefig(temporary, format="png", dpi=150)
        os.replace(temporary, path)
    finally:
        pyplot.close(figure)
        temporary.unlink(missing_ok=True)


def _draw(panel, recipe: str, curves: dict[str, buildup.Curve]) -> None:
    titles = {
        "paper": "recipe paper: P V rounded to bf16 before the division",
        "triton": "recipe triton: one rounding, after the division",
    }
    keys = range(1, buildup.KEYS + 1)
    for label, kind, name in (
        ("plain maximum", "plain", recipe),
        ("dynamic maximum", "dynamic", f"{recipe}, dynamic maximum"),
    ):
        mean, deviation = curves[name].mean, curves[name].deviation
        panel.plot(keys, mean, color=COLOURS[kind], label=label)
        panel.fill_between(keys, mean - 2 * deviation, mean + 2 * deviation, color=COLOURS[kind], alpha=0.2, lw=0)
    panel.axhline(0, color="black", lw=0.8)
    for number, key in enumerate(buildup.TIED, start=1):
        panel.axvline(key + 1, color="grey", ls=":", lw=1)
        ordinal = "first" if number == 1 else "second"
        panel.annotate(
            f"{ordinal} key with\nthe maximum", (key + 1, 0.03), xycoords=("data", "axes fraction"),
            xytext=(4, 0), textcoords="offset points", fontsize=8, color="dimgrey",
        )  # fmt: skip
    panel.set_title(titles[recipe], fontsize=10)
    panel.set_xlabel("keys seen")
    panel.legend(loc="upper left", frameon=False, fontsize=9)

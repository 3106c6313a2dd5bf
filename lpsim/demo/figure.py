"""One figure of the build-up: signed error of O against the number of keys seen, a panel a rounding plan."""

import os
from pathlib import Path

from . import buildup

PLAIN, DYNAMIC = "#b2182b", "#2166ac"
#: panel title -> (curve, its label, colour, line style)
PANELS = {
    "recipe paper: P V rounded to bf16, then divided": [
        ("paper", "plain maximum", PLAIN, "-"),
        ("paper, dynamic maximum", "dynamic maximum", DYNAMIC, "-"),
    ],
    "recipe triton: divided in fp32, then rounded once": [
        ("triton, other V x 0.2", "plain, other keys' V small", PLAIN, "-"),
        ("triton, other V x 1.5", "plain, other keys' V large", PLAIN, "--"),
        ("triton, other V x 0.2, dynamic maximum", "dynamic, other keys' V small", DYNAMIC, "-"),
        ("triton, other V x 1.5, dynamic maximum", "dynamic, other keys' V large", DYNAMIC, "--"),
    ],
}


def save(curves: dict[str, buildup.Curve], path: Path) -> None:
    """Write the PNG under a temporary name, then rename it. ImportError where matplotlib is not installed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.4), sharey=True, layout="constrained")
    for panel, (title, lines) in zip(panels, PANELS.items(), strict=True):
        _draw(panel, title, lines, curves)
    panels[0].set_ylabel("signed error of O in bf16 ulps\n(mean over rows, with 2 standard errors)")
    figure.suptitle("A tied maximum biases the output, and the rounding plan decides how")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        figure.savefig(temporary, format="png", dpi=150)
        os.replace(temporary, path)
    finally:
        pyplot.close(figure)
        temporary.unlink(missing_ok=True)


def _draw(panel, title: str, lines: list, curves: dict[str, buildup.Curve]) -> None:
    keys = range(1, buildup.KEYS + 1)
    for name, label, colour, style in lines:
        mean, deviation = curves[name]
        panel.plot(keys, mean, color=colour, ls=style, label=label)
        panel.fill_between(keys, mean - 2 * deviation, mean + 2 * deviation, color=colour, alpha=0.15, lw=0)
    panel.axhline(0, color="black", lw=0.8)
    for ordinal, key in zip(("first", "second"), buildup.TIED, strict=True):
        panel.axvline(key + 1, color="grey", ls=":", lw=1)
        panel.annotate(
            f"{ordinal} key with\nthe maximum", (key + 1, 0.03), xycoords=("data", "axes fraction"),
            xytext=(4, 0), textcoords="offset points", fontsize=8, color="dimgrey",
        )  # fmt: skip
    panel.margins(y=0.16)  # room below the curves for the notes
    panel.set_title(title, fontsize=10)
    panel.set_xlabel("keys seen")
    panel.legend(loc="upper left", frameon=False, fontsize=8)

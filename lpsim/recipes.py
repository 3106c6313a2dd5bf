"""Recipes: which rounding acts at which site of attention, as rows. An intervention replaces one entry.

The sites of the forward pass, in the order in which they are computed, per row and key tile:
  S      scores (nearest: scaled; machine: as the dot gives them)   PV    this tile's P V (nearest only)
  shift  S - m (nearest only: the machine fuses it)                 acc   the un-normalised output
  m      running maximum                                            O     the output
  P      weights, as the second dot takes them
  l      running sum of weights
A site that is None keeps what the arithmetic gives: float32, or float64 in `exact`.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from .errors import choose, unknown
from .formats import lookup
from .policies import ROUNDINGS


class Site(NamedTuple):
    """What a value is rounded to where it is stored."""

    fmt: str  #: a format's name, or "input" for the format of q, k, v
    rounding: str = "rne"


class Maximum(NamedTuple):
    """What is subtracted from the scores. beta 0 is the plain row maximum.

    Otherwise Qiu and Yao's dynamic maximum: where at least two scores of a tile lie within `tolerance` of the
    tile's maximum r, subtract beta * r if r > 0 and 0 if r < 0 (arXiv 2510.04212, section 4; the tolerance is
    that of its ICLR version). Ties are counted over unmasked entries; the denominator has no floor.
    """

    beta: float = 0.0
    tolerance: float = 0.0


PLAIN = Maximum()


def dynamic(beta: float = 2.0, tolerance: float = 1e-3) -> Maximum:
    """The dynamic maximum; beta above 1, tolerance in natural logits. ValueError otherwise."""
    if not 1.0 < beta <= 64.0:
        raise ValueError(f"beta={beta!r} must be above 1 and at most 64 (the paper recommends 2 to 8).")
    if not 0.0 <= tolerance < 1.0:
        raise ValueError(f"tolerance={tolerance!r} must be at least 0 and below 1.")
    return Maximum(float(beta), float(tolerance))


@dataclass(frozen=True)
class Recipe:
    """One way to compute attention: an arithmetic, the roundings at its sites, and the algorithm's switches."""

    name: str
    arithmetic: str  #: machine (a GPU's rows), nearest (fp32 nearest to exact sums), exact (float64)
    source: str
    base: float  #: of the exponential and of m and lse: 2 or e
    block: tuple[int, int]  #: query rows and keys of a tile; larger ones are cut to the sequence
    S: Site | None = None
    shift: Site | None = None
    m: Site | None = None
    P: Site | None = None
    l: Site | None = None
    PV: Site | None = None
    acc: Site | None = None
    O: Site | None = None
    l_from: str = "exact"  #: the weights that l sums: exact, or rounded (as the second dot takes them)
    maximum: Maximum = PLAIN


SITES = ("S", "shift", "m", "P", "l", "PV", "acc", "O")
NOT_IN = {"machine": ("shift", "PV"), "exact": SITES}  #: sites that an arithmetic does not have
E = 2.718281828459045
_INPUT, _BF16 = Site("input"), Site("bf16")

RECIPES: dict[str, Recipe] = {
    "exact": Recipe("exact", "exact", "softmax(scale q k^T) v in float64, no tiles", E, (1 << 30, 1 << 30)),
    "triton": Recipe(
        "triton",
        "machine",
        "flash attention forward as Triton 3.6 compiles it for sm_90: fp32 everywhere but P and O",
        2.0,
        (64, 64),
        P=_INPUT,
        O=_INPUT,
    ),
    "paper": Recipe(
        "paper",
        "nearest",
        "the emulation of Qiu and Yao (arXiv 2510.04212): bf16 at every site",
        E,
        (512, 512),
        **dict.fromkeys(SITES, _BF16),
    ),
}


def recipe(given) -> Recipe:
    """A Recipe from its name or itself; ValueError for an unknown name."""
    return given if isinstance(given, Recipe) else choose("recipe", given, RECIPES)


def with_site(given, **sites) -> Recipe:
    """The recipe with other roundings: with_site("paper", O="fp32"), with_site("triton", P=Site("bf16", "rtz")).

    A site is a format's name, a Site, or None. Raises ValueError for a site that the arithmetic does not have
    and for unknown formats and roundings.
    """
    base = recipe(given)
    for name, site in sites.items():
        if name not in SITES:
            raise unknown("site", name, SITES)
        if name in NOT_IN.get(base.arithmetic, ()):
            raise ValueError(f"recipe {base.name!r} has no site {name}: its {base.arithmetic} arithmetic fuses it.")
        sites[name] = Site(site) if isinstance(site, str) else site
        if sites[name] is not None:
            choose("rounding", sites[name].rounding, ROUNDINGS)
            if sites[name].fmt != "input":
                lookup(sites[name].fmt, name)
    return _renamed(base, sites)


def with_switch(given, **switches) -> Recipe:
    """The recipe with l_from, maximum, or block replaced: with_switch("paper", maximum=dynamic(beta=2))."""
    base = recipe(given)
    for name, value in switches.items():
        if name not in ("l_from", "maximum", "block"):
            raise unknown("switch", name, ("l_from", "maximum", "block"))
        if name == "maximum" and not isinstance(value, Maximum):
            raise TypeError(f"maximum={value!r} must be recipes.PLAIN or recipes.dynamic(...).")
        if name == "l_from":
            choose("l_from", value, {"exact": 0, "rounded": 1})
    return _renamed(base, switches)


def _renamed(base: Recipe, changes: dict) -> Recipe:
    note = ", ".join(f"{name}={_spell(value)}" for name, value in changes.items())
    return replace(base, name=f"{base.name} with {note}", **changes)


def _spell(value) -> str:
    if isinstance(value, Site):
        return value.fmt if value.rounding == "rne" else f"{value.fmt}:{value.rounding}"
    return "plain" if value == PLAIN else str(value)


__all__ = [
    "PLAIN", "RECIPES", "SITES", "Maximum", "Recipe", "Site", "dynamic", "recipe", "with_site", "with_switch",
]  # fmt: skip

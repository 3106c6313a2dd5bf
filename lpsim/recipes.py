"""Recipes: which rounding acts at which site of attention, as rows. An intervention replaces one entry.

The sites of the forward pass, in the order in which they are computed, per row and key tile:
  QK     q k^T before it is scaled (nearest only)                   l     running sum of weights
  S      scores (nearest: scaled; machine: as the dot gives them)   PV    this tile's P V (nearest only)
  shift  S - m (nearest only: the machine fuses it)                 acc   the un-normalised output
  m      running maximum                                            O     the output
  P      weights, as the second dot takes them
The sites of the backward pass, which computes S again, with its sites QK and S:
  delta  rowsum(dO o O), or what delta_from puts in its place       dS    P (dP - delta), as its dots take it
  PdV    P = exp(S - lse), as the dot of dV takes it                dQ, dK, dV   the gradients
  dP     dO v^T
A site that is None keeps what the arithmetic gives: float32, or float64 in `exact`.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .errors import choose, unknown
from .formats import lookup
from .policies import ROUNDINGS, Stochastic
from .softmax_shift import PLAIN, Maximum, dynamic, lazy


class Site(NamedTuple):
    """What a value is rounded to where it is stored."""

    fmt: str  #: a format's name, or "input" for the format of q, k, v
    rounding: str | Stochastic = "rne"


@dataclass(frozen=True)
class Sham:
    """A control for `kept="fp32"`: what O lost in rounding is added to it or taken from it, by a keyed coin.

    Each element of the O that delta sees changes by as much as the remedy changes it, but the mean signed error
    stays what it was: a remedy that does no better than this one has not removed the bias.
    seed: an int of 64 bits, stream: of 32, neither negative. TypeError and ValueError otherwise.
    """

    seed: int
    stream: int = 0

    def __post_init__(self):
        for name, value, width in (("seed", self.seed, 64), ("stream", self.stream, 32)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise TypeError(f"{name}={value!r} of Sham must be an int.")
            if not 0 <= value < 1 << width:
                raise ValueError(f"{name}={value!r} of Sham must be at least 0 and below 2^{width}.")


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
    QK: Site | None = None
    delta: Site | None = None
    PdV: Site | None = None
    dP: Site | None = None
    dS: Site | None = None
    dQ: Site | None = None
    dK: Site | None = None
    dV: Site | None = None
    l_from: str = "exact"  #: the weights that l sums: exact, or rounded (as the second dot takes them)
    maximum: Maximum = PLAIN
    normalise: str = "after"  #: P is divided by l before or after the dot with v (before: in a single key tile)
    kept: str | Sham = "O"  #: what delta sees of O: O, fp32 (before rounding), pair (two values of O's format)
    delta_from: str = "O"  #: rowsum(dO o O), or P: rowsum(dP o P), or PV: rowsum(dO o (P v computed again))


SITES = ("S", "shift", "m", "P", "l", "PV", "acc", "O")
BACKWARD_SITES = ("delta", "PdV", "dP", "dS", "dQ", "dK", "dV")
ALL_SITES = ("QK", *SITES, *BACKWARD_SITES)
NOT_IN = {"machine": ("QK", "shift", "PV"), "exact": ALL_SITES}  #: sites that an arithmetic does not have
STOCHASTIC = ("O", "dQ", "dK", "dV")  #: sites rounded in one piece, so that an element's key is its index
OPERANDS = ("P", "PdV", "dS")  #: sites that a dot takes as they are
SWITCHES = {
    "l_from": ("exact", "rounded"),
    "normalise": ("before", "after"),
    "kept": ("O", "fp32", "pair"),
    "delta_from": ("O", "P", "PV"),
    "maximum": (),
    "block": (),
}
E = 2.718281828459045
_INPUT, _BF16 = Site("input"), Site("bf16")
_GRADIENTS = dict.fromkeys(("dQ", "dK", "dV"), _INPUT)

RECIPES: dict[str, Recipe] = {
    "exact": Recipe("exact", "exact", "softmax(scale q k^T) v in float64, no tiles", E, (1 << 30, 1 << 30)),
    "triton": Recipe(
        "triton",
        "machine",
        "flash attention as Triton 3.6 compiles it for sm_90: fp32 everywhere but P, O, dS and the gradients",
        2.0,
        (64, 64),
        P=_INPUT,
        O=_INPUT,
        PdV=_INPUT,
        dS=_INPUT,
        **_GRADIENTS,
    ),
    "paper": Recipe(
        "paper",
        "nearest",
        "the emulation of Qiu and Yao (arXiv 2510.04212): bf16 at every site",
        E,
        (512, 512),
        **dict.fromkeys(SITES, _BF16),
        **_GRADIENTS,
    ),
    "fa2": Recipe(
        "fa2",
        "nearest",
        "the rounding points of FlashAttention-2's CUDA kernels, not their bits: order and exponential are ideal",
        E,
        (128, 128),
        P=_INPUT,
        O=_INPUT,
        PdV=_INPUT,
        dS=_INPUT,
        **_GRADIENTS,
    ),
    "naive": Recipe(
        "naive",
        "nearest",
        "unfused attention under bf16 autocast: a matmul stores its result, softmax is fp32",
        E,
        (1 << 30, 1 << 30),
        QK=_INPUT,
        S=_INPUT,
        P=_INPUT,
        O=_INPUT,
        PdV=_INPUT,
        dP=_INPUT,
        dS=_INPUT,
        normalise="before",
        delta_from="P",
        **_GRADIENTS,
    ),
}


def recipe(given) -> Recipe:
    """A Recipe from its name or itself; ValueError for an unknown name."""
    return given if isinstance(given, Recipe) else choose("recipe", given, RECIPES)


def with_site(given, **sites) -> Recipe:
    """The recipe with other roundings: with_site("paper", O="fp32"), with_site("triton", P=Site("bf16", "rtz")).

    A site is a format's name, a Site, or None. Its rounding is a name, or lp.stochastic(...) at O, dQ, dK and dV.
    Raises ValueError for a site that the arithmetic does not have, for unknown formats and roundings, and for formats
    too wide for the site: fp64 everywhere, above 11 significant bits at P, PdV and dS of machine arithmetic.
    """
    base = recipe(given)
    for name, site in sites.items():
        if name not in ALL_SITES:
            raise unknown("site", name, ALL_SITES)
        if name in NOT_IN.get(base.arithmetic, ()):
            raise ValueError(f"recipe {base.name!r} has no site {name}: its {base.arithmetic} arithmetic fuses it.")
        if site is not None and not isinstance(site, str | Site):
            raise TypeError(f"{name}={site!r} must be a format's name, a Site, or None.")
        sites[name] = Site(site) if isinstance(site, str) else site
        if sites[name] is not None:
            _check_rounding(name, sites[name].rounding)
            if sites[name].fmt != "input":
                _check_width(base, name, sites[name].fmt)
    return _renamed(base, sites)


def _check_width(base: Recipe, name: str, fmt) -> None:
    """ValueError for a format that float32 does not hold, or that is no operand of a machine's dot where one takes it.

    A machine's unit multiplies fp16 x fp16 at most: significands of 11 bits, exactly.
    """
    row = lookup(fmt, name)
    if base.arithmetic == "machine" and name in OPERANDS and row.precision > 11:
        raise ValueError(
            f"{name}={fmt!r}: site {name} is an operand of a dot, and recipe {base.name!r} computes dots as a machine "
            "does; allowed: 'input' and formats of at most 11 significant bits (bf16, fp16, e4m3fn). "
            "A recipe of nearest arithmetic (paper, fa2, naive) takes fp32 here."
        )
    if row.precision > 24:
        raise ValueError(f"{name}={fmt!r}: site {name} holds float32; allowed: fp32 and formats that it holds.")


def _check_rounding(name: str, rounding) -> None:
    if not isinstance(rounding, Stochastic):
        choose("rounding", rounding, ROUNDINGS)
    elif name not in STOCHASTIC:
        raise ValueError(
            f"site {name} is rounded tile by tile, where an element has no one index to key its random word with; "
            f"stochastic sites are {', '.join(STOCHASTIC)}."
        )


def with_switch(given, **switches) -> Recipe:
    """The recipe with switches replaced: with_switch("paper", maximum=dynamic(beta=2), kept="fp32").

    The switches are l_from, normalise, kept, delta_from (names; kept also Sham(...)), maximum (PLAIN, dynamic(...)
    or lazy(...)) and block. Raises ValueError for others, TypeError for a maximum that is none.
    """
    base = recipe(given)
    for name, value in switches.items():
        if name not in SWITCHES:
            raise unknown("switch", name, SWITCHES)
        if name == "maximum":
            if not isinstance(value, Maximum):
                raise TypeError(f"maximum={value!r} must be recipes.PLAIN, recipes.dynamic(...) or recipes.lazy(...).")
            if value.offset and base.arithmetic != "machine":
                raise ValueError(f"offset={value.offset}: recipe {base.name!r} has no offset, only machine recipes do.")
        elif SWITCHES[name] and not (name == "kept" and isinstance(value, Sham)):
            choose(name, value, dict.fromkeys(SWITCHES[name]))
        if name == "normalise" and base.arithmetic != "nearest":
            raise ValueError(
                f"recipe {base.name!r} normalises once, after the dots: only `nearest` recipes can choose."
            )
    return _renamed(base, switches)


def _renamed(base: Recipe, changes: dict) -> Recipe:
    note = ", ".join(f"{name}={_spell(value)}" for name, value in changes.items())
    return replace(base, name=f"{base.name} with {note}", **changes)


def _spell(value) -> str:
    if isinstance(value, Site):
        return value.fmt if value.rounding == "rne" else f"{value.fmt}:{_spell(value.rounding)}"
    if isinstance(value, Stochastic):
        return f"stochastic {value.bits} bits"
    return "plain" if value == PLAIN else str(value)


__all__ = [
    "ALL_SITES", "BACKWARD_SITES", "PLAIN", "RECIPES", "SITES", "Maximum", "Recipe", "Sham", "Site", "dynamic",
    "lazy", "recipe", "with_site", "with_switch",
]  # fmt: skip

"""What a user may ask of the attention kernels: sizes, and the remedies. Needs neither torch nor Triton."""

from typing import NamedTuple

from lpsim.errors import choose
from lpsim.policies import Stochastic
from lpsim.recipes import PLAIN, Maximum, dynamic

HEAD_SIZES = (16, 32, 64, 128, 256)
KEYS_OF_A_TILE = (16, 32, 64, 128)
#: Where delta comes from: o; o in float32; o and what rounding took from it, as two 16-bit values; the weights and dp;
#: the weights and v, that is, o once more.
DELTA_FROM = ("O", "O32", "pair", "P", "PV")


class Remedy(NamedTuple):
    """Changes to the arithmetic that remove a bias of the output or of delta; each changes bits."""

    maximum: Maximum = PLAIN  #: lpsim.recipes.dynamic(beta, tolerance, guard=..., scope=...)
    delta_from: str = "O"  #: one of DELTA_FROM
    l_from: str = "exact"  #: "exact", or "rounded": l sums the weights as the dot with v takes them
    keys: int = 128  #: keys of a tile; no remedy, but it changes bits
    rounding: Stochastic | None = None  #: of o: None to nearest, or lp.stochastic(bits=1..16, seed=, stream=, step=)


REMEDIES: dict[str, Remedy] = {
    "dynamic": Remedy(dynamic(2.0)),  # as published: NaN where every weight of a row underflows
    "guarded": Remedy(dynamic(2.0, guard=True)),
    "guarded-every": Remedy(dynamic(2.0, guard=True, scope="every")),  # ties are not counted: no cost
    "guarded-row": Remedy(dynamic(2.0, guard=True, scope="row")),
    "wide-o": Remedy(delta_from="O32"),
    "pair-o": Remedy(delta_from="pair"),
    "delta-p": Remedy(delta_from="P"),
    "delta-pv": Remedy(delta_from="PV"),
    "rounded-l": Remedy(l_from="rounded"),
}


def remedy(given: str | Remedy | None) -> Remedy:
    """A Remedy from its name, itself or None, checked. Raises TypeError, ValueError and NotImplementedError."""
    if given is None:
        return Remedy()
    if isinstance(given, str):
        return choose("remedy", given, REMEDIES)
    if not isinstance(given, Remedy):
        raise TypeError(f"remedy={given!r} must be None, a name or a lpsim_triton.remedies.Remedy.")
    if given.keys not in KEYS_OF_A_TILE:
        raise ValueError(f"Remedy.keys={given.keys!r} must be one of {KEYS_OF_A_TILE}.")
    choose("Remedy.delta_from", given.delta_from, dict.fromkeys(DELTA_FROM))
    choose("Remedy.l_from", given.l_from, dict.fromkeys(("exact", "rounded")))
    if not isinstance(given.maximum, Maximum):
        raise TypeError(f"Remedy.maximum={given.maximum!r} must be lpsim.recipes.PLAIN or dynamic(...).")
    if given.maximum.threshold != 0.0 or given.maximum.offset != 0.0:
        raise NotImplementedError(f"{given.maximum}: the kernels have no lazy rescaling.")
    _check_rounding(given.rounding)
    return given


def _check_rounding(rounding) -> None:
    if rounding is None:
        return
    if not isinstance(rounding, Stochastic):
        raise TypeError(f"Remedy.rounding={rounding!r} must be None or lp.stochastic(bits=, seed=, stream=).")
    if rounding.words is not None or rounding.variant != "A" or rounding.bits > 16 or rounding.offset % 8:
        raise NotImplementedError(
            f"{rounding}: the kernels round with keyed words, variant A, at most 16 bits, and an offset that is a "
            "multiple of 8."
        )

"""What a user may ask of the attention kernels: sizes, and the remedies. Needs neither torch nor Triton."""

from typing import NamedTuple

from lpsim.recipes import PLAIN, Maximum, dynamic

HEAD_SIZES = (16, 32, 64, 128, 256)
KEYS_OF_A_TILE = (16, 32, 64, 128)


class Remedy(NamedTuple):
    """Changes to the arithmetic that remove a bias of the output or of delta; each changes bits."""

    maximum: Maximum = PLAIN  #: lpsim.recipes.dynamic(beta, tolerance, guard=...)
    delta_from: str = "O"  #: "O", or "O32": delta from the float32 output, kept for the backward pass
    l_from: str = "exact"  #: "exact", or "rounded": l sums the weights as the dot with v takes them
    keys: int = 128  #: keys of a tile; no remedy, but it changes bits


REMEDIES: dict[str, Remedy] = {
    "dynamic": Remedy(dynamic(2.0)),  # as published: NaN where every weight of a row underflows
    "guarded": Remedy(dynamic(2.0, guard=True)),
    "wide-o": Remedy(delta_from="O32"),
    "rounded-l": Remedy(l_from="rounded"),
}

"""Which products a dot adds in one block: found by who swamps whom.

c = +M, one product -M at k = i, one small u at k = j, zeros elsewhere. A u that is added while M is there is lost;
one that comes after M has gone is the result. So j is in a later block than i if the answer is u, and i is not
after j. In one block both are or neither: -M + M leaves u if alignment keeps it, else nothing, and i and j may
change places. No count, no rounding and no alignment needs to be known for that. Where the accumulator is added late,
a product at k = 0 holds +M instead, and k = 1 is asked about, its neighbour in the block.
"""

from typing import NamedTuple

import numpy as np

from .questions import Asker, power

SHORTEST = 64  # the k that the search begins with
DEEPEST = 64  # binades that u lies below M at most: more than any fraction that a unit keeps


class Blocks(NamedTuple):
    """How k is dealt to blocks; `DotUnit.lanes` and `k_width`."""

    lanes: int
    k_width: int

    @property
    def slab(self) -> int:
        """k that are dealt together."""
        return self.lanes * max(self.k_width // 2, 1)

    def places(self) -> list[int]:
        """The k of the last block of a slab: what it leaves is the result, no other block follows."""
        turns = max(self.k_width // 2, 1)
        return [lane // 2 * self.k_width + 2 * (turns - 1) + lane % 2 for lane in range(self.lanes)]

    def length(self, step: int) -> int:
        """The shortest dot of whole slabs whose length is a multiple of step."""
        return int(np.lcm(self.slab, step))


def find_blocks(asker: Asker, longest: int) -> Blocks:
    """Lanes and the width of a run. ValueError, with what was seen, if the answers fit no order of blocks."""
    length = max(SHORTEST, asker.step)
    while length <= longest:
        length = -(-length // asker.step) * asker.step
        mates = _mates(asker, length)
        if mates is not None and (found := _pattern(mates, length)) is not None:
            return found
        length *= 2
    raise ValueError(
        f"no block of products was found with k up to {longest}: either blocks are longer (raise longest), or the "
        "accumulator does not take part in them (a late accumulator, an exact sum, a chain that rounds each product)."
    )


def _mates(asker: Asker, length: int) -> list[int] | None:
    """The k of the block of k = 0, itself included; None if all k of this length look alike."""
    low = _depth(asker, length)
    if low is None:
        return None
    pivot = int(asker.late)
    others = np.arange(pivot + 1, length)
    after = _answers(asker, length, [(pivot, int(j)) for j in others], low)
    before = _answers(asker, length, [(int(j), pivot) for j in others], low)
    if (before & ~after).any():
        raise ValueError(f"k = {others[before & ~after][0]} is added before k = {pivot}: no dot unit does that.")
    return [*range(pivot + 1), *others[after == before].tolist()]


def _depth(asker: Asker, length: int) -> int | None:
    """How many binades below M a u must lie to be lost beside it: the first depth that tells the ends apart."""
    depths = [d for d in range(1, DEEPEST) if power(asker.numbers.top - d, asker.numbers) is not None]
    depths = [d for d in depths if asker.numbers.top - d >= asker.numbers.c_last]
    pivot = int(asker.late)
    for depth in depths:
        first, last = _answers(asker, length, [(pivot, length - 1), (length - 1, pivot)], depth)
        if first and not last:
            return depth
    return None


def _answers(asker: Asker, length: int, pairs: list[tuple[int, int]], depth: int) -> np.ndarray:
    """bool (len(pairs),): does u at j survive M that goes at i?"""
    n = asker.numbers
    large, small = power(n.top, n, -1.0), power(n.top - depth, n)
    assert large is not None, "the top is a product"
    assert small is not None, "the depths asked for are products"
    a, b = (np.zeros((len(pairs), length)) for _ in range(2))
    rows = np.arange(len(pairs))
    i, j = np.array(pairs).T
    (a[rows, i], b[rows, i]), (a[rows, j], b[rows, j]) = large, small
    if asker.late:
        a[:, 0], b[:, 0] = -large[0], large[1]
    codes = asker.ask(*asker.codes(a, b, np.full(len(pairs), 0.0 if asker.late else 2.0**n.top)))
    left = int(asker.codes(np.zeros(1), np.zeros(1), np.array([2.0 ** (n.top - depth)]))[2][0])
    if not np.isin(codes, (0, left)).all():
        strange = int(codes[~np.isin(codes, (0, left))][0])
        raise ValueError(
            f"2^{n.top} - 2^{n.top} + 2^{n.top - depth} gave the code {strange:#x}: no dot unit does that."
        )
    return codes == left


def _pattern(mates: list[int], length: int) -> Blocks | None:
    """The row that has these mates of k = 0; None if the length may have cut it short."""
    if mates == list(range(len(mates))):
        return Blocks(len(mates), 2) if len(mates) < length else None
    width = next(k for k in mates if k > 1)
    lanes = len(mates)
    expected = [lane // 2 * width + lane % 2 for lane in range(lanes)]
    if mates != expected or lanes % 2 or width % 2:
        raise ValueError(f"the block of k = 0 has k = {mates}: no width of a register run gives that.")
    return Blocks(lanes, width) if lanes // 2 * width < length else None

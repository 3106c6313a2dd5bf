"""Traces: what stood at which site, element by element, and where two computations part.

A Trace holds, for chosen rows, keys and features of one matrix, the values before and after each site. It is filled by
the functions that compute (`lp.attention.trace`); here it is read: `at` looks one element up, `explain` unfolds its
rounding down to the bits, `signed_error` sums up a site, `diff` names the first difference of two traces.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from . import explain as explaining
from .errors import unknown


class Key(NamedTuple):
    """Where an element of a site lies. -1 for an index that the site has not."""

    site: str
    tile: int  #: first key of the key tile; -1 for what is computed once
    row: int
    key: int
    feature: int


class Entry(NamedTuple):
    """A value before and after its site, and the site's rounding (both values are equal if it has none)."""

    before: float
    after: float
    fmt: str | None
    rounding: str | None


class Difference(NamedTuple):
    """The first element at which two traces part: inputs are equal up to there."""

    where: Key
    a: Entry | None
    b: Entry | None

    def __str__(self) -> str:
        site, tile, row, key, feature = self.where
        parts = [f"row {row}"] + [f"{n} {x}" for n, x in (("key", key), ("feature", feature), ("tile", tile)) if x >= 0]
        values = ["absent" if e is None else f"{e.after!r} (from {e.before!r})" for e in (self.a, self.b)]
        return f"{site} at {', '.join(parts)}: {values[0]} against {values[1]}"


@dataclass
class Trace:
    """Entries in the order in which they were computed."""

    name: str
    rows: tuple[int, ...]
    keys: tuple[int, ...]
    features: tuple[int, ...]
    entries: dict[Key, Entry] = field(default_factory=dict)

    def sites(self) -> list[str]:
        """The sites that were seen, in order."""
        return list(dict.fromkeys(key.site for key in self.entries))

    def at(self, site: str, row: int, key: int = -1, feature: int = -1, tile: int | None = None) -> Entry:
        """One entry; of a site that every key tile visits the last one, unless `tile` names its first key.

        KeyError if the element was not traced, ValueError for an unknown site.
        """
        if site not in self.sites():
            raise unknown("site", site, self.sites())
        found = [
            entry
            for where, entry in self.entries.items()
            if (where.site, where.row, where.key, where.feature) == (site, row, key, feature)
            and tile in (None, where.tile)
        ]
        if not found:
            raise KeyError(f"{site} of row {row}, key {key}, feature {feature} is not in this trace.")
        return found[-1]

    def explain(self, site: str, row: int, key: int = -1, feature: int = -1, tile: int | None = None):
        """How the entry was rounded: significands, kept and dropped bits, the rule, the signed error.

        ValueError for a site that rounds nothing, and for stochastic ones, whose words are keyed by the whole array.
        """
        entry = self.at(site, row, key, feature, tile)
        if entry.fmt is None or entry.rounding is None:
            raise ValueError(f"{site} rounds nothing in {self.name!r}: its value is {entry.after!r}.")
        return explaining.encode(entry.before, entry.fmt, rounding=entry.rounding)

    def signed_error(self) -> dict[str, float]:
        """Mean of after - before, by site."""
        errors: dict[str, list[float]] = {}
        for where, entry in self.entries.items():
            errors.setdefault(where.site, []).append(entry.after - entry.before)
        return {site: float(np.mean(found)) for site, found in errors.items()}

    def record(
        self, site: str, tile: int, axes: Sequence[str], index: Sequence[np.ndarray], before, after, how
    ) -> None:
        """Add entries. before, after: arrays whose axes are named (row, key, feature); index: what each axis counts."""
        fmt, rounding = how
        before, after = (np.asarray(x, np.float64) for x in (before, after))
        for place in np.ndindex(after.shape):
            named = {axis: int(i[p]) for axis, i, p in zip(axes, index, place, strict=True)}
            where = Key(site, tile, named.get("row", -1), named.get("key", -1), named.get("feature", -1))
            self.entries[where] = Entry(float(before[place]), float(after[place]), fmt, rounding)


def same(a: Entry | None, b: Entry | None) -> bool:
    """Equal after the site, in bits: -0 is not +0, and NaN equals NaN."""
    if a is None or b is None:
        return a is b
    x, y = np.float64(a.after), np.float64(b.after)
    return bool(x.tobytes() == y.tobytes() or (np.isnan(x) and np.isnan(y)))


def diff(a: Trace, b: Trace) -> Difference | None:
    """The first element, in the order of a, whose value after its site differs; None if there is none.

    Sites that only one of the two has (recipes with other arithmetic) are left out. ValueError if they trace other
    elements, TypeError for what is no Trace.
    """
    for name, trace in (("a", a), ("b", b)):
        if not isinstance(trace, Trace):
            raise TypeError(f"{name}={trace!r} must be a Trace, as lp.attention.trace returns it.")
    if (a.rows, a.keys, a.features) != (b.rows, b.keys, b.features):
        raise ValueError("The traces hold other rows, keys or features.")
    shared = set(a.sites()) & set(b.sites())
    for where, entry in a.entries.items():
        if where.site in shared and not same(entry, b.entries.get(where)):
            return Difference(where, entry, b.entries.get(where))
    return next((Difference(w, None, e) for w, e in b.entries.items() if w.site in shared and w not in a.entries), None)

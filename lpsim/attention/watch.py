"""Watching an attention call: chosen elements of every site, recorded as they are computed."""

import numpy as np

from ..formats import Format, fmt_name
from ..recipes import Site
from ..trace import Trace
from .sites import FP32, site_format
from .visible import Tile


class Watch:
    """Fills a Trace. Only the first matrix of a batch is watched."""

    def __init__(self, trace: Trace, input_fmt: Format):
        self.trace, self.fmt = trace, input_fmt

    def watched(self, call):
        """The call with only those query tiles that hold chosen rows: what is left to do if the results are known."""
        rows = self.trace.rows or (0,)
        return call._replace(only=slice(min(rows) // call.rows * call.rows, (max(rows) // call.rows + 1) * call.rows))

    def see(self, name: str, site: Site | None, axes: str, tile: Tile | None, before, after, each_tile=False) -> None:
        """One site's values before and after rounding: arrays (batch, ...) whose axes are r(ows), k(eys), f(eatures).

        tile: the rows and keys that the arrays hold, None for all. each_tile: every key tile visits the element again.
        """
        if np.shape(before) != np.shape(after):
            raise ValueError(f"{name}: {np.shape(before)} before rounding, {np.shape(after)} after.")
        wanted = {"r": self.trace.rows, "k": self.trace.keys, "f": self.trace.features}
        start = {"r": tile.rows.start if tile else 0, "k": tile.keys.start if tile else 0, "f": 0}
        names = {"r": "row", "k": "key", "f": "feature"}
        index = [
            np.array([x for x in wanted[axis] if start[axis] <= x < start[axis] + size], np.int64)
            for axis, size in zip(axes, after.shape[1:], strict=True)
        ]
        inside = np.ix_(*(i - start[axis] for axis, i in zip(axes, index, strict=True)))
        where = tile.keys.start if tile is not None and each_tile else -1
        self.trace.record(
            name, where, [names[axis] for axis in axes], index, before[0][inside], after[0][inside], self._how(site)
        )

    def _how(self, site: Site | None) -> tuple[str | None, str | None]:
        fmt = site_format(site, self.fmt)
        if site is None or fmt == FP32:
            return None, None
        return fmt_name(fmt), site.rounding if isinstance(site.rounding, str) else None

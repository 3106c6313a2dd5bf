"""Errors are part of the interface: what was given, what is allowed, and the near miss."""

import difflib
from collections.abc import Iterable


class NotModelled(NotImplementedError):
    """The hardware does this, but lpsim has no confirmed model of it: refused, never approximated."""


def unknown(argument: str, given: object, allowed: Iterable[str]) -> ValueError:
    """The ValueError for a name that is not in the list, with the closest ones."""
    names = [str(name) for name in allowed]
    near = difflib.get_close_matches(str(given).lower(), names, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return ValueError(f"{argument}={given!r} is not known.{hint} Allowed: {', '.join(names)}.")


def choose(argument: str, given: object, table: dict):
    """table[given], or a ValueError that names the argument and the near miss."""
    if isinstance(given, str) and given in table:
        return table[given]
    raise unknown(argument, given, table)

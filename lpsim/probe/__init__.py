"""What an unknown GPU's dots and reductions do, from outputs alone: `lpsim probe`.

units    the DotUnit of a dot
trees    the order in which a reduction adds
signs    direct answers, for a dot that is none too
known    rows that are equal, and a row as text to paste
"""

from .signs import Signs, find_signs
from .trees import find_tree
from .units import Found, find_unit

__all__ = ["Found", "Signs", "find_signs", "find_tree", "find_unit"]

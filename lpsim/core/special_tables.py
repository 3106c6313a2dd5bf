"""The MUFU coefficient tables, as the integer body reads them and as the 32-bit body reads them."""

import json

import numpy as np

from .._jit import PACKAGE

TABLES: dict[str, dict] = json.loads((PACKAGE / "data" / "mufu.json").read_text())["tables"]

#: sub-segments of one binade in the packed form, and the fraction bits left below them
PARTS, LOW_BITS = 256, 15
C1_BITS = 17


def columns(*names: str) -> np.ndarray:
    """int64 (segments of all names, 3): c0, c1, c2; several tables (parities) one after the other."""
    return np.concatenate([np.array([TABLES[n][c] for c in ("c0", "c1", "c2")], np.int64).T for n in names])


def packed(offset: int, *names: str) -> np.ndarray:
    """uint64 (256 * len(names),): c0' in the low half, c1 and |k2|*c2 << 17 in the high half, such that

        y = (c0' + (p >> s0)) >> 2   with   p = offset + bias + k1*c1*low + k2*c2*S,

    low being the 15 lowest bits of the fraction. Cutting a segment into parts of 2^15 makes p fit 32 bits:
    what c1 * xl has above them is a multiple of 2^s0 and moves into c0'. So does offset, which keeps p from
    going below zero. In every table, shift = s0 + 2.
    """
    words = []
    for name in names:
        table = TABLES[name]
        parts = PARTS // table["segments"]
        for part in range(PARTS):
            c0, c1, c2 = (table[c][part // parts] for c in ("c0", "c1", "c2"))
            moved = table["k1"] * c1 * (part % parts << LOW_BITS) - offset
            if moved % (1 << table["s0"]) or table["shift"] != table["s0"] + 2:
                raise ValueError(f"table {name} does not fit the packed form")
            c0 += moved >> table["s0"]
            words.append(c0 | (c1 | abs(table["k2"]) * c2 << C1_BITS) << 32)
    return np.array(words, dtype=np.uint64)

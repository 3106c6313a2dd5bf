"""Derive the coefficients of the MUFU interpolators from recorded results: lpsim/data/mufu.json.

    python scripts/derive_mufu_tables.py [--check]

The unit evaluates y = ((c0 << s0) + k1*c1*xl + k2*c2*S(mul*xl) + bias) >> shift in integers, with one
(c0, c1, c2) per segment (docs: Oberman and Siu, ARITH-17, 2005). Each recorded y therefore confines
c0 << s0 to an interval of length 2^shift once c1 and c2 are named. Per segment: a least-squares fit says
where to look; every (c1, c2) around it is tried by intersecting the intervals of all results; exactly one
triple must be left, and it must reproduce the whole recording.

The recordings (lpsim/data/h200/mufu_*.i8.xz) are the 2^23 results over one binade on an H200, as
first differences in int8, compressed. --check compares with the file instead of writing it.
"""

import argparse
import json
import lzma
import sys
import zlib
from pathlib import Path

import numpy as np

from lpsim._jit import PACKAGE, njit
from lpsim.core.special_squarer import squarer

RECORDINGS = PACKAGE / "data" / "h200"
TABLES = PACKAGE / "data" / "mufu.json"
REACH = 12  # how far from the fit c1 and c2 are tried; a survivor on the rim would be refused

#: What is known beforehand: the shape of the formula, and how the recorded bits map to y (y = bits - origin).
SHAPES = {
    "ex2_1_2": {"segments": 64, "s0": 13, "k1": 1, "k2": 1, "bias": 0x37E2, "shift": 15, "mul": 1},
    "rcp_1_2": {"segments": 128, "s0": 13, "k1": -1, "k2": 1, "bias": 0x67E7, "shift": 15, "mul": 2},
    "rsqrt_1_2": {"segments": 64, "s0": 14, "k1": -1, "k2": 4, "bias": 0xFFFF, "shift": 16, "mul": 1},
    "rsqrt_2_4": {"segments": 64, "s0": 14, "k1": -1, "k2": 4, "bias": 0xFFFF, "shift": 16, "mul": 1},
    "sqrt_1_2": {"segments": 64, "s0": 15, "k1": 1, "k2": -2, "bias": 0xFFFF, "shift": 17, "mul": 1},
    "sqrt_2_4": {"segments": 64, "s0": 15, "k1": 1, "k2": -2, "bias": 0xFFFF, "shift": 17, "mul": 1},
}
FIRST_BITS = {
    "ex2_1_2": 0x40000000,
    "rcp_1_2": 0x3F800000,
    "rsqrt_1_2": 0x3F800000,
    "rsqrt_2_4": 0x3F3504F2,
    "sqrt_1_2": 0x3F800000,
    "sqrt_2_4": 0x3FB504F3,
}
RESULT = {"ex2": "2^23 * 2^f", "rcp": "2^24 / x", "rsqrt": "2^24 / sqrt(v)", "sqrt": "2^23 * sqrt(v)"}
BITS_OF_2_23 = {"ex2": 0x40000000, "rcp": 0x3F000000, "rsqrt": 0x3F000000, "sqrt": 0x3F800000}
FRACTIONS = 1 << 23


def recorded(name: str) -> np.ndarray:
    """int32 (2^23,): the unit's results y for the fractions 0 .. 2^23 - 1 of one binade, as recorded."""
    steps = np.frombuffer(lzma.decompress((RECORDINGS / f"mufu_{name}.i8.xz").read_bytes()), np.int8)
    steps = np.concatenate([np.array([FIRST_BITS[name]], np.int32), steps.astype(np.int32)])
    origin = BITS_OF_2_23[name.split("_")[0]] - FRACTIONS
    return np.cumsum(steps, dtype=np.int32) - np.int32(origin)


def crc32(name: str, y: np.ndarray) -> str:
    """CRC-32 of y as little-endian int32; for ex2 of its fraction field, as in fingerprints elsewhere."""
    y = y & (FRACTIONS - 1) if name.startswith("ex2") else y
    return f"{zlib.crc32(y.astype('<i4').tobytes()):08x}"


@njit
def interval(xl, square, ceiling, first, c1, c2, shift):
    """(low, high): c0 << s0 must lie in it for every sample from `first` on; stops once it is empty.

    xl, square, ceiling: int64 (n,); ceiling = (y << shift) - bias; c1, c2 with their factors k1, k2.
    Samples are taken far apart first, so that a wrong guess is refused after a few of them.
    """
    low, high = -(1 << 62), 1 << 62
    n = len(xl)
    stride = 1 << 10
    for start in range(stride):
        for i in range(start, n, stride):
            if i >= first:
                rest = ceiling[i] - c1 * xl[i] - c2 * square[i]
                low = max(low, rest)
                high = min(high, rest + (1 << shift) - 1)
        if low > high:
            break
    return low, high


def solve_segment(y, xl, square, first, shape) -> tuple[int, int, int]:
    """The one (c0, c1, c2) that gives all results y of a segment. RuntimeError if none or several do."""
    shift, s0, k1, k2 = shape["shift"], shape["s0"], shape["k1"], shape["k2"]
    ceiling = (y.astype(np.int64) << shift) - shape["bias"]
    sample = slice(max(first, 1), None, 64)
    design = np.stack([np.ones_like(xl[sample]), k1 * xl[sample], k2 * square[sample]], axis=1)
    fit = np.linalg.lstsq(design.astype(np.float64), ceiling[sample] + 2.0 ** (shift - 1), rcond=None)[0]
    middle1, middle2 = round(fit[1]), round(fit[2])
    found = []
    for c2 in range(middle2 - REACH, middle2 + REACH + 1):
        for c1 in range(middle1 - REACH, middle1 + REACH + 1):
            low, high = interval(xl, square, ceiling, first, k1 * c1, k2 * c2, shift)
            for c0 in range(-(-low >> s0), (high >> s0) + 1):
                found.append((c0, c1, c2))
    inside = all(abs(c1 - middle1) < REACH and abs(c2 - middle2) < REACH for _, c1, c2 in found)
    if len(found) != 1 or not inside:
        raise RuntimeError(f"{len(found)} solutions in a segment, rim free: {inside}")
    return found[0]


def derive(name: str) -> dict:
    """One table: its shape, its coefficients (lists of ints, one per segment), the CRC-32 of its results."""
    shape = SHAPES[name]
    y = recorded(name)
    size = FRACTIONS // shape["segments"]
    xl = np.arange(size, dtype=np.int64)
    square = np.array([squarer(shape["mul"] * int(x)) for x in xl], dtype=np.int64)
    solved = []
    for segment in range(shape["segments"]):
        first = 1 if name == "rsqrt_1_2" and segment == 0 else 0  # the unit answers v = 1 apart, exactly
        solved.append(solve_segment(y[segment * size : (segment + 1) * size], xl, square, first, shape))
    c0, c1, c2 = (list(column) for column in zip(*solved, strict=True))
    table = {**shape, "xl_bits": size.bit_length() - 1, "result": RESULT[name.split("_")[0]]}
    return {**table, "crc32_of_int32_results": crc32(name, y), "c0": c0, "c1": c1, "c2": c2}


def document() -> str:
    """The text of mufu.json."""
    head = {
        "about": "Coefficients of the MUFU interpolators (NVIDIA sm_90), one (c0, c1, c2) per segment.",
        "source": "scripts/derive_mufu_tables.py, from H200 recordings lpsim/data/h200/mufu_*.i8.xz.",
        "evidence": "measured: all 2^23 results of each binade (but v = 1 of rsqrt, which is answered apart)",
        "formula": "y = ((c0 << s0) + k1*c1*xl + k2*c2*S(mul*xl) + bias) >> shift;"
        " segment = top bits of the 23-bit fraction, xl = the xl_bits below them; S: core/special_squarer.py",
        "tables": {name: derive(name) for name in SHAPES},
    }
    return json.dumps(head, indent=1).replace("\n    ", " ").replace("\n   ]", "]") + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Derive the MUFU tables from recorded results.")
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    parser.add_argument("--output", type=Path, default=TABLES)
    arguments = parser.parse_args()
    text = document()
    if arguments.check:
        same = arguments.output.read_text() == text
        print(f"{arguments.output}: {'as derived' if same else 'differs from what the recordings give'}")
        return 0 if same else 1
    arguments.output.write_text(text)
    print(f"wrote {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

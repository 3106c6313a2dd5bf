"""Derive the coefficients of MUFU.LG2, SIN, COS and TANH from recorded results: lpsim/data/mufu_normalised.json.

    python scripts/derive_mufu_normalised.py [--check]
    python scripts/derive_mufu_normalised.py --keep FOLDER      choose the samples from a recording's dumps

As in derive_mufu_tables.py the unit evaluates f = (c0 << s0) + k1*c1*xl + k2*c2*S(xl) + bias in integers, one
(c0, c1, c2) per segment; here f, in units of 2^-unit, becomes a float by truncation to 24 bits. A recorded y therefore
confines f to [y, y + ulp(y)), and each (c1, c2) around a least-squares fit is tried by intersecting what is left for
c0. Exactly one triple must be left in each segment.

lpsim/data/h200/mufu_samples.npz holds inputs (PTX operands) and results of an H200, as codes: of whole dumps
(record_elementwise.py dumps) those that refuse one of the wrong triples or bound c0. What the tables give is compared
with digests of all 2^32 inputs elsewhere (lpsim.digest).
"""

import argparse
import json
import lzma
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lpsim._jit import PACKAGE, njit
from lpsim.core.special_squarer import squarer

TABLES = PACKAGE / "data" / "mufu_normalised.json"
SAMPLES = PACKAGE / "data" / "h200" / "mufu_samples.npz"
REACH = 12  # how far from the fit c1 and c2 are tried; a survivor on the rim would be refused
XL_BITS = 17
#: parts of the binade [2^e, 2^(e + 1)) in tanh's table, e = -8 .. 2; below, tanh x = x, and above it is 1
TANH_PARTS = {-8: 1, -7: 1, -6: 1, -5: 2, -4: 2, -3: 4, -2: 4, -1: 4, 0: 8, 1: 16, 2: 8}
TWO_PI_INVERSE = np.uint32(0x3E22F983).view(np.float32)

#: What is known beforehand: the shape of the formula. grain: results are multiples of grain * 2^-unit.
SHAPES = {
    "lg2": {"segments": 64, "unit": 39, "grain": 8, "s0": 13, "k1": 2, "k2": -4, "bias": 0x868B},
    "sin": {"segments": 64, "unit": 37, "grain": 1, "s0": 12, "k1": 1, "k2": -1, "bias": 0},
    "tanh": {"segments": sum(TANH_PARTS.values()), "unit": 39, "grain": 1, "s0": 14, "k1": 1, "k2": -1, "bias": 0},
}
MEANING = {
    "lg2": "log2 of 1 + fraction / 2^23; segment and xl: the fraction's upper 6 and lower 17 bits",
    "sin": "sine over the first quarter of a revolution, cut into 2^23; segment and xl: upper 6 and lower 17 bits",
    "tanh": "tanh over binades [2^e, 2^(e+1)), e = -8 .. 2, cut into the `parts` of each;"
    " xl: the 17 bits of the fraction below the part's number",
}
#: files of record_elementwise.py dumps, and the float32 codes at which they begin
DUMPS = {
    "lg2": (("lg2", 126 << 23),),
    "sin": (("sin", 124 << 23),),
    "tanh": (("tanh0", 115 << 23), ("tanh8", 123 << 23), ("tanh12", 127 << 23)),
}


class Points(NamedTuple):
    """Where the formula is evaluated, and what is known of it: low <= f < low + width. int64 (n,) each."""

    segment: np.ndarray
    xl: np.ndarray
    low: np.ndarray
    width: np.ndarray


def times_rz(x: np.ndarray, factor: np.float32) -> np.ndarray:
    """float32 x * factor rounded toward zero, positive and normal: FMUL.RZ."""
    exact = x.astype(np.float64) * np.float64(factor)
    rounded = exact.astype(np.float32)
    return (rounded.view(np.uint32) - (rounded.astype(np.float64) > exact).astype(np.uint32)).view(np.float32)


def places(name: str, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(segment, xl) of each input, int64; segment -1 where the table is not read."""
    fraction, exponent = (codes & np.uint32(0x7FFFFF)).astype(np.int64), (codes >> 23).astype(np.int64) - 127
    if name == "lg2":
        return np.where((exponent == 0) & (fraction > 0), fraction >> XL_BITS, -1), fraction & 0x1FFFF
    if name == "sin":
        turns = times_rz(codes.view(np.float32), TWO_PI_INVERSE).astype(np.float64)
        fixed = np.floor(turns * 2.0**25).astype(np.int64) % (1 << 25)
        quarter = np.where(fixed >> 23 & 1 == 1, ~fixed, fixed) & 0x7FFFFF  # the second quarter runs backwards
        return quarter >> XL_BITS, quarter & 0x1FFFF
    segment, xl, first = np.full(codes.shape, -1), np.zeros(codes.shape, np.int64), 0
    for e, parts in TANH_PARTS.items():
        here = exponent == e
        place = fraction[here] >> (23 - XL_BITS - parts.bit_length() + 1)
        segment[here], xl[here] = first + (place >> XL_BITS), place & 0x1FFFF
        first += parts
    return segment, xl


def points(name: str, codes: np.ndarray, results: np.ndarray) -> Points:
    """What recorded results (float32 codes) of inputs (float32 codes) say."""
    shape = SHAPES[name]
    segment, xl = places(name, codes)
    used = segment >= 0
    y = np.abs(results[used].view(np.float32))
    unit = 2.0 ** shape["unit"]
    low = np.round(y.astype(np.float64) * unit).astype(np.int64)
    width = np.maximum(np.round(np.spacing(y).astype(np.float64) * unit).astype(np.int64), shape["grain"])
    return Points(segment[used], xl[used], low, width)


@njit
def squares(xl):
    """S(xl) of each; int64 (n,)."""
    out = np.empty_like(xl)
    for i in range(len(xl)):
        out[i] = squarer(xl[i])
    return out


@njit
def interval(xl, square, low, width, c1, c2):
    """(low, high, i, j): what c0 << s0 plus bias must lie in, inclusive, and the samples that say so."""
    below, above, i, j = -(1 << 62), 1 << 62, 0, 0
    for k in range(len(xl)):
        rest = low[k] - c1 * xl[k] - c2 * square[k]
        if rest > below:
            below, i = rest, k
        if rest + width[k] - 1 < above:
            above, j = rest + width[k] - 1, k
    return below, above, i, j


def solve_segment(at: Points, shape: dict) -> tuple[tuple[int, int, int], np.ndarray]:
    """The one (c0, c1, c2) of a segment, and the samples that refuse all others. RuntimeError unless one fits."""
    square = squares(at.xl)
    design = np.stack([np.ones_like(at.xl), shape["k1"] * at.xl, shape["k2"] * square], axis=1).astype(np.float64)
    fit = np.linalg.lstsq(design, at.low + at.width / 2, rcond=None)[0]
    middle1, middle2 = round(fit[1]), round(fit[2])
    found, deciding = [], set()
    for c2 in range(middle2 - REACH, middle2 + REACH + 1):
        for c1 in range(middle1 - REACH, middle1 + REACH + 1):
            low, high, i, j = interval(at.xl, square, at.low, at.width, shape["k1"] * c1, shape["k2"] * c2)
            deciding |= {i, j}
            low, high = low - shape["bias"], high - shape["bias"]
            found += [(c0, c1, c2) for c0 in range(-(-low >> shape["s0"]), (high >> shape["s0"]) + 1)]
    inside = all(abs(c1 - middle1) < REACH - 1 and abs(c2 - middle2) < REACH - 1 for _, c1, c2 in found)
    if len(found) != 1 or not inside:
        raise RuntimeError(f"{len(found)} solutions in a segment, rim free: {inside}")
    return found[0], np.array(sorted(deciding))


def derive(name: str) -> dict:
    """One table: its shape and its coefficients (lists of ints, one per segment)."""
    shape = SHAPES[name]
    with np.load(SAMPLES, allow_pickle=False) as stored:
        at = points(name, stored[f"{name}_x"], stored[f"{name}_y"])
    solved = []
    for segment in range(shape["segments"]):
        here = at.segment == segment
        solved.append(solve_segment(Points(*(column[here] for column in at)), shape)[0])
    c0, c1, c2 = (list(column) for column in zip(*solved, strict=True))
    parts = {"parts": list(TANH_PARTS.values())} if name == "tanh" else {}
    return {"meaning": MEANING[name], **shape, **parts, "xl_bits": XL_BITS, "c0": c0, "c1": c1, "c2": c2}


def dumped(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(inputs, results) of a recording's dumps, float32 codes."""
    inputs, results = [], []
    for file, first in DUMPS[name]:
        planes = np.frombuffer(lzma.decompress((folder / f"{file}.xz").read_bytes()), np.uint8).reshape(4, -1)
        steps = np.ascontiguousarray(planes.T).view(np.int32).ravel()
        results.append(np.cumsum(steps, dtype=np.int32).view(np.uint32))
        inputs.append(np.arange(first, first + steps.size, dtype=np.uint32))
    return np.concatenate(inputs), np.concatenate(results)


def keep(folder: Path) -> None:
    """Write SAMPLES: of the dumps in the folder, what decides; and every 2^11th beside it, to fit by."""
    kept = {}
    for name, shape in SHAPES.items():
        codes, results = dumped(folder, name)
        segments, _ = places(name, codes)
        chosen = []
        for segment in range(shape["segments"]):
            here = np.flatnonzero(segments == segment)
            _, deciding = solve_segment(points(name, codes[here], results[here]), shape)
            chosen += [here[deciding], here[:: max(here.size >> 6, 1)]]
        indices = np.unique(np.concatenate(chosen))
        kept |= {f"{name}_x": codes[indices], f"{name}_y": results[indices]}
    np.savez_compressed(SAMPLES, **kept)


def document() -> str:
    """The text of mufu_normalised.json."""
    head = {
        "about": "Coefficients of MUFU.LG2, SIN (COS) and TANH (NVIDIA sm_90), one (c0, c1, c2) per segment.",
        "source": "scripts/derive_mufu_normalised.py, from H200 recordings lpsim/data/h200/mufu_samples.npz.",
        "evidence": "measured: digests of all 2^32 inputs of lg2, sin, cos and tanh .approx",
        "formula": "f = ((c0 << s0) + k1*c1*xl + k2*c2*S(xl) + bias) * 2^-unit, truncated to 24 significant bits;"
        " S: core/special_squarer.py",
        "tables": {name: derive(name) for name in SHAPES},
    }
    return json.dumps(head, indent=1).replace("\n    ", " ").replace("\n   ]", "]") + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Derive tables of MUFU functions with normalised results.")
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    parser.add_argument("--keep", type=Path, help="choose samples from the dumps in this folder first")
    arguments = parser.parse_args()
    if arguments.keep:
        keep(arguments.keep)
    text = document()
    if arguments.check:
        same = TABLES.read_text() == text
        print(f"{TABLES}: {'as derived' if same else 'differs from what the recordings give'}")
        return 0 if same else 1
    TABLES.write_text(text)
    print(f"wrote {TABLES}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

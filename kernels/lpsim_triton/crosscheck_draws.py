"""Inputs for the live checks: float bit patterns from a counter, so that every one can be named and made again."""

import numpy as np

from lpsim import border
from lpsim.fills import values_of_codes
from lpsim.formats import Format, container_bits

u64 = np.uint64
SPECIALS = (0.0, 1.0, 2.0**-126, 2.0**-149, 2.0**127, 65504.0, 448.0, 57344.0, np.inf, np.nan, 1.5, 2.0**-1074)


def splitmix64(x: np.ndarray) -> np.ndarray:
    """The output function of SplitMix64 for states x, uint64 (n,). Source: Steele, Lea and Flood, OOPSLA 2014."""
    x = x + u64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> u64(30))) * u64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> u64(27))) * u64(0x94D049BB133111EB)
    return x ^ (x >> u64(31))


def words(seed: int, stream: int, n: int) -> np.ndarray:
    """uint64 (n,): word i of a stream is splitmix64(splitmix64(splitmix64(seed) + stream) + i)."""
    state = splitmix64(np.array([seed % (1 << 64)], u64)) + u64(stream)
    return splitmix64(splitmix64(state) + np.arange(n, dtype=u64))


def floats(seed: int, stream: int, n: int, dtype: np.dtype, near: Format | None = None) -> np.ndarray:
    """n values of a float dtype, a quarter of each kind: raw bits, all exponents alike; around the grid of `near`,
    its midpoints and its largest values, by up to two units in the last place; around 1; and special values."""
    w = words(seed, stream, n)
    bits = dtype.itemsize * 8
    integer = np.dtype(f"u{dtype.itemsize}")
    raw = (w >> u64(64 - bits)).astype(integer)
    small = ((w >> u64(8)) & u64(3)).astype(integer) - integer.type(2)  # -2 .. 1 units in the last place
    kind = w & u64(3)
    with np.errstate(all="ignore"):
        grid = _near_grid(w, dtype, near).view(integer) + small
        ones = _around_one(w).astype(dtype).view(integer)
        signs = integer.type(1) << integer.type(bits - 1)
        special = np.array(SPECIALS).astype(dtype).view(integer)[((w >> u64(12)) % u64(len(SPECIALS))).astype(int)]
    special = np.where(w >> u64(40) & u64(1) == 1, special | signs, special + small)
    return np.choose(kind.astype(int), [raw, grid, ones, special]).astype(integer).view(dtype)


def _around_one(w: np.ndarray) -> np.ndarray:
    magnitude = 1.0 + (w >> u64(12)).astype(np.float64) * 2.0**-52
    exponents = ((w >> u64(3)) & u64(15)).astype(np.float64) - 8
    return np.where(w >> u64(2) & u64(1) == 1, -1.0, 1.0) * magnitude * 2.0**exponents


def _near_grid(w: np.ndarray, dtype: np.dtype, near: Format | None) -> np.ndarray:
    """Codes of `near` or the middle between neighbours, as dtype."""
    if near is None or near.bits > 16:
        return _around_one(w).astype(dtype)
    table = values_of_codes(near).astype(np.float64)
    code = ((w >> u64(16)) % u64(table.size)).astype(int)
    value, after = table[code], table[np.minimum(code + 1, table.size - 1)]
    return np.where(w >> u64(10) & u64(1) == 1, (value + after) / 2, value).astype(dtype)


def codes(seed: int, stream: int, n: int, fmt: Format) -> np.ndarray:
    """n random codes of a format, containers as `lp.encode` gives them."""
    container = border.CODE_DTYPES[container_bits(fmt)]
    return ((words(seed, stream, n) >> u64(64 - fmt.bits)) << u64(fmt.pad)).astype(container)

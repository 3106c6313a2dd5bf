"""Inputs and comparisons that the array tests share."""

from fractions import Fraction

import numpy as np

import lpsim as lp
import oracle
import probes
from lpsim.formats import Format

NAMES = ("bf16", "fp16", "fp32", "tf32", "e4m3fn", "e5m2")


def values(fmt: Format, seed: int = 0, count: int = 12) -> np.ndarray:
    """float64: every kind of edge of a format, as far as binary64 has it, in both signs."""
    finite = [v for v in probes.values(fmt, seed, count) if not isinstance(v.magnitude, str)]
    kept = [(-1.0) ** v.sign * float(v.magnitude) for v in finite if Fraction(float(v.magnitude)) == v.magnitude]
    return np.array([*kept, np.inf, -np.inf, np.nan, -np.nan])


def numbers(x) -> list[oracle.Value]:
    """Oracle Values of floats, the sign of a NaN included."""
    return [oracle.Value(int(np.signbit(v)), oracle.number(float(v)).magnitude) for v in np.ravel(x)]


def on_grid(fmt: Format, count: int, seed: int) -> np.ndarray:
    """float64: edges of a format and random values of it."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 1 << fmt.bits, count) << fmt.pad
    edge = [0, 1, 2, 1 << (fmt.precision - 1), oracle.largest(fmt), oracle.largest(fmt) + 1]
    edge += [code | 1 << (fmt.bits - 1) for code in edge]
    codes[: len(edge)] = [code << fmt.pad for code in edge]
    dtype = f"uint{loops_container(fmt)}"
    return rng.permutation(np.asarray(lp.decode(codes.astype(dtype), fmt), np.float64))


def loops_container(fmt: Format) -> int:
    return next(width for width in (8, 16, 32) if fmt.bits + fmt.pad <= width)


def some_codes(fmt: Format) -> np.ndarray:
    """All codes of 8 bits; of 16, every 29th and the ends (tests of the codec take all)."""
    if fmt.bits == 8:
        return np.arange(256, dtype=np.uint8)
    return np.append(np.arange(0, 1 << 16, 29), (1 << 16) - 1).astype(np.uint16)


def same(found, wanted) -> None:
    """Equal dtype, shape and bits."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert found.tobytes() == wanted.tobytes()

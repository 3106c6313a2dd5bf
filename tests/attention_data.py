"""Inputs and comparisons that the attention tests share."""

import ml_dtypes
import numpy as np

from lpsim import data

FORWARD, BACKWARD = data.description("flash_forward"), data.description("flash_backward")
BF16 = ml_dtypes.bfloat16


stored = data.run


def differing(found, wanted) -> int:
    """Elements whose bits differ; +0 and -0 do."""
    found, wanted = np.ascontiguousarray(found), np.ascontiguousarray(wanted)
    assert found.shape == wanted.shape
    unsigned = np.dtype(f"u{wanted.dtype.itemsize}")
    return int(np.count_nonzero(found.view(unsigned) != wanted.view(unsigned)))


def values(codes, fmt: str) -> np.ndarray:
    return codes.view({"bf16": BF16, "fp16": np.float16}[fmt])


def normal(*shape, seed=0, dtype=BF16) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32).astype(dtype)


def same(a, b) -> None:
    """Two results with equal bits in every field."""
    for name in ("o", "m", "l", "lse"):
        assert differing(getattr(a, name), getattr(b, name)) == 0, name


# Inputs of every kind: (rng, shape of q, shape of k) -> q, k, v, do in float64, to be rounded to the format. -----


def _normal(rng, rows, keys):
    return [rng.normal(size=shape) for shape in (rows, keys, keys, rows)]


def _sharp(rng, rows, keys):
    q, *others = _normal(rng, rows, keys)
    return [q * 12, *others]


def _sink(rng, rows, keys):
    """The first key takes nearly all weight."""
    q, k, v, do = _normal(rng, rows, keys)
    q[..., 0], k[..., 0, 0] = 4.0, 24.0
    return [q, k, v, do]


def _ties(rng, rows, keys):
    """Three different keys, many times each; values of one sign."""
    q, k, v, do = _normal(rng, rows, keys)
    return [q, k[..., rng.integers(0, min(3, keys[-2]), keys[-2]), :], -np.abs(v), do]


def _scaled(power):
    def family(rng, rows, keys):
        return [x * 2.0**power for x in _normal(rng, rows, keys)]

    return family


def _wide(rng, rows, keys):
    """Exponents all over bf16, zeros among them."""
    return [
        rng.normal(size=shape) * 2.0 ** rng.integers(-120, 60, shape) * (rng.random(shape) < 0.8)
        for shape in (rows, keys, keys, rows)
    ]


def _special(rng, rows, keys):
    """A few NaN and infinities."""
    found = _normal(rng, rows, keys)
    for x in found:
        for value in (np.nan, np.inf, -np.inf):
            x[tuple(rng.integers(0, size) for size in x.shape)] = value
    return found


FAMILIES = {
    "normal": _normal,
    "sharp": _sharp,
    "sink": _sink,
    "ties": _ties,
    "huge": _scaled(62),
    "large": _scaled(12),
    "small": _scaled(-14),
    "tiny": _scaled(-64),
    "subnormal": _scaled(-130),
    "wide": _wide,
    "special": _special,
}


def family(kind: str, dtype, rows: tuple, keys: tuple | None = None, seed: int = 0) -> list[np.ndarray]:
    """q, k, v and do of one kind, rounded to dtype; rows: shape of q, keys: of k and v, None for the same."""
    rng = np.random.default_rng([seed, *kind.encode()])
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return [x.astype(np.float32).astype(dtype) for x in FAMILIES[kind](rng, rows, keys or rows)]

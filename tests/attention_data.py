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

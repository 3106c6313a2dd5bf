"""Shared by the tests of attention's two passes: inputs, both passes in one call, comparison of bits."""

import ml_dtypes
import numpy as np

import lpsim as lp

BF16 = ml_dtypes.bfloat16
GRADIENTS = ("dq", "dk", "dv", "delta")
OUTPUTS = ("o", "m", "l", "lse")


def differing(found, wanted) -> int:
    """Elements whose bits differ; +0 and -0 do."""
    found, wanted = np.ascontiguousarray(found), np.ascontiguousarray(wanted)
    assert found.shape == wanted.shape
    unsigned = np.dtype(f"u{wanted.dtype.itemsize}")
    return int(np.count_nonzero(found.view(unsigned) != wanted.view(unsigned)))


def same(a, b) -> None:
    """Two results of one pass with equal bits in every field."""
    for name in GRADIENTS if hasattr(a, "dq") else OUTPUTS:
        assert differing(getattr(a, name), getattr(b, name)) == 0, name


def normal(*shape, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32).astype(BF16)


def both(qkv, do, recipe, **options):
    """The forward result, and the gradients that follow from it."""
    found = lp.attention.forward(*qkv, recipe=recipe, **options)
    return found, lp.attention.backward(*qkv, found.kept, found.lse, do, recipe=recipe, **options)


def small(n: int = 16, keys: int = 16):
    """q, k, v and do, bf16, d = 16, a third of the keys tied; the second half of the rows has noise."""
    rng = np.random.default_rng(n + keys)
    scores = np.where(np.arange(keys) % 3 == 0, 5.0, 5.0 - rng.uniform(0.25, 6.0, keys))
    q, k = np.zeros((n, 16)), rng.normal(size=(keys, 16)) * 0.3
    q[:, 0], k[:, 0] = 4.0, scores
    q[n // 2 :, 1:] = rng.normal(size=(n - n // 2, 15))
    v, do = rng.normal(-1.5, 1.0, k.shape), rng.normal(size=q.shape)
    return [x.astype(np.float32).astype(BF16) for x in (q, k, v)], do.astype(np.float32).astype(BF16)


def tied(top: float, n: int = 16, d: int = 16):
    """q, k, v: every row has the two largest scores, top, in two tiles of 8 or in one of 16; the rest lie below."""
    rng = np.random.default_rng(5)
    scores = np.array(top - (rng.uniform(0.5, 6.0, n) if abs(top) < 1e4 else abs(top) * 0.25))
    scores = np.broadcast_to(scores, (n,)).copy()
    scores[[3, 5]] = top
    q, k = np.zeros((n, d), np.float32), np.zeros((n, d), np.float32)
    q[:, 0], k[:, 0] = 1.0, scores
    v = rng.normal(-2.5, 0.4, (n, d))
    return [x.astype(np.float32).astype(BF16) for x in (q, k, v)]

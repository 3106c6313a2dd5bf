"""Attention backward: arguments that are refused, torch tensors."""

import ml_dtypes
import numpy as np
import pytest

import lpsim as lp
from gradients import BF16, GRADIENTS, both, differing, normal, small
from lpsim import recipes


def test_what_is_refused():
    qkv, do = small()
    o, lse = lp.attention.forward(*qkv).o, lp.attention.forward(*qkv).lse

    def call(**changes):
        return lp.attention.backward(**{**dict(zip("qkv", qkv, strict=True)), "o": o, "lse": lse, "do": do, **changes})

    kept = recipes.with_switch("triton", kept="fp32")
    for error, words, changes in (
        (TypeError, "lse has dtype float64", {"lse": lse.astype(float)}),
        (ValueError, "lse has shape", {"lse": lse[:-1]}),
        (ValueError, "do has shape", {"do": do[:-1]}),
        (ValueError, "do has format fp16", {"do": do.astype(np.float16)}),
        (TypeError, "do has dtype float32", {"do": do.astype(np.float32)}),
        (ValueError, "o has shape", {"o": o[:-1]}),
        (TypeError, "o has dtype bfloat16", {"recipe": kept}),
        (ValueError, "is not a value of bf16", {"o": o.astype(np.float32) * np.float32(1.001)}),
        (ValueError, r"block=\(8, 16\): the backward pass .* query tiles of a multiple of 16", {"block": (8, 16)}),
        (ValueError, r"block=\(16, 8\): the backward pass .* key tiles of a multiple of 16", {"block": (16, 8)}),
        (ValueError, "lse has shape", {"recipe": "exact", "lse": lse[:-1]}),
    ):
        with pytest.raises(error, match=words):
            call(**changes)
    x = np.zeros((16, 16), ml_dtypes.float8_e4m3fn)
    with pytest.raises(lp.NotModelled, match="gradients of attention in e4m3fn"):
        call(q=x, k=x, v=x)


def test_torch_in_torch_out(torch):
    q, k, v, do = (torch.randn(2, 32, 16, dtype=torch.bfloat16) for _ in range(4))
    forward, found = both((q, k, v), do, "triton")
    arrays = [x.view(torch.int16).numpy().view(BF16) for x in (q, k, v, forward.o, do)]
    plain = lp.attention.backward(*arrays[:4], forward.lse.numpy(), arrays[4])
    assert found.dk.dtype == torch.bfloat16
    for name in GRADIENTS[:3]:
        assert differing(getattr(found, name).view(torch.int16).numpy(), getattr(plain, name).view(np.int16)) == 0


def test_infinity_reaches_only_the_tiles_that_see_it():
    """Keys whose tile begins below row 100 do not meet its infinite dO, as in the kernel, which starts there."""
    q, k, v, do = (normal(256, 16, seed=s) for s in (1, 2, 3, 4))
    clean = both((q, k, v), do, "triton", causal=True)[1]
    do[100, 3] = np.inf
    found = both((q, k, v), do, "triton", causal=True)[1]
    assert differing(found.dv[128:], clean.dv[128:]) == 0
    assert differing(found.dk[128:], clean.dk[128:]) == 0
    assert np.isnan(found.dv[:128, 3].astype(float)).any()
    rows = np.arange(256) != 100
    assert differing(found.dq[rows], clean.dq[rows]) == 0

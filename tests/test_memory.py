"""Memory: a call needs its output and a constant, whatever the size of the arrays."""

import tracemalloc

import numpy as np
import pytest

import lpsim as lp

NOISE = lp.stochastic(bits=16, seed=1, stream=2)
CALLS = {
    "encode": lambda x, n: lp.encode(x, "e4m3fn", out=np.empty(n, np.uint8)),
    "encode rtz": lambda x, n: lp.encode(x, "fp16", rounding="rtz", out=np.empty(n, np.uint16)),
    "encode flush": lambda x, n: lp.encode(x, "bf16", subnormals="flush", out=np.empty(n, np.uint16)),
    "encode stochastic": lambda x, n: lp.encode(x, "bf16", rounding=NOISE, out=np.empty(n, np.uint16)),
    "round": lambda x, n: lp.round(x, "bf16", out=np.empty(n, np.float32)),
    "decode": lambda x, n: lp.decode(x.view(np.uint32), "fp32", out=np.empty(n, np.float32)),
    "add": lambda x, n: lp.add(x, x, "bf16", out=np.empty(n, np.float32)),
    "fma": lambda x, n: lp.fma(x, x, x, "e5m2", out=np.empty(n, np.float32)),
}
#: work buffers of a few threads: codes, words and values of 2^14 elements each, and one call's small objects
CONSTANT = 4 << 20


def peak(call, n: int) -> int:
    """Bytes that a call on n elements had at most, its output not counted."""
    x = np.zeros(n, np.float32)
    tracemalloc.start()
    try:
        result = call(x, n)
        return tracemalloc.get_traced_memory()[1] - result.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", CALLS)
def test_memory_beyond_the_output_is_constant(name):
    call = CALLS[name]
    call(np.zeros(16, np.float32), 16)  # compiled, and its code kept
    small, large = peak(call, 1 << 18), peak(call, 1 << 21)
    assert large < CONSTANT
    assert large < small + (1 << 20)  # eight times as much work: no more than a buffer or two

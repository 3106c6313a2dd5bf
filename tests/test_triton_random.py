"""Triton's random functions: Philox against Random123's vector and a slow reading; uniform and normal values."""

import math

import numpy as np
import pytest

import lpsim as lp
from lpsim import triton_random

M0, M1, W0, W1, U32 = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85, 0xFFFFFFFF
H200 = lp.machine("h200")
SEEDS = [0, 1, -1, 2**31 - 1, -(2**31), 2**32 + 5, 2**63 - 1, -(2**63), 2**64 - 1]


def philox(counter: int, seed: int, rounds: int) -> list[int]:
    """Salmon et al. (SC 2011), word by word, in Python's integers."""
    c = [counter & U32, counter >> 32 & U32, 0, 0]
    k = [seed & U32, seed >> 32 & U32]
    for _ in range(rounds):
        p0, p1 = M0 * c[0], M1 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k[0], p1 & U32, p0 >> 32 ^ c[3] ^ k[1], p0 & U32]
        k = [k[0] + W0 & U32, k[1] + W1 & U32]
    return c


def test_the_slow_reading_gives_random123s_known_answers():
    assert [f"{w:08x}" for w in philox(0, 0, 10)] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rounds", [10, 7, 0])
def test_words(seed, rounds):
    offsets = np.array([[0, 1, 2**31], [2**32, -1, -(2**63)]], np.int64)
    found = H200.randint4x(seed, offsets, rounds)
    wanted = [philox(int(o) % (1 << 64), seed % (1 << 64), rounds) for o in offsets.flat]
    assert np.stack([w.reshape(-1) for w in found], 1).tolist() == wanted
    assert all(w.shape == (2, 3) and w.dtype == np.uint32 for w in found)


def test_offsets_of_32_bits_have_no_high_word():
    wanted = [philox(U32, 3, 10)[0]]
    assert H200.randint(3, np.array([-1], np.int32)).tolist() == wanted
    assert H200.randint(3, np.array([U32], np.uint32)).tolist() == wanted
    assert H200.randint(3, np.array([-1], np.int64)).tolist() == [philox(2**64 - 1, 3, 10)[0]]
    assert int(H200.randint(3, -1)) == wanted[0]
    assert int(H200.randint(3, 2**40)) == philox(2**40, 3, 10)[0]


def test_uniform_values():
    words = np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x40000000], np.uint32)
    found = triton_random.uniform(words)
    scale = float(np.array(0x2FFFFFFF, np.uint32).view(np.float32))
    signed = [0, 1, 2.0**31, 2.0**31, 0, 2.0**30]  # after the first rounding
    assert found.tolist() == [float(np.float32(x * scale)) for x in signed]
    assert 0 <= float(found.min()) <= float(found.max()) < 1
    offsets = np.arange(1000, dtype=np.int32)
    assert H200.rand(7, offsets).tobytes() == triton_random.uniform(H200.randint(7, offsets)).tobytes()
    four = zip(H200.rand4x(7, offsets), H200.randint4x(7, offsets), strict=True)
    assert all(u.tobytes() == triton_random.uniform(w).tobytes() for u, w in four)


def test_normal_values():
    offsets = np.arange(4000, dtype=np.int64)
    u1, u2, u3, u4 = (u.astype(np.float64) for u in H200.rand4x(5, offsets))
    found = H200.randn4x(5, offsets)
    for (a, b), (x, y) in (((u1, u2), found[:2]), ((u3, u4), found[2:])):
        radius, angle = np.sqrt(-2 * np.log(np.maximum(np.float32(1e-7), a))), 2 * math.pi * b
        # parts are good to 2^-21 of the radius, and the angle, up to 2 pi, is rounded to 2^-22
        assert np.abs(x - radius * np.cos(angle)).max() < radius.max() * 2.0**-20
        assert np.abs(y - radius * np.sin(angle)).max() < radius.max() * 2.0**-20
    assert H200.randn(5, offsets).tobytes() == found[0].tobytes()
    assert found[0].dtype == np.float32


def test_threads_change_nothing():
    offsets = np.arange(100_000, dtype=np.int64)
    before, found = lp.get_threads(), []
    try:
        for threads in (1, 3):
            lp.set_threads(threads)
            found.append(H200.randint(1, offsets))
    finally:
        lp.set_threads(before)
    assert np.array_equal(*found)
    assert [int(found[0][i]) for i in (0, 77_777)] == [philox(i, 1, 10)[0] for i in (0, 77_777)]


WRONG = {
    "seed type": ((1.5, 0), TypeError, "seed=1.5 must be an int"),
    "seed range": ((2**64, 0), ValueError, "below 2\\^64"),
    "offset type": ((0, np.array([1.0])), TypeError, "allowed: int32, uint32, int64"),
    "offset range": ((0, 2**63), ValueError, "must fit 64 bits"),
    "rounds": ((0, 0, -1), ValueError, "n_rounds=-1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(name):
    arguments, error, words = WRONG[name]
    with pytest.raises(error, match=words):
        H200.rand(*arguments)


def test_other_machines_are_refused():
    with pytest.raises(lp.NotModelled, match="no modelled rand"):
        lp.machine("a100").rand(0, 0)

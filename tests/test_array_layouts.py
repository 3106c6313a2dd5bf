"""Array functions: shapes, layouts, out=, keyed noise, and the dtype of results."""

import numpy as np
import pytest

import lpsim as lp
import oracle
from array_data import numbers, same
from lpsim import threads
from lpsim.core.philox import random_word
from lpsim.fills import BUFFER as GRAIN
from lpsim.formats import FORMATS


def test_zero_dimensions_give_numpy_scalars():
    assert type(lp.round(3.14159, "bf16")) is np.float64
    assert type(lp.round(np.float32(3.14159), "bf16")) is np.float32
    assert type(lp.round(np.array(3.14159, np.float32), "bf16")) is np.float32
    assert type(lp.encode(449.0, "e4m3fn")) is np.uint8
    assert type(lp.decode(0x3F80, "bf16")) is np.float32
    assert lp.add(-2.40625, -2.296875, "bf16") == -4.6875
    assert lp.decode(np.uint16(0x3F80), "bf16") == 1.0


def test_empty_arrays_and_lists():
    assert lp.encode([], "bf16").shape == (0,)
    assert lp.round(np.empty((0, 3), np.float32), "bf16").shape == (0, 3)
    assert lp.add(np.empty((2, 0)), np.ones((2, 1)), "bf16").shape == (2, 0)
    assert lp.encode(np.empty(0, np.int32), "bf16").dtype == np.uint16
    noise = lp.stochastic(bits=8, seed=1, stream=1)
    assert lp.encode(np.empty((3, 0)), "bf16", rounding=noise).shape == (3, 0)


def test_broadcasting():
    rng = np.random.default_rng(4)
    a, b, c = rng.normal(size=(5, 1, 3)), rng.normal(size=(4, 1)), rng.normal(size=3)
    full = np.broadcast_arrays(a, b, c)
    same(lp.fma(a, b, c, "bf16"), lp.fma(*full, "bf16"))
    same(lp.add(a, 1.5, "bf16"), lp.add(a, np.full(a.shape, 1.5), "bf16"))


@pytest.mark.parametrize(
    "layout", ["strided", "reversed", "transposed", "swapped", "fortran", "broadcast", "unaligned"]
)
def test_layouts(layout):
    base = np.random.default_rng(5).normal(size=(6, 8)).astype(np.float32)
    raw = np.zeros(base.nbytes + 1, np.uint8)
    raw[1:] = np.frombuffer(base.tobytes(), np.uint8)
    x = {
        "strided": np.repeat(base, 2, axis=1)[:, ::2],
        "reversed": base[::-1, ::-1][::-1, ::-1],
        "transposed": base.T.copy().T,
        "swapped": base.astype(">f4"),
        "fortran": np.asfortranarray(base),
        "broadcast": np.broadcast_to(base[0], (6, 8)),
        "unaligned": raw[1:].view(np.float32).reshape(6, 8),
    }[layout]
    plain = np.array(x, np.float32, order="C")
    same(lp.encode(x, "bf16"), lp.encode(plain, "bf16"))
    same(lp.round(x, "bf16"), lp.round(plain, "bf16"))
    same(lp.mul(x, x, "bf16"), lp.mul(plain, plain, "bf16"))
    noise = lp.stochastic(bits=8, seed=1, stream=1)  # the index is the position in C order, whatever the layout
    same(lp.encode(x, "bf16", rounding=noise), lp.encode(plain, "bf16", rounding=noise))
    codes = lp.encode(x, "bf16")
    same(lp.decode(codes.astype(">u2"), "bf16"), lp.decode(codes, "bf16"))


# out= ------------------------------------------------------------------------------------------------


def test_out_is_filled_and_returned():
    x = np.random.default_rng(6).normal(size=(3, 50)).astype(np.float32)
    for out in (np.empty((3, 50), np.uint16), np.empty((3, 100), np.uint16)[:, ::2], np.empty((50, 3), np.uint16).T):
        assert lp.encode(x, "bf16", out=out) is out
        assert (out == lp.encode(x, "bf16")).all()
    zero = np.empty((), np.float64)
    assert lp.round(1.1, "bf16", out=zero) is zero
    assert zero == lp.round(1.1, "bf16")
    decoded = np.empty((3, 50), np.float32)
    lp.decode(lp.encode(x, "bf16"), "bf16", out=decoded)
    same(decoded, lp.round(x, "bf16"))
    converted = np.empty((3, 50), np.uint8)
    assert lp.convert(lp.encode(x, "bf16"), "bf16", "e5m2", out=converted) is converted


def test_out_may_be_the_input():
    x = np.random.default_rng(7).normal(size=3 * GRAIN).astype(np.float32)
    wanted = lp.round(x, "bf16")
    lp.round(x, "bf16", out=x)
    same(x, wanted)
    a, b = x[: 2 * GRAIN].copy(), x[-2 * GRAIN :].copy()
    wanted = lp.add(a, b, "bf16")
    same(lp.add(a, b, "bf16", out=a), wanted)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("kind", ["shifted", "reversed", "transposed"])
def test_out_may_overlap_the_input(kind, n):
    """As in NumPy, the result is as if the input had been copied first."""
    before = threads.get_threads()
    base = np.random.default_rng(8).normal(size=4 * GRAIN).astype(np.float32)
    views = {
        "shifted": lambda m: (m[:-1], m[1:]),
        "reversed": lambda m: (m, m[::-1]),
        "transposed": lambda m: (m.reshape(256, 256), m.reshape(256, 256).T),
    }[kind]
    wanted = lp.round(views(base)[0].copy(), "bf16")
    lp.set_threads(n)
    try:
        x, out = views(base)
        lp.round(x, "bf16", out=out)
    finally:
        lp.set_threads(before)
    same(np.array(out), wanted)


# Keyed noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["A", "B", "C"])
@pytest.mark.parametrize("bits", [1, 8, 16, 17, 32])
def test_keyed_words_are_the_explicit_words_against_the_oracle(bits, variant):
    x = np.random.default_rng(9).normal(size=60)
    seed, offset = 2**63 + 12345, 1000
    words = [int(random_word(np.uint64(offset + i), np.uint64(seed), 3, 4, bits)) for i in range(x.size)]
    keyed = lp.stochastic(bits=bits, seed=seed, stream=3, step=4, offset=offset, variant=variant)
    given = lp.stochastic(bits=bits, words=words, variant=variant)
    found = lp.encode(x, "bf16", rounding=keyed)
    same(found, lp.encode(x, "bf16", rounding=given))
    wanted = [
        oracle.encode(value, FORMATS["bf16"], variant, bits=bits, word=word)
        for value, word in zip(numbers(x), words, strict=True)
    ]
    assert found.tolist() == wanted
    assert (found != lp.encode(x, "bf16")).any()


@pytest.mark.parametrize("bits", [8, 32])
def test_noise_does_not_depend_on_pieces_offset_or_threads(bits):
    before = threads.get_threads()
    x = np.random.default_rng(10).normal(size=2 * GRAIN + 5)
    noise = {"bits": bits, "seed": -5, "stream": 2, "step": 9}
    whole = lp.encode(x, "bf16", rounding=lp.stochastic(**noise))
    try:
        for n in (1, 2, 3):
            lp.set_threads(n)
            same(lp.encode(x, "bf16", rounding=lp.stochastic(**noise)), whole)
    finally:
        lp.set_threads(before)
    for cut in (1, 7, GRAIN, GRAIN + 3):
        tail = lp.encode(x[cut:], "bf16", rounding=lp.stochastic(**noise, offset=cut))
        same(tail, whole[cut:])
    for other in ({"seed": 1}, {"stream": 3}, {"step": 8}):
        assert (lp.encode(x, "bf16", rounding=lp.stochastic(**noise | other)) != whole).any()


def test_noise_of_operations_follows_the_result():
    """A broadcast operand: the index is that of the result's element."""
    a, b = np.full((40, 1), 1.0), np.random.default_rng(11).normal(size=50)
    noise = lp.stochastic(bits=8, seed=1, stream=1)
    same(lp.add(a, b, "bf16", rounding=noise), lp.add(*np.broadcast_arrays(a, b), "bf16", rounding=noise))
    rows = lp.add(a, b, "bf16", rounding=noise)
    assert len(np.unique(rows, axis=0)) == 40
    words = np.arange(2000).reshape(40, 50) % 256
    given = lp.add(a, b, "bf16", rounding=lp.stochastic(bits=8, words=words))
    swapped = lp.add(a, b[::-1], "bf16", rounding=lp.stochastic(bits=8, words=words[:, ::-1]))
    same(given, swapped[:, ::-1])


# Policies reach the core -----------------------------------------------------------------------------


def test_subnormals():
    least = np.float32(2.0**-126)
    x = np.array([least / 2, -least / 2, least, 2.0**-133], np.float32)
    assert lp.round(x, "bf16", subnormals="flush_in").tolist() == [0.0, -0.0, least, 0.0]
    same(lp.round(x, "bf16", subnormals="flush"), np.array([0.0, -0.0, least, 0.0], np.float32))
    same(lp.round(x, "bf16"), x)
    tiny = np.array([2.0**-130])
    assert lp.mul(tiny, np.array([2.0**10]), "bf16", subnormals="flush_in")[0] == 0.0
    assert lp.mul(np.array([2.0**-100]), np.array([2.0**-30]), "bf16", subnormals="flush_out")[0] == 0.0
    assert lp.mul(np.array([2.0**-100]), np.array([2.0**-30]), "bf16")[0] == 2.0**-130


def test_nan_policies():
    payload = np.array([0x7FA12345, 0xFF812345], np.uint32).view(np.float32)
    assert lp.encode(payload, "bf16").tolist() == [0x7FC0, 0xFFC0]
    assert lp.encode(payload, "bf16", nan="propagate").tolist() == [0x7FE1, 0xFFC1]
    assert lp.encode(payload, "bf16", nan="nvidia").tolist() == [0x7FFF, 0x7FFF]
    assert lp.encode(payload, "e4m3fn", nan="nvidia").tolist() == [0x7F, 0x7F]


def test_dtype_of_results():
    import ml_dtypes

    bf16 = np.ones(2, ml_dtypes.bfloat16)
    half, single, double = (np.ones(2, dtype) for dtype in (np.float16, np.float32, np.float64))
    assert lp.add(bf16, bf16, "bf16").dtype == ml_dtypes.bfloat16
    assert lp.add(half, half, "fp16").dtype == np.float16
    assert lp.add(half, half, "bf16").dtype == np.float32
    assert lp.add(bf16, half, "e5m2").dtype == np.float32
    assert lp.add(half, single, "bf16").dtype == np.float32
    assert lp.add(single, double, "bf16").dtype == np.float64
    assert lp.round(bf16, ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16
    assert lp.encode(single, np.float16).dtype == np.uint16
    assert lp.encode(single, "tf32").dtype == np.uint32

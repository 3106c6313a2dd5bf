"""Digests of recordings: chunks full of edges on every run, all 2^32 inputs on demand."""

import numpy as np
import pytest

from lpsim import digest, threads
from lpsim._jit import njit
from lpsim.digest import PLAN

#: loop -> a recorded name, each loop once: what several names share is compared once
DISTINCT = {operation.loop: name for name, operation in reversed(PLAN.items())}
UNARY = [name for name in DISTINCT.values() if PLAN[name].dtype == np.float32]
CASTS = [name for name in DISTINCT.values() if PLAN[name].dtype != np.float32]

#: subnormals of either sign; around 1, 4, 2^7 (where ex2 ends); 2^125 to Inf, NaN; some in between
CHUNKS = [0x00, 0x3F, 0x40, 0x42, 0x43, 0x7E, 0x7F, 0x80, 0xBF, 0xC2, 0xC3, 0xFF, 0x1A, 0x95]
#: zero and float32's subnormals; where casts underflow, around 1, where they overflow; NaN of either sign
CAST_CHUNKS = [0x00, 0x33, 0x37, 0x3B, 0x3F, 0x43, 0x47, 0x7F, 0x80, 0xC3, 0xC7, 0xFF]


@pytest.mark.parametrize("name", UNARY)
def test_special_function_equals_its_recording_in_chunks_with_edges(name):
    assert digest.mismatches(name, chunks=CHUNKS) == []


def test_names_that_share_a_loop_have_equal_recordings():
    recorded = digest.recorded()
    for name, operation in PLAN.items():
        assert np.array_equal(recorded[name], recorded[DISTINCT[operation.loop]]), name


@pytest.mark.parametrize("name", CASTS)
def test_cast_equals_its_recording_in_chunks_with_edges(name):
    assert digest.mismatches(name, chunks=CAST_CHUNKS) == []


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASTS)
def test_cast_equals_its_recording_for_all_inputs(name):
    assert digest.mismatches(name) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", UNARY)
def test_special_function_equals_its_recording_for_all_inputs(name, record_property):
    """A special function over all float32, against its recording on an H200."""
    record_property("inputs", 1 << 32)
    assert digest.mismatches(name) == []


@njit
def copy(x, out):
    for i in range(len(x)):
        out[i] = x[i]


def splitmix64(j: int) -> int:
    """In Python integers, as the recording defines it."""
    mask = (1 << 64) - 1
    x = (j + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def test_weights_and_sum_are_those_of_the_definition():
    first, n = (1 << 24) - 100, 100
    weights, x = np.empty(n, np.uint64), np.empty(n, np.float32)
    digest.fill_weights(first, weights)
    assert [int(w) for w in weights] == [splitmix64(first + i) | 1 for i in range(n)]
    digest.fill_inputs((0xFF << 24) + first, x)
    codes = x.view(np.uint32)
    assert [int(c) for c in codes] == [(0xFF << 24) + first + i for i in range(n)]
    expected = sum((int(c) + 1) * int(w) for c, w in zip(codes, weights, strict=True)) % (1 << 64)
    assert int(digest.weighted_sum(codes, weights)) % (1 << 64) == expected


def test_one_wrong_bit_in_one_result_is_seen():
    right = PLAN["ptx:sqrt.rn.f32"]

    def wrong(x, out):
        right.loop(x, out)
        codes = x.view(np.uint32)
        if codes[0] <= 0x41234567 <= codes[-1]:
            out.view(np.uint32)[0x41234567 - int(codes[0])] ^= 1

    operation = digest.Operation(wrong, np.float32)
    assert digest.mismatches("ptx:sqrt.rn.f32", operation, [0x40, 0x41, 0x42]) == [0x41]


def test_digest_does_not_depend_on_the_number_of_threads():
    before = threads.get_threads()
    try:
        results = []
        for n in (1, 3):
            threads.set_threads(n)
            results.append(digest.digests(copy, chunks=[3, 0xFF]).tolist())
    finally:
        threads.set_threads(before)
    assert results[0] == results[1]


def test_every_recording_has_a_model_and_every_model_a_recording():
    assert set(PLAN) == set(digest.recorded())


def test_a_chunk_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="chunks"):
        digest.digests(copy, chunks=[256])

"""Philox against published answers and a second implementation in plain Python; keyed words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpsim.core.philox import philox4x32, random_word

MASK = 0xFFFFFFFF


def reference(counter, key) -> list[int]:
    """Philox4x32-10 on Python integers. Source: Salmon et al., SC 2011, section 3.3."""
    c, k = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c[0], 1 << 32)
        high1, low1 = divmod(0xCD9E8D57 * c[2], 1 << 32)
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def compiled(counter, key) -> list[int]:
    return [int(word) for word in philox4x32(*(np.uint64(x) for x in (*counter, *key)))]


def word_of(index: int, seed: int, stream: int, step: int, bits: int) -> int:
    """The random integer of an element, from the text: 8 half-words or 4 words a block, its top bits."""
    per_block = 8 if bits <= 16 else 4
    block, place = divmod(index, per_block)
    words = reference((block & MASK, block >> 32, stream, step), (seed & MASK, seed >> 32))
    if bits <= 16:
        halves = [half for word in words for half in (word & 0xFFFF, word >> 16)]
        return halves[place] >> (16 - bits)
    return words[place] >> (32 - bits)


# Source: Random123 1.14, tests/kat_vectors, philox4x32 10.
KNOWN = [
    ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ([MASK] * 4, [MASK] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
@pytest.mark.parametrize("function", [compiled, reference])
def test_known_answers(function, counter, key, answer):
    assert " ".join(f"{word:08x}" for word in function(counter, key)) == answer


@given(st.lists(st.integers(0, MASK), min_size=6, max_size=6))
def test_any_counter_and_key(x):
    assert compiled(x[:4], x[4:]) == reference(x[:4], x[4:])


INDICES = [*range(20), 2**32 - 1, 2**32, 2**34 + 5, 2**35 - 1, 2**35 + 3, 2**62 - 1]
KEYS = [(0, 0, 0), (1, 0, 0), (2**64 - 1, 7, 3), (0xDEADBEEF << 32, 2**32 - 1, 2**32 - 1)]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("bits", [1, 2, 8, 15, 16, 17, 31, 32])
def test_word_of_an_element(key, bits):
    seed, stream, step = key
    found = [int(random_word(np.uint64(i), np.uint64(seed), stream, step, bits)) for i in INDICES]
    assert found == [word_of(i, seed, stream, step, bits) for i in INDICES]
    assert all(0 <= word < 2**bits for word in found)


@pytest.mark.parametrize(("bits", "most"), [(16, 4), (32, 0)])
def test_streams_steps_and_seeds_are_apart(bits, most):
    """4096 elements agree as often as chance allows: more than `most` has a probability below 1e-5."""
    base = (5, 1, 2)
    elements = [np.uint64(i) for i in range(4096)]
    words = {}
    for key in (base, (6, 1, 2), (5, 2, 2), (5, 1, 3), (5 << 32, 1, 2), (5, 2, 1)):
        words[key] = np.array([random_word(i, np.uint64(key[0]), key[1], key[2], bits) for i in elements])
    for key, other in words.items():
        if key != base:
            assert np.count_nonzero(other == words[base]) <= most, key

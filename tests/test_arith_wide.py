"""Operations on binary64 operands, rounded once to narrow formats: results so close to a midpoint that 61 bits
look exact, and random words exactly at the turn."""

import struct
from fractions import Fraction

import numpy as np
import pytest

import oracle
from loops import MODES, make_policy
from lpsim.core.codec import unpack_f64
from operations import OPERATIONS
from oracle import number
from rows import ROWS, WIDE


def run(name: str, operands, fmt, policy, word=0):
    numbers = [unpack_f64(struct.unpack("<q", struct.pack("<d", x))[0]) for x in operands]
    return OPERATIONS[name].core(*numbers, fmt, policy, word).code


def near_midpoint_quotients(seed: int, count: int) -> list[tuple[float, float]]:
    """a, b of 53 bits, a / b = m 2^-25 plus or minus about 2^-77; m, odd and of 25 bits, is a midpoint of fp32."""
    random = np.random.default_rng(seed)
    pairs = []
    while len(pairs) < count:
        m = int(random.integers(2**24, 2**25)) | 1
        side = 1 - 2 * (len(pairs) % 2)
        b = -side * pow(m, -1, 2**25) % 2**25 + 2**25 * int(random.integers(2**26, 2**28))
        a = (m * b + side) >> 25
        if a < 2**53 and b < 2**53:
            pairs.append((float(a), float(b)))
    return pairs


def operands_of(name: str, seed: int) -> list[tuple[float, ...]]:
    """Rows of float64: near-exact quotients, far-apart sums, full products, and random ones."""
    random = np.random.default_rng(seed)
    arity = OPERATIONS[name].arity
    rows = [tuple((random.normal(size=arity) * 2.0 ** random.integers(-70, 70, arity)).tolist()) for _ in range(60)]
    if name == "div":
        rows += near_midpoint_quotients(seed, 60)
    if name in ("add", "sub"):  # a midpoint or a value, and something far below it, either sign
        rows += [(1 + k * 2.0**-24, s * 2.0**-e) for k in (0, 1, 2) for s in (-1, 1) for e in (60, 62, 90, 900)]
    if name == "mul":  # (2^k + 1)(2^j - 1): long runs of one bit
        rows += [(2.0**k + 1, (2.0**j - 1) * s) for k in (24, 40, 52) for j in (25, 52, 53) for s in (-1, 1)]
    if name == "fma":  # a product that the addend cancels to its last bits, or touches far below
        x = 1 + 2.0**-30
        rows += [(x, x, -(1 + 2.0**-29)), (x, -x, 1 + 2.0**-29), (x, x, 2.0**-200), (x, x, -(2.0**-200))]
        rows += [(1 + 2.0**-24, 1.0, s * 2.0**-e) for s in (-1, 1) for e in (61, 120, 130, 600)]
    if name == "sqrt":
        rows = [(abs(x),) for (x,) in rows] + [((1 + 2.0**-24) ** 2 + s * 2.0**-52,) for s in (-1, 0, 1)]
    return rows


@pytest.mark.parametrize("target", ["fp32", "bf16", "e5m2"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_float64_operands_round_once(name, target):
    fmt = {**ROWS, **WIDE}[target]
    for row in operands_of(name, seed=len(name + target)):
        values = [number(x) for x in row]
        for mode in MODES:
            exact = OPERATIONS[name].oracle(*values, mode)
            assert run(name, row, fmt, make_policy(mode)) == oracle.encode(exact, fmt, mode), (row, mode)


@pytest.mark.parametrize(("variant", "bits"), [("A", 16), ("A", 32), ("B", 32), ("C", 16), ("C", 32)])
@pytest.mark.parametrize("name", OPERATIONS)
def test_words_at_the_turn(name, variant, bits):
    """The first word that rounds away, and the one before it: the finest question that can be asked."""
    fmt, asked = WIDE["fp32"], 0
    policy = make_policy(variant, bits=bits)
    for row in operands_of(name, seed=bits):
        row = tuple(float(np.float32(x)) for x in row) if name == "sqrt" else row
        exact = OPERATIONS[name].oracle(*(number(x) for x in row))
        if isinstance(exact.magnitude, str):
            continue
        _, nu = oracle.neighbours(exact.magnitude, fmt)
        turn = 2**bits - int(nu * 2**bits)
        for word in (w for w in (turn - 2, turn - 1, turn) if 0 <= w < 2**bits):
            asked += 1
            wanted = oracle.encode(exact, fmt, variant, bits=bits, word=word)
            assert run(name, row, fmt, policy, word) == wanted, (row, word)
    assert asked > 60


def test_a_nan_payload_survives_a_tiny_partner():
    """The payload of a NaN operand must not be shifted by the exponent of the other operand."""
    nan = struct.unpack("<d", struct.pack("<Q", 0xFFFA400000000000))[0]
    for name in ("add", "sub", "mul", "div"):
        for row in ((nan, 5e-324), (5e-324, nan), (nan, 1e300), (1e300, nan)):
            assert run(name, row, WIDE["bf16"], make_policy("rne", nan="propagate")) == 0xFFD2, (name, row)


def test_the_constructed_quotients_are_that_close():
    for a, b in near_midpoint_quotients(0, 20):
        quotient = Fraction(a) / Fraction(b)
        m = round(quotient * 2**25)
        assert 0 < abs(quotient - m / Fraction(2**25)) < Fraction(1, 2**75)

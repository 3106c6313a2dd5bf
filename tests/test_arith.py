"""add, sub, mul, div, sqrt, fma against the oracle: all pairs of 8-bit formats, all triples of 5-bit ones.

Millions of pairs share few exact results: each distinct one is rounded by the oracle once, in every mode.
"""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from loops import MODES, apply_all, make_policy
from lpsim.core.codec import unpack
from operations import OPERATIONS
from oracle import Value, decode
from probes import differences
from rows import ROWS, WIDE, containers

BINARY = ("add", "sub", "mul", "div")
#: all pairs in these modes; formats of one bit of precision have the most distinct sums
PAIRED = {name: MODES for name in ("e4m3fn", "e5m2", "e4m3fnuz", "ue4m3", "e2m1", "binary5p3se")}
PAIRED |= {"e4m3": ("rne", "rto"), "binary8p1se": ("rne",), "e8m0": ("rne",)}


def groups(name: str, operands, fmt) -> tuple[np.ndarray, np.ndarray]:
    """(first, group): rows of operand codes with one exact result form a group; first is a row of each.

    Rows with infinity or NaN, and rows with zero but those of sums, are groups of their own operands.
    """
    codes, places = np.unique(np.concatenate(operands), return_inverse=True)
    values = [decode(int(code), fmt) for code in codes]
    finite = [0 if isinstance(x, str) else (-1) ** sign * x for sign, x in values]
    scale = max(Fraction(x).denominator for x in finite)
    integers = np.array([int(x * scale) for x in finite], dtype=object)
    plain = np.array([bool(x) for x in finite])
    columns = np.split(places, len(operands))
    a, b, *c = (integers[column] for column in columns)
    keys = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "fma": lambda: a * b + c[0] * scale,
    }
    if name == "div":
        divisor = np.gcd(a, np.where(b == 0, 1, b)) * np.where(b < 0, -1, 1)
        keys["div"] = lambda: a // divisor * 2**1200 + b // divisor
    mixed = ~np.all([plain[column] for column in columns], axis=0)
    own = np.zeros(len(a), dtype=object) - 2**4000
    for column in columns:
        own = own * 2**20 - column
    _, first, group = np.unique(np.where(mixed, own, keys[name]()), return_index=True, return_inverse=True)
    return first, group


def exact_results(name: str, operands, fmt, mode: str) -> list[Value]:
    """The exact result of each row of operand codes."""
    of_code = {int(code): decode(int(code), fmt) for code in np.unique(np.concatenate(operands))}
    columns = [[of_code[code] for code in operand.tolist()] for operand in operands]
    return [OPERATIONS[name].oracle(*row, mode) for row in zip(*columns, strict=True)]


def rounded(results: list[Value], fmt, mode: str, **policy) -> np.ndarray:
    codes = [oracle.encode(value, fmt, mode, **policy) for value in results]
    return np.array([-1 if code is None else code for code in codes])


def check(name: str, operands, source, fmt, modes=MODES, grouped=False, **policy) -> None:
    """One operation on rows of codes of `source`, rounded to fmt, in every mode.

    Only the sign of an exact zero depends on the mode, and only in rtn: two walks over the exact results.
    """
    first = group = np.arange(len(operands[0]))
    if grouped:
        first, group = groups(name, operands, source)
    few = [operand[first] for operand in operands]
    nearest, downward = (exact_results(name, few, source, mode) for mode in ("rne", "rtn"))
    for mode in modes:
        results = downward if mode == "rtn" else nearest
        found = apply_all(name, operands, fmt, make_policy(mode, **policy), source)
        wrong = np.flatnonzero(found != rounded(results, fmt, mode, **policy)[group])
        rows = [[hex(operand[i]) for operand in (*operands, found)] for i in wrong[:5]]
        assert not rows, (name, mode, rows, [results[group[i]] for i in wrong[:5]], len(wrong))


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("row", PAIRED)
def test_all_pairs(row, name):
    fmt = ROWS[row]
    codes = np.array(containers(fmt))
    pairs = [np.repeat(codes, len(codes)), np.tile(codes, len(codes))]
    check(name, pairs, fmt, fmt, PAIRED[row], grouped=True)


@pytest.mark.parametrize("row", ["ieee5p3", "ieee5p2", "binary5p3se"])
def test_fma_of_all_triples(row):
    fmt = ROWS[row]
    grid = np.array(list(product(containers(fmt), repeat=3)))
    check("fma", list(grid.T), fmt, fmt, grouped=True)


@pytest.mark.parametrize("row", [*ROWS, "bf16", "fp16"])
def test_sqrt_of_every_code(row):
    fmt = {**ROWS, **WIDE}[row]
    codes = np.array(containers(fmt))
    few = codes[:: max(1, len(codes) // 2048)] if len(codes) > 256 else codes
    check("sqrt", [few], fmt, fmt)
    if len(codes) > 256:
        check("sqrt", [codes], fmt, fmt, modes=("rne",))


def edges(fmt) -> list[int]:
    """Codes where arithmetic changes its nature: zero, ends of the subnormals and of the range, 1."""
    binade, top = 2 ** (fmt.precision - 1), oracle.largest(fmt)
    one = fmt.exponent_bias * binade
    ends = [0, 1, 2, binade - 1, binade, binade + 1, one - 1, one, one + 1, one + binade // 2, top // 2]
    ends += [top - 1, top, top + 1, top + 2]
    ends = [m for m in ends if m < 2 ** (fmt.bits - 1)]
    return [(m + sign * 2 ** (fmt.bits - 1)) << fmt.pad for m in ends for sign in (0, 1)]


def sample(fmt, arity: int, count: int, seed: int) -> list[np.ndarray]:
    """Edges x edges, raw random codes, and random codes of like magnitude (where sums cancel and round)."""
    random = np.random.default_rng(seed)
    size = 2**fmt.bits
    mixed = np.array(list(product(edges(fmt), repeat=arity)) if arity < 3 else [])
    if arity == 3:
        mixed = random.choice(edges(fmt), (count, 3))
    raw = random.integers(0, size, (count, arity)) << fmt.pad
    near = random.integers(0, size // 2, (count, 1)) + random.integers(-4, 5, (count, arity)) * 2 ** (fmt.precision - 1)
    near = np.clip(near + random.integers(0, 3, (count, arity)), 0, size // 2 - 1)
    near = (near + random.integers(0, 2, (count, arity)) * (size // 2)) << fmt.pad
    return list(np.ascontiguousarray(np.concatenate([mixed.reshape(-1, arity), raw, near]).T))


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("row", ["bf16", "fp16", "tf32", "fp32"])
def test_wide_formats(row, name):
    fmt = WIDE[row]
    check(name, sample(fmt, OPERATIONS[name].arity, 300, seed=len(row + name)), fmt, fmt)


@pytest.mark.parametrize("row", ["e4m3fn", "e5m2", "e5m2fnuz", "e3m4"])
def test_fma_of_8_bits(row):
    fmt = ROWS[row]
    check("fma", sample(fmt, 3, 2000, seed=1), fmt, fmt)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(("source", "target"), [("fp32", "bf16"), ("fp32", "e4m3fn"), ("bf16", "fp16")])
def test_wide_operands_round_once_to_a_narrow_format(source, target, name):
    """The operands need not be of the target's format: fp32 sums, products, ... straight to bf16."""
    source, target = WIDE[source], {**ROWS, **WIDE}[target]
    check(name, sample(source, OPERATIONS[name].arity, 200, seed=3), source, target, overflow="satfinite")


@pytest.mark.parametrize("name", OPERATIONS)
def test_flushing_operands_and_results(name):
    fmt = WIDE["bf16"]
    operands = [operand & 0x81FF for operand in sample(fmt, OPERATIONS[name].arity, 200, seed=4)]
    for subnormals in ("flush_in", "flush_out", "flush"):
        found = apply_all(name, operands, fmt, make_policy("rne", subnormals=subnormals))
        wanted = []
        for row in zip(*(operand.tolist() for operand in operands), strict=True):
            values = [decode(code, fmt) for code in row]
            if subnormals != "flush_out":
                values = [oracle.flush(value, fmt) for value in values]
            exact = OPERATIONS[name].oracle(*values, "rne")
            wanted.append(oracle.encode(exact, fmt, flush_out=subnormals != "flush_in"))
        assert not differences(list(zip(*operands, strict=True)), found, wanted), subnormals


@pytest.mark.parametrize(("variant", "bits"), [("A", 8), ("B", 16), ("C", 32)])
@pytest.mark.parametrize("name", OPERATIONS)
def test_stochastic_results(name, variant, bits):
    """The word decides as it would for the exact result, to the last of 32 random bits below fp32."""
    fmt = WIDE["fp32"]
    operands = sample(fmt, OPERATIONS[name].arity, 100, seed=5)
    results = exact_results(name, operands, fmt, "rne")
    for word in (0, 1, 2 ** (bits - 1), 2**bits - 2, 2**bits - 1):
        found = apply_all(name, operands, fmt, make_policy(variant, bits=bits), words=word)
        wanted = rounded(results, fmt, variant, bits=bits, word=word)
        assert not differences(list(zip(*operands, strict=True)), found, wanted), hex(word)


NANS = {"a": 0x7FA1, "b": 0xFFC2, "c": 0xFF83}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_nan_result_is_that_of_the_first_nan_operand(name):
    """propagate: sign and payload of the first NaN, made quiet; canonical: its sign; nvidia: 0x7FFF."""
    fmt, operation = WIDE["bf16"], OPERATIONS[name]
    others = [0x3F80, 0xBF80, 0x0000, 0x7F80]
    choices = [[nan, *others] for nan in list(NANS.values())[: operation.arity]]
    for row in product(*choices):
        first = next((code for code in row if (code & 0x7FFF) > 0x7F80), None)
        operands = [unpack(code, fmt) for code in row]
        for nan in ("canonical", "propagate", "nvidia"):
            code = operation.core(*operands, fmt, make_policy("rne", nan=nan), 0).code
            if first is not None:
                by_policy = {
                    "canonical": first & 0x8000 | 0x7FC0,
                    "propagate": first | 0x40,
                    "nvidia": 0x7FFF,
                }
                assert code == by_policy[nan], (row, nan)
            elif operation.oracle(*(decode(x, fmt) for x in row)).magnitude == oracle.NAN:
                assert code == (0x7FFF if nan == "nvidia" else 0x7FC0), (row, nan)


def test_published_sums():
    """1.25 * 1.609375 and a fused product that two roundings would lose."""
    bf16 = WIDE["bf16"]

    def run(name, *codes, rounding="rne"):
        return int(apply_all(name, [np.array([c]) for c in codes], bf16, make_policy(rounding))[0])

    assert run("mul", 0x3FA0, 0x3FCE) == 0x4001
    assert run("mul", 0x3FA0, 0x3FCE, rounding="rtz") == 0x4000
    assert run("mul", 0x4050, 0x3F99) == 0x4079
    assert run("mul", 0x4050, 0x3F99, rounding="rtz") == 0x4078
    assert run("fma", 0x3F81, 0x3F81, 0xBF82) == 0x3880
    assert run("add", run("mul", 0x3F81, 0x3F81), 0xBF82) == 0x0000


@settings(max_examples=300)
@given(st.sampled_from(sorted(OPERATIONS)), st.data())
def test_any_fp32_operands(name, data):
    fmt, operation = WIDE["fp32"], OPERATIONS[name]
    row = [data.draw(st.integers(0, 2**32 - 1)) for _ in range(operation.arity)]
    mode = data.draw(st.sampled_from(MODES))
    target = data.draw(st.sampled_from([fmt, WIDE["bf16"], ROWS["e5m2"]]))
    code = operation.core(*(unpack(x, fmt) for x in row), target, make_policy(mode), 0).code
    exact = operation.oracle(*(decode(x, fmt) for x in row), mode)
    assert code == oracle.encode(exact, target, mode)


def test_fma_through_fp32_is_another_function():
    """A bf16 fma done in fp32 and then narrowed differs. a = b = 1.0625, c = 2^-40."""
    bf16 = WIDE["bf16"]
    a, c = 0x3F88, (127 - 40) << 7
    exact = oracle.fma(decode(a, bf16), decode(a, bf16), decode(c, bf16))
    once = apply_all("fma", [np.array([x]) for x in (a, a, c)], bf16, make_policy())[0]
    narrowed = oracle.encode(decode(oracle.encode(exact, WIDE["fp32"]), WIDE["fp32"]), bf16)
    assert decode(int(once), bf16) == Value(0, Fraction(1.1328125))
    assert decode(narrowed, bf16) == Value(0, Fraction(1.125))

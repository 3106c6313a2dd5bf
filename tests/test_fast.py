"""The vectorised casts and operations against the plain loops: every format, every policy, the same bits."""

import itertools
import re

import numpy as np
import pytest
from ml_dtypes import bfloat16

from lpsim import arrays, fast_fills, fills
from lpsim.core import loops
from lpsim.formats import FORMATS, container_bits, fits, ieee, lookup
from lpsim.policies import NANS, OVERFLOWS, ROUNDINGS, VARIANTS, stochastic
from lpsim.target import Target

FP32, FP64, BF16 = FORMATS["fp32"], FORMATS["fp64"], FORMATS["bf16"]
NAMES = [name for name in FORMATS if name != "fp64"]
NAMES += ["binary8p3se", "binary8p4sf", "binary15p8se", "binary6p2se", "binary5p1se", "binary8p4ue"]
POLICIES = list(itertools.product(OVERFLOWS, NANS))
OPERATIONS = {"add": 2, "sub": 2, "mul": 2, "div": 2, "sqrt": 1, "fma": 3}


def sources(fmt, count=20_000) -> np.ndarray:
    """float32: raw bits, every upper half with edges below, and values and midpoints of fmt with their neighbours."""
    rng = np.random.default_rng(1)
    raw = rng.integers(0, 1 << 32, count, dtype=np.uint64).astype(np.uint32)
    upper = rng.choice(1 << 16, 4000).astype(np.uint32) << np.uint32(16)
    halves = [upper | np.uint32(low) for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]
    codes = rng.integers(0, 1 << min(fmt.bits, 16), 6000).astype(np.int64) << fmt.pad
    bits = codes.copy()
    loops.decode(bits, bits, fmt)
    with np.errstate(all="ignore"):
        values = bits.view(np.float64)
        middle = ((values + np.roll(np.sort(values), 1)) / 2).astype(np.float32)
        grid = np.concatenate([values.astype(np.float32), middle])
    near = np.concatenate([grid.view(np.uint32), *(grid.view(np.uint32) + np.uint32(d) for d in (1, 0xFFFFFFFF))])
    return np.concatenate([raw, *halves, near]).view(np.float32)


def plain(loop, target: Target, operands: list[np.ndarray], *formats) -> np.ndarray:
    """What the plain loop gives; -1 throughout if some answer has no code."""
    codes = np.empty(operands[0].size, np.int64)
    with np.errstate(invalid="ignore"):
        bits = [fills.bits_of(x) for x in operands]
    lost = loop(*bits, codes, *formats, target.fmt, target.policy, target.words(0, codes.size))
    return np.full_like(codes, -1) if lost else codes


def values_of(codes: np.ndarray, fmt, dtype) -> np.ndarray:
    bits = codes.copy()
    loops.decode(bits, bits, fmt)
    with np.errstate(invalid="ignore", over="ignore"):
        return bits.view(np.float64).astype(dtype)


def run(fill: fills.Fill, operands: list[np.ndarray], dtype) -> np.ndarray | None:
    """What a Fill gives; None if it refuses."""
    out = np.empty(operands[0].size, dtype)
    try:
        with np.errstate(invalid="ignore", over="ignore"):
            fill.run(operands, out, 0)
    except ValueError:
        return None
    return out


def same(found: np.ndarray | None, wanted: np.ndarray) -> bool:
    return found is not None and found.tobytes() == wanted.tobytes()


def check_casts(fmt, x, source, **rules) -> None:
    """encode and rounded of x under one policy are what the plain loop says, bit for bit."""
    target = Target(fmt, rules)
    wanted = plain(loops.encode, target, [x], source)
    found = run(fills.encode(target, source), [x], f"uint{container_bits(fmt)}")
    assert (found is None) == (wanted[0] == -1)
    if found is None:
        return
    assert np.array_equal(found, wanted), (rules, x[found != wanted][:3], found[found != wanted][:3])
    dtype = x.dtype if fits(fmt, source) else np.float64
    assert same(run(fills.rounded(target, source), [x], dtype), values_of(wanted, fmt, dtype)), rules


def both_widths(narrow: np.ndarray) -> list:
    """(array, format): the float32 themselves, and some of them as float64 with their upper neighbours."""
    with np.errstate(invalid="ignore"):  # signalling NaN
        wide = narrow.astype(np.float64)
    return [(narrow, FP32), (np.concatenate([wide[::4], np.nextafter(wide, np.inf)[::4]]), FP64)]


@pytest.mark.parametrize("name", NAMES)
def test_casts(name):
    fmt = lookup(name)
    for overflow, nan in POLICIES:
        for x, source in both_widths(sources(fmt)):
            check_casts(fmt, x, source, overflow=overflow, nan=nan)


@pytest.mark.parametrize("rounding", [mode for mode in ROUNDINGS if mode != "rne"])
@pytest.mark.parametrize("name", NAMES)
def test_directed_casts(name, rounding):
    fmt = lookup(name)
    for overflow, nan in POLICIES:
        for x, source in both_widths(sources(fmt, 3000)[:: 3 if nan == "canonical" else 17]):
            check_casts(fmt, x, source, rounding=rounding, overflow=overflow, nan=nan)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", ["bf16", "fp16", "e4m3fn", "e5m2fnuz", "tf32", "binary8p3se"])
def test_operations(name, operation):
    fmt = lookup(name)
    rng = np.random.default_rng(2)
    x = sources(fmt, 4000)
    operands = [rng.permutation(x) for _ in range(OPERATIONS[operation])]
    if len(operands) > 1:  # sums that cancel, and products near one
        operands[1][::3] = -operands[0][::3]
    for overflow, nan in POLICIES:
        target = Target(fmt, {"overflow": overflow, "nan": nan})
        loop = getattr(loops, operation)
        wanted = values_of(plain(loop, target, operands), fmt, np.float32)
        found = run(fills.operation(target, loop, [FP32] * len(operands)), operands, np.float32)
        assert same(found, wanted), (overflow, nan)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", ["bf16", "ieee14"])
def test_operations_on_the_grid(name, operation):
    """Operands of bf16 (and a narrower format): as float32, as bfloat16, and with one block off the grid."""
    fmt = BF16 if name == "bf16" else ieee(14, 6)
    rng = np.random.default_rng(4)
    codes = [rng.integers(0, 1 << 16, 9000).astype(np.uint16) >> (16 - fmt.bits) for _ in range(OPERATIONS[operation])]
    codes[0][100:2000] = codes[-1][100:2000] ^ (codes[0][100:2000] & np.uint16(0x81FF >> (16 - fmt.bits)))  # cancel
    operands = [(c.astype(np.uint32) << np.uint32(32 - fmt.bits)).view(np.float32) for c in codes]
    for x in operands:  # blocks of ordinary numbers, which fma treats apart, and one with a product below 2^-126
        x[2048:6144] = rng.choice([1.0, -1.5, 0.75, 0.0, -0.0, 1.5 * 2.0**127, 2.0**-20], 4096)
    operands[0][5001] = operands[min(1, len(operands) - 1)][5001] = 2.0**-68
    for step in (0, 1):
        operands[0].view(np.uint32)[5000] += np.uint32(step)  # off the grid, in the third block
        target, loop = Target(fmt, {"nan": "ones" if step else "canonical"}), getattr(loops, operation)
        wanted = values_of(plain(loop, target, operands), fmt, np.float32)
        fill = fills.operation(target, loop, [FP32] * len(operands))
        assert same(run(fill, operands, np.float32), wanted), step
        if fmt == BF16 and not step:
            narrow = [(x.view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(bfloat16) for x in operands]
            found = run(fills.operation(target, loop, [BF16] * len(operands)), narrow, bfloat16)
            assert same(found, wanted.astype(bfloat16)), "bfloat16"


@pytest.mark.parametrize("operation", ["mul", "div", "sqrt"])
def test_operations_near_midpoints_off_the_grid(operation):
    """One operand is any float32, the result so near a midpoint of bf16 that binary32 rounds it there."""
    rng = np.random.default_rng(6)
    middle = (1 + (2 * rng.integers(0, 128, 4096) + 1) * 2.0**-8) * rng.choice([1.0, 4.0], 4096)
    y = 1 + rng.integers(0, 128, 4096) * 2.0**-7
    x = {"mul": middle / y, "div": middle * y, "sqrt": middle * middle}[operation].astype(np.float32)
    operands = [x, y.astype(np.float32)][: OPERATIONS[operation]]
    target, loop = Target("bf16", {}), getattr(loops, operation)
    wanted = values_of(plain(loop, target, operands), BF16, np.float32)
    for order in (1, -1) if operation == "mul" else (1,):
        assert same(run(fills.operation(target, loop, [FP32] * len(operands)), operands[::order], np.float32), wanted)


def test_fma_whose_product_binary32_does_not_hold():
    """(1 + 2^-7)^2 2^-140 loses its last bit, 2^-154, in binary32; with this addend that bit lies beyond a midpoint.

    And a product above the largest float32 that the addend brings back.
    """
    a = np.array([(1 + 2.0**-7) * 2.0**-70, 2.0**64, 1.0], np.float32)
    b = np.array([(1 + 2.0**-7) * 2.0**-70, 2.0**64, 1.0], np.float32)
    c = np.array([2.0**-134 - 520 * 2.0**-149, -(2.0**127), 1.0], np.float32)
    for i in range(3):  # each in a block of its own
        operands = [x[i : i + 1] for x in (a, b, c)]
        found = run(fills.operation(Target("bf16", {}), loops.fma, [FP32] * 3), operands, np.float32)
        assert found is not None
        assert found[0] == (2.0**-133, 2.0**127, 2.0)[i]


@pytest.mark.parametrize("name", [*NAMES, "ieee16p10", "ieee16p6", "ieee9p2"])
def test_decode(name):
    """Every code (above 16 bits: some) to float32 and to float64."""
    found = re.fullmatch(r"ieee(\d+)p(\d+)", name)
    fmt = ieee(int(found[1]), int(found[2])) if found else lookup(name)
    codes = np.arange(0, 1 << fmt.bits, 1 + (1 << fmt.bits >> 17), np.uint64)
    codes = (codes << np.uint64(fmt.pad)).astype(f"uint{container_bits(fmt)}")
    for dtype in (np.float32, np.float64):
        if fits(fmt, FP64 if dtype == np.float64 else FP32):
            wanted = values_of(codes.astype(np.int64), fmt, dtype)
            assert same(run(fills.decode(fmt), [codes], dtype), wanted), dtype


@pytest.mark.parametrize("overflow", OVERFLOWS)
@pytest.mark.parametrize("bits", [1, 7, 15, 16, 17, 24, 32])
@pytest.mark.parametrize("name", ["bf16", "tf32", "fp16", "e4m3fn", "e5m2", "e4m3fnuz", "binary8p3se", "e2m1"])
def test_stochastic(name, bits, overflow):
    """Keyed words and words given, all variants; given words are near the border where a cast grows or not."""
    fmt = lookup(name)
    x, nan = sources(fmt, 1500)[::2], "nvidia"
    words = np.random.default_rng(bits).integers(-3, 3, x.size) % (1 << bits)
    for variant in VARIANTS:
        keyed = stochastic(bits=bits, seed=-3, stream=2**32 - 1, step=5, offset=2**40 + 3, variant=variant)
        for noise in (keyed, stochastic(bits=bits, words=words, variant=variant)):
            check_casts(fmt, x, FP32, rounding=noise, overflow=overflow, nan=nan)


def test_stochastic_from_binary64():
    """The discarded part has up to 45 bits; words that decide by its last one."""
    rng = np.random.default_rng(5)
    word = rng.integers(0, 1 << 32, 20_000)
    nu = (1 << 32) - word + rng.integers(-1, 2, word.size)  # in 2^-32 ulp: one below, at, and one above the border
    x = (1.0 + (rng.integers(0, 8, word.size) + nu * 2.0**-32) * 2.0**-3) * rng.choice([1.0, -1.0, 2.0**-9], word.size)
    for variant in VARIANTS:
        noise = stochastic(bits=32, words=word, variant=variant)
        check_casts(lookup("e4m3fn"), x, FP64, rounding=noise)


def test_fast_paths_are_taken():
    """A test of equality would pass if nothing were fast."""
    for name in ("bf16", "fp16", "tf32", "e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "binary8p3se"):
        for rounding in (*ROUNDINGS, stochastic(bits=8, seed=0, stream=0, variant="C")):
            assert fast_fills.encode(Target(name, {"rounding": rounding}), FP32) is not None, (name, rounding)
        assert fast_fills.rounded(Target(name, {}), FP32) is not None, name
        assert fast_fills.operation(Target(name, {}), loops.add, [FP32, FP32]) is not None, name
    assert fast_fills.encode(Target("bf16", {"subnormals": "flush"}), FP32) is None


def test_pieces_and_threads_do_not_matter():
    """A long array, in one call, equals its parts; the keyed words follow the element, not the piece."""
    x = np.random.default_rng(3).standard_normal(300_001).astype(np.float32)
    noise = {"rounding": stochastic(bits=16, seed=1, stream=2)}
    whole = arrays.encode(x, "bf16", **noise)
    for start in (0, 5, 8, 131_072, 262_143):
        part = stochastic(bits=16, seed=1, stream=2, offset=start)
        assert np.array_equal(arrays.encode(x[start:], "bf16", rounding=part), whole[start:])
    assert np.array_equal(arrays.encode(x, "e4m3fn")[::7], arrays.encode(x[::7], "e4m3fn"))

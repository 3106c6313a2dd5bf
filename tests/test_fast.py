"""The vectorised casts and operations against the plain loops: every format, every policy, the same bits."""

import itertools

import numpy as np
import pytest

from lpsim import arrays, fills
from lpsim.core import loops
from lpsim.formats import FORMATS, container_bits, fits, lookup
from lpsim.policies import NANS, OVERFLOWS, stochastic
from lpsim.target import Target

FP32, FP64 = FORMATS["fp32"], FORMATS["fp64"]
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


@pytest.mark.parametrize("name", NAMES)
def test_casts(name):
    fmt = lookup(name)
    narrow = sources(fmt)
    with np.errstate(invalid="ignore"):  # signalling NaN
        wide = narrow.astype(np.float64)
    wide = np.concatenate([wide[::4], np.nextafter(wide, np.inf)[::4]])
    for overflow, nan in POLICIES:
        target = Target(fmt, {"overflow": overflow, "nan": nan})
        for x, source in ((narrow, FP32), (wide, FP64)):
            wanted = plain(loops.encode, target, [x], source)
            found = run(fills.encode(target, source), [x], f"uint{container_bits(fmt)}")
            assert (found is None) == (wanted[0] == -1)
            if found is None:
                continue
            assert np.array_equal(found, wanted), (overflow, nan, x[found != wanted][:3])
            dtype = x.dtype if fits(fmt, source) else np.float64
            assert same(run(fills.rounded(target, source), [x], dtype), values_of(wanted, fmt, dtype)), (overflow, nan)


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


@pytest.mark.parametrize("bits", [1, 7, 15, 16, 17, 24, 32])
@pytest.mark.parametrize("name", ["bf16", "tf32"])
def test_stochastic(name, bits):
    x = sources(lookup(name), 3000)
    noise = stochastic(bits=bits, seed=-3, stream=2**32 - 1, step=5, offset=2**40 + 3)
    for overflow, nan in POLICIES:
        target = Target(name, {"rounding": noise, "overflow": overflow, "nan": nan})
        wanted = plain(loops.encode, target, [x], FP32)
        found = run(fills.encode(target, FP32), [x], f"uint{container_bits(target.fmt)}")
        assert found is not None
        assert np.array_equal(found, wanted), (overflow, nan)


def test_fast_paths_are_taken():
    """A test of equality would pass if nothing were fast."""
    for name in ("bf16", "fp16", "tf32", "e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "binary8p3se"):
        assert fills._quick_encode(Target(name, {}), FP32) is not None, name
        assert fills._quick_round(Target(name, {}), FP32) is not None, name
    assert fills._quick_encode(Target("bf16", {"rounding": stochastic(bits=16, seed=0, stream=0)}), FP32) is not None
    assert fills._quick_encode(Target("bf16", {"rounding": "rtz"}), FP32) is None


def test_pieces_and_threads_do_not_matter():
    """A long array, in one call, equals its parts; the keyed words follow the element, not the piece."""
    x = np.random.default_rng(3).standard_normal(300_001).astype(np.float32)
    noise = {"rounding": stochastic(bits=16, seed=1, stream=2)}
    whole = arrays.encode(x, "bf16", **noise)
    for start in (0, 5, 8, 131_072, 262_143):
        part = stochastic(bits=16, seed=1, stream=2, offset=start)
        assert np.array_equal(arrays.encode(x[start:], "bf16", rounding=part), whole[start:])
    assert np.array_equal(arrays.encode(x, "e4m3fn")[::7], arrays.encode(x[::7], "e4m3fn"))

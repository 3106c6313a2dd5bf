"""Dots against recordings of an H200 and against the integers of core/dpa, on every kind of data."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import lpsim
from lpsim import dots, machines, threads
from lpsim.formats import FORMATS
from lpsim.policies import RNE, RTZ

DATA = Path(lpsim.__file__).parent / "data" / "h200"
OUR_NAMES = {"e4m3": "e4m3fn"}  # the recordings say e4m3
KINDS = ["normal", "bits", "wide", "tiny", "huge", "sparse", "special"]


def recorded(file):
    """(label, unit, fmt, A, B, C or None, D) of every dot in a recording."""
    with np.load(DATA / file, allow_pickle=False) as arrays:
        for key in arrays.files:
            if key.endswith("|A"):
                label = key[:-2]
                a, b, d = (arrays[f"{label}|{x}"] for x in "ABD")
                c = arrays[f"{label}|C"].view(np.float32) if f"{label}|C" in arrays.files else None
                name, path = label.split("|")[:2]
                name = OUR_NAMES.get(name, name)
                yield label, machines.dot_row("h200", path, name).unit, FORMATS[name], a, b, c, d


@pytest.mark.parametrize(("name", "dots_in_it", "outputs"), [("mma.npz", 140, 304640), ("mma_tiny.npz", 48, 104448)])
def test_every_recorded_bit(name, dots_in_it, outputs):
    seen, compared, differing = 0, 0, {}
    for label, unit, fmt, a, b, c, d in recorded(name):
        result = dots.dot(a, b, c, unit, fmt, fmt).view(np.uint32)
        seen, compared = seen + 1, compared + d.size
        if wrong := int((result != d).sum()):
            differing[label] = wrong
    assert (seen, compared, differing) == (dots_in_it, outputs, {})


def test_the_reference_on_recorded_bits():
    """The integers too, not only what is compared with them: every dot of K = 32."""
    compared = 0
    for label, unit, fmt, a, b, c, d in recorded("mma.npz"):
        if "|K32|" in label and c is not None:
            rows = slice(0, 16)
            c = np.array(c[rows])
            dots._by_reference(a[None, rows], b[None], c[None], unit, fmt, fmt)
            np.testing.assert_array_equal(c.view(np.uint32), d[rows], label)
            compared += c.size
    assert compared == 7 * 5 * (16 * 64 + 16 * 16)


@pytest.mark.parametrize("change", [{"e_zero": -132}, {"e_zero": -134}, {"fraction_bits": 24}, {"lanes": 8}])
def test_recordings_tell_neighbouring_units_apart(change):
    name = "mma_tiny.npz" if "e_zero" in change else "mma.npz"
    differing = 0
    for label, unit, fmt, a, b, c, d in recorded(name):
        if label.startswith("bf16|wgmma"):
            result = dots.dot(a, b, c, unit._replace(**change), fmt, fmt).view(np.uint32)
            differing += int((result != d).sum())
    assert differing > 0


def codes(rng, fmt, shape, kind):
    """Codes of fmt in their container, with the character that `kind` names."""
    trailing = fmt.precision - 1
    largest = (1 << (fmt.bits - 1)) - 1
    one = fmt.exponent_bias << trailing
    spread = {"normal": 2, "wide": 12, "tiny": 2, "huge": 2, "sparse": 3}.get(kind, 0) << trailing
    if kind in ("bits", "special"):
        magnitude = rng.integers(0, largest + 1, shape)
    else:
        finite = largest - fmt.nans - fmt.infinity
        centre = {"tiny": spread // 2, "huge": finite - spread}.get(kind, one)
        magnitude = np.clip(centre + rng.integers(-spread, spread + 1, shape), 0, finite)
    if kind == "sparse":
        magnitude[rng.random(shape) < 0.8] = 0
    if kind == "special":
        picks = [0, 1, largest, largest - fmt.nans, largest - fmt.nans - 1, one]
        magnitude = np.where(rng.random(shape) < 0.03, rng.choice(picks, shape), np.clip(magnitude, one // 2, one))
    signed = magnitude | rng.integers(0, 2, shape) << (fmt.bits - 1)
    padding = rng.integers(0, 1 << fmt.pad, shape)  # a dot unit does not look at it
    return (signed << fmt.pad | padding).astype(f"uint{8 * -(-(fmt.bits + fmt.pad) // 8)}")


def accumulator(rng, shape, kind):
    """float32 of the same character, a fifth of them zero."""
    with np.errstate(all="ignore"):
        c = codes(rng, FORMATS["fp32"], shape, "normal" if kind == "sparse" else kind).view(np.float32)
    c[rng.random(shape) < 0.2] = 0
    return c


def assert_same_as_reference(a, b, c, unit, a_fmt, b_fmt):
    fast = dots.dot(a, b, c, unit, a_fmt, b_fmt)
    slow = np.array(c)[None] if c is not None else np.zeros((1, *fast.shape), np.float32)
    dots._by_reference(a[None], b[None], slow, unit, a_fmt, b_fmt)
    np.testing.assert_array_equal(fast.view(np.uint32), slow[0].view(np.uint32))


UNITS = [(path, name, name) for path in ("wgmma", "mma") for name in ("bf16", "fp16", "tf32", "e4m3fn", "e5m2")]
UNITS += [("wgmma", "e4m3fn", "e5m2"), ("wgmma", "e5m2", "e4m3fn")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("path", "a_name", "b_name"), UNITS)
def test_same_bits_as_the_integers(path, a_name, b_name, kind):
    a_fmt, b_fmt = FORMATS[a_name], FORMATS[b_name]
    unit = machines.dot_row("h200", path, a_fmt, b_fmt).unit
    rng = np.random.default_rng([KINDS.index(kind), len(path), len(a_name), unit.lanes])
    for m, k, n in [(3, 64, 48), (5, 37, 150), (1, 1, 1)]:
        a, b = codes(rng, a_fmt, (m, k), kind), codes(rng, b_fmt, (k, n), kind)
        assert_same_as_reference(a, b, accumulator(rng, (m, n), kind), unit, a_fmt, b_fmt)
        assert_same_as_reference(a, b, None, unit, a_fmt, b_fmt)


@pytest.mark.parametrize("trial", range(12))
def test_a_unit_of_any_numbers(trial):
    """Rows that no machine has: whatever `check_unit` lets pass is computed, by one routine or another."""
    rng = np.random.default_rng(trial)
    unit = machines.DotUnit(
        lanes=2 * int(rng.integers(1, 33)),
        fraction_bits=int(rng.integers(8, 49)),
        rounding=int(rng.choice([RTZ, RNE])) if trial % 3 == 0 else RTZ,
        output_fraction=int(rng.integers(1, 24)),
        e_zero=int(rng.integers(-160, -100)),
        k_width=int(rng.choice([1, 2, 4, 8])),
        widened_emin=int(rng.choice([-20, machines.NOT_WIDENED])),
    )
    fmt = FORMATS[["bf16", "e5m2", "fp16"][trial % 3]]
    machines.check_unit(unit)
    for kind in ("normal", "bits", "tiny"):
        a, b = codes(rng, fmt, (3, 150), kind), codes(rng, fmt, (150, 20), kind)
        assert_same_as_reference(a, b, accumulator(rng, (3, 20), kind), unit, fmt, fmt)


def test_fp16_accumulator():
    """The reference takes over: rounded to fp16 after every block, as Turing's HMMA.1688 is published."""
    unit = machines.DotUnit(8, 24, RNE, 10, -20, exponent_bits=5, accumulator_fraction=10)
    fmt = FORMATS["fp16"]
    a = np.full((1, 9), 1, np.float16).view(np.uint16)
    b = np.full((9, 1), 0.125, np.float16).view(np.uint16)
    c = np.full((1, 1), 1024, np.float32)
    assert dots.dot(a, b, c, unit, fmt, fmt) == 1025.0  # + 1, then + 0.125, which is lost
    with pytest.raises(ValueError, match="fp16"):
        dots.dot(a, b, c + np.float32(0.001), unit, fmt, fmt)


def random_dot(shape_a, shape_b, seed=0, path="wgmma", name="bf16"):
    fmt = FORMATS[name]
    rng = np.random.default_rng(seed)
    a, b = codes(rng, fmt, shape_a, "normal"), codes(rng, fmt, shape_b, "normal")
    return a, b, machines.dot_row("h200", path, name).unit, fmt


def test_batches_broadcast():
    a, b, unit, fmt = random_dot((4, 1, 5, 33), (3, 33, 7))
    c = accumulator(np.random.default_rng(1), (5, 7), "normal")
    whole = dots.dot(a, b, c, unit, fmt, fmt)
    assert whole.shape == (4, 3, 5, 7)
    for i in range(4):
        for j in range(3):
            np.testing.assert_array_equal(whole[i, j], dots.dot(a[i, 0], b[j], c, unit, fmt, fmt))


def test_splitting_changes_nothing():
    """Larger than a region in both directions; and k in several calls."""
    a, b, unit, fmt = random_dot((dots.ROWS + 3, 90), (90, dots.COLUMNS + 5))
    whole = dots.dot(a, b, None, unit, fmt, fmt)
    by_k = None
    for k0 in range(0, a.shape[1], 16):
        by_k = dots.dot(a[:, k0 : k0 + 16], b[k0 : k0 + 16], by_k, unit, fmt, fmt)
    np.testing.assert_array_equal(whole, by_k)
    corner = dots.dot(a[-2:], b[:, -3:], None, unit, fmt, fmt)
    np.testing.assert_array_equal(whole[-2:, -3:], corner)


def test_interleaved_k_is_a_permutation_of_a_plain_dot():
    a, b, unit, fmt = random_dot((4, 64), (64, 9), path="mma", name="e4m3fn")
    order = [k for slab in (0, 32) for turn in (0, 2) for k in range(slab, slab + 32) if k % 4 in (turn, turn + 1)]
    plain = unit._replace(k_width=2)
    expected = dots.dot(a[:, order], b[order], None, plain, fmt, fmt)
    np.testing.assert_array_equal(dots.dot(a, b, None, unit, fmt, fmt), expected)


def test_any_layout():
    a, b, unit, fmt = random_dot((20, 48), (48, 30))
    expected = dots.dot(a, b, None, unit, fmt, fmt)
    spaced = np.zeros((40, 96), a.dtype)
    spaced[::2, ::2] = a
    np.testing.assert_array_equal(dots.dot(spaced[::2, ::2], np.asfortranarray(b), None, unit, fmt, fmt), expected)
    np.testing.assert_array_equal(dots.dot(a[::-1, ::-1], b[::-1], None, unit, fmt, fmt).shape, expected.shape)


@pytest.mark.parametrize(("m", "k", "n"), [(0, 3, 4), (3, 0, 4), (3, 4, 0)])
def test_empty(m, k, n):
    a, b, unit, fmt = random_dot((m, k), (k, n))
    c = np.ones((m, n), np.float32)
    np.testing.assert_array_equal(dots.dot(a, b, c, unit, fmt, fmt), c)


def test_threads_change_nothing():
    a, b, unit, fmt = random_dot((9, 300, 64), (9, 64, 300))
    before, results = threads.get_threads(), []
    try:
        for n in (1, 2, 3):
            threads.set_threads(n)
            results.append(dots.dot(a, b, None, unit, fmt, fmt).tobytes())
    finally:
        threads.set_threads(before)
    assert len(set(results)) == 1


def test_inputs_are_left_alone():
    a, b, unit, fmt = random_dot((4, 16), (16, 4))
    c = np.ones((4, 4), np.float32)
    copies = a.copy(), b.copy(), c.copy()
    dots.dot(a, b, c, unit, fmt, fmt)
    for array, copy in zip((a, b, c), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_tile_from_compiled_code():
    """What attention does: a tile inside another compiled loop, on an accumulator in place."""
    from lpsim._jit import njit

    @njit
    def two_steps(a, b, c, emin, unit):
        for k0 in range(0, a.shape[1], 32):
            dots.dot_tile(a[:, k0 : k0 + 32], b[k0 : k0 + 32], c, emin, emin, unit)

    a, b, unit, fmt = random_dot((64, 64), (64, 64))
    c = accumulator(np.random.default_rng(1), (64, 64), "normal")
    expected = dots.dot(a, b, c, unit, fmt, fmt)
    values = dots.operand_values(a, fmt), dots.operand_values(b, fmt)
    two_steps(*values, c, dots.emin_of(fmt), unit)
    np.testing.assert_array_equal(c.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("name", ["bf16", "fp16", "tf32", "e4m3fn", "e5m2"])
def test_operand_values_are_exact(name):
    fmt = FORMATS[name]
    container = {"e4m3fn": np.uint8, "e5m2": np.uint8, "tf32": np.uint32}.get(name, np.uint16)
    every = (np.arange(1 << fmt.bits, dtype=np.int64) << fmt.pad).astype(container)
    values = dots.operand_values(every, fmt)
    if name == "fp16":
        expected = every.view(np.float16).astype(np.float32)
    elif name == "tf32":
        expected = every.view(np.float32)
    else:
        dtype = {"bf16": "bfloat16", "e4m3fn": "float8_e4m3fn", "e5m2": "float8_e5m2"}[name]
        expected = every.view(getattr(ml_dtypes, dtype)).astype(np.float32)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(np.signbit(values), np.signbit(expected))


def test_wrong_input_is_refused():
    a, b, unit, fmt = random_dot((4, 16), (16, 4))
    with pytest.raises(ValueError, match="do not fit"):
        dots.dot(a, b[:8], None, unit, fmt, fmt)
    with pytest.raises(ValueError, match="do not fit"):
        dots.dot(a[0], b, None, unit, fmt, fmt)
    with pytest.raises(TypeError, match="uint16"):
        dots.dot(a.astype(np.float32), b, None, unit, fmt, fmt)
    with pytest.raises(TypeError, match="float32"):
        dots.dot(a, b, np.zeros((4, 4)), unit, fmt, fmt)
    with pytest.raises(ValueError, match="significant bits"):
        dots.dot(a.astype(np.uint32), b.astype(np.uint32), None, unit, FORMATS["fp32"], FORMATS["fp32"])

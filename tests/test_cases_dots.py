"""Dots and long sums that went wrong for users of other libraries, each with its right answer.

Numbers that follow from a definition are derived again here with exact rationals.
"""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import lpsim as lp

H200 = lp.machine("h200")


def f32(bits: int) -> np.float32:
    return np.array(bits, np.uint32).view(np.float32)[()]


def bits(x) -> int:
    return int(np.asarray(x, np.float32).view(np.uint32).reshape(()))


def column(value: float, dtype, ones: int, k: int) -> np.ndarray:
    """(k, 1): `value` in the first of every k / ones rows, zeros elsewhere."""
    x = np.zeros((k, 1), dtype)
    x[:: k // ones] = value
    return x


@pytest.mark.parametrize(
    ("machine", "path", "kept"),
    [
        ("h200", "wgmma", 0x40403000),  # 13 fraction bits, cut
        ("h100", "wgmma", 0x40403000),
        ("l40s", "mma", 0x40403000),
        ("h200", "mma", 0x40403017),  # through fp16
        ("h200", "mma_ptx", 0x40403017),  # the accumulator is added late
        ("b200", "tcgen05", 0x40403017),
        ("rtx5090", "mma", 0x40403017),
    ],
)
@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_width_of_the_fp8_accumulator(machine, path, kept, dtype):
    """DeepGEMM 37, 50, 176; SageAttention 287: products of zero, and an accumulator that changes all the same."""
    zero = np.zeros((1, 32), dtype)
    c = np.full((1, 1), f32(0x40403017))
    assert bits(lp.machine(machine).dot(zero, zero.T, c, path=path)) == kept
    assert bits(H200.dot(np.zeros((1, 32), np.float16), np.zeros((32, 1), np.float16), c)) == 0x40403017


def test_counting_by_ones_stops_at_16384():
    """vllm 23813, flash-attention PR 2250: one product of 1 an instruction, 13 fraction bits, truncation."""
    k = 32 * 40
    ones, unit = column(1.0, ml_dtypes.float8_e4m3fn, 40, k), np.ones((1, k), ml_dtypes.float8_e4m3fn)
    start = np.full((1, 1), np.float32(16384 - 10))
    assert H200.dot(unit, ones, start) == 16384.0
    promoted = H200.tl_dot(unit, ones, start, block=(64, 64, 128), max_num_imprecise_acc=128)
    assert promoted == 16384.0 + 30
    near = np.full((1, 1), np.float32(2.0**24 - 100))  # flushed to fp32 every 128 k: exact as far as fp32 is
    assert H200.tl_dot(unit, ones, near, block=(64, 64, 128), max_num_imprecise_acc=128) == 2.0**24 - 60
    assert H200.tl_dot(unit, ones, near, block=(64, 64, 128)) < 2.0**24 - 100


def test_a_bf16_sum_sticks():
    """ml_dtypes 63: 1000 ones in bf16 make 256; the accumulator is always named."""
    ones, halves = np.ones(1000, np.float32), np.full(1000, 0.5, np.float32)
    assert int(lp.encode(lp.sum(ones, "bf16"), "bf16")) == 0x4380
    assert int(lp.encode(lp.sum(halves, "bf16"), "bf16")) == 0x4300
    assert (lp.sum(ones, "fp32"), lp.sum(halves, "fp32")) == (1000.0, 500.0)
    assert lp.sum(ones, "bf16", accumulate="fp32") == 1000.0


def truncated_chain(a, b, lanes: int, fraction: int) -> Fraction:
    """The dot of positive bf16 by its definition: block by block, terms cut below the largest, the sum to 24 bits."""
    total = Fraction(0)
    for first in range(0, len(a), lanes):
        terms = [
            Fraction(x) * Fraction(y) for x, y in zip(a[first : first + lanes], b[first : first + lanes], strict=True)
        ]
        e = max(
            _exponent(x) + _exponent(y) for x, y in zip(a[first : first + lanes], b[first : first + lanes], strict=True)
        )
        e = max(e, _exponent(total)) if total else e
        total = _cut(sum(_cut(x, e - fraction) for x in [*terms, total]), None)
    return total


def _exponent(x) -> int:
    x = Fraction(x)
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if x >= Fraction(2) ** e else e - 1


def _cut(x: Fraction, weight: int | None) -> Fraction:
    step = Fraction(2) ** (_exponent(x) - 23 if weight is None else weight)
    return x // step * step


def test_a_rows_bits_do_not_depend_on_the_batch():
    """TransformerEngine 2986, batch_invariant_ops 6, 13: the same row and the same plan give the same bits."""
    rng = np.random.default_rng(0)
    a = rng.uniform(0.1, 2.0, (70, 96)).astype(ml_dtypes.bfloat16)
    b = rng.uniform(0.1, 2.0, (96, 24)).astype(ml_dtypes.bfloat16)
    alone = H200.tl_dot(a[:1], b, block=(16, 16, 32), num_warps=1)
    for rows, block, warps in (
        (1, (64, 16, 32), 4),
        (7, (16, 64, 32), 4),
        (70, (64, 32, 32), 8),
        (70, (128, 16, 64), 4),
    ):
        np.testing.assert_array_equal(H200.tl_dot(a[:rows], b, block=block, num_warps=warps)[:1], alone)
    exact = truncated_chain(a[0].astype(float).tolist(), b[:, 3].astype(float).tolist(), 16, 25)
    assert Fraction(float(alone[0, 3])) == exact
    # Another plan is another number: the dot cut in two along K, or fp8 that leaves wgmma for small tiles.
    parts = [H200.tl_dot(a[:, ks], b[ks], block=(64, 32, 32)) for ks in (slice(0, 32), slice(32, 96))]
    assert ((parts[0] + parts[1])[:1] != alone).any()
    x, y = a.astype(ml_dtypes.float8_e4m3fn), b.astype(ml_dtypes.float8_e4m3fn)
    assert (H200.tl_dot(x, y, block=(64, 32, 32)) != H200.tl_dot(x, y, block=(32, 32, 32))).any()


def test_split_k_partials_kept_in_bf16():
    """modular 7165, TransformerEngine PR 3440: partials 1 + 2^-9 and -1."""
    x = np.array([1.0, 2.0**-9, -1.0, 0.0], np.float32)
    for partial, code in (("fp32", 0x3B00), (None, 0x3B00), ("bf16", 0x0000)):
        total = lp.sum(x, "bf16", accumulate="fp32", order=lp.split_k(2, partial=partial))
        assert int(lp.encode(total, "bf16")) == code


@pytest.mark.parametrize(
    ("given", "rne", "rna", "rtz"),
    [(0x3F801000, 0x3F800000, 0x3F802000, 0x3F800000), (0x3F801001, 0x3F802000, 0x3F802000, 0x3F800000)],
)
def test_rounding_to_tf32(given, rne, rna, rtz):
    """triton 4574, 10176; jax 23182: hardware truncates unless software rounds first."""
    x = f32(given)
    for rounding, wanted in (("rne", rne), ("rna", rna), ("rtz", rtz)):
        assert int(lp.encode(x, "tf32", rounding=rounding)) == wanted
    assert int(H200.cast(x, "tf32")) == rna
    one = np.ones((1, 1), np.float32)
    assert bits(H200.dot(np.full((1, 1), x), one, fmt="tf32")) == rtz
    assert bits(H200.tl_dot(np.full((1, 1), x), one)) == rtz
    # tf32x3: the part above is to nearest, what is left has 12 bits at most and loses its last one in the second.
    assert bits(H200.tl_dot(np.full((1, 1), x), one, input_precision="tf32x3")) == given + (given & 1)


def test_contraction_is_never_a_surprise():
    """ROCm 10330: fma(a, a, c) and a * a + c are two functions, on every host."""
    a, c = f32(0x3F800800), f32(0xBF801000)
    assert bits(lp.fma(a, a, c, "fp32")) == 0x33800000
    assert bits(lp.mul_then_add(a, a, c, "fp32")) == 0
    one = np.full((1, 1), a)
    assert bits(H200.dot(one, one, np.full((1, 1), c), fmt="fp32")) == 0x33800000
    assert bits(H200.tl_dot(one, one, np.full((1, 1), c), input_precision="ieee")) == 0x33800000
    assert Fraction(2) ** -24 == Fraction(float(a)) ** 2 + Fraction(float(c))

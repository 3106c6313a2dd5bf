"""Bit casts keep bits, fma rounds once (without the instruction too), select takes one side; work arrays."""

import json
from fractions import Fraction

import numpy as np
import pytest

import oracle
from lpsim._jit import njit
from lpsim.core import intrinsics
from lpsim.core.aligned import aligned
from lpsim.formats import FORMATS
from processes import run_python

FP32 = FORMATS["fp32"]
INF, NAN = 0x7F800000, 0x7FFFFFFF
RNG_SEED = 20260101

FMA_CODE = """
import numpy as np
from lpsim._jit import njit
from lpsim.core.intrinsics import bits_to_f32, bits_to_f64, f32_to_bits, f64_to_bits, fma_f32, fma_f64

@njit
def f32(a, b, c):
    return np.int64(f32_to_bits(fma_f32(bits_to_f32(a), bits_to_f32(b), bits_to_f32(c))))

@njit
def f64(a, b, c):
    return f64_to_bits(fma_f64(bits_to_f64(a), bits_to_f64(b), bits_to_f64(c)))
"""


def fma_cases() -> list[tuple[int, ...]]:
    """binary32 triples; among them sums that a float64 a * b + c rounds twice, and subnormal results."""
    rng = np.random.default_rng(RNG_SEED)
    cases = [tuple(int(v) for v in row) for row in rng.integers(0, 1 << 32, (500, 3))]
    # (1 + 2^-12)^2 and (1 + 2^-12)(1 + 3 * 2^-12) lie half way between two binary32; a c too small for
    # binary64 to hold beside them breaks the tie
    for c in (0x17800000, 0x97800000, 0x00000001, 0x80000001, 0, 0x80000000):  # +-2^-80, +-2^-149, +-0
        cases += [(0x3F800800, 0x3F800800, c), (0x3F800800, 0x3F801800, c), (0xBF800800, 0x3F800800, c)]
    near = rng.integers(0x3F000000, 0x40000000, (500, 2))
    for a, b in near:
        product = float(np.uint32(a).view(np.float32)) * float(np.uint32(b).view(np.float32))
        c = int(np.float32(-product).view(np.uint32))  # cancels: what is left is the product's lower half
        cases += [
            (int(a), int(b), c),
            (int(a) - 0x20000000, int(b) - 0x1F800000, int(rng.integers(0, 1 << 22))),
        ]
    return cases


def fma_expected(cases) -> list[int]:
    expected = []
    for case in cases:
        a, b, c = (oracle.decode(code, FP32) for code in case)
        expected.append(oracle.encode(oracle.fma(a, b, c), FP32, nan="nvidia"))
    return expected


def differing(got, expected) -> list[int]:
    """Indices where the codes differ; any NaN code counts as the NaN."""
    got = [NAN if (g & NAN) > INF else g for g in got]
    return [i for i, (g, e) in enumerate(zip(got, expected, strict=True)) if g != e]


def test_fma_f32_rounds_once():
    namespace = {}
    exec(FMA_CODE, namespace)
    cases = fma_cases()
    assert differing([namespace["f32"](*case) for case in cases], fma_expected(cases)) == []


def test_rounding_a_float64_instead_would_be_seen():
    cases = fma_cases()
    with np.errstate(all="ignore"):
        a, b, c = (np.array(codes, np.uint32).view(np.float32).astype(float) for codes in zip(*cases, strict=True))
        twice = (a * b + c).astype(np.float32).view(np.uint32)
    assert len(differing([int(code) for code in twice], fma_expected(cases))) > 0


def test_fma_is_right_where_the_processor_has_no_such_instruction(tmp_path):
    variables = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    setup = f"import os\nos.environ.update({variables!r})\n"
    cases = fma_cases()
    report = "print([f32(*case) for case in cases])"
    out = run_python(f"{setup}{FMA_CODE.strip()}\ncases = {cases}\n{report}")
    assert differing(json.loads(out), fma_expected(cases)) == []


def test_fma_f64_rounds_once():
    namespace = {}
    exec(FMA_CODE, namespace)
    rng = np.random.default_rng(RNG_SEED)
    a, b = rng.uniform(1, 2, 200), rng.uniform(1, 2, 200)
    for x, y in zip(a, b, strict=True):
        z = -(x * y)
        got = namespace["f64"](*(int(np.float64(v).view(np.int64)) for v in (x, y, z)))
        exact = Fraction(x) * Fraction(y) + Fraction(z)  # the rounding error of the product: a float64
        assert Fraction(float(np.int64(got).view(np.float64))) == exact


def test_bit_casts_keep_every_code():
    codes = np.arange(0, 1 << 32, 9973, dtype=np.uint32)
    back = np.empty(codes.size, np.uint32)
    round_trip(codes, back)
    assert np.array_equal(back, codes)


@njit
def round_trip(codes, out):
    for i in range(len(codes)):
        out[i] = intrinsics.f32_to_bits(intrinsics.bits_to_f32(codes[i]))


def test_other_types_are_refused_when_compiling():
    @njit
    def of_a_double(x):
        return intrinsics.f32_to_bits(x)

    with pytest.raises(Exception, match="f32_to_bits"):
        of_a_double(1.0)


def test_wide_vectors_reach_the_compiler():
    """The function that asks for them gets them, and no other."""

    @njit
    def wide(x):
        intrinsics.wide_vectors()
        return x

    @njit
    def plain(x):
        return x

    assert wide(1.0) == plain(1.0) == 1.0
    asked = ['"prefer-vector-width"="512"' in f.inspect_llvm(f.signatures[0]) for f in (wide, plain)]
    assert asked == [True, False]


def test_work_arrays_begin_on_a_cache_line():
    @njit
    def addresses(sizes):
        floats, bytes_ = aligned(sizes, np.float32), aligned(sizes, np.int8)
        return floats.ctypes.data, bytes_.ctypes.data, floats.size, bytes_.size

    for size in (1, 100, 100_000):
        *begins, floats, bytes_ = addresses(size)
        assert [int(begin) % 64 for begin in begins] == [0, 0]
        assert floats == bytes_ == size

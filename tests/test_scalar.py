"""lp.scalar: the same bits inside a user's own compiled code, in plain Python, and from the array functions."""

import numba
import numpy as np
import pytest

import loops
import lpsim as lp
from loops import make_policy
from lpsim.core.philox import random_word
from operations import OPERATIONS
from processes import run_python

BF16, E5M2 = lp.lookup("bf16"), lp.lookup("e5m2")
lp_add, lp_encode, lp_decode, lp_fma = lp.scalar.add, lp.scalar.encode, lp.scalar.decode, lp.scalar.fma


@numba.njit
def running_sum(codes, fmt):
    """A user's own loop: bf16 codes added in order."""
    total = 0
    for code in codes:
        total = lp_add(total, code, fmt)
    return total


def test_inside_a_users_own_compiled_code():
    codes = lp.encode(np.random.default_rng(1).normal(size=200), "bf16")
    total = np.float32(0)
    for x in lp.decode(codes, "bf16"):
        total = lp.add(total, x, "bf16")
    found = running_sum(codes, BF16)
    assert found == lp.encode(total, "bf16")
    assert running_sum.py_func(codes, BF16) == found
    assert running_sum(codes.astype(np.int64), BF16) == found


def test_with_a_format_and_rules_as_globals():
    rules = lp.scalar.policy(rounding="rtz", overflow="satfinite")

    @numba.njit
    def cut(x):
        return lp_encode(x, E5M2, rules)

    x = np.array([1.3, -1.3, 1e9, -1e9, np.inf, 2.0**-20, 0.0, -0.0])
    wanted = lp.encode(x, "e5m2", rounding="rtz", overflow="satfinite")
    assert [cut(v) for v in x.tolist()] == wanted.tolist()
    assert [cut.py_func(v) for v in x.tolist()] == wanted.tolist()


@pytest.mark.parametrize("fmt", ["bf16", "e5m2"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_the_cores(name, fmt):
    row = lp.lookup(fmt)
    rng = np.random.default_rng(2)
    operands = [rng.integers(0, 1 << row.bits, 300) for _ in range(OPERATIONS[name].arity)]
    for rounding in ("rne", "rtp"):
        wanted = loops.apply_all(name, operands, row, make_policy(rounding))
        rules = lp.scalar.policy(rounding=rounding)
        function = getattr(lp.scalar, name)
        found = [function(*(int(x) for x in each), row, rules) for each in zip(*operands, strict=True)]
        assert found == wanted.tolist()


def test_the_default_rules_are_the_arrays():
    codes = np.arange(0, 1 << 16, 97, dtype=np.uint16)
    assert [lp.scalar.convert(int(c), BF16, E5M2) for c in codes] == lp.convert(codes, "bf16", "e5m2").tolist()
    values = np.array([lp_decode(int(c), BF16) for c in codes])
    assert values.dtype == np.float64
    assert values.astype(np.float32).tobytes() == lp.decode(codes, "bf16").tobytes()
    assert [lp_encode(float(v), BF16) for v in values] == [
        c if v == v else c & 0x8000 | 0x7FC0 for c, v in zip(codes.tolist(), values, strict=True)
    ]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int64, np.uint64])
def test_codes_of_any_integer_width(dtype):
    a, b = dtype(0x3C), dtype(0x41)  # 1.0 and 2.5 in e5m2
    assert lp_add(a, b, E5M2) == lp.encode(3.5, "e5m2")
    assert lp_fma(a, b, a, E5M2) == lp.encode(3.5, "e5m2")


def test_random_words():
    rules = lp.scalar.policy(rounding=lp.stochastic(bits=8, seed=7, stream=2))
    x = np.random.default_rng(3).normal(size=64)
    wanted = lp.encode(x, "bf16", rounding=lp.stochastic(bits=8, seed=7, stream=2))
    words = [random_word(np.uint64(i), np.uint64(7), 2, 0, 8) for i in range(64)]
    assert [lp.scalar.encode(v, BF16, rules, w) for v, w in zip(x.tolist(), words, strict=True)] == wanted.tolist()
    assert lp.scalar.random_word is random_word


def test_bits_of_floats():
    for x in (0.0, -0.0, 1.5, -np.inf, 1e-45, 3.4e38):
        single = np.float32(x)
        assert lp.scalar.f32_to_bits(single) == single.view(np.uint32)
        back = np.float32(lp.scalar.bits_to_f32(int(single.view(np.uint32))))
        assert back.view(np.uint32) == single.view(np.uint32)


def test_in_a_script_with_the_users_own_cache(tmp_path):
    """`cache=True` of the user's function works, and a second process gives the same answer."""
    script = tmp_path / "user.py"
    script.write_text(
        "import numba, lpsim as lp\n"
        "lp_mul = lp.scalar.mul\n"
        "@numba.njit(cache=True)\n"
        "def square(code, fmt):\n"
        "    return lp_mul(code, code, fmt)\n"
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import user, lpsim as lp\n"
    code += "print(user.square(0x3FC0, lp.lookup('bf16')))"
    assert [run_python(code, home=tmp_path).strip() for _ in range(2)] == [str(0x4010)] * 2

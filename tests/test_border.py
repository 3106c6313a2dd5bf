"""What is refused, and with which words: the argument, what was given, what is allowed, the near miss."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import lpsim as lp
from lpsim.formats import Format

X = np.array([1.5, -2.5], np.float32)
BF16 = X.astype(ml_dtypes.bfloat16)
E2M1 = Format(4, 2, 1)


def refuses(error, call, *words: str) -> None:
    """The call raises exactly this kind of error and says all of these words."""
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    for word in words:
        assert word in str(caught.value), (word, str(caught.value))


# Names ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"rounding": "rnee"}, ["rounding='rnee'", "'rne'", "rtz"]),
        ({"rounding": "RNE"}, ["rounding='RNE'", "Did you mean 'rne'"]),
        ({"rounding": None}, ["rounding=None", "rto"]),
        ({"rounding": "stochastic"}, ["lp.stochastic", "seed", "stream"]),
        ({"overflow": "saturated"}, ["overflow='saturated'", "Did you mean 'saturate'", "satfinite"]),
        ({"nan": "nvidai"}, ["nan='nvidai'", "Did you mean 'nvidia'", "propagate"]),
        ({"subnormals": "flush_inn"}, ["subnormals='flush_inn'", "'flush_in'", "keep"]),
    ],
)
def test_unknown_policies(rules, words):
    for function in (lp.encode, lp.round, lp.sqrt):
        refuses(ValueError, lambda function=function: function(X, "bf16", **rules), *words)
    refuses(ValueError, lambda: lp.convert(BF16, "bf16", "e4m3fn", **rules), *words)


@pytest.mark.parametrize(
    ("fmt", "words"),
    [
        ("bf61", ["'bf61'", "Did you mean 'bf16'", "e4m3fn"]),
        ("bfloat-16", ["bfloat-16", "bf16"]),
        (None, ["None"]),
        (8, ["8", "bf16"]),
        (np.int32, ["int32"]),
        ("fp64", ["fp64", "source of values"]),
    ],
)
def test_unknown_formats(fmt, words):
    for call in (lp.encode, lp.round):
        refuses(ValueError, lambda call=call: call(X, fmt), "fmt=", *words)
    refuses(ValueError, lambda: lp.add(X, X, fmt), "fmt=", *words)
    refuses(ValueError, lambda: lp.decode(np.zeros(1, np.uint16), fmt), "fmt=", *words)
    refuses(ValueError, lambda: lp.convert(np.zeros(1, np.uint16), fmt, "bf16"), "source=", *words)


def test_formats_by_other_names():
    for name in ("bf16", "bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16), lp.FORMATS["bf16"]):
        assert lp.encode(1.0, name) == 0x3F80
    for name in (np.float16, np.dtype(np.float16), "float16", np.dtype(">f2")):
        assert lp.encode(1.0, name) == 0x3C00


def test_rows_that_are_no_formats():
    refuses(TypeError, lambda: lp.encode(X, Format(8, 4, 7, nans=1.0)), "Format.nans", "float")
    refuses(ValueError, lambda: lp.encode(X, Format(40, 4, 7)), "not a format", "bits")


def test_unknown_keywords():
    refuses(TypeError, lambda: lp.encode(X, "bf16", overflw="ieee"), "overflw")
    refuses(TypeError, lambda: lp.encode(X, "bf16", "rne"))


# Values -----------------------------------------------------------------------------------------------


NOT_FLOATS = [
    (np.array([1, 2]), ["int64", "lp.encode"]),
    (np.array([1, 2], np.int8), ["int8", "lp.encode"]),
    (np.array([1, 2], np.uint64), ["uint64", "lp.encode"]),
    (3, ["int64", "lp.encode"]),
    ([1, 2], ["int64"]),
    (True, ["bool"]),
    (np.array([True]), ["bool"]),
    (np.array([1, 2], np.uint8), ["uint8", "codes", "lp.decode"]),
    (np.array([1, 2], np.uint16), ["uint16", "codes", "lp.decode"]),
    (np.uint32(7), ["uint32", "codes", "lp.decode"]),
    (1j, ["complex128"]),
    (np.zeros(2, np.complex64), ["complex64"]),
    ("1.0", ["floats"]),
    (np.array(["1.0"]), ["floats"]),
    (None, ["object"]),
    (np.array([1.5, 2], dtype=object), ["object", "lp.encode"]),
    (Fraction(1, 3), ["object", "lp.encode"]),
    (np.array(["2020-01-01"], "M8[D]"), ["datetime64"]),
    (X.astype(ml_dtypes.int4), ["int4"]),
    (np.zeros(2, [("a", "f4")]), ["floats"]),
]


@pytest.mark.parametrize(("x", "words"), NOT_FLOATS)
def test_values_must_be_floats(x, words):
    refuses(TypeError, lambda: lp.round(x, "bf16"), "x has dtype", *words)
    refuses(TypeError, lambda: lp.add(1.0, x, "bf16"), "b has dtype", *words)
    refuses(TypeError, lambda: lp.fma(1.0, 1.0, x, "bf16"), "c has dtype", *words)
    refuses(TypeError, lambda: lp.sqrt(x, "bf16"), "a has dtype", *words)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.array([1], np.uint8), ["uint8", "codes", "lp.decode"]),
        (np.uint16(3), ["uint16", "codes"]),
        (np.array([True]), ["bool"]),
        (True, ["bool"]),
        (1j, ["complex"]),
        ("1", ["floats"]),
        (None, ["None", "ints and Fractions"]),
        (np.array([1.5, 2], dtype=object), ["1.5", "float", "ints and Fractions"]),
        (np.array([2, True], dtype=object), ["True", "bool"]),
        ([2**200, 1.5], ["1.5"]),
        ([2**200, None], ["None"]),
    ],
)
def test_encode_takes_numbers_only(x, words):
    refuses(TypeError, lambda: lp.encode(x, "bf16"), "x", *words)


def test_arrays_that_are_none():
    refuses(TypeError, lambda: lp.encode(np.ma.array([1.0, 2.0], mask=[0, 1]), "bf16"), "x", "mask")
    refuses(ValueError, lambda: lp.encode([[1.0], [1.0, 2.0]], "bf16"), "x is not an array")


def test_long_doubles_are_not_cut():
    if np.dtype(np.longdouble).itemsize > 8:
        refuses(TypeError, lambda: lp.round(np.ones(2, np.longdouble), "bf16"), "float32", "float64")


def test_round_needs_a_dtype_that_holds_the_grid():
    refuses(ValueError, lambda: lp.round(X.astype(np.float16), "bf16"), "float16", "bf16", "lp.encode")
    refuses(ValueError, lambda: lp.round(BF16, "fp16"), "bfloat16", "fp16")
    refuses(ValueError, lambda: lp.round(X.astype(ml_dtypes.float8_e4m3fn), "e5m2"), "float8_e4m3fn")


def test_answers_that_a_format_does_not_have():
    for x in (np.nan, 7.0, np.inf):
        refuses(ValueError, lambda x=x: lp.encode(x, E2M1), "NaN", "infinity", "satfinite")
        refuses(ValueError, lambda x=x: lp.round(x, E2M1), "NaN")
    refuses(ValueError, lambda: lp.div(0.0, 0.0, E2M1), "NaN")
    assert lp.encode(7.0, E2M1, overflow="satfinite") == 7
    assert lp.encode(np.nan, E2M1, nan="nvidia") == 7


def test_shapes_must_broadcast():
    refuses(ValueError, lambda: lp.add(np.ones(2), np.ones(3), "bf16"), "(2,)", "(3,)", "broadcast")


# Codes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codes", "fmt", "words"),
    [
        (X, "bf16", ["float32", "uint16", "lp.encode"]),
        (np.array([1]), "bf16", ["int64", "uint16"]),
        (np.int64(1), "bf16", ["int64"]),
        ([1, 2], "bf16", ["int64"]),
        (np.array([1], np.uint8), "bf16", ["uint8", "uint16"]),
        (np.array([1], np.uint16), "e4m3fn", ["uint16", "uint8"]),
        (BF16, "fp16", ["bfloat16", "uint16"]),
        (True, "bf16", ["bool"]),
        (1.0, "bf16", ["float64"]),
        (None, "bf16", ["object"]),
    ],
)
def test_codes_have_the_formats_dtype(codes, fmt, words):
    refuses(TypeError, lambda: lp.decode(codes, fmt), "codes has dtype", *words)
    refuses(TypeError, lambda: lp.convert(codes, fmt, "e5m2"), "codes has dtype", *words)


@pytest.mark.parametrize(
    ("codes", "fmt", "words"),
    [
        (-1, "bf16", ["-1", "16 bits"]),
        (1 << 16, "bf16", ["65536", "16 bits"]),
        (256, "e4m3fn", ["256", "8 bits"]),
        (np.array([3, 16], np.uint8), E2M1, ["0x10", "4 bits"]),
        (np.array([0x1FFF], np.uint32), "tf32", ["13", "tf32"]),
        (1, "tf32", ["13", "tf32"]),
    ],
)
def test_codes_out_of_range(codes, fmt, words):
    refuses(ValueError, lambda: lp.decode(codes, fmt), "codes", *words)
    refuses(ValueError, lambda: lp.convert(codes, fmt, "bf16"), "codes", *words)


def test_arrays_of_the_formats_own_dtype_are_codes():
    assert lp.decode(BF16, "bf16").tolist() == [1.5, -2.5]
    assert lp.convert(BF16, "bf16", "e5m2").tolist() == lp.encode(X, "e5m2").tolist()
    assert lp.decode(np.float32(1.5), "fp32") == 1.5


# out= -------------------------------------------------------------------------------------------------


def test_out_must_fit():
    read_only = np.empty(2, np.uint16)
    read_only.flags.writeable = False
    for out in (np.empty(2, np.float32), np.empty(3, np.uint16), np.empty((1, 2), np.uint16), np.empty(2, ">u2")):
        refuses(ValueError, lambda out=out: lp.encode(X, "bf16", out=out), "out must be uint16", "(2,)")
    refuses(ValueError, lambda: lp.encode(X, "bf16", out=read_only), "read-only")
    refuses(TypeError, lambda: lp.encode(X, "bf16", out=[0, 0]), "out", "list")
    refuses(ValueError, lambda: lp.round(X, "bf16", out=np.empty(2)), "float32", "float64")
    refuses(ValueError, lambda: lp.decode(BF16, "bf16", out=np.empty(2)), "float32")
    refuses(ValueError, lambda: lp.add(X, X, "bf16", out=np.empty(3, np.float32)), "(2,)", "(3,)")


# Stochastic rounding -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "arguments", "words"),
    [
        (ValueError, {"bits": 0, "seed": 1, "stream": 0}, ["bits=0", "1 to 32"]),
        (ValueError, {"bits": 33, "seed": 1, "stream": 0}, ["bits=33"]),
        (ValueError, {"bits": 8.0, "seed": 1, "stream": 0}, ["bits=8.0"]),
        (ValueError, {"bits": 8}, ["seed", "stream"]),
        (ValueError, {"bits": 8, "seed": 1}, ["seed", "stream"]),
        (ValueError, {"bits": 8, "stream": 1}, ["seed", "stream"]),
        (TypeError, {"bits": 8, "seed": 1.0, "stream": 0}, ["seed=1.0"]),
        (TypeError, {"bits": 8, "seed": True, "stream": 0}, ["seed=True"]),
        (TypeError, {"bits": 8, "seed": 1, "stream": "a"}, ["stream='a'"]),
        (ValueError, {"bits": 8, "seed": 1, "stream": 2**32}, ["stream", "2^32"]),
        (ValueError, {"bits": 8, "seed": 1, "stream": -1}, ["stream=-1"]),
        (ValueError, {"bits": 8, "seed": 2**64, "stream": 0}, ["seed", "2^64"]),
        (ValueError, {"bits": 8, "seed": 1, "stream": 0, "step": -1}, ["step=-1"]),
        (ValueError, {"bits": 8, "seed": 1, "stream": 0, "offset": -1}, ["offset=-1"]),
        (ValueError, {"bits": 8, "seed": 1, "stream": 0, "variant": "D"}, ["variant='D'", "A, B, C"]),
        (ValueError, {"bits": 4, "words": [16]}, ["2^4", "16"]),
        (ValueError, {"bits": 4, "words": [-1]}, ["-1"]),
        (TypeError, {"bits": 4, "words": [1.0]}, ["integer", "float64"]),
        (ValueError, {"bits": 4, "words": [1], "seed": 1}, ["either words"]),
        (ValueError, {"bits": 4, "words": [1], "offset": 1}, ["either words"]),
    ],
)
def test_noise_that_is_refused(error, arguments, words):
    refuses(error, lambda: lp.stochastic(**arguments), *words)


def test_words_have_the_results_shape():
    noise = lp.stochastic(bits=4, words=[1, 2, 3])
    refuses(ValueError, lambda: lp.encode(X, "bf16", rounding=noise), "(3,)", "(2,)")
    refuses(ValueError, lambda: lp.add(X, X[:, None], "bf16", rounding=noise), "(3,)", "(2, 2)")


def test_public_names():
    refuses(AttributeError, lambda: lp.rond, "rond", "round")
    refuses(ValueError, lambda: lp.machine("h20"), "h20", "h200")
    assert "round" in dir(lp)


# Nothing was changed on the way -------------------------------------------------------------------------


def test_inputs_are_left_alone():
    x = np.arange(10.0, dtype=np.float32) / 3
    before = x.copy()
    for function in (lp.round, lp.encode, lp.sqrt):
        function(x, "e4m3fn")
    lp.add(x, x[::-1], "bf16")
    assert (x == before).all()

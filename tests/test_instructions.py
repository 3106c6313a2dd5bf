"""lp.machine("h200"): instructions by name, against the functions they stand for; what it refuses."""

import ml_dtypes
import numpy as np
import pytest

import lpsim as lp
from lpsim import data
from lpsim.core import special
from lpsim.formats import Format

H200 = lp.machine("h200")
X = np.array([0.5, -1.5, 3.0, 1e-40, 1e30, -0.0, np.inf, -np.inf, np.nan], np.float32)


def refuses(error, call, *words: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    for word in words:
        assert word in str(caught.value), (word, str(caught.value))


def same(found, wanted) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert found.tobytes() == wanted.tobytes()


def test_the_default_machine():
    assert lp.machine() == H200
    refuses(ValueError, lambda: lp.machine("h20"), "machine='h20'", "Did you mean 'h200'")
    refuses(ValueError, lambda: lp.machine(None), "machine=None", "h200")


@pytest.mark.parametrize("name", ["exp2", "exp", "log2", "log", "sqrt", "rsqrt", "rcp", "sigmoid"])
def test_functions_of_any_shape(name):
    rng = np.random.default_rng(1)
    x = np.concatenate([X, rng.normal(size=3 * 7 * 11 - X.size).astype(np.float32)])
    out = np.empty_like(x)
    special.ARRAYS[name](x, out)
    function = getattr(H200, name)
    same(function(x), out)
    same(function(x.reshape(3, 7, 11).transpose(2, 0, 1)), out.reshape(3, 7, 11).transpose(2, 0, 1).copy())
    same(function(x[::-2]), out[::-2].copy())
    same(function(x.astype(">f4")), out)
    same(function(np.empty((0, 3), np.float32)), np.empty((0, 3), np.float32))
    assert type(function(np.float32(0.5))) is np.float32


def test_functions_are_good_to_their_bits():
    """Against float64: MUFU's documented error is near two ulp; a wrong table entry is far outside."""
    x = np.random.default_rng(2).uniform(0.01, 20, 4000).astype(np.float32)
    wide = x.astype(np.float64)
    for name, exact in (("exp2", np.exp2(wide)), ("rcp", 1 / wide), ("sqrt", np.sqrt(wide)), ("rsqrt", wide**-0.5)):
        assert np.abs(getattr(H200, name)(x) / exact - 1).max() < 4 * 2.0**-23, name
    assert np.abs(H200.div(x, x[::-1]) / (wide / wide[::-1]) - 1).max() < 4 * 2.0**-23


def test_div_broadcasts():
    a, b = X.reshape(9, 1), np.array([1.0, 3.0], np.float32)
    same(H200.div(a, b), np.stack([H200.div(X, np.float32(1.0)), H200.div(X, np.float32(3.0))], axis=1))
    refuses(ValueError, lambda: H200.div(X, np.ones(2, np.float32)), "shape")


def test_ptx_names():
    same(H200.ptx("ex2.approx.ftz.f32", X), H200.exp2(X))
    refuses(ValueError, lambda: H200.ptx("rcp.approx.f32x", X), "instruction='rcp.approx.f32x'", "rcp.approx.ftz.f32")


@pytest.mark.parametrize("x", [np.ones(9), np.ones(9, np.float16), np.ones(9, ml_dtypes.bfloat16)])
def test_functions_take_float32_only(x):
    for call in (H200.exp2, H200.sum, lambda v: H200.div(v, X), lambda v: H200.div(X, v)):
        refuses(TypeError, lambda call=call: call(x), x.dtype.name, "float32")


@pytest.mark.parametrize("x", [1, True, 1j, "a", None, np.array([1, 2]), np.array([1], np.uint32), np.ma.ones(3)])
def test_functions_take_floats_only(x):
    refuses(TypeError, lambda: H200.exp2(x), "x ")
    refuses(TypeError, lambda: H200.cast(x, "bf16"), "x ")


# Casts --------------------------------------------------------------------------------------------------


def test_casts_are_the_instructions():
    x = np.array([449.0, 1e6, -1e6, np.inf, np.nan, -np.nan, 2.0**-10, -0.0], np.float32)
    assert H200.cast(x, "e4m3fn").tolist() == [0x7E, 0x7E, 0xFE, 0x7E, 0x7F, 0x7F, 0x00, 0x80]
    assert H200.cast(x, "e5m2").tolist() == [0x5F, 0x7B, 0xFB, 0x7B, 0x7F, 0x7F, 0x14, 0x80]
    assert H200.cast(x[3:6], "bf16").tolist() == [0x7F80, 0x7FFF, 0x7FFF]
    assert H200.cast(x[3:6], "fp16").tolist() == [0x7C00, 0x7FFF, 0x7FFF]
    tie = np.array([1 + 2.0**-11], np.float32)
    assert H200.cast(tie, "tf32")[0] == (1 + np.float32(2.0**-10)).view(np.uint32)
    assert H200.cast(np.float32(1 + 2.0**-8 + 2.0**-9), "bf16", rounding="rtz") == 0x3F80
    assert H200.cast(np.ones(2, np.float16), np.float16).dtype == np.uint16


def test_casts_that_are_refused():
    refuses(ValueError, lambda: H200.cast(X, "e4m3"), "ambiguous", "e4m3fn")
    refuses(ValueError, lambda: H200.cast(X, "e4m3fnn"), "e4m3fn")
    refuses(ValueError, lambda: H200.cast(X, "e4m3fn", rounding="rtz"), "rounding='rtz'", "rne")
    refuses(ValueError, lambda: H200.cast(X, "tf32", rounding="rne"), "rounding='rne'", "rna")
    refuses(lp.NotModelled, lambda: H200.cast(X, "fp32"), "h200", "fp32")
    refuses(lp.NotModelled, lambda: H200.cast(X, Format(6, 3, 3)), "h200")
    refuses(TypeError, lambda: H200.cast(np.ones(9), "bf16"), "float64", "float32")


# Sums ---------------------------------------------------------------------------------------------------


def test_row_sums_in_the_order_named():
    x = np.random.default_rng(3).normal(size=(2, 5, 64)).astype(np.float32)

    def wgmma(row):  # thread t: columns 8j + 2t, 8j + 2t + 1; then butterflies 2, 1
        lanes = [np.float32(0)] * 4
        for t in range(4):
            total = np.float32(row[2 * t])
            for c in (c for c in range(64) if c % 8 // 2 == t and c != 2 * t):
                total = np.float32(total + row[c])
            lanes[t] = total
        return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])

    same(H200.sum(x), np.array([[wgmma(row) for row in rows] for rows in x], np.float32))
    sequential = H200.sum(x, order="sequential")
    assert (sequential[0, 0], sequential.shape) == (np.add.accumulate(x[0, 0])[-1], (2, 5))
    assert (sequential != H200.sum(x)).any()
    refuses(ValueError, lambda: H200.sum(x, order="wgma"), "order='wgma'", "Did you mean 'wgmma'")
    refuses(ValueError, lambda: H200.sum(x[..., :60]), "60", "divide")
    refuses(ValueError, lambda: H200.sum(np.float32(1.0)), "()")


# Dots: the bits are tested in test_dots; here, what the face takes ---------------------------------------------


def operands(dtype=ml_dtypes.bfloat16):
    rng = np.random.default_rng(4)
    return rng.normal(size=(2, 5, 40)).astype(dtype), rng.normal(size=(2, 40, 3)).astype(dtype)


def test_dots_in_every_spelling():
    a, b = operands()
    wanted = H200.dot(a, b)
    assert (wanted.dtype, wanted.shape) == (np.float32, (2, 5, 3))
    same(H200.dot(a.astype(np.float32), b.astype(np.float32), fmt="bf16"), wanted)
    same(H200.dot(a.view(np.uint16), b.view(np.uint16), fmt="bf16"), wanted)
    same(H200.dot(a.view(np.uint16), b, a_fmt="bf16"), wanted)
    same(H200.dot(a[0], b[0]), wanted[0])
    same(H200.dot(a, b, np.zeros((2, 5, 3), np.float32)), wanted)
    padded = [
        np.concatenate([a, np.zeros((2, 5, 8), a.dtype)], 2),
        np.concatenate([b, np.zeros((2, 8, 3), b.dtype)], 1),
    ]
    same(H200.dot(*padded), wanted)
    exact = a.astype(float) @ b.astype(float)
    assert np.abs(wanted - exact).max() < 1e-4


def test_tf32_cuts_and_fp8_knows_its_path():
    a, b = operands(np.float32)
    cut = [(x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b)]
    same(H200.dot(a, b, fmt="tf32"), H200.dot(*cut, fmt="tf32"))
    a, b = operands(ml_dtypes.float8_e4m3fn)
    assert (H200.dot(a, b) != H200.dot(a, b, path="mma")).any()


def test_dots_that_are_refused():
    a, b = operands()
    wide = a.astype(np.float32)
    refuses(TypeError, lambda: H200.dot(wide, b), "a", "float32", "fmt=")
    refuses(TypeError, lambda: H200.dot(a.view(np.uint16), b), "a", "codes need fmt=")
    refuses(ValueError, lambda: H200.dot(wide + np.float32(1e-6), b, a_fmt="bf16"), "a[0, 0, 0]", "bf16", "lp.round")
    refuses(TypeError, lambda: H200.dot(a, b, np.zeros((2, 5, 3))), "c", "float64", "float32")
    refuses(ValueError, lambda: H200.dot(a, b, path="wgma"), "path='wgma'", "wgmma")
    refuses(ValueError, lambda: H200.dot(a, b, fmt="bf61"), "bf61", "bf16")
    refuses(lp.NotModelled, lambda: H200.dot(a, b.astype(np.float16)), "bf16 x fp16")
    for other in (b[:, :39], b[0, 0], np.ones((3, 40, 3), b.dtype)):
        with pytest.raises(ValueError, match=r"shape|dimension|\("):
            H200.dot(a, other)
    for x in (np.ones((5, 40), int), np.ones((5, 40), complex), np.ones((5, 40), object)):
        refuses(TypeError, lambda x=x: H200.dot(x, b), "a has dtype")


def test_the_recordings_have_names():
    assert {"dtype", "inputs"} <= set(data.description("flash_forward")[0])

"""Torch tensors in, torch tensors out, with the same bits; what of torch is refused."""

import ml_dtypes
import numpy as np
import pytest

import lpsim as lp
from lpsim import data

X = np.random.default_rng(0).normal(size=(6, 10)).astype(np.float32)
PAIRS = [
    ("bfloat16", ml_dtypes.bfloat16),
    ("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
    ("float8_e5m2", ml_dtypes.float8_e5m2),
]
PAIRS += [("float16", np.float16), ("float32", np.float32), ("float64", np.float64)]


def bits(torch, tensor) -> np.ndarray:
    """The memory of a tensor as unsigned integers."""
    assert isinstance(tensor, torch.Tensor)
    size = tensor.element_size()
    carrier = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    return tensor.contiguous().view(carrier).numpy().view(f"u{size}")


def same(torch, tensor, array) -> None:
    array = np.ascontiguousarray(array)
    assert (bits(torch, tensor) == array.view(f"u{array.dtype.itemsize}")).all()
    assert tuple(tensor.shape) == array.shape


@pytest.mark.parametrize(("name", "dtype"), PAIRS)
def test_every_float_dtype(torch, name, dtype):
    x = X.astype(dtype)
    tensor = torch.from_numpy(X).to(getattr(torch, name))
    for fmt in ("e5m2", "bf16", "fp16"):
        same(torch, lp.encode(tensor, fmt), lp.encode(x, fmt))
        same(torch, lp.add(tensor, tensor, fmt), lp.add(x, x, fmt))
    same(torch, lp.encode(tensor.T, "bf16"), lp.encode(x.T, "bf16"))
    same(torch, lp.encode(tensor[::2, 1::3], "bf16"), lp.encode(x[::2, 1::3], "bf16"))
    assert lp.encode(tensor, torch.bfloat16).dtype == torch.uint16


def test_round_keeps_dtype_shape_and_input(torch):
    for name in ("bfloat16", "float32", "float64"):
        tensor = torch.from_numpy(X.copy()).to(getattr(torch, name))
        before = tensor.clone()
        rounded = lp.round(tensor, "e4m3fn", overflow="satfinite")
        assert rounded.dtype == tensor.dtype
        assert torch.equal(tensor, before)
    assert lp.round(torch.tensor(3.14159), "bf16").item() == 3.140625
    assert lp.round(torch.empty(0, 3), "bf16").shape == (0, 3)


def test_torchs_own_casts_are_witnesses(torch):
    """float32 to bf16 and fp16 in torch, edges included, rounds to nearest even."""
    codes = np.random.default_rng(1).integers(0, 1 << 32, 20000, dtype=np.uint32)
    x = codes.view(np.float32)[np.isfinite(codes.view(np.float32))]
    for name, fmt in (("bfloat16", "bf16"), ("float16", "fp16")):
        wanted = torch.from_numpy(x).to(getattr(torch, name))
        same(torch, lp.encode(torch.from_numpy(x), fmt), bits(torch, wanted))


def test_codes(torch):
    codes = np.arange(256, dtype=np.uint8)
    same(torch, lp.decode(torch.from_numpy(codes), "e4m3fn"), lp.decode(codes, "e4m3fn"))
    stored = torch.from_numpy(codes).view(torch.float8_e4m3fn)
    same(torch, lp.decode(stored, "e4m3fn"), lp.decode(codes, "e4m3fn"))
    same(torch, lp.convert(stored, torch.float8_e4m3fn, torch.bfloat16), lp.convert(codes, "e4m3fn", "bf16"))


def test_integers(torch):
    x = np.array([-(2**62) - 1, 0, 3, 2**53 + 1])
    same(torch, lp.encode(torch.from_numpy(x), "fp32"), lp.encode(x, "fp32"))


def test_gradients_are_left_behind(torch):
    tensor = torch.from_numpy(X.copy()).requires_grad_()
    rounded = lp.round(tensor, "bf16")
    assert not rounded.requires_grad
    same(torch, rounded, lp.round(X, "bf16"))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda torch: torch.ones(2, dtype=torch.complex64), "complex"),
        (lambda torch: torch.ones(2, dtype=torch.int32), "int32"),
        (lambda torch: torch.ones(2, dtype=torch.bool), "bool"),
        (lambda torch: torch.ones(2, dtype=torch.uint8), "codes"),
    ],
)
def test_values_must_be_floats(torch, make, words):
    with pytest.raises(TypeError, match=words):
        lp.round(make(torch), "bf16")


def test_other_devices_are_refused(torch):
    with pytest.raises(ValueError, match=r"x is a tensor on meta.*x\.cpu\(\)"):
        lp.round(torch.empty(3, device="meta"), "bf16")


def test_layouts_that_have_no_memory_are_refused(torch):
    with pytest.raises((TypeError, ValueError)):
        lp.round(torch.eye(3).to_sparse(), "bf16")


def test_out_is_a_numpy_array(torch):
    with pytest.raises(TypeError, match="out"):
        lp.encode(X, "bf16", out=torch.empty(6, 10))


def test_the_machine(torch):
    h200 = lp.machine("h200")
    tensor = torch.from_numpy(X)
    same(torch, h200.exp2(tensor), h200.exp2(X))
    same(torch, h200.div(tensor, tensor[:1]), h200.div(X, X[:1]))
    same(torch, h200.cast(tensor, torch.float8_e4m3fn), h200.cast(X, "e4m3fn"))
    x = np.random.default_rng(2).normal(size=(4, 16)).astype(np.float32)
    same(torch, h200.sum(torch.from_numpy(x)), h200.sum(x))
    a = torch.from_numpy(x).bfloat16()
    found = h200.dot(a, a.T)
    assert found.dtype == torch.float32
    same(torch, found, h200.dot(x.astype(ml_dtypes.bfloat16), x.astype(ml_dtypes.bfloat16).T))


@pytest.mark.parametrize("number", [0, 2, 4])
def test_recorded_attention_through_torch(torch, number):
    """An H200's bits, from tensors: bfloat16 or float16 in and out; m, l and lse float32 tensors."""
    case = data.description("flash_forward")[number]
    run = {key.partition("_")[2]: x for key, x in data.arrays("flash_forward").items() if key.startswith(f"{number}_")}
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[case["dtype"]]
    qkv = [torch.from_numpy(run[name].view(np.int16)).view(dtype) for name in "qkv"]
    options = {"causal": case["causal"], "block": (case["block_m"], case["block_n"])}
    found = lp.attention.forward(*qkv, **options)
    assert found.o.dtype == dtype
    assert (bits(torch, found.o) == run["o"]).all()
    for name in ("m", "l"):
        assert (bits(torch, getattr(found, name)) == run[name].view(np.uint32)).all()
    assert found.lse.dtype == torch.float32
    wide = [x.float() for x in qkv]
    again = lp.attention.forward(*wide, **options, fmt=case["dtype"])
    assert again.o.dtype == torch.float32
    assert torch.equal(again.o.to(dtype), found.o)


def test_recipes_through_torch(torch):
    x = np.random.default_rng(3).normal(size=(2, 16, 16)).astype(np.float32).astype(ml_dtypes.bfloat16)
    tensor = torch.from_numpy(x.astype(np.float32)).bfloat16()
    for recipe in ("paper", "exact"):
        found = lp.attention.forward(tensor, tensor, tensor, recipe=recipe)
        wanted = lp.attention.forward(x, x, x, recipe=recipe)
        for name in ("o", "m", "l", "lse"):
            same(torch, getattr(found, name), getattr(wanted, name))

"""encode, round and decode on CUDA tensors: what they refuse anywhere, their shapes, and their bits on a GPU."""

import re

import numpy as np
import pytest

import lpsim as lp
from lpsim.formats import FORMATS, Format

NOISE = lp.stochastic(bits=16, seed=-1, stream=1, step=1)


@pytest.fixture
def fake(torch):
    """Tensors with a shape, a dtype and a device, but no data."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        yield torch


def tensor(torch, dtype="float32", device="cuda", shape=(3, 5)):
    return torch.empty(*shape, dtype=getattr(torch, dtype), device=device)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_shapes_and_dtypes(fake, dtype):
    import lpsim_triton

    x = tensor(fake, dtype)
    for fmt, codes in (("e4m3fn", fake.uint8), ("bf16", fake.uint16), ("tf32", fake.uint32), ("binary8p3", fake.uint8)):
        found = lpsim_triton.encode(x, fmt, rounding=NOISE)
        assert (found.shape, found.dtype, found.device.type) == (x.shape, codes, "cuda")
    if dtype.startswith(("float64", "float32", "float16")):
        assert lpsim_triton.round(x, "e4m3fn").dtype == x.dtype
    assert lpsim_triton.decode(tensor(fake, "uint16"), "bf16").dtype == fake.float32
    assert lpsim_triton.decode(tensor(fake, "bfloat16"), "bf16").dtype == fake.float32
    assert lpsim_triton.decode(tensor(fake, "uint16"), "binary12p2").dtype == fake.float64


def test_out_is_returned(fake):
    import lpsim_triton

    x, out = tensor(fake), tensor(fake, "uint8")
    assert lpsim_triton.encode(x, "e4m3fn", out=out) is out


@pytest.mark.filterwarnings("default")  # torch.compile warns about what torch itself calls
def test_compiled_as_one_graph(fake):
    import lpsim_triton

    def layer(x):
        codes = lpsim_triton.encode(x * 2, "e4m3fn", overflow="satfinite", rounding=NOISE)
        return lpsim_triton.round(lpsim_triton.decode(codes, "e4m3fn") + 1, "bf16")

    found = fake.compile(layer, backend="aot_eager", fullgraph=True)(tensor(fake))
    assert (found.shape, found.dtype) == ((3, 5), fake.float32)


#: name -> error, its words, function, options of the tensor, and of the call
WRONG = {
    "cpu": (ValueError, "x is on cpu: the kernels need a CUDA tensor", "encode", {"device": "cpu"}, {}),
    "integers": (TypeError, "x has dtype torch.int32; allowed: torch.bfloat16", "encode", {"dtype": "int32"}, {}),
    "codes": (TypeError, "x has dtype torch.uint8", "round", {"dtype": "uint8"}, {}),
    "values": (TypeError, "codes has dtype torch.float32; allowed: torch.uint8, torch.float8_e4m3fn", "decode", {}, {}),
    "fmt": (ValueError, "fmt='e4m3fm' is not known. Did you mean 'e4m3fn'", "encode", {}, {"fmt": "e4m3fm"}),
    "fp64": (ValueError, "a source of values only", "encode", {}, {"fmt": "fp64"}),
    "grid": (ValueError, "cannot hold the values of fp16", "round", {"dtype": "bfloat16"}, {"fmt": "fp16"}),
    "rounding": (ValueError, "rounding='up' is not known", "encode", {}, {"rounding": "up"}),
    "overflow": (ValueError, "overflow='wrap' is not known", "encode", {}, {"overflow": "wrap"}),
    "out dtype": (ValueError, "out must be a torch.uint8 tensor of shape (3, 5)", "encode", {}, {"out": "int32"}),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls(fake, name):
    import lpsim_triton

    error, words, function, given, options = WRONG[name]
    options = {"fmt": "e4m3fn", **options}
    if "out" in options:
        options["out"] = tensor(fake, options["out"])
    with pytest.raises(error, match=re.escape(words)):
        getattr(lpsim_triton, function)(tensor(fake, **given), **options)


def test_arrays_and_wrong_words_are_refused(fake):
    import lpsim_triton

    with pytest.raises(TypeError, match=r"x must be a torch.Tensor, got ndarray"):
        lpsim_triton.encode(np.ones(3), "bf16")
    noise = lp.stochastic(bits=3, words=np.zeros((2, 2), int))
    with pytest.raises(ValueError, match="words has shape"):
        lpsim_triton.encode(tensor(fake), "bf16", rounding=noise)


def same_bits(torch, found, wanted) -> bool:
    found, wanted = found.cpu().numpy(), np.asarray(wanted)
    return found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("fmt", [*(name for name in FORMATS if name != "fp64"), Format(11, 5, 20, nans=2, infinity=1)])
def test_live_bits(gpu, fmt):
    import lpsim_triton

    gpu.manual_seed(0)
    x = gpu.randn(700, 33, device="cuda") * gpu.exp2(gpu.randint(-20, 20, (700, 33), device="cuda"))
    for rounding in ("rne", "rtp", NOISE, lp.stochastic(bits=29, seed=1, stream=2, variant="C", offset=5)):
        rules = {"rounding": rounding, "overflow": "satfinite", "nan": "nvidia"}
        for given in (x, x.t(), x.double()[::3, 1:], x[0, 0], x[:0]):
            host = given.cpu().numpy()
            assert same_bits(gpu, lpsim_triton.encode(given, fmt, **rules), lp.encode(host, fmt, **rules))
            assert same_bits(gpu, lpsim_triton.round(given, fmt, **rules), lp.round(host, fmt, **rules))
    codes = lpsim_triton.encode(x, fmt, overflow="satfinite", nan="nvidia")
    assert same_bits(gpu, lpsim_triton.decode(codes, fmt), lp.decode(codes.cpu().numpy(), fmt))


def test_live_words_outputs_and_lost_answers(gpu):
    import lpsim_triton

    x = gpu.linspace(-5, 5, 4096, device="cuda").reshape(64, 64)
    given = lp.stochastic(bits=3, words=np.arange(4096).reshape(64, 64) % 8)
    assert same_bits(
        gpu, lpsim_triton.encode(x, "e2m1", rounding=given), lp.encode(x.cpu().numpy(), "e2m1", rounding=given)
    )
    out = gpu.empty(64, 64, dtype=gpu.uint8, device="cuda").t()
    assert lpsim_triton.encode(x, "e2m1", out=out) is out
    assert same_bits(gpu, out.contiguous(), lp.encode(x.cpu().numpy(), "e2m1"))
    with pytest.raises(ValueError, match="neither NaN nor infinity"):
        lpsim_triton.encode(x * float("nan"), "e2m1")


@pytest.mark.filterwarnings("default")
def test_live_compiled_and_eager_agree(gpu):
    import lpsim_triton

    def layer(x):
        codes = lpsim_triton.encode(x * 2, "e4m3fn", overflow="satfinite", rounding=NOISE)
        return lpsim_triton.round(lpsim_triton.decode(codes, "e4m3fn") + 1, "bf16")

    x = gpu.randn(1000, 7, device="cuda")
    assert gpu.equal(gpu.compile(layer, fullgraph=True)(x), layer(x))

"""The attention kernels: recorded bits against the emulator anywhere, live ones where there is a GPU."""

import re

import numpy as np
import pytest

import lpsim as lp
from lpsim import data
from lpsim.recipes import dynamic, lazy
from lpsim_triton import attention_cases as cases
from lpsim_triton import attention_crosscheck as crosscheck
from lpsim_triton.remedies import Remedy

CONFIGS = cases.configurations()
REPORT = data.description("attention_live")
RECORDED = data.arrays("attention_live")
INDICES = sorted({int(name.split("_")[0]) for name in RECORDED})


@pytest.mark.parametrize("index", INDICES)
def test_the_emulator_gives_the_recorded_bits(index):
    want = crosscheck.emulated(index, CONFIGS[index])
    got = {name: RECORDED[f"{index}_{name}"] for name in crosscheck.results_of(CONFIGS[index])}
    assert wrong(index, got, want) == dict.fromkeys(got, 0)


def wrong(index, got, want):
    assert set(got) == set(want)
    return {name: crosscheck.differing(got[name], want[name], CONFIGS[index].dtype) for name in got}


def test_the_recordings_cover_what_users_vary():
    chosen = [CONFIGS[index] for index in INDICES]
    special = {cases.TIED_AND_HUGE, cases.NON_FINITE, cases.ALL_MINUS_INFINITY}
    special |= {cases.KEY_AT_MINUS_INFINITY, cases.UNDERFLOWING, cases.VALUES_AT_FAULT}
    assert {c.remedy for c in chosen} == set(cases.REMEDIES)
    assert {c.inputs for c in chosen} == {*cases.INPUTS, *special}
    assert {c.dtype for c in chosen} == set(cases.ALL_DTYPES)
    assert {c.causal for c in chosen} == {False, True}
    assert {c.keys for c in chosen} == {16, 32, 64, 128}
    assert {16, 32, 64, 128} <= {c.d for c in chosen}
    assert {c.mask for c in chosen} == {"", *cases.MASKS}
    assert any(c.left >= 0 and c.right > 0 for c in chosen)
    assert any(c.heads > c.kv_heads for c in chosen)
    assert any(c.n % 64 for c in chosen)


def test_the_committed_report_is_of_these_configurations_and_finds_no_difference():
    listed = [{name: row[name] for name in crosscheck.Config._fields} for row in REPORT["rows"]]
    assert listed == [config._asdict() for config in CONFIGS]
    assert len(CONFIGS) >= 200
    assert [row for row in REPORT["rows"] if any(wrong for _, wrong in row["values_and_differing"].values())] == []
    assert REPORT["differing"] == 0
    assert REPORT["values"] == sum(n for row in REPORT["rows"] for n, _ in row["values_and_differing"].values())
    assert {"device", "driver", "torch", "triton", "ptxas"} <= set(REPORT)


def test_differing_sees_one_bit_and_takes_every_nan_for_the_same():
    a = np.array([1.0, -0.0, np.nan, 2.0], np.float32)
    b = np.array([1.0, 0.0, -np.nan, np.nextafter(np.float32(2), np.float32(3))], np.float32)
    assert crosscheck.differing(a, a.copy(), "bf16") == 0
    assert crosscheck.differing(a, b, "bf16") == 2
    codes = np.array([0x3F80, 0x7FC0, 0x0000], np.uint16)
    assert crosscheck.differing(codes, np.array([0x3F81, 0xFFFF, 0x8000], np.uint16), "bf16") == 2
    with pytest.raises(ValueError, match="against"):
        crosscheck.differing(a, a[:3], "bf16")


def test_inputs_are_what_their_names_say():
    find = {config.inputs: (index, config) for index, config in enumerate(CONFIGS)}
    _, k, _, _ = cases.inputs(*find["identical"])
    assert np.array_equal(k, np.broadcast_to(k[..., :1, :], k.shape))
    _, k, v, _ = cases.inputs(*find["ties"])
    assert np.array_equal(k[..., 0::2, :], k[..., 1::2, :])
    assert (v < 0).all()
    assert (cases.inputs(*find["one-signed"])[2] < 0).all()
    assert not all(np.isfinite(x.astype(np.float32)).all() for x in cases.inputs(*find["non-finite"]))
    draws = cases.normals(7, 0, (20000,))
    assert abs(draws.mean()) < 5 / np.sqrt(draws.size)  # five standard errors
    assert abs(draws.std() - 1) < 0.03
    assert not np.array_equal(draws, cases.normals(7, 1, (20000,)))
    masks = {config.mask: cases.mask(index, config) for index, config in enumerate(CONFIGS) if config.n == 200}
    assert masks[""] is None
    assert not masks["some"].any(-1).all()  # rows that see no key
    assert (masks["bias"] == -np.inf).all(-1).any()
    assert np.isfinite(masks["bias16"]).all()


def test_a_report_is_written_as_json(tmp_path):
    index = INDICES[0]
    got = {index: {name: RECORDED[f"{index}_{name}"] for name in crosscheck.results_of(CONFIGS[index])}}
    want = {index: {name: x.copy() for name, x in got[index].items()}}
    path = tmp_path / "report.json"
    crosscheck.write_report(crosscheck.compare(got, want, {"device": "none"}), path)
    report = crosscheck.json.loads(path.read_text())
    assert (report["configurations"], report["differing"]) == (1, 0)
    want[index]["o"].reshape(-1)[:3] ^= 1
    assert crosscheck.compare(got, want, {})["differing"] == 3
    crosscheck.keep(got, tmp_path / "kept.npz")
    with np.load(tmp_path / "kept.npz") as kept:
        assert set(kept.files) == {f"{index}_{name}" for name in got[index]}


def noise(**changes):
    return Remedy(rounding=lp.stochastic(**({"bits": 16, "seed": 0, "stream": 1} | changes)))


WRONG_CALLS = {
    "mask type": (TypeError, "attn_mask must be a torch.Tensor or None, got int", {"attn_mask": 1}),
    "mask dtype": (TypeError, "attn_mask has dtype torch.float16", {"mask": (32, 32), "mask_dtype": "float16"}),
    "mask shape": (ValueError, "attn_mask has shape (3, 32), which does not broadcast", {"mask": (3, 32)}),
    "mask dimensions": (ValueError, "which does not broadcast", {"mask": (1, 1, 1, 32, 32)}),
    "mask device": (ValueError, "attn_mask is on cpu, query on cuda", {"mask": (32, 32), "mask_device": "cpu"}),
    "mask gradient": (NotImplementedError, "attn_mask requires grad", {"mask": (32, 32), "mask_grad": True}),
    "window": (ValueError, "window=(-1, 3) must not be negative", {"window": (-1, 3)}),
    "window type": (TypeError, "window=1.5 must be an int or two ints", {"window": 1.5}),
    "dropout": (NotImplementedError, "dropout_p=0.1", {"dropout_p": 0.1}),
    "remedy": (ValueError, "remedy='cure' is not known.", {"remedy": "cure"}),
    "remedy near": (ValueError, "Did you mean 'guarded'", {"remedy": "guardd"}),
    "causal": (TypeError, "is_causal='no' must be True or False", {"is_causal": "no"}),
    "gqa type": (TypeError, "enable_gqa=1 must be True or False", {"enable_gqa": 1}),
    "scale too small": (ValueError, "scale=1e-300, those of query and key included", {"scale": 1e-300}),
    "scale too large": (ValueError, "scale=3e+38, those of query and key included", {"scale": 3e38}),
    "remedy type": (TypeError, "must be None, a name or", {"remedy": 3}),
    "keys": (ValueError, "Remedy.keys=48 must be one of", {"remedy": Remedy(keys=48)}),
    "delta": (ValueError, "Remedy.delta_from='dP' is not known. Allowed: O, O32", {"remedy": Remedy(delta_from="dP")}),
    "l": (ValueError, "Remedy.l_from='P' is not known. Allowed: exact, rounded", {"remedy": Remedy(l_from="P")}),
    "maximum": (TypeError, "Remedy.maximum=2.0 must be", {"remedy": Remedy(maximum=2.0)}),  # pyright: ignore
    "lazy": (NotImplementedError, "no lazy rescaling", {"remedy": Remedy(lazy(4.0))}),
    "rounding": (TypeError, "Remedy.rounding='rtz' must be None or", {"remedy": Remedy(rounding="rtz")}),  # pyright: ignore
    "rounding bits": (NotImplementedError, "at most 16 bits", {"remedy": noise(bits=17)}),
    "rounding variant": (NotImplementedError, "variant A", {"remedy": noise(variant="B")}),
    "rounding offset": (NotImplementedError, "multiple of 8", {"remedy": noise(offset=4)}),
    "scale": (ValueError, "scale=-1.0 must be positive", {"scale": -1.0}),
    "scale type": (TypeError, "must be a Python number or None", {"scale": True}),
    "scales": (ValueError, "belong to float8 tensors", {"scales": (1.0, 1.0, 1.0)}),
    "scales type": (TypeError, "must be three numbers", {"scales": 2.0, "dtype": "float8_e4m3fn"}),
    "scales range": (ValueError, "scales[1]=0.0 must be", {"scales": (1.0, 0.0, 1.0), "dtype": "float8_e4m3fn"}),
    "float8 size": (ValueError, "32 products at a time", {"d": 16, "dtype": "float8_e4m3fn"}),
    "float8 keys": (ValueError, "Remedy.keys=16", {"remedy": Remedy(keys=16), "dtype": "float8_e4m3fn"}),
    "float8 gradient": (NotImplementedError, "no gradients", {"dtype": "float8_e4m3fn", "grad": True}),
    "gqa": (ValueError, "4 heads need 4 key heads", {"kv_heads": 2}),
    "gqa divides": (ValueError, "4 heads need 4 key heads", {"kv_heads": 3, "enable_gqa": True}),
    "head size": (ValueError, "one of (16, 32, 64, 128, 256)", {"d": 48}),
    "empty": (ValueError, "empty attention", {"n": 0}),
    "dtype": (TypeError, "dtype torch.float32", {"dtype": "float32"}),
    "device": (ValueError, "the kernels need a CUDA tensor", {"device": "cpu"}),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_what_the_kernels_cannot_do_is_said(torch, name):
    from torch._subclasses.fake_tensor import FakeTensorMode

    from lpsim_triton.functional import scaled_dot_product_attention

    error, words, changes = WRONG_CALLS[name]
    given = {"n": 32, "d": 64, "kv_heads": 4, "dtype": "bfloat16", "device": "cuda"} | changes
    n, d, kv_heads, dtype, device = (given.pop(key) for key in ("n", "d", "kv_heads", "dtype", "device"))
    shape, grad = given.pop("mask", None), given.pop("grad", False)
    of_mask = {"dtype": given.pop("mask_dtype", "float32"), "device": given.pop("mask_device", device)}
    of_mask["requires_grad"] = given.pop("mask_grad", False)
    with FakeTensorMode():  # shapes and devices without data: no GPU is needed
        q = torch.empty(2, 4, n, d, dtype=getattr(torch, dtype), device=device, requires_grad=grad)
        if shape is not None:
            given["attn_mask"] = torch.empty(shape, **(of_mask | {"dtype": getattr(torch, of_mask["dtype"])}))
        k = torch.empty(2, kv_heads, n, d, dtype=getattr(torch, dtype), device=device)
        with pytest.raises(error, match=re.escape(words)):
            scaled_dot_product_attention(q, k, k, **given)


def test_shapes_without_a_gpu(torch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    from lpsim_triton.functional import _backward, _forward, scaled_dot_product_attention

    remedy = Remedy(dynamic(2.0), delta_from="pair", rounding=lp.stochastic(bits=9, seed=-1, stream=0, step=2))
    with FakeTensorMode():
        q = torch.empty(3, 2, 4, 64, 32, device="cuda", dtype=torch.bfloat16)
        k = torch.empty(3, 2, 2, 48, 32, device="cuda", dtype=torch.bfloat16)
        for mask_shape in ((48,), (64, 48), (4, 1, 1), (2, 1, 64, 1), (3, 1, 4, 64, 48)):
            mask = torch.empty(mask_shape, device="cuda", dtype=torch.bool)
            o = scaled_dot_product_attention(q, k, k, mask, enable_gqa=True, remedy=remedy, window=(3, 40))
            assert (o.shape, o.dtype, o.device.type) == (q.shape, q.dtype, "cuda")
        small = scaled_dot_product_attention(*(x.to(torch.float8_e4m3fn) for x in (q, k, k)), enable_gqa=True)
        assert (small.shape, small.dtype) == (q.shape, torch.bfloat16)
        q = torch.empty(2, 4, 64, 32, device="cuda", dtype=torch.bfloat16)
        k = torch.empty(2, 2, 48, 32, device="cuda", dtype=torch.bfloat16)
        settings = (False, 0.1, 1.0, [], 64, 0.0, 0.0, False, "tile", "exact")
        o, wide, lse = _forward(q, k, k, None, *settings, "O32", [])
        assert (wide.shape, wide.dtype, lse.shape, lse.dtype) == (o.shape, torch.float32, (2, 4, 64), torch.float32)
        assert _forward(q, k, k, None, *settings, "pair", [])[1].dtype == q.dtype
        dq, dk, dv, delta = _backward(q, k, k, None, o, wide, lse, o, False, 0.1, [], 64, "O32")
        assert (dq.shape, dk.shape, dv.shape, delta.shape) == (q.shape, k.shape, k.shape, lse.shape)


@pytest.mark.parametrize("shape", [(48,), (64, 48), (4, 1, 1), (2, 1, 64, 1), (3, 1, 4, 64, 48), (3, 2, 1, 1, 48)])
def test_a_mask_is_flattened_as_query_is(torch, shape):
    from lpsim_triton import attention_arguments as arguments

    q, k = torch.empty(3, 2, 4, 64, 32), torch.empty(3, 2, 2, 48, 32)
    given = torch.arange(int(np.prod(shape))).reshape(shape).to(torch.float32)
    mask = arguments.mask(given, q, k)
    assert torch.equal(mask.expand(6, 4, 64, 48), given.expand(3, 2, 4, 64, 48).reshape(6, 4, 64, 48))

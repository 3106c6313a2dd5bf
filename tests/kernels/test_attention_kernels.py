"""The attention kernels: recorded bits against the emulator anywhere, live ones where there is a GPU."""

import re

import numpy as np
import pytest

from lpsim import data
from lpsim.recipes import dynamic, lazy
from lpsim_triton import attention_crosscheck as crosscheck
from lpsim_triton.remedies import Remedy

CONFIGS = crosscheck.configurations()
REPORT = data.description("attention_live")
RECORDED = data.arrays("attention_live")
INDICES = sorted({int(name.split("_")[0]) for name in RECORDED})


@pytest.mark.parametrize("index", INDICES)
def test_the_emulator_gives_the_recorded_bits(index):
    want = crosscheck.emulated(index, CONFIGS[index])
    got = {name: RECORDED[f"{index}_{name}"] for name in crosscheck.RESULTS}
    wrong = {name: crosscheck.differing(got[name], want[name], CONFIGS[index].dtype) for name in crosscheck.RESULTS}
    assert wrong == dict.fromkeys(crosscheck.RESULTS, 0)


def test_the_recordings_cover_what_users_vary():
    chosen = [CONFIGS[index] for index in INDICES]
    assert {c.remedy for c in chosen} == set(crosscheck.REMEDIES)
    assert {c.inputs for c in chosen} == {*crosscheck.INPUTS, crosscheck.TIED_AND_HUGE, crosscheck.NON_FINITE}
    assert {c.dtype for c in chosen} == set(crosscheck.DTYPES)
    assert {c.causal for c in chosen} == {False, True}
    assert {c.keys for c in chosen} == {16, 32, 64, 128}
    assert {16, 32, 64, 128} <= {c.d for c in chosen}
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
    _, k, _, _ = crosscheck.inputs(*find["identical"])
    assert np.array_equal(k, np.broadcast_to(k[..., :1, :], k.shape))
    _, k, v, _ = crosscheck.inputs(*find["ties"])
    assert np.array_equal(k[..., 0::2, :], k[..., 1::2, :])
    assert (v < 0).all()
    assert (crosscheck.inputs(*find["one-signed"])[2] < 0).all()
    assert not all(np.isfinite(x.astype(np.float32)).all() for x in crosscheck.inputs(*find["non-finite"]))
    draws = crosscheck.normals(7, 0, (20000,))
    assert abs(draws.mean()) < 5 / np.sqrt(draws.size)  # five standard errors
    assert abs(draws.std() - 1) < 0.03
    assert not np.array_equal(draws, crosscheck.normals(7, 1, (20000,)))


def test_a_report_is_written_as_json(tmp_path):
    results = iter([(INDICES[0], {name: RECORDED[f"{INDICES[0]}_{name}"] for name in crosscheck.RESULTS})])
    path = tmp_path / "report.json"
    crosscheck.write_report(crosscheck.compare(results, {"device": "none"}), path)
    report = crosscheck.json.loads(path.read_text())
    assert report["configurations"] == 1
    assert report["differing"] == 0


WRONG_CALLS = {
    "mask": (NotImplementedError, "attn_mask", {"attn_mask": 1}),
    "dropout": (NotImplementedError, "dropout_p=0.1", {"dropout_p": 0.1}),
    "remedy": (ValueError, "remedy='cure' is not known; known: dynamic", {"remedy": "cure"}),
    "remedy type": (TypeError, "must be None, a name or", {"remedy": 3}),
    "keys": (ValueError, "Remedy.keys=48 must be one of", {"remedy": Remedy(keys=48)}),
    "delta": (ValueError, "delta_from is 'O' or 'O32'", {"remedy": Remedy(delta_from="P")}),
    "scope": (NotImplementedError, "scope 'tile'", {"remedy": Remedy(dynamic(2.0, scope="row"))}),
    "lazy": (NotImplementedError, "no lazy rescaling", {"remedy": Remedy(lazy(4.0))}),
    "scale": (ValueError, "scale=-1.0 must be positive", {"scale": -1.0}),
    "scale type": (TypeError, "must be a Python number", {"scale": True}),
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
    with FakeTensorMode():  # shapes and devices without data: no GPU is needed
        q = torch.empty(2, 4, n, d, dtype=getattr(torch, dtype), device=device)
        k = torch.empty(2, kv_heads, n, d, dtype=getattr(torch, dtype), device=device)
        with pytest.raises(error, match=re.escape(words)):
            scaled_dot_product_attention(q, k, k, **given)


def test_shapes_without_a_gpu(torch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    from lpsim_triton import functional

    with FakeTensorMode():
        q = torch.empty(3, 2, 4, 64, 32, device="cuda", dtype=torch.bfloat16)
        k = torch.empty(3, 2, 2, 48, 32, device="cuda", dtype=torch.bfloat16)
        o = functional.scaled_dot_product_attention(q, k, k, enable_gqa=True, remedy="wide-o")
        assert (o.shape, o.dtype, o.device.type) == (q.shape, q.dtype, "cuda")
        q = torch.empty(2, 4, 64, 32, device="cuda", dtype=torch.bfloat16)
        k = torch.empty(2, 2, 48, 32, device="cuda", dtype=torch.bfloat16)
        o, wide, lse = functional._forward(q, k, k, False, 0.1, 64, 0.0, 0.0, False, "exact", True)
        assert (wide.shape, wide.dtype, lse.shape, lse.dtype) == (o.shape, torch.float32, (2, 4, 64), torch.float32)
        dq, dk, dv, delta = functional._backward(q, k, k, o, lse, o, False, 0.1)
        assert (dq.shape, dk.shape, dv.shape, delta.shape) == (q.shape, k.shape, k.shape, lse.shape)


@pytest.mark.parametrize("index", range(0, len(CONFIGS), 7))
def test_live_bits(gpu, index):
    got, want = crosscheck.on_gpu(index, CONFIGS[index]), crosscheck.emulated(index, CONFIGS[index])
    wrong = {name: crosscheck.differing(got[name], want[name], CONFIGS[index].dtype) for name in crosscheck.RESULTS}
    assert wrong == dict.fromkeys(crosscheck.RESULTS, 0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 128])
def test_no_tuning_changes_a_bit(gpu, d, causal):
    from lpsim_triton import attention_backward as backward
    from lpsim_triton import attention_forward as forward
    from lpsim_triton.attention_backward import Tile

    gpu.manual_seed(0)
    q, k, v, do = (gpu.randn(2, 2, 384, d, device="cuda").bfloat16() for _ in range(4))
    rule = forward.Rule(causal, d**-0.5, keys=64)
    one = forward.forward(q, k, v, rule, wide_o=True, tuning=forward.Tuning(64, 4, 2))
    for tuning in (forward.Tuning(128, 8, 3), forward.Tuning(128, 4, 2, overlapped=True)):
        other = forward.forward(q, k, v, rule, wide_o=True, tuning=tuning)
        assert all(gpu.equal(a, b) for a, b in zip(one, other, strict=True)), tuning
    o, _, lse = one
    tunings = (
        backward.Tuning(Tile(64, 64, 4, 1), Tile(64, 64, 4, 1), False),
        backward.Tuning(Tile(64, 64, 4, 1), Tile(64, 64, 4, 1), True),
        backward.Tuning(Tile(64, 128, 4, 2, True), Tile(128, 64, 4, 2, True), False),
        backward.Tuning(Tile(64, 128, 4, 2, True), Tile(128, 64, 4, 2), True),
    )
    results = [backward.backward(q, k, v, o, lse, do, rule, tuning=tuning) for tuning in tunings]
    for result, tuning in zip(results, tunings, strict=True):
        assert all(gpu.equal(a, b) for a, b in zip(results[0], result, strict=True)), tuning


def attention_gradients(torch, function, tensors, do):
    leaves = [x.detach().requires_grad_() for x in tensors]
    out = function(*leaves)
    return out.detach(), *torch.autograd.grad(out, leaves, do)


@pytest.mark.filterwarnings("default")  # torch.compile warns about what torch itself calls
@pytest.mark.parametrize("remedy", [None, "guarded", "wide-o"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_and_eager_gradients_agree(gpu, backend, remedy):
    from lpsim_triton.functional import scaled_dot_product_attention

    def layer(q, k, v):
        return scaled_dot_product_attention(q * 1, k, v, is_causal=True, enable_gqa=True, remedy=remedy) * 1

    gpu.manual_seed(0)
    # transposed, as a linear layer gives them; two query heads read one key head
    q, do = (gpu.randn(2, 200, 4, 64, device="cuda").bfloat16().transpose(1, 2) for _ in range(2))
    k, v = (gpu.randn(2, 200, 2, 64, device="cuda").bfloat16().transpose(1, 2) for _ in range(2))
    eager = attention_gradients(gpu, layer, (q, k, v), do)
    gpu._dynamo.reset()
    compiled = attention_gradients(gpu, gpu.compile(layer, backend=backend, fullgraph=True), (q, k, v), do)
    assert all(gpu.equal(a, b) for a, b in zip(eager, compiled, strict=True))
    assert all(x.abs().amax() > 0 for x in eager)
    plain = attention_gradients(gpu, layer, [x.contiguous() for x in (q, k, v)], do.contiguous())
    assert all(gpu.equal(a, b) for a, b in zip(eager, plain, strict=True))

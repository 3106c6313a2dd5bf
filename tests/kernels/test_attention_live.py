"""The attention kernels on a GPU: bits, tunings, torch.compile. Skipped where there is none."""

import numpy as np
import pytest

import lpsim as lp
from lpsim_triton import attention_cases as cases
from lpsim_triton import attention_crosscheck as crosscheck
from lpsim_triton.remedies import Remedy

CONFIGS = cases.configurations()
STOCHASTIC = Remedy(delta_from="pair", rounding=lp.stochastic(bits=16, seed=-3, stream=1))


@pytest.mark.parametrize("index", range(0, len(CONFIGS), 7))
def test_live_bits(gpu, index):
    got, want = crosscheck.on_gpu(index, CONFIGS[index]), crosscheck.emulated(index, CONFIGS[index])
    assert {name: crosscheck.differing(got[name], want[name], CONFIGS[index].dtype) for name in want} == dict.fromkeys(
        got, 0
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 128])
def test_no_tuning_changes_a_bit(gpu, d, causal):
    from lpsim_triton import attention_backward as backward
    from lpsim_triton import attention_forward as forward
    from lpsim_triton.attention_backward import Tile

    gpu.manual_seed(0)
    q, k, v, do = (gpu.randn(2, 2, 384, d, device="cuda").bfloat16() for _ in range(4))
    rule = forward.Rule(causal, d**-0.5, keys=64, delta_from="O32")
    one = forward.forward(q, k, v, rule, tuning=forward.Tuning(64, 4, 2))
    for tuning in (forward.Tuning(128, 8, 3), forward.Tuning(128, 4, 2, overlapped=True)):
        other = forward.forward(q, k, v, rule, tuning=tuning)
        assert all(gpu.equal(a, b) for a, b in zip(one, other, strict=True)), tuning
    tunings = (
        backward.Tuning(Tile(64, 64, 4, 1), Tile(64, 64, 4, 1), False),
        backward.Tuning(Tile(64, 64, 4, 1), Tile(64, 64, 4, 1), True),
        backward.Tuning(Tile(64, 128, 4, 2, True), Tile(128, 64, 4, 2, True), False),
        backward.Tuning(Tile(64, 128, 4, 2, True), Tile(128, 64, 4, 2), True),
    )
    results = [backward.backward(q, k, v, *one, do, rule, tuning=tuning) for tuning in tunings]
    for result, tuning in zip(results, tunings, strict=True):
        assert all(gpu.equal(a, b) for a, b in zip(results[0], result, strict=True)), tuning


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("n", "d"), [(384, 64), (384, 128), (400, 64), (400, 128), (400, 256)])
def test_no_tuning_changes_a_bit_of_gradients_beside_nan(gpu, n, d, causal):
    """Rows whose o is NaN and a v that is infinite, lengths that tiles divide and not: the plain and the overlapped
    kernels give a NaN to the same keys, those that such a row sees."""
    from lpsim_triton import attention_backward as backward
    from lpsim_triton import attention_forward as forward
    from lpsim_triton.attention_backward import Tile

    gpu.manual_seed(0)
    q, k, v, do = (gpu.randn(2, 2, n, d, device="cuda").bfloat16() for _ in range(4))
    rule = forward.Rule(causal, d**-0.5, keys=64)
    o, more, lse = forward.forward(q, k, v, rule)
    o[0, 1, 70], o[1, 0, 199], v[1, 1, 300, 5] = np.nan, np.nan, np.inf
    plain = Tile(32, 64, 8 if d == 256 else 4, 1), Tile(64, 32, 4, 1)
    tunings = [backward.Tuning(*plain, False)]
    if d <= 128:
        tunings += [
            backward.Tuning(Tile(64, 64, 4, 1), Tile(64, 64, 4, 1), True),
            backward.Tuning(Tile(128 if d == 64 else 64, 128, 4, 2, True), Tile(128, 64, 4, 2, True), False),
            backward.Tuning(Tile(64, 128, 4, 2, True), Tile(128, 64, 4, 2), True),
        ]
    results = [backward.backward(q, k, v, o, more, lse, do, rule, tuning=tuning) for tuning in tunings]
    for result, tuning in zip(results, tunings, strict=True):
        for a, b in zip(results[0], result, strict=True):
            assert gpu.equal(a.isnan(), b.isnan()), tuning
            assert gpu.equal(a[~a.isnan()], b[~b.isnan()]), tuning
    dq, dk, dv, _ = results[0]
    seen = 71 if causal else n
    assert dk[0, 1, :seen].isnan().all()
    assert not dk[0, 1, seen:].isnan().any()
    assert dq[0, 1, 70].isnan().all()
    assert dq[0].isnan().sum() == d
    assert not dv.isnan().any()


@pytest.mark.parametrize("bias", [False, True])
def test_no_tuning_changes_a_bit_under_a_mask(gpu, bias):
    from lpsim_triton import attention_backward as backward
    from lpsim_triton import attention_forward as forward
    from lpsim_triton.attention_backward import Tile

    gpu.manual_seed(0)
    q, k, v, do = (gpu.randn(2, 2, 384, 64, device="cuda").bfloat16() for _ in range(4))
    mask = gpu.randn(2, 1, 384, 384, device="cuda")
    rule = forward.Rule(False, 0.125, keys=64, window=(200, 90), delta_from="pair")
    mask = mask if bias else mask > 0
    one = forward.forward(q, k, v, rule, mask=mask, tuning=forward.Tuning(64, 4, 1))
    other = forward.forward(q, k, v, rule, mask=mask, tuning=forward.Tuning(128, 8, 1))
    assert all(gpu.equal(a, b) for a, b in zip(one, other, strict=True))
    for refused in (forward.Tuning(64, 4, 2), forward.Tuning(128, 4, 2, overlapped=True)):
        with pytest.raises(ValueError, match="masks with one stage"):
            forward.forward(q, k, v, rule, mask=mask, tuning=refused)
    tunings = (
        backward.Tuning(Tile(64, 64, 4, 1), Tile(64, 64, 4, 1), False),
        backward.Tuning(Tile(32, 64, 4, 2), Tile(64, 32, 4, 2), False),
    )
    results = [backward.backward(q, k, v, *one, do, rule, mask=mask, tuning=tuning) for tuning in tunings]
    assert all(gpu.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("fmt", ["bf16", "fp16"])
@pytest.mark.parametrize(("bits", "seed", "step", "offset"), [(16, 5, 0, 0), (1, -7, 2, 8), (9, 1 << 63, 3, 8 << 33)])
def test_outputs_are_rounded_as_the_emulator_rounds(gpu, fmt, bits, seed, step, offset):
    from lpsim_triton.attention_output import round_output

    rng = np.random.default_rng(0)
    x = rng.integers(0, 1 << 32, 1 << 15, dtype=np.uint64).astype(np.uint32).view(np.float32).copy()
    x[:6] = [np.inf, -np.inf, np.nan, -0.0, 65519.9, -3.3895e38]
    x[6:9000] = rng.standard_normal(8994) * 2.0 ** rng.integers(-30, 17, 8994)
    rounding = lp.stochastic(bits=bits, seed=seed, stream=4, step=step, offset=offset)
    o = gpu.empty(x.size, dtype=gpu.bfloat16 if fmt == "bf16" else gpu.float16, device="cuda")
    round_output(gpu.from_numpy(x).cuda(), o, rounding, "O")
    want = np.asarray(lp.encode(x, fmt, rounding=rounding, nan="nvidia"))
    assert np.array_equal(o.view(gpu.int16).cpu().numpy().view(np.uint16), want)


def test_rows_that_see_no_key_are_zero(gpu):
    from lpsim_triton.functional import scaled_dot_product_attention

    gpu.manual_seed(0)
    q, k, v, do = (gpu.randn(2, 3, 150, 64, device="cuda").bfloat16() for _ in range(4))
    keep = gpu.rand(3, 150, 150, device="cuda") > 0.4
    keep[:, 5], keep[:, 64:128] = False, False
    for mask in (keep, gpu.zeros(3, 150, 150, device="cuda").masked_fill(~keep, float("-inf"))):
        found = attention_gradients(
            gpu, lambda q, k, v, m=mask: scaled_dot_product_attention(q, k, v, m), (q, k, v), do
        )
        assert all(gpu.isfinite(x).all() for x in found)
        blind = gpu.cat([x[:, :, 5:6] for x in found[:2]] + [x[:, :, 64:128] for x in found[:2]], 2)
        assert (blind == 0).all()
        assert (found[1][:, :, 6] != 0).any()


def attention_gradients(torch, function, tensors, do):
    leaves = [x.detach().requires_grad_() for x in tensors]
    out = function(*leaves)
    return out.detach(), *torch.autograd.grad(out, leaves, do)


@pytest.mark.filterwarnings("default")  # torch.compile warns about what torch itself calls
@pytest.mark.parametrize("remedy", [None, "guarded", "wide-o", "delta-p", STOCHASTIC], ids=str)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_and_eager_gradients_agree(gpu, backend, remedy):
    from lpsim_triton.functional import scaled_dot_product_attention

    gpu.manual_seed(0)
    mask = gpu.rand(200, 200, device="cuda") > 0.3 if remedy == "delta-p" else None
    window = (50, 0) if remedy == STOCHASTIC else None

    def layer(q, k, v):
        return scaled_dot_product_attention(
            q * 1, k, v, mask, is_causal=True, enable_gqa=True, remedy=remedy, window=window
        ) * 1  # fmt: skip

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

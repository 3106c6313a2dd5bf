"""The operators under autograd and torch.compile on a CPU, where the emulator stands in for the kernels."""

import numpy as np
import pytest

import lpsim as lp
from lpsim.recipes import Maximum, Site, with_site, with_switch
from lpsim_triton.remedies import REMEDIES, Remedy

STOCHASTIC = Remedy(delta_from="pair", rounding=lp.stochastic(bits=16, seed=-3, stream=1, step=2, offset=8))


def recipe_of(beta, tolerance, guard, scope, l_from, delta_from, rounding):
    kept = {"O32": "fp32", "pair": "pair"}.get(delta_from, "O")
    rules = with_switch(
        "triton", maximum=Maximum(beta, tolerance, guard, scope), l_from=l_from, kept=kept,
        delta_from=delta_from if delta_from in ("P", "PV") else "O",
    )  # fmt: skip
    return rules if rounding is None else with_site(rules, O=Site("input", rounding))


def options_of(mask, causal, scale, window, keys, shape):
    found = {"causal": causal, "scale": scale, "block": (64, keys), "window": tuple(window) or None}
    if mask is not None:
        mask = mask.expand(shape)
        found["mask" if str(mask.dtype) == "torch.bool" else "bias"] = (
            mask.float().numpy() if mask.is_floating_point() else mask.numpy()
        )
    return found


@pytest.fixture(scope="module")
def attend(torch):
    """scaled_dot_product_attention whose operators know CPU tensors."""
    from lpsim_triton import attention_arguments, functional

    def forward(
        q, k, v, mask, causal, scale, v_scale, window, keys, beta, tolerance, guard, scope, l_from, delta_from, noise
    ):  # fmt: skip
        rules = recipe_of(beta, tolerance, guard, scope, l_from, delta_from, functional._stochastic(noise))
        options = options_of(mask, causal, scale, window, keys, (*q.shape[:-1], k.shape[-2]))
        out = lp.attention.forward(q, k, v, recipe=rules, **options)
        more = torch.empty(0)
        if delta_from in ("O32", "pair"):
            more = torch.from_numpy(np.asarray(out.kept))
        if delta_from == "pair":
            more = (more - out.o.float()).to(q.dtype)
        return out.o, more, out.lse

    def backward(q, k, v, mask, o, more, lse, do, causal, scale, window, keys, delta_from):
        rules = recipe_of(0.0, 0.0, False, "tile", "exact", delta_from, None)
        options = options_of(mask, causal, scale, window, keys, (*q.shape[:-1], k.shape[-2]))
        kept = {"O": lambda: o, "O32": lambda: more, "pair": lambda: o.float() + more.float()}
        kept = kept.get(delta_from, lambda: torch.zeros_like(q))()
        return tuple(lp.attention.backward(q, k, v, kept, lse, do.contiguous(), recipe=rules, **options))

    functional._forward.register_kernel("cpu")(forward)
    functional._backward.register_kernel("cpu")(backward)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_arguments, "check", lambda *_: None)  # it refuses CPU tensors
        yield functional.scaled_dot_product_attention


def gradients(torch, function, tensors, do):
    leaves = [x.detach().requires_grad_() for x in tensors]
    out = function(*leaves)
    return out.detach(), *torch.autograd.grad(out, leaves, do)


def given(torch):
    """q, k, v, do: transposed, as a linear layer gives them; two query heads read one key head."""
    torch.manual_seed(0)
    q, do = (torch.randn(2, 40, 4, 16).bfloat16().transpose(1, 2) for _ in range(2))
    k, v = (torch.randn(2, 40, 2, 16).bfloat16().transpose(1, 2) for _ in range(2))
    return (q, k, v), do


CALLS = {
    "plain": {},
    "guarded, causal": {"remedy": "guarded", "is_causal": True},
    "guarded by row": {"remedy": "guarded-row"},
    "o in float32": {"remedy": "wide-o", "window": (9, 0)},
    "two values, stochastic": {"remedy": STOCHASTIC, "is_causal": True},
    "delta from P, mask": {"remedy": "delta-p", "mask": "bool"},
    "delta from P v, bias": {"remedy": "delta-pv", "mask": "bias"},
}


@pytest.mark.filterwarnings("default")  # torch.compile warns about what torch itself calls
@pytest.mark.parametrize("name", CALLS)
def test_compiled_and_eager_gradients_agree(torch, attend, name):
    tensors, do = given(torch)
    options = dict(CALLS[name])
    mask = {"bool": torch.rand(40, 40) > 0.3, "bias": torch.randn(4, 1, 40), None: None}[options.pop("mask", None)]

    def layer(q, k, v):
        return attend(q * 1, k, v, mask, enable_gqa=True, **options) * 1

    eager = gradients(torch, layer, tensors, do)
    torch._dynamo.reset()
    compiled = gradients(torch, torch.compile(layer, backend="aot_eager", fullgraph=True), tensors, do)
    assert all(torch.equal(a, b) for a, b in zip(eager, compiled, strict=True))
    assert all(x.abs().amax() > 0 for x in eager)


@pytest.mark.parametrize("name", ["wide-o", "pair-o", "delta-p", "delta-pv"])
def test_gradients_are_those_of_the_emulator_with_this_remedy(torch, attend, name):
    (q, k, v), do = given(torch)
    k, v = (x.repeat_interleave(2, 1) for x in (k, v))
    found = gradients(torch, lambda *x: attend(*x, remedy=name), (q, k, v), do)
    rules = recipe_of(0.0, 0.0, False, "tile", "exact", REMEDIES[name].delta_from, None)
    out = lp.attention.forward(q, k, v, recipe=rules, block=(64, 128))
    back = lp.attention.backward(q, k, v, out.kept, out.lse, do, recipe=rules, block=(64, 128))
    assert all(torch.equal(a, b) for a, b in zip(found, (out.o, back.dq, back.dk, back.dv), strict=True))


def test_o_is_not_kept_where_delta_does_not_read_it(torch, attend):
    (q, k, v), _ = given(torch)
    for name, sizes in {"delta-p": (0, 0), "wide-o": (0, q.numel()), "pair-o": (q.numel(), q.numel())}.items():
        out = attend(q.clone().requires_grad_(), k, v, enable_gqa=True, remedy=name)
        node = out.grad_fn
        while not hasattr(node, "saved_tensors"):
            node = node.next_functions[0][0]
        assert tuple(x.numel() for x in node.saved_tensors[4:6]) == sizes


def test_a_mask_that_requires_grad_is_refused(torch, attend):
    (q, k, v), _ = given(torch)
    bias = torch.zeros(40, 40, requires_grad=True)
    with pytest.raises(NotImplementedError, match="attn_mask requires grad"):
        attend(q, k, v, bias, enable_gqa=True)
    with torch.no_grad():
        assert attend(q, k, v, bias, enable_gqa=True).shape == q.shape

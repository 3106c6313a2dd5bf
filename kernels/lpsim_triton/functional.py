"""Attention for PyTorch with PyTorch's signature, on the kernels of this package, with gradients.

Both passes are custom operators, so that torch.compile takes them as they are: what autograd saves are operator
inputs and outputs, and compiled and eager gradients come from the same kernels.
"""

import torch
from torch import Tensor

from lpsim.policies import Stochastic
from lpsim.recipes import Maximum

from . import attention_arguments as arguments
from .remedies import Remedy
from .remedies import remedy as chosen_remedy


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
    remedy: str | Remedy | None = None, window: int | tuple[int, int] | None = None,
    scales: tuple[float, float, float] | None = None,
) -> Tensor:  # fmt: skip
    """softmax(scale query key^T + attn_mask) value, bit for bit as `lpsim.attention` emulates recipe triton.

    query (..., heads, n, d), key and value (..., kv_heads, n_keys, d): bfloat16, float16 or, without gradients,
    float8_e4m3fn CUDA tensors of any strides, d 16, 32, 64, 128 or 256 (float8: 32 or more). kv_heads must equal
    heads, or divide them with enable_gqa=True. is_causal: row i sees keys 0 .. i. window: an int or (left, right): row
    i sees keys i - left .. i + right. attn_mask: bool, True where a row may see a key, or a bias in query's dtype or
    float32, -inf masking; broadcast to (..., heads, n, n_keys); it may stand beside is_causal and window, and then
    all must hold. scale None: 1 / sqrt(d). scales: what float8 query, key and value are to be multiplied by.
    remedy: a name of REMEDIES, a Remedy, or None.
    Result: as query (bfloat16 for float8), contiguous, differentiable once in query, key and value. A row that sees no
    key gives 0 and has zero gradients. NaN and Inf go through as IEEE 754 has it: a row whose output is NaN reaches the
    gradients of the keys that it sees; a NaN or Inf in an operand also what is masked in its tile, as 0 times Inf does.
    Raises TypeError and ValueError for what does not fit, NotImplementedError for dropout, gradients of attn_mask or
    of float8, and other GPUs.
    """
    if dropout_p != 0.0:
        raise NotImplementedError(f"dropout_p={dropout_p!r} is not supported; pass 0.0.")
    rule = chosen_remedy(remedy)
    arguments.check(query, key, value, enable_gqa, rule.keys)
    sides = arguments.window(window)
    scale, v_scale = arguments.scale(scale, scales, query)
    mask = arguments.mask(attn_mask, query, key)
    causal = arguments.flag(is_causal, "is_causal")
    shape, rounding = query.shape, rule.rounding
    q, k, v = (x.reshape(-1, *x.shape[-3:]) for x in (query, key, value))
    o, _, _ = _forward(
        q, k, v, mask, causal, scale, v_scale, sides, rule.keys, rule.maximum.beta, rule.maximum.tolerance,
        rule.maximum.guard, rule.maximum.scope, rule.l_from, rule.delta_from, _words(rounding),
    )  # fmt: skip
    return o.reshape(shape)


def _words(rounding: Stochastic | None) -> list[int]:
    """A rounding as signed 64-bit integers, which operators take; [] for none."""
    if rounding is None:
        return []
    seed = rounding.seed - (1 << 64) if rounding.seed >> 63 else rounding.seed
    return [rounding.bits, seed, rounding.stream, rounding.step, rounding.offset]


def _stochastic(words: list[int]) -> Stochastic | None:
    """The inverse of `_words`."""
    if not words:
        return None
    bits, seed, stream, step, offset = words
    return Stochastic(bits, seed % (1 << 64), stream, step, offset)


@torch.library.custom_op("lpsim::attention_forward", mutates_args=(), device_types="cuda")
def _forward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float, v_scale: float,
    window: list[int], keys: int, beta: float, tolerance: float, guard: bool, scope: str, l_from: str,
    delta_from: str, noise: list[int],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    from . import attention_forward
    from .attention_tiles import Rule

    capability = torch.cuda.get_device_capability(q.device)
    if capability != (9, 0):
        raise NotImplementedError(
            f"the kernels are for compute capability 9.0 (H100, H200); this GPU has {capability}."
        )
    maximum = Maximum(beta, tolerance, guard, scope)
    rounding = _stochastic(noise)
    sides = (window[0], window[1]) if window else None
    rule = Rule(causal, scale, keys, maximum, l_from, delta_from, rounding, sides, v_scale)
    with torch.cuda.device(q.device):
        return attention_forward.forward(q, k, v, rule, mask=mask)


@_forward.register_fake
def _(q, k, v, mask, causal, scale, v_scale, window, keys, beta, tolerance, guard, scope, l_from, delta_from, noise):
    o = q.new_empty(q.shape, dtype=torch.bfloat16 if q.dtype == torch.float8_e4m3fn else q.dtype)
    more = q.new_empty(
        q.shape if delta_from in ("O32", "pair") else (0,), dtype=o.dtype if delta_from == "pair" else torch.float32
    )
    return o, more, q.new_empty(q.shape[:-1], dtype=torch.float32)


@torch.library.custom_op("lpsim::attention_backward", mutates_args=(), device_types="cuda")
def _backward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, o: Tensor, more: Tensor, lse: Tensor, do: Tensor,
    causal: bool, scale: float, window: list[int], keys: int, delta_from: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    from . import attention_backward
    from .attention_tiles import Rule

    sides = (window[0], window[1]) if window else None
    rule = Rule(causal, scale, keys, delta_from=delta_from, window=sides)
    with torch.cuda.device(q.device):
        return attention_backward.backward(q, k, v, o, more, lse, do, rule, mask=mask)


@_backward.register_fake
def _(q, k, v, mask, o, more, lse, do, causal, scale, window, keys, delta_from):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), torch.empty_like(lse)


def _save(ctx, inputs, output):
    q, k, v, mask, causal, scale, _, window, keys, *_, delta_from, _ = inputs
    o, more, lse = output
    ctx.mark_non_differentiable(more, lse)
    wanted = delta_from in ("O", "pair")  # o is not kept for nothing
    ctx.save_for_backward(q, k, v, mask, o if wanted else o.new_empty(0), more, lse)
    ctx.rule = causal, scale, window, keys, delta_from


def _gradients(ctx, do, *_):
    q, k, v, mask, o, more, lse = ctx.saved_tensors
    dq, dk, dv, _ = _backward(q, k, v, mask, o, more, lse, do, *ctx.rule)
    return dq, dk, dv, *[None] * 13


_forward.register_autograd(_gradients, setup_context=_save)

"""Attention for PyTorch with PyTorch's signature, on the kernels of this package, with gradients.

Both passes are custom operators, so that torch.compile takes them as they are: what autograd saves are operator
inputs and outputs, and compiled and eager gradients come from the same kernels.
"""

import math

import torch
from torch import Tensor

from lpsim.recipes import Maximum

from .remedies import HEAD_SIZES, KEYS_OF_A_TILE, REMEDIES, Remedy

DTYPES = (torch.bfloat16, torch.float16)


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask=None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False, *, remedy: str | Remedy | None = None,
) -> Tensor:  # fmt: skip
    """softmax(scale query key^T) value, bit for bit as `lpsim.attention` emulates recipe triton.

    query (..., heads, n, d), key and value (..., kv_heads, n_keys, d): bfloat16 or float16 CUDA tensors of any
    strides, d 16, 32, 64, 128 or 256. kv_heads must equal heads, or divide them with enable_gqa=True. is_causal: row
    i sees keys 0 .. i. scale None: 1 / sqrt(d). remedy: a name of REMEDIES, a Remedy, or None.
    Result: as query, contiguous, differentiable once. NaN and Inf go through as IEEE 754 has it; a NaN or Inf in a
    masked place may reach the rows of its own tile, as 0 times Inf does.
    Raises TypeError and ValueError for what does not fit, NotImplementedError for a mask, dropout or other GPUs.
    """
    if attn_mask is not None:
        raise NotImplementedError("attn_mask is not supported: the kernels know is_causal only; pass attn_mask=None.")
    if dropout_p != 0.0:
        raise NotImplementedError(f"dropout_p={dropout_p!r} is not supported; pass 0.0.")
    chosen = _remedy(remedy)
    _check(query, key, value, enable_gqa)
    scale = _scale(scale, query.shape[-1])
    shape = query.shape
    q, k, v = (x.reshape(-1, *x.shape[-3:]) for x in (query, key, value))
    o, _, _ = _forward(
        q, k, v, is_causal, scale, chosen.keys, chosen.maximum.beta, chosen.maximum.tolerance, chosen.maximum.guard,
        chosen.l_from, chosen.delta_from == "O32",
    )  # fmt: skip
    return o.reshape(shape)


def _remedy(given: str | Remedy | None) -> Remedy:
    if given is None:
        return Remedy()
    if isinstance(given, str):
        if given not in REMEDIES:
            raise ValueError(f"remedy={given!r} is not known; known: {', '.join(REMEDIES)}, or a Remedy.")
        return REMEDIES[given]
    if not isinstance(given, Remedy):
        raise TypeError(f"remedy={given!r} must be None, a name or a lpsim_triton.remedies.Remedy.")
    if given.keys not in KEYS_OF_A_TILE:
        raise ValueError(f"Remedy.keys={given.keys!r} must be one of {KEYS_OF_A_TILE}.")
    if given.delta_from not in ("O", "O32") or given.l_from not in ("exact", "rounded"):
        raise ValueError(f"{given}: delta_from is 'O' or 'O32', l_from 'exact' or 'rounded'.")
    rule = given.maximum
    if rule.scope != "tile" or rule.threshold != 0.0 or rule.offset != 0.0:
        raise NotImplementedError(f"{rule}: the kernels have scope 'tile' and no lazy rescaling.")
    return given


def _scale(scale, d: int) -> float:
    if scale is None:
        return 1.0 / math.sqrt(d)
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise TypeError(f"scale={scale!r} must be a Python number or None.")
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale={scale!r} must be positive and finite.")
    return float(scale)


def _check(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool) -> None:
    for name, x in (("query", q), ("key", k), ("value", v)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}.")
        if x.dtype not in DTYPES:
            raise TypeError(f"{name} has dtype {x.dtype}; the kernels take torch.bfloat16 and torch.float16.")
        if x.device.type != "cuda":
            raise ValueError(f"{name} is on {x.device}: the kernels need a CUDA tensor. On a CPU: lpsim.attention.")
    if not q.dtype == k.dtype == v.dtype or not q.device == k.device == v.device:
        raise ValueError(
            "query, key and value must agree in dtype and device, got "
            f"{q.dtype} {q.device}, {k.dtype} {k.device}, {v.dtype} {v.device}."
        )
    named = f"query {tuple(q.shape)}, key {tuple(k.shape)}, value {tuple(v.shape)}"
    if q.dim() < 3 or k.dim() != q.dim() or k.shape != v.shape or q.shape[:-3] != k.shape[:-3]:
        raise ValueError(f"{named}: must be (..., heads, n, d) and twice (..., kv_heads, n_keys, d).")
    if q.shape[-1] != k.shape[-1] or q.shape[-1] not in HEAD_SIZES:
        raise ValueError(f"{named}: the head size must be the same, one of {HEAD_SIZES}.")
    if 0 in q.shape or 0 in k.shape:
        raise ValueError(f"{named}: empty attention has no row to normalise.")
    heads, kv_heads = q.shape[-3], k.shape[-3]
    if heads != kv_heads and (not enable_gqa or heads % kv_heads):
        raise ValueError(f"{named}: {heads} heads need {heads} key heads, or a divisor of it with enable_gqa=True.")


def _rule(causal: bool, scale: float, keys: int, beta: float, tolerance: float, guard: bool, l_from: str):
    """attention_tiles.Rule. Triton is imported here: the operators exist, and explain themselves, without it."""
    from .attention_tiles import Rule

    return Rule(causal, scale, keys, Maximum(beta, tolerance, guard), l_from)


@torch.library.custom_op("lpsim::attention_forward", mutates_args=(), device_types="cuda")
def _forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, keys: int, beta: float, tolerance: float, guard: bool,
    l_from: str, wide_o: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    from . import attention_forward

    capability = torch.cuda.get_device_capability(q.device)
    if capability != (9, 0):
        raise NotImplementedError(
            f"the kernels are for compute capability 9.0 (H100, H200); this GPU has {capability}."
        )
    rule = _rule(causal, scale, keys, beta, tolerance, guard, l_from)
    with torch.cuda.device(q.device):
        return attention_forward.forward(q, k, v, rule, wide_o=wide_o)


@_forward.register_fake
def _(q, k, v, causal, scale, keys, beta, tolerance, guard, l_from, wide_o):
    o = q.new_empty(q.shape)
    o_wide = q.new_empty(q.shape if wide_o else (0,), dtype=torch.float32)
    return o, o_wide, q.new_empty(q.shape[:-1], dtype=torch.float32)


@torch.library.custom_op("lpsim::attention_backward", mutates_args=(), device_types="cuda")
def _backward(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, do: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from . import attention_backward
    from .attention_tiles import Rule

    with torch.cuda.device(q.device):
        return attention_backward.backward(q, k, v, o, lse, do, Rule(causal, scale))


@_backward.register_fake
def _(q, k, v, o, lse, do, causal, scale):
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), torch.empty_like(lse)


def _save(ctx, inputs, output):
    q, k, v, causal, scale, *_, wide_o = inputs
    o, o_wide, lse = output
    ctx.mark_non_differentiable(o_wide, lse)
    ctx.save_for_backward(q, k, v, o_wide if wide_o else o, lse)
    ctx.causal, ctx.scale = causal, scale


def _gradients(ctx, do, *_):
    q, k, v, o, lse = ctx.saved_tensors
    dq, dk, dv, _ = _backward(q, k, v, o, lse, do, ctx.causal, ctx.scale)
    return dq, dk, dv, *[None] * 8


_forward.register_autograd(_gradients, setup_context=_save)

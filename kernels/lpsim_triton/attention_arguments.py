"""The arguments of `functional.scaled_dot_product_attention`, checked: shapes and dtypes, no value of a tensor."""

import math

import torch
from torch import Tensor

from .remedies import HEAD_SIZES

DTYPES = (torch.bfloat16, torch.float16, torch.float8_e4m3fn)


def check(q: Tensor, k: Tensor, v: Tensor, enable_gqa: bool, keys: int) -> None:
    """query, key and value. Raises TypeError, ValueError and NotImplementedError."""
    flag(enable_gqa, "enable_gqa")
    for name, x in (("query", q), ("key", k), ("value", v)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}.")
        if x.dtype not in DTYPES:
            raise TypeError(
                f"{name} has dtype {x.dtype}; the kernels take torch.bfloat16, torch.float16 and torch.float8_e4m3fn."
            )
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
    if q.dtype == torch.float8_e4m3fn:
        _check_float8(q, k, v, keys)


def flag(given, name: str) -> bool:
    """given, which must be True or False."""
    if not isinstance(given, bool):
        raise TypeError(f"{name}={given!r} must be True or False.")
    return given


def _check_float8(q: Tensor, k: Tensor, v: Tensor, keys: int) -> None:
    if min(q.shape[-1], keys) < 32:
        raise ValueError(
            f"float8 dots take 32 products at a time: head size {q.shape[-1]} and Remedy.keys={keys} must be 32 or "
            "larger."
        )
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)):
        raise NotImplementedError("float8 attention has no gradients: pass tensors that do not require grad.")


def scale(given, scales, q: Tensor) -> tuple[float, float]:
    """(what scores are multiplied by, what v is). given: of the scores; scales: of float8 q, k and v."""
    of_scores = 1.0 / math.sqrt(q.shape[-1]) if given is None else _positive(given, "scale")
    if scales is None:
        return _of_scores(of_scores), 1.0
    if q.dtype != torch.float8_e4m3fn:
        raise ValueError(f"scales={scales!r} belong to float8 tensors; query has dtype {q.dtype}.")
    if not isinstance(scales, tuple | list) or len(scales) != 3:
        raise TypeError(f"scales={scales!r} must be three numbers, what query, key and value are multiplied by.")
    of_q, of_k, of_v = (_positive(x, f"scales[{i}]") for i, x in enumerate(scales))
    return _of_scores(of_scores * of_q * of_k), of_v


def _of_scores(x: float) -> float:
    """x, if scores can be multiplied by it: as float32 and times log2 e."""
    if not 2.0**-126 <= x <= 2.0**126:
        raise ValueError(f"scale={x!r}, those of query and key included, must be from 2^-126 to 2^126.")
    return x


def _positive(x, name: str) -> float:
    if isinstance(x, bool) or not isinstance(x, int | float):
        raise TypeError(f"{name}={x!r} must be a Python number" + (" or None." if name == "scale" else "."))
    if not (math.isfinite(x) and x > 0):
        raise ValueError(f"{name}={x!r} must be positive and finite.")
    return float(x)


def window(given) -> list[int]:
    """[left, right], or [] for no window."""
    if given is None:
        return []
    sides = [given, given] if type(given) is int else given
    if not (isinstance(sides, tuple | list) and len(sides) == 2 and all(type(side) is int for side in sides)):
        raise TypeError(f"window={given!r} must be an int or two ints: how many keys to the left and right.")
    if min(sides) < 0:
        raise ValueError(f"window={given!r} must not be negative.")
    return [min(side, 1 << 40) for side in sides]


def mask(given, q: Tensor, k: Tensor) -> Tensor | None:
    """(batch, heads, n, n_keys), each size as in q and k or 1."""
    if given is None:
        return None
    if not isinstance(given, Tensor):
        raise TypeError(f"attn_mask must be a torch.Tensor or None, got {type(given).__name__}.")
    allowed = {torch.bool, torch.float32, torch.float16 if q.dtype == torch.float16 else torch.bfloat16}
    if given.dtype not in allowed:
        raise TypeError(f"attn_mask has dtype {given.dtype}; it must be torch.bool, torch.float32 or query's dtype.")
    if given.device != q.device:
        raise ValueError(f"attn_mask is on {given.device}, query on {q.device}.")
    if torch.is_grad_enabled() and given.requires_grad:
        raise NotImplementedError("attn_mask requires grad: its gradient is not computed; pass attn_mask.detach().")
    whole = (*q.shape[:-1], k.shape[-2])
    sizes = (1,) * (len(whole) - given.dim()) + tuple(given.shape)
    if len(sizes) != len(whole) or any(size not in (1, full) for size, full in zip(sizes, whole, strict=True)):
        raise ValueError(f"attn_mask has shape {tuple(given.shape)}, which does not broadcast to {whole}.")
    leading = (1,) * (len(whole) - 3) if max(sizes[:-3], default=1) == 1 else whole[:-3]
    return given.reshape(sizes).expand(*leading, *sizes[-3:]).reshape(-1, *sizes[-3:])

"""The arithmetic of lpsim on a GPU, as Triton kernels that are checked against it bit for bit.

    import lpsim_triton
    lpsim_triton.encode(x, "e4m3fn", overflow="satfinite")     # as lp.encode, for CUDA tensors; also round and decode
    lpsim_triton.scaled_dot_product_attention(q, k, v, is_causal=True, remedy="guarded")

A package of its own: it imports lpsim, and nothing in lpsim imports it. Needs the extra `gpu`. Names load at first use.
"""

import importlib

_HOME = {
    **dict.fromkeys(["encode", "decode", "round"], "quantize"),
    "scaled_dot_product_attention": "functional",
}
__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module 'lpsim_triton' has no attribute {name!r}; public names: {', '.join(__all__)}")


def __dir__():
    return sorted(__all__)

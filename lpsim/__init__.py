"""lpsim: bit-exact emulation of low-precision arithmetic on the CPU, checked against a real GPU.

    import lpsim as lp
    lp.round(3.14159, "bf16")                              # 3.140625
    lp.encode(449.0, "e4m3fn")                             # 126, the code of 448
    lp.add(-2.40625, -2.296875, "bf16")                    # -4.6875: a tie, to even

Names are loaded at first use: importing lpsim loads no compiler.
"""

import importlib

#: public name -> the module it lives in
_HOME = {
    **dict.fromkeys(["encode", "decode", "convert", "round", "add", "sub", "mul", "div", "sqrt", "fma"], "arrays"),
    "Format": "formats",
    "FORMATS": "formats",
    "lookup": "formats",
    **dict.fromkeys(["neg", "abs", "copysign", "isnan", "isinf", "signbit"], "compare"),
    **dict.fromkeys(["minimum", "maximum", "minimum_number", "maximum_number"], "compare"),
    **dict.fromkeys(["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"], "compare"),
    **dict.fromkeys(["sum", "dot"], "sums"),
    **dict.fromkeys(["blocked", "split_k"], "reductions"),
    "reachable_sums": "reachable",
    "preset": "presets",
    **dict.fromkeys(["fma_via_fp32", "mul_then_add", "encode_via", "round_via"], "twostep"),
    "decode_exact": "rational",
    **dict.fromkeys(["stochastic_probability", "stochastic_bias", "hardware_noise"], "probability"),
    "NotModelled": "errors",
    "Machine": "instructions",
    "machine": "instructions",
    "stochastic": "policies",
    "set_threads": "threads",
    "get_threads": "threads",
}
_MODULES = (
    "scalar",
    "formats",
    "explain",
    "blocks",
    "presets",
    "attention",
    "machines",
    "recipes",
    "trace",
    "testing",
    "tl_dot",
)

__version__ = "0.1.0"
__all__ = [*_HOME, *_MODULES, "__version__"]


def __getattr__(name: str):
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module 'lpsim' has no attribute {name!r}; public names: {', '.join(__all__)}")


def __dir__():
    return sorted(__all__)

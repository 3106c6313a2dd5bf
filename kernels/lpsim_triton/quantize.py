"""encode, round and decode for CUDA tensors: the bits of `lp.encode`, `lp.round` and `lp.decode`.

    lpsim_triton.encode(x, "e4m3fn", overflow="satfinite")
    lpsim_triton.round(x, "bf16", rounding=lp.stochastic(bits=16, seed=0, stream=3, step=1))

One custom operator does the work, so that torch.compile takes it as it is. Nothing here has a gradient.
"""

from typing import Unpack

import torch
from torch import Tensor

from lpsim import formats
from lpsim.formats import FORMATS, Format, fmt_name
from lpsim.policies import NVIDIA, SATFINITE, Policy, Rules
from lpsim.target import Target, code_format

CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # the kernels take integers
CODES = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32}
VALUES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}
FORMATS_OF = {getattr(torch, name): FORMATS[fmt] for name, fmt in formats.ALIASES.items() if hasattr(torch, name)}


def encode(x: Tensor, fmt, *, out: Tensor | None = None, **rules: Unpack[Rules]) -> Tensor:
    """Codes of fmt for x: one rounding. The same as lp.encode(x.cpu(), fmt, ...), bit for bit.

    x: a float CUDA tensor (float64, float32, float16, bfloat16, float8) of any shape and strides; element i of a keyed
    rounding is the i-th in C order. Result: uint8, uint16 or uint32 of x's shape; `out` is filled and returned.
    Keyword arguments: rounding, overflow, nan, subnormals, as lp.encode takes them.
    Raises TypeError and ValueError as lp.encode does. A format without NaN is asked whether an answer was lost, which
    waits for the GPU, unless overflow="satfinite" and nan="nvidia".
    """
    source = _source(x, "x", FORMATS_OF)
    target = Target(fmt, rules)
    return _fill(x, out, CODES[formats.container_bits(target.fmt)], source, target, values=False)


def round(x: Tensor, fmt, *, out: Tensor | None = None, **rules: Unpack[Rules]) -> Tensor:
    """x rounded to the grid of fmt, as values; dtype and shape of x are kept. As lp.round, bit for bit.

    x and the keyword arguments: as in `encode`. Raises ValueError if x's dtype cannot hold fmt's grid.
    """
    source = _source(x, "x", FORMATS_OF)
    target = Target(fmt, rules)
    if not _holds(source, target.fmt):
        raise ValueError(
            f"x has dtype {x.dtype}, which cannot hold the values of {fmt_name(target.fmt)}: "
            "pass float32 or float64, or use lpsim_triton.encode."
        )
    return _fill(x, out, x.dtype, source, target, values=True)


def decode(codes: Tensor, fmt, *, out: Tensor | None = None) -> Tensor:
    """Values of codes, exact: float32, or float64 for formats that float32 does not hold. As lp.decode, bit for bit.

    codes: a CUDA tensor of uint8, uint16 or uint32 as `encode` gives them, or of fmt's own dtype. Bits outside the
    format are ignored. Raises TypeError for other dtypes.
    """
    row = code_format(fmt)
    wanted = CODES[formats.container_bits(row)]
    own = {dtype: fmt for dtype, fmt in FORMATS_OF.items() if fmt == row}
    _source(codes, "codes", {wanted: row} | own)
    wide = next((FORMATS[name] for name in ("fp32", "fp64") if _holds(FORMATS[name], row)), None)
    if wide is None:
        raise ValueError(f"{fmt_name(row)} has values beyond float64, so it has no tensor of values.")
    target = Target(row, {"nan": "propagate"})
    return _fill(codes, out, VALUES[fmt_name(wide)], row, target, values=True)


def _source(x, argument: str, known: dict) -> Format:
    """The format of a tensor's elements; TypeError or ValueError for what the kernels do not take."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{argument} must be a torch.Tensor, got {type(x).__name__}; on a CPU: lp.encode, lp.decode.")
    if x.dtype not in known:
        raise TypeError(f"{argument} has dtype {x.dtype}; allowed: {', '.join(str(dtype) for dtype in known)}.")
    if x.device.type != "cuda":
        raise ValueError(
            f"{argument} is on {x.device}: the kernels need a CUDA tensor. On a CPU: lp.encode, lp.decode."
        )
    return known[x.dtype]


def _holds(dtype: Format, fmt: Format) -> bool:
    """True if every value of fmt, infinity and NaN included, is one of dtype."""
    specials = dtype.infinity >= fmt.infinity and formats.has_nan(dtype) >= formats.has_nan(fmt)
    return formats.fits(fmt, dtype) and specials


def _fill(x: Tensor, out: Tensor | None, dtype: torch.dtype, source: Format, target: Target, *, values: bool) -> Tensor:
    if out is not None and (out.dtype, out.shape, out.device) != (dtype, x.shape, x.device):
        raise ValueError(f"out must be a {dtype} tensor of shape {tuple(x.shape)} on {x.device}.")
    noise, words = target.noise, None
    key = [0, 0, 0, 0]
    if noise is not None and noise.words is not None:
        target.check_words(tuple(x.shape))
        words = torch.from_numpy(noise.words).to(x.device).reshape(-1)
    elif noise is not None:
        key = [noise.seed - (noise.seed >> 63 << 64), noise.stream, noise.step, noise.offset]
    filled = out if out is not None and out.is_contiguous() else torch.empty(x.shape, dtype=dtype, device=x.device)
    _quantize(x.detach().contiguous(), filled, words, list(source), list(target.fmt), list(target.policy), key, values)
    return filled if out is None or out is filled else out.copy_(filled)


def may_lose(fmt: Format, policy: Policy) -> bool:
    """True if there are inputs for which a format has no answer under a policy."""
    return not formats.has_nan(fmt) and not (policy.overflow == SATFINITE and policy.nan == NVIDIA)


def _on_gpu(
    x: Tensor, out: Tensor, words: Tensor | None, source: list[int], fmt: list[int], policy: list[int], key: list[int],
    values: bool,
) -> None:  # fmt: skip
    """Fill out, contiguous, from x, contiguous. ValueError for an answer that the format has no code for."""
    from .quantize_launch import Rule, launch

    if x.numel() == 0:
        return
    row = Format(*fmt)
    dtype = FORMATS_OF[out.dtype] if values else None
    rule = Rule(Format(*source), row, Policy(*policy), dtype, *key)
    asks = rule.source != row and may_lose(row, rule.policy)
    lost = torch.zeros(1, dtype=torch.int32, device=x.device) if asks else None
    flat_x, flat_out = (t.view(CARRIERS[t.element_size()]).reshape(-1) for t in (x, out))
    with torch.cuda.device(x.device):
        launch(flat_x, flat_out, rule, words, lost)
    if lost is not None:
        Target(row, {}).refuse_lost(int(lost.item()))


# Defined by its schema: torch.library.custom_op costs ten times as much a call.
_LIBRARY = torch.library.Library("lpsim", "FRAGMENT")
_LIBRARY.define(
    "quantize(Tensor x, Tensor(a!) out, Tensor? words, int[] source, int[] fmt, int[] policy, int[] key, bool values)"
    " -> ()"
)
_LIBRARY.impl("quantize", _on_gpu, "CUDA")
torch.library.register_fake("lpsim::quantize", lambda *_: None, lib=_LIBRARY)
_quantize = torch.ops.lpsim.quantize.default

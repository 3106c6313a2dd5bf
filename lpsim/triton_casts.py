"""x.to(dtype) in Triton 3.6 on sm_90, between floats of up to 32 bits: codes to codes, every code as an H200 gives it.

One rounding to nearest, NaN without sign and payload (all ones), fp8 clamped: `lp.convert` with nan="nvidia" and, to
fp8, overflow="satfinite". Two casts are other code, and differ for what is not finite:
- bf16 to fp32 moves bits: NaN keeps its sign and payload, and stays signalling;
- e5m2 to bf16 moves bits and multiplies by 2^112: infinity and NaN become 65536, 81920, 98304 and 114688.
"""

import numpy as np

from . import border
from .arrays import convert
from .errors import NotModelled
from .formats import fmt_name
from .target import code_format

#: source -> what Triton casts it to
CASTS = {
    "fp32": ("bf16", "fp16", "e4m3fn", "e5m2"),
    "bf16": ("fp32", "fp16", "e4m3fn", "e5m2"),
    "fp16": ("fp32", "bf16", "e4m3fn", "e5m2"),
    "e4m3fn": ("fp32", "bf16", "fp16"),
    "e5m2": ("fp32", "bf16", "fp16"),
}
PAIRS = [(source, fmt) for source, targets in CASTS.items() for fmt in targets]


def cast(codes, source, fmt) -> np.ndarray:
    """Codes of fmt for codes of `source`: x.to(fmt), any shape.

    codes, source, fmt: as lp.convert takes them. Raises NotModelled for a pair that is not in CASTS (Triton 3.6 does
    not compile fp8 to fp8), TypeError and ValueError as lp.convert does.
    """
    pair = (fmt_name(code_format(source, "source")), fmt_name(code_format(fmt)))
    if pair not in PAIRS:
        raise NotModelled(f"no modelled cast from {pair[0]} to {pair[1]}; to be cast: {CASTS}.")
    if pair == ("bf16", "fp32"):
        return border.codes(codes, code_format(source)).array.astype(np.uint32) << np.uint32(16)
    found = convert(codes, *pair, nan="nvidia", overflow="satfinite" if pair[1] in ("e4m3fn", "e5m2") else "ieee")
    if pair == ("e5m2", "bf16"):
        given = border.codes(codes, code_format(source)).array.astype(np.uint16)
        magnitude = given & np.uint16(0x7F)
        moved = ((given & np.uint16(0x80)) << np.uint16(8)) | ((magnitude << np.uint16(5)) + np.uint16(112 << 7))
        return np.where(magnitude >= 0x7C, moved, found)
    return found

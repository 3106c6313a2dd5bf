"""Other worlds' casts by name: which policies make `lp.encode` give the codes that they give.

    lp.encode(x, "e4m3fn", **lp.preset("nvidia", "e4m3fn"))

A preset is looked up for a format, because a library may treat two formats differently: torch clamps in
e4m3fn and overflows to infinity in e5m2. What a preset leaves out has the default of `lp.encode`. All are about
casts from float32: some of these libraries round twice from wider sources, lpsim never does.
"""

from typing import NamedTuple

import numpy as np

from .errors import NotModelled, choose
from .formats import fmt_name, lookup
from .policies import Rules

CLAMP: Rules = {"overflow": "satfinite"}
PTX: Rules = {"nan": "nvidia"}
PTX_CLAMP: Rules = {"overflow": "satfinite", "nan": "nvidia"}
FNUZ = ("e4m3fnuz", "e5m2fnuz")


class Preset(NamedTuple):
    """One world: what it does in each format, where that is from, and what its NaNs do that no policy says."""

    rules: dict[str, Rules]  #: format name -> keyword arguments of lp.encode
    source: str
    evidence: str  #: "measured" (against the library or the hardware, in the tests) or "published"
    nan_varies: tuple[str, ...] = ()  #: formats in which the world's own NaN code follows no one rule


PRESETS: dict[str, Preset] = {
    "ocp_sat": Preset(
        dict.fromkeys(("e4m3fn", "e5m2", "e3m2", "e2m3", "e2m1"), CLAMP),
        "OCP OFP8 1.0, saturating conversion: overflow and infinity clamp; OCP MX 1.0 for 6 and 4 bits",
        "published",
    ),
    "ocp_nonsat": Preset(
        {"e4m3fn": {}, "e5m2": {}},
        "OCP OFP8 1.0, non-saturating conversion: NaN in e4m3fn, infinity in e5m2",
        "published",
    ),
    "nvidia": Preset(
        {"bf16": PTX, "fp16": PTX, **dict.fromkeys(("e4m3fn", "e5m2", "e3m2", "e2m3", "e2m1"), PTX_CLAMP)},
        "PTX cvt.rn(.satfinite), recorded over all 2^32 inputs on an H200; 6 and 4 bits from the PTX ISA only",
        "measured",
    ),
    "torch": Preset(
        {
            "bf16": {},
            "fp16": {"nan": "propagate"},
            "e4m3fn": {"overflow": "satfinite", "nan": "ones"},
            "e5m2": {"nan": "ones"},
            **dict.fromkeys(FNUZ, Rules()),
        },
        "torch 2.13 on a CPU: e4m3fn clamps, infinity included (pytorch pull request 178817)",
        "measured",
        nan_varies=("bf16",),  # 0x7FC0 from the scalar path, 0xFFFF from the vector path
    ),
    "torch_old": Preset(
        {"bf16": PTX, "fp16": PTX, "e4m3fn": {"nan": "ones"}, "e5m2": {"nan": "ones"}, **dict.fromkeys(FNUZ, Rules())},
        "torch 2.11 on an H200, recorded over all 2^32 inputs: e4m3fn overflows to NaN",
        "measured",
    ),
    "ml_dtypes": Preset(
        {
            **dict.fromkeys(("bf16", "e4m3fn", "e5m2", "e4m3", "e3m4", *FNUZ, "e4m3b11fnuz"), Rules()),
            **dict.fromkeys(("e3m2", "e2m3", "e2m1"), CLAMP),
        },
        "ml_dtypes 0.6.0, from float32 (it rounds twice from float64)",
        "measured",
        nan_varies=("e3m2", "e2m3", "e2m1"),  # a zero, of one sign or the other; lp.encode refuses
    ),
}


def preset(world: str, fmt) -> Rules:
    """The keyword arguments with which lp.encode, convert and round cast to fmt as this world does.

    world: a name of `PRESETS`. ValueError for unknown names; NotModelled for a format that this world does
    not have, or treats in a way that no policy says.
    """
    row = choose("world", world, PRESETS)
    name = fmt_name(lookup(fmt))
    if name not in row.rules:
        more = " See lp.presets.torch_e8m0." if name == "e8m0" else ""
        raise NotModelled(f"preset {world!r} says nothing about {name}; it has {', '.join(row.rules)}.{more}")
    return Rules(**row.rules[name])


def torch_e8m0(x: np.ndarray) -> np.ndarray:
    """uint8 codes of float32 x as torch casts to float8_e8m0fnu; no policy says this, so it has its own function.

    The sign is dropped and zero becomes 2^-127. Ties go up, except the one at 2^-127 itself, but everything
    above 2^-127 in the subnormal range goes to 2^-126, not to its nearest neighbour. Infinity and overflow are NaN.
    ml_dtypes does the same above zero, and makes NaN of zero and of negative numbers.
    Source: digests "torch:e8m0fnu", all 2^32 inputs. TypeError unless x is float32.
    """
    x = np.asarray(x)
    if x.dtype != np.float32:
        raise TypeError(f"x has dtype {x.dtype}, but torch's rule is known from float32 only.")
    bits = np.ascontiguousarray(x).reshape(x.shape).view(np.uint32)
    field = (bits >> np.uint32(23)) & np.uint32(0xFF)
    fraction = bits & np.uint32(0x7FFFFF)
    up = (fraction > 0x400000) | ((fraction == 0x400000) & (field > 0))
    return np.minimum(field + up, 255).astype(np.uint8)

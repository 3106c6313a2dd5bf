"""Writes docs/policies.md: defaults, what each policy does, presets. `python scripts/policies_page.py`

Every code on the page is computed here; tests/test_policies_page.py fails if the page is not what this gives.
"""

import inspect
from pathlib import Path

import numpy as np

import lpsim as lp
from lpsim import policies
from lpsim.formats import FORMATS
from lpsim.presets import PRESETS
from lpsim.probability import HARDWARE

PAGE = Path(__file__).parents[1] / "docs" / "policies.md"

ROUNDINGS = {
    "rne": "to nearest, ties to the even code",
    "rna": "to nearest, ties away from zero",
    "rtz": "toward zero",
    "rtp": "toward +infinity",
    "rtn": "toward -infinity",
    "rto": "to odd: what is inexact gets an odd code",
}
OVERFLOWS = {
    "ieee": "to infinity, or NaN where there is none; modes that point inward stop at the largest value",
    "saturate": "finite values clamp, infinity stays (NaN where there is none)",
    "satfinite": "infinity clamps too",
}
NANS = {
    "canonical": "quiet, sign kept, payload dropped",
    "propagate": "quiet, sign and upper payload kept",
    "nvidia": "all ones below a clear sign",
    "ones": "all ones below the sign, which is kept",
}
SUBNORMALS = {
    "keep": "nothing is flushed",
    "flush_in": "subnormal operands count as zero of their sign",
    "flush_out": "subnormal results become zero of their sign",
    "flush": "both",
}
OPERATIONS = [
    ("encode, convert, round", "one, from any source: float64, int64, Fractions included"),
    ("decode, decode_exact", "none"),
    ("add, sub, mul, div, sqrt", "one, of the exact result; operands are exact values, on fmt's grid or not"),
    ("fma", "one, of the exact a * b + c"),
    ("fma_via_fp32", "two: to fp32 (rne), then to fmt"),
    ("mul_then_add", "two, both to fmt"),
    ("encode_via, round_via", "two: to `through`, then to fmt"),
    ("sum", "one for each addition, to `accumulate`; one more if fmt is another format; orders may store partials"),
    ("dot", "as sum; and one for each product, or none with fused=True (the first product excepted)"),
    ("blocks.encode", "one for each element and each ue4m3 or tensor scale; e8m0 scales follow a named rule"),
    ("neg, abs, copysign, minimum, ..., equal, less, ...", "none"),
]
F32 = {"449": 449.0, "464": 464.0, "464 + ulp": 464.00003, "1000": 1000.0, "inf": np.inf, "-NaN": -np.nan}


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def code(x, fmt: str, **rules) -> str:
    """The code in hexadecimal."""
    digits = lp.formats.container_bits(FORMATS[fmt]) // 4
    return f"{int(lp.encode(np.float32(x), fmt, **rules)):0{digits}X}"


def defaults() -> str:
    signature = inspect.signature(policies.policy).parameters
    names = {
        "rounding": [*policies.ROUNDINGS, "lp.stochastic(...)"],
        "overflow": [*policies.OVERFLOWS],
        "nan": [*policies.NANS],
        "subnormals": [*policies.SUBNORMALS],
    }
    rows = [[f"`{key}`", f"`{signature[key].default}`", ", ".join(f"`{n}`" for n in names[key])] for key in names]
    return table(["argument", "default", "names"], rows)


def modes() -> str:
    xs = {"1 + 1/256 (tie)": 1 + 2.0**-8, "1 + 3/256 (tie)": 1 + 3 * 2.0**-8, "1 + 2^-20": 1 + 2.0**-20}
    xs |= {f"-({name})": -x for name, x in list(xs.items())[1:]} | {"3.4e38": 3.4e38}
    rows = [
        [f"`{name}`", what, *(code(x, "bf16", rounding=name) for x in xs.values())] for name, what in ROUNDINGS.items()
    ]
    return table(["rounding", "meaning", *(f"{name} in bf16" for name in xs)], rows)


def overflows() -> str:
    cells = [("e4m3fn", 449.0), ("e4m3fn", 1000.0), ("e4m3fn", np.inf), ("e5m2", 65504.0), ("e5m2", np.inf)]
    rows = [[f"`{n}`", what, *(code(x, fmt, overflow=n) for fmt, x in cells)] for n, what in OVERFLOWS.items()]
    return table(["overflow", "meaning", *(f"{x:g} in {fmt}" for fmt, x in cells)], rows)


def nans() -> str:
    x = np.array([0xFFC12345], np.uint32).view(np.float32)[0]
    formats = ("bf16", "e5m2", "e4m3fn", "e4m3fnuz")
    rows = [[f"`{n}`", what, *(code(x, fmt, nan=n) for fmt in formats)] for n, what in NANS.items()]
    return table(["nan", "meaning", *(f"FFC12345 in {fmt}" for fmt in formats)], rows)


def subnormals() -> str:
    a, b = np.float32(2.0**-127), np.float32(1.5 * 2.0**-126)
    rows = []
    for name, what in SUBNORMALS.items():
        kept = lp.add(a, b, "bf16", subnormals=name), lp.sub(b, np.float32(2.0**-126), "bf16", subnormals=name)
        rows.append([f"`{name}`", what, *(f"{float(x) * 2.0**126:g} x 2^-126" for x in kept)])
    return table(["subnormals", "meaning", "2^-127 + 1.5 x 2^-126 in bf16", "1.5 x 2^-126 - 2^-126 in bf16"], rows)


def presets() -> str:
    rows = []
    for world, row in PRESETS.items():
        groups: dict[str, list[str]] = {}
        for fmt, rules in row.rules.items():
            text = ", ".join(f"{key}={value}" for key, value in rules.items()) or "defaults"
            groups.setdefault(text, []).append(fmt)
        rules = "; ".join(f"{', '.join(names)}: {text}" for text, names in groups.items())
        open_nan = f" (NaN's code varies: {', '.join(row.nan_varies)})" if row.nan_varies else ""
        rows.append([f"`{world}`", rules + open_nan, row.evidence, row.source])
    return table(["preset", "formats: policies", "evidence", "source"], rows)


def e4m3() -> str:
    rows = [[f"`{w}`", *(code(x, "e4m3fn", **lp.preset(w, "e4m3fn")) for x in F32.values())] for w in PRESETS]
    return table(["preset", *(f"{name} in e4m3fn" for name in F32)], rows)


def noise() -> str:
    rows = []
    for name, row in HARDWARE.items():
        bias = lp.stochastic_bias(row.bits)
        rows.append([f"`{name}`", str(row.bits), f"{float(bias):.3g} ulp", row.evidence, row.source])
    return table(["lp.hardware_noise", "random bits", "mean bias (toward zero)", "evidence", "source"], rows)


def operations() -> str:
    return table(["function", "roundings"], [[f"`{name}`", what] for name, what in OPERATIONS])


TEXT = """# Policies: what decides a result besides the operands and the format

Every function that rounds takes the same four keyword arguments. Nothing else decides: no global state, no
environment variable, no dtype of an intermediate. This page is written by `scripts/policies_page.py`; its codes are
computed there, in hexadecimal.

<defaults>

## Rounding

<modes>

Stochastic rounding needs its random integers named: `lp.stochastic(bits=, seed=, stream=)`, or `words=`. With the
discarded fraction nu of an ulp and an integer R of n bits, the magnitude grows if floor(nu 2^n) + R >= 2^n (variant
A, what hardware does: 2^-(n+1) ulp too low on average; B and C have no mean bias).
`lp.stochastic_probability` and `lp.stochastic_bias` give exact numbers.

<noise>

## Overflow

Whether a value overflows is decided after rounding: 464 is half way between 448 and 480, a tie, and goes to 448.

<overflows>

## NaN

<nans>

e4m3fnuz has one NaN, 80, whatever the policy. A format with no NaN (e2m1, e3m2, e2m3) refuses NaN with a ValueError,
unless nan="nvidia" makes it the largest value.

## Subnormals

<subnormals>

For a cast, `flush_in` means the subnormals of the source, for an operation those of its format.

## Presets

`lp.preset(world, fmt)` gives the arguments with which `lp.encode` casts float32 as another library or a chip does.
What a preset cannot say, it refuses (`NotModelled`): torch's e8m0, for one, has a function, `lp.presets.torch_e8m0`.

```python
import numpy as np
import lpsim as lp

x = np.float32(1000)
lp.encode(x, "e4m3fn", **lp.preset("nvidia", "e4m3fn"))       # 126
lp.encode(x, "e4m3fn", **lp.preset("ml_dtypes", "e4m3fn"))    # 127
```

<presets>

Where they disagree on e4m3fn:

<e4m3>

## How often each function rounds

<operations>
"""


def page() -> str:
    for known, described in (
        (policies.ROUNDINGS, ROUNDINGS),
        (policies.OVERFLOWS, OVERFLOWS),
        (policies.NANS, NANS),
        (policies.SUBNORMALS, SUBNORMALS),
    ):
        assert list(known) == list(described), "a policy without a description, or the other way round"
    text = TEXT
    for part in (defaults, modes, noise, overflows, nans, subnormals, presets, e4m3, operations):
        text = text.replace(f"<{part.__name__}>", part())
    return text


if __name__ == "__main__":
    PAGE.write_text(page())

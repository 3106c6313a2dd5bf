"""Presets against the libraries that they name, on the upper 16 bits of every float32 with edges below them."""

import ml_dtypes
import numpy as np
import pytest

import lpsim as lp
from lpsim import digest
from lpsim.formats import ALIASES, FORMATS, container_bits
from lpsim.instructions import CASTS
from lpsim.presets import PRESETS, torch_e8m0

UPPER = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
LOWER = (0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
X = np.concatenate([UPPER | np.uint32(low) for low in LOWER]).view(np.float32)
NAN = np.isnan(X)
THEIRS = {ours: theirs for theirs, ours in ALIASES.items() if "float" in theirs}
#: chunks of 2^24 inputs where float8 overflows, and NaN of either sign
DIGEST_CHUNKS = [0x43, 0x47, 0xC7, 0x7F, 0xFF]


def same_codes(found: np.ndarray, theirs: np.ndarray, world: str, name: str) -> None:
    """Equal on numbers; on NaN as well, unless the preset says that the world's NaN code follows no rule."""
    compared = ~NAN if name in PRESETS[world].nan_varies else np.ones(X.size, bool)
    wrong = np.flatnonzero(compared & (found != theirs))
    shown = [(hex(X.view(np.uint32)[i]), hex(found[i]), hex(theirs[i])) for i in wrong[:5]]
    assert shown == [], f"{wrong.size} differ"


def ours(world: str, name: str) -> np.ndarray:
    if lp.formats.has_nan(FORMATS[name]):
        return lp.encode(X, name, **lp.preset(world, name))
    codes = np.zeros(X.size, np.uint8)  # NaN is refused, so it is left out
    codes[~NAN] = lp.encode(X[~NAN], name, **lp.preset(world, name))
    return codes


@pytest.mark.parametrize("name", PRESETS["ml_dtypes"].rules)
def test_ml_dtypes(name):
    dtype = np.dtype(getattr(ml_dtypes, THEIRS[name]))
    with np.errstate(all="ignore"):
        theirs = X.astype(dtype).view(f"u{dtype.itemsize}")
    same_codes(ours("ml_dtypes", name), theirs, "ml_dtypes", name)


@pytest.mark.parametrize("name", PRESETS["torch"].rules)
def test_torch(torch, name):
    carrier = torch.uint8 if FORMATS[name].bits == 8 else torch.int16
    tensor = torch.from_numpy(X).to(getattr(torch, THEIRS[name])).view(carrier)
    theirs = tensor.numpy().view(f"u{tensor.element_size()}")
    same_codes(ours("torch", name), theirs, "torch", name)


def test_torch_e8m0(torch):
    theirs = torch.from_numpy(X).to(torch.float8_e8m0fnu).view(torch.uint8).numpy()
    same_codes(torch_e8m0(X), theirs, "torch", "e8m0")


@pytest.mark.parametrize("name", ["e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz"])
def test_torch_old_as_recorded(name):
    """Digests of torch 2.11's own casts on an H200."""
    rules, dtype = lp.preset("torch_old", name), np.uint8
    operation = digest.Operation(lambda x, out: lp.encode(x, name, out=out, **rules), dtype)
    assert digest.mismatches(f"torch:{name}", operation, DIGEST_CHUNKS) == []
    wrong = {**rules, "overflow": "satfinite"}
    operation = digest.Operation(lambda x, out: lp.encode(x, name, out=out, **wrong), dtype)
    assert 0x7F in digest.mismatches(f"torch:{name}", operation, [0x7F])


def test_ml_dtypes_e8m0():
    with np.errstate(all="ignore"):
        theirs = X.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8)
    wanted = np.where(X > 0, torch_e8m0(X), 0xFF)
    assert np.array_equal(theirs, wanted)
    assert (wanted[X > 0] != lp.encode(X[X > 0], "e8m0", rounding="rna")).any(), "else the rule is a policy"


def e8m0_into(x, out):
    out[...] = torch_e8m0(x)


def test_torch_e8m0_as_recorded():
    operation = digest.Operation(e8m0_into, np.uint8)
    assert digest.mismatches("torch:e8m0fnu", operation, [0x00, 0x3F, 0x7F, 0x80, 0xFF]) == []


@pytest.mark.exhaustive
def test_torch_e8m0_as_recorded_everywhere():
    assert digest.mismatches("torch:e8m0fnu", digest.Operation(e8m0_into, np.uint8)) == []


@pytest.mark.parametrize(("name", "instruction"), [("e4m3fn", "e4m3x2"), ("e5m2", "e5m2x2"), ("bf16", "bf16")])
def test_nvidia_as_recorded(name, instruction):
    recorded = f"ptx:cvt.rn.{'satfinite.' if 'x2' in instruction else ''}{instruction}.f32"
    rules = lp.preset("nvidia", name)
    dtype = f"u{container_bits(FORMATS[name]) // 8}"
    operation = digest.Operation(lambda x, out: lp.encode(x, name, out=out, **rules), dtype)
    assert digest.mismatches(recorded, operation, [0x43, 0xFF]) == []


def test_nvidia_is_what_the_machine_does():
    for name in ("bf16", "fp16", "e4m3fn", "e5m2"):
        assert lp.preset("nvidia", name) == CASTS[name]


OVERFLOW = [  # value, then ocp_sat, ocp_nonsat, torch, torch_old, ml_dtypes, nvidia in e4m3fn
    (449.0, 0x7E, 0x7E, 0x7E, 0x7E, 0x7E, 0x7E),
    (464.0, 0x7E, 0x7E, 0x7E, 0x7E, 0x7E, 0x7E),
    (464.00003, 0x7E, 0x7F, 0x7E, 0x7F, 0x7F, 0x7E),
    (1000.0, 0x7E, 0x7F, 0x7E, 0x7F, 0x7F, 0x7E),
    (np.inf, 0x7E, 0x7F, 0x7E, 0x7F, 0x7F, 0x7E),
    (-np.inf, 0xFE, 0xFF, 0xFE, 0xFF, 0xFF, 0xFE),
    (-np.nan, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F),
]


@pytest.mark.parametrize("row", OVERFLOW)
def test_where_libraries_disagree_on_e4m3(row):
    worlds = ("ocp_sat", "ocp_nonsat", "torch", "torch_old", "ml_dtypes", "nvidia")
    x = np.float32(row[0])
    assert tuple(int(lp.encode(x, "e4m3fn", **lp.preset(world, "e4m3fn"))) for world in worlds) == row[1:]


def test_e5m2_infinity():
    worlds = {"ocp_sat": 0x7B, "ocp_nonsat": 0x7C, "torch": 0x7C, "nvidia": 0x7B, "ml_dtypes": 0x7C}
    for world, code in worlds.items():
        assert int(lp.encode(np.inf, "e5m2", **lp.preset(world, "e5m2"))) == code, world


def test_what_no_policy_says_is_refused():
    with pytest.raises(lp.NotModelled, match="torch_e8m0"):
        lp.preset("torch", "e8m0")
    with pytest.raises(lp.NotModelled, match="e4m3fnuz"):
        lp.preset("nvidia", "e4m3fnuz")
    with pytest.raises(ValueError, match="ml_dtypes"):
        lp.preset("mldtypes", "bf16")
    with pytest.raises(TypeError, match="float32"):
        torch_e8m0(np.ones(2))


def test_a_preset_can_be_changed_without_changing_the_table():
    rules = lp.preset("nvidia", "e4m3fn")
    rules["nan"] = "canonical"
    assert lp.preset("nvidia", "e4m3fn")["nan"] == "nvidia"

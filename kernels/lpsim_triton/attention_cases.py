"""What `attention_crosscheck` runs: configurations in a fixed order, and their inputs, made from integers, so that two
machines make the same ones."""

from dataclasses import replace
from itertools import product
from typing import NamedTuple

import ml_dtypes
import numpy as np

from lpsim.policies import Stochastic
from lpsim.recipes import dynamic

from .remedies import Remedy

FLOAT8 = "e4m3"
DTYPES = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp16": np.dtype(np.float16)}
ALL_DTYPES = DTYPES | {FLOAT8: np.dtype(ml_dtypes.float8_e4m3fn)}
NOISE = Stochastic(16, seed=0x0123_4567_89AB_CDEF, stream=3, step=1)
FIRST_REMEDIES = {
    "plain": Remedy(),
    "dynamic": Remedy(dynamic(2.0)),
    "dynamic, beta 7": Remedy(dynamic(7.0, 2e-3)),
    "guarded": Remedy(dynamic(2.0, guard=True)),
    "wide-o": Remedy(delta_from="O32"),
    "rounded-l": Remedy(l_from="rounded"),
}
MORE_REMEDIES = {
    "dynamic, by row": Remedy(dynamic(2.0, scope="row")),
    "guarded, by row": Remedy(dynamic(2.0, guard=True, scope="row")),
    "pair-o": Remedy(delta_from="pair"),
    "delta-p": Remedy(delta_from="P"),
    "delta-pv": Remedy(delta_from="PV"),
    "stochastic": Remedy(rounding=NOISE),
    "stochastic, 9 bits, pair-o": Remedy(delta_from="pair", rounding=replace(NOISE, bits=9)),
    "stochastic, wide-o": Remedy(delta_from="O32", rounding=NOISE),
}
UNDERFLOWING_REMEDIES = {  # with delta computed again beside the maximum that makes rows of NaN
    "dynamic, delta-p": Remedy(dynamic(2.0), delta_from="P"),
    "dynamic, delta-pv": Remedy(dynamic(2.0), delta_from="PV"),
}
EVERY_REMEDIES = {  # maxima displaced whether they tie or not
    "every": Remedy(dynamic(2.0, guard=True, scope="every")),
    "every, rounded-l": Remedy(dynamic(7.0, guard=True, scope="every"), l_from="rounded"),
    "every, published": Remedy(dynamic(2.0, scope="every")),
}
REMEDIES = FIRST_REMEDIES | MORE_REMEDIES | UNDERFLOWING_REMEDIES | EVERY_REMEDIES
INPUTS = ("normal", "sharp", "sink", "ties", "one-signed", "identical", "huge", "tiny", "subnormal")
TIED_AND_HUGE = "tied and huge"  # where the published dynamic maximum underflows every weight: NaN, on both sides
NON_FINITE = "non-finite"
ALL_MINUS_INFINITY = "a row of -inf scores"
KEY_AT_MINUS_INFINITY = "a key of -inf scores"
VALUES_AT_FAULT = "non-finite v and do"
UNDERFLOWING = "two rows underflow"  # under the published dynamic maximum: their o is NaN, that of the others is not
MASKS = ("padding", "some", "bias", "bias16", "slope")


class Config(NamedTuple):
    """One comparison; q is (1, heads, n, d), k and v (1, kv_heads, n_keys, d)."""

    dtype: str
    d: int
    causal: bool
    inputs: str
    remedy: str = "plain"
    keys: int = 64
    n: int = 128
    n_keys: int = 128
    heads: int = 1
    kv_heads: int = 1
    mask: str = ""  #: one of MASKS
    left: int = -1  #: of the window; -1: there is none
    right: int = -1
    rows: int = 64  #: of the emulator's tiles; the kernels have their own, and no bit should hang on it


def configurations() -> list[Config]:
    """All of them: the index names the outputs and seeds the inputs. New ones at the end, for the others to stay."""
    return _plain() + _remedied() + _masked() + _windows() + _float8() + _small() + _special() + _every()


def _plain() -> list[Config]:
    both = (False, True)
    plain = [Config(*row) for row in product(DTYPES, (32, 64, 128, 256), both, INPUTS)]
    plain += [Config(*row, keys=128) for row in product(DTYPES, (64, 128), both, INPUTS)]
    remedied = _with_remedies(list(FIRST_REMEDIES)[1:])
    tiles = [
        Config(dtype, d, causal, "normal", keys=keys, n=256, n_keys=256)
        for dtype, d, causal, keys in product(DTYPES, (64, 128), both, (16, 32, 128))
    ]
    lengths = [
        Config("bf16", d, causal, "normal", n=n, n_keys=n_keys, heads=heads, kv_heads=kv_heads)
        for (n, n_keys), (heads, kv_heads), d, causal in product(
            ((100, 100), (1, 1), (200, 200), (72, 136), (321, 64)), ((2, 2), (4, 2)), (16, 64), both
        )
        if not causal or n == n_keys
    ]
    special = [Config(dtype, d, False, NON_FINITE) for dtype, d in product(DTYPES, (64, 128))]
    return plain + remedied + tiles + lengths + special


def _with_remedies(names: list[str]) -> list[Config]:
    found = [
        Config(dtype, d, causal, inputs, remedy, n=192, n_keys=192)
        for (remedy, inputs), (dtype, d, causal) in product(
            product(names, ("ties", "identical", "sharp", "one-signed", "huge", TIED_AND_HUGE)),
            (("bf16", 64, True), ("fp16", 128, False)),
        )
    ]
    return found + [
        Config("bf16", 128, causal, "ties", remedy, keys=128, n=256, n_keys=256)
        for remedy, causal in product(names, (False, True))
    ]


def _remedied() -> list[Config]:
    deltas = [
        Config("bf16", d, causal, "normal", remedy, keys, 136, 136, 4, 2)
        for d, remedy, (keys, causal) in product(
            (16, 32, 256), ("pair-o", "delta-p", "delta-pv"), ((16, False), (128, True))
        )
    ]
    special = [Config(dtype, 64, False, "subnormal", "stochastic") for dtype in DTYPES]
    special += [Config("bf16", d, False, ALL_MINUS_INFINITY, keys=128, n=192, n_keys=192) for d in (64, 128)]
    return _with_remedies(list(MORE_REMEDIES)) + deltas + special


def _masked() -> list[Config]:
    found = [
        Config("bf16", d, causal, "normal", n=200, n_keys=200, heads=4, kv_heads=2, mask=mask)
        for d, causal, mask in product((64, 128), (False, True), MASKS)
    ]
    found += [Config("fp16", 64, False, "sharp", n=72, n_keys=136, heads=2, kv_heads=2, mask=mask) for mask in MASKS]
    found += [Config("bf16", d, False, "ties", mask=mask) for d, mask in product((16, 256), ("some", "bias"))]
    return found + [
        Config("bf16", 64, True, "ties", remedy, n=192, n_keys=192, mask=mask)
        for remedy, mask in product(("guarded", "guarded, by row", *list(MORE_REMEDIES)[2:6]), ("some", "bias"))
    ]


def _windows() -> list[Config]:
    sides = ((0, 0), (37, 0), (64, 64), (5, 200))
    found = [
        Config("bf16", d, causal, "normal", n=200, n_keys=200, heads=2, left=left, right=right)
        for d, causal, (left, right) in product((64, 128), (False, True), sides)
    ]
    found += [Config("fp16", 64, False, "sharp", n=321, n_keys=64, left=left, right=9) for left in (3, 100)]
    return found + [
        Config("bf16", 64, False, "ties", remedy, 128, 200, 200, mask=mask, left=70, right=20)
        for remedy, mask in product(("plain", "guarded, by row", "delta-p", "pair-o", "stochastic"), ("", "some"))
    ]


def _float8() -> list[Config]:
    kinds = ("normal", "sharp", "ties", "one-signed", "huge")
    found = [Config(FLOAT8, *row) for row in product((32, 64, 128, 256), (False, True), kinds)]
    remedies = [*FIRST_REMEDIES, *MORE_REMEDIES][1:]
    found += [Config(FLOAT8, 64, True, "ties", remedy, n=192, n_keys=192) for remedy in remedies]
    found += [
        Config(FLOAT8, d, True, "sink", keys=keys, n=256, n_keys=256) for d, keys in product((64, 128), (32, 128))
    ]
    return found + [
        Config(FLOAT8, 64, False, "normal", n=77, n_keys=131, heads=4, kv_heads=2, mask=mask) for mask in ("", *MASKS)
    ]


def _small() -> list[Config]:
    """One of each kind whose results take little room: `attention_crosscheck.keep` prefers them."""
    base = Config("bf16", 16, True, "ties", keys=32, n=72, n_keys=72)
    found = [base._replace(remedy=remedy) for remedy in MORE_REMEDIES]
    found += [base._replace(causal=False, inputs="normal", mask=mask) for mask in MASKS]
    found += [base._replace(causal=False, inputs="normal", left=left, right=right) for left, right in ((20, 3), (0, 9))]
    return [*found, base._replace(causal=False, inputs=ALL_MINUS_INFINITY)]


def _special() -> list[Config]:
    """NaN and infinity beside what is masked: rows of NaN with tiles other than the kernels', operands at fault within
    one tile (0 times NaN would show several), and a key without weight where no tile divides the rows."""
    base = Config("bf16", 64, True, UNDERFLOWING, "dynamic", n=192, n_keys=192)
    long = base._replace(n=200, n_keys=200, rows=128)
    found = [
        base._replace(dtype=dtype, d=d, remedy=remedy, n=n, n_keys=n, rows=rows)
        for (dtype, d), remedy, (n, rows) in product(
            (("bf16", 64), ("fp16", 64), ("bf16", 128)), ("dynamic", "dynamic, beta 7"),
            ((192, 64), (192, 128), (200, 32), (256, 128)),
        )
    ]  # fmt: skip
    found += [long._replace(d=d, remedy=remedy) for d, remedy in product((64, 128), UNDERFLOWING_REMEDIES)]
    found += [long._replace(d=d, heads=4, kv_heads=2) for d in (16, 64, 128, 256)]
    found += [
        long._replace(d=d, causal=causal, mask=mask) for d, causal, mask in product((64, 128), (True, False), MASKS[:2])
    ]
    found += [
        long._replace(d=d, causal=False, left=left, right=right)
        for d, (left, right) in product((64, 128), ((37, 0), (64, 64)))
    ]
    found += [
        base._replace(d=d, n=n, n_keys=n, inputs=VALUES_AT_FAULT, remedy="delta-p", **pairs)
        for (d, n), pairs in product(
            ((64, 64), (128, 64), (64, 50), (128, 50), (256, 32)),
            ({}, {"mask": "some"}, {"causal": False, "mask": "bias"}, {"causal": False, "left": 5, "right": 9}),
        )
    ]
    found += [
        base._replace(d=d, causal=False, inputs=KEY_AT_MINUS_INFINITY, remedy="plain", n=n, n_keys=n)
        for d, n in product((64, 128, 256), (192, 200))
    ]
    small = base._replace(d=16, keys=32, n=72, n_keys=72)  # for `attention_crosscheck.keep`, as `_small`
    found += [small._replace(remedy=remedy, rows=128) for remedy in UNDERFLOWING_REMEDIES]
    found += [small._replace(dtype=dtype, rows=rows) for dtype, rows in product(DTYPES, (32, 128))]
    found += [small._replace(n=32, n_keys=32, inputs=VALUES_AT_FAULT, remedy="delta-p")]
    return [*found, small._replace(causal=False, inputs=KEY_AT_MINUS_INFINITY, remedy="plain")]


def _every() -> list[Config]:
    """Every maximum displaced, in each kernel: the plain one, two groups of warps, three. And the third without."""
    shapes = ((64, False, 128, 200), (64, True, 64, 200), (128, True, 128, 321), (256, False, 64, 136))
    found = [
        Config(dtype, d, causal, "ties" if causal and inputs == ALL_MINUS_INFINITY else inputs, remedy, keys, n, n)
        for remedy, (d, causal, keys, n), (dtype, inputs) in product(
            EVERY_REMEDIES, shapes, (("bf16", "normal"), ("fp16", "sharp"), ("bf16", ALL_MINUS_INFINITY))
        )
    ]
    found += [Config("bf16", 64, False, kind, "plain", 128, n, n, 4, 2) for kind in INPUTS for n in (192, 450)]
    found += [Config(FLOAT8, 64, True, "ties", remedy, n=192, n_keys=192) for remedy in EVERY_REMEDIES]
    found += [
        Config("bf16", 64, False, "ties", "every", 128, 200, 200, mask=mask, left=left, right=left // 3)
        for mask, left in (("some", -1), ("bias", -1), ("", 70))
    ]
    return found + [Config("bf16", 16, True, "ties", remedy, 32, 72, 72) for remedy in EVERY_REMEDIES]


def normals(seed: int, which: int, shape: tuple[int, ...]) -> np.ndarray:
    """Nearly normal float64: each the sum of four 16-bit integers from Philox, centred, of variance 1."""
    words = np.random.Philox(key=[seed, which]).random_raw(int(np.prod(shape)))
    total = sum(((words >> np.uint64(16 * i)) & np.uint64(0xFFFF)).astype(np.int64) for i in range(4))
    return ((total - 2 * 65535) / (65536 / np.sqrt(3.0))).reshape(shape)


def inputs(index: int, config: Config) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """q, k, v, do in the config's dtype."""
    of_q, of_k = (1, config.heads, config.n, config.d), (1, config.kv_heads, config.n_keys, config.d)
    q, k, v, do = (normals(index, i, shape) for i, shape in enumerate((of_q, of_k, of_k, of_q)))
    kind = config.inputs
    if kind == "sharp":
        q *= 6.0
    elif kind == "sink":  # every query likes the first key, which carries little
        q[..., 0] = 3.0 + 0.25 * q[..., 0]
        k[..., 0, 0] = 16.0
        v[..., 0, :] *= 0.125
    elif kind in ("ties", UNDERFLOWING):  # neighbours are the same key, and scores are small integers, so maxima tie
        q, k = np.round(q), np.round(k)
        k[..., 1::2, :] = k[..., : k.shape[-2] // 2 * 2 : 2, :]
        v = -np.abs(v) - 1.0
        if kind == UNDERFLOWING:  # a tied maximum of more than 150: 2^(s - 2 max) is 0 for every score of the row
            q[..., (11, config.n // 4 | 1), :] *= 128.0
    elif kind == "one-signed":
        v = -np.abs(v) - 0.5
        q *= 2.0
    elif kind == "identical":
        k[:] = k[..., :1, :]
    elif kind == "huge":  # logits in the thousands
        q, k = 24.0 * q, 24.0 * k
    elif kind == TIED_AND_HUGE:
        q, k = 24.0 * np.abs(q), 24.0 * np.abs(k)
        k[:] = k[..., :1, :]
    elif kind == NON_FINITE:
        q[..., 3, 5], k[..., 7, 1], v[..., 9, 2], do[..., 11, 3] = np.nan, np.inf, -np.inf, np.nan
    elif kind == VALUES_AT_FAULT:
        v[..., 9, 2], do[..., 11, 3] = -np.inf, np.nan
    elif kind == KEY_AT_MINUS_INFINITY:
        q, k[..., 7, 1] = np.abs(q) + 0.5, -np.inf
    elif kind == ALL_MINUS_INFINITY:
        k, q[..., 3, 5] = np.abs(k) + 0.5, -np.inf
    elif kind == "tiny":
        q, k = q * 2.0**-12, k * 2.0**-12
    elif kind == "subnormal":  # v in the subnormals of fp16; bf16 products with do near fp32's
        v = v * (2.0**-16 if config.dtype == "fp16" else 2.0**-122)
    dtype = ALL_DTYPES[config.dtype]
    return tuple(x.astype(np.float32).astype(dtype) for x in (q, k, v, do))  # pyright: ignore


def mask(index: int, config: Config) -> np.ndarray | None:
    """A mask or a bias that broadcasts to (1, heads, n, n_keys). Some rows of "some" and "bias" see no key, among them
    a whole tile; "bias16" has the values of bf16."""
    heads, n, n_keys = config.heads, config.n, config.n_keys
    if config.mask == "":
        return None
    if config.mask == "padding":
        return (np.arange(n_keys) < n_keys * 2 // 3)[None, None, None]
    if config.mask == "slope":
        far = np.arange(n_keys, dtype=np.float32)[None, None, None]
        return -far * np.exp2(-np.arange(heads, dtype=np.float32))[None, :, None, None] / 8
    drawn = normals(index, 4, (1, heads if config.mask != "bias16" else 1, n, n_keys)).astype(np.float32)
    if config.mask == "bias16":
        return drawn.astype(ml_dtypes.bfloat16).astype(np.float32)
    hidden = drawn > 0.5
    hidden[..., n // 3, :], hidden[..., 64:128, :] = True, True
    return ~hidden if config.mask == "some" else np.where(hidden, -np.inf, drawn).astype(np.float32)

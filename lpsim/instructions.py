"""`lp.machine("h200")`: what a GPU kernel computes, by the instruction's name.

A Machine is a name with rows: dot units (machines.py), special functions (core.special.ARRAYS), casts and
reduction orders. Anything without a row raises NotModelled.
"""

from typing import NamedTuple, Unpack

import numpy as np

from . import arrays, border, machine_dots, machines, orders, tile_sums
from .errors import NotModelled, choose, unknown
from .formats import fmt_name, lookup
from .threads import parallel_for
from .tile_sums import Options

GRAIN = 1 << 16  # elements that a thread takes at a time

#: cast target -> the policy of the instruction that Triton emits for it on sm_90, from float32
CASTS = {
    "bf16": {"nan": "nvidia"},  # cvt.rn.bf16.f32
    "fp16": {"nan": "nvidia"},  # cvt.rn.f16.f32
    "e4m3fn": {"nan": "nvidia", "overflow": "satfinite"},  # cvt.rn.satfinite.e4m3x2.f32
    "e5m2": {"nan": "nvidia", "overflow": "satfinite"},  # cvt.rn.satfinite.e5m2x2.f32
    "tf32": {"nan": "nvidia", "rounding": "rna"},  # cvt.rna.tf32.f32
}
ROUNDINGS = {
    "bf16": ("rne", "rtz"),
    "fp16": ("rne", "rtz"),
    "e4m3fn": ("rne",),
    "e5m2": ("rne",),
    "tf32": ("rna",),
}


class Machine(NamedTuple):
    """One GPU. `name` selects its rows; the methods are its instructions."""

    name: str

    def dot(self, a, b, c=None, *, fmt=None, a_fmt=None, b_fmt=None, path=None, accumulator=None):
        """a (..., M, K) times b (..., K, N) on the accumulator c, as the chained instruction: (..., M, N).

        a, b: arrays whose dtype says the format (ml_dtypes, float16, int8, torch), float32 on a grid named by a_fmt,
        b_fmt or fmt, or codes with the format named so; fmt="fp32" or "fp64" for chains of fma; tf32 cuts the low 13
        bits off any float32, as hardware does. c: in the accumulator's dtype, or None for zero. path: an instruction
        family (wgmma, mma, ..; `dot_rows` lists them), None for the machine's first that knows the formats.
        accumulator: fp32, fp16, fp64 or int32, the dtype of c and of the result; None for that row's own.
        K is padded with zeros to the unit's lanes. `dot_rows` tells source and evidence.
        Raises NotModelled for formats without a unit, TypeError and ValueError for operands that do not fit.
        """
        return machine_dots.dot(self.name, a, b, c, (fmt, a_fmt, b_fmt), path, accumulator)

    def dot_rows(self):
        """(path, format, accumulator) -> DotRow: every dot instruction modelled, its integers, source and evidence."""
        return machines.rows(self.name)

    def dot_scaled(
        self, a, a_scales, b, b_scales, c=None, *, fmt=None, a_fmt=None, b_fmt=None, scale_fmt="e8m0", path=None
    ):
        """The block-scaled instruction (Blackwell): elements a (..., M, K), b (..., K, N), float32 (..., M, N).

        Operands as in `dot`, e2m1 one code a byte; a_scales (..., M, K / block), b_scales (..., K / block, N): codes of
        scale_fmt, e8m0 or ue4m3. path: None, or tcgen05, tcgen05_mxf4 (b200), mma, mma_mxf4 (rtx5090).
        Raises NotModelled for machines without such an instruction; `tl_dot_scaled` is what Triton does there.
        """
        return machine_dots.dot_scaled(self.name, a, a_scales, b, b_scales, c, (fmt, a_fmt, b_fmt), scale_fmt, path)

    def tl_dot(self, a, b, acc=None, *, fmt=None, a_fmt=None, b_fmt=None, block=None, **options):
        """A kernel's loop acc = tl.dot(a, b, acc) over tiles of K, as Triton 3.6 compiles it for Hopper: (..., M, N).

        Operands as in `dot`; float32 and float64 arrays without a format are fp32 and fp64. block: (M, N, K) of the
        tiles, powers of two; None is one tile that holds the operands. What a tile lacks is zero. acc: in the output
        dtype, or None. options: form ("chained", or "added" for acc += tl.dot(a, b)), num_warps (4), input_precision
        ("tf32", "tf32x3", "bf16x3", "bf16x6", "ieee"), max_num_imprecise_acc, out_dtype: see `tl_dot.plan`, which
        shows the steps. Raises what it raises, and as `dot`.
        """
        return machine_dots.tl_dot(self.name, a, b, acc, (fmt, a_fmt, b_fmt), block, options)

    def tl_dot_scaled(
        self, a, a_scales, b, b_scales, acc=None, *, fmt=None, a_fmt=None, b_fmt=None, block=None, **options
    ):
        """tl.dot_scaled as Triton 3.6 emulates it on Hopper: float32 (..., M, N).

        a (..., M, K), b (..., K, N): e4m3fn, e5m2, e2m1 (one code a byte), bf16, fp16; a_scales (..., M, K / 32),
        b_scales (..., K / 32, N): e8m0 codes or None. block: (M, N) of the tile; None holds the operands. options:
        num_warps (4), fast_math (False: a scale of 255 is NaN). Inf and NaN of e5m2 become finite, as on the device.
        """
        given = (fmt, a_fmt, b_fmt)
        return machine_dots.tl_dot_scaled(self.name, a, a_scales, b, b_scales, acc, given, block, options)

    def exp2(self, x):
        """tl.exp2: MUFU.EX2 (ex2.approx.ftz.f32). float32 in and out, as in all functions here."""
        return self._function("exp2", x)

    def exp(self, x):
        """tl.exp: RN(x * log2 e), then ex2.approx.f32."""
        return self._function("exp", x)

    def log2(self, x):
        """tl.log2: libdevice's polynomial as Triton 3.6 compiles it."""
        return self._function("log2", x)

    def log(self, x):
        """tl.log: libdevice's polynomial as Triton 3.6 compiles it."""
        return self._function("log", x)

    def sqrt(self, x):
        """tl.sqrt: MUFU.SQRT (sqrt.approx.ftz.f32)."""
        return self._function("sqrt", x)

    def rsqrt(self, x):
        """tl.rsqrt: MUFU.RSQ (rsqrt.approx.ftz.f32)."""
        return self._function("rsqrt", x)

    def rcp(self, x):
        """1 / x in Triton: div.full.f32 with dividend 1."""
        return self._function("rcp", x)

    def sigmoid(self, x):
        """tl.sigmoid: 1 / (1 + exp(-x)) as compiled."""
        return self._function("sigmoid", x)

    def div(self, x, y):
        """x / y in Triton: div.full.f32."""
        return self._function("div", x, y)

    def ptx(self, instruction: str, *operands):
        """A PTX instruction by its name: ptx("rcp.approx.ftz.f32", x). ValueError names those there are."""
        from .core.special import ARRAYS

        known = {name: name for name in ARRAYS if "." in name}
        return self._function(choose("instruction", instruction, known), *operands)

    def cast(self, x, fmt, *, rounding=None):
        """Codes of float32 x as the conversion instruction gives them, NaN included.

        fmt: bf16, fp16 (rounding rne or rtz), e4m3fn, e5m2 (rne, satfinite), tf32 (rna; NaN is cut to 19 bits, so one
        with a payload below them becomes infinity). fp16 and bf16 x are widened first, exactly. Raises NotModelled
        for others; plain e4m3 is refused as ambiguous.
        """
        if fmt == "e4m3":
            raise ValueError("fmt='e4m3' is ambiguous: the hardware's is OCP's, 'e4m3fn'.")
        name = fmt_name(lookup(fmt))
        if name not in CASTS:
            raise NotModelled(f"{self.name} has no modelled cast to {name}; modelled: {', '.join(CASTS)}.")
        rules = dict(CASTS[name])
        if rounding is not None:
            if rounding not in ROUNDINGS[name]:
                raise unknown("rounding", rounding, ROUNDINGS[name])
            rules["rounding"] = rounding
        given = border.values(x, "x")
        if given.array.dtype == np.float64:
            raise TypeError("x has dtype float64; the instruction takes float32: round it first.")
        codes = arrays.encode(x, name, **rules)
        if name != "tf32":
            return codes
        bits = given.array.astype(np.float32).view(np.uint32)
        codes = np.where(np.isnan(given.array), bits & np.uint32(0xFFFFE000), np.asarray(codes))[()]
        return border.to_torch(codes) if given.torch else codes

    def sum(self, x, *, order=None, times=None, fusion: bool = True, **tile: Unpack[Options]):
        """tl.sum. With no option of the tile: float32 x (..., n) over the last axis in the named order
        (orders.ORDERS; "wgmma", attention's row sum, if None).

        With one of them (`tile_sums.Options`: num_warps=4, ..): x as a kernel loads it, in tiles padded with zeros to
        powers of two, added in the order that the tile's layout gives. fp32, fp16, bf16 (each addition rounds to the
        dtype), fp64 and int32; the result has x's dtype. times: another array like x: tl.sum(x * times), with fusion
        as enable_fp_fusion. Source: `warp_sums`. Raises NotModelled, TypeError and ValueError.
        """
        if not tile and times is None:
            given = self._float32(x, "x")
            result = orders.row_sum(given.array, "wgmma" if order is None else order)
            return border.to_torch(result) if given.torch else result
        if order is not None:
            raise TypeError("order= names the whole order: pass no options of a tile and no times= with it.")
        return tile_sums.total(x, self._tile("sum", tile), times, fusion)

    def max(self, x, **tile: Unpack[Options]):
        """tl.max: a NaN loses against any number, +0 is above -0; fp16 and bf16 give float32. Options as in `sum`."""
        return tile_sums.extreme(x, self._tile("max", tile), smallest=False)

    def min(self, x, **tile: Unpack[Options]):
        """tl.min, as `max`."""
        return tile_sums.extreme(x, self._tile("min", tile), smallest=True)

    def cumsum(self, x, **tile: Unpack[Options]):
        """tl.cumsum along an axis of the tile; bf16 gives float32. Options as in `sum`. Source: `warp_sums.running`."""
        return tile_sums.running(x, self._tile("cumsum", tile))

    def _tile(self, name: str, options: Options) -> tile_sums.Tile:
        if self.name != "h200":
            raise NotModelled(f"{self.name} has no modelled {name}; its reductions were not recorded.")
        return tile_sums.tile_of(options)

    def _float32(self, x, name: str) -> border.Given:
        given = border.values(x, name)
        if isinstance(x, float) and (float(np.float32(x)) == x or x != x):  # a Python number that float32 holds
            return border.Given(np.asarray(x, np.float32), False)
        if given.array.dtype != np.float32:
            raise TypeError(f"{name} has dtype {given.array.dtype}; the instruction takes float32.")
        return given

    def _function(self, name: str, *operands):
        from .core.special import ARRAYS

        if self.name != "h200":
            raise NotModelled(f"{self.name} has no modelled {name}; its special functions were not recorded.")
        given = [self._float32(x, label) for x, label in zip(operands, "xy", strict=False)]
        shape = np.broadcast_shapes(*(g.array.shape for g in given))
        flat = [np.ascontiguousarray(border.flat_broadcast(g.array, shape)) for g in given]
        result = np.empty(shape, np.float32)
        out = result.reshape(-1)

        def body(start: int, stop: int) -> None:
            ARRAYS[name](*(x[start:stop] for x in flat), out[start:stop])

        parallel_for(body, out.size, GRAIN)
        return border.to_torch(result) if any(g.torch for g in given) else result[()]


def machine(name: str = "h200") -> Machine:
    """The Machine of this name; ValueError names those there are."""
    return Machine(choose("machine", name, {known: known for known in machines.names()}))


__all__ = ["CASTS", "Machine", "machine"]

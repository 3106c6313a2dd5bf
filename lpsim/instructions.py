"""`lp.machine("h200")`: what a GPU kernel computes, by the instruction's name.

A Machine is a name with rows: dot units (machines.py), special functions (core.special.ARRAYS), casts and
reduction orders. Anything without a row raises NotModelled.
"""

from typing import NamedTuple, Unpack

from . import border, machine_dots, machine_elementwise, machines, orders, tile_sums, triton_random
from .errors import NotModelled, choose
from .machine_elementwise import CASTS
from .tile_sums import Options


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
        """A kernel's loop acc = tl.dot(a, b, acc) over tiles of K, as Triton compiles it for Hopper: (..., M, N).

        Operands as in `dot`; float32 and float64 arrays without a format are fp32 and fp64. block: (M, N, K) of the
        tiles, powers of two; None is one tile that holds the operands. What a tile lacks is zero. acc: in the output
        dtype, or None. options: form ("chained", or "added" for acc += tl.dot(a, b)), num_warps (4), input_precision
        ("tf32", "tf32x3", "bf16x3", "bf16x6", "ieee"), max_num_imprecise_acc, out_dtype, triton ("3.6"): see
        `tl_dot.plan`, which shows the steps. Raises what it raises, and as `dot`.
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
        """tl.exp2: MUFU.EX2 (ex2.approx.ftz.f32). float32 in and out, as in all functions of one operand here."""
        return machine_elementwise.function(self.name, "exp2", x)

    def exp(self, x):
        """tl.exp: RN(x * log2 e), then ex2.approx.f32."""
        return machine_elementwise.function(self.name, "exp", x)

    def log2(self, x):
        """tl.log2: libdevice's polynomial as Triton 3.6 compiles it."""
        return machine_elementwise.function(self.name, "log2", x)

    def log(self, x):
        """tl.log: libdevice's polynomial as Triton 3.6 compiles it."""
        return machine_elementwise.function(self.name, "log", x)

    def sqrt(self, x):
        """tl.sqrt: MUFU.SQRT (sqrt.approx.ftz.f32)."""
        return machine_elementwise.function(self.name, "sqrt", x)

    def sqrt_rn(self, x):
        """tl.sqrt_rn: correctly rounded (sqrt.rn.f32)."""
        return machine_elementwise.function(self.name, "sqrt_rn", x)

    def rsqrt(self, x):
        """tl.rsqrt: MUFU.RSQ (rsqrt.approx.ftz.f32)."""
        return machine_elementwise.function(self.name, "rsqrt", x)

    def rcp(self, x):
        """1 / x in Triton: div.full.f32 with dividend 1."""
        return machine_elementwise.function(self.name, "rcp", x)

    def sigmoid(self, x):
        """tl.sigmoid: 1 / (1 + exp(-x)) as compiled."""
        return machine_elementwise.function(self.name, "sigmoid", x)

    def erf(self, x):
        """tl.erf: libdevice's polynomials and MUFU.EX2."""
        return machine_elementwise.function(self.name, "erf", x)

    def sin(self, x):
        """tl.sin: libdevice's reduction and polynomial. MUFU.SIN is ptx("sin.approx.f32", x)."""
        return machine_elementwise.function(self.name, "sin", x)

    def cos(self, x):
        """tl.cos: libdevice's reduction and polynomial. MUFU.COS is ptx("cos.approx.f32", x)."""
        return machine_elementwise.function(self.name, "cos", x)

    def floor(self, x):
        """tl.floor: subnormals are zeros first, so that floor(-1e-40) is -0."""
        return machine_elementwise.function(self.name, "floor", x)

    def ceil(self, x):
        """tl.ceil: subnormals are zeros first."""
        return machine_elementwise.function(self.name, "ceil", x)

    def libdevice(self, name: str, x):
        """libdevice.exp or libdevice.tanh (triton.language.extra), by name: "exp", "tanh"."""
        known = {"exp": "libdevice.exp", "tanh": "libdevice.tanh"}
        return machine_elementwise.function(self.name, choose("name", name, known), x)

    def ptx(self, instruction: str, *operands):
        """A PTX instruction by its name: ptx("rcp.approx.ftz.f32", x). ValueError names those there are.

        float32 operands; float16 and bfloat16 where the name ends so. sin, cos, tanh, lg2, ex2, .. and five divisions.
        """
        return machine_elementwise.ptx(self.name, instruction, *operands)

    def add(self, x, y):
        """x + y. Operands of all arithmetic: float32, float16 or bfloat16 arrays of one dtype, which the result has."""
        return machine_elementwise.operation(self.name, "add", x=x, y=y)

    def sub(self, x, y):
        """x - y: one rounding to nearest, as all arithmetic here; a NaN is 0x7FFFFFFF or 0x7FFF."""
        return machine_elementwise.operation(self.name, "sub", x=x, y=y)

    def mul(self, x, y):
        """x * y."""
        return machine_elementwise.operation(self.name, "mul", x=x, y=y)

    def div(self, x, y):
        """x / y in Triton: div.full.f32; 16-bit operands are widened to float32, and the quotient is rounded again."""
        return machine_elementwise.operation(self.name, "div", x=x, y=y)

    def div_rn(self, x, y):
        """tl.div_rn: x / y correctly rounded, float32 only (div.rn.f32)."""
        return machine_elementwise.function(self.name, "div_rn", x, y)

    def fma(self, x, y, z):
        """tl.fma: x * y + z with one rounding."""
        return machine_elementwise.operation(self.name, "fma", x=x, y=y, z=z)

    def mul_add(self, x, y, z, *, subtract: bool = False, fp_fusion: bool = True):
        """x * y + z (or - z) as written in a kernel: one fma, or with enable_fp_fusion=False two roundings."""
        name = f"x*y {'-' if subtract else '+'} z{'' if fp_fusion else ', not fused'}"
        return machine_elementwise.operation(self.name, name, x=x, y=y, z=z)

    def mul_add_mul(self, x, y, z, w, *, subtract: bool = False, fp_fusion: bool = True):
        """x * y + z * w (or - z * w): fma(x, y, RN(z * w)), the left product exact; or three roundings."""
        name = f"x*y {'-' if subtract else '+'} z*w{'' if fp_fusion else ', not fused'}"
        return machine_elementwise.operation(self.name, name, x=x, y=y, z=z, w=w)

    def minimum(self, x, y, *, propagate_nan: bool = False):
        """tl.minimum: -0 below +0; the number where one is NaN, or NaN with propagate_nan=tl.PropagateNan.ALL."""
        name = "minimum, NaN kept" if propagate_nan else "minimum"
        return machine_elementwise.operation(self.name, name, x=x, y=y)

    def maximum(self, x, y, *, propagate_nan: bool = False):
        """tl.maximum, as `minimum`."""
        name = "maximum, NaN kept" if propagate_nan else "maximum"
        return machine_elementwise.operation(self.name, name, x=x, y=y)

    def cast(self, x, fmt, *, rounding=None):
        """Codes of x as the conversion instruction gives them, NaN included; integers for an integer fmt.

        x: float32; fp16, bf16, e4m3fn and e5m2 are widened first, exactly. fmt: bf16, fp16 (rounding rne or rtz),
        e4m3fn, e5m2 (rne, satfinite), tf32 (rna; NaN is cut to 19 bits, so one with a payload below them becomes
        infinity), fp32 (from narrower ones); int32, int16, int8 from float32 (truncated, saturated, NaN is 0; int8 is
        the low byte of int16). Triton's e5m2 to bf16 makes numbers of infinities and NaN: 65536 and up.
        Raises NotModelled for others; plain e4m3 is refused as ambiguous.
        """
        return machine_elementwise.cast(self.name, x, fmt, rounding)

    def rand(self, seed, offset, n_rounds: int = 10):
        """tl.rand: float32 in [0, 1). offset: int32, uint32 or int64 array, or an int; see `lpsim.triton_random`."""
        return self._random("rand")(seed, offset, n_rounds)

    def rand4x(self, seed, offset, n_rounds: int = 10):
        """tl.rand4x: four float32 arrays in [0, 1)."""
        return self._random("rand4x")(seed, offset, n_rounds)

    def randn(self, seed, offset, n_rounds: int = 10):
        """tl.randn: float32, normal."""
        return self._random("randn")(seed, offset, n_rounds)

    def randn4x(self, seed, offset, n_rounds: int = 10):
        """tl.randn4x: four float32 arrays, normal."""
        return self._random("randn4x")(seed, offset, n_rounds)

    def randint(self, seed, offset, n_rounds: int = 10):
        """tl.randint: uint32."""
        return self._random("randint")(seed, offset, n_rounds)

    def randint4x(self, seed, offset, n_rounds: int = 10):
        """tl.randint4x: four uint32 arrays."""
        return self._random("randint4x")(seed, offset, n_rounds)

    def _random(self, name: str):
        machine_elementwise.refuse_unrecorded(self.name, name)
        return getattr(triton_random, name)

    def sum(self, x, *, order=None, times=None, fusion: bool = True, **tile: Unpack[Options]):
        """tl.sum. With no option of the tile: float32 x (..., n) over the last axis in the named order
        (orders.ORDERS; "wgmma", attention's row sum, if None).

        With one of them (`tile_sums.Options`: num_warps=4, ..): x as a kernel loads it, in tiles padded with zeros to
        powers of two, added in the order that the tile's layout gives. fp32, fp16, bf16 (each addition rounds to the
        dtype), fp64 and int32; the result has x's dtype. times: another array like x: tl.sum(x * times), with fusion
        as enable_fp_fusion. Source: `warp_sums`. Raises NotModelled, TypeError and ValueError.
        """
        if not tile and times is None:
            given = machine_elementwise.float32(x, "x")
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


def machine(name: str = "h200") -> Machine:
    """The Machine of this name; ValueError names those there are."""
    return Machine(choose("machine", name, {known: known for known in machines.names()}))


__all__ = ["CASTS", "Machine", "machine"]

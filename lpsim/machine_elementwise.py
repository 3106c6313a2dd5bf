"""What the elementwise methods of `Machine` do: arrays of any layout in, the instruction's results out."""

import numpy as np

from . import arrays, border, native
from .errors import NotModelled, choose, unknown
from .formats import ALIASES, fmt_name, lookup
from .threads import parallel_for

GRAIN = 1 << 16  # elements that a thread takes at a time
RECORDED = "h200"  #: the machine whose elementwise instructions were recorded

#: cast target -> the policy of the instruction that Triton emits for it on sm_90
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
#: casts to integers: cvt.rzi.s32.f32 and cvt.rzi.s16.f32, of which int8 keeps the low byte
INTEGERS = ("int32", "int16", "int8")
EIGHT_BITS = ("e4m3fn", "e5m2")
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def refuse_unrecorded(machine: str, what: str) -> None:
    """NotModelled unless the machine is the one that was recorded."""
    if machine != RECORDED:
        raise NotModelled(f"{machine} has no modelled {what}; its elementwise instructions were not recorded.")


def float32(x, name: str) -> border.Given:
    """x as float32: arrays of it, and Python numbers that it holds. TypeError for anything else."""
    given = border.values(x, name)
    if isinstance(x, float) and (float(np.float32(x)) == x or x != x):  # a Python number that float32 holds
        return border.Given(np.asarray(x, np.float32), False)
    if given.array.dtype != np.float32:
        raise TypeError(f"{name} has dtype {given.array.dtype}; the instruction takes float32.")
    return given


def _flat(given: list[border.Given]) -> tuple[tuple[int, ...], list[np.ndarray]]:
    """The common shape, and each operand broadcast to it as a contiguous flat array."""
    shape = np.broadcast_shapes(*(x.array.shape for x in given))
    return shape, [np.ascontiguousarray(border.flat_broadcast(x.array, shape)) for x in given]


def _given_back(flat: np.ndarray, shape: tuple[int, ...], given: list[border.Given]):
    result = flat.reshape(shape)
    return border.to_torch(result) if any(x.torch for x in given) else result[()]


def function(machine: str, name: str, *operands):
    """A function of `core.special.ARRAYS` of one or two float32 arrays that broadcast."""
    from .core.special import ARRAYS

    refuse_unrecorded(machine, name)
    given = [float32(x, label) for x, label in zip(operands, "xy", strict=False)]
    shape, flat = _flat(given)
    out = np.empty(flat[0].size, np.float32)

    def body(start: int, stop: int) -> None:
        ARRAYS[name](*(x[start:stop] for x in flat), out[start:stop])

    parallel_for(body, out.size, GRAIN)
    return _given_back(out, shape, given)


def ptx(machine: str, instruction: str, *operands):
    """A PTX instruction by its name. ValueError names those there are; TypeError for a wrong number of operands."""
    from .core.special import BINARY, HALVES, INSTRUCTIONS

    names = [*INSTRUCTIONS, *HALVES]
    choose("instruction", instruction, dict.fromkeys(names))
    wanted = 2 if instruction in BINARY else 1
    if len(operands) != wanted:
        raise TypeError(f"{instruction} takes {wanted} operands, got {len(operands)}.")
    if instruction in INSTRUCTIONS:
        return function(machine, instruction, *operands)
    refuse_unrecorded(machine, instruction)
    fmt = HALVES[instruction][1]
    given = [border.values(operands[0], "x")]
    if _format(given[0].array) != fmt:
        raise TypeError(f"x has dtype {given[0].array.dtype}; {instruction} takes {DTYPES[fmt]}.")
    shape, flat = _flat(given)
    codes = native.half(instruction, flat[0].view(np.uint16))
    return _given_back(codes.view(flat[0].dtype), shape, given)


def _format(array: np.ndarray) -> str | None:
    return ALIASES.get(array.dtype.name)


def _same_type(operands: dict) -> tuple[str, list[border.Given]]:
    """The one format of all operands; Python numbers take that of the arrays, if it holds them."""
    given = {name: border.values(x, name) for name, x in operands.items()}
    typed = {name: x for name, x in given.items() if not isinstance(operands[name], float)}
    found = {_format(x.array) for x in typed.values()} or {"fp32"}
    if len(found) > 1 or not found <= set(DTYPES):
        dtypes = ", ".join(f"{name}: {x.array.dtype}" for name, x in typed.items())
        raise TypeError(f"operands must all be float32, all float16 or all bfloat16, got {dtypes}.")
    fmt = found.pop()
    assert fmt is not None
    for name in given.keys() - typed.keys():
        number = arrays.round(np.float64(operands[name]), fmt)
        if not (number == operands[name] or operands[name] != operands[name]):
            raise TypeError(f"{name}={operands[name]!r} is not a {DTYPES[fmt]}: round it first.")
        dtype = next((x.array.dtype for x in typed.values()), np.dtype(np.float32))
        given[name] = border.Given(np.asarray(number, np.float32).astype(dtype), False)
    return fmt, list(given.values())


def operation(machine: str, name: str, **operands):
    """An operation of `native` on float32, bfloat16 or float16 operands of one dtype; the result has it too."""
    refuse_unrecorded(machine, name)
    fmt, given = _same_type(operands)
    shape, flat = _flat(given)
    word = "u4" if fmt == "fp32" else "u2"
    codes = native.compute(name, fmt, [x.view(word) for x in flat])
    return _given_back(codes.view(flat[0].dtype), shape, given)


def cast(machine: str, x, fmt, rounding):
    """Codes, or integers: see `Machine.cast`."""
    if fmt in INTEGERS:
        return _to_integers(machine, x, fmt, rounding)
    if fmt == "e4m3":
        raise ValueError("fmt='e4m3' is ambiguous: the hardware's is OCP's, 'e4m3fn'.")
    name = fmt_name(lookup(fmt))
    given = border.values(x, "x")
    source = _format(given.array)
    if given.array.dtype == np.float64:
        raise TypeError("x has dtype float64; the instruction takes float32: round it first.")
    if name == "fp32" and source != "fp32":
        return _widened(given, source, rounding)
    if name not in CASTS or (name in EIGHT_BITS and source in EIGHT_BITS):
        raise NotModelled(f"{machine} has no modelled cast from {source} to {name}; modelled: {', '.join(CASTS)}.")
    rules = dict(CASTS[name])
    if rounding is not None:
        if rounding not in ROUNDINGS[name]:
            raise unknown("rounding", rounding, ROUNDINGS[name])
        rules["rounding"] = rounding
    codes = arrays.encode(x, name, **rules)
    if name == "tf32":
        bits = given.array.astype(np.float32).view(np.uint32)
        codes = np.where(np.isnan(given.array), bits & np.uint32(0xFFFFE000), np.asarray(codes))[()]
    elif name == "bf16" and source == "e5m2":
        codes = _e5m2_to_bf16(given.array.view(np.uint8), np.asarray(codes))[()]
    else:
        return codes
    return border.to_torch(codes) if given.torch else codes


def _to_integers(machine: str, x, fmt: str, rounding):
    from .core.special import INTEGERS as LOOPS

    refuse_unrecorded(machine, f"cast to {fmt}")
    if rounding not in (None, "rtz"):
        raise unknown("rounding", rounding, ("rtz",))
    given = [float32(x, "x")]
    shape, flat = _flat(given)
    loop, dtype = LOOPS[fmt]
    out = np.empty(flat[0].size, dtype)
    parallel_for(lambda start, stop: loop(flat[0][start:stop], out[start:stop]), out.size, GRAIN)
    return _given_back(out, shape, given)


def _widened(given: border.Given, source: str | None, rounding):
    """Codes of float32: exact. A NaN is 0x7FFFFFFF, but of bf16 (cvt.f32.bf16, a shift) its own bits."""
    if rounding is not None:
        raise ValueError(f"rounding={rounding!r}: widening to float32 is exact and takes none.")
    if source == "bf16":
        codes = given.array.view(np.uint16).astype(np.uint32) << np.uint32(16)
    else:
        values = np.asarray(given.array.astype(np.float32))
        codes = np.where(np.isnan(values), np.uint32(0x7FFFFFFF), values.view(np.uint32))
    return border.to_torch(codes[()]) if given.torch else codes[()]


def _e5m2_to_bf16(codes: np.ndarray, converted: np.ndarray) -> np.ndarray:
    """Triton shifts the bits and multiplies by 2^112 in bf16: Inf and NaN become 65536 and up."""
    special = (codes & 0x7F) >= 0x7C
    as_numbers = (codes.astype(np.uint16) & 0x80) << 8 | (0x4780 + ((codes.astype(np.uint16) & 3) << 5))
    return np.where(special, as_numbers.astype(np.uint16), converted)

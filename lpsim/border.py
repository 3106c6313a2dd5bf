"""What users pass and what they get back: the one border to NumPy, ml_dtypes and torch.

Values are floats of any library; codes are unsigned integers. Nothing is converted silently: integers,
complex numbers, strings and objects are refused where a float is needed, codes where values are meant.
"""

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from . import formats
from .formats import Format

NO_NUMPY = ("bfloat16", "float8")  # torch types that NumPy knows through ml_dtypes only
CODE_DTYPES = {8: np.dtype(np.uint8), 16: np.dtype(np.uint16), 32: np.dtype(np.uint32)}


class Given(NamedTuple):
    """An argument as a NumPy array, and whether it came as a torch tensor."""

    array: np.ndarray
    torch: bool


def _is_torch(x) -> bool:
    return type(x).__module__.partition(".")[0] == "torch" and hasattr(x, "detach")


def _ml_dtype(name: str):
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


def _from_torch(tensor, argument: str) -> np.ndarray:
    """The tensor's memory as an array; bf16 and float8 come as ml_dtypes."""
    if tensor.device.type != "cpu":
        raise ValueError(
            f"{argument} is a tensor on {tensor.device}; lpsim computes on the CPU: pass {argument}.cpu()."
        )
    tensor = tensor.detach()
    name = formats.dtype_name(tensor.dtype)
    if name.startswith(NO_NUMPY):
        import torch

        carrier = {1: torch.uint8, 2: torch.int16}[tensor.element_size()]
        return tensor.contiguous().view(carrier).numpy().view(_ml_dtype(name))
    return tensor.resolve_conj().numpy()


def to_torch(array: np.ndarray) -> Any:
    """The array as a tensor, ml_dtypes as torch's own types."""
    import torch

    array = np.asarray(array)
    if array.dtype.kind == "V" or array.dtype.name.startswith(NO_NUMPY):
        carrier = {1: np.uint8, 2: np.int16}[array.dtype.itemsize]
        return torch.from_numpy(np.ascontiguousarray(array).view(carrier)).view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array)


def raw(x, argument: str) -> Given:
    """x as a native array of whatever dtype it has."""
    if _is_torch(x):
        return Given(_from_torch(x, argument), True)
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{argument} is a masked array; its mask would be lost: pass a plain array.")
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ValueError(f"{argument} is not an array: {error}") from None
    return Given(array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")), False)


def float_format(dtype: np.dtype) -> Format | None:
    """The format of a float dtype of NumPy or ml_dtypes that lpsim has; None for any other dtype."""
    name = formats.ALIASES.get(dtype.name)
    return formats.FORMATS[name] if name else None


def source_format(array: np.ndarray) -> Format:
    """The format of an array that `values` has passed."""
    fmt = float_format(array.dtype)
    assert fmt is not None
    return fmt


def values(x, argument: str) -> Given:
    """x as an array of floats. TypeError tells codes, integers, complex numbers and objects apart."""
    given = raw(x, argument)
    dtype = given.array.dtype
    if float_format(dtype) is not None:
        return given
    if dtype.kind == "u" and dtype.itemsize < 8:
        why = f"{dtype} arrays hold codes, not numbers; decode them first: lp.decode({argument}, fmt)"
    elif dtype.kind in "iub":
        why = f"integers are not converted silently: pass {argument} as float64, or use lp.encode"
    elif dtype.kind == "c":
        why = "complex numbers are not supported"
    elif dtype.kind == "O":
        why = "object arrays are taken by lp.encode only, and only if every element is an int or a Fraction"
    else:
        why = f"lpsim knows {', '.join(formats.ALIASES)}"
    raise TypeError(f"{argument} has dtype {dtype}, but values must be floats: {why}.")


def exact_numbers(x, argument: str) -> Given | None:
    """x as int64, uint64 or an object array of ints and Fractions, if it is one; else None."""
    given = raw(x, argument)
    array = given.array
    if array.dtype.kind == "i" or array.dtype == np.uint64:
        return Given(array.astype(np.int64) if array.dtype.kind == "i" else array, given.torch)
    if array.dtype.kind != "O":
        return None
    for element in array.flat:
        if isinstance(element, bool) or not isinstance(element, int | np.integer | Fraction):
            raise TypeError(
                f"{argument} is an object array with {element!r} ({type(element).__name__}) in it; "
                "only ints and Fractions are exact."
            )
    return given


def codes(x, fmt: Format, argument: str = "codes") -> Given:
    """x as an array of container codes of fmt; TypeError for other dtypes, ValueError for codes out of range."""
    given = raw(x, argument)
    array, wanted = given.array, code_dtype(fmt)
    if isinstance(x, int) and not isinstance(x, bool):
        if not 0 <= x < 1 << (fmt.bits + fmt.pad):
            raise ValueError(f"{argument}={x} is not a code of {formats.fmt_name(fmt)}: it has {fmt.bits} bits.")
        array = np.array(x, dtype=wanted)
    if float_format(array.dtype) == fmt:
        array = array.view(wanted) if array.ndim else array.reshape(1).view(wanted).reshape(())
    if array.dtype != wanted:
        raise TypeError(
            f"{argument} has dtype {array.dtype}; codes of {formats.fmt_name(fmt)} are {wanted} "
            "(values are rounded by lp.encode)."
        )
    limit, padding = 1 << (fmt.bits + fmt.pad), (1 << fmt.pad) - 1
    if limit <= np.iinfo(wanted).max and array.size and int(array.max()) >= limit:
        raise ValueError(f"{argument} holds {int(array.max()):#x}, but {formats.fmt_name(fmt)} has {fmt.bits} bits.")
    if padding and np.bitwise_and(array, padding).any():
        raise ValueError(f"{argument} has bits set in the lowest {fmt.pad}, which {formats.fmt_name(fmt)} leaves zero.")
    return Given(array, given.torch)


def code_dtype(fmt: Format) -> np.dtype:
    """uint8, uint16 or uint32."""
    return CODE_DTYPES[formats.container_bits(fmt)]


def value_dtype(fmt: Format, *operands: np.ndarray) -> np.dtype:
    """The operands' common float dtype if it holds fmt's grid, else float32, else float64."""
    dtypes = {operand.dtype for operand in operands}
    common = dtypes.pop() if len(dtypes) == 1 else _common_dtype(dtypes)
    for dtype in (common, np.dtype(np.float32), np.dtype(np.float64)):
        if dtype is not None and holds(dtype, fmt):
            return dtype
    raise ValueError(
        f"{formats.fmt_name(fmt)} has values beyond float64, so it has no array of values: work on its codes "
        "(lp.encode, lp.convert, lp.scalar), or on exact values (lp.decode_exact)."
    )


def _common_dtype(dtypes: set) -> np.dtype | None:
    standard = {dtype for dtype in dtypes if dtype.kind == "f"}
    return np.result_type(*dtypes) if standard == dtypes and dtypes else None


def holds(dtype: np.dtype, fmt: Format) -> bool:
    """True if the float dtype has every value of fmt, infinity and NaN included."""
    own = float_format(dtype)
    if own is None:
        return False
    return formats.fits(fmt, own) and own.infinity >= fmt.infinity and formats.has_nan(own) >= formats.has_nan(fmt)


def output(out, shape: tuple, dtype: np.dtype, argument: str = "out"):
    """`out` itself if it fits, a new array if it is None; TypeError or ValueError if it does not fit."""
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray):
        raise TypeError(f"{argument} must be a NumPy array, got {type(out).__name__}.")
    if out.dtype != dtype or out.shape != shape:
        raise ValueError(f"{argument} must be {dtype} of shape {shape}, got {out.dtype} of shape {out.shape}.")
    if not out.flags.writeable:
        raise ValueError(f"{argument} is read-only.")
    return out


def flat_broadcast(array: np.ndarray, shape: tuple) -> np.ndarray:
    """The array broadcast to shape, as one dimension in C order; a copy only where the layout needs it."""
    return (array if array.shape == shape else np.broadcast_to(array, shape)).reshape(-1)

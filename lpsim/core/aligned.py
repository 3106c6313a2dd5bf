"""Work arrays of compiled code that begin on a cache line: a vector of 64 bytes then never touches two."""

import numpy as np

from .._jit import njit

LINE = 64


@njit
def aligned(size, dtype):
    """An array (size,) of NumPy type dtype, not initialised; its elements' size divides 64."""
    room = np.empty(size + LINE, dtype)
    start = (LINE - np.int64(room.ctypes.data) % LINE) % LINE // room.itemsize
    return room[start : start + size]

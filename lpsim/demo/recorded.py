"""A recorded H200 run of flash attention, computed again on the CPU and compared bit for bit."""

from typing import NamedTuple

import numpy as np

from .. import attention, data


class Agreement(NamedTuple):
    """How many elements of one recorded run came out with the same bits."""

    inputs: str
    fmt: str
    shape: tuple[int, ...]
    causal: bool
    compared: dict[str, int]  #: elements, by name of the output
    differing: dict[str, int]
    bits: int  #: compared, all outputs together


def cases() -> list[dict]:
    """The recorded forward runs: shapes, tiles and inputs."""
    return data.description("flash_forward")


def replay(case: dict) -> Agreement:
    """Compute one recorded run with recipe triton and compare o, l and m."""
    stored = data.run("flash_forward", case["case"])
    block = (case["block_m"], case["block_n"])
    q, k, v = (stored[name] for name in "qkv")
    result = attention.forward(q, k, v, causal=case["causal"], block=block, fmt=case["dtype"])
    computed = {"o": result.o, "l": result.l.view(np.uint32), "m": result.m.view(np.uint32)}
    recorded = {name: stored[name].view(computed[name].dtype) for name in computed}
    return Agreement(
        case["inputs"],
        case["dtype"],
        q.shape,
        case["causal"],
        {name: int(x.size) for name, x in recorded.items()},
        {name: int(np.count_nonzero(computed[name] != x)) for name, x in recorded.items()},
        sum(x.size * x.dtype.itemsize * 8 for x in recorded.values()),
    )

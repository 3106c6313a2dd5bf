"""What a call rounds to: the format, the policy, and the random words of its elements."""

import numpy as np

from .core import loops
from .core.codec import FP64
from .formats import Format, fmt_name, lookup
from .policies import Rules, Stochastic, policy

NO_WORDS = np.empty(0, np.int64)


def code_format(fmt, argument: str = "fmt") -> Format:
    """The row of a format that has codes here; ValueError for fp64."""
    row = lookup(fmt, argument)
    if row == FP64:
        raise ValueError(f"{argument}='fp64' is a source of values only: float64 arrays are their own values.")
    return row


class Target:
    """fmt, policy and noise of one call, from its arguments. Raises as `lookup` and `policy` do."""

    def __init__(self, fmt, rules: Rules):
        self.fmt = code_format(fmt)
        self.policy = policy(**rules)
        rounding = rules.get("rounding")
        self.noise = rounding if isinstance(rounding, Stochastic) else None

    def check_words(self, shape: tuple) -> None:
        """ValueError unless words that the caller gave have the shape of the result."""
        if self.noise is not None and self.noise.words is not None and self.noise.words.shape != shape:
            raise ValueError(f"words has shape {self.noise.words.shape}, but the result has shape {shape}.")

    def words(self, start: int, count: int) -> np.ndarray:
        """int64 random integers R of elements start .. start + count - 1; empty if the rounding needs none."""
        noise = self.noise
        if noise is None:
            return NO_WORDS
        if noise.words is not None:
            return np.ascontiguousarray(noise.words.reshape(-1)[start : start + count])
        words = np.empty(count, np.int64)
        loops.fill_words(words, noise.offset + start, np.uint64(noise.seed), noise.stream, noise.step, noise.bits)
        return words

    def refuse_lost(self, lost: int) -> None:
        """ValueError if a loop reports an answer that the format has no code for."""
        if lost:
            raise ValueError(
                f"{fmt_name(self.fmt)} has neither NaN nor infinity to answer with: pass overflow='satfinite' "
                "(and nan='nvidia' if NaN may become the largest value)."
            )

"""Attention, emulated: `forward` and `backward` in any recipe, and `trace`, which shows every site of them."""

from .backward import Backward, backward
from .forward import Forward, forward
from .traced import trace

__all__ = ["Backward", "Forward", "backward", "forward", "trace"]

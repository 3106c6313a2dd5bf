"""Attention, emulated: `forward` and `backward` in any recipe."""

from .backward import Backward, backward
from .forward import Forward, forward

__all__ = ["Backward", "Forward", "backward", "forward"]

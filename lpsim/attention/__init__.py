"""Attention, emulated: `forward` and `backward` in any recipe, `trace`, which shows every site of them, and `detect`,
which finds the rows whose rounding has a direction."""

from .backward import Backward, backward
from .detector import Detection, detect
from .forward import Forward, forward
from .traced import trace

__all__ = ["Backward", "Detection", "Forward", "backward", "detect", "forward", "trace"]

"""Attention, emulated: `forward` in any recipe."""

from .forward import Forward, forward

__all__ = ["Forward", "forward"]

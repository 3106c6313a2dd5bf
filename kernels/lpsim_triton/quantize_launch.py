"""Which kernel computes a rounding, and its launch."""

from typing import TYPE_CHECKING, NamedTuple

import triton

from lpsim.core import fast_plan
from lpsim.core.codec import FP32
from lpsim.formats import Format
from lpsim.policies import SR_A, SR_B, SR_C, Policy

from .quantize_kernels import GIVEN, KEYED, NO_WORDS, general_kernel, keyed_prefix_kernel, prefix_kernel
from .quantize_narrow import Narrow, keyed_narrow_kernel, narrow_kernel, narrow_plan

if TYPE_CHECKING:
    from torch import Tensor

BLOCK, QUICK_BLOCK = 512, 1024  # elements of a program
GROUPS = 128  # groups of elements of a program that share a Philox block: one a thread
TAIL = 16
OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}


class Rule(NamedTuple):
    """What one call computes: rows, and the key of its random words."""

    source: Format
    fmt: Format
    policy: Policy
    dtype: Format | None = None  #: None: codes; else values, as bits of this format
    seed: int = 0  #: signed 64-bit
    stream: int = 0
    step: int = 0
    offset: int = 0


def prefix_plan(rule: Rule) -> fast_plan.Prefix | None:
    """The row of the prefix kernels, from binary32, if they compute this rule."""
    policy, drop = rule.policy, 24 - rule.fmt.precision
    same_as_a = policy.rounding == SR_B or (policy.rounding == SR_C and policy.noise_bits >= drop)
    return fast_plan.prefix(rule.fmt, policy._replace(rounding=SR_A) if same_as_a else policy)


def plan_of(rule: Rule) -> fast_plan.Prefix | Narrow | None:
    """The row of the quick kernel that computes a rule whose random integers are keyed; None if none does."""
    if rule.source != FP32 or rule.dtype not in (None, FP32):
        return None
    return prefix_plan(rule) or narrow_plan(rule.fmt, rule.policy, rule.dtype is not None)


def launch(x: "Tensor", out: "Tensor", rule: Rule, given: "Tensor | None", lost: "Tensor | None") -> None:
    """Fill `out` from x by the quickest kernel that computes the rule. Integer views, 1-D, contiguous, on one device.

    given: int64, the random integers, or None: they are keyed. lost: int32 (1,), or None where nothing can be lost.
    """
    plan = plan_of(rule) if given is None else None
    if plan is None:
        _launch_general(x, out, rule, given, lost)
        return
    whole = x.numel() // TAIL * TAIL
    for start, stop in ((0, whole), (whole, x.numel())):  # a length that 16 divides is moved 16 bytes at a time
        if start < stop:
            quick = _launch_modes if rule.policy.rounding < SR_A else _launch_keyed
            quick(x[start:stop], out[start:stop], rule._replace(offset=rule.offset + start), plan)


def _launch_modes(x: "Tensor", out: "Tensor", rule: Rule, plan: fast_plan.Prefix | Narrow) -> None:
    grid = (triton.cdiv(x.numel(), QUICK_BLOCK),)
    if isinstance(plan, Narrow):
        narrow_kernel[grid](x, out, x.numel(), plan, QUICK_BLOCK, **OPTIONS)  # pyright: ignore[reportIndexIssue]
    else:
        values = rule.dtype is not None
        prefix_kernel[grid](x, out, x.numel(), plan, values, QUICK_BLOCK, **OPTIONS)  # pyright: ignore[reportIndexIssue]


def _launch_keyed(x: "Tensor", out: "Tensor", rule: Rule, plan: fast_plan.Prefix | Narrow) -> None:
    size = 8 if rule.policy.noise_bits <= 16 else 4
    first, skip = divmod(rule.offset, size)
    grid = (triton.cdiv(x.numel() + skip, GROUPS * size),)
    key = (first, rule.seed, rule.stream, rule.step)
    if isinstance(plan, Narrow):
        keyed_narrow_kernel[grid](x, out, x.numel(), *key, plan, skip, GROUPS, **OPTIONS)  # pyright: ignore
    else:
        rows = (plan, rule.policy, rule.dtype is not None)
        keyed_prefix_kernel[grid](x, out, x.numel(), *key, *rows, skip, GROUPS, **OPTIONS)  # pyright: ignore


def _launch_general(x: "Tensor", out: "Tensor", rule: Rule, given, lost) -> None:
    noise = NO_WORDS if rule.policy.rounding < SR_A else KEYED if given is None else GIVEN
    grid = (triton.cdiv(x.numel(), BLOCK),)
    general_kernel[grid](  # pyright: ignore[reportIndexIssue]
        x, given, out, lost, x.numel(), rule.offset, rule.seed, rule.stream, rule.step, rule.source, rule.fmt,
        rule.policy, noise, rule.dtype, BLOCK, **OPTIONS,
    )  # fmt: skip

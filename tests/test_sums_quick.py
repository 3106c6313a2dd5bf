"""Sums of two and dots of one through binary64, where that is allowed, against lp.add and lp.mul."""

import numpy as np
import pytest

import lpsim as lp
import probes
from lpsim import reductions
from lpsim.formats import FORMATS
from rows import ROWS

NAMES = ["bf16", "fp16", "fp32", "tf32", "e4m3fn", "e5m2", "e4m3fnuz", "e3m4", "binary8p3se", "binary8p1se", "ieee8p2"]
RULES = [{}, {"overflow": "satfinite"}, {"subnormals": "flush"}, {"subnormals": "flush_in"}, {"rounding": "rna"}]


def operands(fmt) -> tuple[np.ndarray, np.ndarray]:
    """Values, midpoints and their neighbours; beside each something tiny, equal, opposite, or of its own size."""
    points = [
        float((-1) ** p.sign * p.magnitude) for p in probes.values(fmt, count=25) if not isinstance(p.magnitude, str)
    ]
    points = np.array([p for p in points if np.isfinite(p)] + [np.inf, -np.inf, np.nan, 0.0, -0.0])
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        beside = [points * 2.0**-k * rng.choice([-1, 1], points.size) for k in (30, 52, 53, 54, 70)]
        beside += [-points, points, rng.permutation(points), rng.permutation(points), np.full(points.size, 2.0**-1000)]
    return np.tile(points, len(beside)), np.concatenate(beside)


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_sums_of_two_and_dots_of_one(name, rules):
    fmt = {**ROWS, **FORMATS}[name]
    a, b = operands(fmt)
    found = lp.encode(lp.sum(np.stack([a, b], axis=-1), fmt, **rules), fmt)
    assert not np.flatnonzero(found != lp.encode(lp.add(a, b, fmt, **rules), fmt)).size
    narrow = lp.round(a, "fp32"), lp.round(b, "fp32")
    for x, y in ((a, b), narrow):
        found = lp.encode(lp.dot(x[:, None], y[:, None], fmt, **rules), fmt)
        assert not np.flatnonzero(found != lp.encode(lp.mul(x, y, fmt, **rules), fmt)).size


def test_where_binary64_helps():
    for name in NAMES:
        fmt = {**ROWS, **FORMATS}[name]
        order = reductions.lookup("sequential")
        plan = reductions.resolve(order, 8, fmt, fmt, lp.scalar.policy(), True)
        assert (plan.across.drop > 0) == (fmt.precision > 1)
        for rules in RULES[2:]:
            assert reductions.resolve(order, 8, fmt, fmt, lp.scalar.policy(**rules), True).across.drop == 0

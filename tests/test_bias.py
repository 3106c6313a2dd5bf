"""The signed error of tied rows: the paper's worked example, its table, and the closed form against the emulator."""

import math

import numpy as np
import pytest

import lpsim as lp
from gradients import BF16
from lpsim.attention import bias
from lpsim.recipes import with_site

LIMIT = 6  # standard errors: a correct emulator fails once in 10^8 seeds, and these tests use one


def test_the_papers_worked_example():
    """arXiv 2510.04212, figure 7: a residual of -0.00087 turns a tie to even into rounding away from zero."""
    first, second, running = -2.40625, -2.296875, -2.4071154594421387
    assert lp.round(running, "fp32") == running
    total = running + second
    assert total == -4.703990459442139
    assert lp.add(running, second, "bf16") == -4.71875
    assert lp.add(running, second, "bf16") - total == -0.014759540557861328
    # The control: without the residual the sum is a tie, and the even neighbour lies the other way.
    assert first + second == -4.703125
    assert lp.add(first, second, "bf16") == -4.6875
    assert lp.add(first, second, "bf16") - (first + second) == 0.015625


def tied_sums(ties: int, positive: float = 0.0, count: int = 200_000) -> np.ndarray:
    """Exact sums of `ties` bf16 values of magnitude in [2, 4), float64."""
    rng = np.random.default_rng(ties)
    v = -rng.integers(128, 256, (count, ties)) / 64.0
    return np.where(rng.random(v.shape) < positive, -v, v).sum(axis=1)


def mean_error(x: np.ndarray) -> tuple[float, float]:
    """Mean of rounded - exact in bf16 ulps of the result, and its standard error."""
    rounded = np.asarray(lp.round(x, "bf16"))
    ulp = np.exp2(np.floor(np.log2(np.abs(rounded))) - 7)
    errors = (rounded - x) / ulp
    return errors.mean(), errors.std(ddof=1) / math.sqrt(errors.size)


@pytest.mark.parametrize(
    ("residual", "wanted"), [(0.0, 0.0), (1e-5, -0.250), (1e-4, -0.247), (1e-3, -0.218), (3e-3, -0.154), (2.0**-7, 0.0)]
)
def test_the_table_over_the_residual(residual, wanted):
    """Two ties, sums in [4, 8), V < 0: -(1/4 - |r| / u) with u = 2^-5; and 0 without a residual."""
    mean, error = mean_error(tied_sums(2) - residual)
    assert abs(mean - wanted) < LIMIT * error + 0.0005  # the table has three digits
    assert abs(mean - bias.stored_sum(2, -residual * 64)) < LIMIT * error


@pytest.mark.parametrize(
    ("ties", "wanted"), [(1, 0.006), (2, -0.246), (3, -0.144), (4, -0.123), (6, -0.066), (8, -0.062), (16, -0.031)]
)
def test_the_table_over_the_ties(ties, wanted):
    """The published sampling errors are not stated; ours are, and the closed form lies within them."""
    mean, error = mean_error(tied_sums(ties) - 1e-4)
    assert abs(mean - bias.stored_sum(ties, -1e-4 * 64)) < LIMIT * error + 1e-12  # float64, one maximum: no spread
    assert abs(mean - wanted) < LIMIT * error + 0.003


@pytest.mark.parametrize("positive", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("ties", [2, 3, 4])
def test_the_sign_balance_of_v(ties, positive):
    x = tied_sums(ties, positive)
    large = x[np.abs(x) >= 2.0**-5]
    mean, error = mean_error(large - 1e-4)
    assert abs(mean * large.size / x.size - bias.stored_sum(ties, -1e-4 * 64, positive)) < LIMIT * error
    if ties == 2:
        assert abs(bias.stored_sum(ties, -1e-4 * 64, positive)) < abs(bias.stored_sum(ties, -1e-4 * 64))


def emulated(recipe, ties: int, mass: float, residual: float, batch: int = 192, n: int = 32):
    """(mean error of O in ulps of the exact O, counted away from zero; standard error; mass; per row of its own V)."""
    rng = np.random.default_rng(ties)
    scores = np.full((batch, n), 3.0 + math.log(mass / (n - ties))) + rng.uniform(-0.5, 0.5, (batch, n))
    scores[:, :ties] = 3.0
    q, k = np.zeros((batch, 1, 64)), np.zeros((batch, n, 64))
    q[:, :, 0], k[:, :, 0] = 8.0, scores
    v = -rng.integers(128, 256, (batch, n, 64)) / 64.0
    v[:, ties:] = residual * v[:, :ties].mean(axis=1, keepdims=True)
    qkv = [np.asarray(lp.round(x.astype(np.float32), "bf16")).astype(BF16) for x in (q, k, v)]
    found = lp.attention.forward(*qkv, recipe=recipe, scale=0.125)
    exact = lp.attention.forward(*qkv, recipe="exact", scale=0.125)
    return found, exact, float(exact.l.mean() - ties)


def errors_of_o(found, exact) -> tuple[float, float]:
    o = exact.o[:, 0]
    ulp = np.exp2(np.floor(np.log2(np.abs(o))) - 7)
    by_row = ((found.o[:, 0].astype(float) - o) / ulp * np.sign(o)).mean(axis=1)  # features share P and l
    return by_row.mean(), by_row.std(ddof=1) / math.sqrt(by_row.size)


@pytest.mark.parametrize("residual", [0.2, 1.5])
@pytest.mark.parametrize("ties", [1, 2, 3, 4])
def test_the_closed_form_of_the_real_kernel(ties, residual):
    """Recipe triton: decided by the residual keys' V, and of opposite kinds for even and odd numbers of ties."""
    found, exact, mass = emulated("triton", ties, 1e-3, residual)
    mean, error = errors_of_o(found, exact)
    wanted = bias.rounded_quotient(ties, mass, residual)
    assert abs(mean - wanted) < LIMIT * error + 0.02 * abs(wanted)  # v_r is rounded to bf16 itself: up to 2^-9 of v
    assert abs(mean) > LIMIT * error


def test_no_pull_no_bias_in_the_real_kernel():
    found, exact, mass = emulated("triton", 2, 1e-3, 1.0)
    mean, error = errors_of_o(found, exact)
    assert abs(mean) < LIMIT * error
    assert bias.rounded_quotient(2, mass, 1.0) == 0.0


@pytest.mark.parametrize("ties", [2, 3, 4, 6])
def test_the_closed_form_of_the_stored_sum(ties):
    """Recipe paper: the accumulator itself, O times l, against the exact one."""
    recipe = with_site("paper", O="fp32")
    found, exact, mass = emulated(recipe, ties, 1e-4, 1.0)
    stored = np.asarray(lp.round(found.o[:, 0].astype(float) * found.l, "bf16"))
    total = exact.o[:, 0] * exact.l
    ulp = np.exp2(np.floor(np.log2(np.abs(total))) - 7)
    by_row = ((stored - total) / ulp).mean(axis=1)
    mean, error = by_row.mean(), by_row.std(ddof=1) / math.sqrt(by_row.size)
    assert abs(mean - bias.stored_sum(ties, -192 * mass)) < LIMIT * error
    assert mean < -LIMIT * error


def test_what_is_refused():
    for call in (
        lambda: bias.stored_sum(0, 1.0),
        lambda: bias.stored_sum(2, 1.0, positive=2.0),
        lambda: bias.rounded_quotient(2.5, 1e-3, 1.0),  # pyright: ignore[reportArgumentType]
        lambda: bias.rounded_quotient(2, -1.0, 1.0),
    ):
        with pytest.raises(ValueError, match="must"):
            call()
    for pull in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match=r"pull=.* must be finite"):
            bias.stored_sum(2, pull)
    with pytest.raises(TypeError, match="pull='x' must be a number"):
        bias.stored_sum(2, "x")  # pyright: ignore[reportArgumentType]


def test_irwin_hall():
    assert [bias.irwin_hall(x, 2) for x in (-1, 0.5, 1.0, 1.5, 2.0)] == [0.0, 0.125, 0.5, 0.875, 1.0]
    assert bias.irwin_hall(1.0, 3) == pytest.approx(1 / 6, abs=2**-50)

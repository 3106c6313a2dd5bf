"""How fast the emulated dot is, beside NumPy's float32 matrix product in the same run.

    python benchmarks/bench_dots.py            every line is the best of many interleaved repetitions

GMAC/s: 10^9 multiply-adds a second, decoding and packing included. `left` is the share of block rows that the
quick routine handed to the float64 one. Set OPENBLAS_NUM_THREADS=1 to compare with one thread's sgemm.
"""

import time

import numpy as np

from lpsim import dots, machines, threads, tiles
from lpsim.formats import FORMATS

REPEATS = 9


def operands(rng, name, shape, kind):
    """Codes: normal numbers, or uniformly random bits (subnormals, Inf and NaN among them)."""
    fmt = FORMATS[name]
    container = {8: np.uint8, 16: np.uint16, 32: np.uint32}[fmt.bits + fmt.pad]
    if kind == "bits":
        return (rng.integers(0, 1 << fmt.bits, shape) << fmt.pad).astype(container)
    one, octave = fmt.exponent_bias << (fmt.precision - 1), 1 << (fmt.precision - 1)
    magnitude = one + rng.integers(-3 * octave, 2 * octave, shape)
    return ((magnitude | rng.integers(0, 2, shape) << (fmt.bits - 1)) << fmt.pad).astype(container)


def share_left(a, b, unit, fmt) -> float:
    """Which share of the block rows of the first matrix is not quick."""
    x, y = dots.operand_values(a[0], fmt), dots.operand_values(b[0], fmt)
    c = np.zeros((x.shape[0], y.shape[1]), np.float32)
    left = tiles.dot_region(x, y, c, 0, 0, dots.emin_of(fmt), dots.emin_of(fmt), unit, True)
    blocks = dots.dpa.block_count(x.shape[1], unit) * -(-y.shape[1] // tiles.COLUMNS)
    return left / (blocks * x.shape[0])


def best(calls) -> list[float]:
    """Least wall-clock time of each call, the calls taking turns."""
    times = [float("inf")] * len(calls)
    for _ in range(REPEATS):
        for i, call in enumerate(calls):
            start = time.perf_counter()
            call()
            times[i] = min(times[i], time.perf_counter() - start)
    return times


def line(name, path, kind, batch, n, cores) -> str:
    """One row of the table."""
    rng = np.random.default_rng(0)
    fmt, unit = FORMATS[name], machines.dot_row("h200", path, name).unit
    a, b = (operands(rng, name, (batch, n, n), kind) for _ in range(2))
    floats = rng.standard_normal((batch, n, n)).astype(np.float32)
    calls = [lambda: np.matmul(floats, floats)]
    for count in range(1, cores + 1):

        def call(count=count):
            threads.set_threads(count)
            dots.dot(a, b, None, unit, fmt, fmt)

        call()
        calls.append(call)
    sgemm, *emulated = (batch * n**3 / seconds / 1e9 for seconds in best(calls))
    rates = "".join(f"{rate:9.2f}" for rate in emulated)
    left = share_left(a, b, unit, fmt)
    return f"{name:7}{path:7}{kind:8}{batch:5} x {n:4}^3{rates}{sgemm:9.1f}{emulated[0] / sgemm:8.1%}{left:7.0%}"


def main():
    cores = threads.get_threads()
    head = "".join(f"{f'{n} thr.':>9}" for n in range(1, cores + 1))
    print(f"{'format':7}{'path':7}{'data':8}{'size':>12}{head}{'sgemm':>9}{'ratio':>8}{'left':>7}   (GMAC/s)")
    cases = [("bf16", "wgmma"), ("fp16", "wgmma"), ("tf32", "wgmma"), ("e4m3fn", "wgmma"), ("e4m3fn", "mma")]
    for name, path in cases:
        print(line(name, path, "normal", 1, 512, cores), flush=True)
    print(line("bf16", "wgmma", "normal", 32, 64, cores), flush=True)
    for name in ("bf16", "tf32"):
        print(line(name, "wgmma", "bits", 1, 512, cores), flush=True)


if __name__ == "__main__":
    main()

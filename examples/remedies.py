"""Which change removes the bias of delta = rowsum(dO o O) at the least cost?

Rows with two tied maxima, V of one sign and a small residual weight, dO of one sign: the case in which rounding O to
bf16 has a direction (arXiv 2510.04212). For each remedy the emulated attention is compared with float64:
signed mean and worst case of delta - exact delta, the share of the plain recipe's bias that is left, extra bytes for
each element of O, and whether the remedy is exact, that is, changes nothing in float64. Then what each costs in time,
from a run of benchmarks/bench_attention_gpu.py on an H200.

    python examples/remedies.py               print the tables
    python examples/remedies.py docs/remedies.md     write them into the page, between its marks
"""

import json
import sys
from itertools import product
from pathlib import Path

import ml_dtypes
import numpy as np

import lpsim as lp
from lpsim.recipes import Sham, Site, dynamic, recipe, with_site, with_switch

ROWS, KEYS, FEATURES, TIED = 512, 64, 64, (5, 40)
SEED = 20251005
BEGIN, END = "<!-- begin: examples/remedies.py -->", "<!-- end -->"
STOCHASTIC = Site("input", lp.stochastic(bits=16, seed=SEED, stream=1))

#: remedy -> (change of a recipe, extra bytes an element of O (16-bit), extra work in a kernel)
REMEDIES = {
    "none": (lambda r: r, 0, "none"),
    "sham: as large a change, sign by a coin": (lambda r: with_switch(r, kept=Sham(SEED)), 4, "one more store"),
    "fp32 O kept for delta": (lambda r: with_switch(r, kept="fp32"), 4, "one more store"),
    "O as two bf16": (lambda r: with_switch(r, kept="pair"), 2, "one more store"),
    "O rounded stochastically": (lambda r: with_site(r, O=STOCHASTIC), 0, "random words"),
    "delta = rowsum(dP o P)": (lambda r: with_switch(r, delta_from="P"), 0, "two more dots backward"),
    "O again for delta": (lambda r: with_switch(r, delta_from="PV"), 0, "two more dots backward"),
    "l from the rounded P": (lambda r: with_switch(r, l_from="rounded"), 0, "none"),
    "dynamic maximum, beta 2, published": (lambda r: with_switch(r, maximum=dynamic(2.0)), 0, "a compare a score"),
    "dynamic maximum, beta 2, guarded": (
        lambda r: with_switch(r, maximum=dynamic(2.0, guard=True)), 0, "a compare a score",
    ),
    "dynamic maximum, guarded, every tile": (
        lambda r: with_switch(r, maximum=dynamic(2.0, guard=True, scope="every")), 0, "none",
    ),
    "dynamic maximum, guarded, by row": (
        lambda r: with_switch(r, maximum=dynamic(2.0, guard=True, scope="row")), 0, "a compare a score",
    ),
    "guarded by row, and l from the rounded P": (
        lambda r: with_switch(r, maximum=dynamic(2.0, guard=True, scope="row"), l_from="rounded"),
        0, "a compare a score",
    ),
}  # fmt: skip

TIMES = Path(__file__).parents[1] / "benchmarks" / "attention_gpu_h200.json"
#: remedy -> its rows in TIMES; a pass that is not there is the plain one
KERNELS = {
    "fp32 O kept for delta": "lpsim, o in float32 too",
    "O as two bf16": "lpsim, o as two bf16",
    "O rounded stochastically": "lpsim, o stochastic",
    "delta = rowsum(dP o P)": "lpsim, delta from P",
    "O again for delta": "lpsim, delta from P v",
    "dynamic maximum, beta 2, published": "lpsim, dynamic maximum",
    "dynamic maximum, beta 2, guarded": "lpsim, guarded maximum",
    "dynamic maximum, guarded, every tile": "lpsim, every maximum",
    "dynamic maximum, guarded, by row": "lpsim, guarded by row",
}


def inputs(residual_v: float):
    """q, k, v, dO, bf16; residual_v scales V of the keys that are not tied. Each batch is one independent row."""
    rng = np.random.default_rng(SEED)
    top = rng.uniform(2.0, 10.0, (ROWS, 1))
    scores = top - rng.uniform(11.0, 14.0, (ROWS, KEYS))
    scores[:, TIED] = top
    q, k = np.zeros((ROWS, 1, FEATURES)), np.zeros((ROWS, KEYS, FEATURES))
    q[:, :, 0], k[:, :, 0] = 8.0, scores
    v = rng.normal(-2.5, 0.4, k.shape)
    v[:, np.setdiff1d(np.arange(KEYS), TIED)] *= residual_v
    do = rng.normal(-1.0, 0.3, q.shape)
    return [np.asarray(lp.round(x.astype(np.float32), "bf16")).astype(ml_dtypes.bfloat16) for x in (q, k, v, do)]


def delta(rules, given) -> np.ndarray:
    """delta of each row, as this recipe has it."""
    q, k, v, do = given
    out = lp.attention.forward(q, k, v, recipe=rules)
    back = lp.attention.backward(q, k, v, out.kept, out.lse, do, recipe=rules)
    return np.asarray(back.delta, np.float64)[:, 0]


def exact_change(change, given) -> float:
    """The largest relative change of delta that the remedy makes in float64; rounding O is no part of recipe exact."""
    base = delta("exact", given)
    rules = recipe("exact")
    try:
        rules = change(rules)
    except ValueError:  # a site: there are none
        return 0.0
    return float(np.abs(delta(rules, given) / base - 1).max())


def table(name: str, residual_v: float) -> list[str]:
    """Rows of Markdown."""
    given = inputs(residual_v)
    exact = delta("exact", given)
    lines = [
        "| remedy | mean error of delta | standard error | of the bias is left | worst | bytes | work | in float64 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    plain = None
    for label, (change, size, work) in REMEDIES.items():
        errors = delta(change(recipe(name)), given) - exact
        mean, spread = errors.mean(), errors.std(ddof=1) / np.sqrt(errors.size)
        plain = mean if plain is None else plain
        lines.append(
            f"| {label} | {mean:+.5f} | {spread:.5f} | {abs(mean / plain):.1%} | {np.abs(errors).max():.4f} "
            f"| {size} | {work} | {exact_change(change, given):.0e} |"
        )
    return lines


def times() -> list[str]:
    """Rows of Markdown: how much longer forward and backward together take than without the remedy."""
    measured = json.loads(TIMES.read_text())
    found = {(row["d"], row["causal"], row["pass"], row["who"]): row["ms"] for row in measured["rows"]}
    shapes = list(product((64, 128), (True, False)))

    def whole(shape, who: str) -> float:
        plain = {which: found[*shape, which, "lpsim"] for which in ("forward", "backward")}
        return sum(found.get((*shape, which, who), ms) for which, ms in plain.items())

    lines = [
        f"Time of forward and backward on one {measured['device']}, bf16, batch {measured['batch']}, "
        f"{measured['heads']} heads, n {measured['n']}:", "",
        "| remedy | " + " | ".join(f"d {d} {'causal' if causal else 'full'}" for d, causal in shapes) + " |",
        "|---|" + "---|" * len(shapes),
        "| none | " + " | ".join(f"{whole(shape, 'lpsim'):.2f} ms" for shape in shapes) + " |",
    ]  # fmt: skip
    for label, who in KERNELS.items():
        costs = (whole(shape, who) / whole(shape, "lpsim") - 1 for shape in shapes)
        lines.append(f"| {label} | " + " | ".join(f"{cost:+.0%}" for cost in costs) + " |")
    return lines


def report() -> list[str]:
    scale = float(np.abs(delta("exact", inputs(1.5))).mean())
    lines = [f"{ROWS} rows, {KEYS} keys, {FEATURES} features, two ties; delta is about {scale:.0f}.", ""]
    for name, residual_v in (("triton", 1.5), ("triton", 0.2), ("paper", 1.0)):
        lines += [f"Recipe {name}, V of the other keys times {residual_v}:", "", *table(name, residual_v), ""]
    return [*lines, *times(), ""]


def main(arguments: list[str]) -> None:
    text = "\n".join(report())
    if not arguments:
        sys.stdout.write(text + "\n")
        return
    path = Path(arguments[0])
    page = path.read_text()
    before, rest = page.split(BEGIN)
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main(sys.argv[1:])

"""docs/speed.md from the results in benchmarks/results.

python benchmarks/speed_page.py > docs/speed.md
"""

import json
from pathlib import Path

FOLDER = Path(__file__).parent / "results"
PEERS = ("torch", "ml_dtypes", "gfloat")
TEXT = """# How fast

Made by `benchmarks/speed_page.py` from `benchmarks/results/casts.json`, which `benchmarks/bench_casts.py` writes,
and, for [attention](#attention), from `attention.json` beside it, which `benchmarks/bench_attention.py` writes.

Nanoseconds an element; medians of five rounds in which the contestants take turns, {elements:,} float32 each.
Results are written into arrays that exist already (`out=`, `copy_`). The last two columns are lpsim's time over
torch's and over that of a plain copy of the float32, in the same rounds: on a busy machine the ratios mean more
than the times. "One core" is pinned and counts the thread's own time, two cores the clock on the wall.
ml_dtypes has one thread. CPFloat is C without a package on PyPI and is not here. gfloat rounds to float64
values, on a sixteenth of the elements.
"""


def cell(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def table(rows: dict[str, dict[str, float]]) -> list[str]:
    lines = ["| | lpsim | torch | ml_dtypes | gfloat | / torch | / copy |", "|---|---:|---:|---:|---:|---:|---:|"]
    for name, row in rows.items():
        if "lpsim" not in row:
            continue
        ours, copy = row["lpsim"], row["copy"]
        peers = " | ".join(cell(row.get(peer)) for peer in PEERS)
        to_torch = cell(ours / row["torch"]) if "torch" in row else ""
        lines.append(f"| {name} | {ours:.2f} | {peers} | {to_torch} | {ours / copy:.2f} |")
    return lines


ATTENTION = """## Attention

One layer of GPT-2 small, {heads} heads of 1024 rows, recipe `triton`, and changes of it; milliseconds, the least of
three rounds in which the contestants take turns. "Arrays" is the reading version of the same bits, tile by tile on
arrays of the whole call; torch computes the same attention in float32; sgemm is the time of as many multiply-adds
in torch's matrix product. On one core a thread's own time is counted, on two the clock on the wall, which others
on the machine lengthen."""


def attention(found: dict) -> list[str]:
    """The section on attention."""
    about = found["about"]
    lines = [ATTENTION.format(**about)]
    for cores, result in found["cores"].items():
        lines += ["", f"{'One core' if cores == '1' else f'{cores} cores'}, {result['peak_mb']} MB at most:", ""]
        lines += ["| | | lpsim | arrays | torch | sgemm | / sgemm |", "|---|---|---:|---:|---:|---:|---:|"]
        for name, row in result["milliseconds"].items():
            for way in ("forward", "backward"):
                times = [row[f"{way} {who}"] for who in ("lpsim", "arrays", "torch", "sgemm")]
                cells = " | ".join(f"{time:.0f}" for time in times)
                lines.append(f"| {name} | {way} | {cells} | {times[0] / times[3]:.1f} |")
    packages = ", ".join(f"{name} {version}" for name, version in about["packages"].items())
    lines += ["", f"{about['cpu']} ({about['machine']}), Python {about['python']}, {packages}."]
    return [*lines, f"Load {about['load']:.1f} at the end."]


def main() -> None:
    found = json.loads((FOLDER / "casts.json").read_text())
    about = found["about"]
    print(TEXT.format(elements=about["elements"]))
    for cores, rows in found["ns_per_element"].items():
        print(f"## {'One core' if cores == '1' else f'{cores} cores'}\n")
        copies = sorted(row["copy"] for row in rows.values())
        print(f"A plain copy: {copies[0]:.2f} to {copies[-1]:.2f} ns an element.\n")
        print("\n".join(table(rows)) + "\n")
    packages = ", ".join(f"{name} {version}" for name, version in about["packages"].items())
    print(f"{about['cpu']} ({about['machine']}), Python {about['python']}, {packages}.")
    print(f"Load {about['load']:.1f} at the end.")
    print("\n" + "\n".join(attention(json.loads((FOLDER / "attention.json").read_text()))))


if __name__ == "__main__":
    main()

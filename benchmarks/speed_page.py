"""docs/speed.md from benchmarks/results/casts.json.

python benchmarks/speed_page.py > docs/speed.md
"""

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "casts.json"
PEERS = ("torch", "ml_dtypes", "gfloat")
TEXT = """# How fast

Made by `benchmarks/speed_page.py` from `benchmarks/results/casts.json`, which `benchmarks/bench_casts.py` writes.

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


def main() -> None:
    found = json.loads(RESULTS.read_text())
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


if __name__ == "__main__":
    main()

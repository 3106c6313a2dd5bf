"""Recordings of a real H200 and tables derived from them, as files beside this one.

h200/flash_forward, flash_backward   runs of plain Triton flash-attention kernels (.npz arrays, .json shapes)
h200/mma, mma_tiny                   tl.dot results over formats, paths and input distributions
h200/dots_live                       tl.dot and tl.dot_scaled in every option (.npz), and what the live run compared
                                     (.json); made by lpsim_triton.crosscheck_dots
h200/attention_live                  outputs of lpsim_triton's kernels in 63 configurations, and the report of all
h200/quantize.json                   digests of lpsim_triton's quantise kernels and of Triton's random functions
h200/reductions.npz                  tl.sum, max, min and cumsum: results for the inputs of lpsim.reduction_cases
h200/probe.json                      what lpsim.probe found on the H200; by lpsim_triton.probe_device
h200/digests.json                    digests of unary functions over all 2^32 float32 inputs
h200/elementwise.json, .npz          digests of operations of several operands; casts and functions of 16-bit codes
h200/mufu_samples.npz                results of MUFU.LG2, SIN and TANH; scripts/derive_mufu_normalised.py has chosen
                                     them and derives mufu_normalised.json from them
h200/mufu_*.i8.xz                    special functions over one binade; mufu.json holds coefficients derived from
                                     them by scripts/derive_mufu_tables.py
Recorded with torch 2.11.0+cu130 and Triton 3.6.0 on one NVIDIA H200.
"""

import json
from pathlib import Path

FOLDER = Path(__file__).parent


def arrays(name: str) -> dict:
    """All arrays of h200/<name>.npz. No pickled object is ever loaded."""
    import numpy as np

    with np.load(FOLDER / "h200" / f"{name}.npz", allow_pickle=False) as stored:
        return dict(stored)


def run(name: str, number: int) -> dict:
    """The arrays of one run of h200/<name>.npz, whose keys begin with the run's number: 3_q is q of run 3."""
    start = f"{number}_"
    return {key.removeprefix(start): array for key, array in arrays(name).items() if key.startswith(start)}


def description(name: str):
    """The parsed h200/<name>.json."""
    return json.loads((FOLDER / "h200" / f"{name}.json").read_text())

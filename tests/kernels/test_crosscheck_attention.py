"""The live check of attention counts what `attention_crosscheck` finds, under names of the configurations."""

import numpy as np

from lpsim_triton import attention_crosscheck, crosscheck_attention

CONFIGS = attention_crosscheck.configurations()


def test_a_wrong_bit_is_seen(monkeypatch):
    number = 7 * crosscheck_attention.ROOM
    right = attention_crosscheck.emulated(number, CONFIGS[0])
    monkeypatch.setattr(attention_crosscheck, "on_gpu", lambda number, config: right)
    found = crosscheck_attention.compare(number, CONFIGS[0])
    assert [row[:3] for row in found] == [(name, x.size, 0) for name, x in right.items()]

    wrong = {name: x.copy() for name, x in right.items()}
    wrong["lse"].view(np.uint32).reshape(-1)[3] ^= 1
    monkeypatch.setattr(attention_crosscheck, "on_gpu", lambda number, config: wrong)
    found = crosscheck_attention.compare(number, CONFIGS[0])
    assert [(name, differing) for name, _, differing, _ in found if differing] == [("lse", 1)]
    assert all(example.startswith(f"lse, inputs {number}, Config(") for *_, example in found if example)

    monkeypatch.setattr(attention_crosscheck, "on_gpu", lambda number, config: {"o": right["o"]})
    assert crosscheck_attention.compare(number, CONFIGS[0])[0][2] == 1


def test_other_seeds_have_other_inputs():
    one, other = (attention_crosscheck.emulated(seed * crosscheck_attention.ROOM, CONFIGS[0]) for seed in (1, 2))
    assert not np.array_equal(one["o"], other["o"])


def test_labels():
    labels = {crosscheck_attention.label(config) for config in CONFIGS}
    assert "attention bf16, plain" in labels
    assert {label.split(",")[0] for label in labels} >= {"attention bf16", "attention fp16"}

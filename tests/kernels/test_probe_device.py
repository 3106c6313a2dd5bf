"""The probe on a GPU that is there: its dots and sums are what the table and the layouts say."""

import pytest

from lpsim import data


@pytest.mark.gpu
def test_a_live_probe_finds_what_was_recorded():
    from lpsim_triton import probe_device

    found, recorded = probe_device.probed(), data.description("probe")
    for kind in ("dots", "sums"):
        for row, before in zip(found[kind], recorded[kind], strict=True):
            told = [x.get("unit") or x.get("tree") for x in (row, before)]
            assert told[0] == told[1], row

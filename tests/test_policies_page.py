"""docs/policies.md is what its script writes."""

import pytest

from script_modules import script_module


@pytest.fixture(scope="module")
def script():
    return script_module("policies_page")


def test_the_page_is_current(script):
    assert script.PAGE.read_text() == script.page(), "run python scripts/policies_page.py"


def test_a_policy_without_a_description_is_seen(script, monkeypatch):
    monkeypatch.delitem(script.NANS, "ones")
    with pytest.raises(AssertionError, match="description"):
        script.page()


def test_the_page_shows_what_is_known(script):
    page = script.page()
    assert "`rounding` | `rne`" in page
    assert "| `torch_old` | 7E | 7E | 7F | 7F | 7F | FF |" in page
    assert "| `nvidia` | 7E | 7E | 7E | 7E | 7E | 7F |" in page
    assert "| `rna` | to nearest, ties away from zero | 3F81 |" in page

"""What every test shares: reproducible Hypothesis, and torch only where a test asks for it."""

import importlib

import pytest
from hypothesis import settings

# Same examples on every run, so that a failure can be repeated; no deadline, since a first call compiles.
# `pytest --hypothesis-profile=explore` looks further, at random.
settings.register_profile("repeat", derandomize=True, deadline=None, database=None, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("repeat")


def pytest_collection_modifyitems(items):
    """A test that takes the fixture `torch`, `triton` or `gpu` carries the marker of that name; it cannot forget it."""
    for item in items:
        for name in ("torch", "triton", "gpu"):
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(name)


@pytest.fixture(scope="session")
def torch():
    """The torch module. Tests take it from here, so that collecting them needs no torch."""
    return importlib.import_module("torch")


@pytest.fixture(scope="session")
def triton():
    """The triton module, to compile kernels with; no GPU is needed. Tests take it from here, as with `torch`."""
    return importlib.import_module("triton")


@pytest.fixture(scope="session")
def gpu():
    """The torch module on a machine with a CUDA device. Without one the test is skipped, and says why."""
    module = pytest.importorskip("torch", reason="no torch")
    if not module.cuda.is_available():
        pytest.skip("no CUDA device")
    return module

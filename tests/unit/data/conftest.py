"""A fresh run for every test of the loaders."""

from collections.abc import Iterator

import pytest

from accelerate.state import AcceleratorState, GradientState


@pytest.fixture(autouse=True)
def fresh_run() -> Iterator[None]:
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()

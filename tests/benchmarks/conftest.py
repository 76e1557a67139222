"""The benchmarks are run as `python -m benchmarks …`, not by the `retriever` command."""

import pytest
from samples import Run, invoker


@pytest.fixture
def run() -> Run:
    """Run `python -m benchmarks` in this process."""
    from benchmarks.__main__ import main

    return invoker(main)

"""A shell, and a small trace in a file."""

from pathlib import Path

import pytest
from command_runner import Shell

from dovetail.traces.canonical import write_trace
from dovetail.traces.generate import Recipe, generate


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    """Returns a shell whose output the test reads."""
    return Shell(capsys)


@pytest.fixture(scope="session")
def month(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the file of three busy days for sixteen GPUs."""
    file = tmp_path_factory.mktemp("traces") / "month.csv"
    recipe = Recipe("philly-like", jobs=250, days=3, load=0.9, cluster_gpus=16, seed=1)
    write_trace(generate(recipe), file)
    return file

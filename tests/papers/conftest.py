"""A shell that runs `python -m papers`."""

import pytest
from command_runner import Shell

from papers.__main__ import main


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    """Returns a shell whose output the test reads."""
    return Shell(capsys, main, "python -m papers")

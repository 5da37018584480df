"""What every test may use: the folder of real traces, where it is present."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from dovetail.wire.generation import WorkerGenerations

# No time is judged: a property says nothing of how fast a machine is. The default run draws the
# same examples each time. The other searches: `make slow` runs every property with a fresh seed
# (pytest --hypothesis-profile=search), keeps what failed in .hypothesis, and prints how to repeat.
PROPERTIES: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dovetail", derandomize=True, **PROPERTIES)
settings.register_profile("search", derandomize=False, print_blob=True, **PROPERTIES)
settings.load_profile("dovetail")

# Who starts the tests in the background lets them, and all they start, ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Returns the folder that holds `traces/` and `data/`, or skips the test."""
    folder = Path(os.environ.get("DOVETAIL_DATA", ROOT.parent / "shared"))
    if not (folder / "traces").is_dir():
        pytest.skip(f"needs the public traces: set DOVETAIL_DATA (looked in {folder})")
    return folder


@pytest.fixture(autouse=True)
def generations_are_sound(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Checks, at the end of a test, the protocol of every worker that it made in this process."""
    made: list[WorkerGenerations] = []
    begin = WorkerGenerations.__init__

    def remember(self: WorkerGenerations, *args: Any, **fields: Any) -> None:
        begin(self, *args, **fields)
        made.append(self)

    monkeypatch.setattr(WorkerGenerations, "__init__", remember)
    yield
    for state in made:
        state.check()

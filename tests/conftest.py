"""What every test may use: the folder of real traces, where it is present."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from dovetail.wire.generation import Event, Instruction, Send, WorkerGenerations
from dovetail.wire.worker import FromWorker
from generation_invariants import violations, wrongly_sent

# No time is judged: a property says nothing of how fast a machine is. The default run draws the
# same examples each time. The other searches: `make slow` runs every property with a fresh seed
# (pytest --hypothesis-profile=search), keeps what failed in .hypothesis, and prints how to repeat.
PROPERTIES: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dovetail", derandomize=True, **PROPERTIES)
settings.register_profile("search", derandomize=False, print_blob=True, **PROPERTIES)
settings.load_profile("dovetail")

# Two processes of tests share the cores: threads of BLAS and torch would wait for each other, busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Hundreds of processes import Dovetail. They compile it once, also where no bytecode is kept.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

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
    workers: dict[int, tuple[WorkerGenerations, list[FromWorker]]] = {}
    handle = WorkerGenerations.handle

    def record(self: WorkerGenerations, event: Event) -> list[Instruction]:
        instructions = handle(self, event)
        _, sent = workers.setdefault(id(self), (self, []))
        sent.extend(i.message for i in instructions if isinstance(i, Send))
        return instructions

    monkeypatch.setattr(WorkerGenerations, "handle", record)
    yield
    for state, sent in workers.values():
        assert not violations(state), f"worker {state.number}, which sent {sent}"
        assert not wrongly_sent(sent), f"worker {state.number}, which sent {sent}"

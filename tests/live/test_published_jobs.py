"""Readers see of each running job what the tables say, though its state is not computed anew."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from harness.partitions import parted
from harness.scene import Scene
from harness.stage import folder_in_memory
from harness.story import Story, story

from dovetail.live.controller.live_jobs import LiveJob
from dovetail.live.controller.status_publisher import StatusPublisher
from dovetail.live.jobs.status_snapshot import JobStatus


def at(status: JobStatus, now: float) -> tuple[object, ...]:
    """What a reader makes of the state of a job at an instant."""
    gained = max(0.0, now - status.since_s) * status.rate
    waits = status.awaits, status.deferred, status.idle_s
    numbers = status.done_s + gained, max(0.0, status.left_s - gained), status.rate
    return (*numbers, status.placement, status.members, waits)


@pytest.mark.parametrize(
    "tale", [*map(story, range(40, 46)), parted(1), parted(3)], ids=lambda tale: f"{tale.seed}"
)
def test_a_state_that_is_shown_again_still_holds(
    tale: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = 0
    running = StatusPublisher._running

    def compared(publisher: StatusPublisher, job: LiveJob) -> JobStatus:
        nonlocal again
        shown, now = running(publisher, job), publisher._tables.now
        fresh = publisher._status(job)
        again += shown.since_s < now
        assert at(shown, now)[:3] == pytest.approx(at(fresh, now)[:3], abs=1e-6)
        assert at(shown, now)[3:] == at(fresh, now)[3:]
        return shown

    monkeypatch.setattr(StatusPublisher, "_running", compared)
    with tempfile.TemporaryDirectory(prefix="dovetail-", dir=folder_in_memory()) as folder:
        outcome = Scene(tale, Path(folder) / "store.db").play()
    assert not outcome.wrong, outcome.wrong
    assert again

"""Programs that know nothing of us: what they did is lost when they are stopped."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.scene import Scene
from harness.story import Fault, Story, Submission

from cluster_by_hand import spec
from dovetail.live.controller.launches import launcher_in
from dovetail.live.jobs.job_request import job_request
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.record import JobRecord
from dovetail.live.store.queries import StoreReader


def played(path: Path, *submissions: Submission, faults: tuple[Fault, ...] = ()) -> JobRecord:
    """Returns the record of the first job of a story under SRTF."""
    story = Story(seed=1, policy="srtf", submissions=submissions, faults=faults)
    assert not Scene(story, path).play().wrong
    with StoreReader(path) as reader:
        job = reader.job(1)
    assert job is not None
    return job.record


def test_the_time_limit_of_a_program_that_begins_anew_is_for_its_new_run(tmp_path: Path) -> None:
    killed = Fault(15.0, "worker killed")
    plain = Submission(0.0, "plain", 1, 1, 1, 20.0, time_limit_s=20.0)
    record = played(tmp_path / "store.db", plain, faults=(killed,))
    assert (record.state, record.retries) == (State.COMPLETED, 1)
    # It keeps what it did by itself, every ten seconds.
    assert record.ran_s == pytest.approx(10.0, abs=1.0)


def test_the_time_limit_of_a_program_that_made_way_is_for_its_new_run(tmp_path: Path) -> None:
    long = Submission(0.0, "plain", 2, 2, 2, 40.0, time_limit_s=30.0)
    others = [Submission(20.0, "plain", 2, 2, 2, 8.0) for _ in range(2)]
    record = played(tmp_path / "store.db", long, *others)
    assert record.state is State.COMPLETED
    assert record.ran_s == pytest.approx(20.0, abs=1.0)


def test_a_program_that_runs_too_long_at_once_is_ended(tmp_path: Path) -> None:
    plain = Submission(0.0, "plain", 1, 1, 1, 40.0, time_limit_s=30.0)
    assert played(tmp_path / "store.db", plain).state is State.TIMEOUT


@pytest.mark.parametrize(
    ("asked", "may"),
    [
        ({}, True),
        ({"preemptible": False}, False),
        # It would begin anew, which its owner does not allow.
        ({"requeue": False}, False),
        # It goes on from where it was.
        ({"requeue": False, "trains": True}, True),
        ({"requeue": False, "paced": True, "duration_s": 9.0}, True),
    ],
)
def test_what_may_not_begin_anew_is_not_stopped_by_a_policy(
    asked: dict[str, object], may: bool
) -> None:
    assert job_request(spec("job", **asked), 1, 0.0).preemptible is may


def test_a_launcher_is_told_whose_job_it_is_whatever_the_job_says() -> None:
    mine = spec(user="ann", environment=(("SLURM_JOB_USER", "bob"),))
    launch = launcher_in(Path("/jobs"))(1, mine)
    assert launch.user == "ann" and dict(launch.environment)["SLURM_JOB_USER"] == "bob"

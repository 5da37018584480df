"""What owners said of the lengths of their jobs is known without a look at the store."""

import pytest

from cluster_by_hand import spec
from dovetail.live.edges.protocols import Request, StoredState
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.serving.scheduler import JobLengths


def nothing(job: int) -> StoredJob | None:
    pytest.fail(f"job {job} was looked up")


def test_jobs_on_record_and_those_that_come_are_not_looked_up() -> None:
    jobs = (StoredJob(spec(duration_s=5.0), JobRecord(1)),)
    lengths = JobLengths(
        StoredState(1, jobs=jobs, accepted=(StoredJob.submitted(2, spec(duration_s=6.0), 0.0),)),
        nothing,
    )
    lengths.note(StoredJob.submitted(3, spec(duration_s=7.0), 1.0))
    lengths.note(StoredJob.submitted(4, spec(), 1.0))
    lengths.note(Request(1, "hold", 3))
    assert [lengths(str(job)) for job in (1, 2, 3, 4)] == [5.0, 6.0, 7.0, 0.0]


def test_a_job_that_was_over_is_looked_up_once() -> None:
    asked = list[int]()

    def find(job: int) -> StoredJob | None:
        asked.append(job)
        return StoredJob(spec(duration_s=8.0), JobRecord(job)) if job == 1 else None

    lengths = JobLengths(StoredState(1), find)
    assert [lengths("1"), lengths("1"), lengths("2"), lengths("2")] == [8.0, 8.0, 0.0, 0.0]
    assert asked == [1, 2]

"""Rows of the table of jobs as requests and records, and what stands for a row that is damaged.

One damaged row concerns one job. Lists show that job from the columns beside its texts, and
whatever would need the texts is refused for it alone.
"""

from __future__ import annotations

from dataclasses import replace

from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.store.record_codec import record_of, spec_of
from dovetail.wire.codec import WireError
from dovetail.wire.spec import JobSpec

DAMAGED = "RecordDamaged"
"""The reason of a job whose row in the store cannot be read."""
RESTORE = "put back a copy of the file, or submit the job anew"

SELECT_JOBS = (
    "SELECT number, CAST(spec AS BLOB), CAST(record AS BLOB), script, arrived,"
    " state, name, user, queue, submit_s, end_s FROM jobs"
)
"""What `stored_job` takes. As bytes, so that text that is not UTF-8 is seen and not replaced."""
JobColumns = tuple[
    int, bytes, bytes, str | None, int, str, str, str, str, float | None, float | None
]
"""The columns of `SELECT_JOBS`, where none is damaged."""


def stored_job(row: JobColumns, script: str = "") -> StoredJob:
    """Returns the job of a row; if its texts cannot be read, what its columns say."""
    number, spec_said, record_said, _, arrived, state, name, user, queue, *_ = row
    try:
        spec, record = spec_of(spec_said), record_of(record_said)
        beside = (number, state, name, user, queue)
        if beside != (record.job, record.state, spec.name, spec.user, spec.queue):
            raise WireError(f"its columns {beside} are not what its texts say")
    except WireError as error:
        return _stand_in(row, str(error))
    return StoredJob(replace(spec, script=script) if script else spec, record, bool(arrived))


def _stand_in(row: JobColumns, damage: str) -> StoredJob:
    number, _, _, _, arrived, state, name, user, queue, submit_s, end_s = row
    spec = JobSpec(str(name), ("(damaged)",), "/", user=str(user), queue=str(queue))
    record = JobRecord(
        number,
        state_of(state),
        submit_s=_seconds(submit_s, 0.0),
        end_s=_seconds(end_s, float("inf")),
        reason=DAMAGED,
        detail=f"its row in the store is damaged: {damage}",
    )
    return StoredJob(spec, record, bool(arrived), damage)


def state_of(said: object) -> State:
    """Returns the state that a column says; FAILED for what is none."""
    return State(said) if isinstance(said, str) and said in State.__members__ else State.FAILED


def _seconds(said: object, usual: float) -> float:
    return said if isinstance(said, float) else usual

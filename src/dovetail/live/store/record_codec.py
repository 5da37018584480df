"""Jobs in the store: their specifications and records as JSON texts, and rows with damaged texts.

A damaged row concerns one job. Lists show this job from the columns beside its texts, and all
requests that need the texts are refused for it alone.
"""

from __future__ import annotations

import json
from dataclasses import replace

from dovetail.core.errors import IllegalPlan
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.wire.codec import WireError, build, parse_object, plain
from dovetail.wire.spec import EACH_GPU, JobSpec

DAMAGED = "RecordDamaged"
"""The reason of a job whose row cannot be read."""
RESTORE = "put back a copy of the file, or submit the job anew"
DERIVED = ("gpus", "held_gpus", "nodes")
"""Fields of a placement that are computed from its spans."""
STORED_BYTES_MAX = 1 << 30
"""A bound without effect on texts that we wrote: they were bounded when they were accepted."""
SELECT_JOBS = (
    "SELECT number, CAST(spec AS BLOB), CAST(record AS BLOB), script, arrived,"
    " state, name, user, queue, submit_s, end_s FROM jobs"
)
"""The columns for `stored_job`; texts as bytes, so that invalid UTF-8 is detected, not replaced."""
JobColumns = tuple[
    int, bytes, bytes, str | None, int, str, str, str, str, float | None, float | None
]
"""The types of `SELECT_JOBS` in a row without damage."""
_NO_NUMBER = "NaN"
_text = json.JSONEncoder(separators=(",", ":")).encode


def stored_job(row: JobColumns, script: str = "") -> StoredJob:
    """Returns the job of a row; if its texts cannot be read, one of the other columns."""
    number, spec_bytes, record_bytes, _, arrived, state, name, user, queue, *_ = row
    try:
        spec, record = spec_of(spec_bytes), record_of(record_bytes)
        columns = (number, state, name, user, queue)
        if columns != (record.job, record.state, spec.name, spec.user, spec.queue):
            raise WireError(f"its columns {columns} are not what its texts say")
    except WireError as error:
        return _damaged_job(row, str(error))
    return StoredJob(replace(spec, script=script) if script else spec, record, bool(arrived))


def _damaged_job(row: JobColumns, damage: str) -> StoredJob:
    number, _, _, _, arrived, state, name, user, queue, submit_s, end_s = row
    record = JobRecord(
        number,
        state_of(state),
        submit_s=submit_s if isinstance(submit_s, float) else 0.0,
        end_s=end_s if isinstance(end_s, float) else float("inf"),
        reason=DAMAGED,
        detail=f"its row in the store is damaged: {damage}",
    )
    spec = JobSpec(str(name), ("(damaged)",), "/", user=str(user), queue=str(queue))
    return StoredJob(spec, record, bool(arrived), damage)


def state_of(column: object) -> State:
    """Returns the state in a column; FAILED for an unknown text."""
    if isinstance(column, str) and column in State.__members__:
        return State(column)
    return State.FAILED


def record_text(record: JobRecord) -> str:
    """Returns a record as a JSON object without fields that have their default.

    Raises WireError for one that could not be read again: it must never be stored.
    """
    fields = plain(record)
    placement = fields.get("placement")
    if isinstance(placement, dict):
        for name in DERIVED:
            placement.pop(name, None)
    text = _text(fields)
    if _NO_NUMBER in text:
        record_of(text)
    return text


def record_of(text: str | bytes) -> JobRecord:
    """Returns the record of a text. Raises WireError."""
    fields = parse_object(_utf8(text), STORED_BYTES_MAX)
    try:
        state = State(str(fields.pop("state", State.PENDING)))
        ending = fields.pop("ending", None)
        record: JobRecord = build(JobRecord, fields)
        return replace(record, state=state, ending=None if ending is None else State(str(ending)))
    except (ValueError, IllegalPlan) as error:
        raise WireError(f"JobRecord: {error}") from None


def spec_text(spec: JobSpec) -> str:
    """Returns a specification as a JSON object without fields that have their default.

    Raises WireError for one that could not be read again: it must never be stored.
    """
    # `ntasks` is always written: a text without it is from a release that did not know the field.
    text = _text(plain(spec) | {"ntasks": spec.ntasks})
    if _NO_NUMBER in text:
        spec_of(text)
    return text


def spec_of(text: str | bytes) -> JobSpec:
    """Returns the specification of a text. Raises WireError.

    A job of a release without `ntasks` runs as it did there: its program on each GPU, with all
    variables of Slurm.
    """
    fields = parse_object(_utf8(text), STORED_BYTES_MAX)
    if "ntasks" not in fields:
        fields |= {"ntasks": EACH_GPU, "slurm_variables": True}
    spec: JobSpec = build(JobSpec, fields)
    return spec


def _utf8(text: str | bytes) -> bytes:
    """Returns a text as UTF-8. Raises WireError."""
    if not isinstance(text, str | bytes):
        raise WireError("not text")
    try:
        return text.encode() if isinstance(text, str) else text.decode().encode()
    except UnicodeError:
        raise WireError("not UTF-8") from None

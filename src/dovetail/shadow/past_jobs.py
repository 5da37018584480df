"""What became of jobs, from `sacct --json`: each attempt of a requeued job is a job of its own."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from dovetail.shadow.slurm_values import JsonObject, member, moment, number, ranges, text, words
from dovetail.shadow.snapshot import JobKey, SlurmJob, entries

UNDER_WAY = frozenset(("RUNNING", "PENDING", "SUSPENDED", "CONFIGURING", "COMPLETING"))


@dataclass(frozen=True, slots=True)
class PastJob:
    """One job as accounting has it; times in Unix seconds, None where it has not come to that.

    `run_s` is how long it ran, or has run so far.
    """

    job: SlurmJob
    eligible_s: float | None
    start_s: float | None
    end_s: float | None
    run_s: float

    @property
    def key(self) -> JobKey:
        """Returns what names the job for ever."""
        return self.job.key


def past_jobs(payload: str, where: str = "sacct") -> list[PastJob]:
    """Returns the jobs with GPUs of an answer of sacct by submission. Raises InputError."""
    rows = entries(payload, where, "jobs")
    alone = {names[0] for row in rows if len(names := _names(row)) == 1}
    found = [job for row in rows for job in _past(row, alone)]
    found.sort(key=lambda past: (past.job.submit_s, past.job.job_id.zfill(20)))
    return found


def _past(row: JsonObject, alone: Container[str]) -> Iterator[PastJob]:
    """Yields the jobs of a row; tasks of an array that have rows of their own are not repeated."""
    gpus = _gpus(member(row, "tres", "allocated")) or _gpus(member(row, "tres", "requested"))
    submit_s = moment(member(row, "time", "submission"))
    if not gpus or submit_s is None:
        return
    over = bool(words(member(row, "state", "current")) - UNDER_WAY)
    past = PastJob(
        job=_job(row, gpus.get("", 0) or sum(gpus.values()), submit_s),
        eligible_s=moment(member(row, "time", "eligible")),
        start_s=moment(member(row, "time", "start")) if _ran(row) else None,
        end_s=moment(member(row, "time", "end")) if over else None,
        run_s=number(member(row, "time", "elapsed")) or 0.0,
    )
    names = _names(row)
    for name in names:
        if len(names) == 1 or name not in alone:
            yield replace(past, job=replace(past.job, job_id=name))


def _job(row: JsonObject, gpus: int, submit_s: float) -> SlurmJob:
    limit_min = number(member(row, "time", "limit"))
    return SlurmJob(
        job_id="",
        slurm_id=str(int(number(row.get("job_id")) or 0)),
        submit_s=submit_s,
        gpus=gpus,
        user=text(row.get("user")) or text(member(row, "association", "user")),
        account=text(row.get("account")),
        partition=text(row.get("partition")),
        qos=text(row.get("qos")),
        name=text(row.get("name")),
        # What was requested, not what was got: another policy may choose another type.
        gpu_type=_requested_type(row),
        priority=number(row.get("priority")) or 0.0,
        limit_s=limit_min * 60.0 if limit_min else inf,
    )


def _ran(row: JsonObject) -> bool:
    """True if the job had nodes: Slurm gives one that was cancelled in the queue a start too."""
    return bool(text(row.get("nodes"))) and text(row.get("nodes")) != "None assigned"


def _requested_type(row: JsonObject) -> str:
    types = [kind for kind in _gpus(member(row, "tres", "requested")) if kind]
    return types[0] if len(types) == 1 else ""


def _gpus(tres: object) -> dict[str, int]:
    """Returns GPUs by type, and under "" those that Slurm lists as a total."""
    found: dict[str, int] = {}
    for item in tres if isinstance(tres, list) else []:
        if not isinstance(item, Mapping) or item.get("type") != "gres":
            continue
        name, _, kind = text(item.get("name")).partition(":")
        if name == "gpu" and number(item.get("count")):
            found[kind] = int(number(item.get("count")) or 0)
    return found


def _names(row: JsonObject) -> list[str]:
    """Returns the name of a job, or those of the tasks of an array that has not started."""
    array, task = number(member(row, "array", "job_id")), number(member(row, "array", "task_id"))
    het, offset = number(member(row, "het", "job_id")), number(member(row, "het", "job_offset"))
    if array and task is not None:
        return [f"{int(array)}_{int(task)}"]
    if array:
        listed = text(member(row, "array", "task"))
        return [f"{int(array)}_{task}" for task in _tasks(listed)] or [f"{int(array)}"]
    if het:
        return [f"{int(het)}+{int(offset or 0)}"]
    return [str(int(number(row.get("job_id")) or 0))]


def _tasks(listed: str) -> list[str]:
    """Returns the tasks of `0-5%3`, or of the set of bits `0x3F` that Slurm 22.05 writes."""
    digits = listed.removeprefix("0x")
    if listed.startswith("0x") and all(d in "0123456789abcdefABCDEF" for d in digits) and digits:
        bits = int(digits, 16)
        return [str(task) for task in range(bits.bit_length()) if bits >> task & 1]
    return [task for task in ranges(listed.partition("%")[0]) if task.isdecimal()]

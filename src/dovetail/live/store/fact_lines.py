"""Facts of a live cluster as lines of the event log; they name jobs by number."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields

from dovetail.core.job import JobRequest
from dovetail.core.messages import Fact, Submitted
from dovetail.record.log import FactLines

_APART = ("job_id", "submit_s", "gpus", "min_gpus", "max_gpus", "graph")
_NEUTRAL = {f.name: f.default for f in fields(JobRequest) if f.name not in _APART}


def live_lines(request: Callable[[int], tuple[JobRequest, float]]) -> FactLines:
    """Returns the writer of facts; `request` returns a job by number, and its length if known."""

    def submitted(fact: Submitted) -> str:
        return _submitted(fact, *request(fact.job))

    return FactLines(lambda job: f'"{job}"', submitted)


def job_in(fact: Fact) -> int | None:
    """Returns the job that a fact names, if it names one."""
    return getattr(fact, "job", None)


def _submitted(fact: Submitted, job: JobRequest, work_s: float) -> str:
    said: dict[str, object] = {"t": fact.t, "e": "submitted", "job": job.job_id}
    if job.submit_s != fact.t:
        said["submit_s"] = job.submit_s
    said["gpus"] = job.gpus
    if job.min_gpus != job.max_gpus:
        said |= {"min_gpus": job.min_gpus, "max_gpus": job.max_gpus}
    said |= {n: getattr(job, n) for n, usual in _NEUTRAL.items() if getattr(job, n) != usual}
    said["work_s"] = _known(work_s)
    said["length_s"] = _known(fact.length_s)
    return json.dumps(said, separators=(",", ":"), allow_nan=False)


def _known(length_s: float) -> float | None:
    return length_s if length_s < float("inf") else None

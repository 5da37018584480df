"""Whether what is on record keeps every promise: the invariants of DESIGN section 7.

A pure check over the store. It trusts neither the controller nor the records: facts are folded
anew and held against them. It gives sentences; none means that all is well.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from math import isclose

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.messages import Fact
from dovetail.core.placement import Placement
from dovetail.core.trace import CANCELLED, COMPLETED, ENDS, FAILED, TIMEOUT
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.status_snapshot import StatusSnapshot
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.store.queries import Queries
from dovetail.live.store.restored import FIRST_NEW
from dovetail.record.log import fact_of
from dovetail.wire.spec import Dependency
from job_history import (
    GpuKey,
    HistoryStage,
    JobHistories,
    JobHistory,
    SharingPermission,
    sharing_breaches,
)
from store_reads import answered_jobs, cancels, damage, recorded_jobs

PLACED = (State.CONFIGURING, State.RUNNING)
_HOW = {
    State.COMPLETED: ENDS[COMPLETED],
    State.CANCELLED: ENDS[CANCELLED],
    State.TIMEOUT: ENDS[TIMEOUT],
    State.DEADLINE: ENDS[TIMEOUT],
}
"""How the log calls the end of a job in a state; every other end is a failure."""
DEPENDENCY, ARRAY_FULL, BEGIN_TIME = "Dependency", "JobArrayTaskLimit", "BeginTime"
"""Why a job waits for another, for a place in its array, for a time."""
_PROGRESS = 1e-6


def audit(
    queries: Queries,
    *,
    cluster: Cluster | None = None,
    acknowledged: Collection[int] = (),
    share_between_users: bool = False,
) -> list[str]:
    """Returns a sentence for each promise that the store breaks.

    `cluster` says how many GPUs there are; `acknowledged` are jobs whose submit somebody was told
    of. A store that cannot be read is one sentence.
    """
    try:
        return list(_audit(queries, cluster, acknowledged, share_between_users))
    except InputError as error:
        return [str(error)]


def _audit(
    queries: Queries, cluster: Cluster | None, acknowledged: Collection[int], between: bool
) -> Iterator[str]:
    yield from damage(queries)
    jobs = dict(recorded_jobs(queries))
    yield from _numbers(queries, jobs, acknowledged)
    leave = {n: SharingPermission(job.spec.user, job.spec.shareable) for n, job in jobs.items()}
    installed = cluster.installed if cluster is not None else ()
    courses = JobHistories(leave, installed, share_between_users=between)
    courses.fold(_facts(queries, jobs))
    yield from courses.breaches
    for number, job in jobs.items():
        yield from _against_course(job, courses.of.get(number) or JobHistory())
        yield from _waits_for_nothing(job, jobs)
        yield from _gang(job)
    yield from _arrays(jobs)
    yield from _seats(jobs, leave, installed, between)


def _facts(queries: Queries, jobs: Mapping[int, StoredJob]) -> Iterator[Fact]:
    index_of = {str(number): number for number in jobs}
    for line in queries.all_facts():
        try:
            record = json.loads(line)
        except ValueError:
            raise InputError("facts", f"the line {line[:80]!r} is damaged") from None
        if "job" in record and str(record["job"]) not in index_of:
            raise InputError("facts", f"job {record['job']} was never submitted: {line[:80]}")
        yield fact_of(record, index_of)


def _numbers(
    queries: Queries, jobs: Mapping[int, StoredJob], acknowledged: Collection[int]
) -> Iterator[str]:
    """Every submit that was answered is there, once, and every job is in one state."""
    lost = sorted(set(acknowledged) - set(jobs))
    if lost:
        yield f"jobs were acknowledged and are not on record: {lost[:20]}"
    answered = sorted(set(answered_jobs(queries)) - set(jobs))
    if answered:
        yield f"jobs were answered to a key and are not on record: {answered[:20]}"
    # After a backup was put back jobs go on from the first number that was certainly not used.
    first_new = int(queries.meta(FIRST_NEW) or 1)
    before = [number for number in jobs if number < first_new]
    expected = [*range(1, len(before) + 1), *range(first_new, first_new + len(jobs) - len(before))]
    if list(jobs) != expected:
        yield "the numbers of jobs have gaps"
    if sum(queries.counts().values()) != len(jobs):
        yield f"{len(jobs)} jobs were submitted, {queries.counts()} are in a state"
    submitted_s = [job.record.submit_s for job in jobs.values()]
    if any(a > b for a, b in pairwise(submitted_s)):
        yield "a job was submitted before one with a lower number"
    for number, state in queries.states():
        said = jobs[number].record.state
        if state != said:
            yield f"job {number} is listed as {state} and its record says {said}"
    for number, job in jobs.items():
        if job.record.job != number:
            yield f"the record of job {number} is that of job {job.record.job}"


def _against_course(job: StoredJob, course: JobHistory) -> Iterator[str]:
    """The record of a job is what its facts lead to."""
    record, n = job.record, job.number
    placed, over = record.state in PLACED, record.state in (*TERMINAL, State.COMPLETING)
    if not job.arrived and course.stage is not HistoryStage.APART:
        yield f"job {n} has facts and no entry has written its record"
    if placed != (course.stage is HistoryStage.PLACED) or (
        over and course.stage is not HistoryStage.OVER
    ):
        yield f"job {n} is {record.state} on record and {course.stage} by its facts"
    elif placed and record.placement != course.placement:
        yield f"job {n} is on {record.placement} on record and on {course.placement} by its facts"
    elif record.state is State.PENDING:
        yield from _pending(job, course)
    if over and course.ended:
        state = record.ending if record.state is State.COMPLETING else record.state
        how = _HOW.get(state, ENDS[FAILED]) if state is not None else "nothing"
        if how != course.ended[-1]:
            yield f"job {n} will have been {state} and its last end was '{course.ended[-1]}'"
    if record.state in TERMINAL and not record.end_s < float("inf"):
        yield f"job {n} is {record.state} and nobody knows since when"
    if record.state is State.COMPLETING and record.ending not in TERMINAL:
        yield f"job {n} is ending, and as what is not known"


def _pending(job: StoredJob, course: JobHistory) -> Iterator[str]:
    record, n = job.record, job.number
    in_queue = course.stage is HistoryStage.WAITING
    if job.arrived and in_queue != (not record.reason):
        why = record.reason or "no reason"
        yield f"job {n} is pending for {why} on record and {course.stage} by its facts"
    done_s = course.stopped_done_s
    if not isclose(record.done_s, done_s, rel_tol=_PROGRESS, abs_tol=_PROGRESS):
        yield f"job {n} waits with {record.done_s:g} s done, and {done_s:g} s by its facts"


def _waits_for_nothing(job: StoredJob, jobs: Mapping[int, StoredJob]) -> Iterator[str]:
    """A job does not wait for what has happened."""
    waits = job.record.state is State.PENDING and job.record.reason == DEPENDENCY
    if waits and all(_has_happened(d, jobs) for d in job.spec.after):
        yield f"job {job.number} waits for jobs that did what it waits for"


def _arrays(jobs: Mapping[int, StoredJob]) -> Iterator[str]:
    """No array has more tasks on GPUs than its owner allows, and no task waits for a free place."""
    arrays: dict[int, list[StoredJob]] = {}
    for job in jobs.values():
        if job.spec.at_once and job.arrived and job.record.state not in TERMINAL:
            arrays.setdefault(job.spec.array_of, []).append(job)
    for array, tasks in arrays.items():
        most = tasks[0].spec.at_once
        on_gpus = sum(t.record.state in PLACED for t in tasks)
        if on_gpus > most:
            yield f"array {array} has {on_gpus} tasks on GPUs, and its limit is {most}"
        full = [t.number for t in tasks if t.record.reason == ARRAY_FULL]
        inside = sum(t.record.state is not State.PENDING or _has_place(t.record) for t in tasks)
        if full and inside < most:
            yield f"tasks {full} wait for a place in their array, which has one"


def _has_place(record: JobRecord) -> bool:
    """Tells whether a pending task may have a place: in the queue, or to be tried again."""
    return record.reason in ("", BEGIN_TIME)


def _has_happened(dependency: Dependency, jobs: Mapping[int, StoredJob]) -> bool:
    job = jobs.get(dependency.job)
    if job is None:
        return False
    state = job.record.state
    match dependency.kind:
        case "afterok":
            return state is State.COMPLETED
        case "afternotok":
            return state in TERMINAL and state is not State.COMPLETED
        case "afterany":
            return state in TERMINAL
    return state is not State.PENDING


def _gang(job: StoredJob) -> Iterator[str]:
    """A gang is whole or absent, within its range, and no worker number is used twice."""
    record, spec, n = job.record, job.spec, job.number
    if record.state not in PLACED:
        if record.placement is not None or record.members:
            yield f"job {n} is {record.state} and still holds GPUs"
        return
    if record.placement is None:
        yield f"job {n} is {record.state} without a placement"
        return
    low, high = (spec.min_gpus, spec.max_gpus) if spec.elastic else (spec.gpus, spec.gpus)
    if not low <= record.placement.gpus <= high:
        yield f"job {n} runs on {record.placement.gpus} GPUs, and takes {low} to {high}"
    if not _is_whole(record, record.placement):
        yield f"job {n} wants workers on {record.members}, not on its placement {record.placement}"
    numbers = [member.worker for member in record.members]
    tasks = len(numbers) if spec.elastic else spec.tasks
    each = dict.fromkeys(Counter(numbers).values())
    if len(set(numbers)) != tasks or len(each) > 1 or any(w >= record.next_worker for w in numbers):
        yield f"job {n} has workers {numbers}, the next being {record.next_worker}"


def _is_whole(record: JobRecord, placement: Placement) -> bool:
    gpus = [(member.node, member.gpu) for member in record.members]
    by_node = Counter(node for node, _ in gpus)
    return len(set(gpus)) == len(gpus) and by_node == Counter(placement.by_node())


def _seats(
    jobs: Mapping[int, StoredJob],
    leave: Mapping[int, SharingPermission],
    installed: tuple[int, ...],
    both: bool,
) -> Iterator[str]:
    """No GPU is over its limit, by the workers that records want.

    The name that a plan gives to a shared GPU stands for one GPU of the node, the same for all.
    """
    named: dict[GpuKey, dict[int, Placement | None]] = {}
    meant: dict[GpuKey, dict[GpuKey, None]] = {}
    on: dict[GpuKey, dict[int, None]] = {}
    for number, job in jobs.items():
        placement, members = job.record.placement, job.record.members
        names = list(placement.named()) if placement is not None and placement.gpu_ids else []
        for member in members:
            on.setdefault((member.node, member.gpu), {})[number] = None
        for name, member in zip(names, members, strict=False):
            named.setdefault(name, {})[number] = placement
            meant.setdefault(name, {})[member.node, member.gpu] = None
    for (node, gpu), company in sorted(on.items()):
        if installed and not (0 <= node < len(installed) and 0 <= gpu < installed[node]):
            yield f"jobs {sorted(company)} are on GPU {gpu} of node {node}, which does not exist"
        if len(company) > 1 and not any(set(company) <= set(named[n]) for n in named):
            yield f"GPU {gpu} of node {node} has jobs {sorted(company)}, and no plan says so"
    for name, gpus in sorted(meant.items()):
        if len(gpus) > 1:
            there = sorted(gpus)
            yield f"jobs {sorted(named[name])} share GPU {name} by the plan, and sit on {there}"
        yield from sharing_breaches(name, named[name], leave.get, between_users=both)


def audit_snapshot(snapshot: StatusSnapshot, queries: Queries) -> list[str]:
    """Returns where the picture that readers see differs from the store, both at one instant."""
    found = []
    jobs = {job.number: job.record for job in queries.live()}
    placed = {n for n, record in jobs.items() if record.state in PLACED}
    shown = {run.job: run for run in snapshot.running}
    if placed != set(shown):
        found.append(f"jobs run on record or in the picture alone: {sorted(placed ^ set(shown))}")
    for number in sorted(placed & set(shown)):
        run, record = shown[number], jobs[number]
        if (run.placement, run.members) != (record.placement, record.members):
            found.append(f"job {number} is elsewhere in the picture than on record")
    strangers = [n for n in snapshot.waiting if n not in jobs or jobs[n].state != State.PENDING]
    if strangers:
        found.append(f"jobs wait in the picture and not on record: {strangers}")
    return found


def audit_progress(earlier: Mapping[int, JobRecord], later: Mapping[int, JobRecord]) -> list[str]:
    """Returns what went backwards between two looks at the records of the same store."""
    found = []
    for number, before in earlier.items():
        after = later.get(number)
        if after is None:
            found.append(f"job {number} was on record and is not any more")
            continue
        if after.generation < before.generation:
            found.append(f"job {number}: generation {before.generation} became {after.generation}")
        if after.next_worker < before.next_worker:
            found.append(f"job {number}: worker numbers are given out again")
        if after.submit_s != before.submit_s:
            found.append(f"job {number}: its submission moved to {after.submit_s:g} s")
        again = {m.worker for m in after.members} - {m.worker for m in before.members}
        if any(worker < before.next_worker for worker in again):
            found.append(f"job {number}: workers {sorted(again)} are wanted again")
    return found


def late_cancels(queries: Queries, *, now: float, slack_s: float = 1.0) -> list[str]:
    """Returns the cancelled jobs that outlived their grace; for runs in which all nodes answer."""
    found = []
    for job, asked_s in cancels(queries):
        kept = queries.job(job)
        if kept is None:
            continue
        due_s = asked_s + kept.spec.grace_s + slack_s
        over = kept.record.state in TERMINAL
        if (kept.record.end_s if over else now) > due_s:
            state = kept.record.state
            found.append(
                f"job {job} was cancelled at {asked_s:g} s and is {state} after {due_s:g} s"
            )
    return found

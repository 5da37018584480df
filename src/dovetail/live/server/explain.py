"""Why a job is where it is: a reason code in Slurm's words, a sentence, and the evidence for it.

All of it is read: the policy's own reasons, who is ahead in its order, what is free, and the
record. Nothing is guessed; what would have to happen is counted from what is free and held.
"""

from __future__ import annotations

import signal
from collections.abc import Collection
from contextlib import suppress

from dovetail.core.cluster import DOWN, DRAINING
from dovetail.core.units import LONG_AGO_S, NEVER_S
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.status_snapshot import JobStatus, SnapshotIndex, StatusSnapshot
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.server.conditions import conditions, job_name, unmet_condition
from dovetail.live.server.messages.reason import JobExplanation
from dovetail.live.server.protocol import ENDLESS_S
from dovetail.live.server.rows import (
    UNWRITABLE,
    fraction_done,
    is_closed_to,
    placement_text,
    progress_of,
    reason_code,
)
from dovetail.live.store.queries import Queries

AHEAD_SHOWN = 5
LEAST_SHOWN = 0.01
"""Slower jobs would be shown with a speed of 0."""

SENTENCES = {
    "Resources": "it is next in the policy's order and waits for free GPUs",
    "Priority": "jobs ahead of it in the policy's order wait too",
    "JobArrayTaskLimit": "as many tasks of its array as its owner allows are ahead of it",
    "BetterPlacement": "the policy holds it back for GPUs that lie closer together",
    "SharingDoesNotPay": "every GPU it could share would slow both jobs more than waiting does",
    "BeginTime": "its time to begin has not come",
    "JobHeldUser": "it is held until its owner releases it",
    "Dependency": "a job it depends on has not come that far",
    "DependencyNeverSatisfied": "a job it depends on ended in another way than it demands",
    "ReqNodeNotAvail": "the nodes that could hold it are down or draining",
    UNWRITABLE: "the controller cannot write to its folder, and starts nothing until it can",
    "None": "the policy has not been asked about it yet",
}
"""The codes a waiting job may show, each with what it means."""
BEHIND = "the GPUs it could have are not free, and jobs ahead of it in the policy's order wait too"
"""What `Resources` means where a policy looks for room for every job, not for the first alone."""


def explain(kept: StoredJob, reader: Queries, seen: SnapshotIndex, now_s: float) -> JobExplanation:
    """Returns why a job waits, why it has the GPUs it has, or why it ended."""
    if kept.record.state in TERMINAL or kept.record.state is State.COMPLETING:
        return _ended(kept, now_s)
    if kept.record.state is State.PENDING:
        return _waiting(kept, reader, seen, now_s)
    return _running(kept, reader, seen, now_s)


def _waiting(kept: StoredJob, reader: Queries, seen: SnapshotIndex, now_s: float) -> JobExplanation:
    picture, record, number = seen.picture, kept.record, kept.number
    said = seen.reasons.get(number)
    code = reason_code(kept, seen)
    rank = seen.rank.get(number)
    ahead = picture.waiting[:rank] if rank is not None else ()
    free = _free_to(kept, picture)
    kind = kept.spec.gpu_type
    evidence = [f"it asks for {_asks(kept)}", _free_text(free, kind), *_closed_text(picture)]
    if rank is not None:
        evidence.append(_ahead_text(ahead, reader))
    if said is not None and said.behind >= 0:
        evidence.append(f"job {job_name(said.behind, reader)} is the first that finds no room")
    evidence.extend(conditions(kept, reader, now_s))
    if record.retries:
        evidence.append(f"it was tried {_times(record.retries)} before")
    if picture.refused and picture.refused_s >= picture.decided_s:
        evidence.append(f"the last plan was refused: {picture.refused}")
    if picture.unwritable:
        evidence.append(picture.unwritable)
    return JobExplanation(
        job=number,
        called=kept.spec.called(number),
        state=str(record.state),
        code=code,
        sentence=record.detail or _sentence(code, len(ahead)),
        evidence=tuple(evidence),
        ahead=ahead[:AHEAD_SHOWN],
        ahead_count=len(ahead),
        free_gpus=sum(free.values()),
        would_start=_would_start(kept, seen, reader, len(ahead), free, now_s),
        decided_s=_known(picture.decided_s),
        now_s=now_s,
    )


def _sentence(code: str, ahead: int) -> str:
    if code == "Resources" and ahead:
        return BEHIND
    return SENTENCES.get(code, "the policy gives no further reason")


def _asks(kept: StoredJob) -> str:
    spec = kept.spec
    size = f"{spec.min_gpus} to {spec.max_gpus}" if spec.elastic else str(spec.gpus)
    kind = f" {spec.gpu_type}" if spec.gpu_type else ""
    gpus = f"{size}{kind} GPU{'s' if size != '1' else ''}"
    beside = [f"{spec.cpus:g} CPUs"] if spec.cpus else []
    if spec.memory_bytes:
        beside.append(f"{spec.memory_bytes / 2**30:.1f}G of memory")
    return f"{gpus} with {' and '.join(beside)}" if beside else gpus


def _closed_text(picture: StatusSnapshot) -> list[str]:
    """Returns which nodes are down or draining, if any are."""
    found = []
    for state in (DRAINING, DOWN):
        nodes = [str(n.node) for n in picture.nodes if n.state == state]
        if nodes:
            more = f" and {len(nodes) - AHEAD_SHOWN} more" if len(nodes) > AHEAD_SHOWN else ""
            are = "nodes are" if len(nodes) > 1 else "node is"
            found.append(f"{len(nodes)} {are} {state}: {', '.join(nodes[:AHEAD_SHOWN])}{more}")
    return found


def _free_to(kept: StoredJob, picture: StatusSnapshot) -> dict[int, int]:
    """Returns how many GPUs are free on each node that is up and has the type that a job needs."""
    kind = kept.spec.gpu_type
    fitting = {n.node for n in picture.nodes if kind in ("", n.gpu_type)}
    return {node: gpus for node, gpus in picture.free_gpus().items() if node in fitting}


def _free_text(free: dict[int, int], kind: str = "") -> str:
    named = f"{kind} GPU" if kind else "GPU"
    total = sum(free.values())
    if not total:
        return f"no {named} is free"
    most = max(free.values())
    return f"{total} {named}{'s are' if total > 1 else ' is'} free, at most {most} on one node"


def _ahead_text(ahead: tuple[int, ...], reader: Queries) -> str:
    if not ahead:
        return "no waiting job is ahead of it"
    first = []
    for number in ahead[:AHEAD_SHOWN]:
        spec = reader.spec(number)
        plural = "" if spec is not None and spec.gpus == 1 else "s"
        size = "" if spec is None else f" ({spec.gpus} GPU{plural})"
        first.append(f"{job_name(number, reader)}{size}")
    more = f" and {len(ahead) - AHEAD_SHOWN} more" if len(ahead) > AHEAD_SHOWN else ""
    return f"{_jobs_are(len(ahead), 'waiting ')} ahead of it: {', '.join(first)}{more}"


def _jobs_are(jobs: int, kind: str = "") -> str:
    return f"1 {kind}job is" if jobs == 1 else f"{jobs} {kind}jobs are"


def _would_start(
    kept: StoredJob,
    seen: SnapshotIndex,
    reader: Queries,
    ahead: int,
    free: dict[int, int],
    now_s: float,
) -> str:
    """Returns what would have to happen, as far as counting GPUs shows."""
    record, spec = kept.record, kept.spec
    if record.held:
        return "release it"
    if record.reason:
        return unmet_condition(kept, reader, now_s)
    if seen.picture.unwritable:
        return "the controller must be able to write to its folder again"
    if kept.number not in seen.rank:
        return "the policy must be asked about it, as it is at its next decision"
    if is_closed_to(kept, seen):
        return "a node that is down or draining must be up again"
    lacking = spec.min_gpus - sum(free.values())
    if lacking <= 0 and (spec.cpus or spec.memory_bytes) and _finds_no_room(kept, seen):
        return "as many GPUs are free, but not with the CPUs and the memory it asks for beside them"
    if lacking <= 0:
        behind = f", after or beside the {ahead} ahead of it" if ahead else ""
        return f"enough GPUs are free; it starts when the policy's next plan takes it{behind}"
    text = f"{lacking} more GPU{'s' if lacking > 1 else ''} must become free"
    end_s = _freed_by(seen, free, lacking, now_s)
    if end_s < NEVER_S:
        text += f"; by the forecast of the running jobs that is in {end_s - now_s:.0f} s"
    return text + (f", and {_jobs_are(ahead)} ahead of it" if ahead else "")


def _finds_no_room(kept: StoredJob, seen: SnapshotIndex) -> bool:
    """True if the policy found no room for a job at its last decision."""
    said = seen.reasons.get(kept.number)
    return said is not None and said.code == "Resources"


def _freed_by(seen: SnapshotIndex, nodes: Collection[int], gpus: int, now_s: float) -> float:
    """Returns when so many more GPUs of some nodes are free if running jobs end as forecast.

    Infinite if unknown.
    """
    ends = sorted(
        (_end_of(run, now_s), sum(m.node in nodes for m in run.members))
        for run in seen.picture.running
    )
    for end_s, held in ends:
        gpus -= held
        if gpus <= 0:
            return end_s
    return NEVER_S


def _end_of(run: JobStatus, now_s: float) -> float:
    if run.rate <= 0 or run.left_s > ENDLESS_S:
        return NEVER_S
    return max(now_s, run.since_s + run.left_s / run.rate)


def _running(kept: StoredJob, reader: Queries, seen: SnapshotIndex, now_s: float) -> JobExplanation:
    picture, record, number = seen.picture, kept.record, kept.number
    run = seen.runs.get(number)
    held = len(record.members)
    free = picture.free_gpus()
    evidence = [
        f"it asked for {_asks(kept)}",
        f"on {placement_text(record.members) or 'no GPU yet'}",
    ]
    if run is not None:
        evidence.extend(_progress_lines(kept, run, seen, reader, now_s))
    evidence.extend(_out_of_reach(kept))
    evidence.append(_free_text(free))
    evidence.append(f"{_jobs_are(len(picture.waiting))} waiting")
    if record.detail:
        evidence.append(f"since it was placed: {record.detail}")
    last = _last_placing(reader, number)
    if last:
        evidence.append(last)
    starting = record.state is State.CONFIGURING
    return JobExplanation(
        job=number,
        called=kept.spec.called(number),
        state=str(record.state),
        code="Configuring" if starting else "Running",
        sentence=_why_so_many(kept, held, seen, starting),
        evidence=tuple(evidence),
        free_gpus=sum(free.values()),
        decided_s=_known(picture.decided_s),
        now_s=now_s,
    )


def _why_so_many(kept: StoredJob, held: int, seen: SnapshotIndex, starting: bool) -> str:
    spec, policy = kept.spec, seen.picture.policy
    verb = "is being started on" if starting else "runs on"
    one = f"it {verb} {held} GPU{'s' if held != 1 else ''}"
    if not spec.elastic:
        return f"{one}, as it asked"
    if held >= spec.max_gpus:
        return f"{one}, the most it may have"
    if held <= spec.min_gpus:
        left = "gives it none of those that are free"
        if not sum(seen.picture.free_gpus().values()):
            left = "gives the others to other jobs"
        return f"{one}, the fewest it takes: {policy} {left}"
    return f"{one} of {spec.min_gpus} to {spec.max_gpus}: the share that {policy} gives it"


def _progress_lines(
    kept: StoredJob, run: JobStatus, seen: SnapshotIndex, reader: Queries, now_s: float
) -> list[str]:
    done_s, rate, left_s = progress_of(kept.record, run, now_s)
    found = [_speed_text(rate)]
    part = fraction_done(kept.record, done_s, left_s)
    if part >= 0:
        found.append(f"{part:.0%} is done")
    seats = seen.picture.seats()
    others = {j for m in run.members for j in seats[(m.node, m.gpu)]} - {run.job}
    if others:
        names = reader.called(sorted(others)).values()
        found.append(f"it shares GPUs with job {', '.join(names)}")
    if run.awaits:
        those = ", ".join(reader.called(run.awaits).values())
        found.append(f"it waits for job {those} to leave its GPUs, or to hold less of their memory")
    found.extend(f"it waits for GPU memory on {why}" for why in run.deferred)
    if run.placement.accumulation_steps > 1:
        found.append(f"its batch is cut into {run.placement.accumulation_steps} steps")
    return found


def _out_of_reach(kept: StoredJob) -> list[str]:
    """Describes GPUs of a job on nodes where none of its processes runs."""
    if kept.spec.trains or kept.spec.paced:
        return []
    members = kept.record.members
    runs_on = {m.worker: m.node for m in reversed(members)}
    apart = {m.node for m in members} - set(runs_on.values())
    if not apart:
        return []
    nodes = ", ".join(map(str, sorted(set(runs_on.values()))))
    where = f"on node {nodes}" if len(set(runs_on.values())) == 1 else f"on nodes {nodes}"
    who = "its one process is" if len(runs_on) == 1 else f"its {len(runs_on)} processes are"
    return [f"{who} {where}, and cannot reach its GPUs on other nodes"]


def _speed_text(rate: float) -> str:
    if rate <= 0:
        return "it makes no progress yet: its workers start, change over or wait for GPUs"
    if rate < LEAST_SHOWN:
        return f"at less than {LEAST_SHOWN:g} times its speed alone as requested"
    return f"at {rate:.2f} times its speed alone as requested"


def _last_placing(reader: Queries, number: int) -> str:
    """Describes the last placement of a job, from the log."""
    facts = reader.facts(number)
    placed = [(t, f) for t, f in facts if f.get("e") == "started"]
    if not placed:
        return ""
    t, fact = placed[-1]
    again = f", the {len(placed)}th placing" if len(placed) > 3 else ""
    stopped = [(s, f) for s, f in facts if f.get("e") == "stopped" and s <= t]
    since = ""
    if stopped:
        since = f", after it was stopped at {stopped[-1][0]:.0f} s: {stopped[-1][1].get('why')}"
    return f"last placed at {t:.0f} s ({fact.get('how', 'start')}){again}{since}"


def _ended(kept: StoredJob, now_s: float) -> JobExplanation:
    record = kept.record
    over = record.state in TERMINAL
    ending = record.state if over or record.ending is None else record.ending
    evidence = []
    if record.exit_code is not None:
        evidence.append(_exit_text(record.exit_code))
    if record.first_start_s < NEVER_S:
        evidence.append(f"it waited {record.first_start_s - record.queued_s:.0f} s for its start")
    else:
        evidence.append("it never started")
    if record.end_s < NEVER_S:
        evidence.append(f"it ended {max(0.0, now_s - record.end_s):.0f} s ago")
    if record.retries:
        evidence.append(f"it was tried again {_times(record.retries)} of {kept.spec.retries}")
    sentence = record.detail or ENDS.get(ending, "it is over")
    return JobExplanation(
        job=kept.number,
        called=kept.spec.called(kept.number),
        state=str(record.state),
        code=record.reason or "None",
        sentence=sentence if over else f"its workers are ending: {sentence}",
        evidence=tuple(evidence),
        now_s=now_s,
    )


ENDS = {
    State.COMPLETED: "it finished by itself",
    State.FAILED: "its program failed",
    State.CANCELLED: "it was cancelled",
    State.TIMEOUT: "it reached its time limit",
    State.NODE_FAIL: "its node was lost",
    State.OUT_OF_MEMORY: "it used more memory than it may",
    State.DEADLINE: "it could not end before its deadline",
}


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"it exited with code {code}"
    with suppress(ValueError):
        return f"signal {-code} ({signal.Signals(-code).name}) ended it"
    return f"signal {-code} ended it"


def _known(time_s: float) -> float:
    return -1.0 if time_s == LONG_AGO_S else time_s


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"

"""Explains the state of a job: a reason code in Slurm's words, a sentence, and evidence.

All evidence is read from the reasons and the order of the policy, the free GPUs, and the record of
the job. What would have to happen for a start is counted from free and allocated GPUs alone.
"""

from __future__ import annotations

import signal
from collections.abc import Collection
from contextlib import suppress

from dovetail.core.cluster import DOWN, DRAINING
from dovetail.core.units import LONG_AGO_S, NEVER_S
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.status_snapshot import (
    DISCONNECTED,
    LIMITED,
    JobStatus,
    SnapshotIndex,
    StatusSnapshot,
)
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.server.conditions import (
    awaited_nodes,
    awaited_text,
    conditions,
    job_name,
    unmet_condition,
)
from dovetail.live.server.messages.reason import ExplainReply
from dovetail.live.server.protocol import ENDLESS_S
from dovetail.live.server.rows import (
    MEMORY,
    UNWRITABLE,
    fraction_done,
    idle_text,
    is_closed_to,
    placement_text,
    progress_of,
    reason_code,
)
from dovetail.live.store.queries import Queries

AHEAD_SHOWN = 5
LEAST_SHOWN = 0.01
"""The lowest speed that two decimals show."""

SENTENCES = {
    "Resources": "it is next in the policy's order and waits for free GPUs",
    "Priority": "jobs ahead of it in the policy's order wait too",
    "JobArrayTaskLimit": "as many tasks of its array as its owner allows are ahead of it",
    "BetterPlacement": "the policy holds it back for GPUs that lie closer together",
    "SharingDoesNotPay": "every GPU it could share would slow both jobs more than waiting does",
    "Outbid": "the jobs that run make more of each GPU than it would, by length, speed and weight",
    "AccountingPolicy": "a limit of its user, account, QOS or partition leaves it no GPUs",
    "Reservation": "nodes that it could use are kept for a reservation or for maintenance",
    "BeginTime": "its time to begin has not come",
    "JobHeldUser": "it is held until its owner releases it",
    "Dependency": "a job it depends on has not come that far",
    "DependencyNeverSatisfied": "a job it depends on ended in another way than it demands",
    DISCONNECTED: "it may still run on a node that cannot be reached",
    "ReqNodeNotAvail": "the nodes that could hold it are down or draining",
    "GuaranteedGpusLent": "GPUs guaranteed to its queue are lent, and are on their way back",
    "PreemptionBudget": "the jobs on GPUs lent by its queue were stopped as often as they may be",
    "LenderWaits": "GPUs guaranteed to its queue are lent to jobs that may not be stopped",
    "StarvationGuard": "it waited so long that GPUs that get free are kept for it",
    UNWRITABLE: "the controller cannot write to its folder, and starts nothing until it can",
    "None": "the policy has not been asked about it yet",
}
"""The reason codes of waiting jobs with their sentences."""
BEHIND = "the GPUs it could have are not free, and jobs ahead of it in the policy's order wait too"
"""The sentence of `Resources` for a job that is not the first: the policy tries every job."""


def explain(job: StoredJob, reader: Queries, index: SnapshotIndex, now_s: float) -> ExplainReply:
    """Returns why a job waits, why it has the GPUs it has, or why it ended."""
    if job.record.state in TERMINAL or job.record.state is State.COMPLETING:
        return _ended(job, now_s)
    if job.record.state is State.PENDING:
        return _waiting(job, reader, index, now_s)
    return _running(job, reader, index, now_s)


def _waiting(job: StoredJob, reader: Queries, index: SnapshotIndex, now_s: float) -> ExplainReply:
    snapshot, record, number = index.snapshot, job.record, job.number
    reason = index.reasons.get(number)
    code = reason_code(job, index)
    rank = index.rank.get(number)
    ahead = snapshot.waiting[:rank] if rank is not None else ()
    free = _free_to(job, snapshot)
    kind = job.spec.gpu_type
    evidence = [f"it asks for {_asks(job)}", _free_text(free, kind), *_closed_text(snapshot)]
    if rank is not None:
        evidence.append(_ahead_text(ahead, reader))
    if number in index.limits:
        evidence.append(index.limits[number][1])
    if reason is not None and reason.behind >= 0:
        bought = reason.code == "Outbid"
        did = "was the last that bought GPUs" if bought else "is the first that finds no room"
        evidence.append(f"job {job_name(reason.behind, reader)} {did}")
    evidence.extend(
        f"node {n.label} was last heard {now_s - n.heard_s:.0f} s ago"
        for n in awaited_nodes(record, snapshot, now_s)
    )
    evidence.extend(conditions(job, reader, now_s))
    if record.retries:
        evidence.append(f"it was tried {_times(record.retries)} before")
    if record.avoided:
        nodes = ", ".join(map(snapshot.node_label, record.avoided))
        evidence.append(f"it avoids node {nodes}, which failed it, if another can hold it")
    if snapshot.refused and snapshot.refused_s >= snapshot.decided_s:
        evidence.append(f"the last plan was refused: {snapshot.refused}")
    if snapshot.unwritable:
        evidence.append(snapshot.unwritable)
    sentence = SENTENCES.get(code, "the policy gives no further reason")
    if code == "Resources" and ahead:
        sentence = BEHIND
    return ExplainReply(
        job=number,
        called=job.spec.called(number),
        state=str(record.state),
        code=code,
        sentence=record.detail or sentence,
        evidence=tuple(evidence),
        ahead=ahead[:AHEAD_SHOWN],
        ahead_count=len(ahead),
        free_gpus=sum(free.values()),
        would_start=_would_start(job, index, reader, len(ahead), free, now_s),
        decided_s=_known(snapshot.decided_s),
        now_s=now_s,
    )


def _asks(job: StoredJob) -> str:
    spec = job.spec
    size = f"{spec.min_gpus} to {spec.max_gpus}" if spec.elastic else str(spec.gpus)
    kind = f" {spec.gpu_type}" if spec.gpu_type else ""
    near = f" of topology {spec.topology}" if spec.topology else ""
    gpus = f"{size}{kind} GPU{'s' if size != '1' else ''}{near}"
    beside = [f"{spec.cpus:g} CPUs"] if spec.cpus else []
    if spec.memory_bytes:
        beside.append(f"{spec.memory_bytes / 2**30:.1f}G of memory")
    return f"{gpus} with {' and '.join(beside)}" if beside else gpus


def _closed_text(snapshot: StatusSnapshot) -> list[str]:
    """Describes the nodes that are down or draining, a text for each of these states."""
    texts = []
    for state in (DRAINING, DOWN):
        nodes = [n.label for n in snapshot.nodes if n.state == state]
        if nodes:
            more = f" and {len(nodes) - AHEAD_SHOWN} more" if len(nodes) > AHEAD_SHOWN else ""
            are = "nodes are" if len(nodes) > 1 else "node is"
            texts.append(f"{len(nodes)} {are} {state}: {', '.join(nodes[:AHEAD_SHOWN])}{more}")
    gpus = [f"{n.label}:{gpu}" for n in snapshot.nodes for gpu in n.drained_gpus]
    if gpus:
        more = f" and {len(gpus) - AHEAD_SHOWN} more" if len(gpus) > AHEAD_SHOWN else ""
        are = "GPUs are" if len(gpus) > 1 else "GPU is"
        texts.append(f"{len(gpus)} {are} drained: {', '.join(gpus[:AHEAD_SHOWN])}{more}")
    return texts


def _free_to(job: StoredJob, snapshot: StatusSnapshot) -> dict[int, int]:
    """Returns the number of free GPUs on each node that is up and that a job may use."""
    spec = job.spec
    fitting = {n.node for n in snapshot.nodes if n.suits(spec.queue, spec.gpu_type)}
    return {node: gpus for node, gpus in snapshot.free_gpus().items() if node in fitting}


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
    names = reader.called(ahead[:AHEAD_SHOWN])
    for job in reader.some(ahead[:AHEAD_SHOWN]):
        gpus = job.spec.gpus
        first.append(f"{names[job.number]} ({gpus} GPU{'' if gpus == 1 else 's'})")
    more = f" and {len(ahead) - AHEAD_SHOWN} more" if len(ahead) > AHEAD_SHOWN else ""
    return f"{_jobs_are(len(ahead), 'waiting ')} ahead of it: {', '.join(first)}{more}"


def _jobs_are(jobs: int, kind: str = "") -> str:
    return f"1 {kind}job is" if jobs == 1 else f"{jobs} {kind}jobs are"


def _would_start(
    job: StoredJob,
    index: SnapshotIndex,
    reader: Queries,
    ahead: int,
    free: dict[int, int],
    now_s: float,
) -> str:
    """Describes what would have to happen for a start, as far as counting GPUs shows."""
    record, spec = job.record, job.spec
    if record.held:
        return "release it"
    if record.reason:
        return unmet_condition(job, reader, index.snapshot, now_s)
    if index.snapshot.unwritable:
        return "the controller must be able to write to its folder again"
    if job.number not in index.rank:
        return "the policy must be asked about it, as it is at its next decision"
    if shut := _shut_out(job, index):
        return shut
    # Counted over all free GPUs, though the placement options may demand that they are close.
    lacking = spec.min_gpus - sum(free.values())
    reason = index.reasons.get(job.number)
    has_no_room = reason is not None and reason.code == "Resources"
    if lacking <= 0 and (spec.cpus or spec.memory_bytes) and has_no_room:
        return "as many GPUs are free, but not with the CPUs and the memory it asks for beside them"
    if lacking <= 0:
        behind = f", after or beside the {ahead} ahead of it" if ahead else ""
        return f"enough GPUs are free; it starts when the policy's next plan takes it{behind}"
    text = f"{lacking} more GPU{'s' if lacking > 1 else ''} must become free"
    end_s = _freed_by(index, free, lacking, now_s)
    if end_s < NEVER_S:
        text += f"; by the forecast of the running jobs that is in {end_s - now_s:.0f} s"
    return text + (f", and {_jobs_are(ahead)} ahead of it" if ahead else "")


def _shut_out(job: StoredJob, index: SnapshotIndex) -> str:
    """Describes what must happen before free GPUs can help a job, empty if they can now."""
    if job.number in index.limits:
        limited = index.limits[job.number][0] == LIMITED
        return "a job that counts to the limit must end" if limited else "its nodes must be open"
    if is_closed_to(job, index):
        return "a node that is down or draining must be up again"
    return ""


def _freed_by(index: SnapshotIndex, nodes: Collection[int], gpus: int, now_s: float) -> float:
    """Returns the time at which so many more GPUs of some nodes are free by the forecast.

    Infinite if unknown.
    """
    ends = sorted(
        (_end_of(run, now_s), sum(m.node in nodes for m in run.members))
        for run in index.snapshot.running
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


def _running(job: StoredJob, reader: Queries, index: SnapshotIndex, now_s: float) -> ExplainReply:
    snapshot, record, number = index.snapshot, job.record, job.number
    run = index.runs.get(number)
    held = len(record.members)
    free = snapshot.free_gpus()
    evidence = [
        f"it asked for {_asks(job)}",
        f"on {placement_text(record.members, index.snapshot) or 'no GPU yet'}",
    ]
    if run is not None:
        evidence.extend(_progress_lines(job, run, index, reader, now_s))
    if idle := idle_text(run, now_s):
        evidence.append(f"it does not use its GPUs: {idle}")
    if awaited := awaited_nodes(record, snapshot, now_s):
        evidence.append(f"it may run on unheard: {awaited_text(awaited, now_s)}")
    evidence.extend(_out_of_reach(job))
    evidence.extend(_restart_lines(job))
    evidence.append(_free_text(free))
    evidence.append(f"{_jobs_are(len(snapshot.waiting))} waiting")
    if record.detail:
        evidence.append(f"since it was placed: {record.detail}")
    last = _last_placing(reader, number)
    if last:
        evidence.append(last)
    starting = record.state is State.CONFIGURING
    return ExplainReply(
        job=number,
        called=job.spec.called(number),
        state=str(record.state),
        code="Configuring" if starting else "Running",
        sentence=_why_so_many(job, held, index, starting),
        evidence=tuple(evidence),
        free_gpus=sum(free.values()),
        decided_s=_known(snapshot.decided_s),
        now_s=now_s,
    )


def _why_so_many(job: StoredJob, held: int, index: SnapshotIndex, starting: bool) -> str:
    spec, policy = job.spec, index.snapshot.policy
    verb = "is being started on" if starting else "runs on"
    one = f"it {verb} {held} GPU{'s' if held != 1 else ''}"
    if not spec.elastic:
        return f"{one}, as it asked"
    if held >= spec.max_gpus:
        return f"{one}, the most it may have"
    if held <= spec.min_gpus:
        others = "gives it none of those that are free"
        if not sum(index.snapshot.free_gpus().values()):
            others = "gives the others to other jobs"
        return f"{one}, the fewest it takes: {policy} {others}"
    return f"{one} of {spec.min_gpus} to {spec.max_gpus}: the share that {policy} gives it"


def _progress_lines(
    job: StoredJob, run: JobStatus, index: SnapshotIndex, reader: Queries, now_s: float
) -> list[str]:
    done_s, rate, left_s = progress_of(job.record, run, now_s)
    lines = [_speed_text(rate)]
    part = fraction_done(job.record, done_s, left_s)
    if part >= 0:
        lines.append(f"{part:.0%} is done")
    seats = index.snapshot.seats()
    others = {j for m in run.members for j in seats[(m.node, m.gpu)]} - {run.job}
    if others:
        names = reader.called(sorted(others)).values()
        lines.append(f"it shares GPUs with job {', '.join(names)}")
    if run.awaits:
        awaited = ", ".join(reader.called(run.awaits).values())
        lines.append(
            f"it waits for job {awaited} to leave its GPUs, or to hold less of their memory"
        )
    for why in run.deferred:
        lines.append(f"it waits {'for GPU memory ' if MEMORY in why else ''}on {why}")
    if run.placement.accumulation_steps > 1:
        lines.append(f"its batch is cut into {run.placement.accumulation_steps} steps")
    return lines


def _out_of_reach(job: StoredJob) -> list[str]:
    """Describes the GPUs of a job on nodes without a process of it."""
    if job.spec.trains or job.spec.paced:
        return []
    members = job.record.members
    # The process of a worker runs on the node of its first member.
    node_of = {m.worker: m.node for m in reversed(members)}
    nodes = sorted(set(node_of.values()))
    if {m.node for m in members} == set(nodes):
        return []
    where = f"on node{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"
    processes = "its one process is" if len(node_of) == 1 else f"its {len(node_of)} processes are"
    return [f"{processes} {where}, and cannot reach its GPUs on other nodes"]


def _restart_lines(job: StoredJob) -> list[str]:
    """Describes the restarts of a job that has checkpoints of its own."""
    spec, record = job.spec, job.record
    if not spec.restarts:
        return []
    begun = f", {_times(record.restarts)} so far" if record.restarts else ""
    lines = [
        f"its program starts anew when its GPUs change{begun}; that costs about "
        f"{spec.restart_s:g} s, so it gets more GPUs only where they pay for it"
    ]
    return [*lines, *_kill_lines(job)]


def _kill_lines(job: StoredJob) -> list[str]:
    kills = job.record.grace_kills
    if not kills:
        return []
    return [
        f"{_times(kills)} it did not end within {job.spec.grace_s:g} s of SIGTERM and was killed: "
        "what it had not saved is lost (grace)"
    ]


def _speed_text(rate: float) -> str:
    if rate <= 0:
        return "it makes no progress yet: its workers start, change over or wait for GPUs"
    if rate < LEAST_SHOWN:
        return f"at less than {LEAST_SHOWN:g} times its speed alone as requested"
    return f"at {rate:.2f} times its speed alone as requested"


def _last_placing(reader: Queries, number: int) -> str:
    """Describes the last placement of a job, from the log."""
    facts = reader.facts(number)
    starts = [(t, f) for t, f in facts if f.get("e") == "started"]
    if not starts:
        return ""
    t, fact = starts[-1]
    again = f", the {len(starts)}th placing" if len(starts) > 3 else ""
    stops = [(s, f) for s, f in facts if f.get("e") == "stopped" and s <= t]
    since = ""
    if stops:
        since = f", after it was stopped at {stops[-1][0]:.0f} s: {stops[-1][1].get('why')}"
    return f"last placed at {t:.0f} s ({fact.get('how', 'start')}){again}{since}"


def _ended(job: StoredJob, now_s: float) -> ExplainReply:
    record = job.record
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
    evidence.extend(_kill_lines(job))
    if record.retries:
        evidence.append(f"it was tried again {_times(record.retries)} of {job.spec.retries}")
    sentence = record.detail or ENDS.get(ending, "it is over")
    return ExplainReply(
        job=job.number,
        called=job.spec.called(job.number),
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

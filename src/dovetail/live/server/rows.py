"""Rows of jobs and nodes, from the records in the store and the last status snapshot."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.core.cluster import UP
from dovetail.core.units import LONG_AGO_S, NEVER_S
from dovetail.live.jobs.job_request import is_preemptible
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.record import GangMember, JobRecord
from dovetail.live.jobs.status_snapshot import JobStatus, SnapshotIndex, StatusSnapshot
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.server.conditions import awaited_nodes
from dovetail.live.server.messages.cluster import NodeRow
from dovetail.live.server.messages.listing import JobRow
from dovetail.live.server.messages.one_job import ShowReply
from dovetail.live.server.protocol import ENDLESS_S

CLOSED = "ReqNodeNotAvail"
UNWRITABLE = "StorageUnavailable"
GPU_MEMORY_HELD = "GpuMemoryHeld"
"""The reason of a starting job that waits for the driver to free GPU memory."""
AGENT_WAITS = "AgentWaits"
"""Its agent cannot start it yet: its files are on their way, or a script of the site runs."""
MEMORY = "memory"
"""A word of why a start is deferred, if it is for that."""
WANTS_GPUS = ("None", "Resources", "Priority")
"""Reasons of policies that are less specific than `CLOSED`, or than a limit of its tenant."""


def job_row(job: StoredJob, index: SnapshotIndex, now_s: float) -> JobRow:
    """Returns one job as a row of a list."""
    spec, record, number = job.spec, job.record, job.number
    done_s, rate, left_s = progress_of(record, index.runs.get(number), now_s)
    return JobRow(
        job=number,
        name=spec.name,
        user=spec.user,
        state=str(record.state),
        gpus=spec.gpus,
        min_gpus=spec.min_gpus,
        max_gpus=spec.max_gpus,
        submit_s=record.queued_s,
        held_gpus=len(record.members) if record.state not in TERMINAL else 0,
        where=_where(record, index, now_s),
        reason=reason_code(job, index),
        start_s=record.first_start_s,
        end_s=record.end_s,
        ran_s=run_time_s(record, now_s),
        done_s=done_s,
        rate=rate,
        progress=fraction_done(record, done_s, left_s),
        left_s=left_s / rate if rate > 0 and left_s < NEVER_S else NEVER_S,
        array=spec.array,
        array_of=spec.array_of,
        exit_code=record.exit_code,
        retries=record.retries,
        gpu_hours=record.attained_gpu_s / 3600.0,
        called=spec.called(number),
    )


def _where(record: JobRecord, index: SnapshotIndex, now_s: float) -> str:
    """Returns where a job runs, or the nodes on which it may, and for how long at most."""
    if record.state in TERMINAL:
        return ""
    on = placement_text(record.members, index.snapshot)
    if awaited := awaited_nodes(record, index.snapshot, now_s):
        nodes = ",".join(n.label for n in awaited)
        left_s = max(n.lost_s for n in awaited) - now_s
        waits = f"awaits {nodes}{f', {left_s:.0f} s' if left_s < ENDLESS_S else ''}"
        return f"{on} ({waits})" if on else waits
    idle = idle_text(index.runs.get(record.job), now_s)
    return ", ".join(filter(None, (on, idle)))


def idle_text(run: JobStatus | None, now_s: float) -> str:
    """Returns for how long a job has not used its GPUs; empty for less than a minute."""
    minutes = int((now_s - run.idle_s) // 60) if run is not None and run.idle_s < NEVER_S else 0
    return f"idle for {minutes} min" if minutes > 0 else ""


def run_time_s(record: JobRecord, now_s: float) -> float:
    """Returns the run time of a job, without the times between its runs."""
    since_s = record.since_s if record.state is State.RUNNING else now_s
    return record.ran_s + max(0.0, now_s - since_s)


def progress_of(
    record: JobRecord, run: JobStatus | None, now_s: float
) -> tuple[float, float, float]:
    """Returns solo seconds done, the rate, and solo seconds left (infinite: unknown)."""
    if run is None or record.state in TERMINAL:
        return record.done_s, 0.0, NEVER_S
    gained = max(0.0, now_s - run.since_s) * run.rate
    # Extrapolated since the snapshot: lists show progress between two decisions.
    left_s = NEVER_S if run.left_s > ENDLESS_S else max(0.0, run.left_s - gained)
    return run.done_s + gained, run.rate, left_s


def fraction_done(record: JobRecord, done_s: float, left_s: float) -> float:
    """Returns the completed share of a job, -1 if it is unknown."""
    if record.state is State.COMPLETED:
        return 1.0
    if left_s < NEVER_S and done_s + left_s > 0:
        return done_s / (done_s + left_s)
    # The record is written seldom, but nothing else is known of a job without GPUs.
    return min(1.0, record.samples / record.total_samples) if record.total_samples else -1.0


def reason_code(job: StoredJob, index: SnapshotIndex) -> str:
    """Returns why a job waits or how it ended, in Slurm's words."""
    record, reason = job.record, index.reasons.get(job.number)
    run = index.runs.get(job.number)
    deferred = run.deferred if record.state is State.CONFIGURING and run is not None else ()
    if any(MEMORY in why for why in deferred):
        return GPU_MEMORY_HELD
    if deferred:
        return AGENT_WAITS
    if record.state is not State.PENDING:
        return record.reason
    if record.held:
        return "JobHeldUser"
    if record.reason:
        return record.reason
    if reason is None and index.snapshot.unwritable:
        return UNWRITABLE
    code = "None" if reason is None else reason.code
    if code in WANTS_GPUS and job.number in index.limits:
        return index.limits[job.number][0]
    return CLOSED if code in WANTS_GPUS and is_closed_to(job, index) else code


def is_closed_to(job: StoredJob, index: SnapshotIndex) -> bool:
    """True if a job in the queue fits on all nodes together, and not on those that are up."""
    spec, needed = job.spec, job.spec.min_gpus
    nodes = [n for n in index.snapshot.nodes if n.suits(spec.queue, spec.gpu_type)]
    up = sum(len(n.gpus) - len(n.drained_gpus) for n in nodes if n.state == UP)
    return job.number in index.rank and up < needed <= sum(len(n.gpus) for n in nodes)


def placement_text(members: tuple[GangMember, ...], snapshot: StatusSnapshot) -> str:
    """Returns the GPUs of workers: `0:0-1 n1:3` is GPUs 0 and 1 of node 0 and GPU 3 of node n1."""
    by_node: dict[int, list[int]] = {}
    for member in members:
        by_node.setdefault(member.node, []).append(member.gpu)
    return " ".join(
        f"{snapshot.node_label(node)}:{ranges_text(sorted(set(gpus)))}"
        for node, gpus in by_node.items()
    )


def ranges_text(numbers: list[int]) -> str:
    """Returns sorted numbers as `0-2,5`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return ",".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in ranges)


def job_details(
    job: StoredJob, row: JobRow, called: Mapping[int, str], output: str, folder: str
) -> ShowReply:
    """Returns the details of one job; `called` has the names of its dependencies by number.

    Its variables appear without their values, which may be secret.
    """
    spec, record = job.spec, job.record
    return ShowReply(
        row=row,
        command=spec.command,
        script_lines=len(spec.script.splitlines()),
        workdir=spec.workdir,
        output=output,
        folder=folder,
        model=spec.model,
        queue=spec.queue,
        account=spec.account,
        qos=spec.qos,
        reservation=spec.reservation,
        container_image=spec.container_image,
        gpu_type=spec.gpu_type,
        trains=spec.trains,
        shareable=spec.shareable,
        preemptible=is_preemptible(spec),
        requeue=spec.requeue,
        priority=spec.priority,
        batch_size=spec.batch_size,
        time_limit_s=spec.time_limit_s,
        deadline_s=spec.deadline_s,
        duration_s=spec.duration_s,
        environment=tuple(sorted(name for name, _ in spec.environment)),
        after=tuple(f"{d.kind}:{called[d.job]}" for d in spec.after),
        generation=record.generation,
        workers=tuple(f"{m.worker} on {m.node}:{m.gpu}" for m in record.members),
        attained_gpu_s=record.attained_gpu_s,
        ran_s=row.ran_s,
        held=record.held,
        detail=record.detail,
        samples=record.samples,
        total_samples=record.total_samples,
        iteration_s=record.iteration_s,
        saved_step=record.saved_step,
        restart_s=spec.restart_s,
        restarts=record.restarts,
        grace_kills=record.grace_kills,
    )


def node_rows(snapshot: StatusSnapshot) -> tuple[NodeRow, ...]:
    """Returns the nodes with the jobs on each GPU, as of the snapshot."""
    seats = snapshot.seats()
    names = {run.job: run.called or str(run.job) for run in snapshot.running}
    rows = []
    for node in snapshot.nodes:
        heard_s = node.heard_s
        jobs = tuple(tuple(seats.get((node.node, gpu), ())) for gpu in range(len(node.gpus)))
        row = NodeRow(
            node=node.node,
            state=node.state,
            gpus=node.gpus,
            jobs=jobs,
            called=tuple(tuple(names[job] for job in on) for on in jobs),
            silent_s=-1.0 if heard_s == LONG_AGO_S else max(0.0, snapshot.now_s - heard_s),
            gpu_type=node.gpu_type,
            drains=node.drains,
            warnings=node.warnings,
            name=node.name,
        )
        rows.append(row)
    return tuple(rows)

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
from dovetail.live.server.messages.cluster import NodeRow
from dovetail.live.server.messages.listing import JobRow
from dovetail.live.server.messages.one_job import JobDetails
from dovetail.live.server.protocol import ENDLESS_S

CLOSED = "ReqNodeNotAvail"
UNWRITABLE = "StorageUnavailable"
GPU_MEMORY_HELD = "GpuMemoryHeld"
"""The reason of a job that is being started, and waits for the driver to free GPU memory."""
WANTS_GPUS = ("None", "Resources", "Priority")
"""Reasons of policies that tell less than that the nodes are closed."""


def job_row(kept: StoredJob, seen: SnapshotIndex, now_s: float) -> JobRow:
    """Returns one job as a row of a list."""
    spec, record, number = kept.spec, kept.record, kept.number
    done_s, rate, left_s = progress_of(record, seen.runs.get(number), now_s)
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
        where=placement_text(record.members) if record.state not in TERMINAL else "",
        reason=reason_code(kept, seen),
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


def run_time_s(record: JobRecord, now_s: float) -> float:
    """Returns how long a job has run, without what it waited in between."""
    since_s = record.since_s if record.state is State.RUNNING else now_s
    return record.ran_s + max(0.0, now_s - since_s)


def progress_of(
    record: JobRecord, run: JobStatus | None, now_s: float
) -> tuple[float, float, float]:
    """Returns solo seconds done, the rate, and solo seconds left (infinite: not known)."""
    if run is None or record.state in TERMINAL:
        return record.done_s, 0.0, NEVER_S
    gained = max(0.0, now_s - run.since_s) * run.rate
    left_s = NEVER_S if run.left_s > ENDLESS_S else max(0.0, run.left_s - gained)
    return run.done_s + gained, run.rate, left_s


def fraction_done(record: JobRecord, done_s: float, left_s: float) -> float:
    """Returns the part of a job that is done, -1 if it is not known."""
    if record.state is State.COMPLETED:
        return 1.0
    if left_s < NEVER_S and done_s + left_s > 0:
        return done_s / (done_s + left_s)
    # On record only now and then, but it is all that is known of a job that is not placed.
    return min(1.0, record.samples / record.total_samples) if record.total_samples else -1.0


def reason_code(kept: StoredJob, seen: SnapshotIndex) -> str:
    """Returns why a job waits or how it ended, in Slurm's words."""
    record, said = kept.record, seen.reasons.get(kept.number)
    run = seen.runs.get(kept.number)
    if record.state is State.CONFIGURING and run is not None and run.deferred:
        return GPU_MEMORY_HELD
    if record.state is not State.PENDING:
        return record.reason
    if record.held:
        return "JobHeldUser"
    if record.reason:
        return record.reason
    if said is None and seen.picture.unwritable:
        return UNWRITABLE
    code = "None" if said is None else said.code
    return CLOSED if code in WANTS_GPUS and is_closed_to(kept, seen) else code


def is_closed_to(kept: StoredJob, seen: SnapshotIndex) -> bool:
    """True if too few GPUs are on nodes that are up for a job that all nodes could hold."""
    kind, needed = kept.spec.gpu_type, kept.spec.min_gpus
    could = [n for n in seen.picture.nodes if kind in ("", n.gpu_type)]
    up = sum(len(n.gpus) for n in could if n.state == UP)
    return kept.number in seen.rank and up < needed <= sum(len(n.gpus) for n in could)


def placement_text(members: tuple[GangMember, ...]) -> str:
    """Returns where workers are, as `0:0-1 1:3` for GPUs 0 and 1 of node 0 and GPU 3 of node 1."""
    by_node: dict[int, list[int]] = {}
    for member in members:
        by_node.setdefault(member.node, []).append(member.gpu)
    return " ".join(f"{node}:{ranges_text(sorted(set(gpus)))}" for node, gpus in by_node.items())


def ranges_text(numbers: list[int]) -> str:
    """Returns sorted numbers as `0-2,5`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ",".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in found)


def job_details(
    kept: StoredJob, row: JobRow, called: Mapping[int, str], output: str, folder: str
) -> JobDetails:
    """Returns all of one job; `called` are the names of those it depends on.

    The values of its environment stay where they are.
    """
    spec, record = kept.spec, kept.record
    return JobDetails(
        row=row,
        command=spec.command,
        script_lines=len(spec.script.splitlines()),
        workdir=spec.workdir,
        output=output,
        folder=folder,
        model=spec.model,
        queue=spec.queue,
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
    )


def node_rows(picture: StatusSnapshot) -> tuple[NodeRow, ...]:
    """Returns the nodes with the jobs on each GPU, and their silence when the picture was made."""
    seats = picture.seats()
    names = {run.job: run.called or str(run.job) for run in picture.running}
    on = {
        n.node: tuple(tuple(seats.get((n.node, gpu), ())) for gpu in range(len(n.gpus)))
        for n in picture.nodes
    }
    return tuple(
        NodeRow(
            node=n.node,
            state=n.state,
            gpus=n.gpus,
            jobs=on[n.node],
            called=tuple(tuple(names[job] for job in jobs) for jobs in on[n.node]),
            silent_s=-1.0 if n.heard_s == LONG_AGO_S else max(0.0, picture.now_s - n.heard_s),
            gpu_type=n.gpu_type,
        )
        for n in picture.nodes
    )

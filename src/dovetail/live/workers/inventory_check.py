"""How a gang learns from the inventories of agents what it may have missed.

An inventory repeats the whole state of a node. After a restart of the controller nothing else is
known: workers are adopted from inventories, and once all nodes have answered, `Gang.find_missing`
decides about the workers that no inventory lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.core.units import NEVER_S
from dovetail.live.node.launcher import LOST_BY_NODE
from dovetail.live.workers.elastic_gang import ElasticGang
from dovetail.live.workers.gang import Gang
from dovetail.live.workers.rendezvous_address import RendezvousAddress
from dovetail.live.workers.roster import SAVE
from dovetail.live.workers.worker_state import Worker
from dovetail.wire.agent import WorkerEnded, WorkerReport, WorkerState


def check_inventory(gang: Gang, node: int, rows: Iterable[WorkerState], now: float) -> None:
    """Compares a gang with what the inventory of a node lists of its job."""
    roster = gang.roster
    seen = set()
    for row in rows:
        seen.add(row.worker)
        # A worker that has ended may still be listed by an inventory that was under way.
        if row.worker not in roster.workers and row.worker not in roster.gone:
            _adopt(gang, row, node, now)
        if row.worker in roster.workers:
            _take_row(gang, roster.workers[row.worker], row, now)
        if row.exit_code is None:
            # Only a process that runs shows that its program has begun; an end may be of none.
            roster.begun.add(row.worker)
        else:
            end = WorkerEnded(
                row.job, row.worker, row.generation, row.exit_code, row.why, row.asked
            )
            gang.ended(node, end, now)
    for worker in [w for w in roster.workers.values() if w.node == node]:
        # The order of a worker that was never reported may not have arrived yet.
        if worker.worker not in seen and (worker.alive or worker.end_s <= now):
            _miss(gang, worker, now)


def confirms(gang: Gang, node: int, rows: Sequence[WorkerState], saved_step: int) -> bool:
    """Returns whether an inventory shows nothing but that the workers of a steady gang go on."""
    workers = gang.roster.workers
    if not gang.is_steady or len(rows) != sum(w.node == node for w in workers.values()):
        return False
    return all(
        (worker := workers.get(row.worker)) is not None
        and worker.node == node
        and _is_known(gang, worker, row, saved_step)
        for row in rows
    )


def _is_known(gang: Gang, worker: Worker, row: WorkerState, saved_step: int) -> bool:
    """Returns whether a running worker said nothing that its gang has not heard."""
    return (
        row.exit_code is None
        and worker.missing_s == NEVER_S
        and max(row.entered, row.ready) <= worker.entered
        and max(row.generation, worker.limits_generation) <= worker.limits_confirmed
        and row.worker in gang.roster.begun
        and row.left is None
        and row.finished is None
        and (row.saved is None or row.saved.step <= saved_step)
        and _is_heard(gang, worker, row)
    )


def _is_heard(gang: Gang, worker: Worker, row: WorkerState) -> bool:
    """Returns whether what a worker says of generations is known, but for its progress."""
    meetings = gang.meetings if isinstance(gang, ElasticGang) else {}
    return (
        (row.lost is None or row.lost.generation <= worker.lost)
        and (row.meeting is None or meetings.get(row.meeting.generation) == row.meeting.address)
        and (row.training in (None, worker.trained) or gang.trains_on(_training(row)))
    )


def take_training(gang: Gang, row: WorkerState, now: float) -> None:
    """Takes the progress of a worker, if it has not been reported before."""
    if row.training is not None and row.training != gang.roster.workers[row.worker].trained:
        gang.receive(_training(row), now)


def _training(row: WorkerState) -> WorkerReport:
    return WorkerReport(row.job, row.worker, training=row.training)


def _take_row(gang: Gang, worker: Worker, row: WorkerState, now: float) -> None:
    """Takes what a worker said last; most of it was reported before."""
    worker.missing_s = NEVER_S
    worker.limits_confirmed = max(worker.limits_confirmed, row.generation)
    worker.ready = max(worker.ready, row.ready)
    if max(row.ready, row.entered) >= 0:
        worker.note_message(now)
    lost = row.lost if row.lost is not None and row.lost.generation > worker.lost else None
    report = WorkerReport(
        row.job,
        row.worker,
        meeting=row.meeting,
        lost=lost,
        left=None if worker.left else row.left,
        training=row.training if row.training != worker.trained else None,
        saved=row.saved,
        finished=row.finished,
    )
    # Only new progress shows that the job is not stalled: the rest may be as old as its agent.
    gang.receive(report, now, fresh=report.training is not None)
    if isinstance(gang, ElasticGang):
        gang.enter(worker, row.entered)


def _adopt(gang: Gang, row: WorkerState, node: int, now: float) -> None:
    """Takes up a worker of an earlier controller, and ends one that must not run."""
    roster, bound = gang.roster, row.memory_bytes
    worker = Worker(row.worker, node, row.gpu, 1.0, bound, memory_sent=bound, since_s=now)
    worker.gpus = row.gpus
    worker.alive, worker.regroup_sent = True, row.entered
    roster.workers[row.worker] = worker
    if row.master and roster.is_wanted(row.worker):
        roster.master = RendezvousAddress(roster.generation, row.master)
    if row.worker in roster.outcasts:
        # Its job went on without it, from a state that it does not have.
        worker.end_by(now, 0.0, "its node was down")
    elif roster.is_leaving or roster.wanted is None:
        roster.is_leaving = True
        if row.entered >= 0 and roster.how == SAVE:
            worker.leave_s = now
            worker.end_by(now + roster.grace_s, roster.grace_s)
        else:
            worker.end_by(now, roster.grace_s)
    else:
        gang.adopt(worker, now)


def _miss(gang: Gang, worker: Worker, now: float) -> None:
    """Ends a worker that inventories in turn lack: one alone may be an old one."""
    roster = gang.roster
    resend_s = roster.rules.resend_s
    if worker.missing_s == NEVER_S:
        worker.missing_s = now
    elif worker.end_s > now and now - worker.missing_s >= resend_s:
        worker.end_by(now, 0.0, LOST_BY_NODE)
        worker.missing_s = NEVER_S
    elif roster.rules.lease_s(worker.node):
        # The order to end it, or even that to start it, may be late: its agent answers the former.
        return
    elif worker.end_s <= now and now - worker.missing_s >= 2 * resend_s:
        # Its agent had the order to end it and lists no such worker: the agent has forgotten it.
        end = WorkerEnded(roster.job, worker.worker, -1, -9, worker.why)
        gang.ended(worker.node, end, now)

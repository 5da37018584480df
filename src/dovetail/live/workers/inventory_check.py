"""How a gang learns from the inventories of agents what it may have missed.

An inventory repeats the whole state of a node. After a restart of the controller nothing else is
known: workers are adopted from inventories, and once all nodes have answered,
`find_missing_workers` decides about the workers that no inventory lists.
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.live.workers.gang import SAVE, Gang
from dovetail.live.workers.worker_state import NEVER, Target, Worker
from dovetail.wire.agent import WorkerEnded, WorkerReport, WorkerState


def check_inventory(gang: Gang, node: int, rows: Iterable[WorkerState], now: float) -> None:
    """Compares a gang with what the inventory of a node says of its job."""
    seen = set()
    for row in rows:
        seen.add(row.worker)
        if row.worker not in gang.workers and row.worker not in gang.gone:
            _adopt(gang, row, node, now)
        if row.worker in gang.workers:
            _hear_again(gang, gang.workers[row.worker], row, now)
        if row.exit_code is None:
            gang.begun.add(row.worker)
        else:
            said = WorkerEnded(
                row.job, row.worker, row.generation, row.exit_code, row.why, row.asked
            )
            gang.ended(node, said, now)
    for worker in [w for w in gang.workers.values() if w.node == node]:
        # One not heard of yet may simply not have been reached by its order.
        if worker.worker not in seen and (worker.alive or worker.end_s <= now):
            _miss(gang, worker, now)


def _hear_again(gang: Gang, worker: Worker, row: WorkerState, now: float) -> None:
    """Hears again what a worker said; most of it has been heard before."""
    worker.missing_s = NEVER
    worker.obeyed = max(worker.obeyed, row.generation)
    worker.ready = max(worker.ready, row.ready)
    if max(row.ready, row.entered) >= 0:
        worker.speak(now)
    lost = row.lost if row.lost is not None and row.lost.generation > worker.lost else None
    said = WorkerReport(
        row.job,
        row.worker,
        meeting=row.meeting,
        lost=lost,
        left=None if worker.left else row.left,
        training=row.training if row.training != worker.trained else None,
        saved=row.saved,
        finished=row.finished,
    )
    gang.heard(said, now, fresh=said.training is not None)
    gang.enter(worker, row.entered)


def _adopt(gang: Gang, row: WorkerState, node: int, now: float) -> None:
    """Takes up a worker of an earlier controller; nobody wants it unless the plan does."""
    bound = row.memory_bytes
    worker = Worker(row.worker, node, row.gpu, 1.0, bound, memory_told=bound, since_s=now)
    worker.gpus = row.gpus
    worker.alive, worker.told = True, row.entered
    gang.workers[row.worker] = worker
    if row.worker in gang.outcasts:
        worker.end_by(now, 0.0, "its node was down")
    elif gang.vacating or gang.wanted is None:
        gang.vacating = True
        if row.entered >= 0 and gang.how == SAVE:
            worker.leave_s = now
            worker.end_by(now + gang.grace_s, gang.grace_s)
        else:
            worker.end_by(now, gang.grace_s)
    elif not gang.elastic and row.worker not in gang.wanted.numbers:
        worker.end_by(now, gang.grace_s)


def _miss(gang: Gang, worker: Worker, now: float) -> None:
    """Ends a worker that inventories in turn lack: one alone may be an old one."""
    resend_s = gang.rules.resend_s
    if worker.missing_s == NEVER:
        worker.missing_s = now
    elif worker.end_s > now and now - worker.missing_s >= resend_s:
        worker.end_by(now, 0.0, "its agent does not know it any more")
        worker.missing_s = NEVER
    elif worker.end_s <= now and now - worker.missing_s >= 2 * resend_s:
        # It was told to end and is not even known as fenced: it ended, and was forgotten.
        gang.ended(worker.node, WorkerEnded(gang.job, worker.worker, -1, -9, worker.why), now)


def find_missing_workers(gang: Gang, now: float) -> tuple[int, ...]:
    """Returns the wanted workers that are not there: no inventory has them, nor ever will.

    Ranks of a plain gang that were never started are not among them: they are started now.
    """
    wanted, group = gang.wanted, gang.group
    if wanted is None or gang.vacating:
        return ()
    gang.wait_from(now)
    known = gang.workers.keys() | gang.complete | gang.gone
    absent = tuple(number for number in wanted.numbers if number not in known)
    if absent and _can_be_filled(gang):
        gang.target = Target(gang.generation, group, wanted.manner)
        return ()
    for number in absent:
        gang.trust.bury(number)
    entered = {w.worker for w in gang.workers.values() if w.entered == gang.generation}
    if group and not absent and (not gang.elastic or set(group) <= entered):
        gang.target = Target(gang.generation, group, wanted.manner)
        gang.check_formed()
    return absent


def _can_be_filled(gang: Gang) -> bool:
    """Tells whether the ranks that began wait for others whose start was lost with a controller.

    That is no more to them than an order that comes late, which any gang may see: they have the
    same generation and meet at the same place. Not so where all ran once, for then the others are
    lost, or where one that began ended badly.
    """
    wanted, group = gang.wanted, gang.group
    assert wanted is not None
    if gang.elastic or gang.formed == gang.generation or set(group) != set(wanted.numbers):
        return False
    began = gang.begun.intersection(group)
    return bool(began) and began <= gang.workers.keys() | gang.complete


def has_lost_run(gang: Gang) -> bool:
    """Tells whether a program that began is lost with workers that are not there."""
    if gang.wanted is None or gang.vacating or gang.is_finished:
        return False
    if not gang.elastic:
        told = set(gang.group) == set(gang.wanted.numbers)
        return gang.has_begun or (told and gang.formed == gang.generation)
    return gang.formed == gang.generation and not gang.workers

"""The messages of an elastic gang to its workers, by node: leave, abandon, regroup, meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dovetail.live.workers.elastic_gang import ElasticGang
from dovetail.live.workers.gang_events import NodeOrder
from dovetail.live.workers.worker_state import Worker
from dovetail.wire.agent import NotifyWorkers
from dovetail.wire.worker import Abandon, Checkpoint, Meet


def generation_orders(gang: ElasticGang, now: float) -> Iterator[NodeOrder]:
    """Yields what the workers of a gang must be sent now, and records it as sent."""
    workers = gang.roster.by_number()
    yield from _leave(gang, workers, now)
    yield from _abandon(gang, workers, now)
    yield from _regroup(gang, workers, now)
    yield from _meet(gang, workers, now)


def next_generation_resend_s(gang: ElasticGang, now: float) -> Iterator[float]:
    """Yields when messages must be sent again if nothing is reported until then."""
    resend, target = gang.roster.rules.resend_s, gang.roster.target
    for worker in gang.roster.workers.values():
        if worker.end_s > now:
            yield worker.leave_sent_s + resend
            if target is not None and worker.entered < target.generation:
                yield worker.regroup_sent_s + resend
                yield worker.meet_sent_s + resend
            if _to_abandon(gang, worker, now) >= 0:
                yield worker.abandon_sent_s + resend


def _leave(gang: ElasticGang, workers: list[Worker], now: float) -> Iterator[NodeOrder]:
    resend = gang.roster.rules.resend_s
    due = [w for w in workers if w.leave_s <= now < w.end_s and now >= w.leave_sent_s + resend]
    for worker in due:
        worker.leave_sent_s = now
    for node, numbers in _by_node(due):
        yield node, NotifyWorkers(gang.roster.job, numbers, checkpoint=Checkpoint(leave=True))


def _abandon(gang: ElasticGang, workers: list[Worker], now: float) -> Iterator[NodeOrder]:
    resend = gang.roster.rules.resend_s
    due: dict[int, list[Worker]] = {}
    for worker in workers:
        generation = _to_abandon(gang, worker, now)
        again = now >= worker.abandon_sent_s + resend or worker.abandon_sent < generation
        if generation >= 0 and worker.stays and again:
            worker.abandon_sent_s, worker.abandon_sent = now, generation
            due.setdefault(generation, []).append(worker)
    # Sorted, so that a run of the same events sends the same orders in the same sequence.
    for generation, receivers in sorted(due.items()):
        for node, numbers in _by_node(receivers):
            yield node, NotifyWorkers(gang.roster.job, numbers, abandon=Abandon(generation))


def _to_abandon(gang: ElasticGang, worker: Worker, now: float) -> int:
    """Returns the generation that a worker is to abandon, -1 if none."""
    if gang.roster.is_leaving:
        return -1
    # It may be preparing for the one it was sent last while it trains in an older one.
    for generation in (worker.regroup_sent, worker.entered):
        if gang.detector.must_abandon(generation, now):
            return generation
    return -1


def _regroup(gang: ElasticGang, workers: list[Worker], now: float) -> Iterator[NodeOrder]:
    """Sends the target to its members and to leavers.

    A worker that prepares for a later generation is not concerned: it would take an order without
    itself for its dismissal.
    """
    roster = gang.roster
    target, wanted = roster.target, roster.wanted
    if target is None or wanted is None:
        return
    due = []
    for worker in workers:
        concerned = worker.worker in target.members or worker.worker not in wanted.numbers
        again = worker.regroup_sent < target.generation or (
            worker.entered < target.generation
            and now >= worker.regroup_sent_s + roster.rules.resend_s
        )
        if worker.stays and concerned and again:
            worker.regroup_sent, worker.regroup_sent_s = target.generation, now
            due.append(worker)
    # The bound of memory may have changed since the generation began: the newest one counts.
    regroup = replace(target, memory_bytes=roster.bound)
    for node, numbers in _by_node(due):
        yield node, NotifyWorkers(roster.job, numbers, regroup=regroup)


def _meet(gang: ElasticGang, workers: list[Worker], now: float) -> Iterator[NodeOrder]:
    """Sends the address of the meeting to all members but the first, which hosts it."""
    roster, target = gang.roster, gang.roster.target
    address = gang.meetings.get(target.generation) if target is not None else None
    if target is None or address is None:
        return
    due = []
    for worker in workers:
        late = now >= worker.meet_sent_s + roster.rules.resend_s
        # A member that has entered has met the others, and needs no address any more.
        behind = worker.entered < target.generation and worker.stays
        again = worker.meet_sent < target.generation or late
        if worker.worker in target.members[1:] and behind and again:
            worker.meet_sent, worker.meet_sent_s = target.generation, now
            due.append(worker)
    for node, numbers in _by_node(due):
        yield node, NotifyWorkers(roster.job, numbers, meet=Meet(target.generation, address))


def _by_node(workers: list[Worker]) -> Iterator[tuple[int, tuple[int, ...]]]:
    for node in sorted({w.node for w in workers}):
        yield node, tuple(w.worker for w in workers if w.node == node)

"""What a gang must say at an instant: starts, ends and messages to its workers, by node.

What was said is remembered with the worker, and said again `resend_s` later unless its effect has
been seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dovetail.live.workers.gang import Gang
from dovetail.live.workers.worker_state import NEVER, Desired, Worker
from dovetail.wire.agent import EndWorker, Forget, InventoryRequest, NotifyWorkers, StartWorker
from dovetail.wire.worker import Abandon, Checkpoint, Meet, Regroup

NodeOrder = tuple[int, StartWorker | EndWorker | NotifyWorkers | Forget | InventoryRequest]
"""An order for the agent of a node."""


def due_orders(gang: Gang, now: float, *, settled: bool = True) -> list[NodeOrder]:
    """Returns what must be said now; it counts as said.

    Until all is `settled` after a restart, no agent forgets an end: no record tells of it yet.
    """
    said: list[NodeOrder] = []
    if settled:
        forgets, gang.forgets = gang.forgets, []
        said.extend((node, Forget(gang.job, number)) for node, number in forgets)
    workers = [gang.workers[number] for number in sorted(gang.workers)]
    for worker in workers:
        if worker.end_s <= now:
            said.extend(_end(gang, worker, now))
        elif worker.leave_s == NEVER:
            said.extend(_start(gang, worker, now))
    if gang.elastic:
        said.extend(_leave(gang, workers, now))
        said.extend(_abandon(gang, workers, now))
        said.extend(_regroup(gang, workers, now))
        said.extend(_meet(gang, workers, now))
    return said


def next_resend_s(gang: Gang, now: float) -> float:
    """Returns when something must be said (again) if nothing is heard until then."""
    resend = gang.rules.resend_s
    due: list[float] = []
    for worker in gang.workers.values():
        due.append(worker.end_s)
        if worker.end_s <= now:
            due.append(worker.end_told_s + resend)
        elif not worker.alive or worker.obeyed < worker.limited:
            due.append(worker.start_told_s + resend)
        if gang.elastic and worker.end_s > now:
            due.append(worker.leave_told_s + resend)
            if gang.target is not None and worker.entered < gang.target.generation:
                due.append(worker.told_s + resend)
                due.append(worker.met_s + resend)
            if _abandons(gang, worker, now) >= 0:
                due.append(worker.abandon_told_s + resend)
    return min((t for t in due if t > now), default=NEVER)


def _end(gang: Gang, worker: Worker, now: float) -> Iterator[NodeOrder]:
    if now < worker.end_told_s + gang.rules.resend_s and worker.end_told_s >= worker.end_s:
        return
    overdue = now >= worker.end_s + worker.grace_s + gang.rules.resend_s
    worker.end_told_s = now
    yield worker.node, EndWorker(gang.job, worker.worker, 0.0 if overdue else worker.grace_s)


def _start(gang: Gang, worker: Worker, now: float) -> Iterator[NodeOrder]:
    late = now >= worker.start_told_s + gang.rules.resend_s
    again = late and (not worker.alive or worker.obeyed < worker.limited)
    limits = worker.share, worker.memory_bytes
    if not again and limits == (worker.share_told, worker.memory_told):
        return
    worker.start_told_s, (worker.share_told, worker.memory_told) = now, limits
    yield worker.node, start_order(gang, worker)


def start_order(gang: Gang, worker: Worker) -> StartWorker:
    """Returns the order that starts a worker, with torchrun's words for a plain process."""
    launch = gang.launch
    wanted = gang.wanted
    # Of one that runs only the limits change: it goes by them from that generation on.
    anew = worker.alive and worker.limited >= 0
    generation = worker.limited if anew else gang.generation
    plain = StartWorker(
        gang.job,
        worker.worker,
        generation,
        worker.gpu,
        launch,
        share=worker.share,
        memory_bytes=worker.memory_bytes,
    )
    if wanted is None or worker.worker not in wanted.numbers:
        return plain
    numbers = wanted.numbers
    nodes = [wanted.seat(number).node for number in numbers]
    beside = [n for n, node in zip(numbers, nodes, strict=True) if node == worker.node]
    groups = list(dict.fromkeys(nodes))
    host = gang.rules.host(nodes[0])
    return replace(
        plain,
        rank=numbers.index(worker.worker),
        world_size=len(numbers),
        local_rank=beside.index(worker.worker),
        local_world_size=len(beside),
        master=f"{host}:{_port(gang.job, gang.generation)}",
        local_gpus=() if gang.elastic else _visible(wanted, worker),
        gpus=worker.gpus,
        group_rank=groups.index(worker.node),
        group_world_size=len(groups),
    )


def _visible(wanted: Desired, worker: Worker) -> tuple[int, ...]:
    """Returns the GPUs that a plain process sees.

    A task with one GPU sees those of all tasks on its node, so that number LOCAL_RANK is its own;
    a task with several sees those alone.
    """
    if len(wanted.numbers) < len(wanted.members):
        return worker.all_gpus
    return tuple(m.gpu for m in wanted.members if m.node == worker.node)


PORTS = (20_000, 10_000)
"""First and number of the ports at which plain gangs meet, below those Linux gives away."""


def _port(job: int, generation: int) -> int:
    # Neighbouring jobs and generations get ports far apart, so that none meets a lingering one.
    return PORTS[0] + (job * 37 + generation * 101) % PORTS[1]


def _by_node(
    workers: list[Worker],
) -> Iterator[tuple[int, tuple[int, ...]]]:
    for node in sorted({w.node for w in workers}):
        yield node, tuple(w.worker for w in workers if w.node == node)


def _leave(gang: Gang, workers: list[Worker], now: float) -> Iterator[NodeOrder]:
    resend = gang.rules.resend_s
    due = [w for w in workers if w.leave_s <= now < w.end_s and now >= w.leave_told_s + resend]
    for worker in due:
        worker.leave_told_s = now
    for node, numbers in _by_node(due):
        yield node, NotifyWorkers(gang.job, numbers, checkpoint=Checkpoint(leave=True))


def _abandon(gang: Gang, workers: list[Worker], now: float) -> Iterator[NodeOrder]:
    due: dict[int, list[Worker]] = {}
    for worker in workers:
        generation = _abandons(gang, worker, now)
        again = now >= worker.abandon_told_s + gang.rules.resend_s or worker.abandoned < generation
        if generation >= 0 and worker.stays and again:
            worker.abandon_told_s, worker.abandoned = now, generation
            due.setdefault(generation, []).append(worker)
    for generation, those in sorted(due.items()):
        for node, numbers in _by_node(those):
            yield node, NotifyWorkers(gang.job, numbers, abandon=Abandon(generation))


def _abandons(gang: Gang, worker: Worker, now: float) -> int:
    """Returns the generation that a worker is to abandon, -1 if none."""
    if gang.vacating:
        return -1
    for generation in (worker.told, worker.entered):
        if gang.trust.must_abandon(generation, now):
            return generation
    return -1


def _regroup(gang: Gang, workers: list[Worker], now: float) -> Iterator[NodeOrder]:
    """Tells the target to its members and leavers; who prepares for a later one need not know."""
    target, wanted = gang.target, gang.wanted
    if target is None or wanted is None:
        return
    due = []
    for worker in workers:
        concerned = worker.worker in target.members or worker.worker not in wanted.numbers
        again = worker.told < target.generation or (
            worker.entered < target.generation and now >= worker.told_s + gang.rules.resend_s
        )
        if worker.stays and concerned and again:
            worker.told, worker.told_s = target.generation, now
            due.append(worker)
    manner = target.manner
    regroup = Regroup(
        target.generation,
        target.members,
        manner.steps,
        manner.samples,
        manner.batch_size,
        manner.seat,
        gang.bound,
    )
    for node, numbers in _by_node(due):
        yield node, NotifyWorkers(gang.job, numbers, regroup=regroup)


def _meet(gang: Gang, workers: list[Worker], now: float) -> Iterator[NodeOrder]:
    target = gang.target
    address = gang.meetings.get(target.generation) if target is not None else None
    if target is None or address is None:
        return
    due = []
    for worker in workers:
        again = worker.met < target.generation or now >= worker.met_s + gang.rules.resend_s
        behind = worker.entered < target.generation and worker.stays
        if worker.worker in target.members[1:] and behind and again:
            worker.met, worker.met_s = target.generation, now
            due.append(worker)
    for node, numbers in _by_node(due):
        yield node, NotifyWorkers(gang.job, numbers, meet=Meet(target.generation, address))

"""The orders that a gang has for agents at an instant: starts, ends, messages to its workers.

What was sent is remembered with the worker, and sent again `resend_s` later unless its effect has
been seen.
"""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.core.replacing import replace
from dovetail.core.units import NEVER_S
from dovetail.live.workers.elastic_gang import ElasticGang
from dovetail.live.workers.gang import Gang
from dovetail.live.workers.gang_events import NodeOrder
from dovetail.live.workers.generation_orders import generation_orders, next_generation_resend_s
from dovetail.live.workers.roster import Roster
from dovetail.live.workers.worker_state import Desired, Worker
from dovetail.wire.agent import EndWorker, Forget, StartWorker

GUESSED_PORTS = (20_000, 10_000)
"""First and number of the ports at which programs on agents of the version before meet."""


def due_orders(gang: Gang, now: float, *, settled: bool = True) -> list[NodeOrder]:
    """Returns what must be sent now, and records it as sent.

    Until all is `settled` after a restart, no agent forgets an end: no record has it yet.
    """
    roster = gang.roster
    orders: list[NodeOrder] = []
    if settled:
        # Sent once: an end that its agent still reports puts the order into the list again.
        forgets, roster.forgets = roster.forgets, []
        orders.extend((node, Forget(roster.job, number)) for node, number in forgets)
    if awaits_master(roster):
        orders.extend(_find_port(roster, now))
    waits = awaits_master(roster)
    for worker in roster.by_number():
        if worker.end_s <= now:
            orders.extend(_end(roster, worker, now))
        elif worker.leave_s == NEVER_S and not waits:
            orders.extend(_start(roster, worker, now))
    if isinstance(gang, ElasticGang):
        orders.extend(generation_orders(gang, now))
    return orders


def next_resend_s(gang: Gang, now: float) -> float:
    """Returns when an order must be sent (again) if nothing is reported until then."""
    resend = gang.roster.rules.resend_s
    due: list[float] = []
    if awaits_master(gang.roster):
        due.append(gang.roster.master.sent_s + resend)
    for worker in gang.roster.workers.values():
        due.append(worker.end_s)
        if worker.end_s <= now:
            due.append(worker.end_sent_s + resend)
        elif not worker.alive or worker.limits_confirmed < worker.limits_generation:
            due.append(worker.start_sent_s + resend)
    if isinstance(gang, ElasticGang):
        due.extend(next_generation_resend_s(gang, now))
    return min((t for t in due if t > now), default=NEVER_S)


def awaits_master(roster: Roster) -> bool:
    """Returns whether processes must not start yet: it is not known where they will meet."""
    distributed = roster.launch.distributed and not roster.launch.trains
    if not distributed or roster.wanted is None or roster.master.address:
        return False
    return any(not w.alive and w.end_s == NEVER_S for w in roster.workers.values())


def _find_port(roster: Roster, now: float) -> Iterator[NodeOrder]:
    wanted, master = roster.wanted, roster.master
    if wanted is None or now < master.sent_s + roster.rules.resend_s:
        return
    if master.generation < 0:
        # An earlier controller had begun to start them, and none of them runs.
        master.generation = roster.generation
    first = wanted.member(wanted.numbers[0]).node
    if roster.hosts.finds_ports(first):
        yield first, master.ask(roster.job, now)
    else:
        # An agent of the version before, which would never answer. Its controllers guessed.
        number = (roster.job * 37 + master.generation * 101) % GUESSED_PORTS[1]
        master.address = f"127.0.0.1:{GUESSED_PORTS[0] + number}"


def _end(roster: Roster, worker: Worker, now: float) -> Iterator[NodeOrder]:
    if now < worker.end_sent_s + roster.rules.resend_s and worker.end_sent_s >= worker.end_s:
        return
    # An agent that still has the worker after its grace may have missed the first order.
    overdue = now >= worker.end_s + worker.grace_s + roster.rules.resend_s
    worker.end_sent_s = now
    yield worker.node, EndWorker(roster.job, worker.worker, 0.0 if overdue else worker.grace_s)


def _start(roster: Roster, worker: Worker, now: float) -> Iterator[NodeOrder]:
    late = now >= worker.start_sent_s + roster.rules.resend_s
    again = late and (not worker.alive or worker.limits_confirmed < worker.limits_generation)
    limits = worker.share, worker.memory_bytes
    if not again and limits == (worker.share_sent, worker.memory_sent):
        return
    worker.start_sent_s, (worker.share_sent, worker.memory_sent) = now, limits
    yield worker.node, start_order(roster, worker)


def start_order(roster: Roster, worker: Worker) -> StartWorker:
    """Returns the order that starts a worker, with torchrun's variables for a plain process."""
    wanted = roster.wanted
    # For a running worker only the limits change, and they count from their own generation on.
    running = worker.alive and worker.limits_generation >= 0
    order = replace(
        roster.launch,
        worker=worker.worker,
        generation=worker.limits_generation if running else roster.generation,
        gpu=worker.gpu,
        share=worker.share,
        memory_bytes=worker.memory_bytes,
        begun=worker.alive,
    )
    if order.ships and order.trains:
        # With nobody to take the state from it reads the newest checkpoint.
        alone = not any(w.entered >= 0 for w in roster.workers.values())
        order = replace(order, from_checkpoint=alone)
    if wanted is None or worker.worker not in wanted.numbers:
        return order
    numbers = wanted.numbers
    nodes = [wanted.member(number).node for number in numbers]
    beside = [n for n, node in zip(numbers, nodes, strict=True) if node == worker.node]
    groups = list(dict.fromkeys(nodes))
    slurm = roster.launch.slurm_variables
    return replace(
        order,
        nodes=tuple(roster.hosts.name(node) for node in groups) if slurm else (),
        tasks_on_nodes=tuple(nodes.count(node) for node in groups) if slurm else (),
        rank=numbers.index(worker.worker),
        world_size=len(numbers),
        local_rank=beside.index(worker.worker),
        local_world_size=len(beside),
        master=roster.master.address,
        local_gpus=() if roster.launch.trains else _visible(wanted, worker),
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

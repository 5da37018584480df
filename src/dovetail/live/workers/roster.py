"""The workers of one job by number, and the generation that they are to form.

What plain and elastic gangs have in common: the state that both keep, and the changes to it that
do not depend on whether the workers speak `wire.worker`. It decides nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dovetail.core.units import LONG_AGO_S
from dovetail.live.node.launcher import LEFT, was_executed
from dovetail.live.workers.first_worker import FirstWorker
from dovetail.live.workers.gang_events import GangEvent, GangFormed, GangVacated
from dovetail.live.workers.node_addresses import NodeAddresses
from dovetail.live.workers.rendezvous_address import RendezvousAddress
from dovetail.live.workers.rules import Rules
from dovetail.live.workers.worker_state import Desired, Worker
from dovetail.wire.agent import StartWorker, WorkerEnded, looser_bound
from dovetail.wire.worker import Finished, Regroup

IsFree = Callable[[int, int], bool]
"""True if a (node, GPU) has only workers of this job and of the jobs it is to share with."""
HasRoom = Callable[[int, int, int], bool]
"""True if a worker on a (node, GPU) may hold so many bytes beside the workers of other jobs."""

UNREPORTED = Finished(-1, -1)
"""The end of a job whose workers reported neither steps nor samples."""
SAVE, END, WAIT = "save", "end", "wait"
"""How a gang leaves: it saves its state and ends; it is ended; it gets time to end by itself."""


class Roster:
    """The workers of one job, what the plan wants of them, and what is known of the ended ones.

    `group` are the members of the newest generation, and `formed` the last generation that all its
    members entered. Numbers in `complete` ended well, those in `gone` ended, those in `outcasts`
    were on a node that is down, and the program of those in `begun` ran for some time. `bound` is
    the memory that each worker may hold of its GPU (0: no bound). A gang `is_stuck` while it waits
    for GPUs that other gangs hold. `master` is where the processes of a plain program meet.
    """

    def __init__(
        self,
        launch: StartWorker,
        rules: Rules,
        *,
        generation: int = 0,
        first: FirstWorker | None = None,
        hosts: NodeAddresses | None = None,
    ) -> None:
        self.job = launch.job
        self.launch = launch
        self.rules = rules
        self.hosts = hosts or NodeAddresses()
        self.master = RendezvousAddress()
        self.first = first or FirstWorker()
        self.workers: dict[int, Worker] = {}
        self.generation = generation
        self.group: tuple[int, ...] = ()
        self.formed = -1
        self.wanted: Desired | None = None
        self.target: Regroup | None = None
        self.complete: set[int] = set()
        self.gone: set[int] = set()
        self.begun: set[int] = set()
        self.outcasts: set[int] = set()
        self.forgets: list[tuple[int, int]] = []
        self.bound = 0
        self.is_leaving = self.is_finished = self.is_stuck = False
        self.how, self.grace_s = SAVE, launch.grace_s
        self.heard_s = self.formed_s = 0.0
        self.events: list[GangEvent] = []

    # What is known.

    def by_number(self) -> list[Worker]:
        """Returns the workers in the order of their numbers."""
        return [self.workers[n] for n in sorted(self.workers)]

    def is_wanted(self, number: int) -> bool:
        """Returns whether the plan wants the worker of this number."""
        return self.wanted is not None and number in self.wanted.numbers

    @property
    def has_begun(self) -> bool:
        """Returns whether the program of a wanted worker is known to have begun."""
        return self.wanted is not None and not self.begun.isdisjoint(self.wanted.numbers)

    @property
    def awaits_memory(self) -> bool:
        """Returns whether other jobs must release GPU memory before it may hold its full share."""
        return self.wanted is not None and self.bound != self.wanted.memory_bytes

    def take_events(self) -> Sequence[GangEvent]:
        """Returns and clears what happened since the last call."""
        events, self.events = self.events, []
        return events

    def end_outdated(self, now: float) -> None:
        """Ends workers that would read an older checkpoint than there is, where none trains.

        Where checkpoints travel, each has what was newest at its start: it was to take the state
        over from others, and those are gone.
        """
        if self.launch.ships:
            for worker in self.workers.values():
                if worker.stays and worker.saved_step < self.launch.saved_step:
                    worker.end_by(now, self.launch.grace_s)

    # Workers that start.

    def start_workers(self, wanted: Desired, numbers: Sequence[int], now: float) -> None:
        """Adds the workers of these numbers; their agents are ordered to start them."""
        for number in numbers:
            member, gpus = wanted.member(number), wanted.gpus(number)
            worker = Worker(number, member.node, member.gpu, wanted.share(number), self.bound)
            worker.since_s, worker.gpus = now, gpus if len(gpus) > 1 else ()
            worker.saved_step = self.launch.saved_step
            self.workers[number] = worker
        if numbers:
            self.heard_s = now

    def started(self, number: int, generation: int, now: float) -> bool:
        """Records that a worker runs under the limits of a generation; False if it is unknown."""
        worker = self.workers.get(number)
        # The report of a start may come after that of the end, or for a limit that changed.
        if worker is not None:
            worker.limits_confirmed = max(worker.limits_confirmed, generation)
            self.begun.add(number)
        if worker is not None and not worker.alive:
            # Patience counts from here: its order may have waited at its agent.
            worker.alive = True
            worker.since_s = self.heard_s = now
        return worker is not None or number in self.gone

    # Generations and limits.

    def begin_generation(self, regroup: Regroup) -> None:
        """Begins the next generation as this order describes it, whatever its number."""
        self.generation += 1
        self.target = replace(regroup, generation=self.generation)
        self.group = regroup.members
        for worker in self.workers.values():
            worker.set_memory_limit(self.bound, self.generation)

    def form(self, generation: int) -> None:
        """Records that all members of a generation are there."""
        self.formed = generation
        self.formed_s = self.heard_s
        self.events.append(GangFormed(generation))

    def update_bound(self, wanted_bytes: int, has_room: HasRoom) -> None:
        """Lowers the memory bound at once; raises it when other jobs have released the memory."""
        workers = self.workers.values()
        # Bounds on one GPU must never add up to more than it has, in whatever order messages
        # arrive. A worker that may hold more waits until the agents of the others confirm less.
        raised = [
            w for w in workers if looser_bound(wanted_bytes, w.memory_bytes) != w.memory_bytes
        ]
        if all(has_room(w.node, gpu, wanted_bytes) for w in raised for gpu in w.all_gpus):
            self.bound = wanted_bytes
        else:
            self.bound = min(w.memory_bytes for w in workers if w.memory_bytes)

    def update_shares(self, wanted: Desired) -> bool:
        """Sets the shares of the workers; True if a started worker must learn a new limit."""
        for number in wanted.numbers:
            if number in self.workers:
                self.workers[number].share = wanted.share(number)
        started = [w for w in self.workers.values() if w.start_sent_s > LONG_AGO_S]
        bounded = all(w.memory_bytes == self.bound for w in self.workers.values())
        return not bounded or any(w.share != w.share_sent for w in started)

    # Workers that leave and end.

    def leave(self, now: float, grace_s: float, how: str) -> None:
        """Makes all workers leave; what is wanted is started anew when the last one is gone."""
        self.is_leaving = True
        self.how, self.grace_s = how, grace_s
        self.target = None
        for worker in self.workers.values():
            if how == SAVE and worker.entered >= 0:
                worker.leave_s = min(worker.leave_s, now)
                worker.end_by(now + grace_s, grace_s)
            elif how == WAIT:
                worker.end_by(now + grace_s, grace_s)
            else:
                # A worker that has not trained has nothing to save.
                worker.end_by(now, grace_s)

    def vacate(self, now: float, grace_s: float, how: str) -> None:
        """Makes all workers leave for good: the plan wants none any more."""
        self.wanted = None
        self.leave(now, grace_s, how)

    def give_way(self, now: float) -> None:
        """Makes all workers leave; the gang starts anew when the last one is gone.

        The wanted workers must have new numbers by then: an agent starts no number twice.
        """
        self.is_stuck = False
        self.leave(now, self.launch.grace_s, SAVE)

    def remove(self, end: WorkerEnded) -> Worker | None:
        """Removes a worker that ended; returns what was known of it."""
        # Remembered after the worker is dropped: a late inventory must not adopt it again.
        self.gone.add(end.worker)
        if was_executed(end.exit_code, end.why):
            self.begun.add(end.worker)
        return self.workers.pop(end.worker, None)

    def record_end(self, worker: Worker, end: WorkerEnded) -> bool:
        """Records the end of a worker that was not to leave; True if it broke its generation."""
        wanted = self.is_wanted(end.worker)
        # The reason to end it is the cause; how the process ended then matters little.
        why = worker.why or end.why or (LEFT if worker.left and wanted else "")
        if wanted and end.exit_code == 0 and not why:
            self.complete.add(end.worker)
            return False
        if wanted:
            self.events.append(replace(end, why=why))
        return wanted or (end.exit_code != 0 and not worker.left)

    def release_end(self, node: int, number: int) -> None:
        """Releases the agent from keeping an end, unless that is the only record of finished work.

        The ranks of a plain gang exit one by one. Until the last one has, a controller that
        restarts learns only from the agents that the others are done.
        """
        if number not in self.complete or self.is_finished or self.is_leaving:
            self.forgets.append((node, number))

    def finish(self, finished: Finished = UNREPORTED) -> None:
        """Records, once, that the job is done."""
        if not self.is_finished:
            self.is_finished = True
            self.events.append(finished)

    def lose(self, node: int) -> list[int]:
        """Removes the workers on a node that is down; returns their numbers."""
        lost = [w.worker for w in self.workers.values() if w.node == node]
        for number in lost:
            # It may still train where the network is cut. An inventory that shows it ends it.
            del self.workers[number]
            self.outcasts.add(number)
        return lost

    def outcast_unseen(self, node: int) -> list[int]:
        """Gives up the wanted workers of a node without an inventory; returns their numbers."""
        wanted = self.wanted.members if self.wanted is not None else ()
        unseen = [m.worker for m in wanted if m.node == node and m.worker not in self.workers]
        self.outcasts.update(unseen)
        return unseen

    def clear(self) -> None:
        """Begins anew once the last worker is gone."""
        self.is_leaving = self.is_finished = False
        self.target = None
        self.group = ()
        self.complete.clear()
        self.events.append(GangVacated())

    # After a restart of the controller.

    def restore(self, desired: Desired | None, group: tuple[int, ...], *, ran: bool) -> None:
        """Takes up what an earlier controller wanted, and the members of its newest generation.

        `ran` if all its workers once ran.
        """
        self.wanted = desired
        self.is_leaving = desired is None
        self.group = group
        if ran:
            self.formed = self.generation

    def absent(self, wanted: Desired) -> tuple[int, ...]:
        """Returns the wanted workers that no agent reported, neither alive nor ended."""
        known = self.workers.keys() | self.complete | self.gone
        return tuple(number for number in wanted.numbers if number not in known)

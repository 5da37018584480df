"""The agent of one node: obeys the newest controller, starts and ends workers, reports on them.

It knows no sockets, no clock and no disk. Orders, messages of workers and the present time come
in; reports come out; a `Launcher` does the rest. Messages may be lost, repeated or reordered, so
every order is idempotent, and whatever a controller may have missed is reported again: an end
until the controller says `forget`, everything else in the inventory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from secrets import token_hex
from signal import SIGKILL, SIGTERM

from dovetail.core.units import NEVER_S
from dovetail.live.node.agent_worker import AgentWorker
from dovetail.live.node.fence import Fence
from dovetail.live.node.launcher import (
    LOST_BY_NODE,
    NEVER_STARTED,
    NOT_NOW,
    AdoptedWorker,
    DiskFull,
    Launcher,
    LaunchError,
    StartDeferred,
    WorkerExit,
)
from dovetail.live.node.lease import Lease
from dovetail.live.node.missed_messages import missed
from dovetail.live.node.rendezvous_addresses import RendezvousAddresses
from dovetail.wire.agent import (
    REPORTED_IN,
    AgentOrder,
    AgentReport,
    EndWorker,
    Forget,
    Heartbeat,
    Inventory,
    NotifyWorkers,
    StartWorker,
    WorkerDeferred,
    WorkerEnded,
    WorkerReport,
    WorkerStarted,
    WorkerState,
    looser_bound,
)
from dovetail.wire.worker import (
    Abandon,
    Checkpoint,
    Entered,
    Finished,
    FromWorker,
    Hello,
    Lost,
    Meet,
    Meeting,
    Ready,
    Regroup,
    Saved,
    ToWorker,
    Training,
    WorkerLeft,
)

REPEAT_S = 2.0
"""How often an end is reported until it is forgotten, in seconds of the machine."""
KILL_AGAIN_S = 1.0
"""How often SIGKILL is repeated: a process that waits for a device may outlive the first."""
START_AGAIN_S = 0.25
"""How often a deferred start is tried again."""
KEPT = (Entered, WorkerLeft, Saved, Finished)
"""Messages that a later agent must find, or it would take an end for another: kept on disk."""


class Agent:
    """The agent of one node, as a function of what comes in.

    Times are those of the cluster, of which `speed` seconds pass in one second of the machine.
    Repeats are timed in seconds of the machine: they cost it the same at any speed.

    With a `lease` workers start and run only while it holds; without one no silence ends them.
    `ports` has the node's address.
    """

    def __init__(
        self,
        node: int,
        gpus: Sequence[str],
        launcher: Launcher,
        *,
        fence: Fence | None = None,
        lease: Lease | None = None,
        ports: RendezvousAddresses | None = None,
        incarnation: str = "",
        token: Callable[[], str] = lambda: token_hex(16),
        speed: float = 1.0,
    ) -> None:
        self.node = node
        self.fence = fence or Fence()
        self.lease = lease
        self._ports = ports or RendezvousAddresses()
        self._gpus = tuple(gpus)
        self._launcher = launcher
        self._incarnation = incarnation or token_hex(4)
        self._token = token
        self._repeat_s, self._kill_again_s = REPEAT_S * speed, KILL_AGAIN_S * speed
        self._workers: dict[tuple[int, int], AgentWorker] = {}
        # Deferred starts, each with its newest order, and when they are tried again.
        self._deferred: dict[tuple[int, int], StartWorker] = {}
        self._start_again_s, self._try_s = START_AGAIN_S * speed, NEVER_S
        for adopted in launcher.adopt():
            self._adopt(adopted)

    def _adopt(self, adopted: AdoptedWorker) -> None:
        order = adopted.order
        # Whether an earlier agent asked it to end is not known. Assume it did: exit code 0 after
        # a request to end does not prove that the program had finished.
        worker = AgentWorker(order, adopted.token, adopted.started_s, end=adopted.exit, asked=True)
        worker.limited, worker.memory_bytes = order.generation, order.memory_bytes
        worker.may_know = True
        for message in adopted.said:
            worker.hear(message)
        if adopted.exit is not None:
            # No report of it may have arrived: it is due at the first tick.
            worker.repeat_s = -NEVER_S
        self.fence.accept_generation(order.job, order.generation)
        self._workers[order.job, order.worker] = worker

    # What comes in.

    def handle(self, order: AgentOrder, now: float) -> list[AgentReport]:
        """Carries out an order, unless a newer controller has sent one."""
        before = self.fence.epoch
        if not self.fence.accept_epoch(order.epoch):
            return []
        if order.epoch > before:
            # The inventory does not list deferred starts, so a new controller would not know of
            # them, and might start the same job elsewhere while an old order still fires here.
            self._deferred.clear()
        if order.renew is not None and self.lease is not None:
            self.lease.renew(order.renew, self._incarnation, now)
        if order.hail is not None:
            if self.fence.void(order.hail.void_before):
                # Its inventory does not list them either: they were ordered before it was lost.
                self._deferred.clear()
            return [AgentReport(self.node, inventory=self.inventory(order.hail.serial))]
        if order.start is not None:
            may_start = self.lease is None or self.lease.may_start(self._incarnation, now)
            if may_start and not self.fence.is_void(order.serial):
                return self._start(order.start, now)
        if order.end is not None:
            return self._end(order.end, now)
        if order.tell is not None:
            return self._notify(order.tell)
        if order.forget is not None:
            self._forget(order.forget)
        if order.port is not None and self.fence.accept_generation(
            order.port.job, order.port.generation
        ):
            return [AgentReport(self.node, port=self._ports.find(order.port))]
        return []

    def admits(self, job: int, worker: int, token: str) -> bool:
        """True if a connection that claims to be this worker has its secret."""
        known = self._workers.get((job, worker))
        return known is not None and known.alive and known.token == token

    def receive(self, job: int, worker: int, message: FromWorker, now: float) -> list[AgentReport]:
        """Handles a message of a worker; `Hello` means that it is connected from now on."""
        known = self._workers.get((job, worker))
        if known is None:
            return []
        if isinstance(message, Hello):
            known.entered = max(known.entered, message.generation)
            known.listens = True
            self._resend(known, message.generation)
            return self._limit_at_last(known)
        known.hear(message)
        # Stored before it is reported: a controller must not build on what a later agent lacks.
        if isinstance(message, KEPT):
            self._launcher.store(job, worker, message)
        return [self._report(job, worker, message), *self._limit_at_last(known)]

    def disconnected(self, job: int, worker: int) -> None:
        """Notes that a worker is disconnected; it may connect again."""
        known = self._workers.get((job, worker))
        if known is not None:
            known.listens = False

    def tick(self, now: float) -> list[AgentReport]:
        """Polls for ends, kills workers past their grace period, and repeats reports of ends."""
        self._end_over_lease(now)
        reports = self._poll(now)
        for (job, number), worker in self._workers.items():
            if worker.alive and worker.kill_s <= now:
                # It stays alive here until the launcher reports its end: its GPU is not free yet.
                self._launcher.signal(job, number, SIGKILL)
                worker.kill_s = now + self._kill_again_s
            elif not worker.alive and worker.repeat_s <= now:
                worker.repeat_s = now + self._repeat_s
                reports.append(self._report_end(worker))
        if self._try_s <= now:
            reports += self._start_deferred(now)
        return reports

    def _poll(self, now: float) -> list[AgentReport]:
        return [report for end in self._launcher.poll() for report in self._ended(end, now)]

    def end_all(self, grace_s: float, now: float) -> list[AgentReport]:
        """Ends every worker: the cluster is shut down, or its folder is gone."""
        self._deferred.clear()
        ends = [EndWorker(job, worker, grace_s) for job, worker in self.alive]
        return [report for end in ends for report in self._end(end, now)]

    def next_due(self) -> float:
        """Returns when `tick` must be called next if nothing comes in."""
        due_s = min((min(w.kill_s, w.repeat_s) for w in self._workers.values()), default=NEVER_S)
        return min(due_s, self._try_s, NEVER_S if self.lease is None else self.lease.due_s)

    def heartbeat(self, now: float) -> AgentReport:
        """Returns the sign of life that the controller answers if this node has a lease."""
        stamp = () if self.lease is None else (self._incarnation, now)
        return AgentReport(self.node, alive=Heartbeat(self.node, *stamp))

    def _end_over_lease(self, now: float) -> None:
        """Ends all workers once the lease is over: elsewhere they may be started anew soon."""
        lease = self.lease
        if lease is None or not lease.ends(now):
            return
        self._deferred.clear()
        saving: set[int] = set()
        for job, number in self.alive:
            worker = self._workers[job, number]
            worker.why = f"no controller was heard for {lease.length_s:g} s"
            if worker.entered >= 0 and worker.listens and job not in saving:
                # One of a job here saves and leaves, without others that may be out of reach.
                saving.add(job)
                worker.asked, worker.kill_s = True, min(worker.kill_s, now + lease.grace_s)
                self._notify_one(worker, Abandon(worker.entered))
                self._notify_one(worker, Checkpoint(leave=True))
                continue
            self._end(EndWorker(job, number, min(worker.order.grace_s, lease.grace_s)), now)

    # What is there.

    def inventory(self, serial: int = 0) -> Inventory:
        """Returns all workers, ended ones included until they are forgotten."""
        states = tuple(_state(w) for _, w in sorted(self._workers.items()))
        name, epoch = self._incarnation, self.fence.epoch
        host = self._ports.host
        return Inventory(self.node, name, self._gpus, states, epoch, serial, host)

    @property
    def alive(self) -> tuple[tuple[int, int], ...]:
        """Returns (job, number) of every worker that has not ended."""
        return tuple(key for key, w in sorted(self._workers.items()) if w.alive)

    # Orders.

    def _start(self, order: StartWorker, now: float) -> list[AgentReport]:
        key = order.job, order.worker
        # Checked first, also for a known worker: each order shows what the newest generation is.
        is_current = self.fence.accept_generation(order.job, order.generation)
        known = self._workers.get(key)
        if known is not None:
            return self._start_again(known, order)
        if not is_current or self.fence.is_used_up(*key):
            return []
        if order.begun:
            # To start it again would join a new process to ranks that wait for the lost one.
            return self._end_without_process(*key, LOST_BY_NODE, now, asked=False)
        worker = self._workers[key] = AgentWorker(order, self._token(), now)
        worker.limited, worker.memory_bytes = order.generation, order.memory_bytes
        try:
            for gpu in order.all_gpus:
                if not 0 <= gpu < len(self._gpus):
                    raise LaunchError(f"node {self.node} has no GPU {gpu}", NOT_NOW)
            self._launcher.start(order, worker.token, now)
        except LaunchError as error:
            return self._ended(WorkerExit(*key, error.exit_code, str(error)), now)
        except StartDeferred as wait:
            # It stays unknown until it runs, so that an order to end it meanwhile takes the path
            # for unknown workers and fences the number: the start can then never happen.
            del self._workers[key]
            self._deferred[key] = order
            self._try_s = now + self._start_again_s
            return [AgentReport(self.node, deferred=WorkerDeferred(*key, str(wait)))]
        except DiskFull:
            # Treated as a lost order: the controller repeats it until the worker is there.
            del self._workers[key]
            return []
        return [self._report_start(worker)]

    def _start_deferred(self, now: float) -> list[AgentReport]:
        """Retries deferred starts. Those still deferred were reported before, and are not again."""
        deferred, self._deferred, self._try_s = self._deferred, {}, NEVER_S
        reports = [r for order in deferred.values() for r in self._start(order, now)]
        return [r for r in reports if r.deferred is None]

    def _start_again(self, known: AgentWorker, order: StartWorker) -> list[AgentReport]:
        if not known.alive:
            return [self._report_end(known)]
        if order.generation > known.order.generation:
            known.order = order
            self._limit(known)
        return [self._report_start(known)]

    def _limit(self, worker: AgentWorker) -> None:
        """Applies the limits of a worker's newest order.

        A worker that trains keeps the looser bound until it enters the new generation: it may
        need what it has now to get there, and only the new generation cuts its batch smaller.
        """
        order = worker.order
        if order.trains and worker.entered < order.generation and worker.may_know:
            worker.memory_bytes = looser_bound(worker.memory_bytes, order.memory_bytes)
            order = replace(order, generation=worker.limited, memory_bytes=worker.memory_bytes)
        else:
            worker.limited, worker.memory_bytes = order.generation, order.memory_bytes
        self._launcher.limit(order)

    def _limit_at_last(self, worker: AgentWorker) -> list[AgentReport]:
        """Applies limits that waited for the worker to enter their generation."""
        if worker.limited < worker.order.generation <= worker.entered:
            self._limit(worker)
            return [self._report_start(worker)]
        return []

    def _end(self, order: EndWorker, now: float) -> list[AgentReport]:
        key = order.job, order.worker
        known = self._workers.get(key)
        if known is None:
            return self._end_unknown(order, now)
        if not known.alive:
            return [self._report_end(known)]
        # What has ended by itself by now has not ended because of this order.
        reports = self._poll(now)
        if not known.alive:
            return reports
        if order.grace_s <= 0:
            # Repeated by `tick`: a process that waits for a device outlives the first SIGKILL.
            known.asked, known.kill_s = True, now + self._kill_again_s
            self._launcher.signal(*key, SIGKILL)
            return reports
        was_asked = known.kill_s < NEVER_S
        known.asked, known.kill_s = True, min(known.kill_s, now + order.grace_s)
        # A repeated order must not interrupt a program that saves its state after the first.
        if not was_asked:
            self._launcher.signal(*key, SIGTERM)
        return reports

    def _end_unknown(self, order: EndWorker, now: float) -> list[AgentReport]:
        """Fences an unknown number and reports its end: its start may still be on the way."""
        if self.fence.is_used_up(order.job, order.worker):
            # Said again, as no inventory can prove it: a start may always be later than that.
            return [AgentReport(self.node, ended=_forgotten(order))]
        self._deferred.pop((order.job, order.worker), None)
        return self._end_without_process(order.job, order.worker, NEVER_STARTED, now, asked=True)

    def _end_without_process(
        self, job: int, worker: int, why: str, now: float, *, asked: bool
    ) -> list[AgentReport]:
        """Records and reports the end of a worker that has no process here."""
        nothing = StartWorker(job, worker, -1, -1, (), "", "", "")
        self._workers[job, worker] = AgentWorker(nothing, "", now, asked=asked)
        return self._ended(WorkerExit(job, worker, -SIGKILL, why), now)

    def _notify(self, order: NotifyWorkers) -> list[AgentReport]:
        message = order.regroup or order.meet or order.abandon or order.checkpoint
        if message is None:
            return []
        if isinstance(message, Regroup | Meet) and not self.fence.accept_generation(
            order.job, message.generation
        ):
            return []
        reports = []
        for number in order.workers:
            worker = self._workers.get((order.job, number))
            if worker is not None and worker.alive:
                reports += self._notify_one(worker, message)
        return reports

    def _notify_one(self, worker: AgentWorker, message: ToWorker) -> list[AgentReport]:
        before = worker.last_to.get(type(message))
        worker.last_to[type(message)] = message
        key = worker.order.job, worker.order.worker
        if isinstance(message, Regroup) and before != message:
            # The address of an older generation: its members may not exist any more.
            worker.last_to.pop(Meet, None)
            checkpoint = worker.last_to.get(Checkpoint)
            if isinstance(checkpoint, Checkpoint) and checkpoint.leave:
                # The plan has it again: it must not leave after its checkpoint.
                del worker.last_to[Checkpoint]
        if worker.listens:
            worker.may_know = True
            self._launcher.send(*key, message)
        if isinstance(message, Regroup) and before == message:
            return self._reports_of(worker, message.generation)
        return []

    def _resend(self, worker: AgentWorker, generation: int) -> None:
        """Repeats to a worker that has connected what it may have missed."""
        for message in missed(worker.last_to.values(), generation, worker.limited):
            worker.may_know = True
            self._launcher.send(worker.order.job, worker.order.worker, message)

    def _forget(self, order: Forget) -> None:
        known = self._workers.get((order.job, order.worker))
        if known is None or known.alive:
            return
        # The number is fenced before the worker is dropped: a late order would start it again.
        self.fence.use_up(order.job, order.worker)
        del self._workers[order.job, order.worker]
        self._launcher.forget(order.job, order.worker)
        if not any(job == order.job for job, _ in self._workers):
            self.fence.retire(order.job)
            self.fence.trim(sorted({job for job, _ in self._workers}))

    # Reports.

    def _ended(self, end: WorkerExit, now: float) -> list[AgentReport]:
        worker = self._workers.get((end.job, end.worker))
        if worker is None or not worker.alive:
            return []
        worker.end, worker.listens = end, False
        worker.kill_s, worker.repeat_s = NEVER_S, now + self._repeat_s
        return [self._report_end(worker)]

    def _report_start(self, worker: AgentWorker) -> AgentReport:
        o = worker.order
        started = WorkerStarted(o.job, o.worker, worker.limited, o.gpu, o.gpus)
        return AgentReport(self.node, started=started)

    def _report_end(self, worker: AgentWorker) -> AgentReport:
        end = worker.end
        assert end is not None
        ended = WorkerEnded(
            end.job,
            end.worker,
            worker.order.generation,
            end.exit_code,
            worker.why_ended,
            worker.asked,
        )
        return AgentReport(self.node, ended=ended)

    def _reports_of(self, worker: AgentWorker, generation: int) -> list[AgentReport]:
        """Repeats what a worker reported of a generation, when the controller orders it again."""
        # These may have been lost on the way, as a repeated order shows.
        again = [worker.last_from.get(kind) for kind in (Meeting, Ready, Entered)]
        return [
            self._report(worker.order.job, worker.order.worker, m)
            for m in again
            if isinstance(m, Meeting | Ready | Entered) and m.generation == generation
        ]

    def _report(self, job: int, worker: int, message: FromWorker) -> AgentReport:
        field = REPORTED_IN[type(message)]
        report = WorkerReport(job, worker, **{field: message})  # type: ignore[arg-type]
        return AgentReport(self.node, said=report)


def _state(worker: AgentWorker) -> WorkerState:
    o, messages = worker.order, worker.last_from
    ready = messages.get(Ready)
    return WorkerState(
        o.job,
        o.worker,
        worker.limited,
        o.gpu,
        entered=worker.entered,
        exit_code=None if worker.end is None else worker.end.exit_code,
        started_s=worker.started_s,
        why=worker.why_ended,
        ready=ready.generation if isinstance(ready, Ready) else -1,
        asked=worker.end is not None and worker.asked,
        memory_bytes=worker.memory_bytes,
        gpus=o.gpus,
        master=o.master,
        **{
            REPORTED_IN[kind]: messages.get(kind)
            for kind in (Meeting, Lost, WorkerLeft, Training, Saved, Finished)
        },  # type: ignore[arg-type]
    )


def _forgotten(order: EndWorker) -> WorkerEnded:
    """Returns the end of a worker that was reported and forgotten before."""
    return WorkerEnded(order.job, order.worker, -1, -SIGKILL, LOST_BY_NODE, asked=True)

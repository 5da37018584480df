"""One synthetic job: workers that follow the protocol of real elastic ones, around a clock.

Pure: orders and the present come in; messages and ends of workers are collected in `out`. The
caller sets how fast the job goes (`pace`). Costs and their timing are those of `sim.world`, but
for `one-by-one` and `per-start:profile`; else an emulated run and a simulated one differ only by
the delay of messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dovetail.core.placement import Interleave, Placement
from dovetail.core.switching import KEEPS_TRAINING, Switching, placed_how
from dovetail.core.units import NEVER_S
from dovetail.live.emulation.synthetic import SAMPLES_PER_S, STEP_SAMPLES, SyntheticSpec
from dovetail.wire.agent import StartWorker
from dovetail.wire.generation import (
    Broke,
    CheckpointDone,
    Entering,
    Event,
    Leaves,
    Prepare,
    Send,
    ShowLife,
    Stalled,
    Stop,
    Trains,
    WorkerGenerations,
    agree,
)
from dovetail.wire.worker import (
    Checkpoint,
    Finished,
    FromWorker,
    Hello,
    Meeting,
    Ready,
    Regroup,
    Saved,
    ToWorker,
    Training,
    WorkerRefused,
)

UNREPORTED = -1.0
"""No rate at all: the next one is reported whatever it is."""


@dataclass(frozen=True, slots=True)
class SyntheticEvent:
    """A worker sent a message, or (`message` None) ended with an exit code."""

    node: int
    job: int
    worker: int
    message: FromWorker | None
    exit_code: int = 0


@dataclass(slots=True)
class SyntheticWorker:
    """One worker. It is built at `built_s`; one that is `hung` neither hears nor says anything."""

    number: int
    node: int
    gpu: int
    share: float
    started_s: float
    generations: WorkerGenerations
    built_s: float = NEVER_S
    built: bool = False
    hung: bool = False
    slowed: float = 1.0


class SyntheticJob:
    """A synthetic job and its workers on all nodes. It has gone at `rate` since `since_s`."""

    def __init__(
        self,
        number: int,
        row: int,
        spec: SyntheticSpec,
        costs: Switching,
        *,
        done_s: float = 0.0,
        lived: bool = False,
        report_s: float = 1.0,
    ) -> None:
        self.number, self.row, self.spec = number, row, spec
        self.workers: dict[int, SyntheticWorker] = {}
        self.done_s = min(done_s, spec.duration_s)
        self.rate = 0.0
        self.since_s = 0.0
        self.out: list[SyntheticEvent] = []
        self.phase_s = NEVER_S
        self.training: Placement | None = None
        self._costs = costs = costs.for_restart(spec.restart_s) if spec.restart_s else costs
        self._prepared = spec.elastic and costs.prepare_s > 0
        self._lived = lived
        self._report_s = report_s
        self._wanted: Regroup | None = None
        self._ordered_s = 0.0
        self._switched_s = 0.0
        self._current: Regroup | None = None
        self._stopped = False
        self._entered = -1
        self._lost_s = NEVER_S
        self._reported_rate = 0.0
        self._reported_s = 0.0

    # What comes in.

    def start(self, order: StartWorker, node: int, now: float) -> None:
        """Starts a worker, which listens at once and is built when its start-up time has passed."""
        worker = SyntheticWorker(
            order.worker, node, order.gpu, order.share, now, WorkerGenerations(order.worker)
        )
        self.workers[order.worker] = worker
        self._send(worker, Hello(f"{self.number}/{order.worker}", "", 0))
        self._go_on(now)

    def hear(self, number: int, message: ToWorker, now: float) -> None:
        """Passes a message of its agent to a worker."""
        worker = self.workers.get(number)
        if worker is None or worker.hung:
            return
        if not isinstance(message, WorkerRefused):
            self._handle(worker, message, now)
        if isinstance(message, Regroup):
            self._regroup(worker, message, now)
        elif isinstance(message, Checkpoint):
            self._checkpoint(worker, message, now)
        self._go_on(now)

    def end(self, numbers: Iterable[int], exit_code: int, now: float) -> None:
        """Ends workers by a signal; the workers that trained with them notice."""
        gone = [w for n in numbers if (w := self.workers.get(n)) is not None]
        for worker in gone:
            self._exit(worker, exit_code)
        trained = () if self._current is None else self._current.members
        if any(w.number in trained for w in gone):
            self._stop(now)
            self._lose(Broke("a member is gone"), now)
        self._tidy(now)

    # Time.

    @property
    def due_s(self) -> float:
        """Returns when the next thing happens by itself."""
        due = min(self._end_s, self.phase_s, self._lost_s)
        for worker in self.workers.values():
            if not worker.built and not worker.hung:
                due = min(due, worker.built_s)
        if self._current is not None and self._entered < self._current.generation:
            due = min(due, NEVER_S if self._stopped else self.since_s)
        return min(due, self._report_due_s)

    @property
    def _end_s(self) -> float:
        if not self.rate or self._current is None:
            return NEVER_S
        return self.since_s + (self.spec.duration_s - self.done_s) / self.rate

    @property
    def _report_due_s(self) -> float:
        return self._reported_s + self._report_s if self._reported_rate else NEVER_S

    def advance(self, now: float) -> None:
        """Does what is due."""
        if self._end_s <= now:
            # The end comes first: what is due at the same instant concerns workers that are gone.
            self._finish()
            return
        if self._lost_s <= now:
            self._lost_s = NEVER_S
            self._lose(Stalled("stalled: a member does not answer"), now)
        if self.phase_s <= now:
            self.settle(now)
        self._go_on(now)
        if self._report_due_s <= now:
            self._report(now)

    def settle(self, now: float) -> None:
        """Adds the progress up to now."""
        if now > self.since_s:
            self.done_s += self.rate * (now - self.since_s)
            self.since_s = now

    def pace(self, rate: float, now: float) -> None:
        """Sets the rate from now on, or from when the switch under way is over."""
        if rate != self.rate:
            self.settle(now)
            self.rate = rate
        # While a switch is under way the new rate is set, but the job does not go.
        goes = rate if now >= self.since_s else 0.0
        if goes != self._reported_rate:
            self._report(now)

    @property
    def slowed(self) -> float:
        """Returns how many times slower its slowest worker makes it; infinite if it stands."""
        if self._current is None or self._stopped:
            return NEVER_S
        return max(self.workers[n].slowed for n in self._current.members)

    @property
    def placed(self) -> Placement | None:
        """Returns where it is to run: the members of its newest generation that exist."""
        wanted = self._wanted
        if wanted is not None and any(n in self.workers for n in wanted.members):
            return self._placement(wanted)
        if not self.workers:
            return None
        return self._placement(Regroup(0, tuple(sorted(self.workers))))

    @property
    def gpus(self) -> list[tuple[int, int]]:
        """Returns (node, GPU) of every living worker."""
        return [(w.node, w.gpu) for w in self.workers.values()]

    @property
    def samples(self) -> int:
        """Returns the samples done."""
        return self._samples_at(self.done_s)

    def _samples_at(self, done_s: float) -> int:
        # A sample counts as done if only a rounding error is missing.
        return min(int(done_s * SAMPLES_PER_S + 1e-6), self.spec.samples)

    @property
    def over(self) -> bool:
        """Returns whether it is complete."""
        return self.done_s >= self.spec.duration_s and not self.workers

    # Generations.

    def _handle(self, worker: SyntheticWorker, event: Event, now: float) -> None:
        """Passes an event to the protocol of a worker, and follows its instructions."""
        for instruction in worker.generations.handle(event):
            match instruction:
                case Prepare() if instruction.hosts:
                    address = f"paced:{self.number}/{worker.number}"
                    self._send(worker, Meeting(instruction.regroup.generation, address))
                case Send():
                    self._send(worker, instruction.message)
                case ShowLife():
                    self._send(worker, instruction.lost)
                case Stop():
                    self._stop(now)

    def _regroup(self, worker: SyntheticWorker, order: Regroup, now: float) -> None:
        if self._wanted is None or order.generation > self._wanted.generation:
            self._wanted, self._ordered_s = order, now
        trains = self._current is not None and worker.number in self._current.members
        if worker.generations.is_left_out and not trains:
            self._leave(worker, now)

    def _go_on(self, now: float) -> None:
        """Makes workers built and ready, and switches, as far as that is possible by now."""
        self._schedule_builds()
        for worker in self.workers.values():
            if not worker.built and worker.built_s <= now and not worker.hung:
                worker.built = True
        wanted = self._wanted
        if wanted is not None:
            for number in wanted.members:
                self._get_ready(wanted, self.workers.get(number), now)
            if self._agreed(wanted):
                self._switch(wanted, now)
        self._enter(now)
        self._tidy(now)

    def _schedule_builds(self) -> None:
        """Sets when members of the newest generation will be built."""
        wanted = self._wanted
        if wanted is None:
            return
        there = [self.workers[n] for n in wanted.members if n in self.workers]
        if self._current is None:
            # A job that ran before pays for reading its checkpoint, too.
            cost = self._costs.resume_s if self._lived else self._costs.start_s
            for worker in there:
                worker.built_s = min(worker.built_s, worker.started_s + cost)
            return
        held = set(() if self.training is None else self.training.named())
        keeps = any((w.node, w.gpu) in held for w in there)
        for worker in there:
            if worker.built_s == NEVER_S:
                # A process on a GPU that the job had costs nothing: the old one hands it over.
                new = (worker.node, worker.gpu) not in held
                ahead_s = self._costs.prepare_s if self._prepared and keeps and new else 0.0
                worker.built_s = worker.started_s + ahead_s

    def _get_ready(self, wanted: Regroup, worker: SyntheticWorker | None, now: float) -> None:
        generation = wanted.generation
        if worker is None or worker.hung or not worker.built:
            return
        generations = worker.generations
        joins = generations.wants(generation) and generations.knows_meeting(generation)
        if joins and not generations.is_ready(generation):
            self._handle(worker, Ready(generation, now - worker.started_s), now)

    def _agreed(self, wanted: Regroup) -> bool:
        if self._current is not None and wanted.generation <= self._current.generation:
            return False
        members = [w for n in wanted.members if (w := self.workers.get(n)) is not None]
        if len(members) < len(wanted.members):
            return False
        # Members that are to leave agree too: they train on until they have heard of it. One that
        # hangs will never hear of it, and must not keep the others.
        trained = () if self._current is None else self._current.members
        left = [self.workers[n] for n in trained if n in self.workers and n not in wanted.members]
        voters = [*members, *(w for w in left if not w.hung)]
        return agree([w.generations.propose() for w in voters]) == wanted.generation

    def _switch(self, wanted: Regroup, now: float) -> None:
        """Switches the members to a generation; the others leave."""
        self.settle(now)
        before, after = self.training, self._placement(wanted)
        trained = () if self._current is None else self._current.members
        self._switched_s = now
        self.since_s = now if before is None else self._goes_from_s(before, after, now)
        self._current, self.training = wanted, after
        self._stopped = False
        self._lost_s = NEVER_S
        # Reported anew even if it stood before: the controller believes that it goes on.
        self.rate, self._reported_rate = 0.0, UNREPORTED
        for number in wanted.members:
            self._handle(self.workers[number], Entering(wanted.generation), now)
        for number in trained:
            worker = self.workers.get(number)
            if worker is not None and number not in wanted.members and not worker.hung:
                self._leave(worker, now)

    def _goes_from_s(self, before: Placement, after: Placement, now: float) -> float:
        """Returns when a job that switches now makes progress again."""
        how = placed_how(before, after)
        if self._prepared:
            same = set(before.named()) == set(after.named())
            if before.kept_in(after) is None:
                # It keeps no GPU: it stands until it is built on the new ones.
                return max(now, self._ordered_s + self._costs.move_s)
            return max(self.since_s, now + self._costs.pause_s(how, same_gpus=same))
        from_s = max(now, self._ordered_s + self._costs.cost_s(how))
        return max(from_s, self.since_s) if how in KEEPS_TRAINING else from_s

    def _enter(self, now: float) -> None:
        current = self._current
        if current is None or self._stopped or self._entered >= current.generation:
            return
        if self.since_s <= now:
            self._entered = current.generation
            pause_s = self.since_s - self._switched_s
            trains = Trains(self._step, self.samples, pause_s)
            for number in current.members:
                self._handle(self.workers[number], trains, now)

    # Ends.

    def _stop(self, now: float) -> None:
        self.settle(now)
        self._stopped = True

    def _lose(self, event: Broke | Stalled, now: float) -> None:
        for number in () if self._current is None else self._current.members:
            worker = self.workers.get(number)
            if worker is not None and not worker.hung:
                self._handle(worker, event, now)

    def _leave(self, worker: SyntheticWorker, now: float) -> None:
        self._handle(worker, Leaves(self._step), now)
        self._exit(worker, 0)

    def _checkpoint(self, worker: SyntheticWorker, order: Checkpoint, now: float) -> None:
        current = self._current
        if current is None or worker.number not in current.members:
            if order.leave:
                self._leave(worker, now)
            return
        self.settle(now)
        self._save()
        self._handle(worker, CheckpointDone(order.leave), now)
        if order.leave:
            # All members were to be told; they leave together, at the first of these orders.
            members = [self.workers[n] for n in current.members if n in self.workers]
            for member in members:
                if not member.hung:
                    self._leave(member, now)
            self._stop(now)

    def _save(self) -> None:
        first = self._first()
        if first is not None:
            self._send(first, Saved(self._step, self.samples))

    def _finish(self) -> None:
        current = self._current
        assert current is not None
        self.since_s, self.done_s = self._end_s, self.spec.duration_s
        for number in current.members:
            worker = self.workers.get(number)
            if worker is not None:
                self._handle(worker, Finished(self._step, self.spec.samples), self.since_s)
                self._exit(worker, 0)
        self._tidy(self.since_s)

    def _exit(self, worker: SyntheticWorker, exit_code: int) -> None:
        del self.workers[worker.number]
        self.out.append(SyntheticEvent(worker.node, self.number, worker.number, None, exit_code))

    def _tidy(self, now: float) -> None:
        """Ends the training if no member is left."""
        current = self._current
        if current is not None and not any(n in self.workers for n in current.members):
            self.settle(now)
            self._current = self.training = None
            self._stopped = False
            self.rate = self._reported_rate = 0.0
            self._lost_s = self.phase_s = NEVER_S
        if not self.workers:
            self._lived = True

    # Messages.

    def _report(self, now: float) -> None:
        """Reports how training goes; adds no progress, which would change the end by an ulp."""
        goes = self.rate if now >= self.since_s else 0.0
        self._reported_rate, self._reported_s = goes, now
        first, current = self._first(), self._current
        if first is None or current is None or self._entered < 0:
            return
        per_s = goes * SAMPLES_PER_S
        samples = self._samples_at(self.done_s + goes * max(0.0, now - self.since_s))
        report = Training(
            self._entered,
            samples // STEP_SAMPLES,
            samples,
            per_s,
            STEP_SAMPLES / per_s if per_s else 0.0,
            self.spec.samples,
        )
        self._send(first, report)

    def _first(self) -> SyntheticWorker | None:
        return None if self._current is None else self.workers.get(self._current.members[0])

    def _send(self, worker: SyntheticWorker, message: FromWorker) -> None:
        self.out.append(SyntheticEvent(worker.node, self.number, worker.number, message))

    @property
    def _step(self) -> int:
        return self.samples // STEP_SAMPLES

    def _placement(self, group: Regroup) -> Placement:
        # Of two workers on one GPU one is about to leave: the GPU counts once.
        by_gpu = {(w.node, w.gpu): w for n in group.members if (w := self.workers.get(n))}
        there = list(by_gpu.values())
        spans: list[tuple[int, list[int]]] = []
        for worker in there:
            if spans and spans[-1][0] == worker.node:
                spans[-1][1].append(worker.gpu)
            else:
                spans.append((worker.node, [worker.gpu]))
        whole = len(there) == len(group.members)
        shares = tuple(w.share for w in there)
        return Placement(
            tuple((node, len(ids)) for node, ids in spans),
            tuple(tuple(ids) for _, ids in spans),
            accumulation_steps=group.steps,
            fractions=shares if any(s != 1.0 for s in shares) else (),
            samples=group.samples if whole else (),
            interleave=None if group.seat is None else Interleave(*group.seat),
            batch_size=group.batch_size,
        )

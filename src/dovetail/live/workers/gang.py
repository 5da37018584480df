"""The workers of one job: brings what is there into line with what the plan wants.

A pure state machine without policy, clock or other jobs. Callers pass in what the plan wants, what
agents report, and the time; `step` decides, and `live.workers.gang_orders` lists the orders to
send. Every order is repeated until its effect is seen, so lost, doubled and reordered messages do
no harm. A worker is gone only when its agent reports its end.

An elastic gang changes by generations: all its workers learn of the next one at once and enter it
together. A plain gang starts whole; any change of its workers ends it and starts it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dovetail.live.controller.rules import Rules
from dovetail.live.node.launcher import was_executed
from dovetail.live.workers.failure_detector import KEPT_GENERATIONS, FailureDetector, ReachedSince
from dovetail.live.workers.first_worker import FirstWorker
from dovetail.live.workers.gang_events import (
    GangEvent,
    GangFinished,
    GangFormed,
    GangSaved,
    GangStalled,
    GangTrained,
    GangVacated,
    TrainJobMissing,
    WorkerDied,
)
from dovetail.live.workers.plain_gang import did_its_part, step_plain
from dovetail.live.workers.worker_state import (
    LONG_AGO,
    NEVER,
    Desired,
    Target,
    Worker,
    WorkerConfig,
)
from dovetail.wire.agent import Launch, WorkerEnded, WorkerReport, looser_bound

Free = Callable[[int, int], bool]
"""Tells whether a (node, GPU) holds no worker but this job's and those it is shared with."""
Room = Callable[[int, int, int], bool]
"""Tells whether a worker of this job on a (node, GPU) may hold so many bytes beside the others."""

LEFT = "it left by an order that was withdrawn"
SAVE, END, WAIT = "save", "end", "wait"
"""How a gang leaves: saves its state and ends; is told to end; ends by itself, for a while."""


class Gang:
    """The workers of one job. Its state changes by its methods only.

    `fixed`: it changes over whole. `hands_over`: newcomers alone may take up the state of the job.
    `stuck`: it waits for GPUs of other gangs. `bound`: the memory each worker may hold of its GPU.
    `begun`: the workers whose program is known to have begun, whatever became of it.
    """

    def __init__(
        self,
        job: int,
        launch: Launch,
        rules: Rules,
        *,
        generation: int = 0,
        fixed: bool = False,
        hands_over: bool = False,
        first: FirstWorker | None = None,
    ) -> None:
        self.job = job
        self._fixed = fixed
        self._hands_over = hands_over
        self.first = first or FirstWorker()
        self.launch = launch
        self.rules = rules
        self.elastic = launch.trains
        self.generation = generation
        self.wanted: Desired | None = None
        self.target: Target | None = None
        self.formed = -1
        self.workers: dict[int, Worker] = {}
        self.meetings: dict[int, str] = {}
        self.forgets: list[tuple[int, int]] = []
        self.vacating = False
        self.stuck = False
        self.bound = 0
        self._news: list[GangEvent] = []
        self.trust = FailureDetector(rules.lost_s, rules.hung_s)
        self._aimed_s = self._wanted_s = self._heard_s = self._formed_s = 0.0
        self.complete: set[int] = set()
        self.gone: set[int] = set()
        self.begun: set[int] = set()
        self.outcasts: set[int] = set()
        self.how, self.grace_s = SAVE, launch.grace_s
        self.is_finished = False
        self._iteration_s = 0.0

    # What the plan wants.

    def want(self, desired: Desired, now: float) -> None:
        """Takes what the plan wants now; `step` works towards it."""
        before = self.wanted
        if before is None or before.numbers != desired.numbers:
            self._wanted_s = now
        self.wanted = desired
        if self.vacating or self.elastic:
            return
        stale = self.target is not None and self.target.members != desired.numbers
        if stale or (self.workers.keys() | self.complete) - set(desired.numbers):
            # A plain gang cannot change: it ends, and starts anew as wanted.
            self._leave(now, self.launch.grace_s, END)

    def vacate(self, now: float, grace_s: float, how: str) -> None:
        """Lets all workers leave; nothing is wanted any more."""
        self.wanted = None
        self._leave(now, grace_s, how)

    def give_way(self, now: float) -> None:
        """Lets all workers leave, and starts anew where it is wanted when the last one is gone.

        Those wanted must have other numbers by then: an agent starts none a second time.
        """
        self.stuck = False
        self._leave(now, self.launch.grace_s, SAVE)

    @property
    def group(self) -> tuple[int, ...]:
        """Returns whom the newest generation is told to."""
        return self.trust.group(self.generation)

    def _leave(self, now: float, grace_s: float, how: str) -> None:
        self.vacating = True
        self.how, self.grace_s = how, grace_s
        self.target = None
        for worker in self.workers.values():
            if how == SAVE and worker.entered >= 0:
                worker.leave_s = min(worker.leave_s, now)
                worker.end_by(now + grace_s, grace_s)
            elif how == WAIT:
                worker.end_by(now + grace_s, grace_s)
            else:
                worker.end_by(now, grace_s)

    # What is reported.

    def started(self, number: int, generation: int, now: float) -> bool:
        """Hears that a worker runs, and by which limits; returns whether it knows that worker."""
        worker = self.workers.get(number)
        if worker is not None:
            worker.obeyed = max(worker.obeyed, generation)
            self.begun.add(number)
        if worker is not None and not worker.alive:
            worker.alive = True
            worker.since_s = self._heard_s = now
        return worker is not None or number in self.gone

    def ended(self, node: int, said: WorkerEnded, now: float) -> None:
        """Hears that a worker is gone."""
        self.gone.add(said.worker)
        if was_executed(said.exit_code, said.why):
            self.begun.add(said.worker)
        worker = self.workers.pop(said.worker, None)
        wanted = self.wanted is not None and said.worker in self.wanted.numbers
        if worker is None and wanted and not self.elastic and said.exit_code == 0:
            self.complete.add(said.worker)
        elif worker is not None and not self.vacating:
            why = worker.why or said.why or (LEFT if worker.left and wanted else "")
            if wanted and said.exit_code == 0 and not why:
                self.complete.add(said.worker)
            elif wanted or (said.exit_code != 0 and not worker.left):
                self.trust.bury(said.worker)
                if wanted:
                    self._news.append(WorkerDied(said.worker, said.exit_code, why))
        elif did_its_part(self, said):
            # It was to leave just when it was done: this process ended well by itself.
            self.complete.add(said.worker)
        if self.complete:
            self._check_completion()
        if said.worker not in self.complete or self.is_finished or self.vacating:
            self.forgets.append((node, said.worker))

    def _check_completion(self) -> None:
        """Finishes when all is done. Until then its agents keep the ends of a plain gang's part."""
        # All members of an elastic gang reach the last step together; processes end one by one.
        if self.elastic or set(self.group) <= self.complete:
            self._finish(-1)

    def _finish(self, samples: int) -> None:
        if not self.is_finished:
            self.is_finished = True
            self._news.append(GangFinished(samples))

    def heard(self, said: WorkerReport, now: float, *, fresh: bool = True) -> None:
        """Hears what a worker of the training side said; if not `fresh`, once more."""
        worker = self.workers.get(said.worker)
        if worker is None:
            return
        worker.alive = True
        words = (said.meeting, said.ready, said.entered, said.training, said.saved, said.finished)
        self.first.heard = self.first.heard or any(words)
        if fresh:
            self.begun.add(said.worker)
            self._heard_s = now
            worker.speak(now)
        if said.meeting is not None:
            self.meetings[said.meeting.generation] = said.meeting.address
        if said.ready is not None:
            worker.ready = max(worker.ready, said.ready.generation)
        if said.entered is not None:
            self.enter(worker, said.entered.generation, said.entered.pause_s)
        if said.left is not None:
            worker.left = True
            worker.end_by(now + self.launch.grace_s, 0.0)
        if said.lost is not None:
            worker.lost = max(worker.lost, said.lost.generation)
            self.trust.doubt(said.lost.generation, now)
        if said.training is not None:
            self.enter(worker, said.training.generation)
            self._iteration_s = said.training.iteration_s
            worker.trained = said.training
            self._news.append(GangTrained(said.training))
        if said.saved is not None:
            self._news.append(GangSaved(said.saved.step, said.saved.samples))
        if said.finished is not None:
            self._finish(said.finished.samples)

    def enter(self, worker: Worker, generation: int, pause_s: float = 0.0) -> None:
        """Takes note of the generation that a worker trains in."""
        if generation <= worker.entered:
            return
        worker.entered = generation
        self.first.spoke = True
        self.check_formed(pause_s)

    def check_formed(self, pause_s: float = 0.0) -> None:
        """Forms the generation if all its members train in it."""
        target = self.target
        if target is None or self.formed == target.generation:
            return
        members = [self.workers.get(n) for n in target.members]
        if all(w is not None and w.entered == target.generation for w in members):
            self.form(target.generation, pause_s)

    def form(self, generation: int, pause_s: float = 0.0) -> None:
        """Notes that all members of a generation are there."""
        self.formed = generation
        self._formed_s = self._heard_s
        self._news.append(GangFormed(generation, pause_s))

    def lose(self, node: int) -> None:
        """Hears that a node is gone, and with it whoever was there; no news of their end."""
        for worker in [w for w in self.workers.values() if w.node == node]:
            del self.workers[worker.worker]
            self.outcasts.add(worker.worker)
            self.trust.bury(worker.worker)

    def restore(self, desired: Desired | None, group: tuple[int, ...], *, ran: bool) -> None:
        """Takes up what an earlier controller wanted, and whom it told to form the generation.

        `ran` if all its workers once ran. Inventories follow, then `live.survey.take_stock`.
        """
        self.wanted = desired
        self.vacating = desired is None
        self.trust.begin(self.generation, group, ())
        if ran:
            self.formed = self.generation

    def wait_from(self, now: float) -> None:
        """Lets all patience begin anew."""
        self._heard_s = self._wanted_s = self._aimed_s = now

    @property
    def has_begun(self) -> bool:
        """Returns whether the program of a wanted worker is known to have begun."""
        return self.wanted is not None and not self.begun.isdisjoint(self.wanted.numbers)

    # What is decided.

    def news(self) -> Sequence[GangEvent]:
        """Returns what happened since it was last asked."""
        news, self._news = self._news, []
        return news

    def step(self, now: float, free: Free, reached: ReachedSince, room: Room) -> None:
        """Decides what is to happen next; call it after all reports of an instant."""
        self.stuck = False
        if self.vacating:
            if self.workers:
                return
            self._settle()
        if self.wanted is None or self.is_finished:
            return
        self._bind(self.wanted.memory_bytes, room)
        if not self.elastic:
            step_plain(self, self.wanted, now, free)
            return
        self.first.listen(self.wanted, self.workers)
        wanted = self.first.desired(self.wanted, self.workers)
        self._judge(now, reached)
        self._step_elastic(wanted, now, free)
        if self.target is not None:
            self._dismiss(wanted, self.target, now)

    @property
    def cramped(self) -> bool:
        """Returns whether it may not hold as much as it should until others hold less."""
        return self.wanted is not None and self.bound != self.wanted.memory_bytes

    def _bind(self, wanted_bytes: int, room: Room) -> None:
        """Takes a tighter bound at once, and a looser one when others hold that no more."""
        workers = self.workers.values()
        eased = [w for w in workers if looser_bound(wanted_bytes, w.memory_bytes) != w.memory_bytes]
        if all(room(w.node, gpu, wanted_bytes) for w in eased for gpu in w.all_gpus):
            self.bound = wanted_bytes
        else:
            self.bound = min(w.memory_bytes for w in workers if w.memory_bytes)

    def _settle(self) -> None:
        self.vacating = self.is_finished = False
        self.target = None
        self.trust.forget(self.generation)
        self.complete.clear()
        self._news.append(GangVacated())

    def _step_elastic(self, wanted: Desired, now: float, free: Free) -> None:
        trainers = [w for w in self._by_number() if w.entered >= 0 and w.stays]
        if not trainers and not any(n in self.workers for n in wanted.numbers):
            self._start_afresh(wanted, now, free)
            return
        blocked = self._start_joiners(wanted, now, free)
        limited = self.update_shares(wanted)
        to_come = set(wanted.numbers) - set(self.first.startable(wanted))
        standing = any(self.trust.is_broken(w.entered) for w in trainers)
        there = [n for n in wanted.numbers if n in self.workers and self.workers[n].stays]
        able = [n for n in wanted.numbers if n in there or (there and n in to_come)]
        if blocked and not standing and (not able or self._fixed):
            self.stuck = True
            self._aim_again(now, limited=limited)
            return
        late = now >= self._wanted_s + self.rules.yield_s
        picked = self._pick(able, trainers, standing=standing)
        waits = blocked and not late and self.target is not None and not standing
        if not picked or (waits and not self._sheds(trainers)):
            self._aim_again(now, limited=limited)
            return
        manner = wanted.manner
        if tuple(picked) != wanted.numbers:
            manner = replace(manner, samples=())
        aim = (tuple(picked), manner)
        target = self.target
        broken = target is not None and self.trust.is_broken(target.generation)
        if target is None or broken or limited or aim != (target.members, target.manner):
            self.new_generation(*aim, now)

    def _pick(
        self, able: Sequence[int], trainers: Sequence[Worker], *, standing: bool
    ) -> Sequence[int]:
        """Returns who is to train next. One at least must hold the state of the job, if any does.

        Where a generation broke, those left of it go on first, without waiting for others. Where
        some are to leave, the others go on without them before newcomers join.
        """
        holders = [w.worker for w in trainers]
        stayers = [n for n in able if n in holders]
        if not holders or (self._hands_over and not standing and not stayers):
            return able
        if standing or (stayers and self._sheds(trainers)):
            return stayers or holders[:1]
        return able if stayers else [holders[0], *able]

    def _sheds(self, trainers: Sequence[Worker]) -> bool:
        """Tells whether some train who are not wanted, and were not left behind already."""
        assert self.wanted is not None
        wanted = self.wanted.numbers
        # Who is in an older generation than the last one formed was left behind by that.
        among = (w for w in trainers if w.entered >= self.formed)
        return not self._fixed and any(w.worker not in wanted for w in among)

    def _start_afresh(self, wanted: Desired, now: float, free: Free) -> None:
        for worker in self.workers.values():
            worker.end_by(now, self.launch.grace_s)
        if not self.workers and all(free(m.node, m.gpu) for m in wanted.members):
            self.muster(wanted, self.first.startable(wanted), now)
            self.new_generation(wanted.numbers, wanted.manner, now)

    def _start_joiners(self, wanted: Desired, now: float, free: Free) -> bool:
        """Starts who can be started; returns whether others wait for their GPUs."""
        called = self.first.startable(wanted)
        members = (m for m in wanted.members if m.worker in called)
        missing = [m for m in members if m.worker not in self.workers]
        able = [m.worker for m in missing if free(m.node, m.gpu)]
        self.muster(wanted, able, now)
        return len(able) < len(missing)

    def _dismiss(self, wanted: Desired, target: Target, now: float) -> None:
        """Ends who is not wanted and trains in no generation, or does not leave the last one."""
        settled = self.formed == target.generation
        patience_s = self._formed_s + self.launch.grace_s
        for worker in self.workers.values():
            if worker.worker in wanted.numbers or worker.worker in target.members:
                continue
            if (worker.entered < 0 and worker.ready < 0) or (settled and now >= patience_s):
                worker.end_by(now, self.launch.grace_s)

    def muster(self, wanted: Desired, numbers: Sequence[int], now: float) -> None:
        """Lets those of the wanted workers be started that are named."""
        for number in numbers:
            seat, gpus = wanted.seat(number), wanted.gpus(number)
            worker = Worker(number, seat.node, seat.gpu, wanted.share(number), self.bound)
            worker.since_s, worker.gpus = now, gpus if len(gpus) > 1 else ()
            self.workers[number] = worker
        if numbers:
            self._heard_s = now

    def update_shares(self, wanted: Desired) -> bool:
        """Sets the shares of the workers; True if a started one must be told a new one."""
        for number in wanted.numbers:
            if number in self.workers:
                self.workers[number].share = wanted.share(number)
        started = [w for w in self.workers.values() if w.start_told_s > LONG_AGO]
        bounded = all(w.memory_bytes == self.bound for w in self.workers.values())
        return not bounded or any(w.share != w.share_told for w in started)

    def _aim_again(self, now: float, *, limited: bool) -> None:
        """Tells a generation its other limits though it waits for GPUs: others wait for that."""
        target = self.target
        if limited and target is not None and not self.trust.is_broken(target.generation):
            self.new_generation(target.members, target.manner, now)

    def new_generation(self, members: tuple[int, ...], manner: WorkerConfig, now: float) -> None:
        """Begins the next generation, of these members."""
        self.generation += 1
        self.target = Target(self.generation, members, manner)
        self._aimed_s = now
        for worker in self.workers.values():
            worker.take_limits(self.bound, self.generation)
        entered = [w.entered for w in self.workers.values() if w.entered >= 0]
        self.trust.begin(self.generation, members, entered)
        for old in [g for g in self.meetings if g < self.generation - KEPT_GENERATIONS]:
            del self.meetings[old]

    def _judge(self, now: float, reached: ReachedSince) -> None:
        """Finds who hangs: in collectives that others lost, in preparing, or altogether."""
        if self.first.is_silent(self.workers):
            if now >= self.first.unspoken_at_s(self.workers, self.rules.silent_s):
                self.first.unspoken = max(self.workers)
                self._news.append(TrainJobMissing())
            return
        start_s = self.rules.start_s
        awake = [w for w in self._by_number() if w.loads_until_s(start_s) <= now]
        for worker in self.trust.judge(awake, now, reached):
            worker.end_by(now, 0.0, f"it was silent for {self.rules.hung_s:g} s")
        target = self.target
        if target is None:
            return
        if self.formed < target.generation and now >= self._ready_by_s(target):
            # Those who live will say so; after that either someone is dead, or all try again.
            self.trust.doubt(target.generation, now)
        if now >= self._stalls_at_s:
            self._news.append(GangStalled(now - self._heard_s))
            self._heard_s = now

    def _ready_by_s(self, target: Target) -> float:
        """Returns when all members of a generation must have entered it.

        Who has just come to its job prepares from then on.
        """
        rules, members = self.rules, [self.workers.get(n) for n in target.members]
        there = [w for w in members if w is not None]
        spoke_s = [w.spoke_s for w in there if w.spoke_s < NEVER]
        loads_s = [w.loads_until_s(rules.start_s) for w in there]
        return max(max([self._aimed_s, *spoke_s]) + rules.ready_s, *loads_s, LONG_AGO)

    @property
    def _stalls_at_s(self) -> float:
        """Returns when the job has said nothing for so long that it is started anew."""
        stalls_s = self._heard_s + max(self.rules.stall_s, 10 * self._iteration_s)
        workers = self.workers.values()
        if any(w.entered >= 0 for w in workers):
            return stalls_s
        return max([stalls_s, *(w.loads_until_s(self.rules.start_s) for w in workers)])

    def _by_number(self) -> list[Worker]:
        return [self.workers[n] for n in sorted(self.workers)]

    def next_s(self, now: float) -> float:
        """Returns when `step` is due again if nothing is heard until then."""
        due: list[float] = []
        if self.elastic and self.wanted is not None and not self.vacating:
            due.append(self._stalls_at_s)
            due.extend(w.loads_until_s(self.rules.start_s) for w in self.workers.values())
            due.append(self._formed_s + self.launch.grace_s)
            if self.target is not None and self.formed < self.target.generation:
                due.append(self._ready_by_s(self.target))
            due.extend(self.trust.due_s())
            due.append(self._wanted_s + self.rules.yield_s)
            due.append(self.first.unspoken_at_s(self.workers, self.rules.silent_s))
        return min((t for t in due if t > now), default=NEVER)

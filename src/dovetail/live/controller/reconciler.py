"""Looks after the gangs: lets them decide, carries out what follows, and sends what they say."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.core.units import NEVER_S
from dovetail.live.controller.arrivals import Arrivals
from dovetail.live.controller.health import Health
from dovetail.live.controller.live_jobs import Life
from dovetail.live.controller.plan_applier import Placements
from dovetail.live.controller.progress_reports import ProgressReports
from dovetail.live.controller.site import Site
from dovetail.live.controller.terminations import Endings
from dovetail.live.jobs.lifecycle import Step
from dovetail.live.workers.deadlock import deadlocked
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
from dovetail.live.workers.gang_orders import due_orders, next_resend_s
from dovetail.wire.agent import (
    AgentOrder,
    EndWorker,
    Forget,
    InventoryRequest,
    NotifyWorkers,
    StartWorker,
)

STRAY_GRACE_S = 0.0
"""A worker that nobody wants any more is killed: what it did is on record as over."""


class Tending:
    """The gangs of a live world, those touched in this instant above all."""

    def __init__(
        self,
        site: Site,
        endings: Endings,
        placements: Placements,
        arrivals: Arrivals,
        health: Health,
        reports: ProgressReports,
    ) -> None:
        self._site = site
        self._endings = endings
        self._placements = placements
        self._arrivals = arrivals
        self._health = health
        self._reports = reports
        self._to_say: dict[int, Life] = {}
        self._blocked: set[int] = set()

    def tend(self) -> None:
        """Lets every touched gang decide, and carries out what follows, until all is quiet."""
        site = self._site
        done: dict[int, Life] = {}
        while site.touched or site.floor.changed or self._endings.over or self._untangle():
            if site.floor.changed:
                site.floor.changed = False
                self._wake_waiting()
            batch, site.touched = site.touched, {}
            for life in batch.values():
                self._put_on_floor(life)
            for job in sorted(batch):
                self._tend_one(batch[job])
                done[job] = batch[job]
            over, self._endings.over = self._endings.over, []
            for life in over:
                self._arrivals.over(life)
        self._to_say.update(done)

    def _wake_waiting(self) -> None:
        """Touches the gangs that wait for GPUs, or for memory of them, that others held."""
        for job in self._blocked:
            life = self._site.lives.get(job)
            if life is not None:
                self._site.touch(life)
        self._blocked = set()

    def _untangle(self) -> bool:
        """Lets gangs give way that wait for each other's GPUs; returns whether there are any."""
        site = self._site
        stuck: dict[int, Life] = {}
        for job in sorted(self._blocked):
            life = site.lives.get(job)
            if life is not None and life.gang is not None and life.gang.roster.is_stuck:
                stuck[job] = life
        found = deadlocked({job: self._in_the_way(life) for job, life in stuck.items()})
        for job in found:
            life, gang = stuck[job], site.gang(stuck[job])
            gang.roster.give_way(site.now)
            self._placements.renumber(life, gang.roster.workers.keys())
            site.touch(life)
        return bool(found)

    def _in_the_way(self, life: Life) -> set[int]:
        """Returns the jobs that hold GPUs on which workers of this one cannot be started yet."""
        site, gang = self._site, self._site.gang(life)
        missing = [m for m in life.record.members if m.worker not in gang.roster.workers]
        return {j for m in missing for j in site.floor.blocking_jobs(m.node, m.gpu, site.seats)}

    def _tend_one(self, life: Life) -> None:
        site, gang = self._site, life.gang
        if gang is None:
            return
        job = life.record.job
        if site.settled:
            self._digest(life, gang.roster.take_events())
            gang.step(
                site.now,
                lambda node, gpu: (
                    self._health.may_start(job, node, gpu)
                    and site.has_room(life, (node, gpu), gang.roster.bound)
                ),
                self._health.reached_s,
                lambda node, gpu, bound: site.has_room(life, (node, gpu), bound),
            )
            self._digest(life, gang.roster.take_events())
            self._placements.began(life)
        wanted = gang.roster.wanted.numbers if gang.roster.wanted is not None else ()
        if gang.roster.awaits_memory or any(number not in gang.roster.workers for number in wanted):
            self._blocked.add(job)
        self._put_on_floor(life)
        if (
            gang.roster.generation != life.record.generation
            or gang.roster.group != life.record.group
        ):
            site.lives.write(life, generation=gang.roster.generation, group=gang.roster.group)

    def _put_on_floor(self, life: Life) -> None:
        if life.gang is not None:
            workers = life.gang.roster.workers.values()
            gpus = {w.worker: tuple((w.node, gpu) for gpu in w.all_gpus) for w in workers}
            self._site.floor.update(
                life.record.job, gpus, {w.worker: w.memory_held_max for w in workers}
            )

    def _digest(self, life: Life, news: Sequence[GangEvent]) -> None:
        deaths = [said for said in news if isinstance(said, WorkerDied)]
        for said in news:
            match said:
                case GangFormed():
                    self._placements.formed(life, said)
                case GangTrained():
                    self._reports.take(life, said.said)
                case GangSaved() if said.step > life.record.saved_step:
                    done_s = self._site.state.done_s((life.row,))[0]
                    self._site.lives.write(life, saved_step=said.step, saved_s=done_s)
                case GangFinished(samples):
                    if samples >= 0 and life.is_placed:
                        # Its last report was made before that.
                        self._site.lives.write(life, samples=samples)
                    self._endings.end(life, Step.FINISHED, code=0)
                case TrainJobMissing():
                    self._placements.unspoken(life)
                case GangStalled():
                    self._endings.stalled(life, said.silent_s)
                case GangVacated():
                    self._endings.vacated(life)
        # A job that finished in the same instant is not placed any more.
        if deaths and life.is_placed:
            self._endings.died(life, deaths)

    def say(self) -> None:
        """Sends what must be said now; call it when all that explains it is on record."""
        site, now = self._site, self._site.now
        letters, site.letters = site.letters, []
        for job, life in self._to_say.items():
            if life.gang is None:
                continue
            letters.extend(due_orders(life.gang, now, settled=site.settled))
            due = min(life.gang.next_s(now), next_resend_s(life.gang, now))
            site.timers.set(("gang", job), due if site.lives.get(job) is life else NEVER_S)
        self._to_say = {}
        for key, worker in site.floor.unknown.items():
            if now >= worker.end_sent_s + site.rules.resend_s:
                worker.end_sent_s = now
                letters.append((worker.node, EndWorker(*key, STRAY_GRACE_S)))
        for node, payload in letters:
            site.edges.post.send(node, order_of(site.epoch, payload))


def order_of(
    epoch: int, payload: StartWorker | EndWorker | NotifyWorkers | Forget | InventoryRequest
) -> AgentOrder:
    """Returns an order of the controller of an epoch."""
    match payload:
        case StartWorker():
            return AgentOrder(epoch, start=payload)
        case EndWorker():
            return AgentOrder(epoch, end=payload)
        case NotifyWorkers():
            return AgentOrder(epoch, tell=payload)
        case Forget():
            return AgentOrder(epoch, forget=payload)
        case InventoryRequest():
            return AgentOrder(epoch, hail=payload)

"""A gang of workers that speak `wire.worker`: it changes by generations while it trains.

All workers learn of the next generation at once and enter it together when its members are ready.
Where a generation breaks, the workers that are left go on first, and others join them later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dovetail.core.units import LONG_AGO_S, NEVER_S
from dovetail.live.workers.failure_detector import (
    KEPT_GENERATIONS,
    FailureDetector,
    ReachedSince,
)
from dovetail.live.workers.first_worker import shows_train_job
from dovetail.live.workers.gang_events import GangStalled, NoTrainJob
from dovetail.live.workers.rival_generations import with_rivals
from dovetail.live.workers.roster import HasRoom, IsFree, Roster
from dovetail.live.workers.worker_state import Desired, Worker
from dovetail.wire.agent import WorkerEnded, WorkerReport
from dovetail.wire.worker import Regroup, Training

STALL_ITERATIONS = 10
"""A job that is silent for as many of its iterations, and for `stall_s`, has stalled."""


class ElasticGang:
    """Decides about the workers of one job, in its `roster`.

    With `fixed` it changes over only whole. With `hands_over` the state of the job outlives its
    workers, and newcomers alone may take it up; else a worker that has the state stays on among
    newcomers until they have it too.
    """

    def __init__(self, roster: Roster, *, fixed: bool = False, hands_over: bool = False) -> None:
        self.roster = roster
        self.detector = FailureDetector(roster.rules.lost_s, roster.rules.hung_s)
        self.meetings: dict[int, str] = {}
        self._fixed = fixed
        self._hands_over = hands_over
        self._wanted_s = self._generation_s = 0.0
        self._iteration_s = 0.0

    # What the plan wants.

    def want(self, desired: Desired, now: float) -> None:
        """Takes what the plan wants now; `step` works towards it."""
        before = self.roster.wanted
        if before is None or before.numbers != desired.numbers:
            self._wanted_s = now
        self.roster.wanted = desired

    # What is reported.

    def ended(self, node: int, end: WorkerEnded, now: float) -> None:
        """Records that a worker is gone."""
        roster = self.roster
        worker = roster.remove(end)
        if worker is not None and not roster.is_leaving and roster.record_end(worker, end):
            self.detector.mark_dead(end.worker)
        if roster.complete:
            # All members reach the last step together: one that ended well is enough.
            roster.finish()
        roster.release_end(node, end.worker)

    def receive(self, report: WorkerReport, now: float, *, fresh: bool = True) -> None:
        """Takes a message of a worker; `fresh` is False if an inventory repeats it."""
        roster = self.roster
        worker = roster.workers.get(report.worker)
        if worker is None:
            return
        worker.alive = True
        roster.first.heard = roster.first.heard or shows_train_job(report)
        if fresh:
            roster.begun.add(report.worker)
            roster.heard_s = now
            worker.note_message(now)
        self._heard_of_generation(worker, report, now)
        self._heard_of_training(worker, report)

    def trains_on(self, report: WorkerReport) -> bool:
        """Returns whether a report only shows progress of a generation that needs nothing.

        Then nothing can follow from it but what the progress is worth.
        """
        worker, training = self.roster.workers.get(report.worker), report.training
        if worker is None or training is None or not self.is_steady:
            return False
        if self._stall_s(training.iteration_s) < self._stall_s(self._iteration_s):
            # The alarm is set for later than the job would now stall.
            return False
        in_it = worker.entered == training.generation == self.roster.generation
        return in_it and worker.trained is not None and report == _progress(report, training)

    @property
    def is_steady(self) -> bool:
        """Returns whether the wanted workers, and no others, train in the newest generation."""
        roster, wanted = self.roster, self.roster.wanted
        if wanted is None or roster.is_leaving or roster.is_finished or not self.detector.is_calm:
            return False
        target, workers = roster.target, roster.workers
        return (
            target is not None
            and roster.formed == roster.generation == target.generation
            and target.members == wanted.numbers
            and workers.keys() == set(target.members)
            and not roster.awaits_memory
            and all(w.alive and w.stays and w.entered == roster.formed for w in workers.values())
        )

    def _heard_of_generation(self, worker: Worker, report: WorkerReport, now: float) -> None:
        if report.meeting is not None:
            # By generation: a late address must not be passed on to a newer one.
            self.meetings[report.meeting.generation] = report.meeting.address
        if report.ready is not None:
            worker.ready = max(worker.ready, report.ready.generation)
        if report.entered is not None:
            self.enter(worker, report.entered.generation)
        if report.left is not None:
            # Its process ends by itself; one that does not is killed after the grace period.
            worker.left = True
            worker.end_by(now + self.roster.launch.grace_s, 0.0)
        if report.lost is not None:
            worker.lost = max(worker.lost, report.lost.generation)
            # Suspected, not broken: its collectives may fail though all members live.
            self.detector.suspect(report.lost.generation, now)

    def _heard_of_training(self, worker: Worker, report: WorkerReport) -> None:
        events = self.roster.events
        if report.training is not None:
            # Its `Entered` may have been lost: a worker that trains in a generation has entered it.
            self.enter(worker, report.training.generation)
            self._iteration_s = report.training.iteration_s
            worker.trained = report.training
            events.append(report.training)
        if report.saved is not None:
            events.append(report.saved)
        if report.finished is not None:
            self.roster.finish(report.finished)

    def enter(self, worker: Worker, generation: int) -> None:
        """Records the generation that a worker trains in, unless it was known already."""
        if generation <= worker.entered:
            return
        worker.entered = generation
        self.roster.first.spoke = True
        self._form_if_complete()

    def _form_if_complete(self) -> None:
        roster, target = self.roster, self.roster.target
        if target is None or roster.formed == target.generation:
            return
        members = [roster.workers.get(n) for n in target.members]
        if all(w is not None and w.entered == target.generation for w in members):
            roster.form(target.generation)

    def lose(self, node: int) -> None:
        """Removes the workers on a node that is down; there will be no report of their end."""
        for number in self.roster.lose(node):
            self.detector.mark_dead(number)

    def lose_unseen(self, node: int) -> None:
        """Gives up the wanted workers of a node whose inventory never came to this controller."""
        for number in self.roster.outcast_unseen(node):
            # Those that train with them wait in a step for them: they must hear it at once.
            self.detector.mark_dead(number)

    def can_do_without(self, node: int) -> bool:
        """Returns whether a job trains on elsewhere, and nobody on a node makes a step alone.

        A step takes all members of a generation. So no generation that those on the node may be in,
        or have been ordered to enter, may consist of them and of others that were lost before.
        """
        roster, there = self.roster, [w for w in self.roster.workers.values() if w.node == node]
        others = [
            w
            for number, w in roster.workers.items()
            if w.node != node and w.entered >= 0 and w.stays and number in roster.group
            if roster.is_wanted(number)
        ]
        if not others:
            return False
        if not there:
            # No inventory of it came to this controller. All members left the generations before
            # the newest to enter it together, and none of those can be formed without them.
            return not self._hands_over and any(w.entered == roster.generation for w in others)
        lost = roster.outcasts.union(w.worker for w in there)
        first = min((w.entered for w in there if w.entered >= 0), default=roster.generation)
        return not self.detector.may_be_alone(lost, first, roster.generation)

    # After a restart of the controller.

    def restore(self, desired: Desired | None, group: tuple[int, ...], *, ran: bool) -> None:
        """Takes up what an earlier controller wanted. Inventories follow, then `find_missing`."""
        self.roster.restore(desired, group, ran=ran)
        self.detector.begin(self.roster.generation, group, ())

    def adopt(self, worker: Worker, now: float) -> None:
        """Takes up a worker of an earlier controller; `step` decides what becomes of it.

        One that is in the way of a wanted worker leaves now: a backup was put back that does not
        know it, and no generation would come without the wanted one.
        """
        roster, wanted = self.roster, self.roster.wanted
        if wanted is None or roster.is_wanted(worker.worker):
            return
        if any(m.node == worker.node and m.gpu in worker.all_gpus for m in wanted.members):
            worker.leave_s = now if worker.regroup_sent >= 0 else NEVER_S
            wait_s = roster.launch.grace_s if worker.regroup_sent >= 0 else 0.0
            worker.end_by(now + wait_s, roster.launch.grace_s)

    def find_missing(self, now: float) -> tuple[int, ...]:
        """Returns the wanted workers that no inventory lists, nor ever will."""
        roster, wanted = self.roster, self.roster.wanted
        if wanted is None or roster.is_leaving:
            return ()
        # Nothing could be heard while no controller ran: all patience begins anew.
        roster.heard_s = self._wanted_s = self._generation_s = now
        absent = roster.absent(wanted)
        for number in absent:
            self.detector.mark_dead(number)
        entered = {w.worker for w in roster.workers.values() if w.entered == roster.generation}
        if roster.group and not absent and set(roster.group) <= entered:
            roster.target = wanted.regroup(roster.generation, roster.group)
            self._form_if_complete()
        return absent

    def has_lost_run(self) -> bool:
        """Returns whether a program that began is lost with workers that are not there."""
        roster = self.roster
        if roster.wanted is None or roster.is_leaving or roster.is_finished:
            return False
        return roster.formed == roster.generation and not roster.workers

    # What is decided.

    def step(self, now: float, is_free: IsFree, reached: ReachedSince, has_room: HasRoom) -> None:
        """Decides what happens next; call it after all reports of an instant."""
        roster = self.roster
        roster.is_stuck = False
        if roster.is_leaving:
            if roster.workers:
                return
            roster.clear()
            self.detector.forget(roster.generation)
        if roster.wanted is None or roster.is_finished:
            return
        roster.update_bound(roster.wanted.memory_bytes, has_room)
        roster.first.update(roster.wanted, roster.workers)
        wanted = roster.first.desired(roster.wanted, roster.workers)
        # Before members are chosen: a worker that hangs must not be one of them again.
        self._end_hung_workers(now, reached)
        self._change_over(wanted, now, is_free)
        if roster.target is not None:
            self._end_leftovers(wanted, roster.target, now)

    def _change_over(self, wanted: Desired, now: float, is_free: IsFree) -> None:
        """Starts the workers that can be started, and begins a generation where one is due."""
        roster = self.roster
        # Only workers that train have the state of the job.
        trainers = [w for w in roster.by_number() if w.entered >= 0 and w.stays]
        if not trainers and not any(n in roster.workers for n in wanted.numbers):
            self._start_anew(wanted, now, is_free)
            return
        blocked = self._start_joiners(wanted, now, is_free)
        limited = roster.update_shares(wanted)
        members = self._next_members(wanted, trainers, now, blocked=blocked)
        if not members:
            self._repeat_generation(now, limited=limited)
            return
        # The split of samples is made for all wanted workers; any other set splits them evenly.
        even = wanted if members == wanted.numbers else replace(wanted, samples=())
        self._begin_if_changed(even.regroup(roster.generation, members), now, limited=limited)

    def _next_members(
        self, wanted: Desired, trainers: Sequence[Worker], now: float, *, blocked: bool
    ) -> tuple[int, ...]:
        """Returns the members of the next generation; none while it must wait for others."""
        roster = self.roster
        if self._awaits_ends(wanted, trainers, now):
            return ()
        # Survivors stand still until a new generation: for them nothing is worth waiting for.
        broken = any(self.detector.is_broken(w.entered) for w in trainers)
        able = self._able(wanted)
        if blocked and not broken and (not able or self._fixed):
            # Without a member to train on, only the gangs on its GPUs can end this wait.
            roster.is_stuck = True
            return ()
        # A change that comes in one step is cheaper than one in two. So joiners are awaited for
        # `yield_s`; not by survivors of a broken generation, which stand still meanwhile.
        late = now >= self._wanted_s + roster.rules.yield_s
        waits = blocked and not late and roster.target is not None and not broken
        if waits and not self._has_leavers(trainers):
            return ()
        members = self._choose_members(able, trainers, broken=broken)
        return (
            members if self._hands_over else with_rivals(members, trainers, roster, self.detector)
        )

    def _awaits_ends(self, wanted: Desired, trainers: Sequence[Worker], now: float) -> bool:
        """Ends what may not go on where nobody trains; returns whether that is to be awaited.

        Others would read the checkpoint to which it may still write: on another machine, where the
        order to end may not arrive. An unwanted worker that is not known to be at its job may be
        there all the same, and train: what it reported may be late.
        """
        if trainers:
            return False
        self.roster.end_outdated(now)
        workers = self.roster.workers.values()
        for worker in workers:
            if worker.worker not in wanted.numbers and worker.entered < 0 and worker.ready < 0:
                worker.end_by(now, self.roster.launch.grace_s)
        return any(not w.stays and self.roster.rules.lease_s(w.node) > 0 for w in workers)

    def _able(self, wanted: Desired) -> list[int]:
        """Returns the wanted workers that are there, or come once the first has made its job."""
        roster = self.roster
        to_come = set(wanted.numbers) - set(roster.first.startable(wanted))
        there = [n for n in wanted.numbers if n in roster.workers and roster.workers[n].stays]
        return [n for n in wanted.numbers if n in there or (there and n in to_come)]

    def _begin_if_changed(self, regroup: Regroup, now: float, *, limited: bool) -> None:
        if self.roster.target != regroup or self.detector.is_broken(regroup.generation) or limited:
            self._new_generation(regroup, now)

    def _choose_members(
        self, able: Sequence[int], trainers: Sequence[Worker], *, broken: bool
    ) -> tuple[int, ...]:
        """Returns the members of the next generation; one has the state of the job, if any does.

        Where a generation broke, its survivors go on first, without waiting for others. Where
        workers are to leave, the others go on without them before newcomers join.
        """
        holders = [w.worker for w in trainers]
        stayers = [n for n in able if n in holders]
        if not holders or (self._hands_over and not broken and not stayers):
            # They read the checkpoint, or take the state over from outside the gang.
            return tuple(able)
        if broken or (stayers and self._has_leavers(trainers)):
            return tuple(stayers or holders[:1])
        # With no stayer, a leaver trains on among the newcomers until they have its state.
        return tuple(able if stayers else [holders[0], *able])

    def _has_leavers(self, trainers: Sequence[Worker]) -> bool:
        """Returns whether a worker still trains that the plan has removed."""
        wanted = self.roster.wanted
        assert wanted is not None
        # A worker in an older generation than the last one formed was left behind by that change.
        current = (w for w in trainers if w.entered >= self.roster.formed)
        return not self._fixed and any(w.worker not in wanted.numbers for w in current)

    def _start_anew(self, wanted: Desired, now: float, is_free: IsFree) -> None:
        """Starts a gang of which no wanted worker is there, once all its GPUs are free."""
        roster = self.roster
        # The old workers end first: two sets of workers would write the same checkpoints.
        for worker in roster.workers.values():
            worker.end_by(now, roster.launch.grace_s)
        if not roster.workers and all(is_free(m.node, m.gpu) for m in wanted.members):
            roster.start_workers(wanted, roster.first.startable(wanted), now)
            self._new_generation(wanted.regroup(roster.generation, wanted.numbers), now)

    def _start_joiners(self, wanted: Desired, now: float, is_free: IsFree) -> bool:
        """Starts the missing workers whose GPUs are free; returns whether others must wait."""
        roster = self.roster
        startable = roster.first.startable(wanted)
        members = (m for m in wanted.members if m.worker in startable)
        missing = [m for m in members if m.worker not in roster.workers]
        able = [m.worker for m in missing if is_free(m.node, m.gpu)]
        roster.start_workers(wanted, able, now)
        return len(able) < len(missing)

    def _end_leftovers(self, wanted: Desired, target: Regroup, now: float) -> None:
        """Ends unwanted workers that train in no generation, or do not leave the last one."""
        roster = self.roster
        formed = roster.formed == target.generation
        # Normally a leaver ends by itself when the others enter. One that missed the change, or
        # has never trained, waits for an order that will not come.
        overdue = formed and now >= roster.formed_s + roster.launch.grace_s
        for worker in roster.workers.values():
            if worker.worker in wanted.numbers or worker.worker in target.members:
                continue
            if (worker.entered < 0 and worker.ready < 0) or overdue:
                worker.end_by(now, roster.launch.grace_s)

    def _repeat_generation(self, now: float, *, limited: bool) -> None:
        """Begins the same generation again where its limits changed while it waits for GPUs.

        Other gangs may wait for the memory that the new limits release.
        """
        target = self.roster.target
        if limited and target is not None and not self.detector.is_broken(target.generation):
            self._new_generation(target, now)

    def _new_generation(self, regroup: Regroup, now: float) -> None:
        roster = self.roster
        roster.begin_generation(regroup)
        self._generation_s = now
        # Workers still train in older generations: a death there must be known to break those.
        entered = [w.entered for w in roster.workers.values() if w.entered >= 0]
        self.detector.begin(roster.generation, regroup.members, entered)
        for old in [g for g in self.meetings if g < roster.generation - KEPT_GENERATIONS]:
            del self.meetings[old]

    # Workers that hang, and jobs that stall.

    def _end_hung_workers(self, now: float, reached: ReachedSince) -> None:
        """Ends workers that hang: in collectives that others lost, in preparing, or altogether."""
        roster, rules = self.roster, self.roster.rules
        if roster.first.is_silent(roster.workers):
            # A program without a training job is not hung: it may be an ordinary one.
            if now >= roster.first.unspoken_at_s(roster.workers, rules.silent_s):
                roster.first.unspoken = max(roster.workers)
                roster.events.append(NoTrainJob())
            return
        awake = [w for w in roster.by_number() if w.loading_until_s(rules.start_s) <= now]
        for worker in self.detector.evaluate(awake, now, reached):
            worker.end_by(now, 0.0, f"it was silent for {rules.hung_s:g} s")
        target = roster.target
        if target is None:
            return
        if roster.formed < target.generation and now >= self._ready_by_s(target):
            # The workers that live answer the Abandon that follows. After that either one is
            # known to hang, or all try again in a new generation.
            self.detector.suspect(target.generation, now)
        if now >= self._stalls_at_s:
            roster.events.append(GangStalled(now - roster.heard_s))
            roster.heard_s = now

    def _ready_by_s(self, target: Regroup) -> float:
        """Returns when all members of a generation must have entered it.

        A worker that has just come to its job prepares from then on.
        """
        rules = self.roster.rules
        members = [self.roster.workers.get(n) for n in target.members]
        there = [w for w in members if w is not None]
        first_s = [w.first_message_s for w in there if w.first_message_s < NEVER_S]
        loading_s = [w.loading_until_s(rules.start_s) for w in there]
        return max(max([self._generation_s, *first_s]) + rules.ready_s, *loading_s, LONG_AGO_S)

    @property
    def _stalls_at_s(self) -> float:
        """Returns when the job has said nothing for so long that it is started anew."""
        rules = self.roster.rules
        stalls_s = self.roster.heard_s + self._stall_s(self._iteration_s)
        workers = self.roster.workers.values()
        if any(w.entered >= 0 for w in workers):
            return stalls_s
        # Until one has entered a generation, programs may still be loading.
        return max([stalls_s, *(w.loading_until_s(rules.start_s) for w in workers)])

    def _stall_s(self, iteration_s: float) -> float:
        """Returns how long a job may be silent with iterations of this length."""
        return max(self.roster.rules.stall_s, STALL_ITERATIONS * iteration_s)

    def next_s(self, now: float) -> float:
        """Returns when `step` is due again if nothing is reported until then."""
        roster, rules = self.roster, self.roster.rules
        if roster.wanted is None or roster.is_leaving:
            return NEVER_S
        due = [self._stalls_at_s]
        due.extend(w.loading_until_s(rules.start_s) for w in roster.workers.values())
        due.append(roster.formed_s + roster.launch.grace_s)
        if roster.target is not None and roster.formed < roster.target.generation:
            due.append(self._ready_by_s(roster.target))
        due.extend(self.detector.due_s())
        due.append(self._wanted_s + rules.yield_s)
        due.append(roster.first.unspoken_at_s(roster.workers, rules.silent_s))
        return min((t for t in due if t > now), default=NEVER_S)


def _progress(report: WorkerReport, training: Training) -> WorkerReport:
    return WorkerReport(report.job, report.worker, training=training)

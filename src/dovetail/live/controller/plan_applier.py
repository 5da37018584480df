"""From placements to workers: what an applied plan means for the tables, the GPUs and the gangs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from dovetail.core.messages import (
    PREEMPTED,
    RESIZE,
    Measured,
    Started,
    Stopped,
    Switched,
)
from dovetail.core.placement import Placement
from dovetail.core.plan import Change, Draft
from dovetail.core.switching import delay_s
from dovetail.core.units import NEVER_S
from dovetail.live.controller.live_jobs import Life
from dovetail.live.controller.site import Site
from dovetail.live.jobs.lifecycle import State, Step
from dovetail.live.jobs.record import GangMember
from dovetail.live.workers.gang_events import GangFormed
from dovetail.live.workers.gpu_assignment import Gpu
from dovetail.live.workers.roster import END, SAVE, WAIT
from dovetail.live.workers.worker_state import Desired, WorkerConfig


class Placements:
    """Carries plans out."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def apply(self, draft: Draft) -> None:
        """Makes a legal draft the plan: stops, then starts and moves, then re-times neighbours."""
        site = self._site
        changes = site.state.plan.commit(draft)
        touched: set[int] = set()
        for change in changes:
            if change.before is not None:
                touched.update(site.sharers(change.before))
            if change.after is None:
                self._stop(site.lives.of_row(change.job))
        placed = [(c.job, c.after) for c in changes if c.after is not None]
        numbers = site.lives.numbers
        seats = site.seats.assign([(numbers[row], p) for row, p in placed], site.floor.is_vacant)
        for change in changes:
            if change.after is not None:
                life = site.lives.of_row(change.job)
                self._place(life, change, seats[life.record.job])
                touched.update(site.sharers(change.after))
        touched.difference_update(c.job for c in changes)
        site.retime(sorted(touched))

    def _stop(self, life: Life) -> None:
        site, row, now = self._site, life.row, self._site.now
        if not life.uses_train_protocol:
            # What an ordinary program did is lost with it, unless it keeps it by itself.
            site.state.settle(row)
            site.state.done[row] = 0.0
        site.state.stop(row)
        site.facts.append(Stopped(now, row, PREEMPTED, site.state.done[row]))
        job = life.record.job
        site.seats.release(job)
        site.lives.step(life, Step.STOPPED, placement=None, members=(), reason="", detail="")
        self._book(life)
        gang = site.gang(life)
        how = SAVE if life.uses_train_protocol else WAIT if gang.roster.complete else END
        gang.roster.vacate(now, life.spec.grace_s, how)
        site.touch(life)

    def _book(self, life: Life) -> None:
        """Books how long a job ran, now that it does not."""
        site, job = self._site, life.record.job
        if life.running_s < site.now:
            site.lives.write(life, ran_s=life.record.ran_s + site.now - life.running_s)
        life.running_s, life.mend, life.trained = NEVER_S, (), None
        site.timers.drop(("limit", job))
        site.timers.drop(("mend", job))

    def _place(self, life: Life, change: Change, gpus: Sequence[Gpu]) -> None:
        site, row, now = self._site, life.row, self._site.now
        after = change.after
        assert after is not None
        state = site.state
        how = state.how(change)
        training, delay = after, delay_s(how, state.view.switch_s[how])
        if change.before is not None and life.uses_train_protocol:
            if how == RESIZE:
                training, delay = change.before.kept_in(after) or after, 0.0
            # Its workers complete the switch under way first, even before a move.
            delay = max(delay, state.since_s[row] - now)
        rate = site.speed(row, training) if training is not after else site.speed(row, after)
        state.start(row, after, rate, delay)
        preparing = after.gpus - training.gpus
        site.facts.append(Started(now, row, how, after, rate, now + delay, preparing))
        life.placed_done_s, life.manner_s = state.done[row], now
        life.starting = change.before is None or not life.uses_train_protocol
        if life.starting:
            site.lives.write(life, resumed_step=life.record.saved_step)
        self._seat(life, after, gpus)

    def _seat(self, life: Life, placement: Placement, gpus: Sequence[Gpu]) -> None:
        """Numbers the workers of a job anew where they are new, and wants them.

        A plain program is one worker for each task, an elastic one for each GPU.
        """
        site, record = self._site, life.record
        before = {(m.node, m.gpu): m.worker for m in record.members}
        whole_anew = not life.uses_train_protocol and tuple(before) != tuple(gpus)
        began = life.gang is not None and life.gang.roster.has_begun
        number, members = record.next_worker, []
        each = 1 if life.uses_train_protocol else len(gpus) // life.spec.tasks
        for rank, (node, gpu) in enumerate(gpus):
            worker = before.get((node, gpu), -1)
            if whole_anew or worker < 0:
                # A task with several GPUs is one worker, the member of all of them.
                number += rank % each == 0
                worker = number - 1
            members.append(GangMember(worker, node, gpu))
        life.mend = ()
        site.timers.drop(("mend", record.job))
        site.seats.occupy(record.job, members)
        site.lives.write(
            life,
            placement=placement,
            members=tuple(members),
            next_worker=number,
            reason="",
            detail="",
        )
        if record.state is State.PENDING:
            site.lives.step(life, Step.PLACED)
        elif whole_anew:
            site.lives.write(life, restarts=record.restarts + began)
            self._book(life)
        site.relaunch(life)
        site.gang(life).want(self.desired(life), site.now)
        site.touch(life)

    def desired(self, life: Life) -> Desired:
        """Returns what the plan wants of a placed job."""
        record, placement = life.record, life.record.placement
        assert placement is not None
        turns = placement.interleave
        manner = WorkerConfig(
            placement.accumulation_steps,
            placement.samples,
            placement.batch_size,
            None if turns is None else (turns.set_id, turns.phase),
        )
        whole = len(record.members) == placement.gpus
        return Desired(
            record.members,
            manner if whole else replace(manner, samples=()),
            placement.fractions if whole else (),
            self._site.bound(life),
        )

    def mend(self, life: Life) -> None:
        """Wants the lost workers of a job again, under new numbers, on the GPUs they had."""
        site = self._site
        if life.is_placed and life.mend:
            life.mend = ()
            site.gang(life).want(self.desired(life), site.now)
            site.touch(life)

    def renumber(self, life: Life, absent: Collection[int]) -> None:
        """Wants new workers for those that an earlier controller wanted and that are not there.

        Of a plain gang none has begun: all of it has other numbers.
        """
        site, record = self._site, life.record
        if not absent or not life.is_placed:
            return
        number, members = record.next_worker, []
        named: dict[int, int] = {}
        for member in record.members:
            if member.worker in absent or not life.uses_train_protocol:
                if member.worker not in named:
                    named[member.worker], number = number, number + 1
                member = GangMember(named[member.worker], member.node, member.gpu)
            members.append(member)
        site.seats.renumber(record.job, members)
        site.lives.write(life, members=tuple(members), next_worker=number)
        site.relaunch(life)
        site.gang(life).want(self.desired(life), site.now)

    def left_of(self, life: Life, lost: set[int]) -> Placement | None:
        """Returns where an elastic job can train on without some nodes, None if it cannot."""
        site = self._site
        placement = site.placement(life)
        if placement is None or not (life.uses_train_protocol and life.spec.elastic):
            return None
        if "resize" not in site.policy.powers or life.record.state is not State.RUNNING:
            return None
        left = placement.without(lost)
        return left if left is not None and left.gpus >= life.spec.min_gpus else None

    def keep_off(self, life: Life, node: int, placement: Placement) -> None:
        """Wants only the workers of a job that are not on a node that is gone."""
        site, record = self._site, life.record
        members = tuple(m for m in record.members if m.node != node)
        site.seats.release(record.job)
        site.seats.restore(record.job, placement, members)
        site.lives.write(life, placement=placement, members=members)
        life.manner_s = site.now
        site.gang(life).want(self.desired(life), site.now)
        site.touch(life)

    def formed(self, life: Life, said: GangFormed) -> None:
        """Hears that all wanted workers of a job train (or those left of them)."""
        site, row, now = self._site, life.row, self._site.now
        placement = site.placement(life)
        gang = site.gang(life)
        if placement is None or gang.roster.wanted is None:
            return
        life.manner_s, record = now, life.record
        site.lives.write(life, generation=gang.roster.generation)
        rate = site.speed(row, placement)
        if life.record.state is State.CONFIGURING:
            site.lives.step(life, Step.STARTED)
        if life.running_s == NEVER_S:
            if not life.uses_train_protocol:
                # It begins anew, and what it ran before is lost: its limit is for this run.
                site.lives.write(life, ran_s=0.0)
            life.running_s = now
            self._limit(life)
        if life.record.detail and not life.mend:
            # What befell a worker is over: another has its place.
            site.lives.write(life, detail="")
        whole = gang.roster.target is None or set(gang.roster.target.members) == set(
            gang.roster.wanted.numbers
        )
        if gang.roster.first.spoke and not (record.spoke or life.spec.paced):
            site.lives.write(life, spoke=True)
        if life.starting and gang.roster.first.one_first and gang.roster.first.spoke and not whole:
            # Its first worker trains alone until the others have come: no measure of its GPUs.
            return
        if life.starting:
            life.starting = False
            site.state.measure(row, life.placed_done_s, rate)
            site.facts.append(Measured(now, row, life.placed_done_s, rate))
        elif whole and rate != site.state.rate[row]:
            site.state.switch(row, rate, 0.0)
            site.facts.append(Switched(now, row, rate, site.state.since_s[row]))

    def began(self, life: Life) -> None:
        """Counts the time of a job with a range of GPUs from the start of its first program.

        An ordinary program never makes a training job, and its time limit must end it all the same.
        """
        gang = self._site.gang(life)
        if (
            life.is_placed
            and life.running_s == NEVER_S
            and gang.roster.first.one_first
            and gang.roster.has_begun
        ):
            life.running_s = self._site.now
            self._limit(life)

    def unspoken(self, life: Life) -> None:
        """Hears that the first worker may be an ordinary program: the job runs, with that one."""
        if life.is_placed:
            self.formed(life, GangFormed(self._site.gang(life).roster.generation))
            asked = f"{life.spec.min_gpus}..{life.spec.max_gpus} GPUs"
            said = f"it asked for {asked} and has made no dovetail.train.Job yet: it runs on 1"
            self._site.lives.write(life, detail=said)

    def _limit(self, life: Life) -> None:
        site, spec = self._site, life.spec
        due = site.now + max(0.0, spec.time_limit_s - life.record.ran_s)
        site.timers.set(("limit", life.record.job), due)

"""How jobs stop and end: by themselves, by their owner, by a limit, or by what befell them.

The tables give a job's GPUs back at once; its record is COMPLETING until its last worker is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dovetail.core.beliefs import Neighbour
from dovetail.core.messages import Ended, Measured, Stopped, Submitted
from dovetail.core.trace import CANCELLED, COMPLETED, ENDS, FAILED, TIMEOUT
from dovetail.core.units import NEVER_S
from dovetail.live.controller.live_jobs import Life
from dovetail.live.controller.site import Site, list_of
from dovetail.live.jobs.lifecycle import ENDINGS, State, Step
from dovetail.live.jobs.record import GangMember
from dovetail.live.node.launcher import NEVER_RUNS
from dovetail.live.workers.gang_events import WorkerDied
from dovetail.live.workers.roster import END, SAVE, WAIT
from dovetail.wire.agent import Forget

HOW = {
    Step.FINISHED: ENDS[COMPLETED],
    Step.CANCELLED: ENDS[CANCELLED],
    Step.TIMED_OUT: ENDS[TIMEOUT],
    Step.DEADLINE: ENDS[TIMEOUT],
}
"""How the log and the forecast call an ending; all others failed."""
RETRIED = {"NodeFail": Step.NODE_FAILED, "OutOfMemory": Step.OUT_OF_MEMORY}
"""How a job ends that is not tried again, by the reason; all others failed."""
OUTSIDE = (-9, -15)
"""Signals that a program does not send itself: what they end is tried again."""
STATELESS = 4
"""How a program of `dovetail.train` ends that has lost its state; a fresh start mends it."""
NO_ROOM = 5
"""And one that found no room on its GPU."""
ALIVE = (State.PENDING, State.CONFIGURING, State.RUNNING)
"""The states of a job that can still end."""
NEARLY = 0.9
"""A job that ends well with less done than this part of its work stopped early, as it may."""
SIGNALLED = "RaisedSignal"
"""Slurm's word for a program that a signal ended."""
NO_JOB = "NoTrainJob"
"""Why a job that completed did not use the GPUs it had."""
MEMORY = "memory"
"""What an agent says that killed a worker over its memory."""
PARTED = "pairing undone"
"""Why a guest was stopped that was never to share, had the belief been right."""
CROWDED = "out of memory beside another"
"""Why a job was stopped that its neighbours had left too little room."""


class Endings:
    """Ends and stops jobs; `over` gathers those that are over for good."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.over: list[Life] = []

    def forget(self, node: int, job: int, worker: int) -> None:
        """Lets an agent forget a worker that no record needs any more."""
        self._site.letters.append((node, Forget(job, worker)))

    # Ends.

    def end(
        self, life: Life, step: Step, *, reason: str = "", detail: str = "", code: int | None = None
    ) -> None:
        """Ends a job, whatever it does; once only."""
        if life.record.state not in ALIVE:
            return
        site, row, now = self._site, life.row, self._site.now
        placement = site.placement(life)
        touched = site.sharers(placement) - {row} if placement is not None else set()
        if step is Step.FINISHED:
            self._book_all(life)
            reason, detail = _unused(life)
        self._take_out(life)
        called = HOW.get(step, ENDS[FAILED])
        site.state.forecast.ended(row, site.state.done[row], called, now)
        site.meter.ended(row)
        site.facts.append(Ended(now, row, called))
        site.lives.step(
            life,
            step,
            ending=ENDINGS[step],
            reason=reason,
            detail=detail,
            exit_code=code,
            placement=None,
            end_s=now,
        )
        self._leave(life)
        site.retime(sorted(touched))
        if life.gang is not None:
            how = WAIT if step is Step.FINISHED else END
            life.gang.roster.vacate(now, life.spec.grace_s, how)
            site.touch(life)
        if life.gang is None or (site.settled and not life.gang.roster.workers):
            self._conclude(life)

    def _book_all(self, life: Life) -> None:
        """Books the work of a job that finished as done: its last report was made before that."""
        site, state, row = self._site, self._site.state, life.row
        work_s = life.spec.duration_s if life.spec.paced else site.meter.length_s(row)
        done_s = state.done_s((row,))[0]
        if not work_s or done_s == work_s or (done_s < NEARLY * work_s and not life.spec.paced):
            return
        if site.placement(life) is None or life.starting:
            state.done[row] = work_s
            return
        state.measure(row, work_s, state.rate[row])
        site.facts.append(Measured(site.now, row, work_s, state.rate[row]))

    def _take_out(self, life: Life) -> None:
        """Takes a job out of the tables; the log must have let it wait before."""
        site, row = self._site, life.row
        if site.placement(life) is None and row not in site.state.waiting:
            site.state.arrive(row)
            site.facts.append(Submitted(site.now, row, site.state.length[row]))
        site.state.end(row)
        list_of(site.changes.ended).append(row)

    def _leave(self, life: Life) -> None:
        """Forgets what only a job with GPUs has."""
        site, job = self._site, life.record.job
        site.seats.release(job)
        life.mend, life.trained = (), None
        site.lives.write(life, members=(), ran_s=_ran_s(life, site.now))
        life.running_s = NEVER_S
        for name in ("limit", "mend"):
            site.timers.drop((name, job))

    def vacated(self, life: Life) -> None:
        """Hears that the last worker of a job is gone."""
        if life.record.state is State.COMPLETING:
            self._conclude(life)

    def _conclude(self, life: Life) -> None:
        site = self._site
        site.lives.step(life, Step.VACATED, end_s=site.now)
        for name in ("deadline", "begin", "gang"):
            site.timers.drop((name, life.record.job))
        self.over.append(life)

    # Stops.

    def stop(self, life: Life, why: str, *, saves: bool = False) -> None:
        """Takes a job off its GPUs against the policy's will; it waits again.

        Unless it `saves` now it goes on from what it saved last; a clock forgets nothing.
        """
        site, row = self._site, life.row
        if not (saves or life.spec.paced):
            site.state.settle(row)
            saved_s = life.record.saved_s if life.uses_train_protocol else 0.0
            site.state.done[row] = min(site.state.done[row], saved_s)
        site.state.evict(row)
        site.facts.append(Stopped(site.now, row, why, site.state.done[row]))
        list_of(site.changes.evicted).append(row)
        site.lives.step(life, Step.STOPPED, placement=None)
        self._leave(life)

    def retry(
        self,
        life: Life,
        reason: str,
        detail: str,
        *,
        code: int | None = None,
        is_counted: bool = False,
    ) -> None:
        """Lets a job that was stopped wait a while, or ends it if it has been retried enough.

        What `is_counted` follows from a failure that used up a retry already.
        """
        site, record, spec = self._site, life.record, life.spec
        if not spec.requeue or (record.retries >= spec.retries and not is_counted):
            step = RETRIED.get(reason, Step.FAILED)
            tried = (
                f"{detail}; it was tried {record.retries + 1} times" if record.retries else detail
            )
            self.end(life, step, reason=reason, detail=tried, code=code)
            return
        tries = record.retries + (not is_counted)
        until = site.now + site.rules.backoff(tries)
        site.lives.write(life, retries=tries, not_before_s=until, reason="BeginTime", detail=detail)
        site.withdraw(life)
        site.timers.set(("begin", record.job), until)

    def requeue(self, life: Life, why: str, grace_s: float, how: str = END) -> None:
        """Stops a placed job and ends its workers; it waits again."""
        site = self._site
        placement = site.placement(life)
        assert placement is not None
        touched = site.sharers(placement) - {life.row}
        self.stop(life, why, saves=life.uses_train_protocol and how == SAVE)
        gang = site.gang(life)
        gang.roster.vacate(site.now, grace_s, how)
        site.touch(life)
        site.retime(sorted(touched))

    # What befalls workers.

    def died(self, life: Life, deaths: Sequence[WorkerDied]) -> None:
        """Decides what follows from the deaths of one instant: go on with the rest, retry, end."""
        first = next((d for d in deaths if _ran_out(life, d)), deaths[0])
        no_room = _ran_out(life, first)
        if no_room and self._part(life, first):
            return
        gang = self._site.gang(life)
        dead = {d.worker for d in deaths}
        waiting = {*dead, *life.mend}
        left = [m.worker for m in life.record.members if m.worker not in waiting]
        alive = any(number in gang.roster.workers for number in left)
        # One fault of NCCL or of a node ends workers one after the other: it is one failure.
        is_counted = bool(life.mend)
        if (
            life.uses_train_protocol
            and alive
            and (is_counted or life.record.retries < life.spec.retries)
        ):
            self._go_on(life, left, _words(first))
            return
        detail = _words(first)
        if first.why and first.exit_code in NEVER_RUNS:
            said = f"it could not be executed: {first.why}"
            code = first.exit_code
            self.end(life, Step.FAILED, reason="JobLaunchFailure", detail=said, code=code)
            return
        stateless = life.spec.trains and first.exit_code == STATELESS
        # Also who is bound still, though those are leaving who shared with it.
        crowded = no_room and bool(self._neighbours(life) or gang.roster.bound)
        foreign = first.why or stateless or crowded or first.exit_code in OUTSIDE
        resumes = life.spec.trains and life.record.has_newer_checkpoint
        reason = _reason(first, no_room=no_room, stateless=stateless)
        if resumes or (foreign and (crowded or not no_room)):
            if resumes:
                detail = f"{detail}, after the checkpoint of step {life.record.saved_step}"
            self.requeue(life, "failed", life.spec.grace_s)
            self.retry(life, reason, detail, code=first.exit_code, is_counted=is_counted)
        else:
            step = RETRIED.get(reason, Step.FAILED)
            self.end(life, step, reason=reason, detail=detail, code=first.exit_code)

    def _part(self, life: Life, death: WorkerDied) -> bool:
        """Undoes a pairing that left a job too little memory; tells whether it was that.

        It waits again by no fault of its own, so that no retry counts; and cut as they are, the
        two are not believed to fit together any more, so that it cannot happen again and again.
        """
        site, row, spec = self._site, life.row, life.spec
        placement, seat = site.placement(life), _seat_of(life, death.worker)
        if placement is None or seat is None or not spec.requeue:
            return False
        neighbours = self._neighbours(life)
        there = [site.lives.get(job) for job in site.seats.on.get((seat.node, seat.gpu), {})]
        rows = {other.row for other in there if other is not None}
        # Where it has its GPU to itself the bound is that of its others, which are shared.
        neighbours = tuple(n for n in neighbours if n[0] in rows) or neighbours
        memory = site.state.view.cluster.group_of(seat.node).gpu_memory_bytes
        if not (neighbours and site.meter.ran_out(row, placement, neighbours, memory)):
            return False
        site.learn(news=True)
        others = [site.lives.of_row(other) for other, _ in neighbours]
        jobs = ", ".join(other.spec.called(other.record.job) for other in others)
        steps = placement.accumulation_steps
        cut = f", its batch cut into {steps} steps" if steps > 1 else ""
        self.requeue(life, CROWDED, spec.grace_s)
        site.lives.write(life, detail=f"{CROWDED}: job {jobs}{cut} ({_words(death)})")
        return True

    def _neighbours(self, life: Life) -> tuple[Neighbour, ...]:
        """Returns who shares GPUs with a job, and so leaves it less memory than alone."""
        placement = self._site.placement(life)
        return () if placement is None else self._site.neighbours(life.row, placement)

    def _go_on(self, life: Life, left: Sequence[int], detail: str) -> None:
        """Lets the survivors train on; in a while the lost ones are started under new numbers."""
        site, record = self._site, life.record
        gang = site.gang(life)
        wanted = gang.roster.wanted
        assert wanted is not None
        members = tuple(m for m in wanted.members if m.worker in left)
        gang.want(
            replace(wanted, members=members, shares=(), config=replace(wanted.config, samples=())),
            site.now,
        )
        tries = record.retries + (not life.mend)
        renumbered, number = [], record.next_worker
        for member in record.members:
            if member.worker not in left:
                member, number = GangMember(number, member.node, member.gpu), number + 1
            renumbered.append(member)
        life.mend = tuple(m.worker for m in renumbered if m.worker not in left)
        site.seats.renumber(record.job, renumbered)
        site.lives.write(
            life,
            retries=tries,
            detail=detail,
            members=tuple(renumbered),
            next_worker=number,
        )
        site.timers.set(("mend", record.job), site.now + site.rules.backoff(tries))
        site.touch(life)

    def lost(self, life: Life, absent: Sequence[int]) -> None:
        """Starts a job anew of which a new controller does not find all workers again."""
        numbers = ", ".join(map(str, absent))
        workers = f"worker {numbers} was" if len(absent) == 1 else f"workers {numbers} were"
        self.requeue(life, "failed", life.spec.grace_s)
        self.retry(life, "JobLaunchFailure", f"{workers} not there when the controller came back")

    def stalled(self, life: Life, silent_s: float) -> None:
        """Starts a job anew that has said nothing for too long."""
        if life.is_placed:
            self.requeue(life, "failed", 0.0)
            self.retry(life, "JobLaunchFailure", f"it said nothing for {silent_s:.0f} s")


def _unused(life: Life) -> tuple[str, str]:
    """Returns the reason and the words for a job that had GPUs which its program could not use."""
    spec, gang = life.spec, life.gang
    spoke = life.record.spoke or (gang is not None and gang.roster.first.heard)
    if spoke or not (spec.trains and spec.max_gpus > 1):
        return "", ""
    if spec.elastic:
        asked, ran = f"{spec.min_gpus}..{spec.max_gpus}", "it ran on 1"
    else:
        asked, ran = str(spec.gpus), "its program ran whole on each of them"
    return NO_JOB, f"it asked for {asked} GPUs but never made a dovetail.train.Job; {ran}"


def _ran_s(life: Life, now: float) -> float:
    return life.record.ran_s + (now - life.running_s if life.running_s < now else 0.0)


def _seat_of(life: Life, worker: int) -> GangMember | None:
    return next((m for m in life.record.members if m.worker == worker), None)


def _ran_out(life: Life, death: WorkerDied) -> bool:
    """Tells whether a worker found no room, on its GPU or within the bound of its slot."""
    return MEMORY in death.why or (life.spec.trains and death.exit_code == NO_ROOM)


def _reason(death: WorkerDied, *, no_room: bool, stateless: bool) -> str:
    """Returns Slurm's word for how a worker ended."""
    if no_room:
        return "OutOfMemory"
    if death.why or stateless:
        return "JobLaunchFailure"
    return SIGNALLED if death.exit_code < 0 else "NonZeroExitCode"


def _words(death: WorkerDied) -> str:
    how = f"signal {-death.exit_code}" if death.exit_code < 0 else f"exit code {death.exit_code}"
    why = f": {death.why}" if death.why else ""
    return f"worker {death.worker} ended with {how}{why}"

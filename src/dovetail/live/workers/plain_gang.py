"""A gang of ordinary processes: it starts whole, and is done when each process has exited well.

It knows no training protocol: what its processes do is seen by their starts and ends alone. Any
change of its workers ends the gang and starts it anew.
"""

from __future__ import annotations

from signal import SIGKILL

from dovetail.core.units import NEVER_S
from dovetail.live.workers.failure_detector import ReachedSince
from dovetail.live.workers.gang_events import LeavingTimeout
from dovetail.live.workers.rendezvous_address import RendezvousAddress
from dovetail.live.workers.roster import END, HasRoom, IsFree, Roster
from dovetail.live.workers.worker_state import Desired, Worker
from dovetail.wire.agent import WorkerEnded, WorkerReport


class PlainGang:
    """Decides about the processes of one job, in its `roster`."""

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self._exceeded = -1

    # What the plan wants.

    def want(self, desired: Desired, now: float) -> None:
        """Takes what the plan wants now; `step` works towards it."""
        roster = self.roster
        roster.wanted = desired
        if roster.is_leaving:
            return
        stale = roster.target is not None and roster.target.members != desired.numbers
        if stale or (roster.workers.keys() | roster.complete) - set(desired.numbers):
            # Running processes know the ranks they began with: a change takes a fresh start.
            roster.leave(now, roster.launch.grace_s, END)

    # What is reported.

    def ended(self, node: int, end: WorkerEnded, now: float) -> None:
        """Records that a worker is gone."""
        roster = self.roster
        worker = roster.remove(end)
        if worker is None and roster.is_wanted(end.worker) and end.exit_code == 0:
            # An inventory repeats the end of a process that an earlier controller started.
            roster.complete.add(end.worker)
        elif worker is not None and not self._leaves(end.worker):
            roster.record_end(worker, end)
        elif self._did_its_part(end):
            roster.complete.add(end.worker)
        elif worker is not None and end.exit_code == -SIGKILL and end.asked:
            self._note_kill()
        if roster.complete and set(roster.group) <= roster.complete:
            roster.finish()
        roster.release_end(node, end.worker)

    def _leaves(self, number: int) -> bool:
        """Returns whether a worker is to leave: with all others, or as one of an earlier start."""
        roster = self.roster
        return roster.is_leaving or (number in roster.group and not roster.is_wanted(number))

    def _note_kill(self) -> None:
        """Reports, once for each leaving, that processes outlived their grace."""
        roster = self.roster
        if roster.grace_s > 0 and self._exceeded < roster.generation:
            self._exceeded = roster.generation
            roster.events.append(LeavingTimeout())

    def _did_its_part(self, end: WorkerEnded) -> bool:
        """Returns whether a process that was to leave had ended well by itself just before."""
        well = end.exit_code == 0 and end.worker in self.roster.group
        return well and (bool(self.roster.complete) or not end.asked)

    def receive(self, report: WorkerReport, now: float, *, fresh: bool = True) -> None:
        """Notes that a worker lives: a plain process has no other message to send."""
        worker = self.roster.workers.get(report.worker)
        if worker is not None:
            worker.alive = True

    def trains_on(self, report: WorkerReport) -> bool:
        """Returns False: a plain process sends no report of its training."""
        return False

    @property
    def is_steady(self) -> bool:
        """Returns whether all wanted processes run."""
        roster, wanted = self.roster, self.roster.wanted
        if wanted is None or roster.is_leaving or roster.is_finished:
            return False
        is_formed = roster.target is not None and roster.formed == roster.generation
        workers = roster.workers
        is_whole = workers.keys() | roster.complete == set(wanted.numbers)
        return is_formed and is_whole and all(w.alive and w.stays for w in workers.values())

    def lose(self, node: int) -> None:
        """Removes the workers on a node that is down; there will be no report of their end."""
        self.roster.lose(node)

    # After a restart of the controller.

    def restore(self, desired: Desired | None, group: tuple[int, ...], *, ran: bool) -> None:
        """Takes up what an earlier controller wanted. Inventories follow, then `find_missing`."""
        self.roster.restore(desired, group, ran=ran)

    def adopt(self, worker: Worker, now: float) -> None:
        """Takes up a worker of an earlier controller, and ends one that is not wanted."""
        if not self.roster.is_wanted(worker.worker):
            worker.end_by(now, self.roster.grace_s)

    def find_missing(self, now: float) -> tuple[int, ...]:
        """Returns the wanted workers that no inventory lists, nor ever will.

        Ranks that were never started are not among them: they are started now.
        """
        roster, wanted = self.roster, self.roster.wanted
        if wanted is None or roster.is_leaving or roster.is_finished:
            return ()
        roster.heard_s = now
        known = roster.workers.keys() | roster.gone
        if roster.group and (known | set(roster.group)).isdisjoint(wanted.numbers):
            # The change from those to these was under way: these were not started yet.
            roster.is_leaving = True
            return ()
        absent = roster.absent(wanted)
        fills = bool(absent) and self._can_be_filled(wanted)
        if fills or (roster.group and not absent):
            roster.target = wanted.regroup(roster.generation, roster.group)
        return () if fills else absent

    def _can_be_filled(self, wanted: Desired) -> bool:
        """Returns whether the running ranks wait for others whose start was lost.

        To them that is no more than a late order, which any gang may see: the ranks have the same
        generation and meet at the same place. Not so where all ran once, for then the others are
        lost, or where a rank that began ended badly. Nor where a backup was put back: then the
        next order is of a later generation than they know.
        """
        roster = self.roster
        if roster.formed == roster.generation or set(roster.group) != set(wanted.numbers):
            return False
        if any(w.limits_confirmed != roster.generation for w in roster.workers.values()):
            return False
        began = roster.begun.intersection(roster.group)
        return bool(began) and began <= roster.workers.keys() | roster.complete

    def has_lost_run(self) -> bool:
        """Returns whether a program that began is lost with workers that are not there."""
        roster = self.roster
        if roster.wanted is None or roster.is_leaving or roster.is_finished:
            return False
        ordered = set(roster.group) == set(roster.wanted.numbers)
        return roster.has_begun or (ordered and roster.formed == roster.generation)

    # What is decided.

    def step(self, now: float, is_free: IsFree, reached: ReachedSince, has_room: HasRoom) -> None:
        """Decides what happens next; call it after all reports of an instant."""
        roster = self.roster
        if roster.is_leaving:
            if roster.workers:
                return
            roster.clear()
        wanted = roster.wanted
        if wanted is None or roster.is_finished:
            return
        roster.update_bound(wanted.memory_bytes, has_room)
        if not roster.workers and not roster.complete and roster.target is None:
            if all(is_free(m.node, m.gpu) for m in wanted.members):
                roster.start_workers(wanted, wanted.numbers, now)
                roster.begin_generation(wanted.regroup(roster.generation, wanted.numbers))
                roster.master = RendezvousAddress(roster.generation)
            return
        self._complete_start(wanted, now, is_free)
        self._update_limits(wanted)
        self._form_if_running(wanted)

    def _complete_start(self, wanted: Desired, now: float, is_free: IsFree) -> None:
        """Starts ranks whose order was lost together with the controller that gave it."""
        roster = self.roster
        if roster.target is None or roster.formed >= roster.generation:
            return
        known = roster.workers.keys() | roster.complete | roster.gone
        blocked = {m.worker for m in wanted.members if not is_free(m.node, m.gpu)}
        roster.start_workers(wanted, [n for n in wanted.numbers if n not in known | blocked], now)

    def _update_limits(self, wanted: Desired) -> None:
        """Changes the limits of running processes."""
        roster = self.roster
        # While ranks are missing nothing may change: they are started as the others were.
        if roster.formed == roster.generation and roster.update_shares(wanted):
            roster.begin_generation(wanted.regroup(roster.generation, wanted.numbers))
            roster.formed = roster.generation

    def _form_if_running(self, wanted: Desired) -> None:
        roster = self.roster
        present = [roster.workers.get(n) for n in wanted.numbers if n not in roster.complete]
        if roster.formed < roster.generation and all(w is not None and w.alive for w in present):
            roster.form(roster.generation)

    def next_s(self, now: float) -> float:
        """Returns NEVER: a plain gang acts on reports alone."""
        return NEVER_S

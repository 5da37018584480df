"""A job with a range of GPUs starts with one worker, until its program has made its training job.

Before that, nothing distinguishes a program that uses `dovetail.train` from an ordinary one, and an
ordinary program that is started on each GPU would run several times over the same files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dovetail.core.units import NEVER_S
from dovetail.live.workers.worker_state import Desired, Worker
from dovetail.wire.agent import WorkerReport


@dataclass(slots=True)
class FirstWorker:
    """Decides how many workers of an elastic gang are started; `spoke` once one has trained.

    With `one_first` the others wait for the first. It trains `alone` until they come, or waits for
    them where the job takes no fewer GPUs. `heard` once a worker sent a message that only a
    training job sends; `unspoken` is the worker that was silent for so long that it is taken for an
    ordinary program.
    """

    one_first: bool = False
    alone: bool = True
    spoke: bool = True
    heard: bool = False
    unspoken: int = -1
    _starts_all: bool = False

    def update(self, wanted: Desired, workers: Mapping[int, Worker]) -> None:
        """Decides whether the other workers may be started now."""
        there = [w for w in workers.values() if w.stays]
        # Several are there only if they were started before, as by an earlier controller.
        several = sum(w.worker in wanted.numbers for w in there) > 1
        self.spoke = self.spoke or several or any(w.entered >= 0 for w in workers.values())
        # The first member hosts the meeting of all: without it the others wait in vain.
        stray = any(n in workers for n in wanted.numbers[1:]) and wanted.numbers[0] not in workers
        waits_for_others = not self.alone and (
            stray or any(w.first_message_s < NEVER_S for w in there)
        )
        self._starts_all = not self.one_first or self.spoke or waits_for_others

    def desired(self, wanted: Desired, workers: Mapping[int, Worker]) -> Desired:
        """Returns what a generation is to have now: all wanted workers, or the first alone."""
        if self._starts_all or not self.alone:
            return wanted
        there = [n for n in wanted.numbers if n in workers and workers[n].stays]
        lead = (there or wanted.numbers)[0]
        members = tuple(m for m in wanted.members if m.worker == lead)
        shares = (wanted.share(lead),) if wanted.shares else ()
        return replace(wanted, members=members, shares=shares, samples=())

    def startable(self, wanted: Desired) -> tuple[int, ...]:
        """Returns the numbers of the workers that may be started now."""
        return wanted.numbers if self._starts_all else wanted.numbers[:1]

    def is_silent(self, workers: Mapping[int, Worker]) -> bool:
        """Returns whether the only worker has made no training job, and may never make one."""
        silent = all(w.first_message_s == NEVER_S for w in workers.values())
        return self.one_first and not self.spoke and silent

    def unspoken_at_s(self, workers: Mapping[int, Worker], silent_s: float) -> float:
        """Returns when a silent worker is to be taken for an ordinary program, NEVER_S if not."""
        if not self.is_silent(workers):
            return NEVER_S
        due = [w.since_s + silent_s for w in workers.values() if w.alive and w.stays]
        return max(due) if due and self.unspoken not in workers else NEVER_S


def shows_train_job(report: WorkerReport) -> bool:
    """Returns whether only a program that has made its training job sends such a report."""
    r = report
    return any((r.meeting, r.ready, r.entered, r.training, r.saved, r.finished))

"""A job with a range of GPUs starts with one worker, until its program has made its training job.

Nobody can tell an ordinary program from one that is written with `dovetail.train` before that:
started on each GPU, an ordinary one would run several times over the same files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dovetail.live.workers.worker_state import NEVER, Desired, Worker


@dataclass(slots=True)
class FirstWorker:
    """Decides how many workers of an elastic gang are started; `spoke` once one has trained.

    With `one_first` the others wait for the first. It trains `alone` until they come, or waits
    for them where the job takes no fewer GPUs. `heard` once any worker said anything; `unspoken`
    is the one that was silent for so long that it is taken for an ordinary program.
    """

    one_first: bool = False
    alone: bool = True
    spoke: bool = True
    heard: bool = False
    unspoken: int = -1
    _calls_all: bool = False

    def listen(self, wanted: Desired, workers: Mapping[int, Worker]) -> None:
        """Takes note of whether the others may be started now."""
        there = [w for w in workers.values() if w.stays]
        # Several were called before: by an earlier controller, perhaps.
        several = sum(w.worker in wanted.numbers for w in there) > 1
        self.spoke = self.spoke or several or any(w.entered >= 0 for w in workers.values())
        # The generation of all meets where its first member says: that one must be there.
        stray = any(n in workers for n in wanted.numbers[1:]) and wanted.numbers[0] not in workers
        waits_for_others = not self.alone and (
            stray or any(w.first_message_s < NEVER for w in there)
        )
        self._calls_all = not self.one_first or self.spoke or waits_for_others

    def desired(self, wanted: Desired, workers: Mapping[int, Worker]) -> Desired:
        """Returns whom a generation is to have now: all that are wanted, or the first alone."""
        if self._calls_all or not self.alone:
            return wanted
        there = [n for n in wanted.numbers if n in workers and workers[n].stays]
        lead = (there or wanted.numbers)[0]
        members = tuple(m for m in wanted.members if m.worker == lead)
        shares = (wanted.share(lead),) if wanted.shares else ()
        return replace(
            wanted, members=members, shares=shares, config=replace(wanted.config, samples=())
        )

    def startable(self, wanted: Desired) -> tuple[int, ...]:
        """Returns the numbers of the workers that may be started now."""
        return wanted.numbers if self._calls_all else wanted.numbers[:1]

    def is_silent(self, workers: Mapping[int, Worker]) -> bool:
        """Tells whether the only worker has not made its job, and may be an ordinary program."""
        silent = all(w.first_message_s == NEVER for w in workers.values())
        return self.one_first and not self.spoke and silent

    def unspoken_at_s(self, workers: Mapping[int, Worker], silent_s: float) -> float:
        """Returns when a silent worker is to be taken for an ordinary program, NEVER if not."""
        if not self.is_silent(workers):
            return NEVER
        due = [w.since_s + silent_s for w in workers.values() if w.alive and w.stays]
        return max(due) if due and self.unspoken not in workers else NEVER

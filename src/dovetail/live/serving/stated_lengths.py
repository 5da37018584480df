"""The lengths that owners state for their jobs: the forecast of a live cluster goes by them."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.live.edges.protocols import Incoming, StoredState
from dovetail.live.jobs.stored_job import StoredJob


class StatedLengths:
    """The length that the owner of each job states, by its number; 0 for none.

    Lengths of new jobs are noted on their way to the controller, so that nothing is read for them
    while others submit. `find` looks up a job that was over when the controller started.
    """

    def __init__(self, recovered: StoredState, find: Callable[[int], StoredJob | None]) -> None:
        self._find = find
        self._stated_s = {str(job.number): job.spec.duration_s for job in recovered.jobs}
        for accepted in recovered.accepted:
            self.hear(accepted)

    def hear(self, incoming: Incoming) -> None:
        """Notes the length of a job that was submitted."""
        if isinstance(incoming, StoredJob):
            self._stated_s[str(incoming.number)] = incoming.spec.duration_s

    def __call__(self, job: str) -> float:
        """Returns the length of a job."""
        if job not in self._stated_s:
            stored = self._find(int(job))
            self._stated_s[job] = 0.0 if stored is None else stored.spec.duration_s
        return self._stated_s[job]

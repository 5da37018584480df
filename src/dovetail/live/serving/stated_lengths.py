"""How long the owners of jobs said that these are: what the forecast of a live cluster goes by."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.live.edges.protocols import Accepted, Incoming
from dovetail.live.jobs.record import JobRecord
from dovetail.live.store.recovered import Recovered
from dovetail.wire.spec import JobSpec


class SaidLengths:
    """The length that each owner declared, by the number of the job; 0 where nothing was said.

    Those of jobs that come are heard on their way to the controller, so that nothing must be read
    for them while others submit; `find` is asked for a job that was over when it began.
    """

    def __init__(
        self, recovered: Recovered, find: Callable[[int], tuple[JobSpec, JobRecord] | None]
    ) -> None:
        self._find = find
        self._said_s = {str(r.job): spec.duration_s for spec, r in recovered.jobs}
        for accepted in recovered.accepted:
            self.hear(accepted)

    def hear(self, incoming: Incoming) -> None:
        """Hears of a job that was accepted."""
        if isinstance(incoming, Accepted):
            self._said_s[str(incoming.job)] = incoming.spec.duration_s

    def __call__(self, job: str) -> float:
        """Returns the length of a job."""
        if job not in self._said_s:
            found = self._find(int(job))
            self._said_s[job] = 0.0 if found is None else found[0].duration_s
        return self._said_s[job]

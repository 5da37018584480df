"""A job that a node failed is tried elsewhere: its next placement leaves the node out.

The ban is soft: it gives way if the nodes that are up could not hold the job without that node, and
after a minute in the queue, as others may wait behind the job. It lasts for one placement. Policies
see it as they see types of GPU: in the shape of the job.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from dovetail.core.cluster import Cluster
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.recorded_tables import RecordedTables

AVOIDED_S = 60.0
"""How long a job waits in the queue for other nodes than those that failed it."""


@dataclass(slots=True)
class NodeFilter:
    """Keeps jobs off the nodes that failed them."""

    jobs: LiveJobs
    tables: RecordedTables
    _cluster: Cluster | None = field(default=None, init=False)
    """The cluster in which no job avoids too much."""

    def blame(self, job: LiveJob, nodes: Iterable[int]) -> None:
        """Notes the nodes that failed a job, before it waits for its next try."""
        avoided = tuple(sorted(set(nodes)))
        if avoided != job.record.avoided:
            self.jobs.write(job, replace(job.record, avoided=avoided))

    def heed(self, job: LiveJob) -> None:
        """Shows the policies what a job avoids, as it joins the queue."""
        avoided = job.record.avoided
        if avoided or job.row in self.tables.state.avoided:
            self.tables.avoid(job.row, avoided if self._can(job.row, avoided) else ())

    def settle(self) -> None:
        """Gives way where no other node is left that could hold a waiting job."""
        state = self.tables.state
        if not state.avoided:
            return
        is_new, self._cluster = state.view.cluster is not self._cluster, state.view.cluster
        for row, nodes in sorted(state.avoided.items()):
            if row not in state.waiting:
                continue
            waited_s = state.now - state.pending_s[row]
            if waited_s >= AVOIDED_S or (is_new and not self._can(row, nodes)):
                self.tables.withdraw(row)
                self.tables.avoid(row, ())
                self.tables.arrive(row)

    def _can(self, row: int, avoided: tuple[int, ...]) -> bool:
        """Returns whether a job could start without some nodes, if nothing ran on the others."""
        view, occupancy = self.tables.state.view, self.tables.state.plan.occupancy
        shape = occupancy.shape(row, avoided)
        return view.placing.find(occupancy.emptied(), shape) is not None

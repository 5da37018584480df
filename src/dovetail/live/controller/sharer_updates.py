"""What changes for the jobs that share GPUs with one that came, left, moved or shrank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dovetail.live.controller.gpu_map import GpuMap
from dovetail.live.controller.live_gangs import LiveGangs
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.controller.recorded_tables import RecordedTables


class SharerUpdates:
    """Gives jobs whose neighbours changed a new speed in the tables and a new memory bound."""

    def __init__(
        self, jobs: LiveJobs, gangs: LiveGangs, tables: RecordedTables, gpus: GpuMap
    ) -> None:
        self._jobs = jobs
        self._gangs = gangs
        self._tables = tables
        self._gpus = gpus

    def apply(self, rows: Iterable[int]) -> None:
        """Updates the jobs of some rows, those that are placed."""
        for row in sorted(rows):
            placement = self._tables.placement(row)
            if placement is None:
                continue
            job = self._jobs.of_row(row)
            # Reports from before this instant no longer tell how fast it is.
            job.unchanged_s = self._tables.now
            self._update_bound(job)
            self._tables.retime(row, self._gpus.speed(row, placement))

    def _update_bound(self, job: LiveJob) -> None:
        wanted = None if job.gang is None else job.gang.roster.wanted
        if wanted is None:
            return
        bound = self._gpus.bound(job)
        if wanted.memory_bytes != bound:
            gang = self._gangs.of(job)
            gang.want(replace(wanted, memory_bytes=bound), self._tables.now)
            self._gangs.touch(job)

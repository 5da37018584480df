"""Dependencies between jobs: which wait for others to start or end, and which are met."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dovetail.core.units import NEVER_S
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.edges.protocols import Archive
from dovetail.live.jobs.lifecycle import PENDING, TERMINAL, State
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.wire.spec import Dependency

DEPENDENCY, NEVER_MET = "Dependency", "DependencyNeverSatisfied"
"""Slurm's words for a job that waits for others, and for one that waits in vain."""


class JobDependencies:
    """Owns the dependencies by the job that they wait for, and the ends of such jobs."""

    def __init__(self, jobs: LiveJobs, archive: Archive) -> None:
        self._jobs = jobs
        self._archive = archive
        # By job, the numbers of those that depend on it, and in which ways.
        self._dependents: dict[int, dict[int, tuple[Dependency, ...]]] = {}
        # The archive has an end only when this instant is durable; dependents look it up at once.
        self._over: dict[int, StoredJob] = {}
        # A job that waits for an array checks all its tasks at every end of one. Ends stay, so they
        # are cached.
        self._ends: dict[int, State] = {}
        # By job, the index of the dependency that keeps it out: all before it are met.
        self._blocked: dict[int, int] = {}

    def add(self, job: LiveJob) -> None:
        """Adds the dependencies of a job."""
        by_job: dict[int, tuple[Dependency, ...]] = {}
        for dependency in job.spec.after:
            by_job[dependency.job] = (*by_job.get(dependency.job, ()), dependency)
        for number, dependencies in by_job.items():
            self._dependents.setdefault(number, {})[job.number] = dependencies

    def dependents(self, number: int) -> Iterator[LiveJob]:
        """Yields the jobs that depend on one and are not over, by number."""
        for dependent in sorted(self._dependents.get(number, ())):
            job = self._jobs.get(dependent)
            if job is not None:
                yield job

    def concerned_by(self, number: int) -> Iterator[LiveJob]:
        """Yields the dependents for which it may matter that this job started or ended."""
        for dependent, dependencies in sorted(self._dependents.get(number, {}).items()):
            job = self._jobs.get(dependent)
            if job is None:
                del self._dependents[number][dependent]
            elif self._matters(job, number, dependencies):
                yield job

    def _matters(self, job: LiveJob, number: int, dependencies: Sequence[Dependency]) -> bool:
        """Returns whether this start or end may change the obstacle of a job."""
        reason = job.record.reason
        at = self._blocked.get(job.number, -1)
        waits_for_another = at >= 0 and job.spec.after[at].job != number
        if waits_for_another and reason == NEVER_MET:
            return False
        if any(self.is_met(dependency) is None for dependency in dependencies):
            self._blocked.pop(job.number, None)
            return True
        return not (waits_for_another and reason == DEPENDENCY)

    def blocking(self, job: LiveJob) -> Dependency | None:
        """Returns the dependency that keeps a job out; rather one that can never be met."""
        after = job.spec.after
        at = self._blocked.pop(job.number, -1)
        if at < 0:
            at = next((i for i, need in enumerate(after) if self.is_met(need) is None), 0)
        while at < len(after) and self.is_met(after[at]):
            at += 1
        if at == len(after):
            return None
        self._blocked[job.number] = at
        return after[at]

    def is_met(self, dependency: Dependency) -> bool | None:
        """Returns whether a dependency is met; None if it never will be."""
        state, has_started = self._progress(dependency.job)
        if state is None:
            return None
        is_over = state in TERMINAL
        if dependency.kind == "after":
            return is_over or has_started
        if not is_over or dependency.kind == "afterany":
            return is_over
        is_well = state is State.COMPLETED
        return True if is_well == (dependency.kind == "afterok") else None

    def _progress(self, number: int) -> tuple[State | None, bool]:
        """Returns the state of a job, None if there is none, and whether it ever started."""
        if number in self._ends:
            return self._ends[number], True
        job = self._jobs.get(number) or self.find(number)
        if job is None:
            return None, False
        record = job.record
        if isinstance(job, StoredJob) and record.state in TERMINAL:
            self._ends[number] = record.state
        return record.state, record.first_start_s < NEVER_S or record.state is not PENDING

    def name(self, dependency: Dependency) -> str:
        """Returns a dependency as users write it, a task by the name that lists give it."""
        number = dependency.job
        job = self._jobs.get(number) or self.find(number)
        return f"{dependency.kind}:{number if job is None else job.spec.called(number)}"

    def find(self, number: int) -> StoredJob | None:
        """Returns a job that is over, even if it is so since this instant only."""
        return self._over.get(number) or self._archive.find(number)

    # Ends.

    def forget_blocking(self, number: int) -> None:
        """Forgets what keeps a job out."""
        self._blocked.pop(number, None)

    def ended(self, job: LiveJob) -> None:
        """Notes that a job is over for good."""
        self._over[job.number] = StoredJob(job.spec, job.record)

    def begins_anew(self, number: int) -> None:
        """Forgets the end of a job that begins anew."""
        self._over.pop(number, None)
        self._ends.pop(number, None)
        for dependent in self._dependents.get(number, ()):
            self._blocked.pop(dependent, None)

    def entry_is_durable(self) -> None:
        """Notes that the entry of this instant is on record; the archive knows its ends now."""
        self._over.clear()

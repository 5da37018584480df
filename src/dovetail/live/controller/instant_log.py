"""The changes of one instant, collected until they become one entry of the journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.control.state import ClusterState
from dovetail.core.messages import Explained, Fact, GpusChanged, Reason
from dovetail.core.replacing import replace
from dovetail.live.controller.live_jobs import LiveJob, LiveJobs
from dovetail.live.edges.protocols import JournalEntry
from dovetail.live.jobs.record import JobRecord


class InstantLog:
    """Owns the facts, answered requests and named values of the present instant."""

    def __init__(self, jobs: LiveJobs, state: ClusterState) -> None:
        self._jobs = jobs
        self._state = state
        self._facts: list[Fact] = []
        self._answered: list[int] = []
        self._meta: dict[str, str] = {}

    def fact(self, *facts: Fact) -> None:
        """Adds facts for the event log; jobs go by row until `take_entry` numbers them."""
        self._facts.extend(facts)

    def answer(self, *requests: int) -> None:
        """Marks requests of users, by sequence number, as carried out."""
        self._answered.extend(requests)

    def keep(self, name: str, text: str) -> None:
        """Adds a named value to the entry; it replaces an older one."""
        self._meta[name] = text

    def take_entry(self) -> JournalEntry:
        """Returns the changes of this instant, with changed records and jobs by number."""
        entry = JournalEntry(
            tuple(self._by_number(fact) for fact in self._facts),
            tuple(self._as_of_now(job) for job in self._jobs.take_dirty()),
            tuple(self._answered),
            tuple(sorted(self._meta.items())),
        )
        self._facts, self._answered, self._meta = [], [], {}
        return entry

    def reasons_by_number(self, reasons: Sequence[Reason]) -> tuple[Reason, ...]:
        """Returns reasons whose jobs go by number."""
        numbers = self._jobs.numbers
        return tuple(
            r._replace(
                job=numbers[r.job] if r.job >= 0 else -1,
                behind=numbers[r.behind] if r.behind >= 0 else -1,
            )
            for r in reasons
        )

    def _by_number(self, fact: Fact) -> Fact:
        if isinstance(fact, Explained):
            return Explained(fact.t, self.reasons_by_number(fact.reasons))
        if isinstance(fact, GpusChanged):
            numbers = self._jobs.numbers
            return fact._replace(staying=tuple(numbers[row] for row in fact.staying))
        row = getattr(fact, "job", None)
        if row is None:
            return fact
        # Facts are named tuples, and mypy cannot see which of them have a job.
        changed: Any = fact
        numbered: Fact = changed._replace(job=self._jobs.numbers[row])
        return numbered

    def _as_of_now(self, job: LiveJob) -> JobRecord:
        """Returns the record of a job with its progress by now."""
        state, row, now = self._state, job.row, self._state.now
        job.persisted_s = now
        # Agents refuse older generations than they have seen, so the record's never goes down.
        generation = job.gang.roster.generation if job.gang is not None else 0
        running = now - job.running_s if job.running_s < now else 0.0
        # Every record has the progress, from which a new controller extrapolates.
        job.record = record = replace(
            job.with_training(),
            generation=max(job.record.generation, generation),
            done_s=state.done_s((row,))[0],
            rate=state.rate[row],
            attained_gpu_s=state.attained_gpu_s((row,))[0],
            since_s=now,
            first_start_s=state.first_start_s[row],
            pending_s=state.pending_s[row],
            placed_s=state.placed_s[row],
            ran_s=job.record.ran_s + running,
        )
        if running:
            job.running_s = now
        return record

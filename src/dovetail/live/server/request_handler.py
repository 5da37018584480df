"""Answers requests: changes go to the intake, which stores them before the reply; the rest is read
from the store and from the last status snapshot of the controller.

Called from many threads. It never waits for the controller's loop, so a list takes as long as it
takes to read its rows, however busy the scheduler is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic, sleep
from typing import Protocol

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.jobs.lifecycle import TERMINAL
from dovetail.live.jobs.output_path import output_of
from dovetail.live.jobs.status_snapshot import SnapshotIndex, StatusSnapshot
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.server.explain import explain
from dovetail.live.server.job_pages import job_page
from dovetail.live.server.messages.changes import (
    ChangeAccepted,
    Down,
    Drain,
    JobChange,
    JobsSubmitted,
    SkippedJob,
    Submit,
)
from dovetail.live.server.messages.cluster import ListNodes, NodeList, Ping, Pong
from dovetail.live.server.messages.events import Event, History, HistoryPage
from dovetail.live.server.messages.listing import ListJobs
from dovetail.live.server.messages.one_job import JobDetails, ShowJob
from dovetail.live.server.messages.output import Logs, LogText
from dovetail.live.server.messages.reason import ExplainJob, JobExplanation
from dovetail.live.server.messages.tracking import JobState, JobStates, TrackJobs
from dovetail.live.server.output_text import OutputReader
from dovetail.live.server.requests import Question, Reply
from dovetail.live.server.rows import job_details, job_row, node_rows
from dovetail.live.store.folder import Folder
from dovetail.live.store.intake import why_not
from dovetail.live.store.queries import NO_SUCH_JOB, StoreReader
from dovetail.wire.submission import Submission

EVENTS_MAX = 5_000
FOLLOWERS_MAX = 32
FOLLOW_S = 0.1
BEAT_S = 1.0
FIRST_SNAPSHOT_S = 20.0
"""A controller that recovers many jobs, or whose nodes are silent, takes a while for its first."""


class IntakeProtocol(Protocol):
    """Accepts changes; they are durable when a method returns."""

    def submit(
        self, submissions: Sequence[Submission], *, key: str, user: str = ""
    ) -> tuple[int, ...]:
        """Returns the number of each submission."""
        ...

    def request(
        self,
        verb: str,
        *,
        jobs: Sequence[int] = (),
        node: int = -1,
        argument: str = "",
        key: str,
    ) -> tuple[int, ...]:
        """Returns the sequence numbers of the requests."""
        ...


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What never changes while the controller runs.

    `paced` is True if its nodes are clocks, which run no programs.
    """

    pong: Pong
    folder: Folder
    paced: bool = False


class RequestHandler:
    """Answers requests from the store, the last status snapshot and the intake."""

    def __init__(
        self,
        info: ServerInfo,
        intake: IntakeProtocol,
        snapshot: Callable[[], StatusSnapshot | None],
        now: Callable[[], float],
    ) -> None:
        self._info = info
        self._intake = intake
        self._snapshot = snapshot
        self._now = now
        self._seen: SnapshotIndex | None = None
        self._followers = threading.BoundedSemaphore(FOLLOWERS_MAX)

    def answer(self, question: Question, user: str) -> Iterator[Reply]:
        """Yields the reply, or the pieces of a log."""
        if isinstance(question, Submit | Drain | Down | Ping | ListNodes):
            # NOTE: opening a reader takes a millisecond, too long for a thousand submits a second.
            yield self._at_once(question, user)
            return
        with StoreReader(self._info.folder.store) as reader:
            if isinstance(question, Logs):
                with self._seat(question):
                    yield from self._logs(reader, question)
            else:
                yield self._read(reader, question)

    def _at_once(self, question: Submit | Drain | Down | Ping | ListNodes, user: str) -> Reply:
        match question:
            case Submit():
                return self._submit(question, user)
            case Drain():
                return self._drain(question)
            case Down(key, drain):
                self._intake.request("down", argument="drain" if drain else "leave", key=key)
                return ChangeAccepted()
            case Ping():
                return replace(self._info.pong, now_s=self._now())
            case ListNodes():
                return NodeList(self._now(), node_rows(self._index().picture))

    def _read(self, reader: StoreReader, question: Question) -> Reply:
        match question:
            case JobChange():
                return self._change(reader, question)
            case ListJobs():
                return job_page(reader, question, self._index(), self._now())
            case ShowJob(job):
                return self._show(reader, job)
            case TrackJobs(jobs):
                return self._track(reader, jobs)
            case ExplainJob(job):
                return self._explain(reader, job)
            case History():
                return self._history(reader, question)
        raise DovetailError(f"no answer to {type(question).__name__}")

    def _submit(self, asked: Submit, user: str) -> JobsSubmitted:
        for submission in asked.submissions:
            spec = submission.spec
            if spec.paced and not self._info.paced:
                raise InputError(
                    f"job '{spec.name}'",
                    "a paced job needs an emulated cluster",
                    "dovetail up --engine emulated:4x4",
                )
            if self._info.paced and not spec.paced:
                raise InputError(
                    f"job '{spec.name}'",
                    "emulated nodes run no programs",
                    "give paced: true and duration, or start with --engine local",
                )
        # The owner of a job is the user that the kernel reports, never one that a file names.
        return JobsSubmitted(self._intake.submit(asked.submissions, key=asked.key, user=user))

    def _change(self, reader: StoreReader, asked: JobChange) -> ChangeAccepted:
        if not asked.jobs:
            raise InputError(asked.verb, "no job was named")
        named = {text: reader.matching(text) for text in asked.jobs}
        numbers = list(dict.fromkeys(n for found in named.values() for n in found))
        if not numbers:
            raise InputError(f"job {asked.jobs[0]}", NO_SUCH_JOB)
        done = reader.asked_for(self._intake.request(asked.verb, jobs=numbers, key=asked.key))
        left = [
            SkippedJob(text, _why_left(reader, asked.verb, found))
            for text, found in named.items()
            if not done.intersection(found)
        ]
        jobs = tuple(n for n in numbers if n in done)
        return ChangeAccepted(jobs, tuple(left), tuple(reader.called(jobs).values()))

    def _drain(self, asked: Drain) -> ChangeAccepted:
        verb = "undrain" if asked.undo else "drain"
        self._intake.request(verb, node=asked.node, key=asked.key)
        return ChangeAccepted()

    def _show(self, reader: StoreReader, text: str) -> JobDetails:
        kept = self._one(reader, text)
        folder = self._info.folder.job(kept.number)
        row = job_row(kept, self._index(), self._now())
        names = reader.called(need.job for need in kept.spec.after)
        output = str(output_of(kept.spec, kept.number, folder))
        return job_details(kept, row, names, output, str(folder))

    def _track(self, reader: StoreReader, texts: Sequence[str]) -> JobStates:
        numbers = sorted({n for text in texts for n in reader.numbers_of(text)})
        names = reader.called(numbers)
        found = reader.standings(numbers)
        return JobStates(tuple(JobState(job, names[job], str(s), code) for job, s, code in found))

    def _explain(self, reader: StoreReader, text: str) -> JobExplanation:
        kept = self._one(reader, text)
        return explain(kept, reader, self._index(), self._now())

    def _history(self, reader: StoreReader, asked: History) -> HistoryPage:
        limit = max(1, min(asked.limit, EVENTS_MAX))
        job = self._one(reader, asked.job).number if asked.job else None
        found = reader.facts_after(asked.after, limit, job)
        more = found[-1][0] if len(found) == limit else -1
        names = reader.called(number for _, _, number in found if number is not None)
        events = (Event(seq, line, names.get(number or 0, "")) for seq, line, number in found)
        return HistoryPage(tuple(events), more)

    def _logs(self, reader: StoreReader, asked: Logs) -> Iterator[LogText]:
        kept = self._one(reader, asked.job)
        number = kept.number
        path = output_of(kept.spec, number, self._info.folder.job(number))
        with OutputReader(path, asked.tail, asked.begin) as output:
            beat = monotonic()
            while True:
                over = kept.record.state in TERMINAL
                for text in output.read():
                    yield LogText(text, at=output.at)
                    beat = monotonic()
                if over or not asked.follow:
                    break
                if monotonic() - beat > BEAT_S:
                    yield LogText()  # fails if the client is gone, and ends the thread
                    beat = monotonic()
                sleep(FOLLOW_S)
                kept = reader.job(number) or kept
            last = output.rest()
        yield LogText(last, True, str(kept.record.state), kept.record.exit_code)

    @contextmanager
    def _seat(self, asked: Logs) -> Iterator[None]:
        """Takes one of the places for followers: they must not use up all connections."""
        if not asked.follow:
            yield
            return
        if not self._followers.acquire(blocking=False):
            raise DovetailError(f"{FOLLOWERS_MAX} clients follow logs already")
        try:
            yield
        finally:
            self._followers.release()

    def _one(self, reader: StoreReader, text: str) -> StoredJob:
        numbers = reader.numbers_of(text)
        if len(numbers) > 1:
            raise InputError(
                f"job {text}",
                f"is an array of {len(numbers)}",
                f"name one, as in {reader.called(numbers[:1])[numbers[0]]}",
            )
        kept = reader.job(numbers[0])
        assert kept is not None
        return kept

    def _index(self) -> SnapshotIndex:
        give_up_s = monotonic() + FIRST_SNAPSHOT_S
        while (picture := self._snapshot()) is None:
            if monotonic() > give_up_s:
                raise DovetailError("the controller is just starting; try again")
            sleep(FOLLOW_S)
        seen = self._seen
        if seen is None or seen.picture is not picture:
            self._seen = seen = SnapshotIndex(picture)
        return seen


def _why_left(reader: StoreReader, verb: str, numbers: Sequence[int]) -> str:
    """Returns why a job, or all tasks of an array, are skipped."""
    record = reader.record(numbers[0]) if numbers else None
    return NO_SUCH_JOB if record is None else why_not(verb, record.state)

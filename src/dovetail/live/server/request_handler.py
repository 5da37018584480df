"""Answers what clients ask: changes go to the intake, which keeps them before the reply; the rest
is read from the store and from the picture that the controller last published.

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
from dovetail.live.controller.output_path import output_of
from dovetail.live.jobs.lifecycle import TERMINAL
from dovetail.live.jobs.status_snapshot import SnapshotIndex, StatusSnapshot
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.server.explain import explain
from dovetail.live.server.job_pages import page
from dovetail.live.server.messages.changes import (
    Change,
    Changed,
    Down,
    Drain,
    Left,
    Submit,
    Submitted,
)
from dovetail.live.server.messages.cluster import Nodes, NodesShown, Ping, Pong
from dovetail.live.server.messages.events import Event, History, Recalled
from dovetail.live.server.messages.listing import ListJobs
from dovetail.live.server.messages.one_job import Show, Shown
from dovetail.live.server.messages.output import Logs, LogText
from dovetail.live.server.messages.reason import Explained, Why
from dovetail.live.server.messages.tracking import JobState, Track, Tracked
from dovetail.live.server.output_text import OutputReader
from dovetail.live.server.requests import Question, Reply
from dovetail.live.server.rows import job_row, node_rows, shown
from dovetail.live.store.folder import Folder
from dovetail.live.store.intake import why_not
from dovetail.live.store.queries import NO_SUCH_JOB, Reader
from dovetail.wire.submission import Submission

EVENTS_MAX = 5_000
FOLLOWERS_MAX = 32
FOLLOW_S = 0.1
BEAT_S = 1.0
FIRST_PICTURE_S = 20.0
"""A controller that takes much up, or whose nodes are silent, needs a while for its first."""


class Intake(Protocol):
    """Takes what changes something; all is durable when a method returns."""

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
    """What the desk knows of its cluster that never changes while the controller runs.

    `paced` says that its nodes are clocks, which run no programs.
    """

    pong: Pong
    folder: Folder
    paced: bool = False


class Desk:
    """Answers questions from the store, the published picture and the intake."""

    def __init__(
        self,
        info: ServerInfo,
        intake: Intake,
        published: Callable[[], StatusSnapshot | None],
        now: Callable[[], float],
    ) -> None:
        self._info = info
        self._intake = intake
        self._published = published
        self._now = now
        self._seen: SnapshotIndex | None = None
        self._followers = threading.BoundedSemaphore(FOLLOWERS_MAX)

    def answer(self, question: Question, user: str) -> Iterator[Reply]:
        """Yields the reply, or the pieces of a log."""
        if isinstance(question, Submit | Drain | Down | Ping | Nodes):
            # NOTE: to open a reader takes a millisecond; a thousand submits a second have none.
            yield self._at_once(question, user)
            return
        with Reader(self._info.folder.store) as reader:
            if isinstance(question, Logs):
                with self._seat(question):
                    yield from self._logs(reader, question)
            else:
                yield self._read(reader, question)

    def _at_once(self, question: Submit | Drain | Down | Ping | Nodes, user: str) -> Reply:
        match question:
            case Submit():
                return self._submit(question, user)
            case Drain():
                return self._drain(question)
            case Down(key, drain):
                self._intake.request("down", argument="drain" if drain else "leave", key=key)
                return Changed()
            case Ping():
                return replace(self._info.pong, now_s=self._now())
            case Nodes():
                return NodesShown(self._now(), node_rows(self._index().picture))

    def _read(self, reader: Reader, question: Question) -> Reply:
        match question:
            case Change():
                return self._change(reader, question)
            case ListJobs():
                return page(reader, question, self._index(), self._now())
            case Show(job):
                return self._show(reader, job)
            case Track(jobs):
                return self._track(reader, jobs)
            case Why(job):
                return self._explain(reader, job)
            case History():
                return self._history(reader, question)
        raise DovetailError(f"no answer to {type(question).__name__}")

    def _submit(self, asked: Submit, user: str) -> Submitted:
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
        # Whose job it is, the kernel says, never the file.
        return Submitted(self._intake.submit(asked.submissions, key=asked.key, user=user))

    def _change(self, reader: Reader, asked: Change) -> Changed:
        if not asked.jobs:
            raise InputError(asked.verb, "no job was named")
        named = {text: reader.matching(text) for text in asked.jobs}
        numbers = list(dict.fromkeys(n for found in named.values() for n in found))
        if not numbers:
            raise InputError(f"job {asked.jobs[0]}", NO_SUCH_JOB)
        done = reader.asked_for(self._intake.request(asked.verb, jobs=numbers, key=asked.key))
        left = [
            Left(text, _why_left(reader, asked.verb, found))
            for text, found in named.items()
            if not done.intersection(found)
        ]
        jobs = tuple(n for n in numbers if n in done)
        return Changed(jobs, tuple(left), tuple(reader.called(jobs).values()))

    def _drain(self, asked: Drain) -> Changed:
        verb = "undrain" if asked.undo else "drain"
        self._intake.request(verb, node=asked.node, key=asked.key)
        return Changed()

    def _show(self, reader: Reader, text: str) -> Shown:
        kept = self._one(reader, text)
        folder = self._info.folder.job(kept.number)
        row = job_row(kept, self._index(), self._now())
        names = reader.called(need.job for need in kept.spec.after)
        output = str(output_of(kept.spec, kept.number, folder))
        return shown(kept, row, names, output, str(folder))

    def _track(self, reader: Reader, texts: Sequence[str]) -> Tracked:
        numbers = sorted({n for text in texts for n in reader.numbers_of(text)})
        names = reader.called(numbers)
        found = reader.standings(numbers)
        return Tracked(tuple(JobState(job, names[job], str(s), code) for job, s, code in found))

    def _explain(self, reader: Reader, text: str) -> Explained:
        kept = self._one(reader, text)
        return explain(kept, reader, self._index(), self._now())

    def _history(self, reader: Reader, asked: History) -> Recalled:
        limit = max(1, min(asked.limit, EVENTS_MAX))
        job = self._one(reader, asked.job).number if asked.job else None
        found = reader.facts_after(asked.after, limit, job)
        more = found[-1][0] if len(found) == limit else -1
        names = reader.called(number for _, _, number in found if number is not None)
        events = (Event(seq, line, names.get(number or 0, "")) for seq, line, number in found)
        return Recalled(tuple(events), more)

    def _logs(self, reader: Reader, asked: Logs) -> Iterator[LogText]:
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
                    yield LogText()  # so that a client that went away is noticed
                    beat = monotonic()
                sleep(FOLLOW_S)
                kept = reader.job(number) or kept
            last = output.rest()
        yield LogText(last, True, str(kept.record.state), kept.record.exit_code)

    @contextmanager
    def _seat(self, asked: Logs) -> Iterator[None]:
        """Takes one of the few places of those who follow: others must be served beside them."""
        if not asked.follow:
            yield
            return
        if not self._followers.acquire(blocking=False):
            raise DovetailError(f"{FOLLOWERS_MAX} clients follow logs already")
        try:
            yield
        finally:
            self._followers.release()

    def _one(self, reader: Reader, text: str) -> StoredJob:
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
        give_up_s = monotonic() + FIRST_PICTURE_S
        while (picture := self._published()) is None:
            if monotonic() > give_up_s:
                raise DovetailError("the controller is just starting; try again")
            sleep(FOLLOW_S)
        seen = self._seen
        if seen is None or seen.picture is not picture:
            self._seen = seen = SnapshotIndex(picture)
        return seen


def _why_left(reader: Reader, verb: str, numbers: Sequence[int]) -> str:
    """Returns why a verb is not done for a job, or for all tasks of an array."""
    record = reader.record(numbers[0]) if numbers else None
    return NO_SUCH_JOB if record is None else why_not(verb, record.state)

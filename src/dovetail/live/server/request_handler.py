"""Answers requests: changes go to the intake, which stores them before the reply; all else is read
from the store and the last status snapshot of the controller.

Any thread may call. A reply never waits for the controller's loop, so its latency does not depend
on the load of the scheduler.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic, sleep

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.access.user_entry import user_entry
from dovetail.live.jobs.drain_reason import DrainReason, argument_of
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.output_path import output_of
from dovetail.live.jobs.status_snapshot import SnapshotIndex, StatusSnapshot
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.server.explain import explain
from dovetail.live.server.job_pages import job_page
from dovetail.live.server.messages.changes import (
    ChangeReply,
    Down,
    Drain,
    JobChange,
    RefusedJob,
    Submit,
    SubmitReply,
)
from dovetail.live.server.messages.cluster import ListNodes, NodeList, Ping, PingReply
from dovetail.live.server.messages.events import Event, History, HistoryReply
from dovetail.live.server.messages.listing import ListJobs
from dovetail.live.server.messages.one_job import ShowJob, ShowReply
from dovetail.live.server.messages.output import Logs, LogsReply
from dovetail.live.server.messages.reason import ExplainJob
from dovetail.live.server.messages.tenants import ListTenants
from dovetail.live.server.messages.terminal import AttachReply, AttachTerminal
from dovetail.live.server.messages.tracking import JobState, TrackJobs, TrackReply
from dovetail.live.server.output_text import OutputReader
from dovetail.live.server.requests import Question, Reply
from dovetail.live.server.rows import job_details, job_row, node_rows
from dovetail.live.server.tenant_rows import stops_of, tenant_list
from dovetail.live.store.folder import Folder
from dovetail.live.store.intake import Intake, why_not
from dovetail.live.store.queries import NO_SUCH_JOB, StoreReader

EVENTS_MAX = 5_000
FOLLOWERS_MAX = 32
FOLLOW_S = 0.1
"""The pause between two reads of an output that is followed, or of a snapshot that is missing."""
BEAT_S = 1.0
FIRST_SNAPSHOT_S = 20.0
"""Timeout of the first snapshot: recovery of many jobs, or of silent nodes, takes seconds."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What does not change while the controller runs; `paced` is True for emulated nodes."""

    pong: PingReply
    folder: Folder
    paced: bool = False


class RequestHandler:
    """Answers requests. Without an `intake` it answers only those that change nothing.

    `snapshot` returns the last snapshot, None before the first; `now` the time of the cluster.
    """

    def __init__(
        self,
        info: ServerInfo,
        intake: Intake | None,
        snapshot: Callable[[], StatusSnapshot | None],
        now: Callable[[], float],
    ) -> None:
        self._info = info
        self._intake = intake
        self._snapshot = snapshot
        self._now = now
        self._last_index: SnapshotIndex | None = None
        self._followers = threading.BoundedSemaphore(FOLLOWERS_MAX)

    def answer(self, question: Question, user: str) -> Iterator[Reply]:
        """Yields the reply, or the pieces of an output. Raises DovetailError."""
        if isinstance(question, Submit | Drain | Down | Ping | ListNodes):
            # NOTE: without a reader, which takes 1 ms to open: too slow for 1000 submits a second.
            yield self._at_once(question, user)
            return
        with StoreReader(self._info.folder.store) as reader:
            if isinstance(question, AttachTerminal):
                yield _attached(self._one(reader, question.job))
            elif isinstance(question, Logs):
                with self._follower(question):
                    yield from self._logs(reader, question)
            else:
                yield self._read(reader, question)

    def _at_once(self, question: Submit | Drain | Down | Ping | ListNodes, user: str) -> Reply:
        match question:
            case Submit():
                return self._submit(question, user)
            case Drain():
                self._drain(question, user)
                return ChangeReply()
            case Down(key, drain, save):
                how = "save" if save else "drain" if drain else "leave"
                self._changes().request("down", argument=how, key=key)
                return ChangeReply()
            case Ping():
                return replace(self._info.pong, now_s=self._now())
            case ListNodes():
                return NodeList(self._now(), node_rows(self._index().snapshot))

    def _drain(self, wanted: Drain, user: str) -> None:
        note = DrainReason(wanted.gpu, reason=wanted.reason, by="" if wanted.undo else user)
        verb = "undrain" if wanted.undo else "drain"
        self._changes().request(verb, node=wanted.node, argument=argument_of(note), key=wanted.key)

    def _read(self, reader: StoreReader, question: Question) -> Reply:
        match question:
            case JobChange():
                return self._change(reader, question)
            case ListJobs():
                return job_page(reader, question, self._index(), self._now())
            case ShowJob(name):
                return self._show(reader, name)
            case TrackJobs(names):
                return self._track(reader, names)
            case ExplainJob(name):
                return explain(self._one(reader, name), reader, self._index(), self._now())
            case ListTenants():
                cluster, snapshot = self._changes().cluster, self._index().snapshot
                return tenant_list(cluster, snapshot, reader, self._now())
            case History():
                return self._history(reader, question)
        raise DovetailError(f"no answer to {type(question).__name__}")

    def _changes(self) -> Intake:
        if self._intake is None:
            raise DovetailError("no controller runs here")
        return self._intake

    def _submit(self, request: Submit, user: str) -> SubmitReply:
        for submission in request.submissions:
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
        submissions = request.submissions
        return SubmitReply(self._changes().submit(submissions, key=request.key, user=user))

    def _change(self, reader: StoreReader, request: JobChange) -> ChangeReply:
        verb = request.verb
        if not request.jobs:
            raise InputError(verb, "no job was named")
        matches = {name: reader.matching(name) for name in request.jobs}
        for name, matching in matches.items() if verb == "requeue" else ():
            if any(job.spec.terminal for job in reader.some(matching[:1])):
                raise InputError(f"job {name}", "it is interactive: it has ended with its terminal")
        numbers = list(dict.fromkeys(n for matching in matches.values() for n in matching))
        if not numbers:
            raise InputError(f"job {request.jobs[0]}", NO_SUCH_JOB)
        # Read back by the numbers of the requests: a repeated key may stand for an earlier request.
        seqs = self._changes().request(verb, jobs=numbers, key=request.key)
        changed = reader.asked_for(seqs)
        refused = tuple(
            RefusedJob(name, _why_refused(reader, verb, matching))
            for name, matching in matches.items()
            if not changed.intersection(matching)
        )
        jobs = tuple(n for n in numbers if n in changed)
        return ChangeReply(jobs, refused, tuple(reader.called(jobs).values()))

    def _show(self, reader: StoreReader, name: str) -> ShowReply:
        stored = self._one(reader, name)
        folder = self._info.folder.job(stored.number)
        row = job_row(stored, self._index(), self._now())
        names = reader.called(need.job for need in stored.spec.after)
        has_file = not stored.spec.terminal
        output = str(output_of(stored.spec, stored.number, folder)) if has_file else ""
        details = job_details(stored, row, names, output, str(folder))
        waits = stored.record.state is State.PENDING and stored.record.pending_s >= 0
        waits_s = max(0.0, self._now() - stored.record.pending_s) if waits else -1.0
        return replace(details, waits_s=waits_s, stops=stops_of(reader, stored.number))

    def _track(self, reader: StoreReader, requested: Sequence[str]) -> TrackReply:
        numbers = sorted({n for name in requested for n in reader.numbers_of(name)})
        names = reader.called(numbers)
        states = reader.standings(numbers)
        return TrackReply(tuple(JobState(job, names[job], str(s), code) for job, s, code in states))

    def _history(self, reader: StoreReader, request: History) -> HistoryReply:
        limit = max(1, min(request.limit, EVENTS_MAX))
        job = self._one(reader, request.job).number if request.job else None
        facts = reader.facts_after(request.after, limit, job)
        more = facts[-1][0] if len(facts) == limit else -1
        names = reader.called(number for _, _, number in facts if number is not None)
        events = (Event(seq, line, names.get(number or 0, "")) for seq, line, number in facts)
        return HistoryReply(tuple(events), more)

    def _logs(self, reader: StoreReader, request: Logs) -> Iterator[LogsReply]:
        stored = self._one(reader, request.job)
        number = stored.number
        if stored.spec.terminal:
            raise InputError(
                f"job {request.job}", "it is interactive: its output went to its client"
            )
        path = output_of(stored.spec, number, self._info.folder.job(number))
        owner = self._owner_of_output(stored)
        with OutputReader(path, request.tail, request.begin, owner) as output:
            last_sent_s = monotonic()
            while True:
                # The state comes first: text that is written until the end is read after it.
                is_over = stored.record.state in TERMINAL
                for text in output.read():
                    yield LogsReply(text, at=output.at)
                    last_sent_s = monotonic()
                if is_over or not request.follow:
                    break
                if monotonic() - last_sent_s > BEAT_S:
                    # Sending an empty piece fails if the client is gone, which ends this thread.
                    yield LogsReply()
                    last_sent_s = monotonic()
                sleep(FOLLOW_S)
                stored = reader.job(number) or stored
            last = output.rest()
        yield LogsReply(last, True, str(stored.record.state), stored.record.exit_code)

    def _owner_of_output(self, stored: StoredJob) -> int:
        """Returns the uid whose files alone may be read as the output of a job, -1 for any."""
        if not self._info.folder.owned_by_users:
            return -1
        entry = user_entry(stored.spec.user)
        if entry is None:
            raise InputError(f"job {stored.number}", f"user {stored.spec.user} is gone from here")
        return entry.uid

    @contextmanager
    def _follower(self, request: Logs) -> Iterator[None]:
        """Limits the requests that follow an output: they must not use up all connections."""
        if not request.follow:
            yield
            return
        if not self._followers.acquire(blocking=False):
            raise DovetailError(f"{FOLLOWERS_MAX} clients follow logs already")
        try:
            yield
        finally:
            self._followers.release()

    def _one(self, reader: StoreReader, name: str) -> StoredJob:
        numbers = reader.numbers_of(name)
        if len(numbers) > 1:
            raise InputError(
                f"job {name}",
                f"is an array of {len(numbers)}",
                f"name one, as in {reader.called(numbers[:1])[numbers[0]]}",
            )
        stored = reader.job(numbers[0])
        assert stored is not None
        return stored

    def _index(self) -> SnapshotIndex:
        give_up_s = monotonic() + FIRST_SNAPSHOT_S
        while (snapshot := self._snapshot()) is None:
            if monotonic() > give_up_s:
                raise DovetailError("the controller is just starting; try again")
            sleep(FOLLOW_S)
        index = self._last_index
        # Two threads may build an index at the same time; each uses its own, which is correct.
        if index is None or index.snapshot is not snapshot:
            self._last_index = index = SnapshotIndex(snapshot)
        return index


def _attached(stored: StoredJob) -> AttachReply:
    """Returns whether a client may have the terminal of a job now, or how the job ended."""
    record = stored.record
    if not stored.spec.terminal:
        mend = "start one: dovetail run --pty -- bash"
        raise InputError(f"job {stored.number}", "it is not interactive", mend)
    is_over = record.state in TERMINAL
    detail = record.detail if is_over else ""
    return AttachReply(stored.number, is_over, str(record.state), record.exit_code, detail)


def _why_refused(reader: StoreReader, verb: str, numbers: Sequence[int]) -> str:
    """Returns the reason why a request does not change a job, or any task of an array."""
    jobs = reader.some(numbers[:1])
    return why_not(verb, jobs[0].record.state) if jobs else NO_SUCH_JOB

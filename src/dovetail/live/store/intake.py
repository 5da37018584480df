"""Accepts submits and requests: durable before they are acknowledged, and once if repeated.

Any thread may call. A request is checked here, written in one transaction, and then put into the
inbox in the order of the commits. A key makes a verb safe to repeat: the same key
gives the same answer and changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError, nearest
from dovetail.live.edges.protocols import Clock, Incoming, Request
from dovetail.live.jobs.job_environment import environment_of_array
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.store.database import Committer
from dovetail.live.store.dependencies import DependencyResolver
from dovetail.live.store.job_output import check_output
from dovetail.live.store.largest_size import no_room, room_for
from dovetail.live.store.store import add_jobs, add_requests, next_number
from dovetail.live.store.stored_job import RESTORE, SELECT_JOBS, state_of, stored_job
from dovetail.wire.codec import plain
from dovetail.wire.spec import CORRESPONDING, SINGLETON, JobSpec
from dovetail.wire.spec_faults import faults
from dovetail.wire.submission import TASKS_MAX, Submission

KEY_MAX = 200
QUOTED_MAX = 4
"""Refusals quoted beside the first; of the others only the number."""

_RUNS = frozenset({State.CONFIGURING, State.RUNNING})
_OVER = "is over"
_REFUSED: dict[str, dict[State, str]] = {
    "cancel": dict.fromkeys(TERMINAL, _OVER),
    "hold": dict.fromkeys(TERMINAL, _OVER)
    | dict.fromkeys(_RUNS, "is on GPUs: only a job that waits can be held")
    | {State.COMPLETING: "is ending"},
    "release": dict.fromkeys(TERMINAL, _OVER)
    | dict.fromkeys(_RUNS, "is on GPUs: only a job that waits can be released")
    | {State.COMPLETING: "is ending"},
    "requeue": {State.PENDING: "waits already", State.COMPLETING: "is ending, try again"},
}
"""Why a verb is refused for a job in a state, in words that follow the job's number."""
_OF_NODES = ("drain", "undrain")
_DOWN = ("leave", "drain")


class Intake:
    """Accepts submits and requests. `put` gives what was accepted to the controller's inbox.

    No output of a job may go into `home`, the folder of the cluster.
    """

    def __init__(
        self,
        committer: Committer,
        *,
        clock: Clock,
        cluster: Cluster,
        put: Callable[[Incoming], None],
        home: Path | None = None,
    ) -> None:
        self._committer = committer
        self._clock = clock
        self._cluster = cluster
        self._put = put
        self._home = home

    def submit(
        self, submissions: Sequence[Submission], *, key: str, user: str = ""
    ) -> tuple[int, ...]:
        """Returns the number of each job or array, once all are durable; all are, or none.

        A job -k in a dependency means the k-th submission; an array's number all of its tasks.
        Raises InputError.
        """
        asked = [_owned(s, user) for s in submissions]
        self._check(asked)
        digest = _digest("submit", [plain(s) for s in asked])
        asked = [self._bounded(s) for s in asked]

        def work(db: sqlite3.Connection) -> tuple[tuple[int, ...], list[StoredJob]]:
            said_before = _answer(db, key, digest)
            if said_before is not None:
                return said_before, []
            firsts, specs = _expanded(db, asked)
            accepted = add_jobs(db, specs, self._clock.now())
            _keep_answer(db, key, "submit", digest, firsts)
            return firsts, accepted

        return self._committer.do(work, self._pass_on)[0]

    def request(
        self,
        verb: str,
        *,
        key: str,
        jobs: Sequence[int] = (),
        node: int = -1,
        argument: str = "",
    ) -> tuple[int, ...]:
        """Returns the numbers of the requests, once durable: one for each job the verb is for.

        Jobs in a state that the verb does not apply to are left out. Raises InputError.
        """
        asked = self._requests(verb, jobs, node, argument)
        digest = _digest("request", [plain(r) for r in asked])

        def work(db: sqlite3.Connection) -> tuple[tuple[int, ...], list[Request]]:
            said_before = _answer(db, key, digest)
            if said_before is not None:
                return said_before, []
            kept = add_requests(db, _fitting(db, asked), self._clock.now())
            seqs = tuple(request.seq for request in kept)
            _keep_answer(db, key, "request", digest, seqs)
            return seqs, kept

        return self._committer.do(work, self._pass_on)[0]

    def _pass_on(self, kept: tuple[tuple[int, ...], Sequence[Incoming]]) -> None:
        for incoming in kept[1]:
            self._put(incoming)

    def _requests(self, verb: str, jobs: Sequence[int], node: int, argument: str) -> list[Request]:
        if verb in _OF_NODES:
            if not 0 <= node < self._cluster.nodes:
                raise InputError(
                    f"node {node}", f"there is no such node (0..{self._cluster.nodes - 1})"
                )
            return [Request(0, verb, node=node)]
        if verb == "down":
            if argument not in _DOWN:
                raise InputError("down", f"it is 'leave' or 'drain', not {argument[:40]!r}")
            return [Request(0, verb, argument=argument)]
        if verb not in _REFUSED:
            known = (*_REFUSED, *_OF_NODES, "down")
            raise InputError("request", f"unknown verb {verb[:40]!r}", nearest(verb[:40], known))
        if not jobs:
            raise InputError(verb, "no job was named")
        return [Request(0, verb, job=job) for job in dict.fromkeys(jobs)]

    def _check(self, submissions: Sequence[Submission]) -> None:
        if not submissions:
            raise InputError("submit", "there is no job in it")
        tasks = sum(len(s.array) or 1 for s in submissions)
        if tasks > TASKS_MAX:
            raise InputError("submit", f"{tasks} jobs at once are over {TASKS_MAX}")
        for position, submission in enumerate(submissions, start=1):
            spec = submission.spec
            where = f"job '{spec.name[:40]}'"
            for field, what in faults(spec):
                raise InputError(where, f"{field}: {what}")
            if self._home is not None:
                check_output(where, spec, self._home)
            if spec.array != -1 or spec.array_of != -1:
                raise InputError(where, "the index of a task is given by the array of its submit")
            for need in spec.after:
                named = need.kind != SINGLETON
                if named and (need.job == 0 or need.job <= -position):
                    raise InputError(where, f"it cannot depend on job {need.job}")
                if need.kind == CORRESPONDING and not submission.array:
                    raise InputError(where, "aftercorr is for the tasks of an array", "say afterok")
            self._check_room(where, spec)

    def _bounded(self, submission: Submission) -> Submission:
        """Bounds a job by what it could have here: beliefs are reckoned up to its most GPUs."""
        spec = submission.spec
        most = max(spec.gpus, room_for(self._cluster, spec))
        if spec.max_gpus <= most:
            return submission
        return replace(submission, spec=replace(spec, max_gpus=most))

    def _check_room(self, where: str, spec: JobSpec) -> None:
        """Raises InputError for a gang that could not start in the empty cluster."""
        queues = {queue.name: queue for queue in self._cluster.queues}
        if queues and spec.queue and spec.queue not in queues:
            raise InputError(where, f"unknown queue '{spec.queue}'", nearest(spec.queue, queues))
        quota = queues[spec.queue].quota_gpus if spec.queue in queues else 0
        if quota and spec.gpus > quota:
            raise InputError(where, f"queue '{spec.queue}' never has more than {quota} GPUs")
        types = {g.gpu_type for g in self._cluster.groups if g.gpu_type}
        if spec.gpu_type and spec.gpu_type not in types:
            hint = nearest(spec.gpu_type, types) if types else "no type of GPU has a name here"
            raise InputError(where, f"unknown type of GPU '{spec.gpu_type}'", hint)
        if spec.gpus > room_for(self._cluster, spec):
            raise InputError(where, *no_room(self._cluster, spec))


def _owned(submission: Submission, user: str) -> Submission:
    if not user or user == submission.spec.user:
        return submission
    return replace(submission, spec=replace(submission.spec, user=user))


def _expanded(
    db: sqlite3.Connection, submissions: Sequence[Submission]
) -> tuple[tuple[int, ...], list[JobSpec]]:
    """Returns the first number of each submission, and the specs of all its tasks in order."""
    needs = DependencyResolver(db, next_number(db))
    firsts: list[int] = []
    specs: list[JobSpec] = []
    for submission in submissions:
        first = needs.next
        firsts.append(first)
        made = needs.resolved(submission)
        if submission.array:
            told = environment_of_array(submission.array).items()
            own = dict(submission.spec.environment)
            around = (*((n, v) for n, v in told if n not in own), *own.items())
            made = [
                replace(spec, array=i, array_of=first, environment=around)
                for i, spec in zip(submission.array, made, strict=True)
            ]
        specs += made
        needs.take(made)
    return tuple(firsts), specs


def _fitting(db: sqlite3.Connection, asked: Sequence[Request]) -> list[Request]:
    """Returns the requests that make sense now. Raises InputError if there is none."""
    fitting, refusals = [], []
    for request in asked:
        refusal = _refusal(db, request)
        if refusal is None:
            fitting.append(request)
        else:
            refusals.append(refusal)
    if not fitting:
        raise _together(refusals)
    return fitting


def _together(refusals: Sequence[InputError]) -> InputError:
    """Returns one error for several jobs to which a verb does not apply."""
    first, *others = refusals
    more = [f"and {len(others) - QUOTED_MAX} more"] if len(others) > QUOTED_MAX else []
    said = "; ".join([first.what, *map(str, others[:QUOTED_MAX]), *more])
    return InputError(first.where, said, first.mend)


def _refusal(db: sqlite3.Connection, request: Request) -> InputError | None:
    refused = _REFUSED.get(request.verb)
    if refused is None:
        return None
    job = min(request.job, 2**62)
    columns = db.execute(
        "SELECT state, array_of, array_index FROM jobs WHERE number = ?", (job,)
    ).fetchone()
    if columns is None:
        return InputError(f"job {job}", "there is no such job")
    state, of, index = columns
    name = str(job) if of is None else f"{of}_{index}"
    if state_of(state) in refused:
        return InputError(f"job {name}", why_not(request.verb, state_of(state)))
    if state_of(state) in TERMINAL:
        # Only its row knows what to begin anew.
        kept = stored_job(db.execute(f"{SELECT_JOBS} WHERE number = ?", (job,)).fetchone())
        if kept.damage:
            return InputError(f"job {name}", kept.record.detail, RESTORE)
    return None


def why_not(verb: str, state: State) -> str:
    """Returns why a verb is not for a job in a state; it may have left that state by now."""
    return f"it {_REFUSED[verb].get(state, 'was not in a state for that')} ({state})"


def _digest(*said: object) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _answer(db: sqlite3.Connection, key: str, digest: str) -> tuple[int, ...] | None:
    """Returns what was answered to a key before. Raises InputError if it was another request."""
    if not (0 < len(key) <= KEY_MAX and key.isprintable()):
        raise InputError("key", f"it must be printable, with 1 to {KEY_MAX} characters")
    row = db.execute("SELECT digest, numbers FROM keys WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    if row[0] != digest:
        raise InputError("key", "it was used for another request already")
    return tuple(json.loads(row[1]))


def _keep_answer(
    db: sqlite3.Connection, key: str, kind: str, digest: str, numbers: tuple[int, ...]
) -> None:
    db.execute("INSERT INTO keys VALUES (?, ?, ?, ?)", (key, kind, digest, json.dumps(numbers)))

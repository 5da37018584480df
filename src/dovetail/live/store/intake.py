"""Accepts submits and requests: durable before they are acknowledged, and idempotent by key.

Any thread may call. A request is checked, written in one transaction, and then put into the inbox
of the controller, in the order of the commits. A repeated key changes nothing and gets the first
answer.
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
from dovetail.core.node_sets import types_of
from dovetail.core.policy import Policy
from dovetail.live.edges.protocols import Clock, Incoming, Request
from dovetail.live.jobs.drain_reason import REASON_MAX, note_of
from dovetail.live.jobs.job_environment import environment_of_array
from dovetail.live.jobs.lifecycle import TERMINAL, State
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.store.dependencies import NUMBER_MAX, SubmitDependencies
from dovetail.live.store.group_commit import Committer
from dovetail.live.store.job_output import check_output
from dovetail.live.store.largest_size import check_topology, no_room, room_for
from dovetail.live.store.record_codec import RESTORE, SELECT_JOBS, state_of, stored_job
from dovetail.live.store.store import add_jobs, add_requests, next_number
from dovetail.live.store.submit_limits import SubmitLimits
from dovetail.wire.codec import plain
from dovetail.wire.spec import CORRESPONDING, SINGLETON, JobSpec
from dovetail.wire.spec_faults import faults
from dovetail.wire.submission import TASKS_MAX, Submission

KEY_MAX = 200
QUOTED_MAX = 4
"""The most refusals quoted after the first; of the others only the number."""

_RUNS = (State.CONFIGURING, State.RUNNING)
_OVER = dict.fromkeys(TERMINAL, "is over")
_REFUSED: dict[str, dict[State, str]] = {
    "cancel": _OVER,
    "hold": {
        **_OVER,
        **dict.fromkeys(_RUNS, "is on GPUs: only a job that waits can be held"),
        State.COMPLETING: "is ending",
    },
    "release": {
        **_OVER,
        **dict.fromkeys(_RUNS, "is on GPUs: only a job that waits can be released"),
        State.COMPLETING: "is ending",
    },
    "requeue": {State.PENDING: "waits already", State.COMPLETING: "is ending, try again"},
}
"""Why a verb is refused for a job in a state, in words that follow the job's number."""
_NODE_VERBS = ("drain", "undrain")
_DOWN = ("leave", "drain", "save")


class Intake:
    """Accepts submits and requests, and passes them to `put`, the controller's inbox.

    It refuses jobs whose output would go into `home`, the folder of the cluster, and those with
    wishes that `policy` ignores. `submitted_max` is the most jobs of a user that may be live, 0 for
    no limit. Without `chooses_output` the output of a job goes to the controller alone.
    """

    def __init__(
        self,
        committer: Committer,
        *,
        clock: Clock,
        cluster: Cluster,
        put: Callable[[Incoming], None],
        home: Path | None = None,
        policy: Policy | None = None,
        submitted_max: Callable[[str], int] = lambda user: 0,
        chooses_output: bool = True,
    ) -> None:
        self._submitted_max, self._chooses_output = submitted_max, chooses_output
        self._committer = committer
        self._clock = clock
        self._cluster = cluster
        self._put = put
        self._home = home
        self._tenants = SubmitLimits(cluster, policy)

    @property
    def cluster(self) -> Cluster:
        """Returns the cluster with its tenants."""
        return self._cluster

    def submit(
        self, submissions: Sequence[Submission], *, key: str, user: str = ""
    ) -> tuple[int, ...]:
        """Returns the number of each job or array, once all are durable. Raises InputError.

        All submissions are accepted or none. In a dependency, job -k is the k-th submission, and
        the number of an array means all its tasks.
        """
        owned = [
            replace(s, spec=replace(s.spec, user=user)) if user and user != s.spec.user else s
            for s in submissions
        ]
        self._check(owned)
        # The digest is of what the user sent: what tenants imply may change before the same request
        # is repeated.
        digest = _digest("submit", [plain(s) for s in owned])
        settled = [self._settled(s) for s in owned]
        most = self._submitted_max(user)

        def work(db: sqlite3.Connection) -> tuple[tuple[int, ...], list[StoredJob]]:
            # The key is looked up in the transaction that stores it: of two threads with the same
            # request, the second sees the answer of the first.
            earlier = _answer(db, key, digest)
            if earlier is not None:
                return earlier, []
            firsts, specs = _expanded(db, settled)
            if most:
                _check_count(db, user, len(specs), most)
            accepted = add_jobs(db, specs, self._clock.now())
            _store_answer(db, key, "submit", digest, firsts)
            return firsts, accepted

        # The callback runs in the order of commits: the controller must not learn of a job after a
        # request about it.
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
        """Returns the numbers of the requests, once durable: one for each job. Raises InputError.

        Jobs in a state to which the verb does not apply are left out.
        """
        requests = self._requests(verb, jobs, node, argument)
        digest = _digest("request", [plain(r) for r in requests])

        def work(db: sqlite3.Connection) -> tuple[tuple[int, ...], list[Request]]:
            earlier = _answer(db, key, digest)
            if earlier is not None:
                return earlier, []
            accepted = add_requests(db, _applicable(db, requests), self._clock.now())
            seqs = tuple(request.seq for request in accepted)
            _store_answer(db, key, "request", digest, seqs)
            return seqs, accepted

        return self._committer.do(work, self._pass_on)[0]

    def _pass_on(self, committed: tuple[tuple[int, ...], Sequence[Incoming]]) -> None:
        for incoming in committed[1]:
            self._put(incoming)

    def _requests(self, verb: str, jobs: Sequence[int], node: int, argument: str) -> list[Request]:
        if verb in _NODE_VERBS:
            if not 0 <= node < self._cluster.nodes:
                raise InputError(
                    f"node {node}", f"there is no such node (0..{self._cluster.nodes - 1})"
                )
            self._check_drain(node, argument)
            return [Request(0, verb, node=node, argument=argument)]
        if verb == "down":
            if argument not in _DOWN:
                raise InputError("down", f"it is 'leave', 'drain' or 'save', not {argument[:40]!r}")
            return [Request(0, verb, argument=argument)]
        if verb not in _REFUSED:
            known = (*_REFUSED, *_NODE_VERBS, "down")
            raise InputError("request", f"unknown verb {verb[:40]!r}", nearest(verb[:40], known))
        if not jobs:
            raise InputError(verb, "no job was named")
        return [Request(0, verb, job=job, argument=argument) for job in dict.fromkeys(jobs)]

    def _check_drain(self, node: int, argument: str) -> None:
        """Raises InputError for a GPU that is not there, or a reason that no list can show."""
        note, gpus = note_of(argument, 0.0), self._cluster.installed[node]
        if not -1 <= note.gpu < gpus:
            raise InputError(f"node {node}, GPU {note.gpu}", f"its GPUs are 0 to {gpus - 1}")
        if len(note.reason) > REASON_MAX or not note.reason.isprintable():
            raise InputError("--reason", f"it is one line of at most {REASON_MAX} characters")

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
            self._check_output(where, spec)
            if spec.array != -1 or spec.array_of != -1:
                raise InputError(where, "the index of a task is given by the array of its submit")
            for dependency in spec.after:
                job = dependency.job
                # Only submissions before this one have the numbers -1 to 1 - position.
                if dependency.kind != SINGLETON and (job == 0 or job <= -position):
                    raise InputError(where, f"it cannot depend on job {job}")
                if dependency.kind == CORRESPONDING and not submission.array:
                    raise InputError(where, "aftercorr is for the tasks of an array", "say afterok")
            self._check_room(where, spec)

    def _check_output(self, where: str, spec: JobSpec) -> None:
        """Raises InputError for an output to a file that the job may not choose."""
        if spec.output and not self._chooses_output:
            what = "output: nodes share no folder, and the controller writes for nobody else"
            raise InputError(where, what, "leave it out: `dovetail logs` shows the output")
        if self._home is not None:
            check_output(where, spec, self._home)

    def _settled(self, submission: Submission) -> Submission:
        """Returns a submission with what its tenants imply. Raises InputError."""
        spec = submission.spec
        settled = self._tenants.settled(f"job '{spec.name[:40]}'", spec, self._clock.now)
        return submission if settled == spec else replace(submission, spec=settled)

    def _check_room(self, where: str, spec: JobSpec) -> None:
        """Raises InputError for a job that could not start in the empty cluster."""
        types = {g.gpu_type.casefold() for g in self._cluster.groups if g.gpu_type}
        for wanted in types_of(spec.gpu_type):
            if wanted not in types:
                hint = nearest(wanted, types) if types else "no type of GPU has a name here"
                raise InputError(where, f"unknown type of GPU '{wanted}'", hint)
        if spec.topology:
            check_topology(where, self._cluster, spec)
        if spec.gpus > room_for(self._cluster, spec):
            raise InputError(where, *no_room(self._cluster, spec))


def _check_count(db: sqlite3.Connection, user: str, more: int, most: int) -> None:
    """Raises InputError if a user would have too many jobs that are not over."""
    rows = db.execute("SELECT state, jobs FROM job_counts WHERE user = ?", (user,)).fetchall()
    live = sum(jobs for column, jobs in rows if state_of(column) not in TERMINAL)
    if live + more > most:
        raise InputError(
            "submit",
            f"{more} more would be {live + more} jobs of user {user} at once, over {most}",
            "wait until some are over, or cancel some",
        )


def _expanded(
    db: sqlite3.Connection, submissions: Sequence[Submission]
) -> tuple[tuple[int, ...], list[JobSpec]]:
    """Returns the first number of each submission, and the specs of all tasks in order."""
    resolver = SubmitDependencies(db, next_number(db))
    firsts: list[int] = []
    specs: list[JobSpec] = []
    for submission in submissions:
        first = resolver.next
        firsts.append(first)
        tasks = resolver.resolved(submission)
        if submission.array:
            # A variable that the job sets wins over that of the array.
            own = dict(submission.spec.environment)
            of_array = environment_of_array(submission.array).items()
            environment = (*((n, v) for n, v in of_array if n not in own), *own.items())
            tasks = [
                replace(spec, array=i, array_of=first, environment=environment)
                for i, spec in zip(submission.array, tasks, strict=True)
            ]
        specs += tasks
        resolver.take(tasks)
    return tuple(firsts), specs


def _applicable(db: sqlite3.Connection, requests: Sequence[Request]) -> list[Request]:
    """Returns the requests that apply to their jobs now. Raises InputError if there is none."""
    refusals = [_refusal(db, request) for request in requests]
    applicable = [r for r, refusal in zip(requests, refusals, strict=True) if refusal is None]
    if applicable:
        return applicable
    first, *others = [refusal for refusal in refusals if refusal is not None]
    more = [f"and {len(others) - QUOTED_MAX} more"] if len(others) > QUOTED_MAX else []
    what = "; ".join([first.what, *map(str, others[:QUOTED_MAX]), *more])
    raise InputError(first.where, what, first.mend)


def _refusal(db: sqlite3.Connection, request: Request) -> InputError | None:
    refused = _REFUSED.get(request.verb)
    if refused is None:
        return None
    job = min(request.job, NUMBER_MAX)
    columns = db.execute(
        "SELECT state, array_of, array_index FROM jobs WHERE number = ?", (job,)
    ).fetchone()
    if columns is None:
        return InputError(f"job {job}", "there is no such job")
    column, array, index = columns
    state, name = state_of(column), str(job) if array is None else f"{array}_{index}"
    if state in refused:
        return InputError(f"job {name}", why_not(request.verb, state))
    if state in TERMINAL:
        # A requeue starts the job again from its row, which must be readable.
        stored = stored_job(db.execute(f"{SELECT_JOBS} WHERE number = ?", (job,)).fetchone())
        if stored.damage:
            return InputError(f"job {name}", stored.record.detail, RESTORE)
    return None


def why_not(verb: str, state: State) -> str:
    """Returns why a verb was refused for a job, which may have changed its state since."""
    return f"it {_REFUSED[verb].get(state, 'was not in a state for that')} ({state})"


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _answer(db: sqlite3.Connection, key: str, digest: str) -> tuple[int, ...] | None:
    """Returns the earlier answer to a key. Raises InputError if it was for another request."""
    if not (0 < len(key) <= KEY_MAX and key.isprintable()):
        raise InputError("key", f"it must be printable, with 1 to {KEY_MAX} characters")
    row = db.execute("SELECT digest, numbers FROM keys WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    if row[0] != digest:
        raise InputError("key", "it was used for another request already")
    return tuple(json.loads(row[1]))


def _store_answer(
    db: sqlite3.Connection, key: str, kind: str, digest: str, numbers: tuple[int, ...]
) -> None:
    db.execute("INSERT INTO keys VALUES (?, ?, ?, ?)", (key, kind, digest, json.dumps(numbers)))

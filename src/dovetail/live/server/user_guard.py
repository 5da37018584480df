"""What users of a shared cluster may ask and change: the queue, and the inside of their own jobs.

As in Slurm without `PrivateData` everybody sees who runs and waits, on what and since when (`ls`,
`nodes`, `tenants`, states). Command, variables, script, output, events and `why` are the owner's
and the operators', and so are changes of a job; its terminal is the owner's alone. Nodes and the
controller are the operators'.

Each refusal is logged. Owners of jobs never change, so what is checked here still holds when it is
carried out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.live.access.user_list import UserList
from dovetail.live.server.messages.changes import (
    ChangeReply,
    Down,
    Drain,
    JobChange,
    RefusedJob,
    Submit,
)
from dovetail.live.server.messages.cluster import ListNodes, Ping
from dovetail.live.server.messages.events import History
from dovetail.live.server.messages.listing import ListJobs
from dovetail.live.server.messages.one_job import ShowJob
from dovetail.live.server.messages.output import Logs
from dovetail.live.server.messages.reason import ExplainJob
from dovetail.live.server.messages.tenants import ListTenants
from dovetail.live.server.messages.terminal import AttachTerminal
from dovetail.live.server.messages.tracking import TrackJobs
from dovetail.live.server.requests import Question, Reply
from dovetail.live.server.server import Handler
from dovetail.live.store.queries import StoreReader

LOG = logging.getLogger(__name__)
_OF_EVERYBODY = (Ping, ListJobs, TrackJobs, ListNodes, ListTenants)
_OF_THE_OWNER = (ShowJob, Logs, ExplainJob, History, AttachTerminal)


class UserGuard:
    """Passes to a handler what the asking user may ask, and refuses the rest.

    A question of a kind that is not named here is refused to all but operators.
    """

    def __init__(self, handler: Handler, users: Callable[[], UserList], store: Path) -> None:
        self._handler, self._users, self._store = handler, users, store

    def answer(self, question: Question, user: str) -> Iterator[Reply]:
        """Yields the reply, or the pieces of one. Raises InputError for what a user may not."""
        try:
            permitted, refused = self._permitted(question, user)
        except InputError as error:
            LOG.warning("refused: user %s, %s: %s", user, question.verb, error)
            raise
        for each in refused:
            said = f"user {user}, {question.verb} job {each.job}"
            LOG.warning("refused: %s: %s", said, each.why)
        for reply in self._handler.answer(permitted, user):
            if refused and isinstance(reply, ChangeReply):
                reply = replace(reply, left=(*reply.left, *refused))
            yield reply

    def _permitted(self, question: Question, user: str) -> tuple[Question, tuple[RefusedJob, ...]]:
        """Returns what a user may ask of a question, and the jobs left out of it."""
        users = self._users()
        if isinstance(question, Submit):
            why_not = users.why_not_run(user)
            if why_not:
                raise InputError("submit", why_not, "submit as a user of this cluster")
            return question, ()
        if isinstance(question, AttachTerminal) and (
            owner := self._other_owner(question.job, user)
        ):
            # What is typed there is typed as its owner.
            raise InputError(f"job {question.job}", f"only user {owner} may have its terminal")
        if users.is_operator(user) or isinstance(question, _OF_EVERYBODY):
            return question, ()
        if isinstance(question, JobChange):
            return self._own_jobs(question, user)
        if isinstance(question, _OF_THE_OWNER) and question.job:
            if owner := self._other_owner(question.job, user):
                raise InputError(f"job {question.job}", _whose(owner))
            return question, ()
        if isinstance(question, History):
            mend = "name a job of yours: dovetail history JOB"
            raise InputError("history", "the events of all jobs are for operators", mend)
        what = f"{question.verb} is for operators, and user {user} is none"
        raise InputError(_subject(question), what, f"ask one: they are named in {users.file}")

    def _own_jobs(self, change: JobChange, user: str) -> tuple[Question, tuple[RefusedJob, ...]]:
        owners = {name: self._other_owner(name, user) for name in change.jobs}
        refused = tuple(RefusedJob(name, _whose(who)) for name, who in owners.items() if who)
        own = tuple(name for name, who in owners.items() if not who)
        if refused and not own:
            raise InputError(f"job {refused[0].job}", refused[0].why)
        return replace(change, jobs=own), refused

    def _other_owner(self, name: str, user: str) -> str:
        """Returns the owner of a job or array if that is another user; empty for an unknown job."""
        with StoreReader(self._store) as reader:
            # The tasks of an array have one owner: they were submitted as one.
            for number in reader.matching(name)[:1]:
                stored = reader.job(number)
                return stored.spec.user if stored and stored.spec.user != user else ""
        return ""


def _whose(owner: str) -> str:
    return f"it belongs to user {owner}: only they and operators may do that"


def _subject(question: Question) -> str:
    if isinstance(question, Drain):
        return f"node {question.node}"
    return "controller" if isinstance(question, Down) else question.verb

"""A shared cluster: everybody sees the queue, the inside of a job is its owner's."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cluster_by_hand import ByHand, spec
from dovetail.core.errors import InputError
from dovetail.live.access import user_list
from dovetail.live.access.user_entry import UserEntry
from dovetail.live.access.user_list import UserList
from dovetail.live.server.messages.changes import ChangeReply, Down, Drain, JobChange, Submit
from dovetail.live.server.messages.events import History
from dovetail.live.server.messages.listing import JobList, ListJobs
from dovetail.live.server.messages.one_job import ShowJob
from dovetail.live.server.messages.output import Logs
from dovetail.live.server.messages.reason import ExplainJob
from dovetail.live.server.messages.terminal import AttachReply, AttachTerminal
from dovetail.live.server.requests import Question, Reply
from dovetail.live.server.user_guard import UserGuard
from dovetail.wire.submission import Submission

IDS = {"root": 0, "daemon": 1, "dovetail": 990, "ann": 1001, "bob": 1002, "eve": 1003, "mal": 1004}
USERS = UserList(
    Path("users.toml"),
    UserEntry("dovetail", 990, 990, (990,), "/", ""),
    users=frozenset(("ann", "bob", "daemon")),
    operators=frozenset(("eve",)),
)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[ByHand]:
    def entry(name: str) -> UserEntry | None:
        uid = IDS.get(name)
        return None if uid is None else UserEntry(name, uid, uid, (uid,), "/", "")

    monkeypatch.setattr(user_list, "user_entry", entry)
    folder = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
    by_hand = ByHand(folder)
    by_hand.ask(Submit("a", (Submission(spec()),)), "ann")
    by_hand.ask(Submit("b", (Submission(spec()),)), "bob")
    yield by_hand
    by_hand.close()
    shutil.rmtree(folder)


def ask(cluster: ByHand, question: Question, user: str) -> list[Reply]:
    guard = UserGuard(cluster.desk, lambda: USERS, cluster.folder.store)
    return list(guard.answer(question, user))


@pytest.mark.parametrize(
    "question",
    [
        ShowJob("1"),
        Logs("1"),
        ExplainJob("1"),
        History("1"),
        History(),
        *[JobChange(verb, "k", ("1",)) for verb in ("cancel", "hold", "release", "requeue")],
        Drain("k", 0),
        Down("k"),
    ],
    ids=lambda question: question.verb,
)
def test_what_is_anothers_or_the_operators_is_refused_and_logged(
    cluster: ByHand, question: Question, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.come.clear()
    with caplog.at_level(logging.WARNING), pytest.raises(InputError):
        ask(cluster, question, "bob")
    assert caplog.messages[0].startswith("refused: user bob")
    assert cluster.come == []


def test_everybody_sees_the_queue_and_the_inside_of_own_jobs(cluster: ByHand) -> None:
    (listed,) = ask(cluster, ListJobs(), "bob")
    assert isinstance(listed, JobList) and {job.user for job in listed.jobs} == {"ann", "bob"}
    assert ask(cluster, ShowJob("2"), "bob") and ask(cluster, Logs("2"), "bob")


def test_an_operator_may_do_all_of_it(cluster: ByHand) -> None:
    for user in ("eve", "root", "dovetail"):
        assert ask(cluster, Logs("1"), user) and ask(cluster, ShowJob("2"), user)
    assert ask(cluster, JobChange("hold", "k", ("1", "2")), "eve") == [
        ChangeReply((1, 2), (), ("1", "2"))
    ]


def test_a_terminal_is_its_owners_alone_and_no_operators(
    cluster: ByHand, caplog: pytest.LogCaptureFixture
) -> None:
    own = replace(
        spec(), terminal="pty", command=("bash",), requeue=False, preemptible=False, retries=0
    )
    ask(cluster, Submit("t", (Submission(own),)), "ann")
    for user in ("bob", "eve", "root", "dovetail"):
        caplog.clear()
        with caplog.at_level(logging.WARNING), pytest.raises(InputError, match="only user ann may"):
            ask(cluster, AttachTerminal("3"), user)
        assert caplog.messages[0].startswith(f"refused: user {user}, attach")
    (reply,) = ask(cluster, AttachTerminal("3"), "ann")
    assert isinstance(reply, AttachReply) and reply.job == 3 and not reply.over
    with pytest.raises(InputError, match="it is not interactive"):
        ask(cluster, AttachTerminal("1"), "ann")


def test_of_several_jobs_a_users_own_are_changed_and_the_others_named(cluster: ByHand) -> None:
    (reply,) = ask(cluster, JobChange("cancel", "k", ("1", "2")), "bob")
    assert isinstance(reply, ChangeReply)
    assert reply.jobs == (2,)
    assert [left.job for left in reply.left] == ["1"] and "ann" in reply.left[0].why


@pytest.mark.parametrize("user", ["root", "daemon", "dovetail", "mal", "nobody-known"])
def test_who_may_not_run_jobs_may_not_submit(cluster: ByHand, user: str) -> None:
    with pytest.raises(InputError):
        ask(cluster, Submit("k", (Submission(spec()),)), user)


def test_who_is_not_listed_is_not_admitted(cluster: ByHand) -> None:
    assert "not in users.toml" in USERS.why_not_admitted("mal")
    assert USERS.why_not_admitted("ann") == USERS.why_not_admitted("eve") == ""

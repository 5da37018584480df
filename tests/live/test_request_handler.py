"""What is answered: from the store, from the published picture, and never what is secret."""

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import sleep, thread_time
from typing import Any

import pytest

from cluster_by_hand import ByHand, spec
from dovetail.core.errors import DovetailError, InputError
from dovetail.core.messages import Ended, Reason, Started, Stopped, Submitted
from dovetail.core.placement import Placement
from dovetail.live.controller.worker_loss import CROWDED
from dovetail.live.edges.protocols import JournalEntry, Request
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.status_snapshot import NodeStatus
from dovetail.live.server import request_handler as desk
from dovetail.live.server.messages.changes import ChangeReply, Drain, JobChange, Submit
from dovetail.live.server.messages.changes import SubmitReply as Taken
from dovetail.live.server.messages.cluster import ListNodes, NodeList, Ping
from dovetail.live.server.messages.events import History, HistoryReply
from dovetail.live.server.messages.listing import JobList, ListJobs
from dovetail.live.server.messages.one_job import ShowJob, ShowReply
from dovetail.live.server.messages.output import Logs, LogsReply
from dovetail.live.server.messages.reason import ExplainJob, ExplainReply
from dovetail.live.server.messages.tracking import JobState, TrackJobs, TrackReply
from dovetail.live.server.output_text import OutputReader
from dovetail.live.server.protocol import json_values, line_of_reply
from dovetail.live.server.requests import Question
from dovetail.wire.spec import Dependency
from dovetail.wire.submission import Submission


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def cluster(home: Path) -> Iterator[ByHand]:
    by_hand = ByHand(home)
    yield by_hand
    by_hand.close()


def submit(cluster: ByHand, *submissions: Submission, user: str = "ann") -> tuple[int, ...]:
    taken = cluster.ask(Submit(f"key-{len(cluster.come)}", submissions), user)
    assert isinstance(taken, Taken)
    return taken.jobs


def why(cluster: ByHand, job: int) -> ExplainReply:
    found = cluster.ask(ExplainJob(str(job)))
    assert isinstance(found, ExplainReply)
    return found


def test_a_job_is_on_record_when_its_number_is_told_and_belongs_to_whom_the_kernel_says(
    cluster: ByHand,
) -> None:
    (number,) = submit(cluster, Submission(spec(user="root")), user="ann")
    found = cluster.store.find(number)
    assert found is not None
    assert found.spec.user == "ann"
    assert [c.number for c in cluster.come] == [number]  # type: ignore[union-attr]


def test_the_same_key_gives_the_same_numbers(cluster: ByHand) -> None:
    asked = Submit("k", (Submission(spec(), array=(0, 1)), Submission(spec())))
    assert cluster.ask(asked) == cluster.ask(asked) == Taken((1, 3))
    assert len(cluster.come) == 3


def test_programs_and_clocks_are_kept_apart(cluster: ByHand, home: Path) -> None:
    with pytest.raises(InputError, match="needs an emulated cluster"):
        submit(cluster, Submission(spec(command=(), paced=True, duration_s=5.0)))
    emulated = ByHand(home / "emulated", paced=True)
    with pytest.raises(InputError, match="emulated nodes run no programs"):
        submit(emulated, Submission(spec()))
    assert submit(emulated, Submission(spec(command=(), paced=True, duration_s=5.0))) == (1,)
    emulated.close()


def test_changes_are_kept_as_requests_for_each_job_of_an_array(cluster: ByHand) -> None:
    submit(cluster, Submission(spec(), array=(0, 1, 2)), Submission(spec()))
    cluster.come.clear()
    assert cluster.ask(JobChange("hold", "h", ("1_2", "4"))) == ChangeReply(
        (3, 4), (), ("1_2", "4")
    )
    assert [(r.verb, r.job) for r in cluster.come if isinstance(r, Request)] == [
        ("hold", 3),
        ("hold", 4),
    ]
    assert cluster.ask(JobChange("cancel", "c", ("1",))).jobs == (1, 2, 3)
    for wrong in ("9", "1_7", "../1", "-1", "", "1;2", "1_", "१"):
        with pytest.raises(InputError, match="job"):
            cluster.ask(JobChange("cancel", "d", (wrong,)))


def test_a_node_that_is_not_there_cannot_be_drained(cluster: ByHand) -> None:
    assert cluster.ask(Drain("d", 0)) == ChangeReply()
    assert cluster.ask(Drain("u", 0, undo=True)) == ChangeReply()
    assert [r.verb for r in cluster.come if isinstance(r, Request)] == ["drain", "undrain"]
    with pytest.raises(InputError, match="node 5: there is no such node"):
        cluster.ask(Drain("e", 5))


def test_a_list_has_running_jobs_then_waiting_ones_in_the_policys_order(cluster: ByHand) -> None:
    submit(cluster, *[Submission(spec(f"j{i}")) for i in range(5)])
    cluster.run(2, [(0, 1)], left_s=30.0)
    cluster.wait([5, 3], Reason("Resources", job=5), Reason("Priority", behind=5))
    cluster.record(4, held=True)
    cluster.record(1, state=State.COMPLETED, end_s=50.0, exit_code=0)
    found = cluster.ask(ListJobs())
    assert isinstance(found, JobList)
    assert [(r.job, r.state, r.reason) for r in found.jobs] == [
        (2, "RUNNING", ""),
        (5, "PENDING", "Resources"),
        (3, "PENDING", "Priority"),
        (4, "PENDING", "JobHeldUser"),
    ]
    running = found.jobs[0]
    assert (running.where, running.held_gpus, running.progress, running.left_s) == (
        "0:1", 1, 0.25, 30.0,
    )  # fmt: skip
    assert dict(found.counts) == {"PENDING": 3, "RUNNING": 1, "COMPLETED": 1}
    ended = cluster.ask(ListJobs(ended=True))
    assert isinstance(ended, JobList)
    assert ended.jobs[-1].job == 1
    few = cluster.ask(ListJobs(limit=2))
    assert isinstance(few, JobList)
    assert ([r.job for r in few.jobs], few.more) == ([2, 5], 2)


def test_waiting_tasks_of_an_array_are_one_row_where_that_is_asked_for(cluster: ByHand) -> None:
    submit(cluster, Submission(spec("sweep"), (0, 1, 2, 5, 7, 8)), Submission(spec("alone")))
    cluster.run(1, [(0, 1)], left_s=30.0)
    cluster.record(2, state=State.COMPLETED, end_s=50.0)
    cluster.record(3, held=True)
    cluster.wait([6, 7, 4, 5], Reason("Resources", job=6), Reason("Priority", behind=6))
    found = cluster.ask(ListJobs(group_arrays=True))
    assert isinstance(found, JobList)
    assert [(r.job, r.tasks, r.task_count, r.array, r.reason) for r in found.jobs] == [
        (1, "", 1, 0, ""),
        (6, "5,7-8", 3, -1, "Resources"),
        (7, "", 1, -1, "Priority"),
        (3, "", 1, 2, "JobHeldUser"),
    ]
    assert (found.total, found.more) == (4, 0)
    each = cluster.ask(ListJobs())
    assert isinstance(each, JobList)
    assert [r.job for r in each.jobs] == [1, 6, 7, 4, 5, 3] and each.total == 6


def test_pages_together_are_the_whole_list(cluster: ByHand) -> None:
    submit(cluster, *[Submission(spec(f"j{i}")) for i in range(9)], user="ann")
    cluster.run(2, [(0, 1)], left_s=30.0)
    cluster.wait([5, 3], Reason("Resources", job=5), Reason("Priority", behind=5))
    for job in (1, 7, 9):
        cluster.record(job, state=State.COMPLETED, end_s=100.0 - job)

    def jobs(**asked: Any) -> JobList:
        found = cluster.ask(ListJobs(**asked))
        assert isinstance(found, JobList)
        return found

    for asked in (
        {"ended": True},
        {"ended": True, "user": "ann"},
        {},
        {"name": "j2"},
        {"states": ("COMPLETED", "PENDING")},
        {"states": ("COMPLETED",)},
    ):
        whole = jobs(**asked)
        assert (len(whole.jobs), whole.more) == (whole.total, 0), asked
        paged: list[int] = []
        for offset in range(0, whole.total + 2, 2):
            part = jobs(**asked, limit=2, offset=offset)
            paged += [row.job for row in part.jobs]
            assert part.total == whole.total
            assert part.more == max(0, whole.total - offset - 2)
        assert sorted(paged) == sorted(row.job for row in whole.jobs), asked


def test_a_list_can_be_filtered(cluster: ByHand) -> None:
    submit(cluster, Submission(spec("a")), user="ann")
    submit(cluster, Submission(spec("b")), user="bob")

    def jobs(asked: Question) -> list[int]:
        found = cluster.ask(asked)
        assert isinstance(found, JobList)
        return [r.job for r in found.jobs]

    assert jobs(ListJobs(user="bob")) == [2]
    assert jobs(ListJobs(name="a")) == [1]
    assert jobs(ListJobs(states=("pending",))) == [1, 2]
    assert jobs(ListJobs(states=("RUNNING",))) == []
    with pytest.raises(InputError, match="no such state"):
        jobs(ListJobs(states=("BUSY",)))


def test_ended_jobs_are_listed_by_their_ends(cluster: ByHand) -> None:
    submit(cluster, *[Submission(spec()) for _ in range(5)])
    for job, end_s in ((1, 60.0), (2, 20.0), (4, 40.0)):
        cluster.record(job, state=State.COMPLETED, end_s=end_s)
    cluster.record(5, state=State.FAILED, end_s=50.0)

    def ended(**asked: Any) -> list[int]:
        found = cluster.ask(ListJobs(states=("COMPLETED", "FAILED"), **asked))
        assert isinstance(found, JobList)
        return [row.job for row in found.jobs]

    assert ended() == [1, 5, 4, 2]
    assert ended(limit=2) == [1, 5], "the newest ends, not the newest jobs"
    assert ended(since_s=40.0) == [1, 5, 4]
    assert ended(since_s=61.0) == []
    assert ended(user="nobody") == []


def test_a_change_says_for_whom_it_is(cluster: ByHand) -> None:
    submit(cluster, Submission(spec()), Submission(spec(), (0, 1)), Submission(spec()))
    cluster.record(1, state=State.COMPLETED, end_s=9.0)
    cluster.record(2, state=State.COMPLETED, end_s=9.0)
    cluster.run(4, [(0, 0)])
    found = cluster.ask(JobChange("hold", "a", ("1", "2", "2_0", "4")))
    assert isinstance(found, ChangeReply)
    assert found.jobs == (3,), "of the array only what is not over"
    assert [(left.job, left.why) for left in found.left] == [
        ("1", "it is over (COMPLETED)"),
        ("2_0", "it is over (COMPLETED)"),
        ("4", "it is on GPUs: only a job that waits can be held (RUNNING)"),
    ]
    assert cluster.ask(JobChange("hold", "a", ("1", "2", "2_0", "4"))) == found, "asked once more"
    with pytest.raises(InputError, match=r"^job 2_0: it is over \(COMPLETED\)$"):
        cluster.ask(JobChange("hold", "b", ("2_0",)))


def test_a_waiting_job_is_told_who_is_ahead_what_is_free_and_what_must_happen(
    cluster: ByHand,
) -> None:
    submit(cluster, *[Submission(spec(gpus=2, min_gpus=2, max_gpus=2)) for _ in range(3)])
    cluster.run(1, [(0, 0), (0, 1)], left_s=42.0)
    cluster.wait([3, 2], Reason("Resources", job=3), Reason("Priority", behind=3))
    first, second = why(cluster, 3), why(cluster, 2)
    assert first.code == "Resources" and first.ahead == ()
    assert "no GPU is free" in first.evidence
    assert "2 more GPUs must become free" in first.would_start
    assert "in 42 s" in first.would_start
    assert (second.code, second.ahead, second.ahead_count) == ("Priority", (3,), 1)
    assert "1 waiting job is ahead of it: 3 (2 GPUs)" in second.evidence
    assert second.decided_s == 99.0


def test_a_waiting_job_is_told_that_its_nodes_are_closed(cluster: ByHand) -> None:
    submit(cluster, Submission(spec()), Submission(spec()))
    cluster.run(1, [(0, 0)], left_s=42.0)
    cluster.wait([2], Reason("Resources"))
    assert cluster.picture is not None
    for state in ("draining", "down"):
        nodes = (NodeStatus(0, state, ("a", "b"), 99.5),)
        cluster.picture = replace(cluster.picture, nodes=nodes)
        closed = why(cluster, 2)
        assert closed.code == "ReqNodeNotAvail"
        assert "down or draining" in closed.sentence and "up again" in closed.would_start
        assert f"1 node is {state}: 0" in closed.evidence
        listed = cluster.ask(ListJobs())
        assert isinstance(listed, JobList)
        assert {row.job: row.reason for row in listed.jobs}[2] == "ReqNodeNotAvail"


def test_a_held_job_and_one_with_a_dependency_say_so(cluster: ByHand) -> None:
    submit(
        cluster,
        Submission(spec(hold=True)),
        Submission(spec(after=(Dependency("afterok", -1),))),
    )
    cluster.record(2, reason="Dependency")
    held, dependent = why(cluster, 1), why(cluster, 2)
    assert (held.code, held.would_start) == ("JobHeldUser", "release it")
    assert dependent.code == "Dependency"
    assert "it needs afterok:1; job 1 is PENDING" in dependent.evidence


def test_a_job_that_is_tried_behind_others_is_not_called_next(cluster: ByHand) -> None:
    submit(cluster, Submission(spec(), (3, 4)), Submission(spec()))
    cluster.run(1, [(0, 0)])
    cluster.wait([2, 3], Reason("Resources"))
    first, second = why(cluster, 2), why(cluster, 3)
    assert "it is next in the policy's order" in first.sentence
    assert "next" not in second.sentence and "jobs ahead of it" in second.sentence
    assert "1 waiting job is ahead of it: 1_4 (1 GPU)" in second.evidence


def test_what_must_happen_is_said_of_the_very_condition(cluster: ByHand) -> None:
    need = spec(after=(Dependency("afterok", -1), Dependency("afterany", -2, task=7)))
    submit(cluster, Submission(spec()), Submission(spec(), (6, 7)), Submission(need))
    cluster.record(4, reason="Dependency")
    assert why(cluster, 4).would_start == "job 1 must complete, job 2_7 must end"
    cluster.record(1, state=State.FAILED, end_s=9.0)
    cluster.record(4, reason="DependencyNeverSatisfied")
    assert why(cluster, 4).would_start == "job 1 would have to be requeued and complete"
    cluster.record(4, reason="JobArrayTaskLimit")
    assert why(cluster, 4).would_start == "a task of its array must end"
    cluster.record(4, reason="BeginTime", not_before_s=1e4)
    assert why(cluster, 4).would_start.endswith(" s must pass")
    cluster.record(4, reason="")
    assert "the policy must be asked about it" in why(cluster, 4).would_start


def test_a_running_job_is_told_why_so_many_gpus_and_with_whom(cluster: ByHand) -> None:
    elastic = spec(gpus=1, min_gpus=1, max_gpus=4, trains=True)
    submit(cluster, Submission(elastic), Submission(spec()), Submission(spec()))
    cluster.run(1, [(0, 0)], rate=0.5)
    cluster.run(2, [(0, 0)])
    alone = why(cluster, 1)
    assert "the fewest it takes: srtf gives it none of those that are free" in alone.sentence
    cluster.run(3, [(0, 1)])
    found = why(cluster, 1)
    assert found.code == "Running"
    assert "the fewest it takes: srtf gives the others to other jobs" in found.sentence
    assert "it shares GPUs with job 2" in found.evidence
    assert "at 0.50 times its speed alone as requested" in found.evidence
    assert why(cluster, 2).sentence == "it runs on 1 GPU, as it asked"
    cluster.run(2, [(0, 0)], rate=0.0)
    said = why(cluster, 2).evidence
    assert any(fact.startswith("it makes no progress yet") for fact in said)
    assert not any("0.00 times" in fact for fact in said)


def test_a_job_that_runs_again_is_told_why_it_was_stopped(cluster: ByHand) -> None:
    submit(cluster, Submission(spec()))
    cluster.run(1, [(0, 0)])
    place = Placement(((0, 1),))
    cluster.store.write(JournalEntry(facts=(Started(3.0, 1, "start", place, 1.0, 3.0),)))
    assert "last placed at 3 s (start)" in why(cluster, 1).evidence
    again = Started(8.0, 1, "resume", place, 1.0, 8.0)
    cluster.store.write(JournalEntry(facts=(Stopped(5.0, 1, CROWDED, 2.0), again)))
    said = "last placed at 8 s (resume), after it was stopped at 5 s: out of memory beside another"
    assert said in why(cluster, 1).evidence


def test_an_ended_job_is_told_why(cluster: ByHand) -> None:
    submit(cluster, Submission(spec()), Submission(spec()))
    cluster.record(
        1, state=State.FAILED, exit_code=3, end_s=99.0, first_start_s=98.0, reason="NonZeroExitCode"
    )
    cluster.record(2, state=State.CANCELLED, end_s=99.0)
    failed, cancelled = why(cluster, 1), why(cluster, 2)
    assert (failed.code, failed.sentence) == ("NonZeroExitCode", "its program failed")
    assert "it exited with code 3" in failed.evidence
    cluster.record(1, exit_code=-11, retries=1)
    assert "signal 11 (SIGSEGV) ended it" in why(cluster, 1).evidence
    assert "it was tried again once of 3" in why(cluster, 1).evidence
    assert "it never started" in cancelled.evidence


def test_the_environment_of_a_job_is_named_but_never_told(cluster: ByHand) -> None:
    submit(cluster, Submission(spec(environment=(("API_KEY", "hunter2"), ("A", "b")))))
    cluster.run(1, [(0, 0)])
    cluster.store.write(JournalEntry(facts=(Submitted(1.0, 1, 5.0),)))
    shown = cluster.ask(ShowJob("1"))
    assert isinstance(shown, ShowReply)
    assert shown.environment == ("A", "API_KEY")
    for asked in (
        ShowJob("1"),
        ExplainJob("1"),
        ListJobs(),
        History(),
        History("1"),
        ListNodes(),
        Ping(),
    ):
        said = b"".join(map(line_of_reply, cluster.desk.answer(asked, "ann")))
        assert b"hunter2" not in said, asked.verb


def test_facts_are_recalled_page_by_page(cluster: ByHand) -> None:
    submit(cluster, Submission(spec()), Submission(spec()))
    place = Placement(((0, 1),))
    cluster.store.write(
        JournalEntry(
            facts=(Submitted(1.0, 1, 5.0), Submitted(1.0, 2, 5.0), Ended(2.0, 1, "completed"))
        )
    )
    cluster.store.write(JournalEntry(facts=(Started(3.0, 2, "start", place, 1.0, 3.0),)))
    pages = []
    after = 0
    while after >= 0:
        page = cluster.ask(History(after=after, limit=3))
        assert isinstance(page, HistoryReply)
        pages.append(len(page.events))
        after = page.more_after
    assert pages == [3, 1]
    of_two = cluster.ask(History("2"))
    assert isinstance(of_two, HistoryReply)
    assert [f.line.partition('"e":"')[2].partition('"')[0] for f in of_two.events] == [
        "submitted",
        "started",
    ]


def test_nodes_show_the_jobs_on_each_gpu(cluster: ByHand) -> None:
    submit(cluster, Submission(spec()), Submission(spec()))
    cluster.run(1, [(0, 1)])
    cluster.run(2, [(0, 1)])
    found = cluster.ask(ListNodes())
    assert isinstance(found, NodeList)
    (node,) = found.nodes
    assert (node.jobs, node.silent_s) == (((), (1, 2)), 0.5)


def test_a_log_is_followed_to_the_end_of_its_job(cluster: ByHand) -> None:
    submit(cluster, Submission(spec()))
    path = cluster.folder.make_job(1) / "output.log"
    cluster.run(1, [(0, 0)])
    found = cluster.store.find(1)
    assert found is not None
    over = replace(found.record, state=State.COMPLETED, exit_code=0)

    def work() -> None:
        path.write_text("one\n")
        sleep(0.2)
        with path.open("ab") as file:
            file.write("zwö".encode()[:-1])
            file.flush()
            sleep(0.2)
            file.write("ö".encode()[-1:] + b"\n")
        cluster.store.write(JournalEntry(records=(over,)))

    worker = threading.Thread(target=work)
    worker.start()
    pieces = list(cluster.desk.answer(Logs("1", follow=True), "ann"))
    worker.join()
    assert all(isinstance(p, LogsReply) for p in pieces)
    assert "".join(p.text for p in pieces if isinstance(p, LogsReply)) == "one\nzwö\n"
    assert pieces[-1] == LogsReply("", True, "COMPLETED", 0)


def test_followers_leave_room_for_others(cluster: ByHand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "BEAT_S", 0.0)
    submit(cluster, Submission(spec()))
    following = [
        cluster.desk.answer(Logs("1", follow=True), "ann") for _ in range(desk.FOLLOWERS_MAX)
    ]
    for one in following:
        assert next(one) == LogsReply()
    with pytest.raises(DovetailError, match="follow logs already"):
        next(cluster.desk.answer(Logs("1", follow=True), "ann"))
    assert cluster.ask(Ping())
    for one in following:
        one.close()  # type: ignore[attr-defined]
    again = cluster.desk.answer(Logs("1", follow=True), "ann")
    assert next(again) == LogsReply()
    again.close()  # type: ignore[attr-defined]


def test_a_log_that_is_not_there_yet_is_empty_and_a_pipe_in_its_place_is_refused(
    cluster: ByHand,
) -> None:
    submit(cluster, Submission(spec()), Submission(spec(), array=(0, 1)))
    (only,) = cluster.desk.answer(Logs("1"), "ann")
    assert only == LogsReply("", True, "PENDING", None)
    os.mkfifo(cluster.folder.make_job(1) / "output.log")
    # Whoever opened it to read would wait for ever for one who writes.
    with pytest.raises(InputError, match="no plain file"):
        list(cluster.desk.answer(Logs("1"), "ann"))
    with pytest.raises(InputError, match="an array of 2"):
        list(cluster.desk.answer(Logs("2"), "ann"))
    for trick in ("../../token", "1/../2", "/etc/passwd", "1\n2"):
        with pytest.raises(InputError, match="no number"):
            list(cluster.desk.answer(Logs(trick), "ann"))


@pytest.mark.parametrize(
    ("content", "tail", "expected"),
    [
        ("a\nb\nc\n", 1, "c\n"),
        ("a\nb\nc", 1, "c"),
        ("a\nb\nc\n", 2, "b\nc\n"),
        ("a\nb\nc\n", 9, "a\nb\nc\n"),
        ("a\nb\n", 0, ""),
        ("", 3, ""),
        ("\n\n\n", 2, "\n\n"),
        ("x" * 200_000 + "\nend\n", 1, "end\n"),
        ("y\n" * 100_000, 70_000, "y\n" * 70_000),
    ],
)
def test_the_last_lines_of_a_log(tmp_path: Path, content: str, tail: int, expected: str) -> None:
    path = tmp_path / "log"
    path.write_text(content)
    with OutputReader(path, tail) as output:
        assert "".join(output.read()) + output.rest() == expected


def test_what_goes_to_the_null_device_is_no_log(tmp_path: Path) -> None:
    with OutputReader(Path(os.devnull)) as output:
        assert list(output.read()) == []
    os.mkfifo(tmp_path / "pipe")
    with OutputReader(tmp_path / "pipe") as output, pytest.raises(InputError, match="plain file"):
        list(output.read())


def test_states_of_jobs_are_tracked_with_all_tasks_of_arrays(cluster: ByHand) -> None:
    submit(cluster, Submission(spec(), array=(0, 1)), Submission(spec()))
    cluster.record(2, state=State.COMPLETED, exit_code=0)
    found = cluster.ask(TrackJobs(("1", "3")))
    assert isinstance(found, TrackReply)
    assert [(j.job, j.state) for j in found.jobs] == [
        (1, "PENDING"),
        (2, "COMPLETED"),
        (3, "PENDING"),
    ]


def test_before_the_first_picture_the_desk_says_that_it_is_starting(
    cluster: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "FIRST_SNAPSHOT_S", 0.2)
    cluster.picture = None
    with pytest.raises(DovetailError, match="just starting"):
        cluster.ask(ListJobs())
    assert cluster.ask(Ping())


def test_list_and_why_take_less_than_a_tenth_of_a_second_with_ten_thousand_waiting(
    cluster: ByHand,
) -> None:
    for part in range(10):
        submit(cluster, Submission(spec(f"part{part}"), array=tuple(range(1000))))
    cluster.wait(range(1, 10_001), Reason("Resources", job=1), Reason("Priority", behind=1))
    for asked in (ListJobs(), ExplainJob("9999"), ShowJob("5000")):
        took = []
        for _ in range(3):
            began = thread_time()
            line_of_reply(cluster.ask(asked))
            took.append(thread_time() - began)
        assert min(took) < 0.1, f"{asked.verb} takes {min(took):.3f} s of processor time"


def test_what_is_not_there_is_null_for_programs(cluster: ByHand) -> None:
    submit(cluster, Submission(spec()), Submission(spec()))
    cluster.run(1, [(0, 0)])
    said = json.loads(json.dumps(json_values(cluster.ask(ListJobs())), allow_nan=False))
    assert said["counts"] == {"PENDING": 1, "RUNNING": 1}
    (waiting,) = (row for row in said["jobs"] if row["job"] == 2)
    none = ("progress", "array", "array_of", "start_s", "end_s", "left_s", "exit_code")
    assert [waiting[name] for name in none] == [None] * len(none)
    assert waiting["held_gpus"] == 0 and waiting["done_s"] == 0.0
    killed = json_values(JobState(1, "1", "FAILED", exit_code=-1))
    assert killed["exit_code"] == -1

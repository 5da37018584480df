"""What `why`, `ls` and changes say where it is easily said wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace

import pytest
from live_stage import Stage

from cluster_by_hand import ByHand, by_hand, spec
from dovetail.core.errors import InputError
from dovetail.core.messages import Reason
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.status_snapshot import NodeStatus, StatusSnapshot
from dovetail.live.node.launcher import StartDeferred
from dovetail.live.server.messages.changes import ChangeReply, JobChange, RefusedJob
from dovetail.live.server.messages.listing import JobList, JobRow, ListJobs
from dovetail.live.server.messages.one_job import ShowJob, ShowReply
from dovetail.live.server.messages.reason import ExplainJob, ExplainReply
from dovetail.live.server.messages.tracking import JobState, TrackJobs, TrackReply
from dovetail.live.store.record_codec import spec_of, spec_text
from dovetail.wire.agent import StartWorker
from dovetail.wire.submission import Submission


@pytest.fixture
def cluster() -> Iterator[ByHand]:
    with by_hand() as cluster:
        yield cluster


def submit(cluster: ByHand, *submissions: Submission) -> None:
    cluster.intake.submit(submissions, key=f"key {len(cluster.come)}", user="ann")


def why(cluster: ByHand, job: object) -> ExplainReply:
    found = cluster.ask(ExplainJob(str(job)))
    assert isinstance(found, ExplainReply)
    return found


def row(cluster: ByHand, job: int) -> JobRow:
    found = cluster.ask(ListJobs(ended=True))
    assert isinstance(found, JobList)
    return next(row for row in found.jobs if row.job == job)


def test_a_refused_plan_is_told_until_another_one_stands(cluster: ByHand) -> None:
    submit(cluster, Submission(spec()))
    cluster.wait([1], Reason("Resources"))
    assert cluster.picture is not None
    refused = replace(cluster.picture, refused="it has no idea", decided_s=50.0, refused_s=60.0)
    cluster.picture = refused
    assert "the last plan was refused: it has no idea" in why(cluster, 1).evidence
    cluster.picture = replace(refused, decided_s=70.0)
    assert not any("refused" in fact for fact in why(cluster, 1).evidence)


def test_a_disk_without_room_is_why_a_job_does_not_start(cluster: ByHand) -> None:
    submit(cluster, Submission(spec()), Submission(spec()))
    cluster.wait([2], Reason("Resources"))
    assert cluster.picture is not None
    cluster.picture = replace(cluster.picture, unwritable="no inodes are left")
    said = why(cluster, 1)
    assert said.code == row(cluster, 1).reason == "StorageUnavailable"
    assert "cannot write to its folder" in said.sentence and "no inodes are left" in said.evidence
    assert said.would_start == "the controller must be able to write to its folder again"
    assert why(cluster, 2).code == "Resources" and "no inodes are left" in why(cluster, 2).evidence
    cluster.picture = replace(cluster.picture, unwritable="")
    assert why(cluster, 1).code == "None"


def test_gpus_of_another_type_are_not_free_for_a_job(cluster: ByHand) -> None:
    submit(cluster, Submission(spec()), Submission(spec()))
    assert cluster.picture is not None
    nodes = tuple(
        NodeStatus(n, "up", ("a", "b"), 99.5, gpu_type=kind)
        for n, kind in enumerate(("t4", "v100"))
    )
    cluster.picture = replace(cluster.picture, nodes=nodes)

    # No group of the intake's cluster has a type, so the store is told what was asked.
    def ask_for_a_v100(db: sqlite3.Connection) -> int:
        (text,) = db.execute("SELECT spec FROM jobs WHERE number = 2").fetchone()
        asked = spec_text(replace(spec_of(text), gpu_type="v100"))
        return db.execute("UPDATE jobs SET spec = ? WHERE number = 2", (asked,)).rowcount

    cluster.store.committer.do(ask_for_a_v100)
    cluster.run(1, [(1, 0), (1, 1)], left_s=30.0)
    cluster.wait([2], Reason("Resources", job=2))
    found = why(cluster, 2)
    assert "no v100 GPU is free" in found.evidence and found.free_gpus == 0
    assert found.would_start.startswith("1 more GPU must become free; by the forecast")
    assert "2 GPUs are free, at most 2 on one node" in why(cluster, 1).evidence


def test_gpus_that_another_queue_owns_are_not_free_for_a_job() -> None:
    with by_hand("big", "any") as cluster:
        submit(cluster, Submission(spec(queue="big")), Submission(spec(queue="any")))
        assert cluster.picture is not None
        nodes = (
            NodeStatus(0, "up", ("a", "b"), 99.5, closed_to=("big",)),
            NodeStatus(1, "up", ("a", "b"), 99.5),
        )
        cluster.picture = replace(cluster.picture, nodes=nodes)
        cluster.wait([1, 2], Reason("Resources", job=1))
        assert "2 GPUs are free, at most 2 on one node" in why(cluster, 1).evidence
        assert "4 GPUs are free, at most 2 on one node" in why(cluster, 2).evidence
        cluster.picture = replace(
            cluster.picture, nodes=(nodes[0], replace(nodes[1], state="down"))
        )
        assert why(cluster, 1).code == "ReqNodeNotAvail"
        assert why(cluster, 2).code != "ReqNodeNotAvail"


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        ({"cpus": 2.0}, "1 GPU with 2 CPUs"),
        ({"memory_bytes": 2.0**30}, "1 GPU with 1.0G of memory"),
        ({"cpus": 0.5, "memory_bytes": 2.0**31}, "1 GPU with 0.5 CPUs and 2.0G of memory"),
    ],
)
def test_free_gpus_without_cpus_and_memory_beside_them_are_no_room(
    cluster: ByHand, asks: dict[str, float], said: str
) -> None:
    submit(cluster, Submission(spec("job", **asks)))
    cluster.wait([1], Reason("Resources", job=1))
    found = why(cluster, 1)
    assert f"it asks for {said}" in found.evidence
    assert found.would_start.startswith("as many GPUs are free, but not with the CPUs")
    cluster.wait([1])
    assert why(cluster, 1).would_start.startswith("enough GPUs are free"), "nobody looked yet"


def test_a_job_runs_while_it_runs_and_not_while_it_waits(cluster: ByHand) -> None:
    submit(cluster, *[Submission(spec()) for _ in range(3)])
    cluster.run(1, [(0, 0)])
    cluster.record(1, ran_s=5.0, since_s=70.0, first_start_s=10.0)
    cluster.record(2, ran_s=5.0, since_s=70.0, first_start_s=10.0)
    ended = {"state": State.COMPLETED, "end_s": 90.0, "since_s": 90.0}
    cluster.record(3, ran_s=20.0, first_start_s=10.0, **ended)
    assert [row(cluster, job).ran_s for job in (1, 2, 3)] == [35.0, 5.0, 20.0]
    shown = cluster.ask(ShowJob("1"))
    assert isinstance(shown, ShowReply) and shown.ran_s == 35.0


def test_jobs_that_are_not_there_keep_nothing_from_being_done_to_the_others(
    cluster: ByHand,
) -> None:
    submit(cluster, Submission(spec()), Submission(spec(), (5, 7)))
    found = cluster.ask(JobChange("hold", "h", ("1", "9", "2_6", "2_7")))
    gone = "there is no such job"
    assert found == ChangeReply(
        (1, 3), (RefusedJob("9", gone), RefusedJob("2_6", gone)), ("1", "2_7")
    )
    with pytest.raises(InputError, match=f"^job 9: {gone}$"):
        cluster.ask(JobChange("hold", "i", ("9", "2_6")))
    with pytest.raises(InputError, match="job 'x': is no number of a job"):
        cluster.ask(JobChange("hold", "j", ("1", "x")))


def test_a_task_is_named_that_is_there(cluster: ByHand) -> None:
    submit(cluster, Submission(spec(), (5, 7)))
    with pytest.raises(InputError, match=r"is an array of 2 \(name one, as in 1_5\)"):
        cluster.ask(ExplainJob("1"))


def test_many_jobs_are_tracked_by_name_state_and_code(cluster: ByHand) -> None:
    submit(cluster, Submission(spec(), tuple(range(1200))), Submission(spec()))
    cluster.record(2, state=State.FAILED, exit_code=3, end_s=9.0)
    cluster.record(3, state=State.CANCELLED, end_s=9.0)
    found = cluster.ask(TrackJobs(("1", "1_1", "1201")))
    assert isinstance(found, TrackReply) and len(found.jobs) == 1201
    assert found.jobs[:3] == (
        JobState(1, "1_0", "PENDING"),
        JobState(2, "1_1", "FAILED", 3),
        JobState(3, "1_2", "CANCELLED"),
    )
    assert found.jobs[-1] == JobState(1201, "1201", "PENDING")


def test_a_job_that_is_being_started_says_for_whom_it_waits(cluster: ByHand) -> None:
    submit(cluster, Submission(spec(), (4, 5)))
    run = cluster.run(2, [(0, 0)])
    cluster.record(2, state=State.CONFIGURING)
    assert cluster.picture is not None
    cluster.picture = replace(cluster.picture, running=(replace(run, awaits=(1,)),))
    said = "it waits for job 1_4 to leave its GPUs, or to hold less of their memory"
    assert said in why(cluster, 2).evidence


def test_who_is_still_on_the_gpus_of_another_job_is_known() -> None:
    s = Stage(nodes=1, gpus=1)
    s.submit(1.0, duration_s=50.0, grace_s=10.0)
    s.submit(2.0, duration_s=5.0)
    s.at(4.0, lambda: s.take(s.nodes.hang(1, 0, 4.0)))
    s.ask(5.0, "cancel", 1)
    seen: list[StatusSnapshot | None] = []
    s.at(9.0, lambda: seen.append(s.world.status if s.world else None))
    s.at(22.0, lambda: seen.append(s.world.status if s.world else None))
    s.play(60.0)
    waiting, running = seen
    assert waiting is not None and running is not None
    assert [(run.job, run.awaits) for run in waiting.running] == [(2, (1,))]
    assert [run.awaits for run in running.running] in ([()], [])
    assert s.states() == {1: State.CANCELLED, 2: State.COMPLETED}


def test_a_job_whose_worker_waits_for_gpu_memory_says_so_until_it_starts() -> None:
    s = Stage(nodes=1, gpus=2)
    start_worker, freed_s = s.nodes.start_worker, 14.0

    def waits(node: int, order: StartWorker, now: float) -> None:
        if now < freed_s:
            raise StartDeferred("the memory of GPU 0 is held")
        start_worker(node, order, now)

    s.nodes.start_worker = waits  # type: ignore[method-assign]
    s.submit(1.0, duration_s=20.0)
    seen: list[StatusSnapshot | None] = []
    for t in (9.0, 20.0):
        s.at(t, lambda: seen.append(s.world.status if s.world else None))
    s.play(60.0)
    waiting, running = seen
    assert waiting is not None and running is not None
    assert [run.deferred for run in waiting.running] == [("node 0: the memory of GPU 0 is held",)]
    assert [run.deferred for run in running.running] == [()]
    assert s.states() == {1: State.COMPLETED}


def test_why_and_ls_name_the_gpu_memory_that_a_job_waits_for(cluster: ByHand) -> None:
    submit(cluster, Submission(spec()))
    run = cluster.run(1, [(0, 0)])
    cluster.record(1, state=State.CONFIGURING)
    assert cluster.picture is not None and row(cluster, 1).reason == ""
    late = replace(run, deferred=("node 0: the memory of GPU 0 is held",))
    cluster.picture = replace(cluster.picture, running=(late,))
    assert row(cluster, 1).reason == "GpuMemoryHeld"
    said = "it waits for GPU memory on node 0: the memory of GPU 0 is held"
    assert said in why(cluster, 1).evidence


def test_a_job_that_may_still_run_says_where_and_for_how_long_at_most(cluster: ByHand) -> None:
    submit(cluster, Submission(spec()), Submission(spec()))
    detail = "it may still run on node 3, which cannot be reached"
    cluster.record(1, reason="NodeDisconnected", detail=detail, nodes=(0, 3))
    assert cluster.picture is not None
    down = NodeStatus(3, "down", ("a",), heard_s=75.0, lost_s=742.0)
    cluster.picture = replace(cluster.picture, nodes=(*cluster.picture.nodes, down))
    said = why(cluster, 1)
    assert (said.code, said.sentence) == ("NodeDisconnected", detail)
    assert "node 3 was last heard 25 s ago" in said.evidence
    assert said.would_start == "node 3 must be back, or be lost, as it is in 642 s at the latest"
    listed = row(cluster, 1)
    assert (listed.reason, listed.where) == ("NodeDisconnected", "awaits 3, 642 s")
    # Of two nodes the later one counts. Other jobs say nothing of it.
    other = NodeStatus(0, "down", ("a",), heard_s=50.0, lost_s=900.0)
    cluster.picture = replace(cluster.picture, nodes=(other, down))
    both = "nodes 0, 3 must be back, or be lost, as they are in 800 s at the latest"
    assert why(cluster, 1).would_start == both and row(cluster, 1).where == "awaits 0,3, 800 s"
    assert row(cluster, 2).where == "" and "heard" not in " ".join(why(cluster, 2).evidence)


def test_a_job_that_keeps_its_place_on_a_node_that_is_down_says_so(cluster: ByHand) -> None:
    submit(cluster, Submission(spec()))
    cluster.run(1, [(3, 0)])
    cluster.record(1, state=State.RUNNING, nodes=(3,))
    assert cluster.picture is not None
    down = NodeStatus(3, "down", ("a",), heard_s=75.0, lost_s=742.0)
    cluster.picture = replace(cluster.picture, nodes=(*cluster.picture.nodes, down))
    text = "node 3 must be back, or be lost, as it is in 642 s at the latest"
    assert f"it may run on unheard: {text}" in why(cluster, 1).evidence
    assert row(cluster, 1).where == "3:0 (awaits 3, 642 s)"

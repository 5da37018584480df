"""The auditor passes a store that keeps every promise, and names what is broken in another."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from dovetail.core.cluster import Cluster
from dovetail.core.messages import (
    Ended,
    Explained,
    Fact,
    Measured,
    Started,
    Stopped,
    Submitted,
    Withdrawn,
)
from dovetail.core.placement import Interleave, Placement
from dovetail.live.edges.protocols import JournalEntry
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.record import GangMember, JobRecord
from dovetail.live.jobs.status_snapshot import JobStatus, NodeStatus, StatusSnapshot
from dovetail.live.store.database import Database
from dovetail.live.store.intake import Intake
from dovetail.live.store.queries import Queries
from dovetail.live.store.store import Store
from dovetail.wire.spec import Dependency, JobSpec
from dovetail.wire.submission import Submission
from store_audit import audit, audit_progress, audit_snapshot, late_cancels

CLUSTER = Cluster.uniform(2, 2)
WHOLE = Placement(((0, 2),))
HALF = Placement(((1, 1),), ((0,),))


@dataclass
class Scene:
    """Six jobs in all stages of life: running, sharing, waiting, held, ended, not yet taken up."""

    t: float = 1.0
    records: dict[int, JobRecord] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.database = Database(None)
        self.store = Store(self.database, Queries(self.database.connection))
        self.intake = Intake(self.database, clock=self, cluster=CLUSTER, put=lambda _: None)
        two = {"gpus": 2, "min_gpus": 2, "max_gpus": 2, "ntasks": 2}
        specs: list[dict[str, Any]] = [
            two,
            {"shareable": True},
            {"shareable": True},
            {},
            {"hold": True},
            {},
            {},
        ]
        jobs = [Submission(JobSpec("j", ("x",), "/", user="ann", **given)) for given in specs]
        self.intake.submit(jobs, key="k")
        for job in range(1, 5):
            self.write(Submitted(2.0, job, 9.0), job=job)
        self.write(job=5, held=True, reason="JobHeldUser")
        self.write(Submitted(2.0, 6, 9.0), Explained(2.0, ()), job=6)
        self.place(3.0, 1, WHOLE, GangMember(0, 0, 0), GangMember(1, 0, 1))
        self.place(3.0, 2, HALF, GangMember(0, 1, 0))
        self.place(4.0, 3, HALF, GangMember(0, 1, 0))
        self.write(Started(4.0, 4, "start", Placement(((1, 1),)), 1.0, 4.0), job=4)
        self.write(Stopped(6.0, 4, "preempted", 2.0), job=4, done_s=2.0)
        self.write(Ended(7.0, 6, "failed"), job=6, state=State.FAILED, end_s=7.0, exit_code=1)

    def now(self) -> float:
        return self.t

    def write(self, *facts: Fact, job: int, **changes: Any) -> None:
        kept = self.records.get(job, JobRecord(job, submit_s=1.0))
        self.records[job] = replace(kept, **changes)
        self.store.write(JournalEntry(facts, (self.records[job],)))

    def place(self, t: float, job: int, placement: Placement, *members: GangMember) -> None:
        self.write(
            Started(t, job, "start", placement, 1.0, t),
            job=job,
            state=State.RUNNING,
            placement=placement,
            members=members,
            generation=1,
            next_worker=len(members),
        )

    def said(self, **given: Any) -> list[str]:
        return audit(self.store.queries, cluster=CLUSTER, acknowledged=range(1, 8), **given)

    def sql(self, statement: str) -> None:
        self.database.connection.execute(statement)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.database.close()


def test_a_store_that_keeps_every_promise_has_no_breach(scene: Scene) -> None:
    assert scene.said() == []


def test_a_job_that_is_requeued_by_its_owner_may_end_once_more(scene: Scene) -> None:
    waiting = {"state": State.PENDING, "end_s": float("inf"), "exit_code": None}
    scene.write(Submitted(8.0, 6, 9.0), job=6, **waiting)
    assert scene.said() == []
    scene.place(9.0, 6, Placement(((1, 1),)), GangMember(3, 1, 1))
    scene.records[6] = replace(scene.records[6], next_worker=4)
    scene.write(job=6)
    assert scene.said() == []
    scene.write(
        Ended(9.5, 6, "completed"),
        job=6,
        state=State.COMPLETING,
        ending=State.COMPLETED,
        placement=None,
        members=(),
    )
    assert scene.said() == []


def ended(scene: Scene) -> None:
    scene.write(Ended(9.0, 6, "failed"), job=6)


def shared(scene: Scene, **changes: Any) -> None:
    """Puts job 4 beside others on GPU 0 of node 1."""
    placement = replace(HALF, **changes)
    scene.write(
        Started(9.0, 4, "resume", placement, 1.0, 9.0),
        job=4,
        state=State.RUNNING,
        placement=placement,
        members=(GangMember(1, 1, 0),),
        next_worker=2,
    )


def sole(scene: Scene, job: int, **changes: Any) -> None:
    scene.write(job=job, **changes)


BREACHES: dict[str, tuple[Callable[[Scene], object], str]] = {
    "lost job": (lambda s: s.sql("DELETE FROM jobs WHERE number = 7"), r"acknowledged.*\[7\]"),
    "lost answer": (lambda s: s.sql("DELETE FROM jobs WHERE number = 7"), "answered to a key"),
    "gap": (lambda s: s.sql("UPDATE jobs SET number = 9 WHERE number = 7"), "gaps"),
    "state": (lambda s: s.sql("UPDATE jobs SET state = 'RUNNING' WHERE number = 7"), "listed as"),
    "mixed up": (
        lambda s: (
            sole(s, 1)
            or s.sql(
                "UPDATE jobs SET record = (SELECT record FROM jobs"
                " WHERE number = 5) WHERE number = 7"
            )
        ),
        "is that of job 5",
    ),
    "order": (lambda s: sole(s, 7, submit_s=0.5), "lower number"),
    "two ends": (ended, "job 6 is ended at 9 s while over"),
    "end twice": (
        lambda s: s.write(Submitted(8.0, 6, 1.0), Ended(8.0, 6, "completed"), job=6),
        "job 6 will have been FAILED and its last end was 'completed'",
    ),
    "no end": (lambda s: sole(s, 4, state=State.FAILED, end_s=9.0), "job 4 is FAILED on record"),
    "no date": (lambda s: sole(s, 6, end_s=float("inf")), "nobody knows since when"),
    "lost end": (
        lambda s: s.sql("DELETE FROM facts WHERE line LIKE '%ended%'"),
        "job 6 is FAILED on record and waiting",
    ),
    "lost start": (
        lambda s: s.sql("DELETE FROM facts WHERE job = 1 AND line LIKE '%started%'"),
        "job 1 is RUNNING on record and waiting",
    ),
    "unknown": (
        lambda s: s.sql('UPDATE facts SET line = replace(line, \'"job":"6"\', \'"job":"66"\')'),
        "job 66 was never submitted",
    ),
    "damaged line": (lambda s: s.sql("UPDATE facts SET line = '{' WHERE seq = 3"), "damaged"),
    "damaged record": (
        lambda s: s.sql("UPDATE jobs SET record = '{}' WHERE number = 1"),
        "job 1 is damaged",
    ),
    "backwards": (lambda s: s.write(Withdrawn(1.0, 4), job=4, reason="BeginTime"), "stands behind"),
    "twice in": (
        lambda s: s.write(Submitted(9.0, 4, 1.0), job=4),
        "submitted at 9 s while waiting",
    ),
    "progress of nobody": (lambda s: s.write(Measured(9.0, 4, 1.0, 1.0), job=4), "while waiting"),
    "first again": (
        lambda s: s.place(9.0, 4, Placement(((1, 1),)), GangMember(1, 1, 1)),
        "for the first time twice",
    ),
    "elsewhere": (
        lambda s: sole(
            s, 2, placement=Placement(((1, 1),), ((1,),)), members=(GangMember(0, 1, 1),)
        ),
        "job 2 is on .* by its facts",
    ),
    "half a gang": (lambda s: sole(s, 1, members=(GangMember(0, 0, 0),)), "job 1 wants workers on"),
    "one GPU twice": (
        lambda s: sole(s, 1, members=(GangMember(0, 0, 0), GangMember(1, 0, 0))),
        "job 1 wants workers on",
    ),
    "number twice": (
        lambda s: sole(s, 1, members=(GangMember(0, 0, 0), GangMember(0, 0, 1))),
        r"job 1 has workers \[0, 0\]",
    ),
    "number ahead": (lambda s: sole(s, 1, next_worker=1), r"job 1 has workers \[0, 1\], the next"),
    "kept GPUs": (lambda s: sole(s, 4, placement=WHOLE), "job 4 is PENDING and still holds GPUs"),
    "no GPUs": (lambda s: sole(s, 1, placement=None), "job 1 is RUNNING without a placement"),
    "too wide": (
        lambda s: s.write(
            Started(9.0, 2, "resize", WHOLE, 1.0, 9.0),
            job=2,
            placement=WHOLE,
            members=(GangMember(0, 0, 0), GangMember(1, 0, 1)),
            next_worker=2,
        ),
        "job 2 runs on 2 GPUs, and takes 1 to 1",
    ),
    "full node": (
        lambda s: s.write(
            Started(9.0, 4, "resume", Placement(((0, 1),)), 1.0, 9.0),
            job=4,
            state=State.RUNNING,
            placement=Placement(((0, 1),)),
            members=(GangMember(1, 0, 0),),
            next_worker=2,
        ),
        "node 0 holds 3 GPUs of 2",
    ),
    "no such node": (
        lambda s: s.write(
            Started(9.0, 4, "resume", Placement(((7, 1),)), 1.0, 9.0),
            job=4,
            state=State.RUNNING,
            placement=Placement(((7, 1),)),
            members=(GangMember(1, 7, 0),),
            next_worker=2,
        ),
        "node 7, which does not exist",
    ),
    "company": (shared, "GPU 0 of node 1 holds 3 jobs, 2 at most"),
    "unwilling": (shared, "job 4 shares GPU 0 of node 1 against its owner's will"),
    "out of phase": (lambda s: shared(s, interleave=Interleave(1, 1)), "holds 3 jobs"),
    "users": (
        lambda s: s.sql(
            "UPDATE jobs SET spec = replace(spec, '\"ann\"', '\"bob\"') WHERE number = 3"
        ),
        "shared by different users",
    ),
    "unplanned": (
        lambda s: s.write(
            job=1,
            placement=replace(WHOLE, spans=((1, 2),)),
            members=(GangMember(0, 1, 0), GangMember(1, 1, 1)),
        ),
        "and no plan says so",
    ),
    "queue": (lambda s: sole(s, 4, reason="JobHeldUser"), "pending for JobHeldUser"),
    "out of it": (lambda s: sole(s, 5, reason=""), "job 5 is pending for no reason"),
    "progress": (lambda s: sole(s, 4, done_s=5.0), "waits with 5 s done, and 2 s by its facts"),
    "unwritten": (lambda s: s.sql("UPDATE jobs SET arrived = 0 WHERE number = 1"), "no entry has"),
    "ending": (lambda s: sole(s, 6, state=State.COMPLETING), "ending, and as what is not known"),
}


@pytest.mark.parametrize("name", BREACHES)
def test_a_broken_promise_is_named(scene: Scene, name: str) -> None:
    break_it, sentence = BREACHES[name]
    break_it(scene)
    said = scene.said()
    assert any(re.search(sentence, line) for line in said), said


def test_a_name_of_the_plan_stands_for_one_gpu_of_its_node(scene: Scene) -> None:
    for job in (2, 3):
        scene.write(job=job, members=(GangMember(0, 1, 1),))
    assert scene.said() == []
    scene.write(job=2, members=(GangMember(0, 1, 0),))
    (said,) = scene.said()
    assert said == "jobs [2, 3] share GPU (1, 0) by the plan, and sit on [(1, 0), (1, 1)]"


@pytest.mark.parametrize(
    ("kind", "state", "happened"),
    [
        ("afterok", State.COMPLETED, True),
        ("afterok", State.FAILED, False),
        ("afternotok", State.TIMEOUT, True),
        ("afternotok", State.COMPLETED, False),
        ("afterany", State.CANCELLED, True),
        ("afterany", State.RUNNING, False),
        ("after", State.RUNNING, True),
        ("after", State.PENDING, False),
    ],
)
def test_no_job_waits_for_what_has_happened(
    scene: Scene, kind: str, state: State, happened: bool
) -> None:
    spec = JobSpec("late", ("x",), "/", user="ann", after=(Dependency(kind, 7),))
    scene.t = 2.0
    scene.intake.submit([Submission(spec)], key="late")
    scene.records[8] = JobRecord(8, submit_s=2.0)
    scene.write(job=8, reason="Dependency")
    scene.write(job=7, state=state)
    said = [line for line in scene.said() if line.startswith("job 8 ")]
    assert said == (["job 8 waits for jobs that did what it waits for"] if happened else [])


def test_users_may_share_where_that_is_allowed(scene: Scene) -> None:
    scene.sql("UPDATE jobs SET spec = replace(spec, '\"ann\"', '\"bob\"') WHERE number = 3")
    assert scene.said(share_between_users=True) == []


def test_nothing_goes_backwards_between_two_looks() -> None:
    before = {1: JobRecord(1, generation=3, next_worker=2, members=(GangMember(1, 0, 0),))}
    later = replace(before[1], generation=4, next_worker=3, members=(GangMember(2, 0, 0),))
    assert audit_progress(before, before) == audit_progress(before, {1: later}) == []
    for wrong, sentence in (
        ({}, "is not any more"),
        ({1: replace(later, generation=2)}, "generation 3 became 2"),
        ({1: replace(later, next_worker=1, members=())}, "given out again"),
        ({1: replace(later, submit_s=5.0)}, "its submission moved"),
        ({1: replace(later, members=(GangMember(0, 0, 0),))}, "workers [0] are wanted again"),
    ):
        (said,) = audit_progress(before, wrong)
        assert sentence in said


def test_the_picture_is_held_against_the_store(scene: Scene) -> None:
    queries = scene.store.queries
    running = tuple(
        JobStatus(n, r.placement, r.members, 0.0, 1.0, 0.0)
        for n, r in sorted(scene.records.items())
        if r.placement is not None
    )
    picture = StatusSnapshot(9.0, "fifo", 9.0, (NodeStatus(0, "up", ("a", "b")),), running, (4,))
    assert audit_snapshot(picture, queries) == []
    assert "alone: [2, 3]" in audit_snapshot(replace(picture, running=running[:1]), queries)[0]
    moved = (replace(running[0], placement=HALF), *running[1:])
    assert "elsewhere" in audit_snapshot(replace(picture, running=moved), queries)[0]
    assert "wait in the picture" in audit_snapshot(replace(picture, waiting=(1,)), queries)[0]


def test_a_cancelled_job_is_gone_within_its_grace_and_a_second(scene: Scene) -> None:
    scene.t = 10.0
    scene.intake.request("cancel", jobs=(1, 2), key="c")
    queries = scene.store.queries
    assert late_cancels(queries, now=21.0) == []
    over = {"state": State.CANCELLED, "placement": None, "members": ()}
    scene.write(Ended(12.0, 1, "cancelled"), job=1, end_s=20.5, **over)
    (said,) = late_cancels(queries, now=30.0)
    assert said == "job 2 was cancelled at 10 s and is RUNNING after 21 s"
    scene.write(Ended(12.0, 2, "cancelled"), job=2, end_s=25.0, **over)
    assert len(late_cancels(queries, now=30.0)) == 1
    assert scene.said() == []

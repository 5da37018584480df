"""Jobs with checkpoints of their own: a change of their GPUs ends their program and starts it anew.

The stories are seeded and in virtual time; `test_restarted_for_real.py` runs real scripts.
"""

from __future__ import annotations

from pathlib import Path
from signal import SIGKILL, SIGTERM

import pytest
from harness.partitions import parted
from harness.scene import Scene
from harness.stage import first_failure
from harness.story import Fault, Story, Submission, interrupted, restarting, story

from cluster_by_hand import by_hand, spec
from dovetail.live.controller.launches import launcher_in
from dovetail.live.engines.task_environment import task_environment
from dovetail.live.jobs.job_request import job_request
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.record import GangMember, JobRecord
from dovetail.live.server.messages.one_job import ShowJob, ShowReply
from dovetail.live.server.messages.reason import ExplainJob, ExplainReply
from dovetail.live.store.queries import StoreReader
from dovetail.live.workers.gang import make_gang
from dovetail.live.workers.gang_events import GangVacated, LeavingTimeout
from dovetail.live.workers.gang_orders import due_orders
from dovetail.live.workers.plain_gang import PlainGang
from dovetail.live.workers.rules import Rules
from dovetail.live.workers.worker_state import Desired
from dovetail.wire.agent import EndWorker, PortFound, StartWorker, WorkerEnded
from dovetail.wire.spec import JobSpec
from dovetail.wire.submission import Submission as Submitted


def elastic(**rest: object) -> JobSpec:
    return spec(**{"min_gpus": 1, "gpus": 1, "max_gpus": 4, "restart_s": 30.0, **rest})


def played(path: Path, *submissions: Submission, faults: tuple[Fault, ...] = ()) -> JobRecord:
    """Returns the record of the first job of a story under Max-Min."""
    tale = Story(seed=1, policy="max-min", submissions=submissions, faults=faults)
    assert not Scene(tale, path).play().wrong
    with StoreReader(path) as reader:
        job = reader.job(1)
    assert job is not None
    return job.record


def test_a_job_is_resized_by_restarts_that_are_no_retries(tmp_path: Path) -> None:
    long = Submission(0.0, "restarting", 1, 1, 4, 60.0)
    other = Submission(10.0, "plain", 2, 2, 2, 10.0)
    record = played(tmp_path / "store.db", long, other)
    assert (record.state, record.retries, record.grace_kills) == (State.COMPLETED, 0, 0)
    # It makes way for the other, and has its GPUs again afterwards.
    assert record.restarts == 2
    assert record.ran_s == pytest.approx(60.0, abs=5.0)


def test_a_program_that_ignores_sigterm_is_killed_and_that_is_on_record(tmp_path: Path) -> None:
    stubborn = Fault(5.0, "worker stubborn")
    long = Submission(0.0, "restarting", 1, 1, 4, 60.0)
    other = Submission(10.0, "plain", 2, 2, 2, 10.0)
    record = played(tmp_path / "store.db", long, other, faults=(stubborn,))
    assert (record.state, record.retries, record.grace_kills) == (State.COMPLETED, 0, 1)


def test_no_story_of_restarted_jobs_breaks_a_rule() -> None:
    tales = [*map(story, range(5)), *map(interrupted, range(2)), parted(1)]
    failure = first_failure(restarting(tale) for tale in tales if tale.engine == "machines")
    assert failure is None, failure.told()


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_no_story_of_many_more_of_restarted_jobs_breaks_a_rule(block: int) -> None:
    seeds = range(block * 30, 30 + block * 30)
    tales = (draw(seed) for seed in seeds for draw in (story, interrupted, parted))
    failure = first_failure(restarting(tale) for tale in tales if tale.engine == "machines")
    assert failure is None, failure.told()


# The gang.


class Gang:
    """A plain gang on nodes whose GPUs are free, whose orders are taken at once."""

    def __init__(self, job: JobSpec) -> None:
        launch = launcher_in(Path("/jobs"))(7, job)
        gang = make_gang(launch, Rules())
        assert isinstance(gang, PlainGang)
        self.gang = gang

    def want(self, *members: tuple[int, int, int], now: float = 0.0) -> None:
        self.gang.want(Desired(tuple(GangMember(*m) for m in members)), now)

    def orders(self, now: float) -> list[tuple[int, object]]:
        self.gang.step(now, lambda *_: True, lambda _: 0.0, lambda *_: True)
        return list(due_orders(self.gang, now))

    def start(self, now: float) -> dict[int, StartWorker]:
        """Starts the wanted processes; returns their orders by worker."""
        self.orders(now)
        roster = self.gang.roster
        roster.master.take(PortFound(7, roster.master.generation, f"10.0.0.1:{4000 + now:.0f}"))
        starts = [o for _, o in self.orders(now) if isinstance(o, StartWorker)]
        for order in starts:
            roster.started(order.worker, order.generation, now)
        self.orders(now)
        return {order.worker: order for order in starts}

    def end(self, node: int, worker: int, code: int, now: float, *, asked: bool = True) -> None:
        self.gang.ended(node, WorkerEnded(7, worker, 1, code, asked=asked), now)


def test_a_resize_ends_all_processes_and_starts_the_others_when_the_last_is_gone() -> None:
    gang = Gang(elastic())
    gang.want((0, 0, 0), (1, 0, 1))
    first = gang.start(0.0)
    assert {order.world_size for order in first.values()} == {2}
    gang.want((2, 0, 0), (3, 0, 1), (4, 1, 0), now=10.0)
    ends = [order for _, order in gang.orders(10.0)]
    assert ends == [EndWorker(7, 0, 10.0), EndWorker(7, 1, 10.0)]
    gang.end(0, 0, -SIGTERM, 11.0)
    assert not any(isinstance(order, StartWorker) for _, order in gang.orders(11.0))
    # An error of one whose peers are gone is no failure of the job.
    gang.end(0, 1, 1, 12.0)
    second = gang.start(12.0)
    assert [(o.rank, o.world_size, o.group_rank, o.master) for o in second.values()] == [
        (0, 3, 0, "10.0.0.1:4012"),
        (1, 3, 0, "10.0.0.1:4012"),
        (2, 3, 1, "10.0.0.1:4012"),
    ]
    assert not any(isinstance(e, WorkerEnded) for e in gang.gang.roster.take_events())


def test_of_two_resizes_in_a_row_only_the_last_is_started() -> None:
    gang = Gang(elastic())
    gang.want((0, 0, 0))
    gang.start(0.0)
    gang.want((1, 0, 0), (2, 0, 1), now=10.0)
    gang.orders(10.0)
    gang.want((3, 0, 0), (4, 1, 0), (5, 1, 1), now=11.0)
    assert gang.orders(11.0) == []  # It is not interrupted while it saves.
    gang.end(0, 0, 0, 12.0)
    assert list(gang.start(12.0)) == [3, 4, 5]


def test_a_cancel_during_a_resize_starts_nothing() -> None:
    gang = Gang(elastic())
    gang.want((0, 0, 0))
    gang.start(0.0)
    gang.want((1, 0, 0), (2, 0, 1), now=10.0)
    gang.orders(10.0)
    gang.gang.roster.vacate(11.0, 10.0, "end")
    gang.end(0, 0, -SIGTERM, 12.0)
    assert not any(isinstance(order, StartWorker) for _, order in gang.orders(12.0))
    assert GangVacated() in gang.gang.roster.take_events()


def test_a_kill_after_the_grace_is_told_once_however_many_processes_it_took() -> None:
    gang = Gang(elastic())
    gang.want((0, 0, 0), (1, 0, 1))
    gang.start(0.0)
    gang.want((2, 0, 0), now=10.0)
    gang.orders(10.0)
    gang.end(0, 0, -SIGKILL, 20.0)
    gang.end(0, 1, -SIGKILL, 20.0)
    assert gang.gang.roster.take_events().count(LeavingTimeout()) == 1


# What a process is told.


def test_torchrun_starts_once_on_each_node_and_is_told_its_sizes() -> None:
    command = ("torchrun", "--nproc_per_node", "2", "--standalone", "train.py", "--lr", "1")
    gang = Gang(elastic(command=command, max_gpus=8))
    gang.want((0, 0, 0), (0, 0, 1), (0, 0, 2), (1, 1, 0))
    starts = gang.start(0.0)
    assert [order.command for order in starts.values()] == [
        ("torchrun", "train.py", "--lr", "1")
    ] * 2
    told = [task_environment(order) for order in starts.values()]
    assert told[0] == {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "3",
        "PET_NODE_RANK": "0",
        "PET_MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_PORT": "4000",
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ID": "7",
        "PET_MAX_RESTARTS": "0",
    }
    changes = {"PET_NPROC_PER_NODE": "1", "PET_NODE_RANK": "1"}
    assert told[1] == told[0] | changes


def test_one_process_alone_has_torchruns_variables_too() -> None:
    gang = Gang(elastic())
    gang.want((0, 0, 0))
    (order,) = gang.start(0.0).values()
    told = task_environment(order)
    assert (told["RANK"], told["WORLD_SIZE"], told["LOCAL_RANK"]) == ("0", "1", "0")


# The job.


def test_its_price_reaches_policies_and_it_may_be_stopped() -> None:
    request = job_request(elastic(requeue=False), 1, 0.0)
    assert (request.restart_s, request.elastic, request.preemptible) == (30.0, True, True)
    assert not job_request(elastic(requeue=False, preemptible=False), 1, 0.0).preemptible


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"trains": True}, "without dovetail.train"),
        ({"max_gpus": 1}, "needs a range of GPUs"),
        ({"ntasks": 1}, "of a fixed size"),
        ({"restart_s": -1.0}, "cannot be negative"),
    ],
)
def test_a_job_that_cannot_be_restarted_is_refused(asked: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        elastic(**asked)


def test_why_and_show_tell_of_restarts_and_kills() -> None:
    with by_hand() as cluster:
        cluster.intake.submit((Submitted(elastic(grace_s=5.0)),), key="key", user="ann")
        cluster.run(1, [(0, 0)])
        cluster.record(1, restarts=3, grace_kills=1)
        why, show = cluster.ask(ExplainJob("1")), cluster.ask(ShowJob("1"))
    assert isinstance(why, ExplainReply) and isinstance(show, ShowReply)
    assert (
        "its program starts anew when its GPUs change, 3 times so far; that costs about 30 s, so "
        "it gets more GPUs only where they pay for it"
    ) in why.evidence
    assert (
        "once it did not end within 5 s of SIGTERM and was killed: what it had not saved is lost "
        "(grace)"
    ) in why.evidence
    assert (show.restart_s, show.restarts, show.grace_kills) == (30.0, 3, 1)

"""The live world between edges in memory: real store, real intake, emulated nodes, virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from live_stage import RULES, Stage

from dovetail.core.messages import (
    Ended,
    Measured,
    NodeChanged,
    Refused,
    Shrunk,
    Started,
    Stopped,
    Submitted,
    Switched,
    Withdrawn,
)
from dovetail.core.order import Order
from dovetail.core.placement import Placement
from dovetail.core.policy import Decision
from dovetail.core.view import View
from dovetail.live.edges.protocols import StoreError
from dovetail.live.edges.virtual_time import VirtualClock
from dovetail.live.emulation.synthetic import SwitchCosts
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.record import JobRecord
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.live.store.intake import Intake
from dovetail.wire.agent import AgentReport, WorkerEnded
from dovetail.wire.spec import Dependency, JobSpec
from dovetail.wire.worker import Checkpoint

Make = Callable[..., Stage]


@pytest.fixture
def stage() -> Iterator[Make]:
    """Makes stages, and checks every rule of each when the test is over."""
    made: list[Stage] = []

    def make(policy: Any = "fifo", **words: Any) -> Stage:
        made.append(Stage(policy, **words))
        return made[-1]

    yield make
    for each in made:
        each.check()


def kinds(facts: list[Any]) -> list[str]:
    return [type(f).__name__ for f in facts]


def ended_s(stage: Stage, job: int) -> float:
    return next(f.t for f in stage.of(job) if isinstance(f, Ended))


# A life without trouble.


def test_a_job_is_submitted_placed_started_and_ends(stage: Make) -> None:
    s = stage()
    s.submit(1.0, gpus=2, duration_s=10.0)
    s.play(20.0)
    record = s.record(1)
    assert (record.state, record.exit_code, record.members) == (State.COMPLETED, 0, ())
    assert kinds(s.of(1)) == ["Submitted", "Started", "Measured", "Ended"]
    assert s.starts(1) == [(0, 0, 0), (1, 0, 1)]
    assert ended_s(s, 1) == pytest.approx(11.0, abs=0.02)
    assert record.done_s == pytest.approx(10.0, abs=0.02)
    assert record.samples == record.total_samples > 0


def test_a_submit_that_is_heard_of_twice_is_one_job(stage: Make) -> None:
    s = stage()
    s.submit(1.0, duration_s=5.0)
    spec = JobSpec("job", (), "/", gpus=1, min_gpus=1, max_gpus=1, duration_s=5.0, paced=True)

    def again() -> None:
        assert s.inbox is not None
        s.inbox.put(StoredJob.submitted(1, spec, 1.0))

    s.at(3.0, again)
    s.at(8.0, again)
    s.play(30.0)
    assert kinds(s.of(1)) == ["Submitted", "Started", "Measured", "Ended"]
    assert s.starts(1) == [(0, 0, 0)]


def test_orders_go_out_only_after_the_entry_that_explains_them(stage: Make) -> None:
    s = stage()
    s.submit(1.0)
    s.at(0.9, lambda: s.refuses.extend([True] * 3))
    s.play(30.0)
    start = next(t for t, _, order in s.orders if order.start is not None)
    assert s.refuses == [] and start >= 4.0
    assert s.record(1).state is State.COMPLETED


def test_readers_see_that_nothing_can_be_written_and_that_it_can_again(stage: Make) -> None:
    s = stage()
    s.submit(1.0, duration_s=5.0)
    s.submit(3.0, duration_s=5.0)
    seen: list[str] = []

    def look() -> None:
        assert s.world is not None and s.world.status is not None
        seen.append(s.world.status.unwritable)

    s.at(2.5, lambda: s.refuses.extend([True] * 4))
    for moment_s in (2.4, 5.0, 12.0):
        s.at(moment_s, look)
    s.play(40.0)
    assert seen == ["", "no space left on device", ""]


def test_what_comes_while_the_disk_is_full_is_not_lost(stage: Make) -> None:
    s = stage()
    s.submit(1.0, duration_s=3.0)
    s.submit(2.0, duration_s=3.0)
    s.at(1.5, lambda: s.refuses.extend([True] * 4))
    s.play(40.0)
    assert set(s.states().values()) == {State.COMPLETED}


def test_a_controller_told_to_stop_stops_though_it_cannot_write(stage: Make) -> None:
    s = stage()
    s.submit(1.0)
    s.at(0.9, lambda: s.refuses.extend([True] * 100))
    s.ask(5.0, "down", argument="leave")
    with pytest.raises(StoreError):
        s.play(40.0)
    assert not any(order.start for _, _, order in s.orders)


def test_down_leaves_the_jobs_and_the_next_controller_adopts_them(stage: Make) -> None:
    s = stage()
    s.submit(1.0, duration_s=30.0)
    s.ask(5.0, "down", argument="leave")
    s.play(40.0)
    assert s.line.now == pytest.approx(5.0, abs=0.1)
    s.play(40.0)
    assert s.starts(1) == [(0, 0, 0)]
    assert s.record(1).state is State.COMPLETED and ended_s(s, 1) == pytest.approx(31.0, abs=0.1)


def test_down_drain_lets_jobs_end_and_starts_no_more(stage: Make) -> None:
    s = stage(nodes=1, gpus=1)
    s.submit(1.0, duration_s=10.0)
    s.submit(2.0, duration_s=10.0)
    s.ask(5.0, "down", argument="drain")
    s.play(60.0)
    assert s.states() == {1: State.COMPLETED, 2: State.PENDING}
    s.play(60.0)
    assert s.states() == {1: State.COMPLETED, 2: State.COMPLETED}


def test_down_save_frees_all_gpus_and_the_next_controller_goes_on(stage: Make) -> None:
    s = stage(nodes=1, gpus=2)
    s.submit(1.0, duration_s=30.0)
    s.submit(1.5, duration_s=30.0, requeue=False)
    s.submit(2.0, duration_s=30.0)
    s.ask(11.0, "down", argument="save")
    s.play(100.0)
    assert s.states() == {1: State.PENDING, 2: State.RUNNING, 3: State.PENDING}
    assert s.line.now < 20.0, "it did not wait for the end of any job"
    assert [f.why for f in s.of(1) if isinstance(f, Stopped)] == ["saved for the next controller"]
    s.play(200.0)
    assert set(s.states().values()) == {State.COMPLETED}
    assert len(s.starts(2)) == 1, "a job that is never requeued ran on"


def test_down_save_waits_for_no_worker_on_a_node_that_is_down(stage: Make) -> None:
    s = stage(nodes=2, gpus=1, rules=replace(RULES, leases_s=(600.0, 600.0)))
    s.submit(1.0, duration_s=300.0, gpus=2)
    s.at(5.0, lambda: s.deaf.add(0))
    s.ask(30.0, "down", argument="save")
    s.play(200.0)
    assert s.line.now < 60.0


@pytest.mark.parametrize("policy", ["max-min", "afs-p", "srtf"])
def test_down_drain_leaves_running_jobs_what_they_have(stage: Make, policy: str) -> None:
    s = stage(policy, nodes=2, gpus=2)
    s.submit(1.0, duration_s=60.0, gpus=1, max_gpus=2)
    s.submit(1.5, duration_s=50.0, gpus=1, max_gpus=2)
    s.ask(8.0, "down", argument="drain")
    s.submit(9.0, duration_s=3.0)
    s.play(200.0)
    assert s.states() == {1: State.COMPLETED, 2: State.COMPLETED, 3: State.PENDING}
    after = [f for f in s.facts if f.t > 8.0]
    assert not any(isinstance(f, Started | Stopped | Switched | Shrunk) for f in after)
    assert s.line.now < 150.0, "it ended by itself"


def test_the_log_says_that_nodes_are_open_again_after_a_drain_for_an_end(stage: Make) -> None:
    s = stage(nodes=3, gpus=1)
    s.ask(1.0, "drain", node=2)
    s.submit(1.0, duration_s=10.0)
    s.submit(2.0, duration_s=10.0)
    s.ask(5.0, "down", argument="drain")
    s.submit(6.0, duration_s=10.0)
    s.play(60.0)
    s.play(80.0)
    s.play(90.0)
    said = [(f.node, f.state) for f in s.facts if isinstance(f, NodeChanged)]
    closed, opened = [(0, "draining"), (1, "draining")], [(0, "up"), (1, "up")]
    assert said == [(2, "draining"), *closed, *opened]
    again = next(f.t for f in s.facts if isinstance(f, NodeChanged) and f.state == "up")
    assert next(f.t for f in s.of(3) if isinstance(f, Started)) >= again


@pytest.mark.parametrize("how", ["leave", "drain"])
def test_a_down_that_an_earlier_controller_did_not_get_to_is_taken_back(
    stage: Make, how: str
) -> None:
    s = stage()
    s.submit(1.0, duration_s=10.0)
    s.play(2.0)
    intake = Intake(s.database, clock=VirtualClock(s.line), cluster=s.cluster, put=lambda m: None)
    intake.request("down", argument=how, key="nobody heard it")
    s.submit(20.0, duration_s=10.0)
    s.play(60.0)
    assert s.states() == {1: State.COMPLETED, 2: State.COMPLETED}
    assert s.store.recover().requests == ()


# What owners ask.


def test_a_running_job_is_cancelled_within_its_grace(stage: Make) -> None:
    s = stage()
    s.submit(1.0, duration_s=100.0, grace_s=5.0)
    s.ask(4.0, "cancel", 1)
    s.play(10.0)
    record = s.record(1)
    assert (record.state, record.exit_code) == (State.CANCELLED, None)
    assert record.end_s <= 4.0 + 5.0 + 1.0
    assert any(o.forget is not None and o.forget.job == 1 for _, _, o in s.orders)


def test_a_waiting_job_is_cancelled_at_once(stage: Make) -> None:
    s = stage(nodes=1, gpus=1)
    s.submit(1.0, duration_s=50.0)
    s.submit(2.0)
    s.ask(3.0, "cancel", 2)
    s.play(10.0)
    assert s.record(2).state is State.CANCELLED and s.record(2).end_s == pytest.approx(3.0, abs=0.1)


def test_a_held_job_is_in_no_queue_until_it_is_released(stage: Make) -> None:
    s = stage()
    s.submit(1.0, duration_s=2.0, hold=True)
    s.ask(8.0, "release", 1)
    s.play(20.0)
    first = s.of(1)[0]
    assert isinstance(first, Submitted) and first.t == pytest.approx(8.0, abs=0.1)
    assert s.record(1).submit_s == pytest.approx(1.0, abs=0.1)


def test_to_hold_a_waiting_job_takes_it_out_of_the_queue(stage: Make) -> None:
    s = stage(nodes=1, gpus=1)
    s.submit(1.0, duration_s=5.0)
    s.submit(1.0, duration_s=5.0)
    s.ask(2.0, "hold", 2)
    s.play(15.0)
    assert kinds(s.of(2)) == ["Submitted", "Withdrawn"]
    assert (s.record(2).state, s.record(2).reason) == (State.PENDING, "JobHeldUser")


def test_a_job_cancelled_while_it_is_held_ends_once(stage: Make) -> None:
    s = stage()
    s.submit(1.0, hold=True)
    s.ask(2.0, "cancel", 1)
    s.play(5.0)
    assert kinds(s.of(1)) == ["Submitted", "Ended"]


def test_an_elastic_job_saves_before_it_is_requeued(stage: Make) -> None:
    s = stage()
    s.submit(1.0, duration_s=20.0, gpus=1, max_gpus=2)
    s.ask(9.0, "requeue", 1)
    s.play(60.0)
    told = [o.tell for _, _, o in s.orders if o.tell is not None]
    assert any(tell.checkpoint == Checkpoint(leave=True) for tell in told)
    assert ended_s(s, 1) == pytest.approx(21.0, abs=1.0)


def test_a_requeued_job_starts_anew_under_other_numbers(stage: Make) -> None:
    s = stage()
    s.submit(1.0, duration_s=10.0)
    s.ask(4.0, "requeue", 1)
    s.play(40.0)
    assert [w for w, _, _ in s.starts(1)] == [0, 1]
    assert [f.why for f in s.of(1) if isinstance(f, Stopped)] == ["requeued"]
    assert s.record(1).state is State.COMPLETED and s.record(1).retries == 0


def test_a_job_that_is_over_can_be_run_again(stage: Make) -> None:
    s = Stage()
    s.submit(1.0, duration_s=3.0)
    s.ask(10.0, "requeue", 1)
    s.play(9.0)
    s.play(30.0)
    assert [w for w, _, _ in s.starts(1)] == [0, 1]
    assert s.record(1).state is State.COMPLETED
    assert len([f for f in s.of(1) if isinstance(f, Ended)]) == 2


def restarts_told(s: Stage, job: int) -> dict[int, str]:
    """Returns what each worker of a job is told of restarts, empty for nothing."""
    launches = {
        order.start.worker: dict(order.start.environment)
        for _, _, order in s.orders
        if order.start is not None and order.start.job == job
    }
    return {worker: told.get("SLURM_RESTART_COUNT", "") for worker, told in launches.items()}


def test_a_job_that_begins_anew_after_its_end_is_submitted_anew() -> None:
    s = Stage("fifo", nodes=1, gpus=1)
    s.submit(1.0, duration_s=3.0)
    s.submit(10.0, duration_s=50.0)
    s.submit(20.0, duration_s=5.0)
    s.ask(30.0, "requeue", 1)
    s.play(40.0)
    s.play(100.0)
    assert s.record(1).state is State.COMPLETED
    assert (s.record(1).submit_s, s.record(1).queued_s) == (1.0, pytest.approx(30.0, abs=0.1))
    began = {j: [f.t for f in s.of(j) if isinstance(f, Started)][-1] for j in (1, 3)}
    assert began[1] > began[3] > 60.0
    last = [fact for _, fact in s.store.queries.facts(1) if fact["e"] == "submitted"][-1]
    assert last.get("submit_s", last["t"]) == s.record(1).queued_s
    assert restarts_told(s, 1) == {0: "", 1: "1"} and restarts_told(s, 3) == {0: ""}


def test_a_program_is_told_how_often_it_was_started_anew(stage: Make) -> None:
    s = stage(nodes=1, gpus=1)
    s.submit(1.0, duration_s=100.0, retries=3)
    s.ask(10.0, "requeue", 1)
    s.at(30.0, lambda: s.take(s.nodes.kill(1, 1, 30.0)))
    s.play(31.5)
    s.play(60.0)
    assert restarts_told(s, 1) == {0: "", 1: "1", 2: "2"}
    assert s.record(1).queued_s == 1.0


def test_one_job_after_another_with_nothing_else_happening(stage: Make) -> None:
    s = stage()
    s.submit(1.0, duration_s=5.0)
    s.submit(1.5, duration_s=5.0, after=(Dependency("afterok", 1),))
    s.submit(1.5, duration_s=5.0, after=(Dependency("after", 1),))
    s.submit(1.5, duration_s=5.0, after=(Dependency("afternotok", 1),))
    s.submit(1.5, duration_s=5.0, after=(Dependency("afterany", 1), Dependency("afterok", 2)))
    s.play(40.0)
    began = {j: next(f.t for f in s.of(j) if isinstance(f, Started)) for j in (1, 2, 3, 5)}
    assert began[2] == pytest.approx(6.0, abs=0.1) and began[3] == pytest.approx(1.5, abs=0.1)
    assert began[5] == pytest.approx(11.0, abs=0.1)
    assert (s.record(4).state, s.record(4).reason) == (State.PENDING, "DependencyNeverSatisfied")


# Limits.


def test_a_time_limit_counts_running_alone(stage: Make) -> None:
    s = stage("srtf", nodes=1, gpus=1)
    s.submit(1.0, duration_s=20.0, time_limit_s=8.0)
    s.submit(4.0, duration_s=5.0)
    s.play(40.0)
    assert s.record(1).state is State.TIMEOUT
    assert s.record(1).ran_s == pytest.approx(8.0, abs=0.1)
    assert ended_s(s, 1) == pytest.approx(14.0, abs=0.1)


def test_a_deadline_ends_a_job_wherever_it_is(stage: Make) -> None:
    s = stage(nodes=1, gpus=1)
    s.submit(1.0, duration_s=50.0)
    s.submit(2.0, duration_s=5.0, deadline_s=10.0)
    s.play(20.0)
    assert s.record(2).state is State.DEADLINE and ended_s(s, 2) == pytest.approx(12.0, abs=0.1)


# What befalls workers and nodes.


def test_a_killed_worker_is_replaced_while_the_others_train_on(stage: Make) -> None:
    s = stage("afs-p", nodes=1, gpus=2)
    s.submit(1.0, duration_s=20.0, min_gpus=1, max_gpus=2)
    s.at(5.0, lambda: s.take(s.nodes.kill(1, 1, 5.0)))
    s.play(60.0)
    assert s.record(1).state is State.COMPLETED
    assert (s.record(1).retries, s.starts(1)) == (1, [(0, 0, 0), (1, 0, 1), (2, 0, 1)])
    assert not any(isinstance(f, Stopped) for f in s.of(1))


def test_a_job_alone_on_a_gpu_is_tried_again_after_a_pause(stage: Make) -> None:
    s = stage(nodes=1, gpus=1)
    s.submit(1.0, duration_s=20.0, retries=1)
    s.at(5.0, lambda: s.take(s.nodes.kill(1, 0, 5.0)))
    s.play(60.0)
    assert kinds(s.of(1))[:6] == [
        "Submitted",
        "Started",
        "Measured",
        "Stopped",
        "Withdrawn",
        "Submitted",
    ]
    withdrawn = next(f.t for f in s.of(1) if isinstance(f, Withdrawn))
    again = [f.t for f in s.of(1) if isinstance(f, Submitted)][1]
    assert again - withdrawn == pytest.approx(RULES.backoff_s[0])
    assert s.record(1).state is State.COMPLETED


def test_a_requeue_that_comes_while_a_job_ends_is_carried_out_at_the_end() -> None:
    s = Stage("fifo")
    s.submit(1.0, duration_s=10.0)
    s.ask(5.0, "cancel", 1)
    s.ask(5.0, "requeue", 1)
    s.play(60.0)
    assert [f.how for f in s.of(1) if isinstance(f, Ended)] == ["cancelled", "completed"]
    assert s.record(1).state is State.COMPLETED and s.store.queries.pending() == []


def test_a_time_limit_counts_what_ran_before_a_failure(stage: Make) -> None:
    s = stage(nodes=1, gpus=1)
    s.submit(1.0, duration_s=100.0, time_limit_s=20.0)
    s.at(11.0, lambda: s.take(s.nodes.kill(1, 0, 11.0)))
    s.play(60.0)
    assert (s.record(1).state, s.record(1).retries) == (State.TIMEOUT, 1)
    assert ended_s(s, 1) == pytest.approx(22.0, abs=0.5)
    assert s.record(1).ran_s == pytest.approx(20.0, abs=0.1)


@pytest.mark.parametrize("retries", [1, 3])
def test_retries_are_limited(stage: Make, retries: int) -> None:
    s = stage(nodes=1, gpus=1)
    s.submit(1.0, duration_s=50.0, retries=retries)
    for worker, t in enumerate((5.0, 15.0, 30.0, 70.0)[: retries + 1]):
        s.at(t, lambda t=t, worker=worker: s.take(s.nodes.kill(1, worker, t)))
    s.play(100.0)
    record = s.record(1)
    assert (record.state, record.reason, record.retries) == (State.FAILED, "RaisedSignal", retries)
    assert "signal 9" in record.detail and f"tried {retries + 1} times" in record.detail


def test_a_silent_node_is_down_and_its_jobs_run_elsewhere(stage: Make) -> None:
    s = stage()
    s.submit(1.0, gpus=2, duration_s=20.0)
    s.at(5.0, lambda: s.deaf.add(0))
    s.play(60.0)
    down = [f for f in s.facts if isinstance(f, NodeChanged)]
    assert [(f.node, f.state) for f in down] == [(0, "down")]
    assert down[0].t == pytest.approx(15.0, abs=1.2)
    assert {node for _, node, _ in s.starts(1)} == {0, 1}
    assert s.record(1).state is State.COMPLETED


def test_a_node_that_returns_ends_what_nobody_wants_there(stage: Make) -> None:
    s = stage()
    s.submit(1.0, gpus=2, duration_s=60.0)
    s.at(5.0, lambda: s.deaf.add(0))
    s.at(30.0, lambda: s.deaf.discard(0))
    s.play(100.0)
    states = [(f.node, f.state) for f in s.facts if isinstance(f, NodeChanged)]
    assert states == [(0, "down"), (0, "up")]
    ends = [o.end for t, n, o in s.orders if o.end is not None and n == 0 and t > 30.0]
    assert {e.worker for e in ends} == {0, 1}
    assert s.record(1).state is State.COMPLETED


def test_an_elastic_job_trains_on_with_what_a_lost_node_leaves_it(stage: Make) -> None:
    s = stage("afs-p", nodes=2, gpus=2)
    s.submit(1.0, gpus=2, duration_s=60.0, min_gpus=1, max_gpus=4)
    s.at(5.0, lambda: s.take(s.nodes.lose_node(1, 5.0)))
    s.play(100.0)
    shrunk = [f for f in s.of(1) if isinstance(f, Shrunk)]
    assert [f.placement.spans for f in shrunk] == [((0, 2),)]
    assert s.record(1).state is State.COMPLETED and s.record(1).retries == 0


def test_a_drained_node_finishes_its_work_and_gets_no_more(stage: Make) -> None:
    s = stage(nodes=2, gpus=1)
    s.submit(1.0, duration_s=10.0)
    s.ask(2.0, "drain", node=0)
    s.submit(3.0, duration_s=10.0)
    s.submit(4.0, duration_s=10.0)
    s.play(16.0)
    assert [s.starts(j)[0][1] for j in (1, 2, 3)] == [0, 1, 1]
    s.ask(17.0, "undrain", node=0)
    s.submit(18.0, duration_s=3.0)
    s.play(40.0)
    assert s.starts(4)[0][1] == 0


REPACKS = ["max-min", "afs-p", "afs-l", "srtf", "gandiva:slice=5", "muri-s:tick-s=5", "optimus"]


@pytest.mark.parametrize("policy", REPACKS)
def test_jobs_on_draining_nodes_finish_there_under_policies_that_repack(
    stage: Make, policy: str
) -> None:
    s = stage(policy, nodes=2, gpus=2)
    for _ in range(2):
        s.submit(1.0, gpus=2, duration_s=60.0, min_gpus=1, max_gpus=4)
    s.ask(10.0, "drain", node=0)
    s.ask(10.0, "drain", node=1)
    s.submit(11.0, gpus=1, duration_s=5.0)
    s.play(150.0)
    assert s.states() == {1: State.COMPLETED, 2: State.COMPLETED, 3: State.PENDING}
    after = [f for f in s.facts if f.t >= 10.0]
    assert not any(isinstance(f, Started | Stopped | Shrunk | Refused) for f in after)
    s.ask(160.0, "undrain", node=1)
    s.play(180.0)
    assert {node for _, node, _ in s.starts(3)} == {1}
    assert s.record(3).state is State.COMPLETED


def test_a_job_put_back_from_a_draining_node_starts_elsewhere(stage: Make) -> None:
    s = stage(nodes=2, gpus=1)
    s.submit(1.0, duration_s=30.0)
    s.submit(2.0, duration_s=10.0)
    s.ask(5.0, "drain", node=0)
    s.ask(6.0, "requeue", 1)
    s.play(60.0)
    assert [node for _, node, _ in s.starts(1)] == [0, 1]
    assert s.states() == {1: State.COMPLETED, 2: State.COMPLETED}
    # Emulated programs of `dovetail.train` save first: what was done is not done again.
    assert ended_s(s, 1) == pytest.approx(12.0 + 25.0, abs=0.2)


def test_a_draining_node_that_is_lost_gives_its_jobs_back_and_drains_on_when_it_is_back(
    stage: Make,
) -> None:
    s = stage("max-min", nodes=2, gpus=1)
    s.submit(1.0, duration_s=30.0)
    s.ask(5.0, "drain", node=0)
    s.at(8.0, lambda: s.deaf.add(0))
    s.at(60.0, s.deaf.clear)
    s.submit(61.0, duration_s=3.0)
    s.submit(61.0, duration_s=3.0)
    s.play(150.0)
    states = [f.state for f in s.facts if isinstance(f, NodeChanged) and f.node == 0]
    assert states == ["draining", "down", "draining"]
    assert {node for job in (2, 3) for _, node, _ in s.starts(job)} == {1}
    assert set(s.states().values()) == {State.COMPLETED}


def test_a_drain_outlives_the_controller(stage: Make) -> None:
    s = stage(nodes=2, gpus=1)
    s.ask(2.0, "drain", node=0)
    s.play(5.0)
    s.submit(6.0)
    s.play(30.0)
    assert s.starts(1)[0][1] == 1


# GPUs.


def test_a_gang_waits_until_the_gpu_it_gets_is_really_free(stage: Make) -> None:
    s = stage("srtf", nodes=1, gpus=1)
    s.submit(1.0, duration_s=50.0)
    s.submit(5.0, duration_s=3.0)
    s.play(100.0)
    left = next(t for t, _, o in s.orders if o.forget is not None and o.forget.job == 1)
    began = next(t for t, _, o in s.orders if o.start is not None and o.start.job == 2)
    assert left <= began
    assert set(s.states().values()) == {State.COMPLETED}


def test_two_jobs_share_a_gpu_where_the_plan_says_so(stage: Make) -> None:
    s = stage("sjf-ffs", nodes=1, gpus=1, injected=1.2)
    s.submit(1.0, duration_s=20.0, shareable=True)
    s.submit(2.0, duration_s=20.0, shareable=True)
    s.play(10.0)
    assert [s.starts(j) for j in (1, 2)] == [[(0, 0, 0)], [(0, 0, 0)]]
    s.play(100.0)
    assert set(s.states().values()) == {State.COMPLETED}
    shared = [o.start for _, _, o in s.orders if o.start is not None and o.start.job == 2]
    assert shared[0].memory_bytes == 0, "a clock holds no memory"


def test_jobs_of_different_users_do_not_share_unless_allowed(stage: Make) -> None:
    for allowed, expected in ((False, 0), (True, 1)):
        words = {"owner": "ann", "share_between_users": allowed}
        s = stage("sjf-ffs", nodes=1, gpus=1, injected=1.2, **words)
        s.submit(1.0, duration_s=20.0, shareable=True, user="ann")
        s.submit(2.0, duration_s=20.0, shareable=True, user="bob")
        s.play(10.0)
        assert len(s.starts(2)) == expected


# Policies that go wrong.


FIRST_COME = Order(lambda view, jobs: [0.0] * len(jobs))


@dataclass(frozen=True)
class Trades:
    """Places jobs (by row) when all are there, and elsewhere from 20 s on."""

    first: Mapping[int, Placement]
    then: Mapping[int, Placement]
    knows: ClassVar[frozenset[str]] = frozenset()
    powers: ClassVar[frozenset[str]] = frozenset({"migrate"})
    order: ClassVar[Order] = FIRST_COME
    initial: ClassVar[object] = None

    def decide(self, view: View, memory: object) -> Decision:
        draft = view.plan.repack()
        there = set(view.running) | set(view.waiting)
        if len(view.jobs) == len(self.first):
            for job, placement in (self.first if view.now < 20.0 else self.then).items():
                if job in there:
                    draft.place(job, placement)
        return Decision(draft, wake_at=20.0 if view.now < 20.0 else float("inf"))


@pytest.mark.parametrize("free", [0, 1])
def test_jobs_that_trade_their_gpus_do_so_at_once(stage: Make, free: int) -> None:
    # With GPUs to spare a part of the newcomers can be started at once, and is when all give way.
    one, other = Placement(((0, 2),)), Placement(((1, 2),))
    spare = Placement(((1, 2), (0, 1))), Placement(((0, 2), (1, 1)))
    then = dict(enumerate(spare if free else (other, one)))
    first = {0: Placement(((0, 2 + free),)), 1: Placement(((1, 2 + free),))}
    s = stage(
        Trades(first, then), gpus=4 if free else 2, costs=SwitchCosts(3.0, 3.0, 3.0, 3.0, 3.0)
    )
    for _ in range(2):
        s.submit(1.0, gpus=2 + free, duration_s=60.0)
    s.play(200.0)
    assert [ended_s(s, job) for job in (1, 2)] == pytest.approx([67.0, 67.0], abs=0.05)
    assert not any(isinstance(f, Stopped) for f in s.facts)


@dataclass(frozen=True)
class Broken:
    """Raises for ten seconds, and is first come first served else."""

    name = "broken"
    knows: frozenset[str] = frozenset()
    powers: frozenset[str] = frozenset()
    order: Order = FIRST_COME
    initial: object = 0

    def decide(self, view: View, memory: object) -> Decision:
        assert isinstance(memory, int)
        if view.now > 2.0 and view.now < 12.0:
            raise ValueError("no idea")
        draft = view.plan.draft()
        for job in list(view.waiting):
            spans = view.placing.find(draft.occupancy, view.shape(job))
            if spans is not None:
                draft.place(job, spans)
        return Decision(draft, memory + 1)


def test_a_policy_that_raises_leaves_the_plan_and_is_asked_again(stage: Make) -> None:
    s = stage(Broken(), rules=replace(RULES, refused_wait_s=5.0))
    s.submit(1.0, duration_s=4.0)
    s.submit(3.0, duration_s=4.0)
    s.play(40.0)
    refused = [f for f in s.facts if isinstance(f, Refused)]
    assert len(refused) >= 2 and "no idea" in refused[0].why
    assert ended_s(s, 1) == pytest.approx(5.0, abs=0.1)
    assert set(s.states().values()) == {State.COMPLETED}


# What readers see.


def test_a_picture_shows_who_is_where(stage: Make) -> None:
    s = stage(nodes=1, gpus=2)
    s.submit(1.0, duration_s=20.0)
    s.submit(1.0, gpus=2, duration_s=20.0)
    s.play(6.0)
    assert s.world is not None and s.world.status is not None
    seen = s.world.status
    assert [(r.job, [(m.node, m.gpu) for m in r.members]) for r in seen.running] == [(1, [(0, 0)])]
    assert seen.waiting == (2,) and seen.free_gpus() == {0: 1}
    assert {job: reason.code for job, reason in seen.reason_codes().items()} == {2: "Resources"}
    assert seen.now_s >= 1.0


def test_progress_that_is_as_expected_writes_no_facts(stage: Make) -> None:
    s = stage()
    s.submit(1.0, duration_s=30.0)
    s.play(25.0)
    assert len([f for f in s.of(1) if isinstance(f, Measured)]) == 1
    assert s.record(1).samples >= 15_000


# What is booked at the end.


def test_a_job_that_completed_has_done_all_its_work(stage: Make) -> None:
    """Its last report was made before its end, and may have been within the slack of belief."""
    s = stage("afs-p", nodes=1, gpus=4, costs=SwitchCosts(resume_s=0.7))
    for number in range(6):
        s.submit(1.0 + number, duration_s=9.7 + 3.1 * number, gpus=1, max_gpus=4)
    s.play(200.0)
    for number in range(6):
        assert s.record(number + 1).state is State.COMPLETED
        assert s.record(number + 1).done_s == 9.7 + 3.1 * number


# What never ran.


@pytest.mark.parametrize(("code", "retries"), [(126, 0), (127, 0), (125, 1)])
def test_a_command_that_cannot_run_is_not_tried_again(stage: Make, code: int, retries: int) -> None:
    s = stage(nodes=1, gpus=1)
    s.submit(1.0, duration_s=5.0)
    end = WorkerEnded(1, 0, 1, code, "nosuch: No such file or directory")
    s.at(1.5, lambda: s.take([AgentReport(0, ended=end)]))
    s.play(30.0)
    record = s.record(1)
    assert record.retries == retries
    if not retries:
        assert (record.state, record.exit_code) == (State.FAILED, code)
        assert record.reason == "JobLaunchFailure"
        assert record.detail == "it could not be executed: nosuch: No such file or directory"


def test_a_named_node_that_cannot_run_a_command_is_named(stage: Make) -> None:
    s = stage(nodes=2, gpus=1, names=("n1", "n2"))
    s.submit(1.0, duration_s=5.0)
    s.at(1.5, lambda: s.take([AgentReport(0, ended=WorkerEnded(1, 0, 1, 127, "no such"))]))
    s.play(30.0)
    assert s.record(1).detail == "it could not be executed on n1: no such"


# What can be told of jobs whose workers and dependencies change.


def test_why_forgets_a_dead_worker_that_was_replaced(stage: Make) -> None:
    s = stage("afs-p", nodes=1, gpus=2)
    s.submit(1.0, duration_s=60.0, min_gpus=1, max_gpus=2)
    s.at(5.0, lambda: s.take(s.nodes.kill(1, 1, 5.0)))
    s.play(5.5)
    assert s.record(1).detail == "worker 1 ended with signal 9"
    s.play(12.0)
    assert len(s.starts(1)) == 3 and s.record(1).detail == ""


def test_no_requeue_means_that_the_first_death_is_the_last(stage: Make) -> None:
    s = stage(nodes=1, gpus=1)
    s.submit(1.0, duration_s=20.0, requeue=False, retries=3)
    s.at(5.0, lambda: s.take(s.nodes.kill(1, 0, 5.0)))
    s.play(60.0)
    assert (s.record(1).state, s.record(1).retries) == (State.FAILED, 0)


def test_a_job_cancelled_before_the_inventories_is_not_over_while_its_worker_lives(
    stage: Make,
) -> None:
    s = stage(nodes=2, gpus=1)
    s.submit(1.0, duration_s=100.0)
    s.play(5.0)
    s.deaf.add(0)
    s.ask(5.2, "cancel", 1)
    s.at(8.0, lambda: s.deaf.discard(0))
    s.play(7.0)
    assert s.record(1).state is State.COMPLETING
    s.play(40.0)
    assert s.record(1).state is State.CANCELLED


def test_a_dependent_hopes_again_when_the_job_it_needs_begins_anew() -> None:
    s = Stage(nodes=1, gpus=1)
    s.submit(1.0, duration_s=5.0)
    s.submit(1.5, duration_s=5.0, after=(Dependency("afterok", 1),))
    s.ask(3.0, "cancel", 1)
    s.ask(10.0, "requeue", 1)
    s.play(9.0)
    assert s.record(2).reason == "DependencyNeverSatisfied"
    s.play(11.0)
    assert s.record(2).reason == "Dependency"
    s.play(30.0)
    assert s.states() == {1: State.COMPLETED, 2: State.COMPLETED}


def test_a_job_is_reckoned_with_on_the_gpus_that_there_are() -> None:
    """Its record keeps what it asked for: when nodes have joined, it may have more."""
    stage = Stage("max-min", nodes=1, gpus=2, stands=True)
    stage.submit(1.0, gpus=1, min_gpus=1, max_gpus=1_000_000, duration_s=500.0)
    stage.play(20.0)
    assert stage.world is not None
    assert list(stage.world._tables.state.jobs.max_gpus) == [2]
    assert gpus_of(stage.record(1)) == 2
    grown = Stage("max-min", nodes=4, gpus=2, database=stage.database, stands=True)
    grown.line.now = 30.0
    grown.play(60.0)
    assert gpus_of(grown.record(1)) == 8


def gpus_of(record: JobRecord) -> int:
    assert record.placement is not None
    return record.placement.gpus

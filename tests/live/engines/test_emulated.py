"""Emulated nodes in virtual time: what they take is what simulation says, to the last bit."""

from pathlib import Path

import pytest
from plain_controller import PlainController, empty_table, nodes_of

from dovetail.core.placement import Placement
from dovetail.core.units import NEVER_S
from dovetail.live.emulation.nodes import FolderProgressStore
from dovetail.live.emulation.synthetic import SwitchCosts, SyntheticSpec
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.interference import Injected
from dovetail.wire.agent import AgentOrder, AgentReport, InventoryRequest, StartWorker

RESTART = SwitchCosts(start_s=0.0, resume_s=30.0, move_s=30.0, resize_s=30.0)
PREPARED = SwitchCosts(start_s=2.0, resume_s=30.0, move_s=30.0, resize_s=0.004, prepare_s=10.0)
ELASTIC = SyntheticSpec(100.0, gpus=2, min_gpus=1, max_gpus=4, elastic=True)


def test_a_job_alone_ends_after_exactly_its_length() -> None:
    c = PlainController(nodes_of())
    c.run(1, SyntheticSpec(1234.567, gpus=2, max_gpus=2), [(0, 0), (0, 1)])

    assert c.until_finished(1) == 1234.567
    assert c.ends(1) == [(1234.567, 0, 0), (1234.567, 1, 0)]
    assert c.heard(1, "finished")[0][1].samples == 1_234_567


def test_a_start_costs_what_it_costs_and_a_resumption_too() -> None:
    c = PlainController(nodes_of(costs=SwitchCosts(start_s=5.0, resume_s=30.0)))
    paced = SyntheticSpec(100.0)
    c.run(1, paced, [(0, 0)])
    c.until(45.0)
    c.preempt(1)
    assert [code for _, _, code in c.ends(1)] == [0]
    c.until(200.0)
    c.run(1, paced, [(0, 3)])

    assert [t for t, _ in c.heard(1, "entered")] == [5.0]
    assert c.until_finished(1) == 200.0 + 30.0 + 60.0
    assert c.heard(1, "saved")[0][1].samples == 40_000


def test_a_preemption_by_signal_keeps_what_was_done() -> None:
    c = PlainController(nodes_of())
    c.run(1, SyntheticSpec(100.0), [(0, 0)])
    c.until(25.0)
    c.end(1, 0, 10.0)
    assert c.ends(1) == [(25.0, 0, -15)]
    c.run(1, SyntheticSpec(100.0), [(0, 0)])

    assert c.until_finished(1) == 100.0


def test_growing_lets_the_job_train_while_new_gpus_are_made_ready() -> None:
    c = PlainController(nodes_of(costs=PREPARED))
    c.run(1, ELASTIC, [(0, 0), (0, 1)])
    c.until(22.0)
    c.grow(1, ELASTIC, [(0, 2), (0, 3)])
    end = c.until_finished(1)

    switched = 22.0 + 10.0
    done = switched - 2.0
    assert end == switched + 0.004 + (100.0 - done) / 2.0
    entered = [(t, e.generation, e.pause_s) for t, e in c.heard(1, "entered")]
    assert entered == [(2.0, 1, 0.0)] * 2 + [(32.004, 2, pytest.approx(0.004))] * 4


def test_shrinking_happens_at_once_and_leavers_end() -> None:
    c = PlainController(nodes_of(costs=PREPARED))
    c.run(1, ELASTIC, [(0, 0), (0, 1)])
    c.until(52.0)
    c.regroup(1, [0])

    assert c.ends(1) == [(52.0, 1, 0)]
    assert [m.generation for _, m in c.heard(1, "left")] == [2]
    assert c.until_finished(1) == 52.0 + 0.004 + 50.0 / 0.5


def test_without_preparation_a_resize_stops_the_job() -> None:
    c = PlainController(nodes_of(costs=RESTART))
    c.run(1, ELASTIC, [(0, 0), (0, 1)])
    c.until(50.0)
    c.grow(1, ELASTIC, [(0, 2), (0, 3)])

    assert c.until_finished(1) == 50.0 + 30.0 + 50.0 / 2.0
    rates = [(t, m.rate) for t, m in c.heard(1, "training") if t >= 50.0]
    assert rates[:3] == [(50.0, 1000.0), (50.0, 0.0), (80.0, 2000.0)]


def test_a_move_elsewhere_frees_the_old_gpus_at_once_and_costs_a_move() -> None:
    for costs in (PREPARED, RESTART):
        c = PlainController(nodes_of(nodes=2, costs=costs))
        c.run(1, ELASTIC, [(0, 0), (0, 1)])
        c.until(42.0)
        c.regroup(1, c.start(1, ELASTIC, [(1, 0), (1, 1)]))
        assert c.ends(1) == [(42.0, 0, 0), (42.0, 1, 0)]
        assert c.until_finished(1) == costs.start_s + 100.0 + 30.0


def test_a_newer_order_cancels_an_expansion_under_way() -> None:
    c = PlainController(nodes_of(costs=PREPARED))
    c.run(1, ELASTIC, [(0, 0), (0, 1)])
    c.until(12.0)
    c.grow(1, ELASTIC, [(0, 2), (0, 3)])
    c.until(15.0)
    c.regroup(1, [0, 1])

    assert sorted(c.ends(1)) == [(15.0, 2, 0), (15.0, 3, 0)]
    assert c.until_finished(1) == 102.0


def test_neighbours_are_retimed_when_they_come_and_go() -> None:
    jobs = empty_table()
    physics = linear_physics(jobs, Injected(1.6))
    c = PlainController(nodes_of(jobs=jobs, physics=physics))
    paced = SyntheticSpec(100.0, shareable=True)
    c.run(1, paced, [(0, 0)])
    c.until(10.0)
    c.run(2, SyntheticSpec(20.0, shareable=True), [(0, 0)])
    here = Placement(((0, 1),), ((0,),))
    slow = physics.rate(0, here, [(1, here)])
    assert slow < 1.0

    assert c.until_finished(2) == pytest.approx(10.0 + 20.0 / slow, abs=1e-9)
    alone_again = c.now
    assert c.until_finished(1) == pytest.approx(alone_again + 90.0 - 20.0, abs=1e-9)
    said = [(t, m.rate) for t, m in c.heard(1, "training")]
    assert (10.0, slow * 1000) in said and (alone_again, 1000.0) in said


def test_another_share_of_its_gpus_slows_a_job_after_the_pause_that_it_costs() -> None:
    jobs = empty_table()
    physics = linear_physics(jobs)
    c = PlainController(nodes_of(jobs=jobs, physics=physics, costs=SwitchCosts(limit_s=3.6)))
    paced = SyntheticSpec(100.0, shareable=True)
    c.run(1, paced, [(0, 0)])
    c.until(10.0)
    c.limit(1, paced, 0.4)
    slow = physics.rate(0, Placement(((0, 1),), ((0,),), fractions=(0.4,)), [])
    assert slow < 1.0

    assert c.until_finished(1) == pytest.approx(10.0 + 3.6 + 90.0 / slow, abs=1e-9)


def test_jobs_on_other_gpus_do_not_touch_each_other() -> None:
    c = PlainController(nodes_of())
    c.run(1, SyntheticSpec(100.0), [(0, 0)])
    c.until(10.0)
    c.run(2, SyntheticSpec(20.0), [(0, 1)])
    assert c.until_finished(1) == 100.0


def test_training_is_reported_each_second_of_the_cluster() -> None:
    c = PlainController(nodes_of(report_s=10.0))
    c.run(1, SyntheticSpec(35.0), [(0, 0)])
    c.until_finished(1)
    assert [(t, m.samples) for t, m in c.heard(1, "training")] == [
        (0.0, 0),
        (10.0, 10_000),
        (20.0, 20_000),
        (30.0, 30_000),
    ]


def test_the_others_train_on_when_a_worker_dies() -> None:
    c = PlainController(nodes_of(costs=PREPARED))
    c.run(1, ELASTIC, [(0, 0), (0, 1)])
    c.until(52.0)
    c.take(c.nodes.kill(1, 1, 52.0))
    assert c.ends(1) == [(52.0, 1, -9)]
    assert [m.generation for _, m in c.heard(1, "lost")] == [1]
    c.until(55.0)
    c.members[1] = (0,)
    c.regroup(1, [0])

    assert c.until_finished(1) == 55.0 + 0.004 + 50.0 / 0.5


def test_a_hung_worker_stops_the_others_and_heeds_sigkill_alone() -> None:
    c = PlainController(nodes_of())
    c.run(1, ELASTIC, [(0, 0), (0, 1)])
    c.until(10.0)
    c.take(c.nodes.hang(1, 1, 10.0))
    c.until(100.0)
    assert [(t, m.why[:7]) for t, m in c.heard(1, "lost")] == [(70.0, "stalled")]
    c.end(1, 1, 5.0)
    assert c.ends(1) == []
    c.until(106.0)
    assert c.ends(1) == [(105.0, 1, -9)]


def test_a_slow_worker_slows_its_gang() -> None:
    c = PlainController(nodes_of())
    c.run(1, ELASTIC, [(0, 0), (0, 1)])
    c.until(50.0)
    c.take(c.nodes.slow(1, 1, 2.0, 50.0))
    assert c.until_finished(1) == 150.0


def test_a_lost_node_says_nothing_and_returns_empty() -> None:
    c = PlainController(nodes_of(nodes=2, gpus=1, alive_s=1.0))
    paced = SyntheticSpec(100.0, gpus=2, min_gpus=1, max_gpus=2, elastic=True)
    c.run(1, paced, [(0, 0), (1, 0)])
    c.until(10.5)
    c.take(c.nodes.lose_node(1, 10.5))
    c.until(12.5)
    heard = [t for t, r in c.log if r.node == 1]
    assert max(heard) == 10.0
    assert [m.generation for _, m in c.heard(1, "lost")] == [1]
    assert all(r.node == 0 for r in c.nodes.handle(1, AgentOrder(1), 13.0))
    c.nodes.return_node(1)
    c.until(14.0)
    assert max(t for t, r in c.log if r.node == 1) == 14.0


def test_other_programs_are_refused_with_a_word() -> None:
    c = PlainController(nodes_of())
    c.send(0, start=StartWorker(1, 0, 1, 0, ("sleep", "1"), "", "", "/"))
    (_, report), *_ = c.log
    assert report.ended is not None and report.ended.exit_code == 126
    assert "paced" in report.ended.why


class MemoryProgressStore:
    """A folder that is a dictionary, and every write to it."""

    def __init__(self) -> None:
        self.kept: dict[str, float] = {}
        self.writes: list[float] = []

    def read(self, folder: str) -> float | None:
        return self.kept.get(folder)

    def write(self, folder: str, done_s: float) -> None:
        self.kept[folder] = done_s
        self.writes.append(done_s)

    def drop(self, folder: str) -> None:
        self.kept.pop(folder, None)


def test_progress_outlives_the_process_and_a_second_run_begins_anew() -> None:
    store = MemoryProgressStore()
    costs = SwitchCosts(start_s=5.0, resume_s=30.0)
    killed = PlainController(nodes_of(progress=store, write_s=10.0, costs=costs))
    killed.run(1, SyntheticSpec(100.0), [(0, 0)], folder="1")
    killed.until(48.0)
    assert store.writes == [0.0, 10.0, 20.0, 30.0, 40.0]

    c = PlainController(nodes_of(progress=store, write_s=10.0, costs=costs))
    c.run(1, SyntheticSpec(100.0), [(0, 0)], folder="1")
    assert c.until_finished(1) == 30.0 + 60.0
    assert store.kept == {}, "complete and on record"
    c.log.clear()
    c.run(1, SyntheticSpec(100.0), [(0, 0)], folder="1")
    assert c.until_finished(1) == 90.0 + 5.0 + 100.0


def test_two_runs_are_the_same() -> None:
    def play() -> list[object]:
        c = PlainController(nodes_of(costs=PREPARED))
        c.run(1, ELASTIC, [(0, 0), (0, 1)])
        c.until(3.0)
        c.run(2, SyntheticSpec(20.0, shareable=True), [(0, 0)])
        c.grow(1, ELASTIC, [(0, 2)])
        c.until_finished(1)
        return list(c.log)

    assert play() == play()


def test_progress_is_kept_in_the_folder_of_a_job_and_brings_no_removed_cluster_back(
    tmp_path: Path,
) -> None:
    store, jobs = FolderProgressStore(), tmp_path / "jobs"
    store.write(str(jobs / "1"), 5.0)
    assert not jobs.exists() and store.read(str(jobs / "1")) is None
    jobs.mkdir()
    store.write(str(jobs / "1"), 5.0)
    assert store.read(str(jobs / "1")) == 5.0


def test_one_call_does_no_more_than_it_may_and_an_order_is_heard_between_two() -> None:
    nodes = nodes_of(gpus=4, alive_s=1.0, steps_max=3)
    assert [r.alive is not None for r in nodes.tick(1000.0)] == [True] * 3
    assert nodes.next_due() == 3.0
    (*_, answer) = nodes.handle(0, AgentOrder(1, hail=InventoryRequest(1)), 1000.0)
    assert answer.inventory is not None
    assert nodes.next_due() == 6.0, "what was due is not left out"


def test_nodes_that_fell_behind_say_the_same_as_those_that_did_not() -> None:
    said: list[list[AgentReport]] = []
    for most in (2, NEVER_S):
        c = PlainController(nodes_of(alive_s=1.0, steps_max=most))
        c.run(1, SyntheticSpec(50.0), [(0, 0)])
        said.append([])
        while c.nodes.next_due() <= 100.0:
            said[-1] += c.nodes.tick(100.0)
    assert said[0] == said[1]
    assert any(r.said is not None and r.said.finished is not None for r in said[0])


def test_a_node_that_is_lost_sends_no_heartbeat() -> None:
    nodes = nodes_of(nodes=3)
    nodes.lose_node(1, 5.0)

    assert [report.node for report in nodes.heartbeats(6.0)] == [0, 2]

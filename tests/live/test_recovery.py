"""A controller that was killed is followed by one that goes on where it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import process_time

import pytest
from live_stage import RULES, Stage

from dovetail.core.messages import ControllerChanged, NodeChanged
from dovetail.core.units import NEVER_S
from dovetail.live.jobs.lifecycle import State
from dovetail.live.store.database import Database
from dovetail.wire.agent import AgentReport, Inventory
from dovetail.wire.spec import JobSpec
from dovetail.wire.submission import Submission


def test_running_jobs_are_adopted_and_waiting_ones_wait_on() -> None:
    s = Stage("fifo", nodes=1, gpus=2)
    s.submit(1.0, gpus=2, duration_s=20.0)
    s.submit(2.0, duration_s=5.0)
    s.submit(2.5, duration_s=5.0, hold=True)
    for until in (3.0, 3.3, 8.0, 8.1, 40.0):
        s.play(until)
    assert s.starts(1) == [(0, 0, 0), (1, 0, 1)]
    assert s.states() == {1: State.COMPLETED, 2: State.COMPLETED, 3: State.PENDING}
    assert s.record(3).reason == "JobHeldUser"
    s.check()


def test_a_job_that_ended_while_nobody_looked_is_found_ended() -> None:
    s = Stage("fifo")
    s.submit(1.0, duration_s=5.0)
    s.submit(1.5, duration_s=100.0, retries=0)
    s.play(3.0)
    s.at(4.0, lambda: s.take(s.nodes.kill(2, 0, 4.0)))
    s.line.pass_until(20.0)
    s.play(40.0)
    assert s.record(1).state is State.COMPLETED and s.record(1).exit_code == 0
    assert s.record(2).state is State.FAILED
    s.check()


def test_a_limit_counts_what_a_quiet_job_ran_before_its_controller_was_killed() -> None:
    quiet = replace(RULES, stall_s=NEVER_S)
    s = Stage("fifo", nodes=1, gpus=1, rules=quiet, report_s=NEVER_S, stands=True)
    s.submit(0.0, duration_s=9000.0, time_limit_s=1800.0)
    s.play(29 * 60.0)
    s.line.pass_until(3000.0)
    s.play(4000.0)
    (told,) = [t for t, _, order in s.orders if order.end is not None]
    assert told == pytest.approx(3000.0 + 60.0, abs=s.rules.persist_every_s + 1.0)
    record = s.record(1)
    assert record.state is State.TIMEOUT and record.ran_s == pytest.approx(1800.0, abs=1.0)
    assert record.attained_gpu_s == pytest.approx(1800.0, abs=2.0)


def test_a_job_that_waits_for_its_time_waits_no_longer_when_its_controller_was_killed() -> None:
    s = Stage("fifo", stands=True)
    s.submit(1.0, begin_s=600.0)
    s.play(590.0)
    s.play(700.0)
    began = next(t for t, _, order in s.orders if order.start is not None)
    assert began == pytest.approx(601.0, abs=s.rules.persist_every_s + 1.0)


def test_an_empty_cluster_keeps_nothing() -> None:
    s = Stage("fifo")
    s.submit(1.0, duration_s=5.0)
    s.play(20.0)
    s.play(500.0)
    last = [f for f in s.facts if f.t > 7.0]
    assert [type(f) for f in last] == [ControllerChanged] * 2, last
    written = len(s.written)
    s.play(1000.0)
    # No more than that a controller started and is ready.
    assert len(s.written) <= written + 2


def test_a_full_disk_that_cannot_keep_the_time_holds_nobody_up() -> None:
    s = Stage("fifo", nodes=1, gpus=1, report_s=NEVER_S)
    s.submit(1.0, duration_s=50.0)
    s.at(20.0, lambda: s.refuses.extend([True] * 4))
    s.play(60.0)
    assert s.record(1).state is State.COMPLETED and s.record(1).end_s == pytest.approx(
        51.0, abs=0.1
    )


def test_a_request_on_record_is_carried_out_by_the_next_controller() -> None:
    s = Stage("fifo")
    s.submit(1.0, duration_s=50.0)
    s.ask(3.0, "cancel", 1)
    s.play(3.0)
    s.play(20.0)
    assert s.record(1).state is State.CANCELLED
    assert s.store.queries.pending() == []
    s.check()


def test_a_node_that_does_not_answer_holds_the_others_up_for_its_patience_only() -> None:
    s = Stage("fifo", nodes=2, gpus=1)
    s.deaf.add(1)
    s.submit(1.0, duration_s=3.0)
    s.play(30.0)
    assert s.starts(1)[0][1] == 0
    began = next(t for t, _, o in s.orders if o.start is not None)
    assert began == pytest.approx(s.rules.node_patience_s, abs=1.5)
    s.check()


def test_a_node_that_is_known_to_be_down_holds_nobody_up_again() -> None:
    s = Stage("fifo", nodes=2, gpus=1)
    s.deaf.add(1)
    s.play(12.0)
    s.submit(13.0, duration_s=3.0)
    s.play(30.0)
    assert next(t for t, _, o in s.orders if o.start is not None) == pytest.approx(13.0, abs=0.1)
    s.check()


def test_an_inventory_from_before_a_node_was_lost_does_not_bring_it_back() -> None:
    """What the node was told after that hail and before it fell silent, it may do yet."""
    s = Stage("fifo", nodes=2, gpus=1)
    s.at(1.0, lambda: s.deaf.add(1))

    def answer(serial: int) -> None:
        hail = next(o.hail for _, _, o in s.orders if o.hail is not None)
        late = Inventory(1, "emulated-1", ("paced-0",), (), hail.epoch, serial or hail.serial)
        assert s.inbox is not None
        s.inbox.put(AgentReport(1, inventory=late))

    s.at(20.0, lambda: answer(0))
    s.at(22.0, lambda: answer(max(o.hail.serial for _, _, o in s.orders if o.hail is not None)))
    s.play(25.0)
    states = [(round(f.t), f.node, f.state) for f in s.facts if isinstance(f, NodeChanged)]
    assert states == [(10, 1, "down"), (22, 1, "up")]


def test_a_gang_that_trains_is_told_nothing_by_the_next_controller() -> None:
    s = Stage("afs-p", nodes=2, gpus=2)
    s.submit(1.0, gpus=2, max_gpus=4, duration_s=60.0)
    s.play(10.0)
    generation, told = s.record(1).generation, len(s.orders)
    assert len(s.record(1).members) == 4
    s.play(20.0)
    assert [o for _, _, o in s.orders[told:] if o.hail is None] == []
    assert s.record(1).generation == generation
    s.check()


def test_a_deadline_stays_where_it_was() -> None:
    s = Stage("fifo")
    s.submit(1.0, duration_s=100.0, deadline_s=20.0)
    s.play(10.0)
    s.play(60.0)
    assert s.record(1).state is State.DEADLINE
    assert s.record(1).end_s == pytest.approx(21.0, abs=0.5)
    s.check()


def play_through(*kills: float) -> Stage:
    """Plays a job that is preempted by another, and one that is over its limit, to their ends."""
    s = Stage("srtf", nodes=1, gpus=3)
    s.submit(1.0, gpus=2, duration_s=40.0)
    s.submit(1.5, duration_s=100.0, time_limit_s=30.0)
    s.submit(10.2, gpus=2, duration_s=8.0)
    for until in (*kills, 100.0):
        s.play(until)
        s.line.pass_until(until + 0.3)
    s.check()
    return s


@pytest.mark.parametrize("kills", [(5.4,), (8.0, 9.5), (12.3,), (4.0, 12.0, 19.5, 25.0)])
def test_what_is_known_of_jobs_does_not_tell_how_often_controllers_were_killed(
    kills: tuple[float, ...],
) -> None:
    undisturbed, killed = play_through(), play_through(*kills)
    for job in (1, 2, 3):
        one, other = undisturbed.record(job), killed.record(job)
        assert (one.state, one.retries) == (other.state, other.retries)
        for name in ("done_s", "attained_gpu_s", "first_start_s", "ran_s", "end_s"):
            assert getattr(other, name) == pytest.approx(getattr(one, name), abs=1.0), name
    assert killed.record(1).attained_gpu_s == pytest.approx(80.0, abs=4.0)
    assert killed.record(2).state is State.TIMEOUT


def test_progress_that_nobody_reported_yet_is_reckoned_from_the_last_record() -> None:
    s = Stage("srtf")
    s.submit(1.0, duration_s=60.0)
    s.play(20.2)
    s.deaf.update({0, 1})
    s.line.pass_until(24.5)
    s.play(24.6)
    assert s.world is not None
    assert s.world.observe().progress.done_s((0,))[0] == pytest.approx(23.5, abs=0.2)


@pytest.mark.slow
def test_ten_thousand_jobs_are_back_in_two_seconds(tmp_path: Path) -> None:
    count = 10_000
    s = Stage("srtf", nodes=250, gpus=4, database=Database(tmp_path / "store.db"))
    submissions = []
    for index in range(count):
        gpus = 4 if index % 4 == 0 else 1
        spec = JobSpec(
            "job",
            (),
            "/",
            gpus=gpus,
            min_gpus=gpus,
            max_gpus=gpus,
            duration_s=1e3 + index,
            paced=True,
        )
        submissions.append(Submission(spec))

    def submit() -> None:
        assert s.intake is not None
        for first in range(0, count, 500):
            s.intake.submit(submissions[first : first + 500], key=f"key {first}")

    s.at(0.5, submit)
    s.play(6.0)
    before = s.states()
    began = process_time()
    s.play(6.25)
    took_s = process_time() - began
    assert s.states() == before and len(before) == count
    assert s.world is not None and s.world.status is not None
    assert s.world.status.decided_s > 0
    assert took_s < 2.0, f"{took_s:.2f} s of processor time"
    s.database.close()

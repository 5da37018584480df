"""Controllers killed while agents stand still: orders wait in sockets, or are lost in part.

The stories are seeded and in virtual time; `test_killed_for_real.py` plays some of it with real
processes. `python tests/live/harness/again.py interrupted SEED` plays a story again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest
from harness import killing
from harness.processes import Process
from harness.scene import Scene
from harness.stage import first_failure, folder_in_memory, play
from harness.story import NODES, ORDERS_LOST, STOPPED, Fault, Story, Submission, Verb, interrupted

from dovetail.live.jobs.job_environment import RESTARTS
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.record import JobRecord
from dovetail.wire.agent import AgentOrder

BLOCK = 30
ONCE_BROKEN = (65, 80, 507)
"""Stories beyond the first blocks that broke a rule when they were first played."""


@pytest.mark.parametrize("block", range(2))
def test_no_story_of_stopped_agents_breaks_a_rule(block: int) -> None:
    failure = first_failure(interrupted(s) for s in range(block * BLOCK, (block + 1) * BLOCK))
    assert failure is None, failure.told()


def test_no_story_of_stopped_agents_that_once_broke_a_rule_does_so_again() -> None:
    failure = first_failure(interrupted(seed) for seed in ONCE_BROKEN)
    assert failure is None, failure.told()


@pytest.mark.slow
@pytest.mark.parametrize("block", range(2, 46))
def test_no_story_of_many_more_of_stopped_agents_breaks_a_rule(block: int) -> None:
    seeds = range(block * BLOCK, (block + 1) * BLOCK)
    failure = first_failure(interrupted(seed) for seed in seeds)
    assert failure is None, failure.told()


def lone_gang(seed: int) -> Story:
    """Returns a story of one gang whose start orders get through in part, or not at all."""
    rng = Random(seed)
    gpus = rng.choice((2, 3, 4))
    stopped_s = rng.choice((0.3, 1.0, 4.0))
    killed_s = 1.0 + rng.uniform(0.01, 0.2)
    kind = rng.choice(("controller killed", ORDERS_LOST, ORDERS_LOST))
    return Story(
        seed=seed,
        policy=rng.choice(("fifo", "backfill", "srtf")),
        submissions=(Submission(1.0, "plain", gpus, gpus, gpus, rng.choice((0.2, 3.0, 10.0))),),
        faults=(
            *(Fault(0.95, STOPPED, stopped_s, node=node) for node in range(NODES)),
            Fault(round(killed_s, 3), kind, rng.choice((0.0, 0.3, 3.0))),
        ),
    )


def run_once(seeds: range) -> None:
    """Holds that a gang runs once, all of it, however much of its orders got through."""
    for seed in seeds:
        with tempfile.TemporaryDirectory(dir=folder_in_memory()) as folder:
            scene = Scene(lone_gang(seed), Path(folder) / "store.db")
            outcome = scene.play()
        record = scene.truth.records[1]
        assert not outcome.wrong, (seed, outcome.wrong)
        assert record.state is State.COMPLETED, seed
        assert (record.retries, record.restarts) == (0, 0), seed
        assert scene.truth.starts[1] == scene.truth.size[1], seed


def test_a_gang_whose_orders_got_through_in_part_runs_once() -> None:
    run_once(range(30))


@pytest.mark.slow
def test_a_thousand_gangs_whose_orders_got_through_in_part_run_once() -> None:
    run_once(range(1000))


def test_killed_between_any_two_start_orders_no_gang_runs_twice() -> None:
    jobs = (Submission(0.0, "plain", 4, 4, 4, 6.0), Submission(1.0, "plain", 2, 2, 2, 6.0))
    whole = Story(seed=1, policy="fifo", submissions=jobs)
    points = play(whole).crash_points
    assert points > 50
    failure = first_failure(
        Story(seed=1, policy="fifo", submissions=jobs, crash_at=(at,))
        for at in range(1, points + 1)
    )
    assert failure is None, failure.told()


# What cannot go on is a restart, and counts as one.


RANK_0_DIES = Fault(2.5, "worker killed")
"""While no controller runs, when its agent has gone on."""


class Lone:
    """A gang of two whose rank 0 alone was started before its controller was killed."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, *later: Fault, retries: int = 3
    ) -> None:
        gang = Submission(1.0, "plain", 2, 2, 2, 3.0, retries=retries)
        faults = (Fault(0.95, STOPPED, 1.0, node=0), Fault(1.1, ORDERS_LOST, 3.0), *later)
        story = Story(seed=1, policy="fifo", submissions=(gang,), faults=faults)
        monkeypatch.setattr(killing, "_cut", lambda rng, orders: _second_start(orders))
        self.scene = Scene(story, folder / "store.db")
        self.started: list[Process] = []
        started = self.scene.truth.started

        def watch(process: Process) -> None:
            self.started.append(process)
            started(process)

        monkeypatch.setattr(self.scene.truth, "started", watch)

    def play(self) -> JobRecord:
        assert not self.scene.play().wrong
        return self.scene.truth.records[1]

    @property
    def told(self) -> list[tuple[int, str]]:
        """Returns the rank of each process that started, and the restarts that it was told."""
        return [(p.order.rank, dict(p.order.environment).get(RESTARTS, "")) for p in self.started]


def _second_start(orders: list[AgentOrder]) -> int:
    return next((i for i, o in enumerate(orders) if o.start and o.start.worker == 1), 0)


def test_rank_0_alone_is_joined_by_the_rank_that_was_never_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lone = Lone(tmp_path, monkeypatch, retries=0)
    record = lone.play()
    assert (record.state, record.retries, record.restarts) == (State.COMPLETED, 0, 0)
    assert lone.told == [(0, ""), (1, "")]


def test_a_run_that_began_in_part_and_broke_counts_as_a_restart_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lone = Lone(tmp_path, monkeypatch, RANK_0_DIES)
    facts: list[str] = []
    details: list[str] = []
    kept = lone.scene.truth.kept

    def watch(entry: Any) -> None:
        facts.extend(getattr(f, "why", "") for f in entry.facts if type(f).__name__ == "Stopped")
        details.extend(r.detail for r in entry.records if r.reason == "BeginTime")
        kept(entry)

    monkeypatch.setattr(lone.scene.truth, "kept", watch)
    record = lone.play()
    assert (record.state, record.retries, record.restarts) == (State.COMPLETED, 1, 1)
    assert sorted(lone.told) == [(0, ""), (0, "1"), (1, "1")]
    assert facts == ["failed"]
    assert details == ["worker 1 was not there when the controller came back"]


def test_a_run_that_began_in_part_and_broke_is_not_tried_again_without_retries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lone = Lone(tmp_path, monkeypatch, RANK_0_DIES, retries=0)
    record = lone.play()
    assert (record.state, record.reason) == (State.FAILED, "JobLaunchFailure")
    assert lone.told == [(0, "")]


def test_a_gang_taken_back_before_all_its_ranks_ran_is_told_that_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang = Submission(1.0, "plain", 4, 4, 4, 3.0)
    deaf = (Fault(0.5, "node deaf", 4.0, node=1),)
    verbs = (Verb(3.0, "requeue", of=0),)
    story = Story(seed=1, policy="fifo", submissions=(gang,), verbs=verbs, faults=deaf)
    scene = Scene(story, tmp_path / "store.db")
    assert not scene.play().wrong
    assert scene.truth.records[1].restarts == 1

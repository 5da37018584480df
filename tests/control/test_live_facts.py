"""Facts that only a live world makes: reports, new forecasts, holds, refusals; and their replay."""

import random
from collections.abc import Sequence

import pytest

from builders import Both, Facts, Row, policy_of, scene_of, tally_of, trace_of
from dovetail.control.loop import run
from dovetail.control.replay import RecordedForecast, ReplayWorld, instants
from dovetail.control.state import ClusterState
from dovetail.core.messages import (
    Ended,
    Fact,
    Foreseen,
    Measured,
    Recorder,
    Refused,
    Submitted,
    Withdrawn,
)
from dovetail.core.policy import Decision, Policy
from dovetail.core.view import Changes, View, show
from dovetail.sim.scene import Scene
from dovetail.sim.world import SimWorld


class LiveLike(SimWorld):
    """A simulated world in which jobs report, are held and released, and decisions come late."""

    def __init__(self, scene: Scene, policy: Policy, recorder: Recorder) -> None:
        super().__init__(scene, policy, recorder)
        self._draw = random.Random(3)
        self._held: list[int] = []

    def _step(self, until: float) -> bool:
        if self._held and not self.state.waiting:
            until = min(until, self.state.now + 5.0)
        goes_on = super()._step(until)
        if not goes_on:
            return False
        facts, now = self._facts, self.state.now
        for job in sorted(self.state.plan.placed):
            if self._draw.random() < 0.3 and self.state.since_s[job] <= now:
                self._report(job, facts)
        for job in [*self.state.waiting, *self.state.plan.placed]:
            if self._draw.random() < 0.1:
                length_s = self.state.length[job] * self._draw.choice((0.5, 1.5))
                self.state.relength(job, length_s)
                facts.append(Foreseen(now, job, length_s))
        self._hold_and_release(facts)
        return True

    def _report(self, job: int, facts: list[Fact]) -> None:
        state, now = self.state, self.state.now
        state.settle(job)
        done_s, rate = state.done[job] * self._draw.choice((0.9, 1.0)), state.rate[job] * 0.9
        state.measure(job, done_s, rate)
        self._schedule(job)
        facts.append(Measured(now, job, done_s, rate))

    def _hold_and_release(self, facts: list[Fact]) -> None:
        state, now, changes = self.state, self.state.now, self.state.view.changes
        for job in self._held:
            state.arrive(job)
            facts.append(Submitted(now, job, state.length[job]))
        arrived, self._held = [*changes.arrived, *self._held], []
        for job in list(state.waiting):
            if job not in arrived and self._draw.random() < 0.15:
                state.withdraw(job)
                facts.append(Withdrawn(now, job))
                self._held.append(job)
        ended = [*changes.ended, *self._held]
        show(state.view, changes=changes._replace(arrived=arrived, ended=ended))

    def in_time(self, took_s: float) -> bool:
        return self._draw.random() < 0.8

    def refuse(  # type: ignore[override]
        self, policy: Policy, why: Sequence[str], cause: Exception | None = None
    ) -> float:
        assert cause is None, cause
        self._facts.append(Refused(self.state.now, "; ".join(why)))
        return self.state.now + 2.0


def rows() -> list[Row]:
    draw = random.Random(4)
    return [
        Row(
            draw.choice([1, 1, 2, 4]),
            draw.choice([3.0, 11.0, 25.0]),
            float(i),
            elastic=i % 2 == 0,
            min_gpus=1 if i % 2 == 0 else 0,
            max_gpus=6 if i % 2 == 0 else 0,
            shareable=True,
        )
        for i in range(30)
    ]


POLICIES = [
    "fifo",
    "backfill",
    "srtf",
    "tiresias:thresholds=20/60,inside=list",
    "afs-p:unit-s=5",
    "sjf-bsbf",
    "a-srpt",
    "gandiva:slice=7",
]


@pytest.mark.parametrize("name", POLICIES)
def test_a_live_run_is_replayed_without_a_difference(name: str) -> None:
    scene = scene_of(trace_of(*rows()), "2x4", switching="restart:2")
    policy, facts, tally = policy_of(name), Facts(), tally_of(scene)
    world = LiveLike(scene, policy, Both(facts, tally))
    run(world, policy)
    for kind in (Measured, Foreseen, Withdrawn, Refused):
        assert sum(isinstance(fact, kind) for fact in facts.all) > 3, kind
    ended = [fact.job for fact in facts.all if isinstance(fact, Ended)]
    assert sorted(ended) == list(range(30))
    # What was measured corrects what was reckoned, so a finished job has done its work.
    assert tally.done_s == pytest.approx(scene.trace.duration_s.tolist())
    replayed = ReplayWorld(fresh(scene, policy, facts.all), instants(facts.all))
    run(replayed, policy)
    assert replayed.differences == []
    decided = sum(1 for one in instants(facts.all) if any(map(asks, one.events)))
    assert replayed.decisions >= decided > 30


def asks(fact: Fact) -> bool:
    return isinstance(fact, Submitted | Ended | Withdrawn)


def fresh(scene: Scene, policy: Policy, facts: list[Fact]) -> ClusterState:
    lengths = {f.job: f.length_s for f in reversed(facts) if isinstance(f, Submitted)}
    return ClusterState(
        scene.trace.jobs,
        scene.cluster,
        policy,
        physics=scene.belief,
        forecast=RecordedForecast([lengths[job] for job in range(len(scene.trace))]),
        placing=scene.placing,
        switching=scene.switching,
    )


def test_a_recorded_refusal_is_no_difference_and_an_unrecorded_fault_is_raised() -> None:
    scene = scene_of(trace_of(Row(1, 5.0), Row(1, 5.0, 1.0)), "1x2")

    class Broken:
        knows, powers = frozenset[str](), frozenset[str]()
        order, initial = policy_of("fifo").order, None

        def decide(self, view: View, memory: object) -> Decision:
            raise KeyError("a bug")

    arrived: list[Fact] = [Submitted(0.0, 0, 5.0), Submitted(1.0, 1, 5.0)]
    recorded = [arrived[0], Refused(0.0, "it raised"), arrived[1], Refused(1.0, "it raised")]
    broken = Broken()
    world = ReplayWorld(fresh(scene, broken, arrived), instants(recorded))
    run(world, broken)
    assert world.decisions == 2
    assert world.differences == []
    with pytest.raises(KeyError, match="a bug"):
        run(ReplayWorld(fresh(scene, broken, arrived), instants(arrived)), broken)


def test_what_is_reported_comes_before_what_is_decided_next_at_the_same_time() -> None:
    from dovetail.core.messages import Started
    from dovetail.core.placement import Placement

    started = Started(1.0, 0, "start", Placement(((0, 1),)), 1.0, 1.0)
    facts: list[Fact] = [Submitted(1.0, 0, 5.0), started, Measured(1.0, 0, 0.0, 0.5)]
    assert [(one.events, one.decided) for one in instants(facts)] == [
        ((facts[0],), (started,)),
        ((facts[2],), ()),
    ]


def test_changes_that_came_one_after_another_are_told_in_effect() -> None:
    first = Changes(arrived=[1, 2], evicted=[5, 6], woke=True)
    second = Changes(arrived=[3, 7], ended=[2, 6, 7, 9], evicted=[5, 8], capacity=True)
    # 2 was cancelled before it started; 6 was stopped and is held; 7 was held and is back; 8 was
    # stopped and runs again.
    net = first.then(second).net({1, 3, 5, 7})
    assert net == Changes([1, 3, 7], [2, 6, 7, 9], [5], capacity=True, woke=True)

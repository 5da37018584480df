"""Logs of controllers that started anew: who is asked when, with what memory, and what is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from builders import Row, policy_of, scene_of, trace_of
from dovetail.control.loop import run
from dovetail.control.replay import (
    CUT_OFF,
    Difference,
    Instant,
    RecordedForecast,
    ReplayWorld,
    instants,
    spans,
    take_over,
)
from dovetail.control.state import ClusterState
from dovetail.core.messages import (
    READY,
    RECOVERING,
    ControllerChanged,
    Ended,
    Explained,
    Fact,
    Foreseen,
    NodeChanged,
    Started,
    Stopped,
    Submitted,
    Withdrawn,
    Woke,
)
from dovetail.core.placement import Placement
from dovetail.core.policy import Decision
from dovetail.core.view import View

ON_ONE = Placement(((0, 1),))
FIFO = "fifo:bypass=strict"


def begins(t: float, epoch: int = 1) -> ControllerChanged:
    return ControllerChanged(t, epoch, RECOVERING, FIFO)


def ready(t: float, epoch: int = 1) -> ControllerChanged:
    return ControllerChanged(t, epoch, READY)


def started(t: float, job: int, how: str = "start") -> Started:
    return Started(t, job, how, ON_ONE, 1.0, t)


def tables(policy: str = "fifo", cluster: str = "1x1", jobs: int = 2) -> ClusterState:
    scene = scene_of(trace_of(*(Row(1, 5.0, float(i)) for i in range(jobs))), cluster)
    return ClusterState(
        scene.trace.jobs,
        scene.cluster,
        policy_of(policy),
        physics=scene.belief,
        forecast=RecordedForecast([5.0] * jobs),
        placing=scene.placing,
    )


def differences(facts: Sequence[Fact], *, cut_off: bool = False) -> list[Difference]:
    world = ReplayWorld(tables(), instants(facts), cut_off=cut_off)
    run(world, policy_of("fifo"))
    return world.differences


def test_nothing_is_asked_before_the_controller_is_ready() -> None:
    facts = [begins(0.0), Submitted(0.0, 0, 5.0), Submitted(1.0, 1, 5.0)]
    ends = [ready(2.0), Woke(2.0), started(2.0, 0), Ended(7.0, 0, "completed"), started(7.0, 1)]
    assert differences([*facts, *ends]) == []
    # Without the fact the same start comes too late.
    assert differences([*facts[1:], *ends[2:]]) != []


def test_a_decision_without_an_event_stands_for_itself() -> None:
    """So a controller that became ready left it in logs of version 1."""
    facts = [Submitted(0.0, 0, 5.0), started(2.0, 0), Stopped(3.0, 0, "failed", 0.0)]
    retried = [Withdrawn(3.0, 0), Submitted(9.0, 0, 5.0), started(9.0, 0, "resume")]
    assert instants([*facts, *retried]) == [
        Instant(0.0, (facts[0],), ()),
        Instant(2.0, (), (facts[1],)),
        Instant(3.0, (facts[2], retried[0]), ()),
        Instant(9.0, (retried[1],), (retried[2],)),
    ]
    assert [(d.t, d.decided) for d in differences([*facts, *retried])] == [(0.0, ON_ONE)]


def test_a_controller_killed_before_it_decided_explains_what_it_did_not_do() -> None:
    facts = [begins(0.0), ready(0.0), Submitted(1.0, 0, 5.0), Explained(1.0, ())]
    (found,) = differences(facts, cut_off=True)
    assert (found.recorded, found.decided, found.why) == (None, ON_ONE, CUT_OFF)
    assert [d.why for d in differences(facts)] == [""]
    # Only the last instant may be cut off.
    later = [*facts, Submitted(2.0, 1, 5.0)]
    assert [d.why for d in differences(later, cut_off=True)][:1] == [""]


def test_each_controller_has_a_span_that_begins_with_its_start() -> None:
    facts = [Submitted(0.0, 0, 5.0), begins(1.0, 2), ready(1.5, 2), begins(1.5, 3)]
    assert [(s.policy, s.recovers, len(s.facts)) for s in spans(facts)] == [
        ("", False, 1),
        (FIFO, True, 2),
        (FIFO, True, 1),
    ]


@dataclass(frozen=True)
class Told:
    """Decides nothing, and keeps what it was told."""

    order = policy_of("fifo").order
    knows, powers = frozenset[str](), frozenset[str]()
    initial = ()

    def decide(self, view: View, memory: object) -> Decision:
        assert isinstance(memory, tuple)
        changes = view.changes
        said = (view.now, list(changes.arrived), changes.woke, changes.capacity)
        return Decision(None, (*memory, said), float("inf"))


def test_a_new_controller_tells_its_policy_of_every_job_that_waits() -> None:
    first = [begins(0.0), ready(0.0), Submitted(1.0, 0, 5.0), Submitted(1.0, 1, 5.0)]
    second = [begins(4.0, 2), NodeChanged(5.0, 0, "draining"), ready(6.0, 2), Woke(6.0)]
    told, states = [], [tables(jobs=3), tables(jobs=3)]
    for state, facts, before in zip(states, (first, second), (None, states[0]), strict=True):
        world = ReplayWorld(state, instants(facts))
        if before is not None:
            state.now = 4.0
            take_over(state, before)
        world.recover()
        told.append(run(world, Told()))
    assert told == [((1.0, [0, 1], False, False),), ((6.0, [0, 1], True, True),)]


def test_tables_are_taken_over_as_a_restart_does() -> None:
    before = tables(cluster="2x1", jobs=4)
    facts: list[Fact] = [Submitted(0.0, job, 5.0) for job in range(4)]
    facts += [started(0.0, 0), Foreseen(1.0, 0, 9.0), NodeChanged(1.0, 1, "down")]
    facts += [Withdrawn(2.0, 2), Foreseen(2.0, 1, 8.0)]
    run(ReplayWorld(before, instants(facts)), policy_of("fifo"))
    state = tables(cluster="2x1", jobs=4)
    state.now = 4.0
    state.forecast = RecordedForecast([5.0, 6.0, 7.0, 8.0])
    take_over(state, before)
    assert list(state.waiting) == [1, 3]
    assert state.plan.placed == {0: ON_ONE}
    assert state.done_s([0]) == [4.0] and state.attained_gpu_s([0]) == [4.0]
    # A placement keeps its time, and what was learned of a length is forgotten.
    assert state.placed_s[0] == 0.0 and state.length[:2] == [5.0, 6.0]
    assert state.view.cluster.state_of == {1: "down"}


def test_a_plain_program_that_is_stopped_loses_what_it_did() -> None:
    state = tables()
    facts = [Submitted(0.0, 0, 5.0), started(0.0, 0), Stopped(3.0, 0, "failed", 0.0)]
    run(ReplayWorld(state, instants(facts)), policy_of("fifo"))
    assert state.done[0] == 0.0 and 0 in state.waiting


@pytest.mark.parametrize("state", [RECOVERING, READY])
def test_a_controller_is_no_event_that_asks_a_policy(state: str) -> None:
    world = ReplayWorld(tables(), instants([ControllerChanged(0.0, 1, state, "")]))
    run(world, policy_of("fifo"))
    assert world.decisions == 0

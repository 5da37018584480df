"""What policies remember is a short cut and never another answer."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Facts, Row, policy_of, scene_of, trace_of
from dovetail.core.messages import Started
from dovetail.core.plan import Change
from dovetail.mechanisms.ranking.learned_index import ServiceHistory
from dovetail.policies.backfill import Reservation
from dovetail.sim.world import SimWorld


def rows_of(seed: int, n: int = 30) -> list[Row]:
    draw = random.Random(seed)
    t = 0.0
    rows = []
    for _ in range(n):
        t += draw.choice([0.0, 0.25, 1.0, 3.0])
        rows.append(Row(draw.randint(1, 4), draw.choice([0.5, 1.0, 4.0, 9.0, 20.0]), submit_s=t))
    return rows


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    placing=st.sampled_from(["none", "prefer", "prefer,first-fit", "none,most-free"]),
    breaks=st.booleans(),
)
def test_backfill_with_its_reservation_decides_as_without(
    seed: int, placing: str, breaks: bool
) -> None:
    _decides_as_without(seed, placing, breaks)


def test_node_by_node_the_reservation_is_no_blinker() -> None:
    _decides_as_without(77, "strict", True)


def _decides_as_without(seed: int, placing: str, breaks: bool) -> None:
    capacity = [(5.0, [(0, "draining")]), (20.0, [(1, "down")]), (25.0, [(0, "up"), (1, "up")])]
    policy = policy_of("backfill")
    scene = scene_of(
        trace_of(*rows_of(seed)), "3x4", placing=placing, capacity=capacity if breaks else ()
    )
    world = SimWorld(scene, policy, Facts())
    memory: object = policy.initial
    reserved = 0
    while world.advance(float("inf")):
        view = world.observe()
        afresh = policy.decide(view, None)
        expected: list[Change] = [] if afresh.draft is None else list(afresh.draft.changes())
        view.plan.discard()
        decision = policy.decide(view, memory)
        assert ([] if decision.draft is None else decision.draft.changes()) == expected
        assert decision.because == afresh.because
        if decision.draft is not None:
            world.apply(decision.draft)
        else:
            view.plan.discard()
        world.note(decision)
        memory = decision.memory
        reserved += isinstance(memory, Reservation)
    assert reserved or len(world.state.waiting) == 0


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), placing=st.sampled_from(["none", "prefer", "strict"]))
def test_a_reservation_is_kept_or_bettered(seed: int, placing: str) -> None:
    """With true lengths the head starts no later than its first reservation said."""
    policy = policy_of("backfill")
    world = SimWorld(
        scene_of(trace_of(*rows_of(seed)), "3x4", placing=placing), policy, facts := Facts()
    )
    memory: object = policy.initial
    promised: dict[int, float] = {}
    while world.advance(float("inf")):
        decision = policy.decide(world.observe(), memory)
        if decision.draft is not None:
            world.apply(decision.draft)
        else:
            world.observe().plan.discard()
        world.note(decision)
        memory = decision.memory
        if isinstance(memory, Reservation):
            promised.setdefault(memory.head, memory.start_s)
    started = {f.job: f.t for f in facts.all if isinstance(f, Started)}
    for job, start_s in promised.items():
        assert started[job] <= start_s + 1e-9


def test_gittins_learns_from_every_job_that_ended_and_from_none_twice() -> None:
    policy = policy_of("gittins:delta=2,samples-min=4")
    rows = [Row(1 + i % 2, 1.0 + i % 3, submit_s=float(3 * i)) for i in range(30)]
    world = SimWorld(scene_of(trace_of(*rows), "1x2"), policy, Facts())
    memory: object = policy.initial
    wake_at = float("inf")
    while world.advance(wake_at):
        decision = policy.decide(world.observe(), memory)
        if decision.draft is not None:
            world.apply(decision.draft)
        else:
            world.observe().plan.discard()
        world.note(decision)
        memory, wake_at = decision.memory, decision.wake_at
    assert isinstance(memory, ServiceHistory)
    seen = sorted([*memory.learned, *memory.fresh])
    assert seen == pytest.approx(sorted(r.gpus * r.duration_s for r in rows))
    assert len(memory.learned) >= 4
    assert len(memory.fresh) * 10 < len(memory.learned) + 10

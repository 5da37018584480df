"""The simulated world as the loop sees it: when it stops, what it refuses, how time moves."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import pytest

from builders import Facts, Row, play, play_scene, scene_of, trace_of
from dovetail.control.loop import run
from dovetail.core.errors import DovetailError, IllegalPlan
from dovetail.core.messages import Explained, Reason, Woke
from dovetail.core.order import Order
from dovetail.core.passes import fill
from dovetail.core.placement import Placement
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision, Policy
from dovetail.core.view import View
from dovetail.sim.world import SimWorld


@dataclass(frozen=True)
class Written:
    """A policy whose decisions are written in the test."""

    every_s: float = float("inf")
    knows: ClassVar[frozenset[str]] = frozenset()
    powers: ClassVar[frozenset[str]] = frozenset({"preempt"})
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[object] = None

    def decide(self, view: View, memory: object) -> Decision:
        draft, because = fill(view, "skip")
        return Decision(draft, wake_at=view.now + self.every_s, because=because)


def test_a_periodic_policy_comes_to_an_end() -> None:
    # It asks to be woken 4 s after each decision, for ever; the run is over with the last job.
    story = play([Row(1, 10), Row(1, 5)], Written(every_s=4.0), "1x1")
    assert story.finishes == [10, 15]
    assert [f.t for f in story.of(Woke)] == [4, 8, 14]


def test_a_policy_that_only_wakes_and_starts_nothing_is_told_off() -> None:
    class Sleepy(Written):
        def decide(self, view: View, memory: object) -> Decision:
            return Decision(wake_at=view.now + 1.0)

    with pytest.raises(DovetailError, match="leaves 1 jobs waiting with nothing left to happen"):
        play([Row(1, 10)], Sleepy(), "1x1")


def test_a_policy_that_does_nothing_is_told_which_job_waits() -> None:
    with pytest.raises(DovetailError, match=r"no-op leaves 2 jobs .* job 0, which wants 3 GPUs"):
        play([Row(3, 10), Row(1, 1)], "no-op", "1x4")


def test_a_wake_up_in_the_past_is_refused() -> None:
    class Backward(Written):
        def decide(self, view: View, memory: object) -> Decision:
            return Decision(fill(view, "skip")[0], wake_at=view.now)

    with pytest.raises(DovetailError, match="woken in the past"):
        play([Row(1, 10)], Backward(), "1x1")


def test_a_wake_up_that_is_not_a_number_is_refused() -> None:
    class Nowhere(Written):
        def decide(self, view: View, memory: object) -> Decision:
            return Decision(fill(view, "skip")[0], wake_at=float("nan"))

    with pytest.raises(DovetailError):
        play([Row(1, 10)], Nowhere(), "1x1")


def test_an_illegal_plan_is_refused_whole_and_names_policy_and_rule() -> None:
    class Greedy(Written):
        def decide(self, view: View, memory: object) -> Decision:
            draft = view.plan.draft()
            for job in view.waiting:
                draft.place(job, ((0, 1),))
            return Decision(draft)

    with pytest.raises(IllegalPlan, match=r"Greedy at 0 s: job 1 asked for 2 GPUs and got 1"):
        play([Row(1, 10), Row(2, 10)], Greedy(), "1x4")


def test_an_illegal_plan_leaves_the_tables_as_they_were() -> None:
    class Half(Written):
        def decide(self, view: View, memory: object) -> Decision:
            draft = view.plan.draft()
            for job in view.waiting:
                draft.place(job, ((0, 1),))
            return Decision(draft)

    scene = scene_of(trace_of(Row(1, 10), Row(2, 10)), "1x4")
    facts = Facts()
    world = SimWorld(scene, Half(), facts)
    with pytest.raises(IllegalPlan):
        run(world, Half())
    assert dict(world.state.plan.placed) == {}
    assert world.state.plan.free_gpus == 4
    assert list(world.state.waiting) == [0, 1]
    assert len(facts.batches) == 1


def test_a_draft_of_an_older_plan_is_refused() -> None:
    policy = Written()
    scene = scene_of(trace_of(Row(1, 10), Row(1, 20), Row(1, 1, submit_s=5)), "1x2")
    world = SimWorld(scene, policy, Facts())
    assert world.advance(float("inf"))
    draft = policy.decide(world.observe(), None).draft
    assert draft is not None
    world.apply(draft)
    stale = world.observe().plan.draft()
    assert world.advance(float("inf")) and world.advance(float("inf"))
    with pytest.raises(IllegalPlan, match="the plan moved"):
        world.apply(stale)


def test_reasons_are_recorded_when_they_change_and_only_then() -> None:
    story = play([Row(2, 5), Row(2, 5), Row(1, 1, submit_s=1), Row(1, 1, submit_s=2)], "fifo")
    explained = [f for f in story.facts if isinstance(f, Explained)]
    assert explained[0].t == 0
    assert explained[0].reasons == (Reason("Resources", job=1), Reason("Priority", behind=1))
    assert all(a.reasons != b.reasons for a, b in pairwise(explained))
    assert [e.t for e in explained][:2] == [0, 5]


def test_a_policy_that_raises_is_named_with_the_time_and_the_cause() -> None:
    class Broken(Written):
        def decide(self, view: View, memory: object) -> Decision:
            raise ZeroDivisionError("by nothing")

    said = "policy Broken at 0 s: it raised ZeroDivisionError: by nothing"
    with pytest.raises(DovetailError, match=said) as raised:
        play([Row(1, 1)], Broken(), "1x1")
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_nothing_happens_on_an_empty_instant_of_a_world_without_jobs() -> None:
    scene = scene_of(trace_of(Row(1, 1)), "1x1")
    world = SimWorld(scene, Written(), Facts())
    assert world.advance(float("inf"))
    assert world.observe().now == 0
    assert list(world.observe().changes.arrived) == [0]
    assert list(world.observe().waiting) == [0]


def test_the_view_tells_what_changed_since_the_last_decision() -> None:
    seen: list[tuple[float, list[int], list[int], list[int], bool, bool]] = []

    class Watcher(Written):
        def decide(self, view: View, memory: object) -> Decision:
            c = view.changes
            seen.append((view.now, [*c.arrived], [*c.ended], [*c.evicted], c.capacity, c.woke))
            wake = 3.0 if view.now < 3 else float("inf")
            return Decision(fill(view, "skip")[0], wake_at=wake)

    capacity = [(4.0, [(0, "down")]), (5.0, [(0, "up")])]
    play([Row(1, 2), Row(1, 9, submit_s=1)], Watcher(), "1x2", capacity=capacity)
    assert seen == [
        (0, [0], [], [], False, False),
        (1, [1], [], [], False, False),
        (2, [], [0], [], False, False),
        (3, [], [], [], False, True),
        (4, [], [], [1], True, False),
        (5, [], [], [], True, False),
        (11, [], [1], [], False, False),
    ]


class RefusesEverySecondPlan:
    """A world like a live one: it keeps the last good plan when it refuses, and asks again."""

    def __init__(self, inner: SimWorld) -> None:
        self._inner = inner
        self._turn = 0
        self._retry_s = float("inf")
        self.refused = 0

    def advance(self, until: float) -> bool:
        return self._inner.advance(min(until, self._retry_s))

    def observe(self) -> View:
        self._retry_s = float("inf")
        return self._inner.observe()

    def apply(self, draft: Draft) -> None:
        self._turn += bool(draft.changes())
        if self._turn % 2 and draft.changes():
            self.refused += 1
            self._inner.state.plan.discard()
            self._retry_s = self._inner.observe().now + 1.0
        else:
            self._inner.apply(draft)

    def in_time(self, took_s: float) -> bool:
        return self._inner.in_time(took_s)

    def refuse(self, policy: Policy, why: Sequence[str], cause: Exception | None = None) -> float:
        self._inner.refuse(policy, why, cause)

    def note(self, decision: Decision) -> None:
        self._inner.note(decision)


@pytest.mark.parametrize(
    "policy",
    [
        "fifo",
        "sjf",
        "srtf",
        "srsf",
        "backfill",
        "gittins:delta=3",
        "max-min",
        "tiresias:thresholds=3",
        "tiresias:thresholds=3,inside=list",
    ],
)
def test_a_world_that_refuses_every_second_plan_loses_no_job(policy: str) -> None:
    rows = [Row(1 + i % 3, 2.0 + i % 5, submit_s=float(i // 2)) for i in range(14)]
    wrapped: list[RefusesEverySecondPlan] = []

    def wrap(world: SimWorld) -> RefusesEverySecondPlan:
        wrapped.append(RefusesEverySecondPlan(world))
        return wrapped[0]

    story = play_scene(scene_of(trace_of(*rows), "2x2"), policy, wrap)
    assert wrapped[0].refused > 3
    assert sorted(story.ended()) == list(range(14))


def test_an_unapplied_draft_is_rolled_back_by_the_next() -> None:
    # A draft that was never applied is rolled back when the next one begins.
    scene = scene_of(trace_of(Row(1, 10), Row(1, 10)), "1x2")
    world = SimWorld(scene, Written(), Facts())
    world.advance(float("inf"))
    view = world.observe()
    first = view.plan.draft()
    first.place(0, ((0, 1),))
    assert view.plan.free_gpus == 1
    second = view.plan.draft()
    assert view.plan.free_gpus == 2
    with pytest.raises(IllegalPlan, match="the plan moved"):
        view.plan.commit(first)
    second.place(1, Placement(((0, 2),)))
    view.plan.discard()
    assert view.plan.free_gpus == 2

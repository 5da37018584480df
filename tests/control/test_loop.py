"""The loop with a world of a few lines: what it asks, checks and passes on, and in what order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest

from builders import Row, Stage
from dovetail.control.loop import check_needs, run
from dovetail.core.errors import InputError
from dovetail.core.order import Order
from dovetail.core.plan import Draft
from dovetail.core.policy import Decision, Policy
from dovetail.core.view import Changes, View, show


@dataclass(frozen=True)
class Told:
    """Counts its decisions in its memory and does what the list says."""

    answers: tuple[str, ...]
    knows: ClassVar[frozenset[str]] = frozenset({"length"})
    powers: ClassVar[frozenset[str]] = frozenset({"preempt", "resize"})
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[int] = 0

    def decide(self, view: View, memory: object) -> Decision:
        assert isinstance(memory, int)
        answer = self.answers[memory]
        draft = None
        if answer != "same":
            draft = view.plan.draft()
            draft.place(0, ((0, 2 if answer == "wrong" else 1),))
        return Decision(draft, memory + 1, wake_at=view.now + 10)


class Diary:
    """A world that writes down what the loop asks of it."""

    def __init__(self, instants: int, policy: Policy) -> None:
        self.stage = Stage([Row(1, 5), Row(1, 5)], policy, "1x4")
        self.left = instants
        self.lines: list[str] = []

    def advance(self, until: float) -> bool:
        self.lines.append(f"advance {until}")
        self.left -= 1
        self.stage.at(self.stage.view.now + 1)
        return self.left >= 0

    def observe(self) -> View:
        self.lines.append("observe")
        return self.stage.view

    def apply(self, draft: Draft) -> None:
        self.lines.append(f"apply {[c.job for c in draft.changes()]}")
        self.stage.view.plan.discard()

    def in_time(self, took_s: float) -> bool:
        return True

    def refuse(self, policy: Policy, why: Sequence[str], cause: Exception | None = None) -> float:
        self.lines.append(f"refuse: {'; '.join(why)}")
        return float("inf")

    def note(self, decision: Decision) -> None:
        self.lines.append(f"note {decision.memory}")


def test_the_loop_observes_decides_checks_applies_and_notes() -> None:
    policy = Told(("right", "same"))
    diary = Diary(2, policy)
    assert run(diary, policy) == 2
    assert diary.lines == [
        "advance inf",
        "observe",
        "apply [0]",
        "note 1",
        "advance 11.0",
        "observe",
        "note 2",
        "advance 12.0",
    ]


def test_a_refused_plan_changes_nothing_and_the_loop_goes_on() -> None:
    policy = Told(("wrong", "right"))
    diary = Diary(2, policy)
    # Its memory speaks of a plan that never ran, so it is asked again with the one before.
    assert run(diary, policy) == 0
    refused = "refuse: job 0 asked for 1 GPUs and got 2"
    assert [line for line in diary.lines if line.startswith(("refuse", "apply", "note"))] == [
        refused,
        refused,
    ]
    assert diary.stage.view.plan.free_gpus == 4


def test_a_run_can_go_on_with_the_memory_of_an_earlier_one() -> None:
    policy = Told(("wrong", "right"))
    diary = Diary(1, policy)
    assert run(diary, policy, memory=1) == 2
    assert "apply [0]" in diary.lines


def test_the_loop_times_each_decision_and_tells_the_time() -> None:
    policy = Told(("same", "same", "same"))
    took: list[float] = []
    told: list[float] = []
    run(Diary(3, policy), policy, decision_s=took, progress=told.append)
    assert len(took) == 3
    assert all(t >= 0 for t in took)
    assert told == [1, 2, 3]


def test_a_draft_that_was_begun_and_not_returned_is_rolled_back() -> None:
    class Dreamer(Told):
        def decide(self, view: View, memory: object) -> Decision:
            view.plan.draft().place(0, ((0, 1),))
            return Decision(None, 1)

    policy = Dreamer(())
    diary = Diary(1, policy)
    run(diary, policy)
    assert diary.stage.view.plan.free_gpus == 4
    assert dict(diary.stage.view.plan.placed) == {}


def test_needs_are_checked_before_anything_happens() -> None:
    policy = Told(())
    check_needs(policy, frozenset({"length", "scaling"}), frozenset({"share"}))
    with pytest.raises(InputError, match=r"policy 'Told': it needs to know: length"):
        check_needs(policy, frozenset(), frozenset())
    with pytest.raises(InputError, match="powers withheld here: preempt, resize"):
        check_needs(policy, frozenset({"length"}), frozenset({"resize", "preempt", "share"}))


def test_a_wake_up_now_or_before_is_a_bug_of_the_policy() -> None:
    class Hasty(Told):
        def decide(self, view: View, memory: object) -> Decision:
            return Decision(None, 1, wake_at=view.now - 1)

    policy = Hasty(())
    diary = Diary(1, policy)
    assert run(diary, policy) is policy.initial, "a refused decision leaves the memory as it was"
    assert "refuse: it asks to be woken in the past" in diary.lines


@dataclass(frozen=True)
class Hearing(Told):
    """Raises, comes too late or drafts twice as the list says, and remembers what it was told."""

    def decide(self, view: View, memory: object) -> Decision:
        HEARD.append((sorted(view.changes.arrived), sorted(view.changes.ended)))
        answer = self.answers[len(HEARD) - 1]
        if answer == "raises":
            view.plan.draft().place(0, ((0, 1),))
            raise KeyError("nobody")
        stale = view.plan.draft()
        if answer == "stale":
            view.plan.draft()
        return Decision(stale if answer == "stale" else None, "well")


HEARD: list[tuple[list[int], list[int]]] = []


class Eventful(Diary):
    """A world in which something happens at every instant, and every third decision is late."""

    def advance(self, until: float) -> bool:
        going = super().advance(until)
        number = 2 - self.left
        changes = (
            Changes(arrived=[0]),
            Changes(arrived=[1], ended=[0]),
            Changes(evicted=[1], capacity=True),
            Changes(woke=True),
        )[min(number, 3)]
        show(self.stage.view, changes=changes)
        return going

    def in_time(self, took_s: float) -> bool:
        assert took_s >= 0
        return self.left > 0


def test_what_happened_while_no_decision_stood_is_told_with_the_next() -> None:
    HEARD.clear()
    policy = Hearing(("raises", "stale", "well"))
    world = Eventful(3, policy)
    assert run(world, policy) == policy.initial, "the third decision came too late"
    # Job 1 has come and was evicted meanwhile; nobody who waits is told twice.
    assert HEARD == [([0], []), ([0, 1], [0]), ([0, 1], [0])]
    said = [line for line in world.lines if line.startswith("refuse")]
    assert said[:2] == [
        "refuse: it raised KeyError: 'nobody'",
        "refuse: its draft is not the last one it began",
    ]
    assert "s to decide" in said[2]
    assert world.stage.view.plan.free_gpus == 4

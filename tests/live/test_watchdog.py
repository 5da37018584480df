"""A policy that never comes to an end does not take the controller with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from live_stage import RULES, Stage

from dovetail.core.errors import DovetailError
from dovetail.core.messages import Ended, Refused
from dovetail.core.order import Order
from dovetail.core.policy import Decision
from dovetail.core.view import View
from dovetail.live.controller.watchdog import Watchdog, Watched
from dovetail.live.lifecycle import State

FIRST_COME = Order(lambda view, jobs: [0.0] * len(jobs))


@dataclass(frozen=True)
class Endless:
    """Thinks for ever while more than one job waits or runs, whatever it is told."""

    name = "endless"
    knows: frozenset[str] = frozenset()
    powers: frozenset[str] = frozenset()
    order: Order = FIRST_COME
    initial: object = None

    def decide(self, view: View, memory: object) -> Decision:
        while len(view.waiting) + len(view.running) > 1:
            try:
                sum(range(1000))
            except Exception:
                continue
        draft = view.plan.draft()
        for job in list(view.waiting):
            spans = view.placing.find(draft.occupancy, view.shape(job))
            if spans is not None:
                draft.place(job, spans)
        return Decision(draft)


def test_a_policy_that_loops_for_ever_is_stopped_and_all_else_goes_on() -> None:
    rules = replace(RULES, refused_wait_s=100.0)
    with Watchdog(0.05) as watchdog:
        policy: Any = Watched(Endless(), watchdog)
        stage = Stage(policy, rules=rules)
        stage.submit(1.0, duration_s=8.0)
        stage.submit(2.0, duration_s=8.0)
        stage.ask(5.0, "cancel", 2)
        stage.play(60.0)
    refused = [f for f in stage.facts if isinstance(f, Refused)]
    assert refused and "stopped after 0.05 s" in refused[0].why
    assert stage.states() == {1: State.COMPLETED, 2: State.CANCELLED}
    ends = [(f.job, round(f.t)) for f in stage.facts if isinstance(f, Ended)]
    assert ends == [(2, 5), (1, 9)]
    stage.check()


def test_a_decision_in_time_is_let_be() -> None:
    with Watchdog(5.0) as watchdog:
        policy: Any = Watched(Endless(), watchdog)
        stage = Stage(policy)
        stage.submit(1.0, duration_s=3.0)
        stage.play(20.0)
    assert stage.states() == {1: State.COMPLETED}
    assert not any(isinstance(f, Refused) for f in stage.facts)


def test_what_was_raised_too_late_is_taken_back() -> None:
    class Slow:
        name = "slow"

        def decide(self, view: object, memory: object) -> str:
            for _ in range(200_000):
                pass
            return "done"

    with Watchdog(0.0005) as watchdog:
        policy: Any = Watched(Slow(), watchdog)  # type: ignore[arg-type]
        answers = []
        for _ in range(200):
            try:
                answers.append(policy.decide(None, None))
            except DovetailError as error:
                answers.append(str(error))
            # Whatever came of it, nothing arrives after it.
            sum(range(2000))
    assert set(answers) <= {"done", "it was stopped after 0.0005 s of deciding"}


def test_a_watchdog_with_nothing_to_do_ends_at_once() -> None:
    with Watchdog(1000.0) as watchdog:
        watchdog.arm()
        watchdog.disarm()

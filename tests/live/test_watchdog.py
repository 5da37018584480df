"""A policy that never comes to an end does not take the controller with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import sleep
from typing import Any

import pytest
from live_stage import RULES, Stage

from dovetail.core.errors import DovetailError
from dovetail.core.messages import Ended, Refused
from dovetail.core.order import Order
from dovetail.core.policy import Decision
from dovetail.core.view import View
from dovetail.live.controller import watchdog as watchdog_module
from dovetail.live.controller.watchdog import DecisionTimeout, Watchdog, WatchdogPolicy, _raise_in
from dovetail.live.jobs.lifecycle import State
from patience import PATIENCE_S

FIRST_COME = Order(lambda view, jobs: [0.0] * len(jobs))


class Needless:
    """What every policy declares, by one that needs nothing."""

    knows: frozenset[str] = frozenset()
    powers: frozenset[str] = frozenset()
    order: Order = FIRST_COME
    initial: object = None


@dataclass(frozen=True)
class Endless(Needless):
    """Thinks for ever while more than one job waits or runs, whatever it is told."""

    name = "endless"

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


class WatchedWhereEndless(WatchdogPolicy):
    """Lets a decision that comes to an end take its time: on a busy machine that is any time."""

    def decide(self, view: View, memory: object) -> Decision:
        ends = len(view.waiting) + len(view.running) <= 1
        return self._policy.decide(view, memory) if ends else super().decide(view, memory)


def test_a_policy_that_loops_for_ever_is_stopped_and_all_else_goes_on() -> None:
    rules = replace(RULES, refused_wait_s=100.0)
    with Watchdog(0.05) as watchdog:
        policy: Any = WatchedWhereEndless(Endless(), watchdog)
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
    with Watchdog(1e6) as watchdog:
        policy: Any = WatchdogPolicy(Endless(), watchdog)
        stage = Stage(policy)
        stage.submit(1.0, duration_s=3.0)
        stage.play(20.0)
    assert stage.states() == {1: State.COMPLETED}
    assert not any(isinstance(f, Refused) for f in stage.facts)


def test_what_was_raised_too_late_is_taken_back() -> None:
    class Slow(Needless):
        name = "slow"

        def decide(self, view: object, memory: object) -> str:
            for _ in range(200_000):
                pass
            return "done"

    with Watchdog(0.0005) as watchdog:
        policy: Any = WatchdogPolicy(Slow(), watchdog)  # type: ignore[arg-type]
        answers = []
        for _ in range(200):
            try:
                answers.append(policy.decide(None, None))
            except DovetailError as error:
                answers.append(str(error))
            # Whatever came of it, nothing arrives after it.
            sum(range(2000))
    assert set(answers) <= {"done", "it was stopped after 0.0005 s of deciding"}


def test_what_is_raised_while_the_work_ends_leaves_nothing_locked() -> None:
    """The thread that decides waits for the lock to say that it is done: then it is too late."""
    watchdog, held, caught = Watchdog(1e9), threading.Event(), threading.Event()

    def overrun(thread: int) -> None:
        with watchdog._changed:
            held.set()
            caught.wait()
            sleep(0.2)
            _raise_in(thread, DecisionTimeout)

    watchdog.arm()
    late = threading.Thread(target=overrun, args=(threading.get_ident(),))
    late.start()
    try:
        held.wait()
        # Before, nobody would catch it: this thread may be slow to come this far.
        caught.set()
        watchdog.disarm()
    except DecisionTimeout:  # Where this thread is slow it arrives before.
        watchdog.disarm()
    late.join()
    # The watchdog itself, woken by `arm`, may hold it for a moment.
    free = watchdog._lock.acquire(timeout=PATIENCE_S)
    assert free, "nobody could be stopped any more, nor the watchdog end"
    watchdog._lock.release()
    watchdog.__exit__()


class TimedByHand(threading.Condition):
    """A condition whose time is up when the test says so, whatever happens before."""

    asleep, time_up = threading.Semaphore(0), threading.Semaphore(0)

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        self.release()
        self.asleep.release()
        self.time_up.acquire()
        self.acquire()
        return predicate()


def test_a_decision_is_not_stopped_for_the_time_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Quick(Needless):
        """Decides at once, but for the second time, which lasts past the end of the first."""

        name, asked = "quick", 0

        def decide(self, view: object, memory: object) -> str:
            self.asked += 1
            if self.asked == 1:
                assert TimedByHand.asleep.acquire(timeout=PATIENCE_S)
            else:
                TimedByHand.time_up.release()
                # It goes to sleep again only when it has looked whether anybody is to be stopped.
                assert TimedByHand.asleep.acquire(timeout=PATIENCE_S)
            return "done"

    with monkeypatch.context() as patched:
        patched.setattr(watchdog_module.threading, "Condition", TimedByHand)
        watchdog = Watchdog(1.0)
    try:
        policy: Any = WatchdogPolicy(Quick(), watchdog)  # type: ignore[arg-type]
        assert [policy.decide(None, None) for _ in range(2)] == ["done", "done"]
    finally:
        TimedByHand.time_up.release(9)
        watchdog.__exit__()


@pytest.mark.parametrize("armed", [False, True])
def test_a_watchdog_ends_without_waiting_for_what_it_watches(*, armed: bool) -> None:
    watchdog = Watchdog(1e9)
    watchdog.arm()
    if not armed:
        watchdog.disarm()
    leaving = threading.Thread(target=watchdog.__exit__, args=(None, None, None), daemon=True)
    leaving.start()
    leaving.join(PATIENCE_S)
    assert not leaving.is_alive() and not watchdog._thread.is_alive()

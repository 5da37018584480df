"""Stops a policy that decides for too long, so that no policy can hang the controller.

A thread waits beside the loop; when a decision takes longer than its limit, it raises
`DecisionTimeout` in the thread that decides. The loop treats that as it treats any policy that
raises: the plan that runs stays. What a policy does outside Python (one huge array operation)
ends first.
"""

from __future__ import annotations

import ctypes
import threading

from dovetail.core.errors import DovetailError
from dovetail.core.policy import Decision, Policy, heeded, name_of, reserves
from dovetail.core.view import View


class DecisionTimeout(BaseException):
    """Raised inside a decision that takes too long; not an Exception, so no policy catches it."""


class Watchdog:
    """Raises `DecisionTimeout` in a thread, once for each arming, if it is not disarmed in time."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._armed: int | None = None
        self._rounds = 0
        self._closed = False
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()

    def arm(self) -> None:
        """Starts the limit for the calling thread."""
        with self._changed:
            self._armed = threading.get_ident()
            self._rounds += 1
            self._changed.notify()

    def disarm(self) -> None:
        """Stops the limit, and takes back an error that was raised but has not arrived yet.

        One that arrives at this very moment is dropped: the work is done, and too late anyway.
        """
        while True:
            try:
                # The lock itself: `DecisionTimeout` may arrive when it is taken, which the
                # condition's own `__enter__` would leave locked for ever.
                with self._lock:
                    self._armed = None
                    _raise_in(threading.get_ident(), None)
                return
            except DecisionTimeout:
                continue

    def __enter__(self) -> Watchdog:
        return self

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _watch(self) -> None:
        with self._changed:
            while not self._closed:
                if self._armed is None:
                    self._changed.wait()
                    continue
                # Disarmed and armed again while this thread woke up, the watchdog is in another
                # round, whose decision must not be charged with the time of the last one.
                current = self._rounds
                self._changed.wait_for(lambda current=current: self._is_past(current), self.limit_s)  # type: ignore[misc]
                if not self._is_past(current) and self._armed is not None:
                    # Raised under the lock: after `disarm` nothing can be under way.
                    _raise_in(self._armed, DecisionTimeout)
                    self._armed = None

    def _is_past(self, current: int) -> bool:
        return self._closed or self._armed is None or self._rounds != current


class WatchdogPolicy:
    """A policy whose decisions are cut off when they take too long."""

    def __init__(self, policy: Policy, watchdog: Watchdog) -> None:
        self._policy = policy
        self._watchdog = watchdog
        self.name = name_of(policy)
        self.knows, self.powers = policy.knows, policy.powers
        self.order, self.initial = policy.order, policy.initial
        self.heeds, self.reserves = heeded(policy), reserves(policy)

    def decide(self, view: View, memory: object) -> Decision:
        """Returns the policy's decision. Raises DovetailError when it takes too long."""
        try:
            self._watchdog.arm()
            try:
                return self._policy.decide(view, memory)
            finally:
                self._watchdog.disarm()
        except DecisionTimeout:
            self._watchdog.disarm()
            limit_s = self._watchdog.limit_s
            raise DovetailError(f"it was stopped after {limit_s:g} s of deciding") from None


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raises an error in a thread when it next runs Python code; None takes one back."""
    what = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)

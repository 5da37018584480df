"""Plays a scene and times each decision in CPU time, so that other programs do not count."""

from __future__ import annotations

from collections.abc import Iterator
from time import thread_time

import dovetail.policies  # registers the policies
from dovetail.core.policy import parse_policy
from dovetail.core.view import View
from dovetail.sim.scene import Scene
from dovetail.sim.world import SimWorld

assert dovetail.policies


class _Silence:
    """A recorder that keeps nothing."""

    def record(self, facts: object) -> None:
        """Drops the facts."""


def timed(scene: Scene, policy_text: str) -> Iterator[tuple[View, int, int, float]]:
    """Yields, after each decision past the first instant, the view and what the decision found:
    the jobs that waited, those that ran, and the milliseconds it took."""
    policy = parse_policy(policy_text)
    world = SimWorld(scene, policy, _Silence())
    memory, wake_at = policy.initial, float("inf")
    while world.advance(wake_at):
        view = world.observe()
        waiting, running = len(view.waiting), len(view.running)
        began = thread_time()
        decision = policy.decide(view, memory)
        spent_ms = 1e3 * (thread_time() - began)
        memory, wake_at = decision.memory, decision.wake_at
        if decision.draft is None:
            view.plan.discard()
        else:
            world.apply(decision.draft)
        world.note(decision)
        if view.now > 0:
            yield view, waiting, running, spent_ms

"""How long the decisions of each policy take while 10,000 jobs wait for 1,000 GPUs, live.

Run:  python -m benchmarks.decisions [--policies fifo,srtf,...] [--jobs 10000] [--nodes 125]

The real controller, store and agents in virtual time: 10,500 jobs at once, then 300 more within
ten minutes while others end. Each policy is played in a process of its own, so that the first
decision pays for whatever is made at first use, and timed in CPU time, so that other programs do
not count. One that takes more than `--limit-s` in all is stopped, and judged by what it got done.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from time import thread_time
from types import FrameType
from unittest.mock import patch

import dovetail.policies  # registers the policies
from benchmarks.control_plane import GPUS, crowd, percentile
from dovetail.core.cluster import Cluster
from dovetail.core.policy import parse_policy, registered
from dovetail.core.view import View
from dovetail.live.serving.virtual_live import play
from dovetail.live.serving.warm_up import freeze_what_stays, warm_up
from dovetail.sim.scene import Scene
from dovetail.sim.world import SimWorld
from dovetail.study.option_texts import split_policies

assert dovetail.policies

UNTIL_S = 600.0


class Silence:
    """A recorder that keeps nothing."""

    def record(self, facts: object) -> None:
        """Drops the facts."""


def timed(scene: Scene, policy_text: str) -> Iterator[tuple[View, int, int, float]]:
    """Yields, after each decision past the first instant, the view and what the decision found:
    the jobs that waited, those that ran, and the milliseconds it took.

    As in a controller, the policy is warmed up before, and the garbage collector leaves alone what
    is there then.
    """
    warm_up(policy_text, scene.cluster, {})
    freeze_what_stays()
    policy = parse_policy(policy_text)
    world = SimWorld(scene, policy, Silence())
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


class Enough(BaseException):
    """The time for a policy is over; nothing on the way may take it for a fault of the policy."""


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise Enough


def decisions(policy: str, waiting: int, nodes: int, limit_s: float) -> tuple[list[float], bool]:
    """Returns the CPU seconds of each decision, and whether the time was enough for all."""
    trace, took_s = crowd(waiting, nodes * GPUS), list[float]()
    signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        with patch("dovetail.control.loop.perf_counter", thread_time):
            cluster = Cluster.uniform(nodes, GPUS)
            play(trace, policy, cluster, {}, report_s=300.0, until_s=UNTIL_S, decision_s=took_s)
    except Enough:
        return took_s, False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    return took_s, True


def _send(to: Connection, policy: str, waiting: int, nodes: int, limit_s: float) -> None:
    # A solver in machine code heeds no signal of Python's; this one it does.
    resource.setrlimit(resource.RLIMIT_CPU, (int(2 * limit_s), int(2 * limit_s)))
    to.send(decisions(policy, waiting, nodes, limit_s))


def row(policy: str, waiting: int, nodes: int, limit_s: float) -> str:
    """Returns how long the first decision of a fresh process took, and those after it."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_send, args=(there, policy, waiting, nodes, limit_s))
    process.start()
    there.close()
    try:
        took_s, whole = here.recv()
    except EOFError:
        took_s, whole = [], False
    process.join()
    made = f"{len(took_s)}" if whole else f"{len(took_s)} in {limit_s:g} s"
    first = f"{took_s[0] * 1e3:,.0f} ms" if took_s else "over"
    later = took_s[1:]
    rest = ("", "", "")
    if later:
        p50, p99 = (f"{percentile(later, part):.1f} ms" for part in (0.5, 0.99))
        rest = (p50, p99, f"{max(later) * 1e3:,.0f} ms")
    return f"| {policy} | {made} | {first} | {' | '.join(rest)} |"


def main() -> None:
    """Measures one policy after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", default=" ".join(registered()))
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=125)
    parser.add_argument("--limit-s", type=float, default=60.0)
    given = parser.parse_args()
    print("| policy | decisions | first | p50 | p99 | most |")
    print("| --- | --- | --- | --- | --- | --- |")
    for policy in split_policies(given.policies):
        print(row(policy, given.jobs, given.nodes, given.limit_s), flush=True)


if __name__ == "__main__":
    main()

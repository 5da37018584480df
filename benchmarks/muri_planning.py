"""Times Muri's planning: 1,000 jobs and more taken at once, by types of jobs and node by node.

Run:  python -m benchmarks.muri_planning [--decisions N] [--nodes N] [--plain N]

Jobs of the eight models of Muri's profiles wait at time 0 on nodes of 8 GPUs, eight times as many
as a plan takes. Each event is a decision in full: taking, grouping, admitting and placing. Of the
plain algorithm, which matches every node anew, only the grouping is timed. Times are CPU
times, so that other programs do not count.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from time import process_time

import numpy as np

from benchmarks.decisions import Enough, Silence
from dovetail.algorithms import matching
from dovetail.control.loop import run
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable, Labels
from dovetail.core.policy import Decision, parse_policy
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.core.view import View
from dovetail.forecast.forecasts import Known
from dovetail.mechanisms.interleaving import groups as interleave_groups
from dovetail.mechanisms.interleaving import muri_pass as interleaved_pass
from dovetail.mechanisms.interleaving import rules as interleave_rules
from dovetail.physics.placed import placed_physics
from dovetail.physics.zoo.models import shipped
from dovetail.sim.scene import Scene
from dovetail.sim.world import SimWorld

MODELS = ("vgg16", "vgg19", "resnet18", "shufflenet_v2_x1_0", "bert", "gpt2", "a2c", "dqn")
GPUS, SHARES = (1, 2, 4, 8), (0.7, 0.15, 0.1, 0.05)


class Counted:
    """Asks a policy a number of times."""

    def __init__(self, policy: str, decisions: int) -> None:
        self._inner = parse_policy(policy)
        self._left = decisions
        self.decision_s: list[float] = []
        self.knows, self.powers = self._inner.knows, self._inner.powers
        self.order, self.initial = self._inner.order, self._inner.initial

    def decide(self, view: View, memory: object) -> Decision:
        """Asks the policy, or raises Enough."""
        if not self._left:
            raise Enough
        self._left -= 1
        began = process_time()
        answer = self._inner.decide(view, memory)
        self.decision_s.append(process_time() - began)
        return answer


def scene(nodes: int, seed: int) -> Scene:
    """Returns a full queue on nodes of 8 GPUs."""
    rng = np.random.default_rng(seed)
    count = nodes * 8 * 8
    gpus = rng.choice(GPUS, count, p=SHARES).astype(np.int64)
    models = Labels.of([f"muri/{MODELS[m]}" for m in rng.integers(0, len(MODELS), count)])
    jobs = JobTable.build(
        [str(i) for i in range(count)],
        np.zeros(count),
        gpus,
        model=models,
        shareable=np.ones(count, bool),
    )
    trace = Trace.of(jobs, rng.lognormal(8, 2, count))
    cluster = Cluster.uniform(nodes, 8)
    physics = placed_physics(jobs, cluster, shipped())
    free = Switching.parse("none")
    known = Known(trace.duration_s)
    return Scene(trace, cluster, physics, physics, known, switching=free)


def percentiles(name: str, seconds: Sequence[float]) -> str:
    """Returns a line with the median, the 99 % value and the longest, in milliseconds."""
    p50, p99 = np.percentile(seconds, (50, 99)) * 1e3
    longest = max(seconds) * 1e3
    return f"{name:31s} n={len(seconds):3d}  p50 {p50:7.1f}  p99 {p99:7.1f}  max {longest:7.1f} ms"


def play(nodes: int, decisions: int, grouping_s: list[float], taken: list[int]) -> list[float]:
    """Returns the seconds of each decision; the seconds of grouping go to `grouping_s`."""
    inner = interleave_groups.group

    def timed(*args: object) -> object:
        buckets = args[2]
        taken.append(sum(len(b.nodes) for b in buckets))  # type: ignore[attr-defined]
        began = process_time()
        answer = inner(*args)  # type: ignore[arg-type]
        grouping_s.append(process_time() - began)
        return answer

    policy = Counted("muri-s:tick-s=0", decisions)
    interleaved_pass.group = timed  # type: ignore[assignment]
    try:
        run(SimWorld(scene(nodes, 1), policy, Silence()), policy)
    except Enough:
        pass
    finally:
        interleaved_pass.group = inner
    return policy.decision_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=42)
    parser.add_argument("--decisions", type=int, default=100)
    parser.add_argument("--plain", type=int, default=3, help="decisions by the plain algorithm")
    said = parser.parse_args()
    grouping_s: list[float] = []
    taken: list[int] = []
    decision_s = play(said.nodes, said.decisions, grouping_s, taken)
    print(f"{said.nodes * 8} GPUs; jobs taken: {min(taken)} to {max(taken)}")
    print(percentiles("a decision in full", decision_s))
    print(percentiles("its grouping, by types", grouping_s))
    if said.plain:
        by_type = matching.heaviest_by_type
        interleave_rules.heaviest_by_type = matching._matched
        plain_s: list[float] = []
        play(said.nodes, said.plain, plain_s, [])
        interleave_rules.heaviest_by_type = by_type
        print(percentiles("grouping, every node looked at", plain_s))


if __name__ == "__main__":
    main()

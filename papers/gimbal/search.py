"""GIMBAL's search on the co-location sets of Table 3: how long it takes and what it is worth.

The jobs of a set come at once, in the order of the table, each of the same length alone, and are
packed whatever they are. The search runs in the simulated world at its own pace and cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean

import numpy as np

from dovetail.core.beliefs import Neighbour
from dovetail.core.cluster import Cluster
from dovetail.core.errors import DovetailError
from dovetail.core.job import JobTable, Labels
from dovetail.core.placement import Placement
from dovetail.core.policy import Policy, parse_policy
from dovetail.core.trace import Trace
from dovetail.core.units import HOUR_S
from dovetail.forecast.forecasts import Known
from dovetail.mechanisms.calibration.primitives import free_competition
from dovetail.mechanisms.calibration.search import Search
from dovetail.physics.linear import LinearSharing, LinearStructure, linear_physics
from dovetail.physics.placed import placed_physics
from dovetail.physics.sharing.interference import MEASURED, Injected, parse_interference
from dovetail.physics.zoo.models import shipped
from dovetail.policies.gimbal import Calibrated
from dovetail.sim.scene import Scene
from dovetail.sim.world import SimWorld
from papers.frame.experiment import Numbers, play_scene, tally_of
from papers.gimbal.workloads import STAND_INS

SETS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "JC1": (("MobileNetV2", 4), ("EfficientNet", 2), ("ResNet-18", 2)),
    "JC2": (("MobileNetV2", 4), ("EfficientNet", 2), ("VGG-11", 2)),
    "JC3": (("ResNet-50", 4), ("EfficientNet", 2), ("MobileNetV2", 2)),
    "JC4": (("ResNet-50", 4), ("EfficientNet", 2), ("VGG-11", 2)),
    "JC5": (("ResNet-50", 4), ("VGG-11", 2), ("BERT", 2)),
    "JC6": (("LLaMA", 8), ("EfficientNet", 4), ("MobileNetV2", 4)),
    "JC7": (("LLaMA", 8), ("ResNet-50", 4), ("EfficientNet", 4)),
    "JC8": (("LLaMA", 8), ("ResNet-50", 4), ("VGG-11", 4)),
}
"""Table 3: models and GPUs, the largest job first."""
PACKING = "lucid:score-limit=4;unequal=true;load=0;most-gpus=64"
LENGTH_S = 5 * HOUR_S
SEARCHES = {
    "free competition": ",lgrr=false,liss=false",
    "early exit": "",
    "full search": ",early-exit=false",
    "LISS alone": ",lgrr=false",
}
_STAND_IN = {paper: (ours, batches) for rows in STAND_INS.values() for paper, ours, batches in rows}


def stand_in(model: str) -> tuple[str, int]:
    """Returns what stands in for a model of the paper, and the smallest of its batches on a GPU."""
    ours, batches = _STAND_IN[model]
    profile = shipped().find(ours)
    assert profile is not None
    return ours, min(batches[0], profile.batch.value.max_per_gpu)


@dataclass(frozen=True, slots=True)
class SetRun:
    """One set of Table 3 under GIMBAL in one of `SEARCHES`, or one job after another."""

    name: str
    manner: str
    interference: str | float = MEASURED

    def play(self) -> Numbers:
        """Returns the mean JCT in hours; of a search its seconds, steps, and what it gains."""
        scene = set_scene(SETS[self.name], self.interference)
        if self.manner == "serial":
            return {"jct": mean_jct_h(scene, parse_policy("sjf"))}
        policy = parse_policy(f"gimbal:inner={PACKING}{SEARCHES[self.manner]}")
        return {**searched(scene, policy), "jct": mean_jct_h(scene, policy)}


def set_scene(
    members: Sequence[tuple[str, int]], interference: str | float, length_s: float = LENGTH_S
) -> Scene:
    """Returns a scene in which the members arrive at once where the largest has just room."""
    gpus = np.array([n for _, n in members], np.int64)
    ours = [stand_in(model) for model, _ in members]
    jobs = JobTable.build(
        [f"{model}-{i}" for i, (model, _) in enumerate(members)],
        # The order of the table is that of arrival: the largest is there first.
        np.arange(len(members), dtype=np.float64),
        gpus,
        model=Labels.of([model for model, _ in ours]),
        batch_size=np.array([batch for _, batch in ours], np.int64) * gpus,
        shareable=np.ones(len(members), bool),
    )
    trace = Trace.of(jobs, np.full(len(members), length_s))
    cluster = Cluster.parse(f"{max(1, int(gpus.max()) // 2)}x2:A40")
    truth = placed_physics(jobs, cluster, shipped(), interference=parse_interference(interference))
    return Scene(
        trace=trace, cluster=cluster, truth=truth, belief=truth, forecast=Known(trace.duration_s)
    )


def mean_jct_h(scene: Scene, policy: Policy) -> float:
    """Returns the mean JCT of a scene under a policy, in hours."""
    finish_s = np.array(play_scene(scene, policy).finish_s)
    return float((finish_s - scene.trace.jobs.submit_s).mean()) / HOUR_S


def searched(scene: Scene, policy: Policy) -> Numbers:
    """Plays until the search on the whole set is over; returns how long it took and its worth."""
    world = SimWorld(scene, policy, tally_of(scene))
    memory, wake_at, began_s = policy.initial, inf, inf
    last_s = float(scene.trace.jobs.submit_s[-1])
    while world.advance(wake_at):
        decision = policy.decide(world.observe(), memory)
        memory, wake_at = decision.memory, decision.wake_at
        if decision.draft is not None:
            world.apply(decision.draft)
        assert isinstance(memory, Calibrated)
        now = world.observe().now
        if now < last_s or not memory.searches:
            continue
        if any(search.trial is not None for search in memory.searches):
            began_s = min(began_s, now)
        elif all(search.due_s == inf for search in memory.searches):
            free, best = (
                _mean_left_s(world, memory.searches, is_free) for is_free in (True, False)
            )
            return {
                "seconds": now - min(began_s, now),
                "steps": float(sum(search.steps for search in memory.searches)),
                "gain": free / best,
                "members": float(sum(len(search.star.members) for search in memory.searches)),
            }
    raise DovetailError("all jobs ended before the search")


def _mean_left_s(world: SimWorld, searches: Sequence[Search], is_free: bool) -> float:
    """Returns GIMBAL's objective, the mean of time left over speed, of whole sets."""
    view = world.observe()
    left_s: list[float] = []
    for search in searches:
        jobs = search.star.members
        manners = free_competition(search.bare) if is_free else search.now
        placed = [m.on(bare) for m, bare in zip(manners, search.bare, strict=True)]
        for i, (job, alone_s) in enumerate(zip(jobs, view.progress.left_s(jobs), strict=True)):
            near = range(1, len(jobs)) if i == 0 else (0,)
            speed = view.physics.rate(job, placed[i], [(jobs[k], placed[k]) for k in near])
            left_s.append(alone_s / speed)
    return fmean(left_s)


ALONE_H = 5.0


class ExampleSharing(LinearSharing):
    """Free, job A takes 10 h beside job B, B takes 5 h; with B at a half, 5 h and 7 h.

    Alone each is taken to need 5 h. Between the two settings the paper says nothing: straight.
    """

    def utilization(self, job: int) -> float:
        """Returns that of a small job and of one that fills the GPU: B is the one to squeeze."""
        return 0.1 if job == 0 else 1.0

    def slowdown(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        """Returns the slowdown that the example implies."""
        return 1.0 / self._speed(job, placement, neighbours)

    def _speed(self, job: int, placement: Placement, neighbours: Sequence[Neighbour]) -> float:
        b = placement if job == 1 else neighbours[0][1] if neighbours else None
        limit = 0.0 if b is None else min(b.fractions or (1.0,))
        squeezed = min(1.0, (1 - limit) / 0.5)
        if job == 0:
            return 0.5 + 0.5 * squeezed
        return (1 - 2 / 7 * squeezed) * min(1.0, limit / 0.5) if neighbours else 1.0


@dataclass(frozen=True, slots=True)
class ExampleRun:
    """The example under GIMBAL."""

    def play(self) -> Numbers:
        """Returns the means by the speeds of the moment, and through the world, in hours."""
        jobs = JobTable.build(
            ["A", "B"], np.zeros(2), np.ones(2, np.int64), shareable=np.ones(2, bool)
        )
        trace = Trace.of(jobs, np.full(2, ALONE_H * HOUR_S))
        sharing = ExampleSharing(LinearStructure(jobs), Injected())
        truth = replace(linear_physics(jobs), sharing=sharing)
        cluster = Cluster.parse("1x1")
        scene = Scene(
            trace=trace,
            cluster=cluster,
            truth=truth,
            belief=truth,
            forecast=Known(trace.duration_s),
        )
        policies = {
            name: parse_policy(f"gimbal:inner={PACKING}{SEARCHES[name]}")
            for name in ("free competition", "early exit")
        }
        ends = {name: mean_jct_h(scene, policy) for name, policy in policies.items()}
        gain = searched(scene, policies["early exit"])["gain"]
        one = Placement(((0, 1),), ((0,),))
        free_h = fmean(ALONE_H / truth.rate(i, one, [(1 - i, one)]) for i in (0, 1))
        return {
            "free": free_h,
            "found": free_h / gain,
            "free through the world": ends["free competition"],
            "found through the world": ends["early exit"],
        }

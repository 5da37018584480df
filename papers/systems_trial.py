"""One run of the comparison of all systems, and one bound, as trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import dovetail.policies  # registers the policies
from dovetail.algorithms.bounds import Powers
from dovetail.core.cluster import Cluster
from dovetail.core.errors import DovetailError
from dovetail.core.policy import Policy, parse_policy
from dovetail.core.switching import Switching
from dovetail.physics.beliefs.blur import Blur
from dovetail.study.bound import bound
from dovetail.study.options import Options
from dovetail.study.run import simulate
from papers.systems_beds import GPUS_PER_NODE, NODES, Bed
from papers.trials import Numbers

assert dovetail.policies

SWITCHING = "restart:30,prepared:10"
"""Of all systems: 30 s to resume or to move; who keeps GPUs trains on while more are made ready."""
CYCLE = "overlapped"


@dataclass(frozen=True, slots=True)
class World:
    """What is varied around the base: physics, costs, beliefs, and what owners allow."""

    switching: str = SWITCHING
    switching_factor: float = 1.0
    interference: str | float = "measured"
    cycle: str = CYCLE
    physics: str = "placed"
    belief: str = "exact"
    forecast: str = "known"
    elastic: float = 1.0
    shareable: float = 1.0

    def options(self, seed: int) -> Options:
        """Returns the options of a run."""
        return Options(
            Cluster.parse(f"{NODES}x{GPUS_PER_NODE}"),
            switching=Switching.parse(self.switching).scaled(self.switching_factor),
            forecast=self.forecast,
            belief=self.belief,
            adopt=(("elastic", self.elastic), ("shareable", self.shareable)),
            interference=self.interference,
            cycle=self.cycle,
            physics=self.physics,
            seed=seed,
        )


BASE = World()
STOPPING = frozenset({"preempt", "migrate", "resize", "change batch"})
"""Powers over running jobs, which cost switches and need owners who let their jobs be stopped."""


@dataclass(frozen=True, slots=True)
class SystemTrial:
    """A policy on a bed in a world."""

    policy: str
    bed: Bed
    world: World = BASE

    def play(self) -> Numbers:
        """Returns means, tails, deadlines met, and where the GPU-time went."""
        trace = self.bed.trace()
        result = simulate(trace, parse_policy(self.policy), self.world.options(self.bed.seed))
        said = result.summary
        if said["finished"] != len(trace):
            raise DovetailError(f"{self.policy}: {said['finished']} of {len(trace)} jobs finished")
        held = sum(result.gpu_seconds[k] for k in ("useful", "slowdown", "switching"))
        slowdown = result.jobs["slowdown"].to_numpy()
        return {
            "jct_s": result.number("avg_jct_s") or 0.0,
            "p99_jct_s": result.number("p99_jct_s") or 0.0,
            "makespan_s": result.number("makespan_s") or 0.0,
            "slowdown": float(slowdown.mean()),
            "met": (result.number("deadline_met") or 0.0) / len(trace),
            "switching": result.gpu_seconds["switching"] / held,
            "preemptions": (result.number("preemptions") or 0.0) / len(trace),
        }


@dataclass(frozen=True, slots=True)
class BoundTrial:
    """The bound of a bed for policies with some powers."""

    bed: Bed
    powers: Powers
    world: World = BASE

    def play(self) -> Numbers:
        """Returns the least mean JCT."""
        found = bound(self.bed.trace(), self.world.options(self.bed.seed), self.powers)
        return {"jct_s": found.mean_jct_s}


def trial(policy: str, bed: Bed, world: World = BASE) -> SystemTrial:
    """Returns the trial of a policy, with all that cannot touch it as in the base.

    A policy that never shares does not meet interference, one that knows no lengths meets no
    forecast, and so on: such runs are those of the base, played once.
    """
    touched = parsed(policy)
    base = {name: getattr(BASE, name) for name, felt in _felt(touched).items() if not felt}
    believed = _heard(world.belief, touched)
    if not touched.powers & STOPPING:
        bed = replace(bed, preemptible=1.0)
    return SystemTrial(policy, bed, replace(world, belief=believed, **base))


@lru_cache(maxsize=256)
def parsed(text: str) -> Policy:
    """Returns the policy of a text."""
    return parse_policy(text)


def _felt(policy: Policy) -> Mapping[str, bool]:
    powers = policy.powers
    crowds = bool(powers & {"share", "interleave"})
    switches = bool(powers & (STOPPING | {"restrict"}))
    return {
        "switching": switches,
        "switching_factor": switches,
        "shareable": crowds,
        "interference": crowds,
        "cycle": "interleave" in powers,
        "elastic": "resize" in powers,
        "forecast": "length" in policy.knows,
    }


def _heard(belief: str, policy: Policy) -> str:
    """Returns the part of a belief that is about what a policy must know."""
    blur = Blur.parse(belief)
    words = [
        f"{axis}:{getattr(blur, axis):g}"
        for axis in ("scaling", "interference", "stages", "memory")
        if getattr(blur, axis) and axis in policy.knows
    ]
    return ",".join(words) or "exact"

"""The toy of the AFS paper's appendix A: what is best without a future may be worst with one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dovetail.control.loop import run as run_loop
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable, Labels
from dovetail.core.placing import Placing
from dovetail.core.policy import parse_policy
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.core.units import HOUR_S
from dovetail.forecast.forecasts import parse_forecast
from dovetail.physics.placed import placed_physics
from dovetail.physics.zoo.models import Catalogue, zoo
from dovetail.physics.zoo.profile import Curve, ModelProfile
from dovetail.physics.zoo.profile_file import ProfileSet
from dovetail.physics.zoo.provenance import Provenance, Sourced
from dovetail.record.tally import Tally
from dovetail.sim.scene import Scene
from dovetail.sim.world import SimWorld
from papers.trials import Numbers

ONE_GPU_H, A_H, B_H = 2.0, 1.0, 1.5
"""Any job takes two hours on one GPU; A takes one on two, B one and a half."""
FOLLOWERS = 40


@dataclass(frozen=True, slots=True)
class ToyTrial:
    """A and B at time 0 on two GPUs; with `follower_h`, a stream of jobs that take so long on two.

    The first comes after an hour, each next one as long after it as it takes on two GPUs.
    """

    policy: str
    follower_h: float = 0.0

    def play(self) -> Numbers:
        """Returns the mean JCT in hours."""
        hours = [A_H, B_H, *([self.follower_h] * FOLLOWERS if self.follower_h else [])]
        submit = [0.0, 0.0, *(1 + i * self.follower_h for i in range(len(hours) - 2))]
        n = len(hours)
        models = tuple(f"toy/{h:g}" for h in sorted(set(hours)))
        jobs = JobTable.build(
            [f"{i:03d}" for i in range(n)],
            np.array(submit) * HOUR_S,
            np.full(n, 2),
            model=Labels(
                np.array([models.index(f"toy/{h:g}") for h in hours], dtype=np.int32), models
            ),
        )
        jobs = replace(jobs, elastic=np.ones(n, dtype=bool), min_gpus=np.ones(n, dtype=np.int64))
        trace = Trace.of(jobs, np.array(hours) * HOUR_S, "appendix A")
        finish = _finishes(trace, sorted(set(hours)), self.policy)
        return {"avg_jct_h": float((finish - jobs.submit_s).mean()) / HOUR_S}


def _finishes(trace: Trace, two_gpus_h: list[float], policy_name: str) -> np.ndarray:
    profiles = tuple(_profile(hours) for hours in two_gpus_h)
    cluster = Cluster.parse("1x2")
    truth = placed_physics(
        trace.jobs,
        cluster,
        Catalogue((ProfileSet("toy", "appendix A", "", (), profiles),)),
        by_count=True,
    )
    scene = Scene(
        trace=trace,
        cluster=cluster,
        truth=truth,
        belief=truth,
        forecast=parse_forecast("known", trace, 0),
        placing=Placing.parse("none"),
        switching=Switching.parse("none"),
    )
    scale = [truth.structure.scale(j) for j in range(len(trace))]
    tally = Tally(cluster, trace.jobs.gpus.tolist(), trace.duration_s.tolist(), scale)
    policy = parse_policy(policy_name)
    run_loop(SimWorld(scene, policy, tally), policy)
    return np.array(tally.finish_s)


def _profile(two_gpus_h: float) -> ModelProfile:
    """Returns a model that is as fast on two GPUs as the toy says; the rest plays no part."""
    curve = Curve((1, 2), (ONE_GPU_H, two_gpus_h))
    return replace(
        zoo()["afs/vgg16"],
        name=f"{two_gpus_h:g}",
        family="toy",
        aliases=(),
        max_gpus=Sourced(2, Provenance.ASSUMED, "appendix A"),
        curve=Sourced(curve, Provenance.ASSUMED, "appendix A"),
    )

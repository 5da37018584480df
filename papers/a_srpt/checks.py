"""Runs of the A-SRPT paper that play no schedule: Heavy-Edge, real logs, and the bound."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import thread_time

import numpy as np

from dovetail.algorithms.bounds import Powers
from dovetail.algorithms.heavy_edge import heavy_edge
from dovetail.algorithms.pipeline_time import iteration_s, replicas_held
from dovetail.algorithms.refined_replicas import refined_replicas
from dovetail.core.errors import DovetailError
from dovetail.core.job import Labels
from dovetail.forecast.accuracy import evaluate
from dovetail.physics.pipelines.pipelined import pipelined
from dovetail.physics.pipelines.planner import TESTBED, plan
from dovetail.study.bound import bound
from dovetail.study.options import Options
from dovetail.study.traces import open_traces
from papers.a_srpt.exact_replicas import exact_replicas
from papers.a_srpt.workloads import SIMULATED, ASrptCluster, ASrptWorkload, fastest
from papers.frame.experiment import Numbers


@dataclass(frozen=True, slots=True)
class ASrptBound:
    """The least total flow and completion times that any rigid, exclusive policy could reach."""

    jobs: ASrptWorkload
    cluster: ASrptCluster = SIMULATED

    def play(self) -> Numbers:
        """Returns both sums."""
        trace = self.jobs.trace()
        # A duration is that of an estimated best placement, which a real one may beat a little.
        kinds = zip(trace.jobs.model.texts(), trace.jobs.gpus.tolist(), strict=True)
        least = np.array([fastest(*kind, self.cluster.nic_gbit) for kind in kinds])
        plain = replace(trace.jobs, model=Labels.none(len(trace)))
        shortest = replace(trace, jobs=plain, duration_s=trace.duration_s * least)
        options = Options(self.cluster.build(), physics="linear")
        flow_s = len(trace) * bound(shortest, options, Powers()).mean_jct_s
        submit_s = trace.jobs.submit_s
        return {"flow_s": flow_s, "completion_s": flow_s + float((submit_s - submit_s[0]).sum())}


@dataclass(frozen=True, slots=True)
class PlacementRun:
    """One model on servers of which 1 to 8 GPUs are free, those with most taken first."""

    model: str
    gpus: int
    case: int
    limit_s: float

    def free(self) -> tuple[int, ...]:
        """Returns the GPUs taken of each server, whole replicas only."""
        draw = np.random.default_rng([self.case, self.gpus])
        width = pipelined()[self.model].slices
        free = [int(n) // width * width for n in draw.integers(1, TESTBED.gpus + 1, 4 * self.gpus)]
        servers: list[int] = []
        while sum(servers) < self.gpus:
            servers.append(free.pop())
        taken, left = [], self.gpus
        for here in sorted(filter(None, servers), reverse=True):
            taken.append(min(here, left))
            left -= taken[-1]
        return tuple(here for here in taken if here)

    def play(self) -> Numbers:
        """Returns the iteration by Heavy-Edge and the best one, and what finding each took."""
        stages, free = plan(pipelined()[self.model], self.gpus), self.free()
        heavy_edge(stages, free)
        began = thread_time()
        servers = heavy_edge(stages, free)
        greedy_s = thread_time() - began
        refined = refined_replicas(stages, free, [TESTBED] * len(free))
        began = thread_time()
        best = exact_replicas(stages, free, TESTBED, limit_s=self.limit_s)
        exact_s = thread_time() - began
        if servers is None or refined is None or best is None:
            raise DovetailError(f"no placement of {self.model} on {free}")
        ours_s = iteration_s(stages, replicas_held(stages, servers), TESTBED)
        proven = best.bound_s >= best.iteration_s * (1 - 1e-3)
        return {
            "greedy_ms": 1e3 * ours_s,
            "refined_ms": 1e3 * iteration_s(stages, replicas_held(stages, refined), TESTBED),
            "best_ms": 1e3 * (best.iteration_s if proven else best.bound_s),
            "greedy_took_ms": 1e3 * greedy_s,
            "best_took_ms": 1e3 * exact_s,
            "proven": float(proven),
        }


@dataclass(frozen=True, slots=True)
class LogRun:
    """How well a method predicts a real log: learned from the first 80 %, and online."""

    file: str
    method: str
    protocol: str

    def play(self) -> Numbers:
        """Returns the errors on the last fifth."""
        errors = evaluate(open_traces([Path(self.file)]), self.method, self.protocol).errors
        return {k: float(v) for k, v in asdict(errors).items() if v is not None}

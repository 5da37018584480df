"""One run of the A-SRPT study as a trial: jobs, a policy, what it is told of lengths, a network."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

import dovetail.policies  # registers the policies
from dovetail.control.loop import run
from dovetail.core.cluster import Cluster, Link, NodeGroup
from dovetail.core.errors import DovetailError
from dovetail.core.job import Floats
from dovetail.core.policy import parse_policy
from dovetail.core.switching import Switching
from dovetail.record.tally import Tally
from dovetail.sim.world import SimWorld
from dovetail.study.options import Options
from dovetail.study.run import build_scene
from papers.a_srpt_workload import (
    INSIDE_BYTES_PER_S,
    Jobs,
    Taught,
    shortest_longest,
)
from papers.trials import Numbers

assert dovetail.policies

KNOWN, TAUGHT = "known", "taught"
FOREST = f"{TAUGHT}:forest"
"""What all policies of the paper's comparisons are told."""
SERVERS = 250
TESTBED_GPUS, TESTBED_BYTES_PER_S = 14, 128e9
"""Two H100 cut into 14, which meet over PCIe (section V.A.1-a)."""
NEAR = 0.1
COMM_HEAVY = 1.5
"""Worst over best iteration from which on A-SRPT calls a job communication-heavy."""


@dataclass(frozen=True, slots=True)
class Bed:
    """The simulated cluster, of servers of eight GPUs; `testbed` is the paper's one machine."""

    servers: int = SERVERS
    nic_gbit: float = 10.0
    testbed: bool = False

    @property
    def gpus(self) -> int:
        """Returns the GPUs of all servers."""
        return TESTBED_GPUS if self.testbed else 8 * self.servers

    def cluster(self) -> Cluster:
        """Returns the cluster with its links."""
        if self.testbed:
            inside = Link("node", TESTBED_BYTES_PER_S, nodes=1)
            return Cluster((NodeGroup("all", 1, TESTBED_GPUS),), (inside, Link("fabric", 1.25e9)))
        links = (
            Link("node", INSIDE_BYTES_PER_S, nodes=1),
            Link("fabric", self.nic_gbit * 1e9 / 8),
        )
        return Cluster((NodeGroup("all", self.servers, 8),), links)


SIMULATED = Bed()


@dataclass(frozen=True, slots=True)
class ASrptTrial:
    """A policy on jobs.

    `told` is a forecast: `taught:METHOD` has learned from the trace before these jobs and goes on
    learning; any other is one of `--forecast`.
    """

    jobs: Jobs
    policy: str
    told: str = FOREST
    bed: Bed = SIMULATED
    switching: str = "restart:30"

    def play(self) -> Numbers:
        """Returns total flow and completion times, the makespan, and how good predictions were."""
        trace, options = self.jobs.trace(), self.options()
        scene = build_scene(trace, options)
        taught = None
        method = self.told.removeprefix(f"{TAUGHT}:")
        if method != self.told:
            taught = self.jobs.taught(method)
            scene = replace(scene, forecast=taught)
        policy = parse_policy(self.policy)
        scale = [scene.truth.structure.scale(j) for j in range(len(trace))]
        tally = Tally(options.cluster, trace.jobs.gpus.tolist(), trace.duration_s.tolist(), scale)
        run(SimWorld(scene, policy, tally), policy)
        finish_s = np.array(tally.finish_s)
        if not np.isfinite(finish_s).all():
            raise DovetailError(f"{self.policy}: not all jobs of {self.jobs} finished")
        flow_s = finish_s - trace.jobs.submit_s
        held_s, gpus = np.array(tally.running_s), trace.jobs.gpus
        origin_s = float(trace.jobs.submit_s[0])
        kept = {
            "flow_s": float(flow_s.sum()),
            "completion_s": float((finish_s - origin_s).sum()),
            "makespan_s": float(finish_s.max() - origin_s),
            "p99_s": float(np.quantile(flow_s, 0.99)),
            "waited_s": float((np.array(tally.start_s) - trace.jobs.submit_s).sum()),
            "stretch": float(held_s @ gpus / (trace.duration_s @ gpus)),
        }
        if self.policy.startswith("a-srpt"):
            kept |= _slowed(self.jobs, self.bed, held_s / trace.duration_s)
        return kept if taught is None else kept | _errors(self.jobs, taught)

    def options(self) -> Options:
        """Returns what the run is played with."""
        forecast = KNOWN if self.told.startswith(TAUGHT) else self.told
        return Options(
            self.bed.cluster(),
            switching=Switching.parse(self.switching),
            forecast=forecast,
            seed=self.jobs.seed,
        )


def _slowed(jobs: Jobs, bed: Bed, ratio: Floats) -> dict[str, float]:
    """Returns how much longer jobs ran than at best, by whether they communicate much."""
    table = jobs.trace().jobs
    kinds = zip(table.model.texts(), table.gpus.tolist(), strict=True)
    spread = np.array([longest / best for best, longest in (seconds(*k, bed) for k in kinds)])
    heavy = (spread >= COMM_HEAVY) & (table.gpus > 1)
    light = ~heavy & (table.gpus > 1)
    return {
        name: float(ratio[rows].mean()) if rows.any() else 1.0
        for name, rows in (("heavy ran", heavy), ("light ran", light))
    } | {"heavy": float(heavy.mean())}


def seconds(model: str, gpus: int, bed: Bed) -> tuple[float, float]:
    """Returns the shortest and the longest iteration of a model on a bed's links."""
    return shortest_longest(model, gpus, bed.nic_gbit)


def _errors(jobs: Jobs, taught: Taught) -> dict[str, float]:
    """Returns how far off the predictions of a run were, in iterations and relative."""
    truth_s = jobs.trace().duration_s
    guess_s = np.array([taught.said_s[job] for job in range(len(truth_s))])
    off_s = np.abs(guess_s - truth_s)
    iterations = off_s * jobs.faster / jobs.iteration_s()
    return {
        "error_iterations": float(iterations.mean()),
        "median_error_iterations": float(np.median(iterations)),
        "error_s": float(off_s.mean()),
        "near": float((off_s <= NEAR * truth_s).mean()),
        "unseen": float((guess_s <= 0.0).mean()),
        **{f"off:{q}": float(np.quantile(off_s / truth_s, q / 100)) for q in range(0, 101, 2)},
    }

"""The runs of the ServerFilling paper: response times by load, over those of one fast server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dovetail.core.cluster import Cluster
from dovetail.core.policy import parse_policy
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.record.result import RunResult
from dovetail.study.options import Options
from papers.frame.experiment import Experiment, Numbers, PaperRun, Playable, Results
from papers.frame.scope import Scope
from papers.server_filling.published import (
    EXPONENTIAL,
    FIRST,
    GREEDY,
    HYPEREXPONENTIAL,
    MEANS,
    SRPT,
)
from papers.server_filling.workloads import SERVERS, UNIT_S, MultiserverWorkload

GITTINS, LEAST = "serverfilling-gittins:step=1.5", "gittins:delta=0,step=1.5"
FREE = Options(Cluster.parse(f"1x{SERVERS}"), switching=Switching.parse("none"), physics="linear")
ONE_SERVER = replace(FREE, cluster=Cluster.parse("1x1"))
LOADS = (0.84, 0.9, 0.95, 0.98)
SETTINGS = (EXPONENTIAL, HYPEREXPONENTIAL)


@dataclass(frozen=True, slots=True)
class ResponseRun(PaperRun[MultiserverWorkload]):
    """A policy at a load."""

    def numbers(self, trace: Trace, result: RunResult) -> Numbers:
        """Returns the mean response time in the paper's unit."""
        return {"response": (result.number("avg_jct_s") or 0.0) / UNIT_S}


class ServerFillingExperiment(Experiment):
    """Policies at loads, on jobs of two settings; `gittins_loads` are those without lengths."""

    def __init__(self, scope: Scope, results: Results) -> None:
        super().__init__(scope, results, scope.seeds or scope.chosen(1, 3, 10))
        self.jobs = scope.chosen(1500, 20_000, 200_000)
        self.loads = LOADS[: scope.chosen(1, 3, 4)]
        self.gittins_jobs = scope.chosen(600, 6_000, 50_000)
        self.gittins_loads = self.loads[::2]

    def run(self, policy: str, sizes: str, load: float, jobs: int = 0) -> ResponseRun:
        """Returns the run of a policy on eight servers."""
        return ResponseRun(MultiserverWorkload(sizes, load, jobs or self.jobs), policy, FREE)

    def alone(self, policy: str, sizes: str, load: float, jobs: int = 0) -> ResponseRun:
        """Returns the run of a policy on one server eight times as fast."""
        jobs = jobs or self.jobs
        return ResponseRun(MultiserverWorkload(sizes, load, jobs, 0, True), policy, ONE_SERVER)

    def response(self, run: ResponseRun) -> float:
        """Returns the mean response time over the seeds."""
        return self.mean(run, "response")

    def over_one(self, run: ResponseRun, alone: str = "srtf") -> float:
        """Returns a response time over that of the same jobs on the one fast server."""
        sizes, load, jobs = run.workload.sizes, run.workload.load, run.workload.jobs
        return self.ratio(run, self.alone(alone, sizes, load, jobs), "response")

    def at_loads(self) -> Iterator[tuple[str, float]]:
        """Yields each setting and load."""
        for sizes in SETTINGS:
            for load in self.loads:
                assert (sizes, load) in MEANS
                yield sizes, load

    def without_lengths(self, load: float) -> ResponseRun:
        """Returns the run of ServerFilling-Gittins, on jobs whose age says something."""
        return self.run(GITTINS, HYPEREXPONENTIAL, load, self.gittins_jobs)

    def runs(self) -> list[Playable]:
        """Returns every run on every seed."""
        runs: list[ResponseRun] = []
        for load in self.gittins_loads:
            runs += [
                self.without_lengths(load),
                self.run(FIRST, HYPEREXPONENTIAL, load, self.gittins_jobs),
                self.alone(LEAST, HYPEREXPONENTIAL, load, self.gittins_jobs),
            ]
        for sizes, load in self.at_loads():
            runs += [self.run(p, sizes, load) for p in (FIRST, SRPT)]
            runs.append(self.alone("srtf", sizes, load))
        for load, known in GREEDY.items():
            runs += [self.run(p, EXPONENTIAL, load) for p in (*known, SRPT)]
        assert all(parse_policy(run.policy) for run in runs)
        return list(self.all_on_seeds(runs))

"""The runs of a paper: policies on workloads, on all cores, each played once.

A run is a frozen, picklable value that plays itself and returns plain numbers, so that hundreds of
runs take no memory, and the answers are the same whatever the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

import dovetail.policies  # registers the policies
from dovetail.control.loop import run as run_loop
from dovetail.core.errors import DovetailError
from dovetail.core.policy import Policy, parse_policy
from dovetail.core.trace import Trace
from dovetail.record.result import RunResult
from dovetail.record.tally import Tally
from dovetail.sim.scene import Scene
from dovetail.sim.world import SimWorld
from dovetail.study.options import Options
from dovetail.study.parallel import Progress, cores, set_up_worker, undisturbed, working_pool
from dovetail.study.run import simulate
from papers.frame.scope import Scope

assert dovetail.policies

Numbers = Mapping[str, float]


class Playable(Protocol):
    """A run, or whatever else takes time; equal ones have equal outcomes."""

    def play(self) -> Numbers:
        """Returns the outcome."""
        ...

    def __hash__(self) -> int: ...


class Workload(Protocol):
    """The jobs of a run, made anew from a few words and numbers."""

    @property
    def seed(self) -> int:
        """Returns the seed of all that is drawn."""
        ...

    def trace(self) -> Trace:
        """Returns the jobs; equal workloads have the same ones."""
        ...


W = TypeVar("W", bound=Workload)


@dataclass(frozen=True, slots=True)
class PaperRun(Generic[W]):
    """A policy on a workload, on the cluster and with the options of the paper."""

    workload: W
    policy: str
    options: Options

    def play(self) -> Numbers:
        """Returns the numbers of the simulation."""
        trace = self.workload.trace()
        options = replace(self.options, seed=self.workload.seed)
        policy = parse_policy(self.policy)
        return self.numbers(trace, simulate(trace, policy, options, keep_spans=self.keeps_spans))

    @property
    def keeps_spans(self) -> bool:
        """Returns whether `numbers` needs the spans of the result."""
        return False

    def numbers(self, trace: Trace, result: RunResult) -> Numbers:
        """Returns what the paper needs of a result."""
        raise NotImplementedError

    def under(self, policy: str) -> Self:
        """Returns the run of another policy."""
        return replace(self, policy=policy)

    def on(self, workload: W) -> Self:
        """Returns the run on another workload."""
        return replace(self, workload=workload)

    def varied(self, **options: object) -> Self:
        """Returns the run with other options."""
        return replace(self, options=replace(self.options, **options))  # type: ignore[arg-type]

    def seeded(self, seed: int) -> Self:
        """Returns the run on the workload of another seed."""
        return replace(self, workload=replace(self.workload, seed=seed))  # type: ignore[type-var]


def require_all_finished(run: PaperRun[W], result: RunResult) -> None:
    """Raises DovetailError where a job of a run has not finished."""
    count = len(result.jobs) + int(result.number("left_out") or 0)
    if result.summary["finished"] != count:
        finished = result.summary["finished"]
        raise DovetailError(f"{run.policy}: {finished} of {count} jobs of {run.workload} finished")


def play_scene(scene: Scene, policy: Policy) -> Tally:
    """Returns the tally of a policy on a scene, played to its end."""
    tally = tally_of(scene)
    run_loop(SimWorld(scene, policy, tally), policy)
    return tally


def tally_of(scene: Scene) -> Tally:
    """Returns an empty tally of a scene."""
    trace = scene.trace
    scale = [scene.truth.structure.scale(j) for j in range(len(trace))]
    return Tally(scene.cluster, trace.jobs.gpus.tolist(), trace.duration_s.tolist(), scale)


def listed(name: str, values: Iterable[float | None]) -> dict[str, float]:
    """Returns a list as numbers of a run, its length included."""
    each = [float("nan") if v is None else float(v) for v in values]
    return {f"{name}:": float(len(each)), **{f"{name}:{i}": v for i, v in enumerate(each)}}


def sequence(numbers: Numbers, name: str) -> list[float]:
    """Returns a list that a run stored by `listed`."""
    return [numbers[f"{name}:{i}"] for i in range(int(numbers[f"{name}:"]))]


class Results:
    """The outcomes of runs: plays the unknown ones at once, and remembers them.

    `progress` receives the completed share of each batch; `known` runs are not played.
    """

    def __init__(
        self,
        processes: int = 0,
        progress: Progress | None = None,
        known: Mapping[Playable, Numbers] | None = None,
    ) -> None:
        self._processes = processes or cores()
        self._progress = progress or _quiet
        self._known = dict(known or {})

    def play(self, runs: Sequence[Playable]) -> list[Numbers]:
        """Returns the outcome of each run, in order. Raises what the first failing one does."""
        new = [run for run in dict.fromkeys(runs) if run not in self._known]
        if min(len(new), self._processes) <= 1:
            for count, run in enumerate(new, start=1):
                self._known[run] = run.play()
                self._progress(count / len(new))
        else:
            self._play_in_pool(new)
        return [self._known[run] for run in runs]

    def _play_in_pool(self, new: Sequence[Playable]) -> None:
        with working_pool(self._processes, set_up_worker) as pool:
            with undisturbed():
                waiting = {pool.submit(_play, run): run for run in new}
            for count, future in enumerate(as_completed(waiting), start=1):
                self._known[waiting[future]] = future.result()
                self._progress(count / len(new))

    def __getitem__(self, run: Playable) -> Numbers:
        return self.play([run])[0]

    def each(self, runs: Sequence[Playable], key: str) -> list[float]:
        """Returns one number of each run."""
        return [numbers[key] for numbers in self.play(runs)]

    def mean(self, runs: Sequence[Playable], key: str = "avg_jct_s") -> float:
        """Returns the mean of a number over runs."""
        return float(np.mean(self.each(runs, key)))

    def ratio(self, over: Playable, under: Playable, key: str = "avg_jct_s") -> float:
        """Returns a number of one run over that of another."""
        return self[over][key] / self[under][key]


def _play(run: Playable) -> Numbers:
    return run.play()


def _quiet(share: float) -> None:
    """Reports to nobody."""


class Experiment:
    """The grid of a paper: workloads and policies as the effort allows, seeds, and results.

    A run stands for one on each seed's workload; numbers of it are means over these.
    """

    def __init__(self, scope: Scope, results: Results, seeds: int = 1) -> None:
        self.scope = scope
        self.results = results
        self.seeds = seeds

    @property
    def is_quick(self) -> bool:
        """Returns whether a sample is enough."""
        return self.scope.effort == "quick"

    def seeds_of(self, run: PaperRun[W]) -> int:
        """Returns the number of workloads that a run is played on."""
        return self.seeds

    def on_seeds(self, run: PaperRun[W], seeds: int = 0) -> list[PaperRun[W]]:
        """Returns a run on the workload of each seed, or of the first `seeds`."""
        return [run.seeded(seed) for seed in range(seeds or self.seeds_of(run))]

    def all_on_seeds(self, runs: Iterable[PaperRun[W]], seeds: int = 0) -> list[PaperRun[W]]:
        """Returns each run on the workload of each seed."""
        return [seeded for run in runs for seeded in self.on_seeds(run, seeds)]

    def each(self, run: PaperRun[W], key: str = "avg_jct_s", seeds: int = 0) -> list[float]:
        """Returns one number for each seed."""
        return self.results.each(self.on_seeds(run, seeds), key)

    def mean(self, run: PaperRun[W], key: str = "avg_jct_s", seeds: int = 0) -> float:
        """Returns the mean of a number over the seeds."""
        return self.results.mean(self.on_seeds(run, seeds), key)

    def means(self, run: PaperRun[W], keys: Sequence[str]) -> list[float]:
        """Returns the means of several numbers."""
        return [self.mean(run, key) for key in keys]

    def mean_sequence(self, run: PaperRun[W], name: str) -> list[float]:
        """Returns a list that each run stored, averaged entry by entry."""
        stored = [sequence(numbers, name) for numbers in self.results.play(self.on_seeds(run))]
        return [float(np.mean(entry)) for entry in zip(*stored, strict=True)]

    def ratio(self, over: PaperRun[W], under: PaperRun[W], key: str = "avg_jct_s") -> float:
        """Returns the ratio of two means over the seeds that both were played on."""
        pairs = list(zip(self.each(over, key), self.each(under, key), strict=False))
        return sum(a for a, _ in pairs) / sum(b for _, b in pairs)

"""The runs of the GIMBAL paper: a scheduler on a workload, and paired gains over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.core.cluster import Cluster
from dovetail.core.job import Floats
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.core.units import HOUR_S
from dovetail.record.result import RunResult
from dovetail.study.options import Options
from papers.frame.experiment import (
    Experiment,
    Numbers,
    PaperRun,
    Playable,
    Results,
    W,
    listed,
    require_all_finished,
)
from papers.frame.scope import Scope
from papers.gimbal.workloads import ABLATION_JOBS, CLASSES, MIXES, GimbalWorkload, data_of

QUANTILES, POINTS = 60, 60
SLURM = "backfill"
XIS: tuple[str | float, ...] = (1.0, 1.25, 1.5, 2.0, 2.5, "measured")
STEPS = ("unequal", "+ LISS", "+ LGRR")


@dataclass(frozen=True, slots=True)
class UpperScheduler:
    """A scheduler of the paper: alone, relaxed under GIMBAL, and the number it is for."""

    name: str
    alone: str
    relaxed: str
    goal: str
    measure: str

    def under(self, step: str = STEPS[-1]) -> str:
        """Returns the scheduler under GIMBAL with the mechanisms up to a step of the ablation."""
        off = {"unequal": ",lgrr=false,liss=false", "+ LISS": ",lgrr=false"}.get(step, "")
        return f"gimbal:inner={self.relaxed},goal={self.goal}{off}"

    @property
    def both(self) -> tuple[str, str]:
        """Returns the scheduler alone and under GIMBAL."""
        return self.alone, self.under()

    @property
    def relaxed_alone(self) -> str:
        """Returns the relaxed scheduler without GIMBAL."""
        return self.relaxed.replace(";", ",")

    @property
    def equal_under(self) -> str:
        """Returns the scheduler under GIMBAL, which packs only jobs of equal size."""
        return self.under().replace("unequal=true", "unequal=false")


LUCID = UpperScheduler("Lucid", "lucid", "lucid:score-limit=3;unequal=true", "jct", "jct")
GANDIVA = UpperScheduler(
    "Gandiva", "gandiva-deadline", "gandiva-deadline:unequal=true", "deadline", "met"
)
GAVEL = UpperScheduler("Gavel", "gavel", "gavel:unequal=true", "makespan", "makespan")
UPPERS = (LUCID, GANDIVA, GAVEL)
BOLD = replace(LUCID, name="Lucid packing anybody", relaxed="lucid:score-limit=4;unequal=true")
SWEPT = (*UPPERS, BOLD)
"""What is swept over interference: the paper does not say how far it relaxes Lucid's score."""
WORDS = {"jct": "mean JCT", "met": "deadlines met", "makespan": "makespan", "queue": "queueing"}
MORE_IS_BETTER = frozenset({"met"})


@dataclass(frozen=True, slots=True)
class GimbalRun(PaperRun[GimbalWorkload]):
    """A scheduler on a workload."""

    def numbers(self, trace: Trace, result: RunResult) -> Numbers:
        """Returns means in hours, deadlines met by class, quantiles, and throughput over time."""
        require_all_finished(self, result)
        jobs = result.jobs
        jct_s = jobs["jct_s"].to_numpy()
        met = jobs["finish_s"].to_numpy() <= trace.jobs.deadline_s + 1e-6
        # The jobs of a result are in the order of the trace: both are by submission.
        longer = trace.duration_s >= np.median(trace.duration_s)
        of_class = np.array([name.partition("-")[0] for name in jobs["job_id"].to_list()])
        return {
            "jct": float(jct_s.mean()) / HOUR_S,
            "jct longer": float(jct_s[longer].mean()) / HOUR_S,
            "jct shorter": float(jct_s[~longer].mean()) / HOUR_S,
            "queue": float(jobs["time_to_start_s"].to_numpy().mean()) / HOUR_S,
            "makespan": float(result.number("makespan_s") or 0.0) / HOUR_S,
            "met": float(met.sum()),
            **{f"met {c}": float(met[of_class == c].sum()) for c in CLASSES},
            **listed("q", np.quantile(jct_s, np.linspace(0, 1, QUANTILES)) / HOUR_S),
            **_throughput(result, self.workload),
        }


def gimbal_run(workload: GimbalWorkload, policy: str) -> GimbalRun:
    """Returns the run of a policy on the paper's cluster."""
    cluster = Cluster.parse(f"{workload.nodes}x2:A40")
    return GimbalRun(workload, policy, Options(cluster, switching=Switching.parse(SWITCHING)))


SWITCHING = "restart:30,limit:3.6"


def _throughput(result: RunResult, workload: GimbalWorkload) -> dict[str, float]:
    """Returns work done over what one job a GPU could do, in equal parts of 1.5 makespans."""
    series = result.series
    at = series["t_s"].to_numpy() - result.origin_s
    gpus = 2 * workload.nodes
    efficiency = series["cluster_efficiency"].cast(float).fill_null(0.0).fill_nan(0.0)
    rate = efficiency.to_numpy() * series["capacity_gpus"].to_numpy() / gpus
    ends = np.append(at[1:], max(result.lasted_s, float(at[-1])))
    area = np.concatenate([[0.0], np.cumsum(rate * (ends - at))])
    edges = np.linspace(0.0, 1.5 * workload.of.gavel_h * HOUR_S, POINTS + 1)
    work = np.interp(edges, np.concatenate([at[:1], ends]), area)
    averages = np.diff(work) / np.diff(edges)
    return {"peak": float(averages.max()), **listed("t", averages)}


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times better, the geometric mean of paired runs, and its 95 % interval."""

    mean: float
    low: float
    high: float
    runs: int

    @property
    def words(self) -> str:
        """Returns the interval in words, for rows."""
        if self.runs < 3:
            return f"{self.runs} workload{'s' * (self.runs > 1)}"
        return f"95 %: {self.low:.2f} to {self.high:.2f}"


def gain_of(ratios: Sequence[float]) -> Gain:
    """Returns the geometric mean of ratios, with Student's interval of their logarithms."""
    logs = np.log(np.asarray(ratios, float))
    mean, runs = float(logs.mean()), len(logs)
    if runs < 2:
        return Gain(float(np.exp(mean)), float(np.exp(mean)), float(np.exp(mean)), runs)
    from scipy.stats import t

    half = float(t.ppf(0.975, runs - 1)) * float(logs.std(ddof=1)) / runs**0.5
    low, middle, high = (float(np.exp(mean + side * half)) for side in (-1, 0, 1))
    return Gain(middle, low, high, runs)


class GimbalExperiment(Experiment):
    """Each run on several seeded workloads, fewer (`few`) where something is varied."""

    def __init__(self, scope: Scope, results: Results) -> None:
        super().__init__(scope, results, scope.seeds or scope.chosen(2, 10, 30))
        self.data = data_of(scope)
        self.few = min(self.seeds, scope.seeds or scope.chosen(1, 3, 30))
        # Gavel's programmes of 300 jobs take most of the time.
        self.gavel_seeds = min(self.seeds, scope.seeds or scope.chosen(0, 2, 30))
        self.mixes = ("philly",) if self.is_quick else tuple(MIXES)

    def uppers(self, mix: str) -> tuple[UpperScheduler, ...]:
        """Returns the schedulers played on a mix."""
        return UPPERS if mix == "philly" or self.gavel_seeds else UPPERS[:2]

    def run(self, policy: str, mix: str = "philly", jobs: int = 0) -> GimbalRun:
        """Returns the run of a policy on a mix."""
        return gimbal_run(GimbalWorkload(mix, 0, self.data, jobs), policy)

    def pair(self, mix: str, upper: UpperScheduler) -> tuple[GimbalRun, GimbalRun]:
        """Returns a scheduler alone and under GIMBAL on a mix."""
        return self.run(upper.alone, mix), self.run(upper.under(), mix)

    def ablation(self, upper: UpperScheduler) -> dict[str, GimbalRun]:
        """Returns a scheduler alone, then with one mechanism more at a time."""
        policies = {"alone": upper.alone, **{step: upper.under(step) for step in STEPS}}
        return {step: self.run(p, "philly", ABLATION_JOBS) for step, p in policies.items()}

    def at(self, upper: UpperScheduler, xi: str | float) -> tuple[GimbalRun, GimbalRun]:
        """Returns a scheduler alone and under GIMBAL at an interference ratio."""
        alone, under = self.pair("philly", upper)
        return alone.varied(interference=xi), under.varied(interference=xi)

    def free_at(self, xi: str | float) -> GimbalRun:
        """Returns Lucid packing anybody at an interference ratio, without the two mechanisms."""
        return self.run(BOLD.under(STEPS[0])).varied(interference=xi)

    def packings(self) -> list[tuple[UpperScheduler, str, GimbalRun]]:
        """Returns other ways to pack, one thing changed at a time."""
        scored = [
            (
                LUCID,
                f"scores of {score} together",
                LUCID.under().replace("limit=3", f"limit={score}"),
            )
            for score in SCORES
        ]
        others = [
            way
            for upper in UPPERS
            for way in (
                (upper, "relaxed, without GIMBAL", upper.relaxed_alone),
                (upper, "with GIMBAL, equal sizes only", upper.equal_under),
            )
        ]
        return [(upper, words, self.run(policy)) for upper, words, policy in (*scored, *others)]

    def seeds_of(self, run: PaperRun[W]) -> int:
        """Returns the number of workloads that a run is played on."""
        on_alibaba = isinstance(run, GimbalRun) and run.workload.mix == "alibaba"
        return self.gavel_seeds if on_alibaba and "gavel" in run.policy else self.seeds

    def gain(self, better: GimbalRun, than: GimbalRun, what: str, seeds: int = 0) -> Gain:
        """Returns the factor by which one run is better than another, seed by seed.

        A count or a queue may be 0: that seed counts half a job, or a second.
        """
        least = 0.5 if what in MORE_IS_BETTER else 1 / HOUR_S
        mine, theirs = (np.maximum(self.each(r, what, seeds), least) for r in (better, than))
        ratios: Floats = mine / theirs if what in MORE_IS_BETTER else theirs / mine
        return gain_of(ratios.tolist())

    def gain_on(self, mix: str, upper: UpperScheduler, what: str = "") -> Gain:
        """Returns how much GIMBAL gains a scheduler on a mix."""
        alone, under = self.pair(mix, upper)
        return self.gain(under, alone, what or upper.measure)

    def gain_at(self, upper: UpperScheduler, xi: str | float) -> Gain:
        """Returns how much GIMBAL gains a scheduler at an interference ratio."""
        alone, under = self.at(upper, xi)
        return self.gain(under, alone, upper.measure, self.few)

    def runs(self) -> Sequence[Playable]:
        """Returns every run on the workloads of its seeds."""
        whole = [
            run
            for mix in self.mixes
            for upper in self.uppers(mix)
            for run in (*self.pair(mix, upper), self.run(SLURM, mix))
        ]
        whole += [run for upper in UPPERS for run in self.ablation(upper).values()]
        few = [run for upper in SWEPT for xi in XIS for run in self.at(upper, xi)]
        few += [self.free_at(xi) for xi in XIS]
        few += [] if self.is_quick else self._assumptions()
        return [*self.all_on_seeds(whole), *self.all_on_seeds(few, self.few)]

    def _assumptions(self) -> list[GimbalRun]:
        varied = [run for words, run in variations(self).items() if words != "as above"]
        runs = [run.under(p) for run in varied for upper in UPPERS for p in upper.both]
        return runs + [run for _, _, run in self.packings()]


SCORES = (2, 4)
"""Other thresholds of Lucid's score than 3; the paper relaxes it and does not say how far."""


def variations(experiment: GimbalExperiment) -> Mapping[str, GimbalRun]:
    """Returns what is not published, varied one at a time, for the policies to be put in."""
    base = experiment.run("")
    workload = base.workload
    return {
        "as above": base,
        **{f"offered load {x:g}": base.on(replace(workload, load=x)) for x in (1.0, 4.0)},
        "lengths whatever the class": base.on(replace(workload, lengths="any")),
        "the zoo's own batches": base.on(replace(workload, batches="default")),
        "no job longer than an eighth": base.on(replace(workload, longest=0.125)),
        "no stand-in that waits for its disk": base.on(replace(workload, models="on the GPU")),
        **{
            f"limits cost {s:g} s": base.varied(
                switching=Switching.parse(f"restart:30,limit:{s:g}")
            )
            for s in (0.0, 10.0)
        },
        "stopping and limits free": base.varied(switching=Switching.parse("none")),
    }

"""The runs of the GIMBAL paper: a scheduler on a workload, and paired gains over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

import dovetail.policies  # registers the policies
from dovetail.core.cluster import Cluster
from dovetail.core.errors import DovetailError
from dovetail.core.job import Floats
from dovetail.core.policy import parse_policy
from dovetail.core.switching import Switching
from dovetail.core.units import HOUR_S
from dovetail.record.result import RunResult
from dovetail.study.options import Options
from dovetail.study.run import simulate
from papers.frame.results import Numbers, Results
from papers.frame.scope import Scope
from papers.gimbal.workloads import CLASSES, GimbalWorkload, data_of

assert dovetail.policies

QUANTILES, POINTS = 60, 60
SLURM = "backfill"
SWITCHING = "restart:30,limit:3.6"
LIMIT_COSTS_S = (0.0, 3.6, 10.0)
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
class GimbalRun:
    """One scheduler on one workload."""

    workload: GimbalWorkload
    policy: str
    interference: str | float = "measured"
    switching: str = SWITCHING

    def play(self) -> Numbers:
        """Returns means in hours, deadlines met by class, quantiles, and throughput over time."""
        trace = self.workload.trace()
        options = Options(
            Cluster.parse(f"{self.workload.nodes}x2:A40"),
            switching=Switching.parse(self.switching),
            interference=self.interference,
            seed=self.workload.seed,
        )
        result = simulate(trace, parse_policy(self.policy), options)
        if result.summary["finished"] != len(trace):
            raise DovetailError(f"{self.policy}: not all jobs of {self.workload} finished")
        jobs = result.jobs
        jct_s = jobs["jct_s"].to_numpy()
        met = jobs["finish_s"].to_numpy() <= trace.jobs.deadline_s + 1e-6
        # Those of the result are in the order of the trace: both are by submission.
        longer = trace.duration_s >= np.median(trace.duration_s)
        of_class = np.array([name.partition("-")[0] for name in jobs["job_id"].to_list()])
        numbers = {
            "jct": float(jct_s.mean()) / HOUR_S,
            "jct longer": float(jct_s[longer].mean()) / HOUR_S,
            "jct shorter": float(jct_s[~longer].mean()) / HOUR_S,
            "queue": float(jobs["queue_s"].to_numpy().mean()) / HOUR_S,
            "makespan": float(result.number("makespan_s") or 0.0) / HOUR_S,
            "met": float(met.sum()),
            **{f"met {c}": float(met[of_class == c].sum()) for c in CLASSES},
        }
        points = np.quantile(jct_s, np.linspace(0, 1, QUANTILES)) / HOUR_S
        numbers |= {f"q{i}": float(q) for i, q in enumerate(points)}
        return numbers | _throughput(result, self.workload)


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
    done = np.interp(edges, np.concatenate([at[:1], ends]), area)
    averages = np.diff(done) / np.diff(edges)
    return {"peak": float(averages.max()), **{f"t{i}": float(a) for i, a in enumerate(averages)}}


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times better, the geometric mean of paired runs, and its 95 % interval."""

    mean: float
    low: float
    high: float
    runs: int

    @property
    def words(self) -> str:
        """Returns the interval as rows say it."""
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


class GimbalExperiment:
    """The runs of a paper by seed."""

    def __init__(self, results: Results, scope: Scope) -> None:
        self.results = results
        self.data = data_of(scope)
        self.quick = scope.effort == "quick"
        self.seeds = scope.seeds or scope.chosen(2, 10, 30)
        self.few = min(self.seeds, scope.seeds or scope.chosen(1, 3, 30))
        # Gavel's programmes of 300 jobs take most of the time.
        self.gavel_seeds = min(self.seeds, scope.seeds or scope.chosen(0, 2, 30))

    @property
    def mixes(self) -> tuple[str, ...]:
        """Returns the mixes that are played: a quick one leaves the larger one out."""
        return ("philly",) if self.quick else ("philly", "alibaba")

    def uppers(self, mix: str) -> tuple[UpperScheduler, ...]:
        """Returns the schedulers played on a mix."""
        return UPPERS if mix == "philly" or self.gavel_seeds else UPPERS[:2]

    def workload(self, mix: str = "philly", jobs: int = 0) -> GimbalWorkload:
        """Returns the first workload of a mix."""
        return GimbalWorkload(mix, 0, self.data, jobs)

    def seeds_of(self, run: GimbalRun, few: bool) -> int:
        """Returns how many workloads a run is played on."""
        if run.workload.mix == "alibaba" and "gavel" in run.policy:
            return self.gavel_seeds
        return self.few if few else self.seeds

    def runs(self, run: GimbalRun, few: bool = False) -> list[GimbalRun]:
        """Returns a run on the workload of each seed."""
        seeds = range(self.seeds_of(run, few))
        return [replace(run, workload=replace(run.workload, seed=seed)) for seed in seeds]

    def prepare(self, runs: Sequence[tuple[GimbalRun, bool]]) -> None:
        """Plays runs on all their seeds at once, so that one bar shows all of it."""
        self.results.play([one for run, few in runs for one in self.runs(run, few)])

    def each(self, run: GimbalRun, what: str, few: bool = False) -> list[float]:
        """Returns one number of each seed."""
        return self.results.each(self.runs(run, few), what)

    def mean(self, run: GimbalRun, what: str, few: bool = False) -> float:
        """Returns the mean of a number over the seeds."""
        return self.results.mean(self.runs(run, few), what)

    def means(self, run: GimbalRun, what: Sequence[str]) -> list[float]:
        """Returns the means of several numbers."""
        return [self.mean(run, name) for name in what]

    def gain(self, better: GimbalRun, than: GimbalRun, what: str, few: bool = False) -> Gain:
        """Returns how many times better one run is than another, seed by seed.

        A count or a queue may be 0: that seed counts half a job, or a second.
        """
        least = 0.5 if what in MORE_IS_BETTER else 1 / HOUR_S
        mine, theirs = (np.maximum(self.each(run, what, few), least) for run in (better, than))
        ratios: Floats = mine / theirs if what in MORE_IS_BETTER else theirs / mine
        return gain_of(ratios.tolist())


def variations(experiment: GimbalExperiment) -> Mapping[str, GimbalRun]:
    """Returns what is not published, varied one at a time; the policy is that of the base."""
    workload = experiment.workload()
    base = GimbalRun(workload, "")
    varied = {"as above": base}
    varied |= {
        f"offered load {x:g}": replace(base, workload=replace(workload, load=x)) for x in (1.0, 4.0)
    }
    varied |= {
        "lengths whatever the class": replace(base, workload=replace(workload, lengths="any")),
        "the zoo's own batches": replace(base, workload=replace(workload, batches="default")),
        "no job longer than an eighth": replace(base, workload=replace(workload, longest=0.125)),
        "no stand-in that waits for its disk": replace(
            base, workload=replace(workload, models="on the GPU")
        ),
    }
    varied |= {
        f"limits cost {s:g} s": replace(base, switching=f"restart:30,limit:{s:g}")
        for s in LIMIT_COSTS_S
        if s != 3.6
    }
    varied["stopping and limits free"] = replace(base, switching="none")
    return varied

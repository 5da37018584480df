"""What the A-SRPT study plays: sweeps, each with one thing that varies along an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from papers.a_srpt_checks import BoundTrial, LogTrial, PlacementTrial
from papers.a_srpt_trial import (
    FOREST,
    KNOWN,
    SERVERS,
    TAUGHT,
    ASrptTrial,
    Bed,
)
from papers.a_srpt_workload import SCALE, Jobs
from papers.setting import Setting
from papers.trials import Numbers, Trial

OURS = "a-srpt"
STRICT = ("spjf", "spwf")
BASELINES = (*STRICT, "wcs-duration", "wcs-workload", "wcs-subtime")
OTHERS = ("sjf", "srsf", "backfill")
"""Not in the paper. They pack jobs into few servers, whatever those communicate."""
NAMES = {
    "a-srpt": "A-SRPT", "spjf": "SPJF", "spwf": "SPWF", "wcs-duration": "WCS-Duration",
    "wcs-workload": "WCS-Workload", "wcs-subtime": "WCS-SubTime", "sjf": "SJF", "srsf": "SRSF",
    "backfill": "Backfill",
}  # fmt: skip
MEAN = f"{TAUGHT}:mean"
"""What sweeps are told: what the forest comes to, without its trainings (`told` holds both)."""
LOAD = 1.0
HIGH = 1.5
VARIED = {
    **{f"tau = {tau:g}": f"{OURS}:tau={tau:g}" for tau in (0.0, 0.5, 1.0, 2.0)},
    "others start meanwhile, tau = 1": f"{OURS}:nonblocking-delay=true",
    "replicas refined, tau = 1": f"{OURS}:replicas=refined",
}
"""What may be said of waiting for a better placement, and of finding one."""
TOLD = {
    "perfect": KNOWN,
    "forest": FOREST,
    "median": f"{TAUGHT}:median",
    "mean": MEAN,
    "boosted": f"{TAUGHT}:boosted",
    "forest, learned in the run alone": "predicted:forest",
}
LOGS = {
    "Philly": "traces/dirlab/philly_data_training.first12000.csv.gz",
    "Helios": "traces/dirlab/helios_data_training.first12000.csv.gz",
}
METHODS = ("forest", "median", "mean", "boosted", "overall")
SETS = 3
SET_JOBS = 75
PLACED = {"vgg19": 16, "gpt-175b": 64}
"""GPUs of Table II's jobs; the paper names no count."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Policies along an axis; each point is played once for each seed."""

    title: str
    axis: str
    points: tuple[tuple[float, Jobs, Bed], ...]
    told: str
    policies: tuple[str, ...]
    seeds: int

    @property
    def at(self) -> tuple[float, ...]:
        """Returns the values along the axis."""
        return tuple(x for x, _, _ in self.points)

    def trials(self, x: float, policy: str) -> list[ASrptTrial]:
        """Returns the runs of a policy at a point, one for each seed."""
        jobs, bed = next((j, b) for at, j, b in self.points if at == x)
        return [
            ASrptTrial(replace(jobs, seed=s), policy, self.told, bed) for s in range(self.seeds)
        ]

    def all(self) -> list[ASrptTrial]:
        """Returns all runs."""
        return [t for x in self.at for p in self.policies for t in self.trials(x, p)]


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is played. `base` is what each sweep changes one thing of, on `bed`."""

    base: Jobs
    bed: Bed
    seeds: int
    sweeps: Mapping[str, Sweep]
    causes: Mapping[str, Sweep]
    sets: tuple[Jobs, ...]
    placed: tuple[PlacementTrial, ...]
    logs: Mapping[tuple[str, str, str], LogTrial]

    def seeded(self, policy: str, told: str = FOREST) -> list[ASrptTrial]:
        """Returns runs of the base, one for each seed."""
        each = [replace(self.base, seed=s) for s in range(self.seeds)]
        return [ASrptTrial(jobs, policy, told, self.bed) for jobs in each]

    def crowded(self, policy: str) -> list[ASrptTrial]:
        """Returns runs of the base at a load at which jobs wait under A-SRPT too."""
        return [replace(t, jobs=replace(t.jobs, load=HIGH)) for t in self.seeded(policy, MEAN)]

    def testbed(self, policy: str, told: str = FOREST) -> list[ASrptTrial]:
        """Returns the runs of a policy on the testbed, one for each set; tau is 0 there."""
        ours = f"{policy}:tau=0" if policy == OURS else policy
        return [ASrptTrial(jobs, ours, told, Bed(testbed=True)) for jobs in self.sets]

    def bounds(self) -> list[BoundTrial]:
        """Returns the bounds of the base."""
        return [BoundTrial(replace(self.base, seed=s), self.bed) for s in range(self.seeds)]

    def trials(self) -> list[Trial]:
        """Returns every run, those that take longest first."""
        sweeps = (*self.sweeps.values(), *self.causes.values())
        runs = [t for sweep in sweeps for t in sweep.all()]
        runs += [t for told in TOLD.values() for t in self.seeded(OURS, told)]
        runs += [t for policy in (*BASELINES, *OTHERS) for t in self.seeded(policy)]
        runs += [t for parameters in VARIED.values() for t in self.crowded(parameters)]
        runs += [t for policy in (OURS, *BASELINES) for t in self.testbed(policy)]
        runs += [t for p in (OURS, *BASELINES) for t in self.testbed(p, KNOWN)]
        runs += [t for policy in BASELINES for t in self.seeded(policy, KNOWN)]
        ordered = sorted(dict.fromkeys(runs), key=_cost, reverse=True)
        return [*self.logs.values(), *self.bounds(), *ordered, *self.placed]


def _cost(trial: ASrptTrial) -> float:
    return trial.jobs.jobs + (0.2 * trial.jobs.total if "forest" in trial.told else 0.0)


class Outcomes:
    """What came of all trials."""

    def __init__(self, of: Mapping[Trial, Numbers]) -> None:
        self._of = of

    def __getitem__(self, trial: Trial) -> Numbers:
        return self._of[trial]

    def mean(self, trials: Sequence[Trial], key: str = "flow_s") -> float:
        """Returns the mean of a number over trials."""
        return sum(self._of[t][key] for t in trials) / len(trials)

    def gains(self, sweep: Sweep, x: float, policies: Sequence[str]) -> dict[str, float]:
        """Returns how much less A-SRPT's total flow time is than that of each policy."""
        ours = self.mean(sweep.trials(x, OURS))
        return {p: 1 - ours / self.mean(sweep.trials(x, p)) for p in policies}


def plan(setting: Setting) -> Plan:
    """Returns what the effort allows."""
    total = setting.chosen(12_000, 50_000, 758_223)
    sizes = tuple(
        setting.chosen(*of)
        for of in ((600, 2500, 37_500), (1200, 5000, 75_000), (2400, 10_000, 150_000))
    )
    quick = setting.effort == "quick"
    seeds = setting.seeds or setting.chosen(1, 1, 5)
    bed = Bed(setting.chosen(50, SERVERS, SERVERS))
    base = Jobs(total, sizes[1], load=LOAD, gpus=bed.gpus)
    return Plan(
        base,
        bed,
        seeds,
        _sweeps(base, bed, sizes[::2] if quick else sizes, setting.effort, seeds),
        _causes(base, bed, seeds),
        tuple(_set(total, n) for n in range(SETS)),
        tuple(
            PlacementTrial(model, gpus, case, setting.chosen(3, 20, 120))
            for model, gpus in PLACED.items()
            for case in range(setting.chosen(2, 10, 20))
        ),
        {
            (log, method, protocol): LogTrial(str(setting.path(file)), method, protocol)
            for log, file in LOGS.items()
            if setting.has(file)
            for method in METHODS
            for protocol in ("held out", "online")
            if not (quick and (method in ("forest", "boosted") or protocol == "online"))
        },
    )


def _set(total: int, number: int) -> Jobs:
    """Returns one of the testbed's sets: jobs at the trace's own pace, in a tenth of its time."""
    return Jobs(total, SET_JOBS, seed=number, widest=8, faster=SCALE)


def _causes(base: Jobs, bed: Bed, seeds: int) -> dict[str, Sweep]:
    """Returns Figure 7's last point with one thing, then two, taken away."""
    wide, no_cost = replace(base, single=0.0), replace(bed, nic_gbit=LIKE_NVLINK_GBIT)
    return {
        words: Sweep(words, "", ((0.0, wide, on),), told, (OURS, *BASELINES), seeds)
        for words, on, told in (
            ("as played", bed, MEAN),
            ("all lengths known", bed, KNOWN),
            ("spreading costs nothing", no_cost, MEAN),
            ("both", no_cost, KNOWN),
        )
    }


LIKE_NVLINK_GBIT = 8 * 8 * 300.0
"""Each of a server's eight GPUs has 300 GB/s to other servers, as inside."""
AXES = {
    "loads": {
        "quick": (0.05, 0.5, 1.0, 1.5),
        "default": (0.05, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0),
        "full": (0.05, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0),
    },
    "singles": {
        "quick": (0.8, 0.0),
        "default": (0.8, 0.6, 0.3, 0.0),
        "full": (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0),
    },
    "nics": {
        "quick": (1.0, 50.0),
        "default": (1.0, 10.0, 50.0),
        "full": (1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0),
    },
    "recurrent": {
        "quick": (0.0, 0.9),
        "default": (0.0, 0.3, 0.6, 0.9),
        "full": (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9),
    },
}


def _sweeps(
    base: Jobs, bed: Bed, sizes: tuple[int, ...], effort: str, seeds: int
) -> dict[str, Sweep]:
    paper = (OURS, *BASELINES)
    loads, singles, nics, recurrent = (AXES[axis][effort] for axis in AXES)
    kept = replace(base, as_asked=True)
    wide = replace(kept, single=0.0)

    def made(
        title: str,
        axis: str,
        points: list[tuple[float, Jobs, Bed]],
        policies: tuple[str, ...] = paper,
    ) -> Sweep:
        return Sweep(title, axis, tuple(points), MEAN, policies, seeds)

    def shared(start: Jobs) -> list[tuple[float, Jobs, Bed]]:
        return [(100 * s, replace(start, single=s), bed) for s in singles]

    def linked(start: Jobs) -> list[tuple[float, Jobs, Bed]]:
        return [(g, replace(start, single=0.0), replace(bed, nic_gbit=g)) for g in nics]

    counts = [(float(n), replace(base, jobs=n), bed) for n in sizes]
    return {
        "jobs": made("Figure 6: number of jobs", "jobs", counts),
        "singles": made("Figure 7: jobs on one GPU", "jobs on one GPU (%)", shared(base)),
        "singles kept": made(
            f"Figure 7 with the load kept at {LOAD:g}", "jobs on one GPU (%)", shared(kept)
        ),
        "nic": made("Figure 8: NIC bandwidth", "NIC (Gbit/s)", linked(base)),
        "nic kept": made(f"Figure 8 with the load kept at {LOAD:g}", "NIC (Gbit/s)", linked(kept)),
        "load": made(
            "Load: 70 % of jobs on one GPU",
            "offered load",
            [(x, replace(base, load=x), bed) for x in loads],
            policies=(*paper, *OTHERS),
        ),
        "load wide": made(
            "Load: no job on one GPU",
            "offered load",
            [(x, replace(wide, load=x), bed) for x in (0.25, *loads[1:5])],
            policies=(*paper, *OTHERS),
        ),
        "recurrence": made(
            "Share of jobs in groups of five or more",
            "recurrent jobs (%)",
            [(100 * r, replace(base, recurrent=r), bed) for r in recurrent],
        ),
    }

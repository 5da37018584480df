"""What the AFS study plays: which traces at which sizes, under which policies, with which seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from dovetail.study.reproduce.afs_toy import ToyTrial
from dovetail.study.reproduce.afs_trial import AfsTrial
from dovetail.study.reproduce.afs_workload import (
    GENERATED,
    NODES,
    VirtualCluster,
    Workload,
    available,
)
from dovetail.study.reproduce.setting import Setting
from dovetail.study.reproduce.trials import Numbers, Trial

AWARE = ("srtf", "srsf", "optimus", "afs-l")
UNAWARE = ("tiresias", "themis", "optimus", "max-min", "afs-p")
"""The two categories of section 5.1. Optimus is in both: its estimates are taken to be right."""
MAXIMAL = ("srtf-max", "srsf-max", "tiresias-max")
ALTRUISTIC = ("srtf-e", "srsf-e")
NAMES = {
    "srtf": "SRTF", "srsf": "SRSF", "optimus": "Optimus", "afs-l": "AFS-L",
    "tiresias": "Tiresias-L", "themis": "Themis", "max-min": "Max-Min", "afs-p": "AFS-P",
    "afs-s": "AFS-S", "srtf-e": "SRTF-E", "srsf-e": "SRSF-E", "srtf-max": "SRTF-max",
    "srsf-max": "SRSF-max", "tiresias-max": "Tiresias-max",
}  # fmt: skip

LOADS = (0.7, 1.0, 1.5)
CODDL = "restart:30,prepared:10"
RUNTIMES = {CODDL: "CoDDL", f"{CODDL},one-by-one": "no RC", "restart:30": "no RC/ES"}
"""The runtimes of Figure 8: without cancelling outdated orders, without preparing GPUs."""
DAYS = (50, 116)


@dataclass(frozen=True, slots=True)
class Case:
    """A workload on one cluster: what Figures 5, 6, 9, 11, 13 have one group of bars for."""

    workload: Workload
    nodes: int
    policies: tuple[str, ...]
    seeds: int
    load: float | None = None
    detailed: bool = False

    @property
    def words(self) -> str:
        """Returns the size as parts of the report say it."""
        if self.load is None:
            return f"{4 * self.nodes} GPUs"
        return f"load {self.load:g}, {4 * self.nodes} GPUs"

    def trial(self, policy: str, seed: int) -> AfsTrial:
        """Returns the run of one policy with one draw of models."""
        return AfsTrial(
            self.workload, policy, self.nodes, seed, detailed=self.detailed and seed == 0
        )

    def trials(self) -> list[AfsTrial]:
        """Returns the runs of all policies and draws."""
        return [self.trial(p, s) for p in self.policies for s in range(self.seeds)]


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is played; `varied` runs vary one thing, `clusters` are the files that are there."""

    cases: tuple[Case, ...]
    live: tuple[AfsTrial, ...]
    days: tuple[AfsTrial, ...]
    varied: tuple[tuple[str, AfsTrial], ...]
    toys: tuple[ToyTrial, ...]
    clusters: tuple[tuple[VirtualCluster, str], ...]

    def trials(self) -> list[Trial]:
        """Returns every run, those that take longest first, so that no core idles at the end."""
        runs = [t for case in self.cases for t in case.trials()]
        runs += [*self.live, *self.days, *(trial for _, trial in self.varied)]
        ordered = sorted(runs, key=_cost, reverse=True)
        return [*ordered, *self.toys]


class Outcomes:
    """What came of all trials."""

    def __init__(self, of: Mapping[Trial, Numbers]) -> None:
        self._of = of

    def __getitem__(self, trial: Trial) -> Numbers:
        return self._of[trial]

    def mean(self, case: Case, policy: str, key: str = "avg_jct_s") -> float:
        """Returns a number of a policy as an average over the draws of models."""
        return fmean(self._of[case.trial(policy, s)][key] for s in range(case.seeds))

    def draws(self, case: Case, smaller: str, larger: str) -> int:
        """Returns in how many draws one policy's mean JCT is at most the other's."""
        from dovetail.study.reproduce.finding import at_most

        pairs = [
            [self._of[case.trial(p, s)]["avg_jct_s"] for p in (smaller, larger)]
            for s in range(case.seeds)
        ]
        return sum(at_most(a, b) for a, b in pairs)


SLOW = {"themis": 12.0, "afs-p": 6.0, "afs-s": 6.0, "max-min": 2.0}
"""How much longer these take than others: rounds and units end although nothing happens."""


def _cost(trial: AfsTrial) -> float:
    name = trial.policy.partition(":")[0]
    return len(trial.workload) * SLOW.get(name, 1.0) / trial.nodes


def plan(setting: Setting) -> Plan:
    """Returns what the effort allows on the traces that are there, else on generated months."""
    clusters = available(setting)
    workloads = [_workload(setting, vc) for vc in clusters if _is_played(setting, vc)]
    if not workloads:
        months = setting.chosen(2, 3, 3)
        workloads = [Workload(f"like {n}", n) for n, _, _ in GENERATED[:months]]
    cases = tuple(case for w in workloads for case in _cases(setting, w))
    example = next((w for w in workloads if w.number == 9), workloads[0])
    toys = [
        ToyTrial(policy, hours) for policy in ("srtf", "max-min") for hours in (0.0, *FOLLOWER_H)
    ]
    return Plan(
        cases,
        tuple(_live(example)),
        tuple(_days(setting)),
        tuple(_varied(setting, example)),
        tuple(toys),
        tuple((vc, str(setting.path(vc.file))) for vc in clusters),
    )


FOLLOWER_H = (1.1, 1.25, 1.4, 1.6, 1.75, 1.9)
"""Hours that each later job of appendix A takes on two GPUs."""

QUICK = (4, 9)
LARGE_JOBS = 5000
SLICE_DAYS = 14.0
"""Clusters with more jobs than that are played in their busiest two weeks, unless in full."""


def _is_played(setting: Setting, vc: VirtualCluster) -> bool:
    return setting.effort != "quick" or vc.number in QUICK


def _workload(setting: Setting, vc: VirtualCluster) -> Workload:
    slice_days = SLICE_DAYS if vc.jobs > LARGE_JOBS and setting.effort != "full" else 0.0
    return Workload(vc.name, vc.number, str(setting.path(vc.file)), busiest_days=slice_days)


def _cases(setting: Setting, workload: Workload) -> list[Case]:
    seeds = setting.seeds or setting.chosen(1, 3, 20)
    both = tuple(dict.fromkeys((*AWARE, *UNAWARE)))
    every = (*both, "afs-s", *ALTRUISTIC, *MAXIMAL)
    cases = [Case(workload, NODES, every, seeds, detailed=workload.number in (1, 9))]
    loads = setting.chosen(0, len(LOADS), len(LOADS))
    return cases + [
        Case(workload, workload.nodes_for(load), both, seeds, load) for load in LOADS[:loads]
    ]


def _live(example: Workload) -> list[AfsTrial]:
    """Returns Figure 7a: time a hundred times as fast, real switches on a real cluster."""
    squeezed = Workload(example.name, example.number, example.file, squeezed=100.0)
    policies = ("tiresias", "themis", "optimus", "afs-p")
    return [AfsTrial(squeezed, p, switching=CODDL) for p in policies]


def _days(setting: Setting) -> list[AfsTrial]:
    """Returns Figure 8: two days of trace 10 under AFS-P, on three runtimes."""
    vc = next((vc for vc in available(setting) if vc.number == 10), None)
    if vc is None:
        return []
    seeds = setting.seeds or setting.chosen(2, 8, 20)
    return [
        AfsTrial(
            Workload(vc.name, vc.number, str(setting.path(vc.file)), day=day),
            "afs-p",
            seed=seed,
            switching=words,
            detailed=True,
        )
        for day in DAYS
        for words in RUNTIMES
        for seed in range(seeds)
    ]


def _varied(setting: Setting, example: Workload) -> Sequence[tuple[str, AfsTrial]]:
    """Returns runs in which one free choice differs from what the rest uses."""
    policies = ("max-min", "afs-l", "afs-p")
    varied = [
        (f"{NAMES[p]}, models as in the file", AfsTrial(example, p, models="file"))
        for p in policies
        if example.file
    ]
    for words, policy in (
        ("AFS-P, unit of half an hour", "afs-p:unit-s=1800"),
        ("AFS-P, unit of eight hours", "afs-p:unit-s=28800"),
        ("AFS-P, ties drawn by lot", "afs-p:tie=random"),
        ("Max-Min, least recently served first", "max-min:overflow=least-recent"),
    ):
        varied.append((words, AfsTrial(example, policy)))
    return varied if setting.effort != "quick" else varied[: len(policies)]

"""What the AFS study plays: which traces at which sizes, under which policies, with which seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from papers.afs_toy import ToyTrial
from papers.afs_trial import AfsTrial
from papers.afs_workload import (
    GENERATED,
    NODES,
    VirtualCluster,
    Workload,
    available,
)
from papers.finding import at_most
from papers.setting import Setting
from papers.trials import Numbers, Trial

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

AUTHORS = -1
"""The draw of models that the files hold: the one the paper's own numbers are from."""

LOADS = (0.7, 1.0, 1.5)
CODDL = "restart:30,prepared:10"
RUNTIMES = {
    CODDL: "CoDDL",
    f"{CODDL},one-by-one": "no RC",
    "restart:30,one-by-one": "no RC/ES",
}
"""The runtimes of Figure 8: without cancelling outdated orders, and without preparing GPUs too."""
DAYS = (50, 116)
TOLD_S = (600.0, 1800.0, 3600.0, 14400.0)
"""Seconds that the monitored job of Figure 8a may take on one GPU: the paper does not say."""


@dataclass(frozen=True, slots=True)
class Case:
    """A workload on one cluster: what Figures 5, 6, 9, 11, 13 have one group of bars for."""

    workload: Workload
    nodes: int
    policies: tuple[str, ...]
    draws: tuple[int, ...]
    load: float | None = None
    detailed: bool = False

    @property
    def words(self) -> str:
        """Returns the size as parts of the report say it."""
        if self.load is None:
            return f"{4 * self.nodes} GPUs"
        return f"load {self.load:g}, {4 * self.nodes} GPUs"

    def trial(self, policy: str, draw: int) -> AfsTrial:
        """Returns the run of one policy with one draw of models."""
        return AfsTrial(
            self.workload,
            policy,
            self.nodes,
            max(draw, 0),
            "file" if draw == AUTHORS else "drawn",
            detailed=self.detailed and draw == self.draws[0],
        )

    def played(self, policy: str) -> tuple[int, ...]:
        """Returns the draws in which a policy is played: Themis, whose leases take long, in one."""
        return self.draws[:1] if policy == "themis" else self.draws

    def trials(self) -> list[AfsTrial]:
        """Returns the runs of all policies and draws."""
        return [self.trial(p, d) for p in self.policies for d in self.played(p)]


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

    def first(self, case: Case, policy: str, key: str = "avg_jct_s") -> float:
        """Returns a number of a policy in the first draw, the authors' own if the file has it."""
        return self._of[case.trial(policy, case.draws[0])][key]

    def mean(self, case: Case, policy: str, key: str = "avg_jct_s") -> float:
        """Returns a number of a policy as an average over the draws of models."""
        return fmean(self._of[case.trial(policy, d)][key] for d in case.played(policy))

    def ratio(self, case: Case, over: str, under: str) -> float:
        """Returns the mean JCT of one policy over that of another, in the draws both played."""
        both = [d for d in case.played(over) if d in case.played(under)]
        above, below = (
            fmean(self._of[case.trial(p, d)]["avg_jct_s"] for d in both) for p in (over, under)
        )
        return above / below

    def won(self, case: Case, policy: str, others: Sequence[str]) -> int:
        """Returns in how many draws no other policy has a smaller mean JCT, ties apart."""
        return sum(
            all(
                at_most(*(self._of[case.trial(p, d)]["avg_jct_s"] for p in (policy, other)))
                for other in others
                if d in case.played(other)
            )
            for d in case.draws
        )


SLOW = {"themis": 12.0, "afs-p": 6.0, "afs-s": 6.0, "max-min": 2.0}
"""How much longer these take than others: rounds and units end although nothing happens."""


def _cost(trial: AfsTrial) -> float:
    name = trial.policy.partition(":")[0]
    return len(trial.workload) * SLOW.get(name, 1.0) / trial.nodes


def plan(setting: Setting) -> Plan:
    """Returns what the effort allows on the traces that are there, else on generated months."""
    clusters = available(setting)
    workloads = [
        Workload(vc.name, vc.number, str(setting.path(vc.file)))
        for vc in clusters
        if _is_played(setting, vc)
    ]
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
LARGE_JOBS, HUGE_JOBS = 5000, 30_000
"""Unless in full, larger traces than these are played with one draw at 64 GPUs and one load, and
under the policies of Figure 5 at 64 GPUs alone."""
ONE_LOAD = 1.0


def _is_played(setting: Setting, vc: VirtualCluster) -> bool:
    return setting.effort != "quick" or vc.number in QUICK


def _cases(setting: Setting, workload: Workload) -> list[Case]:
    both = tuple(dict.fromkeys((*AWARE, *UNAWARE)))
    every = (*both, "afs-s", *ALTRUISTIC, *MAXIMAL)
    seeds = range(setting.seeds or setting.chosen(0, 1, 20))
    loads = LOADS[: setting.chosen(0, len(LOADS), len(LOADS))]
    if setting.effort != "full":
        both = tuple(p for p in both if p != "themis")
    if setting.effort != "full" and len(workload) > LARGE_JOBS:
        huge = len(workload) > HUGE_JOBS
        seeds, loads = range(0), () if huge else (ONE_LOAD,)
        every = both if huge else tuple(p for p in every if p != "themis")
    draws = (AUTHORS, *seeds) if workload.file else tuple(seeds or range(1))
    sizes = [(None, NODES, every), *((x, workload.nodes_for(x), both) for x in loads)]
    return [
        Case(workload, nodes, policies, draws, load, load is None and workload.number in DETAILED)
        for load, nodes, policies in sizes
    ]


DETAILED = (1, 9)
"""The traces whose QL, CE, BI and single jobs are drawn: one of each kind of contention."""


def _live(example: Workload) -> list[AfsTrial]:
    """Returns Figure 7a: time a hundred times as fast, real switches on a real cluster."""
    squeezed = Workload(example.name, example.number, example.file, squeezed=100.0)
    policies = ("tiresias", "themis", "optimus", "afs-p")
    return [AfsTrial(squeezed, p, models="file", switching=CODDL) for p in policies]


def _days(setting: Setting) -> list[AfsTrial]:
    """Returns Figure 8: two days of trace 10, and its first day as told, on three runtimes."""
    vc = next((vc for vc in available(setting) if vc.number == 10), None)
    seeds = setting.seeds or setting.chosen(2, 4, 20)
    scenes = [Workload("as told", 10, told_s=length_s) for length_s in TOLD_S]
    if vc is not None:
        file = str(setting.path(vc.file))
        scenes += [Workload(vc.name, vc.number, file, day=day) for day in DAYS]
    return [
        AfsTrial(scene, "afs-p", seed=seed, switching=words, detailed=True)
        for scene in scenes
        for words in RUNTIMES
        for seed in range(seeds)
    ]


def _varied(setting: Setting, example: Workload) -> Sequence[tuple[str, AfsTrial]]:
    """Returns runs in which one free choice differs from what the rest uses."""
    policies = ("max-min", "afs-l", "afs-p")
    varied = [
        (f"{NAMES[p]}, models drawn with seed {seed}", AfsTrial(example, p, seed=seed))
        for p in policies
        for seed in range(setting.chosen(1, 2, 2))
    ]
    for words, policy in (
        ("AFS-P, unit of half an hour", "afs-p:unit-s=1800"),
        ("AFS-P, unit of eight hours", "afs-p:unit-s=28800"),
        ("AFS-P, ties drawn by lot", "afs-p:tie=random"),
        ("AFS-P (as elsewhere)", "afs-p"),
        ("Max-Min, least recently served first", "max-min:overflow=least-recent"),
    ):
        varied.append((words, AfsTrial(example, policy, models="file")))
    return varied if setting.effort != "quick" else varied[: len(policies)]

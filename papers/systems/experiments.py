"""The systems compared, one run, the conclusions to test, and what is varied to test them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from dovetail.algorithms.bounds import Powers
from dovetail.core.cluster import Cluster
from dovetail.core.policy import Policy, parse_policy, registered
from dovetail.core.switching import Switching
from dovetail.core.trace import Trace
from dovetail.physics.beliefs.blur import Blur
from dovetail.record.result import RunResult
from dovetail.study.bound import bound
from dovetail.study.options import Options
from papers.frame.experiment import Numbers, PaperRun, require_all_finished
from papers.systems.workloads import GPUS_PER_NODE, NODES, WindowWorkload

SWITCHING = "restart:30,prepared:10"
"""Of all systems: 30 s to resume or to move; a job that keeps GPUs trains on while more start."""
CYCLE = "overlapped"


def owners(elastic: float = 1.0, shareable: float = 1.0) -> tuple[tuple[str, float], ...]:
    """Returns the shares of jobs whose owners allow other sizes, and shared GPUs."""
    return ("elastic", elastic), ("shareable", shareable)


BASE = Options(
    Cluster.parse(f"{NODES}x{GPUS_PER_NODE}"),
    switching=Switching.parse(SWITCHING),
    adopt=owners(),
    cycle=CYCLE,
)
EXCLUSIVE_HOST = replace(BASE, interference="measured,host:1", cycle="barrier,no-contention")
"""The other reading of a host, equation 3 of the Muri paper: one job loads at a time.

In the base a GPU's share of the host feeds 2.875 jobs; no measurement says which is right.
"""
STOPPING = frozenset({"preempt", "migrate", "resize", "change batch"})
"""Powers over running jobs: they cost switches, and need jobs that may be stopped."""


@dataclass(frozen=True, slots=True)
class SystemRun(PaperRun[WindowWorkload]):
    """A policy on a window."""

    def numbers(self, trace: Trace, result: RunResult) -> Numbers:
        """Returns means, tails, deadlines met, and the share of GPU-time that switches take."""
        require_all_finished(self, result)
        busy = sum(result.gpu_seconds[k] for k in ("useful", "slowdown", "switching"))
        return {
            "jct_s": result.number("avg_jct_s") or 0.0,
            "p99_jct_s": result.number("p99_jct_s") or 0.0,
            "makespan_s": result.number("makespan_s") or 0.0,
            "slowdown": float(result.jobs["slowdown"].to_numpy().mean()),
            "met": (result.number("deadline_met") or 0.0) / (result.number("deadline_jobs") or 1.0),
            "switching": result.gpu_seconds["switching"] / busy,
            "preemptions": (result.number("preemptions") or 0.0) / len(trace),
        }


@dataclass(frozen=True, slots=True)
class SystemBound:
    """The bound of a workload for policies with some powers."""

    workload: WindowWorkload
    powers: Powers

    def play(self) -> Numbers:
        """Returns the least mean JCT."""
        options = replace(BASE, seed=self.workload.seed)
        return {"jct_s": bound(self.workload.trace(), options, self.powers).mean_jct_s}


def system_run(policy: str, workload: WindowWorkload, options: Options = BASE) -> SystemRun:
    """Returns the run of a policy, with all that cannot touch it as in the base.

    A policy that never shares does not meet interference, one that knows no lengths meets no
    forecast, and so on: such runs are those of the base, played once.
    """
    touched = parsed(policy)
    felt = _felt(touched)
    plain = {name: getattr(BASE, name) for name in OPTIONS if not felt[name]}
    adopt = tuple((flag, share if felt[flag] else 1.0) for flag, share in options.adopt)
    belief = _heard(options.belief, touched)
    if not touched.powers & STOPPING:
        workload = replace(workload, preemptible=1.0)
    return SystemRun(workload, policy, replace(options, belief=belief, adopt=adopt, **plain))


@lru_cache(maxsize=256)
def parsed(text: str) -> Policy:
    """Returns the policy of a text."""
    return parse_policy(text)


OPTIONS = ("switching", "interference", "cycle", "forecast")


def _felt(policy: Policy) -> Mapping[str, bool]:
    """Returns which options and flags of jobs can touch a policy."""
    powers = policy.powers
    crowds = bool(powers & {"share", "interleave"})
    return {
        "switching": bool(powers & (STOPPING | {"restrict"})),
        "interference": crowds,
        "cycle": "interleave" in powers,
        "forecast": "length" in policy.knows,
        "elastic": "resize" in powers,
        "shareable": crowds,
    }


def _heard(belief: str, policy: Policy) -> str:
    """Returns the part of a belief that is about what a policy must know."""
    blur = Blur.parse(belief)
    words = [
        f"{axis}:{getattr(blur, axis):g}"
        for axis in ("scaling", "interference", "stages", "memory")
        if getattr(blur, axis) and axis in policy.knows
    ]
    return ",".join(words) or "exact"


PACKAGE = "dovetail.policies."
LEFT_OUT = ("no-op", "ticked", "heavy-edge", "slurm", "tenancy")
"""Does nothing; wraps any policy; as it stands, the same as its preset wcs-subtime."""
BASELINE = "srtf"
POLLUX = "pollux:population=20,generations=20"
"""NOTE: it searches a smaller population for fewer generations than its authors' (100 and 100),
which takes a twentieth of the time; what that changes is measured in docs/claims/comparison.md.
That it searches every minute does matter, and stays."""
UNTICKED = {"muri-s(no tick)": "muri-s:tick-s=0", "muri-l(no tick)": "muri-l:tick-s=0"}
"""Muri decides every six minutes, as its authors run it; here at every arrival and end."""
WRAPPED = {
    "gimbal(gandiva-deadline)": "gimbal:inner=gandiva-deadline:unequal=true,goal=deadline",
    "gimbal(gavel)": "gimbal:inner=gavel:unequal=true,goal=makespan",
}
FORMS = ("dovetail:share=false", "dovetail:lengths=false", "afs-l:packing=defragment")
"""Ours without one of its powers, and without lengths; AFS-L with a packer, as ours has one."""
SLOW = ("gandiva", "gandiva-deadline", "gavel", "pollux", "sia", *WRAPPED)
"""Look at everything at every round: played with one seed, at one load, varied in nothing."""


@dataclass(frozen=True, slots=True)
class System:
    """A policy under the name it has in tables."""

    name: str
    text: str

    @property
    def policy(self) -> Policy:
        """Returns the policy itself."""
        return parsed(self.text)

    @property
    def is_slow(self) -> bool:
        """Returns whether it is played less often than the others."""
        return self.name in SLOW

    @property
    def powers_class(self) -> str:
        """Returns which kind of powers it has, the widest one."""
        return powers_class(self.policy.powers)


START, STOP, SHARE, RESIZE = "start only", "stop jobs", "share GPUs", "resize jobs"
CLASSES = (START, STOP, SHARE, RESIZE)


def powers_class(powers: frozenset[str]) -> str:
    """Returns the class of some powers: bounds and comparisons on equal terms go by it."""
    if "resize" in powers:
        return RESIZE
    if powers & {"share", "interleave"}:
        return SHARE
    return STOP if "preempt" in powers else START


def systems() -> list[System]:
    """Returns all that is compared: every policy of the package, with its default parameters."""
    ours = (name for name, cls in registered().items() if cls.module.startswith(PACKAGE))
    texts = {name: name for name in (*ours, *FORMS) if name not in LEFT_OUT}
    texts |= {"gimbal(lucid)": texts.pop("gimbal"), **WRAPPED, **UNTICKED, "pollux": POLLUX}
    return [System(name, text) for name, text in texts.items()]


@dataclass(frozen=True, slots=True)
class RankingClaim:
    """The claim that one system has a smaller mean JCT than another, and its source."""

    better: str
    worse: str
    said_by: str

    @property
    def words(self) -> str:
        """Returns the claim as a phrase."""
        return f"{self.better} before {self.worse}"


PAPERS = (
    RankingClaim("afs-l", "srtf", "AFS"),
    RankingClaim("afs-l", "optimus", "AFS"),
    RankingClaim("afs-p", "tiresias", "AFS"),
    RankingClaim("afs-p", "themis", "AFS"),
    RankingClaim("sjf-bsbf", "sjf", "SJF-BSBF"),
    RankingClaim("sjf-bsbf", "sjf-ffs", "SJF-BSBF"),
    RankingClaim("sjf-bsbf", "tiresias", "SJF-BSBF"),
    RankingClaim("gimbal(lucid)", "lucid", "GIMBAL"),
    RankingClaim("muri-s", "srsf", "Muri"),
    RankingClaim("muri-l", "tiresias", "Muri"),
    RankingClaim("muri-l", "themis", "Muri"),
    RankingClaim("muri-l", "antman", "Muri"),
    RankingClaim("a-srpt", "spjf", "A-SRPT"),
    RankingClaim("a-srpt", "spwf", "A-SRPT"),
    RankingClaim("a-srpt", "wcs-subtime", "A-SRPT"),
    RankingClaim("serverfilling-srpt", "srsf", "ServerFilling"),
)
"""The claims of each paper about its own system and a rival."""
ACROSS = (
    RankingClaim("muri-s(no tick)", "srsf", "nobody"),
    RankingClaim("muri-l(no tick)", "tiresias", "nobody"),
    RankingClaim("afs-l", "muri-s", "nobody"),
    RankingClaim("afs-l", "sjf-bsbf", "nobody"),
    RankingClaim("muri-s", "sjf-bsbf", "nobody"),
    RankingClaim("gimbal(lucid)", "sjf-bsbf", "nobody"),
    RankingClaim("srsf", "sjf-bsbf", "nobody"),
    RankingClaim("wcs-duration", "a-srpt", "nobody"),
    RankingClaim("srsf", "tiresias", "nobody"),
    RankingClaim("afs-p", "srsf", "nobody"),
    RankingClaim("afs-p", "muri-s", "nobody"),
    RankingClaim("srtf-e", "afs-l", "nobody"),
    RankingClaim("dovetail", "afs-l", "nobody"),
    RankingClaim("dovetail:share=false", "afs-l", "nobody"),
)
"""What no paper compares: systems of two papers, a paper's with what is simpler, or with ours."""
CLAIMS = (*PAPERS, *ACROSS)


@dataclass(frozen=True, slots=True)
class Variant:
    """One thing that is other than in the base: of the options, or (by name) of the workloads."""

    axis: str
    words: str
    options: Options = BASE
    load: float = 0.0
    family: str = ""
    preemptible: float = 1.0


UNVARIED = Variant("", "")
BLURS = {
    "scaling": (0.2, 0.5),
    "interference": (0.2, 0.5),
    "stages": (0.3, 0.6),
    "memory": (0.3,),
}
"""How far beliefs are off, by what they are about."""


def variants(loads: tuple[float, ...]) -> list[Variant]:
    """Returns all that is varied, one thing at a time."""
    options = {
        "assumed fields": {
            **{f"interference {x:g}": replace(BASE, interference=x) for x in (1.0, 1.25, 1.5, 2.0)},
            "no contention": replace(BASE, cycle="overlapped,no-contention"),
            "stages with barriers": replace(BASE, cycle="barrier"),
            "one job loads at a time": EXCLUSIVE_HOST,
            "placement is free": replace(BASE, physics="counted"),
            "linear scaling": replace(BASE, physics="linear"),
        },
        "switching costs": {
            **{
                f"costs x {x:g}": replace(BASE, switching=BASE.switching.scaled(x))
                for x in (0.0, 0.3, 3.0, 10.0)
            },
            "every resize restarts": replace(BASE, switching=Switching.parse("restart:30")),
        },
        "beliefs": {
            f"{axis} off by {x:g}": replace(BASE, belief=f"{axis}:{x:g}")
            for axis, spreads in BLURS.items()
            for x in spreads
        },
        "lengths": {
            **{
                f"lengths off by {x:g}": replace(BASE, forecast=f"noisy:{x:g}") for x in (0.5, 1, 2)
            },
            "lengths predicted": replace(BASE, forecast="predicted"),
        },
        "owners' leave": {
            "half elastic": replace(BASE, adopt=owners(elastic=0.5)),
            "none elastic": replace(BASE, adopt=owners(elastic=0.0)),
            "half shareable": replace(BASE, adopt=owners(shareable=0.5)),
            "none shareable": replace(BASE, adopt=owners(shareable=0.0)),
        },
    }
    varied = {
        axis: [Variant(axis, words, one) for words, one in by_words.items()]
        for axis, by_words in options.items()
    }
    families = ("pollux", "muri", "elasticflow", "afs", "asrpt")
    varied["assumed fields"] += [
        Variant("assumed fields", f"models of {f} only", family=f) for f in families
    ]
    varied["owners' leave"] += [
        Variant("owners' leave", "half may be stopped", preemptible=0.5),
        Variant("owners' leave", "none may be stopped", preemptible=0.0),
    ]
    by_load = [Variant("load", f"load {load:g}", load=load) for load in loads]
    return [*(one for each in varied.values() for one in each), *by_load]

"""Who is compared, which conclusions are tried, and what is varied to try them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dovetail.core.policy import Policy, registered
from papers.systems_trial import BASE, World, parsed

PACKAGE = "dovetail.policies."
LEFT_OUT = ("no-op", "ticked")
"""Does nothing; wraps any policy."""
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
SLOW = ("gandiva", "gandiva-deadline", "gavel", "pollux", *WRAPPED)
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
        """Tells whether it is played less often than the others."""
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
    ours = (name for name, cls in registered().items() if cls.__module__.startswith(PACKAGE))
    texts = {name: name for name in ours if name not in LEFT_OUT}
    texts |= {"gimbal(lucid)": texts.pop("gimbal"), **WRAPPED, **UNTICKED, "pollux": POLLUX}
    return [System(name, text) for name, text in texts.items()]


@dataclass(frozen=True, slots=True)
class Claim:
    """That one system finishes the mean job sooner than another, and who says so."""

    better: str
    worse: str
    said_by: str

    @property
    def words(self) -> str:
        """Returns the claim as a phrase."""
        return f"{self.better} before {self.worse}"


PAPERS = (
    Claim("afs-l", "srtf", "AFS"),
    Claim("afs-l", "optimus", "AFS"),
    Claim("afs-p", "tiresias", "AFS"),
    Claim("afs-p", "themis", "AFS"),
    Claim("sjf-bsbf", "sjf", "SJF-BSBF"),
    Claim("sjf-bsbf", "sjf-ffs", "SJF-BSBF"),
    Claim("sjf-bsbf", "tiresias", "SJF-BSBF"),
    Claim("gimbal(lucid)", "lucid", "GIMBAL"),
    Claim("muri-s", "srsf", "Muri"),
    Claim("muri-l", "tiresias", "Muri"),
    Claim("muri-l", "themis", "Muri"),
    Claim("muri-l", "antman", "Muri"),
    Claim("a-srpt", "spjf", "A-SRPT"),
    Claim("a-srpt", "spwf", "A-SRPT"),
    Claim("a-srpt", "wcs-subtime", "A-SRPT"),
)
"""What each paper says of its own system and a rival."""
ACROSS = (
    Claim("muri-s(no tick)", "srsf", "nobody"),
    Claim("muri-l(no tick)", "tiresias", "nobody"),
    Claim("afs-l", "muri-s", "nobody"),
    Claim("afs-l", "sjf-bsbf", "nobody"),
    Claim("muri-s", "sjf-bsbf", "nobody"),
    Claim("gimbal(lucid)", "sjf-bsbf", "nobody"),
    Claim("srsf", "sjf-bsbf", "nobody"),
    Claim("wcs-duration", "a-srpt", "nobody"),
    Claim("srsf", "tiresias", "nobody"),
    Claim("afs-p", "srsf", "nobody"),
    Claim("afs-p", "muri-s", "nobody"),
    Claim("srtf-e", "afs-l", "nobody"),
)
"""What no paper compares: systems of two papers, or a paper's with what is simpler."""
CLAIMS = (*PAPERS, *ACROSS)


@dataclass(frozen=True, slots=True)
class Variant:
    """One thing that is other than in the base: of the world, or (by name) of the beds."""

    axis: str
    words: str
    world: World = BASE
    load: float = 0.0
    family: str = ""
    preemptible: float = 1.0


ASSUMED, COSTS, BELIEFS, LENGTHS, POWERS, LOADS = (
    "assumed fields",
    "switching costs",
    "beliefs",
    "lengths",
    "owners' leave",
    "load",
)


def variants(loads: tuple[float, ...]) -> list[Variant]:
    """Returns all that is varied, one thing at a time."""
    return [*_assumed(), *_costs(), *_beliefs(), *_leave(), *_loads(loads)]


def _assumed() -> list[Variant]:
    worlds = {
        **{f"interference {x:g}": replace(BASE, interference=x) for x in (1.0, 1.25, 1.5, 2.0)},
        "no contention": replace(BASE, cycle="overlapped,no-contention"),
        "stages with barriers": replace(BASE, cycle="barrier"),
        "placement is free": replace(BASE, physics="counted"),
        "linear scaling": replace(BASE, physics="linear"),
    }
    varied = [Variant(ASSUMED, words, world) for words, world in worlds.items()]
    families = ("pollux", "muri", "elasticflow", "afs", "asrpt")
    return varied + [Variant(ASSUMED, f"models of {f} only", family=f) for f in families]


def _costs() -> list[Variant]:
    scaled = [
        Variant(COSTS, f"costs x {x:g}", replace(BASE, switching_factor=x))
        for x in (0.0, 0.3, 3.0, 10.0)
    ]
    unprepared = Variant(COSTS, "every resize restarts", replace(BASE, switching="restart:30"))
    return [*scaled, unprepared]


def _beliefs() -> list[Variant]:
    blurs = {
        "scaling": (0.2, 0.5),
        "interference": (0.2, 0.5),
        "stages": (0.3, 0.6),
        "memory": (0.3,),
    }
    wrong = [
        Variant(BELIEFS, f"{axis} off by {x:g}", replace(BASE, belief=f"{axis}:{x:g}"))
        for axis, spreads in blurs.items()
        for x in spreads
    ]
    forecasts = {
        **{f"lengths off by {x:g}": f"noisy:{x:g}" for x in (0.5, 1.0, 2.0)},
        "lengths predicted": "predicted",
    }
    return wrong + [
        Variant(LENGTHS, words, replace(BASE, forecast=text)) for words, text in forecasts.items()
    ]


def _leave() -> list[Variant]:
    return [
        Variant(POWERS, "half elastic", replace(BASE, elastic=0.5)),
        Variant(POWERS, "none elastic", replace(BASE, elastic=0.0)),
        Variant(POWERS, "half shareable", replace(BASE, shareable=0.5)),
        Variant(POWERS, "none shareable", replace(BASE, shareable=0.0)),
        Variant(POWERS, "half may be stopped", preemptible=0.5),
        Variant(POWERS, "none may be stopped", preemptible=0.0),
    ]


def _loads(loads: tuple[float, ...]) -> list[Variant]:
    return [Variant(LOADS, f"load {load:g}", load=load) for load in loads]

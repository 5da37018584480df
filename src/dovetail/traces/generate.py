"""Generates traces by seed: Philly-like, recurrent jobs as in PAI, Poisson arrivals, one burst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.core.errors import InputError, nearest
from dovetail.core.job import Floats, JobTable
from dovetail.core.trace import Trace
from dovetail.core.units import DAY_S
from dovetail.traces.arrivals import at_once, cyclic, poisson
from dovetail.traces.generated_jobs import GeneratedJobs
from dovetail.traces.pai_like import RECURRENT_SHARE, pai_like
from dovetail.traces.philly_like import philly_like
from dovetail.traces.rows import adjusted
from dovetail.traces.transform import assign_models

KINDS = ("philly-like", "pai-like", "poisson", "burst")

DEADLINE_FACTORS = (1.5, 2.5)
"""A deadline is submission + factor x duration, the factor uniform between these (GIMBAL)."""

LIMIT_STEPS_S = tuple(
    h * 3600.0 for h in (0.25, 0.5, 1, 2, 4, 8, 12, 24, 48, 96, 168, 336, 720, 1440, 2880)
)
"""Time limits that users request: round ones. Assumption, as is the overestimate: users run a
uniform share between a tenth and all of their limit, before it is rounded up to the next step."""

LONGEST_LIMIT_SHARE = 0.25
"""The share of limited jobs whose users ask for the longest limit that any job needs, whatever
their job needs. Logs of production systems have it among their most popular limits; limits that
only follow the run times tell a scheduler too much (Tsafrir, JSSPP 2010). The value is an
assumption."""

LONGEST_SHARE = 0.38
"""The longest job, over the length of the trace: Philly's ran 49 of 129 days. A month with jobs
of seven weeks would offer a load that its cluster meets only after the month."""

JOBS_MAX = 20_000_000


@dataclass(frozen=True, slots=True)
class Recipe:
    """The parameters of a generated trace, which they determine completely.

    With `load`, all run times are stretched by one factor so that the jobs ask for `load` times
    the GPU-seconds that `cluster_gpus` have in `days`. `deadlines`, `time_limits`: share of jobs.
    `recurrent`: share of pai-like jobs in groups of five or more.
    """

    kind: str = "philly-like"
    jobs: int = 10_000
    days: float = 30.0
    seed: int = 0
    load: float | None = None
    cluster_gpus: int | None = None
    bursts: float = 1.0
    deadlines: float = 0.0
    time_limits: float = 0.0
    models: Sequence[tuple[str, int]] = ()
    recurrent: float = RECURRENT_SHARE

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"kind '{self.kind}'", "is unknown", nearest(self.kind, KINDS))
        if not 1 <= self.jobs <= JOBS_MAX:
            raise InputError("jobs", f"{self.jobs} is not between 1 and {JOBS_MAX}")
        if not 0.001 <= self.days <= 3660:
            raise InputError("days", f"{self.days} is not between 0.001 and 3660")
        if self.seed < 0:
            raise InputError("seed", f"{self.seed} is negative")
        for name in ("deadlines", "time_limits", "recurrent"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(name, f"{getattr(self, name)} is not a share between 0 and 1")
        if self.recurrent != RECURRENT_SHARE and self.kind != "pai-like":
            raise InputError("recurrent", f"'{self.kind}' has no groups of jobs", "pai-like has")
        if not 0 <= self.bursts <= 5:
            raise InputError("bursts", f"{self.bursts} is not between 0 and 5")
        if self.load is not None and not 0 < self.load <= 100:
            raise InputError("load", f"{self.load:g} is not above 0 and at most 100")
        if self.load is not None and not self.cluster_gpus:
            raise InputError("load", "needs the cluster it is offered to", "as in --cluster 16x4")
        if self.cluster_gpus is not None and self.cluster_gpus < 1:
            raise InputError("cluster", f"{self.cluster_gpus} GPUs are not enough")


def generate(recipe: Recipe) -> Trace:
    """Returns the trace of a recipe. Raises InputError when its load cannot be reached."""
    # One stream for each aspect, so that asking for deadlines does not change the jobs.
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(recipe.seed).spawn(4)]
    draft = _fitted(_draft(recipe, streams[0], streams[1]), recipe)
    jobs = JobTable.build(
        [str(i) for i in range(recipe.jobs)],
        draft.submit_s,
        draft.gpus,
        user=draft.user,
        queue=draft.queue,
        recurrence=draft.recurrence,
        deadline_s=_deadlines(draft, recipe.deadlines, streams[2]),
        time_limit_s=_limits(draft, recipe.time_limits, streams[3]),
    )
    counts = {"read": recipe.jobs, "usable": recipe.jobs, **draft.counts}
    iterations = np.full(recipe.jobs, np.nan)
    name = f"{recipe.kind}-{recipe.jobs}-seed{recipe.seed}"
    trace = Trace(jobs, draft.duration_s, iterations, draft.end, name, counts)
    return assign_models(trace, recipe.models, seed=recipe.seed) if recipe.models else trace


def _draft(
    recipe: Recipe, arrivals_rng: np.random.Generator, jobs_rng: np.random.Generator
) -> GeneratedJobs:
    if recipe.kind == "pai-like":
        return pai_like(recipe.jobs, recipe.days, jobs_rng, recipe.recurrent)
    arrivals = {
        "philly-like": lambda: cyclic(recipe.jobs, recipe.days, arrivals_rng, bursts=recipe.bursts),
        "poisson": lambda: poisson(recipe.jobs, recipe.days, arrivals_rng),
        "burst": lambda: at_once(recipe.jobs),
    }[recipe.kind]()
    return philly_like(arrivals, jobs_rng)


def _fitted(draft: GeneratedJobs, recipe: Recipe) -> GeneratedJobs:
    """Returns the draft on the recipe's cluster: no job larger than it, run times to its load."""
    if recipe.kind != "burst":
        longest = min(draft.duration_max_s, LONGEST_SHARE * recipe.days * DAY_S)
        times = np.minimum(draft.duration_s, max(longest, 1.0))
        draft = replace(draft, duration_s=times, duration_max_s=max(longest, 1.0))
    if recipe.cluster_gpus is None:
        return draft
    gpus = np.minimum(draft.gpus, recipe.cluster_gpus)
    cut = int((gpus < draft.gpus).sum())
    counts = {**draft.counts, **({adjusted("cut to the cluster's GPUs"): cut} if cut else {})}
    draft = replace(draft, gpus=gpus, counts=counts)
    if recipe.load is None:
        return draft
    wanted = recipe.load * recipe.cluster_gpus * recipe.days * DAY_S
    return replace(draft, duration_s=_stretched(draft, wanted, recipe))


def _stretched(draft: GeneratedJobs, wanted_gpu_s: float, recipe: Recipe) -> Floats:
    """Returns run times, stretched by one factor, that ask for the recipe's load."""

    def requested_gpu_s(factor: float) -> float:
        return float((draft.gpus * _times(draft, factor)).sum())

    low, high = 0.0, 1.0
    while requested_gpu_s(high) < wanted_gpu_s:
        low, high = high, high * 2.0
        if high > 2.0**40:
            most = requested_gpu_s(high) / wanted_gpu_s * (recipe.load or 0.0)
            raise InputError(
                "load", f"{recipe.jobs} jobs reach {most:.2f} at most", "ask for more jobs"
            )
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if requested_gpu_s(middle) < wanted_gpu_s else (low, middle)
    return _times(draft, high)


def _times(draft: GeneratedJobs, factor: float) -> Floats:
    """Returns run times times a factor, bent so that they near the longest but never pile up there.

    Short run times grow by the factor, whole; their order stays.
    """
    grown = draft.duration_s * factor
    return np.asarray(np.maximum(np.ceil(grown / (1.0 + grown / draft.duration_max_s)), 1.0))


def _deadlines(draft: GeneratedJobs, share: float, rng: np.random.Generator) -> Floats:
    n = len(draft.submit_s)
    due = draft.submit_s + rng.uniform(*DEADLINE_FACTORS, n) * draft.duration_s
    return np.where(rng.uniform(size=n) < share, due, np.inf)


def _limits(draft: GeneratedJobs, share: float, rng: np.random.Generator) -> Floats:
    n = len(draft.submit_s)
    guess = draft.duration_s / rng.uniform(0.1, 1.0, n)
    steps = np.asarray((*LIMIT_STEPS_S, np.inf))
    limit = steps[np.searchsorted(LIMIT_STEPS_S, guess)]
    has_limit = rng.uniform(size=n) < share
    longest = steps[np.searchsorted(LIMIT_STEPS_S, draft.duration_s.max(initial=1.0))]
    limit = np.where(rng.uniform(size=n) < LONGEST_LIMIT_SHARE, np.maximum(limit, longest), limit)
    return np.where(has_limit, limit, np.inf)

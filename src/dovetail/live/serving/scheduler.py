"""The scheduler of a live cluster: policy, belief and forecast, over tables that grow.

Its options are those of a simulated run, and mean the same. What cannot work is refused here,
before anything is started.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import dovetail.policies  # registers the policies
from dovetail.control.loop import check_needs
from dovetail.control.state import ClusterState
from dovetail.core.beliefs import Physics
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.job import JobTable
from dovetail.core.policy import Policy, name_of, parse_policy, spell
from dovetail.forecast.forecasts import parse_live_forecast
from dovetail.live.edges.protocols import Incoming, StoredState
from dovetail.live.jobs.stored_job import StoredJob
from dovetail.physics.beliefs.learning import Learning
from dovetail.physics.beliefs.noisy import believed
from dovetail.physics.linear import linear_physics
from dovetail.physics.placed import placed_physics
from dovetail.physics.sharing.interference import parse_interference
from dovetail.physics.sharing.turns import InterleaveRule
from dovetail.physics.zoo.models import Catalogue, shipped_sets
from dovetail.physics.zoo.profile_file import load_profiles
from dovetail.study.option_texts import OptionTexts, read_options
from dovetail.study.options import Options
from dovetail.study.run import granted
from dovetail.version import __version__

assert dovetail.policies

LIVE_DEFAULTS: OptionTexts = {"forecast": "declared", "switching": "restart:5"}
"""Where a live cluster differs from a simulated one: owners state the lengths of jobs."""


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Policy, options, tables and belief of a controller; `state` is empty and grows with jobs."""

    policy: Policy
    options: Options
    state: ClusterState
    learning: Learning

    def manifest_text(self, engine: str) -> str:
        """Returns the head of an exported log, policy and options as plain values, as JSON."""
        manifest = {
            "version": __version__,
            "live": True,
            "engine": engine,
            "policy": spell(self.policy),
            "name": name_of(self.policy),
            "knows": sorted(self.policy.knows),
            "powers": sorted(self.policy.powers),
            **self.options.manifest(),
        }
        return json.dumps(manifest, separators=(",", ":"))


class JobLengths:
    """The length in seconds that the owner of each job states, by its number; 0 for none.

    Lengths of new jobs are noted on their way to the controller, so that no query for them competes
    with submissions. `find` looks up a job that was over when the controller started.
    """

    def __init__(self, recovered: StoredState, find: Callable[[int], StoredJob | None]) -> None:
        self._find = find
        self._stated_s = {str(job.number): job.spec.duration_s for job in recovered.jobs}
        for accepted in recovered.accepted:
            self.note(accepted)

    def note(self, incoming: Incoming) -> None:
        """Notes the length of a job that was submitted."""
        if isinstance(incoming, StoredJob):
            self._stated_s[str(incoming.number)] = incoming.spec.duration_s

    def __call__(self, job: str) -> float:
        """Returns the length of a job."""
        if job not in self._stated_s:
            stored = self._find(int(job))
            self._stated_s[job] = 0.0 if stored is None else stored.spec.duration_s
        return self._stated_s[job]


def build_scheduler(
    policy: str,
    cluster: Cluster,
    texts: OptionTexts,
    *,
    stated_s: Callable[[str], float],
    measured: str = "",
    paced: bool = False,
    guessing: bool = False,
) -> Scheduler:
    """Returns the scheduler of a controller. Raises InputError.

    `stated_s` gives the length that the owner of a job states, by its number, 0 for none.
    `measured` is what an earlier controller of this cluster learned of its jobs. Synthetic jobs run
    as the same profiles say, so these are trusted, unless the controller is to go by a guess.
    """
    parsed = parse_policy(policy)
    options = live_options(cluster, texts)
    jobs = JobTable.build([], np.empty(0), np.empty(0, np.int64), numbered=True)
    forecast = parse_live_forecast(options.forecast, jobs, stated_s, options.seed)
    supplier = LIVE_DEFAULTS["forecast"]
    check_needs(parsed, granted(forecast), options.without, supplier=supplier)
    prior = believed(live_physics(jobs, options), jobs, options.belief, options.seed)
    trusted = None if paced and not guessing else _trusted(options)
    learning = Learning(prior, jobs, measured, trusted, paced=paced)
    state = ClusterState(
        jobs,
        cluster,
        parsed,
        physics=learning.physics,
        forecast=forecast,
        placing=options.placing,
        switching=options.switching,
    )
    return Scheduler(parsed, options, state, learning)


def live_options(cluster: Cluster, texts: OptionTexts) -> Options:
    """Returns the options of a live cluster from their texts. Raises InputError."""
    options = read_options({**LIVE_DEFAULTS, **texts, "cluster": "1x1"})
    for name in ("adopt", "capacity"):
        if getattr(options, name):
            raise InputError(f"--{name}", "it is for replayed traces only")
    return replace(options, cluster=cluster)


def live_physics(jobs: JobTable, options: Options) -> Physics:
    """Returns the physics of the profiles, over a table that grows."""
    profiles = tuple(load_profiles(Path(p)) for p in options.profiles)
    interference = parse_interference(options.interference, profiles)
    if options.physics == "linear":
        return linear_physics(jobs, interference)
    return placed_physics(
        jobs,
        options.cluster,
        Catalogue((*shipped_sets(), *profiles)),
        interference=interference,
        interleaving=InterleaveRule.parse(options.cycle),
        by_count=options.physics == "counted",
    )


def _trusted(options: Options) -> tuple[str, ...]:
    """Returns the models whose profiles the user gave: these are measured, not guessed."""
    return tuple(p.name for path in options.profiles for p in load_profiles(Path(path)).profiles)

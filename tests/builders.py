"""Scenes for tests: a few rows make a trace, `play` runs it, and every play is audited.

`play` goes through the real world and the real loop, records every fact, and ends by checking
all invariants (`invariants.check`), so each test of behaviour is a test of safety too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

import dovetail.policies  # registers the policies
from dovetail.control.loop import run
from dovetail.control.state import ClusterState
from dovetail.control.world import World
from dovetail.core.beliefs import Physics
from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable, Labels
from dovetail.core.messages import Ended, Fact, Started, Stopped
from dovetail.core.placement import Placement, Spans
from dovetail.core.placing import Placing
from dovetail.core.policy import Policy, parse_policy
from dovetail.core.switching import Switching
from dovetail.core.trace import ENDS, Trace
from dovetail.core.view import Changes, View, show
from dovetail.forecast.forecasts import parse_forecast
from dovetail.physics.linear import linear_physics
from dovetail.record.tally import Tally
from dovetail.sim.scene import CapacityTimeline, Scene
from dovetail.sim.world import SimWorld
from invariants import check

assert dovetail.policies

INF = float("inf")


@dataclass(frozen=True)
class Row:
    """One job of a small trace; ids are the row numbers."""

    gpus: int
    duration_s: float
    submit_s: float = 0.0
    time_limit_s: float = INF
    min_gpus: int = 0
    max_gpus: int = 0
    gpu_part: float = 1.0
    restart_s: float = 0.0
    elastic: bool = False
    shareable: bool = False
    preemptible: bool = True
    cpus: float = 0.0
    memory_bytes: float = 0.0
    batch_size: int = 0
    queue: str = ""
    user: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    priority: float = 0.0
    gpu_type: str = ""
    topology: str = ""
    model: str = ""
    end: str = "completed"


_LABELS = ("queue", "user", "account", "qos", "reservation", "gpu_type", "topology", "model")
_PLAIN = (
    "gpu_part",
    "priority",
    "time_limit_s",
    "restart_s",
    "elastic",
    "shareable",
    "preemptible",
    "cpus",
    "memory_bytes",
    "batch_size",
)


def jobs_of(*rows: Row) -> JobTable:
    """Returns the requests of rows that are in order of submission."""
    kinds = {f.name: f.type for f in fields(Row)}
    dtype = {"float": np.float64, "bool": np.bool_, "int": np.int64}
    columns: dict[str, object] = {n: Labels.of([getattr(r, n) for r in rows]) for n in _LABELS}
    for name in _PLAIN:
        columns[name] = np.array([getattr(r, name) for r in rows], dtype[str(kinds[name])])
    columns["min_gpus"] = np.array([r.min_gpus or r.gpus for r in rows], np.int64)
    columns["max_gpus"] = np.array([r.max_gpus or r.gpus for r in rows], np.int64)
    return JobTable.build(
        [str(i) for i in range(len(rows))],
        np.array([r.submit_s for r in rows], np.float64),
        np.array([r.gpus for r in rows], np.int64),
        **columns,
    )


def trace_of(*rows: Row) -> Trace:
    """Returns the trace of rows that are in order of submission."""
    return Trace(
        jobs_of(*rows),
        np.array([r.duration_s for r in rows], np.float64),
        np.full(len(rows), np.nan),
        np.array([ENDS.index(r.end) for r in rows], np.int8),
        "scene",
    )


@dataclass
class Facts:
    """A recorder that keeps what it is given, instant by instant."""

    batches: list[tuple[Fact, ...]] = field(default_factory=list)

    def record(self, facts: Sequence[Fact]) -> None:
        """Keeps the facts."""
        assert facts, "a recorder is never called with nothing"
        self.batches.append(tuple(facts))

    @property
    def all(self) -> list[Fact]:
        """Returns every fact in order."""
        return [fact for batch in self.batches for fact in batch]


class Both:
    """Hands facts to two recorders."""

    def __init__(self, facts: Facts, tally: Tally) -> None:
        self._facts, self._tally = facts, tally

    def record(self, facts: Sequence[Fact]) -> None:
        """Records in both."""
        self._facts.record(facts)
        self._tally.record(facts)


@dataclass
class Story:
    """What came of a scene."""

    scene: Scene
    facts: list[Fact]
    batches: list[tuple[Fact, ...]]
    tally: Tally

    @property
    def finishes(self) -> list[float]:
        """Returns the finish of each job, infinite where it never ended."""
        return list(self.tally.finish_s)

    @property
    def how(self) -> list[str]:
        """Returns how each job ended."""
        return list(self.tally.how)

    def of(self, kind: type) -> list[Fact]:
        """Returns the facts of one kind."""
        return [fact for fact in self.facts if type(fact) is kind]

    def starts(self, job: int) -> list[tuple[float, str]]:
        """Returns when and how a job was placed."""
        return [(f.t, f.how) for f in self.facts if isinstance(f, Started) and f.job == job]

    def stops(self, job: int) -> list[tuple[float, str]]:
        """Returns when and why a job was stopped."""
        return [(f.t, f.why) for f in self.facts if isinstance(f, Stopped) and f.job == job]

    def ended(self) -> list[int]:
        """Returns the jobs in order of their end."""
        return [f.job for f in self.facts if isinstance(f, Ended)]


def cluster_of(cluster: Cluster | str) -> Cluster:
    """Returns a cluster given as such or in its short form."""
    return Cluster.parse(cluster) if isinstance(cluster, str) else cluster


def policy_of(policy: Policy | str) -> Policy:
    """Returns a policy given as such or by name."""
    return parse_policy(policy) if isinstance(policy, str) else policy


def scene_of(
    trace: Trace,
    cluster: Cluster | str = "1x2",
    *,
    placing: str = "",
    switching: str = "none",
    forecast: str = "known",
    truth: Physics | None = None,
    belief: Physics | None = None,
    capacity: CapacityTimeline = (),
    cancelled_by_clock: bool = False,
    coalesce_s: float = 0.0,
    audit_every: int = 1,
) -> Scene:
    """Returns a scene with nothing hidden: no switching cost unless the test says so."""
    physics = truth or linear_physics(trace.jobs)
    return Scene(
        trace=trace,
        cluster=cluster_of(cluster),
        truth=physics,
        belief=belief or physics,
        forecast=parse_forecast(forecast, trace, 0),
        placing=Placing.parse(placing),
        switching=Switching.parse(switching),
        cancelled_by_clock=cancelled_by_clock,
        capacity=capacity,
        coalesce_s=coalesce_s,
        audit_every=audit_every,
    )


def tally_of(scene: Scene) -> Tally:
    """Returns an empty tally for a scene."""
    jobs = scene.trace.jobs
    scale = [scene.truth.structure.scale(j) * float(jobs.gpu_part[j]) for j in range(len(jobs))]
    return Tally(scene.cluster, jobs.asked_gpus.tolist(), scene.trace.duration_s.tolist(), scale)


def play_scene(
    scene: Scene, policy: Policy | str, wrap: Callable[[SimWorld], World] | None = None
) -> Story:
    """Runs a scene to its end, checks every invariant and returns what happened."""
    chosen = policy_of(policy)
    facts, tally = Facts(), tally_of(scene)
    world = SimWorld(scene, chosen, Both(facts, tally))
    run(world if wrap is None else wrap(world), chosen)
    story = Story(scene, facts.all, facts.batches, tally)
    check(scene, story.facts, tally)
    return story


def play(
    rows: Sequence[Row], policy: Policy | str, cluster: Cluster | str = "1x2", **options: object
) -> Story:
    """Runs rows under a policy on a cluster; options are those of `scene_of`."""
    return play_scene(scene_of(trace_of(*rows), cluster, **options), policy)  # type: ignore[arg-type]


class Stage:
    """A cluster at a standstill, for tests of one decision: jobs wait, some are placed."""

    def __init__(
        self,
        rows: Sequence[Row],
        policy: Policy | str,
        cluster: Cluster | str = "1x2",
        *,
        placing: str = "",
        physics: Physics | None = None,
        switching: str = "none",
    ) -> None:
        self.policy = policy_of(policy)
        self.trace = trace_of(*rows)
        jobs = self.trace.jobs
        self.state = ClusterState(
            jobs,
            cluster_of(cluster),
            self.policy,
            physics=physics or linear_physics(jobs),
            forecast=parse_forecast("known", self.trace, 0),
            placing=Placing.parse(placing),
            switching=Switching.parse(switching),
        )
        for job in range(len(rows)):
            self.state.arrive(job)
        show(self.view, changes=Changes(arrived=tuple(range(len(rows)))))

    @property
    def view(self) -> View:
        """Returns the view of the stage."""
        return self.state.view

    def at(self, now: float) -> Stage:
        """Moves the clock."""
        self.state.now = now
        show(self.view, now=now)
        return self

    def run_jobs(self, *placed: tuple[int, Placement | Spans]) -> Stage:
        """Places jobs as if a policy had."""
        draft = self.view.plan.draft()
        for job, spans in placed:
            draft.place(job, spans)
        changes = draft.changes()
        self.state.plan.commit(draft)
        for job, _, after in changes:
            assert after is not None
            self.state.start(job, after, 1.0, 0.0)
        return self

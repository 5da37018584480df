"""What every policy and every physics must satisfy, as suites that an author inherits.

In a test file of your own:

    from dovetail.conformance import PolicyConformance

    class TestMine(PolicyConformance):
        policy = "path/to/mine.py:Mine"

pytest then runs every check below on it: pure decisions, legal plans, declared powers, gangs
whole, no job lost under any placement rule, switching cost or change of capacity, the same log
twice, and a spelling that reads back. The checks raise AssertionError with a sentence, so they
also serve without pytest: `PolicyConformance.check(policy="srtf")`.

A physics has a suite too:

    class TestMyPhysics(PhysicsConformance):
        physics = staticmethod(my_physics)      # from a job table to a `Physics`

or `PhysicsConformance.check(physics=my_physics)`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from math import isclose
from typing import ClassVar, cast

import numpy as np

from dovetail.control.loop import run as run_loop
from dovetail.core.beliefs import Physics, SizedJob
from dovetail.core.cluster import DOWN, DRAINING, UP, Cluster
from dovetail.core.errors import DovetailError
from dovetail.core.job import JobTable, Labels
from dovetail.core.messages import Ended, Fact, Started, Stopped
from dovetail.core.placement import Placement
from dovetail.core.placing import Placing
from dovetail.core.policy import Decision, Policy, name_of, parse_policy, spell
from dovetail.core.switching import Expansion, Switching
from dovetail.core.trace import Trace
from dovetail.core.units import NEVER_S, RELATIVE_TOLERANCE
from dovetail.core.view import View
from dovetail.forecast.forecasts import Known
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.interference import Injected
from dovetail.record.log import LogWriter
from dovetail.sim.restarting_world import RestartingWorld
from dovetail.sim.scene import CapacityTimeline, Scene
from dovetail.sim.world import SimWorld

JOBS, NODES, GPUS_PER_NODE = 40, 3, 4
PLACINGS = ("prefer", "strict", "none,first-fit", "strict,first-fit,repack", "none,most-free")
SWITCHINGS = ("none", "restart:30,per-start:2")
PREPARED = "restart:30,prepared:10"
"""Elastic jobs train on while GPUs that they gain are made ready."""
CHURN: CapacityTimeline = (
    (60.0, ((0, DRAINING),)),
    (90.0, ((1, DOWN),)),
    (400.0, ((0, UP), (1, UP))),
)


class _Facts:
    """A recorder that keeps all facts."""

    def __init__(self) -> None:
        self.all: list[Fact] = []

    def record(self, facts: Sequence[Fact]) -> None:
        self.all.extend(facts)


def small_trace(seed: int) -> Trace:
    """Returns forty jobs of one to eight GPUs that queue on twelve; half of them elastic."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice([1, 1, 2, 4, 8], JOBS).astype(np.int64)
    elastic = rng.random(JOBS) < 0.5
    jobs = JobTable.build(
        [str(i) for i in range(JOBS)],
        np.sort(rng.integers(0, 300, JOBS)).astype(np.float64),
        gpus,
        min_gpus=np.where(elastic, 1, gpus),
        max_gpus=np.where(elastic, 8, gpus),
        elastic=elastic,
        shareable=np.ones(JOBS, bool),
    )
    return Trace.of(jobs, rng.integers(5, 200, JOBS).astype(np.float64))


def small_scene(
    seed: int,
    *,
    placing: str = "prefer",
    switching: str = "restart:30",
    capacity: CapacityTimeline = (),
) -> Scene:
    """Returns a small world that audits every plan it applies."""
    trace = small_trace(seed)
    physics = linear_physics(trace.jobs, Injected(1.3))
    return Scene(
        trace=trace,
        cluster=Cluster.uniform(NODES, GPUS_PER_NODE),
        truth=physics,
        belief=physics,
        forecast=Known(trace.duration_s),
        placing=Placing.parse(placing),
        switching=Switching.parse(switching),
        capacity=capacity,
        audit_every=1,
    )


class PolicyConformance:
    """Inherit and set `policy` to a text that `dovetail simulate --policy` takes."""

    policy: ClassVar[str] = ""
    seeds: ClassVar[tuple[int, ...]] = (1, 2)

    @classmethod
    def check(cls, policy: str) -> None:
        """Runs every check on a policy; raises AssertionError at the first that fails."""
        _run_all(PolicyConformance, type("_Suite", (cls,), {"policy": policy})())

    def test_it_is_a_pure_function_of_the_view(self) -> None:
        """Two calls at one instant return the same decision and do not change the view."""
        for seed in self.seeds:
            self._play(small_scene(seed), cast(Policy, _AskedTwice(self._built())))

    def test_it_does_not_look_into_the_future(self) -> None:
        """With the later half of the jobs taken away, the first half of time is the same."""
        whole = small_scene(self.seeds[0])
        half = JOBS // 2
        cut_s = float(whole.trace.jobs.submit_s[half])
        first = whole.trace.take(np.arange(half, dtype=np.int64))
        physics = linear_physics(first.jobs, Injected(1.3))
        part = replace(
            whole, trace=first, truth=physics, belief=physics, forecast=Known(first.duration_s)
        )
        histories = [
            [f for f in self._play(scene, self._built()) if isinstance(f, Started) and f.t < cut_s]
            for scene in (whole, part)
        ]
        assert histories[0] == histories[1], f"{self.policy} looks at jobs yet to come"

    def test_every_job_ends_once_whatever_the_placement(self) -> None:
        """No job is lost or ended twice, and gangs are whole, under every placement rule."""
        for placing in PLACINGS:
            self._all_end(small_scene(self.seeds[0], placing=placing))

    def test_every_job_ends_whatever_a_switch_costs(self) -> None:
        """Every job ends with free and with costly switches."""
        for switching in SWITCHINGS:
            self._all_end(small_scene(self.seeds[0], switching=switching))

    def test_every_job_ends_while_others_expand(self) -> None:
        """Every job ends where resizes take time, and the view says at each instant how much."""
        self._all_end(small_scene(self.seeds[0], switching=PREPARED), watched=True)

    def test_every_job_ends_when_nodes_come_and_go(self) -> None:
        """Draining, lost and returning nodes lose no job."""
        for seed in self.seeds:
            self._all_end(small_scene(seed, capacity=CHURN))

    def test_it_takes_up_jobs_that_it_has_not_heard_of(self) -> None:
        """From its first memory it goes on with jobs it never saw arrive or start."""
        for seed in self.seeds:
            scene, policy = small_scene(seed), Forgetful(self._built())
            policy.world = RestartingWorld(scene, cast(Policy, policy), facts := _Facts())
            run_loop(policy.world, cast(Policy, policy))
            ended = sorted(f.job for f in facts.all if isinstance(f, Ended))
            assert policy.world.restarts, "the run was too short to be cut off"
            assert ended == list(range(JOBS)), f"{self.policy} loses jobs at a restart: {ended}"

    def test_it_stops_no_job_without_the_power_to(self) -> None:
        """A policy that does not declare `preempt` never stops a running job."""
        if "preempt" in self._built().powers:
            return
        facts = self._play(small_scene(self.seeds[0]), self._built())
        stopped = [f for f in facts if isinstance(f, Stopped)]
        assert not stopped, f"{self.policy} stopped {len(stopped)} jobs"

    def test_the_same_run_gives_the_same_log(self) -> None:
        """Two runs write the same bytes."""
        logs = [self._log(small_scene(self.seeds[0])) for _ in range(2)]
        assert logs[0] == logs[1], f"{self.policy} is not deterministic"

    def test_it_can_be_written_down_and_read_back(self) -> None:
        """Its spelling, which stands in every manifest, makes an equal policy."""
        policy = self._built()
        parameters = spell(policy).partition(":")[2]
        base = self.policy.partition(".py")[0] + ".py:" + type(policy).__name__
        name = base if ".py" in self.policy else name_of(policy)
        again = parse_policy(f"{name}:{parameters}" if parameters else name)
        assert spell(again) == spell(policy), f"{spell(policy)} reads back as {spell(again)}"

    def _built(self) -> Policy:
        import dovetail.policies

        assert dovetail.policies and self.policy, "set `policy`"
        return parse_policy(self.policy)

    def _play(self, scene: Scene, policy: Policy) -> list[Fact]:
        facts = _Facts()
        try:
            run_loop(SimWorld(scene, policy, facts), policy)
        except DovetailError as error:
            # An assertion of a check inside `decide` is the check's error, not the policy's.
            if isinstance(error.__cause__, AssertionError):
                raise error.__cause__ from None
            raise
        return facts.all

    def _all_end(self, scene: Scene, *, watched: bool = False) -> None:
        policy = self._built()
        facts = self._play(scene, cast(Policy, Watched(policy)) if watched else policy)
        ended = sorted(f.job for f in facts if isinstance(f, Ended))
        assert ended == list(range(JOBS)), f"{self.policy} loses or repeats jobs: {ended}"
        table = scene.trace.jobs
        for fact in facts:
            if isinstance(fact, Started):
                low, high = int(table.min_gpus[fact.job]), int(table.max_gpus[fact.job])
                assert low <= fact.placement.gpus <= high, f"job {fact.job} has a broken gang"

    def _log(self, scene: Scene) -> str:
        file = io.StringIO()
        writer = LogWriter(file, scene.trace, scene.truth, {})
        policy = self._built()
        run_loop(SimWorld(scene, policy, writer), policy)
        writer.close()
        return file.getvalue()


def _run_all(suite: type, checks: object) -> None:
    for name in vars(suite):
        if name.startswith("test_"):
            getattr(checks, name)()


class PhysicsConformance:
    """Inherit and set `physics` to a function from a job table to its physics.

    `models` are names of models that the physics may or may not know.
    """

    physics: ClassVar[Callable[[JobTable], Physics]]
    models: ClassVar[tuple[str, ...]] = ("bert", "resnet50", "")

    @classmethod
    def check(cls, physics: Callable[[JobTable], Physics]) -> None:
        """Runs every check on a physics; raises AssertionError at the first that fails."""
        _run_all(PhysicsConformance, type("_Suite", (cls,), {"physics": staticmethod(physics)})())

    def test_jobs_of_one_kind_have_the_same_answers(self) -> None:
        """A kind stands for its jobs in every answer."""
        jobs, physics = self._built()
        first: dict[int, int] = {}
        for job, kind in enumerate(physics.kind_of.tolist()):
            twin = first.setdefault(kind, job)
            assert _answers(physics, job) == _answers(physics, twin), (
                f"jobs {twin} and {job} are of one kind and differ"
            )
        assert len(physics.kind_of) == len(jobs), "every job needs a kind"

    def test_asked_twice_it_answers_the_same(self) -> None:
        """No answer depends on earlier calls."""
        jobs, physics = self._built()
        once = [_answers(physics, job) for job in range(len(jobs))]
        again = [_answers(physics, job) for job in reversed(range(len(jobs)))]
        assert once == again[::-1], "an answer changes when it is asked again"

    def test_speeds_by_count_are_those_of_well_placed_jobs(self) -> None:
        """A row of `rates` agrees with `rate`, is 0 on no GPU, and is at most `top`."""
        jobs, physics = self._built()
        table = physics.speed.rates(GPUS_PER_NODE)
        assert table is physics.speed.rates(GPUS_PER_NODE), "rates must be the same array"
        assert not table.flags.writeable, "rates must be read only"
        for job in range(len(jobs)):
            row = table[physics.kind_of[job]].tolist()
            assert row[0] == 0, f"job {job} makes progress on no GPU"
            for gpus in range(1, GPUS_PER_NODE + 1):
                rate = physics.rate(job, _on(gpus))
                assert isclose(rate, row[gpus], rel_tol=RELATIVE_TOLERANCE), (
                    f"job {job} on {gpus} GPUs runs at {rate} and rates has {row[gpus]}"
                )
                top = physics.speed.top(job, gpus) * (1 + RELATIVE_TOLERANCE)
                assert row[gpus] <= top, f"job {job} is faster than its top speed"

    def test_interference_of_many_pairs_is_that_of_each(self) -> None:
        """`interferences` agrees with `interference` to the last bit, and none is below 1."""
        jobs, physics = self._built()
        sides = [SizedJob(job, steps) for job in range(len(jobs)) for steps in (1, 2)]
        mine, theirs = physics.sharing.interferences(sides, sides)
        for i, side in enumerate(sides):
            for k, other in enumerate(sides):
                pair = physics.sharing.interference(side, other)
                assert pair == (mine[i, k], theirs[i, k]), f"{side} beside {other} differs"
                assert min(pair) >= 1, f"{side} or {other} is faster shared than alone"

    def test_sharing_never_stops_a_job(self) -> None:
        """Every job beside another has a positive slowdown, and one worker time for each GPU."""
        jobs, physics = self._built()
        whole = _on(2, named=True)
        for job in range(1, len(jobs)):
            beside = [(0, whole)]
            slowdown = physics.sharing.slowdown(job, whole, beside)
            assert 0 < slowdown < NEVER_S, f"job {job} beside job 0 has slowdown {slowdown}"
            assert 0 <= physics.sharing.utilization(job) <= 1, f"utilisation of job {job}"
            times = physics.batches.workers(job, whole, beside)
            assert len(times) == whole.gpus, f"job {job} has {len(times)} worker times"

    def test_what_fits_fits_into_more_memory_and_with_fewer_jobs(self) -> None:
        """Memory is monotone, and the fixed part is a part of the footprint."""
        jobs, physics = self._built()
        memory = physics.memory
        for job in range(1, len(jobs)):
            pair = [(0, _on(1)), (job, _on(1))]
            fixed, footprint = memory.fixed_bytes(job), memory.footprint_bytes(job, 1)
            assert 0 <= fixed <= footprint, f"job {job} holds less than its fixed part"
            for room in (1e9, 8e9, 16e9, 80e9):
                if memory.fits(pair, room):
                    assert memory.fits(pair, 2 * room), "a pair fits, and not into more memory"
                    assert memory.fits(pair[1:], room), "a pair fits, and one of it does not"

    def test_batches_can_be_cut_and_chosen(self) -> None:
        """One step costs nothing; phases lie ahead; the best batches are read only."""
        jobs, physics = self._built()
        for job in range(len(jobs)):
            assert physics.batches.accumulated(job, 1) == 1, f"job {job}: one step costs speed"
            assert physics.batches.most_steps(job) >= 1, f"job {job} has no steps"
            assert physics.batches.phase_end_s(job, 10.0) > 10.0, f"job {job}: a phase in the past"
            for array in physics.speed.best_batches(job, 0.0, GPUS_PER_NODE):
                assert array.shape[1] == GPUS_PER_NODE + 1, f"job {job}: best batches by GPUs"
                assert not array.flags.writeable, f"job {job}: best batches must be read only"

    def test_a_table_that_grows_has_the_answers_of_the_whole_one(self) -> None:
        """`admit` changes no earlier answer, and admits no row twice."""
        jobs, whole = self._built()
        growing_jobs = jobs.take(np.arange(0, dtype=np.int64))
        growing = type(self).physics(growing_jobs)
        for job in range(len(jobs)):
            growing_jobs.append([jobs.job(job)])
            growing.structure.admit(growing_jobs)
            growing.structure.admit(growing_jobs)
            for known in range(job + 1):
                assert _answers(growing, known) == _answers(whole, known), (
                    f"job {known} has another answer after job {job} was admitted"
                )
        assert growing.kind_of.tolist() == whole.kind_of.tolist(), "kinds depend on later jobs"

    def _built(self) -> tuple[JobTable, Physics]:
        models = [model for model in self.models for _ in range(3)]
        gpus = np.array([1, 2, 2] * len(self.models), np.int64)
        jobs = JobTable.build(
            [str(i) for i in range(len(gpus))],
            np.arange(len(gpus), dtype=np.float64),
            gpus,
            model=Labels.of(models),
            shareable=np.ones(len(gpus), bool),
        )
        return jobs, type(self).physics(jobs)


def _on(gpus: int, *, named: bool = False) -> Placement:
    return Placement(((0, gpus),), (tuple(range(gpus)),) if named else ())


def _answers(physics: Physics, job: int) -> tuple[object, ...]:
    """Returns the answers of a physics on a job alone and beside job 0."""
    alone, pair = _on(2), _on(2, named=True)
    kind = physics.kind_of[job]
    return (
        physics.rate(job, alone),
        physics.speed.rates(GPUS_PER_NODE)[kind].tolist(),
        physics.speed.spread(job),
        physics.structure.scale(job),
        physics.structure.graph(job),
        physics.sharing.slowdown(job, pair, [(0, pair)]),
        physics.sharing.interference(SizedJob(job, 1), SizedJob(0, 1)),
        physics.sharing.interleaving.stage_s[kind].tolist(),
        physics.memory.footprint_bytes(job, 1),
        physics.memory.held_bytes(job, alone),
        physics.batches.samples(job),
        physics.batches.accumulated(job, 2),
    )


class _Wrapped:
    """A policy that passes as the one inside it."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner
        self.name = name_of(inner)
        self.knows, self.powers, self.order = inner.knows, inner.powers, inner.order
        self.initial = inner.initial


class Forgetful(_Wrapped):
    """A policy whose memory is lost with the tables of its `world`."""

    world: RestartingWorld

    def decide(self, view: View, memory: object) -> Decision:
        """Decides as the inner policy does, from its first memory after a restart."""
        return self._inner.decide(view, self.initial if self.world.restarted else memory)


class Watched(_Wrapped):
    """A policy in any world that checks what the view says of expansions and of their costs.

    `expansions` counts those it was shown.
    """

    expansions = 0

    def decide(self, view: View, memory: object) -> Decision:
        """Decides as the inner policy does, in a view whose columns agree with each other."""
        self.expansions += len(view.expanding)
        for job, expansion in view.expanding.items():
            _check_expansion(view, job, expansion)
        decision = self._inner.decide(view, memory)
        for job, _, after in decision.draft.changes() if decision.draft is not None else ():
            if after is not None:
                pause_s, effect_s = view.switch_cost(job, after)
                assert 0 <= pause_s < NEVER_S and 0 <= effect_s < NEVER_S, f"cost of job {job}"
        return decision


def _check_expansion(view: View, job: int, expansion: Expansion) -> None:
    placement, training = view.running[job], expansion.training
    assert view.jobs.elastic[job], f"job {job} is not elastic and expands"
    assert training.gpus < placement.gpus, f"job {job} has no GPU that is made ready"
    kept = training.kept_in(placement)
    assert kept is not None and kept.gpus == training.gpus, f"job {job} trains outside the plan"
    cost = view.switch_cost(job, placement)
    assert cost.effect_s >= expansion.ready_s - view.now, f"job {job} is ready before its GPUs"
    with suppress(TypeError):
        view.expanding[job] = expansion  # type: ignore[index]
        raise AssertionError("expansions must be read only")


class _AskedTwice(_Wrapped):
    """Asks a policy twice at every instant and compares."""

    def decide(self, view: View, memory: object) -> Decision:
        before = _fingerprint(view)
        first = self._inner.decide(view, memory)
        wanted = tuple(first.draft.changes()) if first.draft is not None else ()
        view.plan.discard()
        assert _fingerprint(view) == before, f"{self.name} changes the view"
        second = self._inner.decide(view, memory)
        again = tuple(second.draft.changes()) if second.draft is not None else ()
        assert wanted == again, f"{self.name} decides differently when asked twice"
        assert (first.memory, first.wake_at) == (second.memory, second.wake_at)
        return second


def _fingerprint(view: View) -> tuple[object, ...]:
    occupancy = view.plan.occupancy
    return (
        view.now,
        view.plan.version,
        tuple(sorted(view.running.items(), key=lambda item: item[0])),
        tuple(view.waiting),
        tuple(occupancy.free),
        tuple(occupancy.levels),
        occupancy.free_gpus,
        tuple(sorted(occupancy.named.items())),
    )

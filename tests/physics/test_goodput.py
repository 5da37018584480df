from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from physics_scene import a_model, assumed

from builders import Facts, Row, jobs_of, scene_of, trace_of
from dovetail.control.loop import run
from dovetail.core.cluster import Cluster
from dovetail.core.messages import Ended, Retimed, Started
from dovetail.core.order import Order
from dovetail.core.placement import Placement
from dovetail.core.policy import Decision
from dovetail.core.view import View
from dovetail.physics.batches import goodput
from dovetail.physics.batches.efficiency import Efficiency
from dovetail.physics.batches.goodput import BatchKind
from dovetail.physics.beliefs.blur import Blur
from dovetail.physics.beliefs.noisy import noisy_physics
from dovetail.physics.linear import linear_physics
from dovetail.physics.placed import placed_physics
from dovetail.physics.speed.compute import Compute
from dovetail.physics.speed.throughput import speed_relative
from dovetail.physics.zoo.models import Catalogue, lookup, zoo
from dovetail.physics.zoo.profile import Batch
from dovetail.physics.zoo.profile_file import ProfileSet
from dovetail.sim.world import SimWorld

INF = float("inf")
LEARNER = a_model(
    name="learner",
    aliases=(),
    batch=assumed(Batch(10, per_gpu=False, max_per_gpu=100)),
    compute=(("v100", assumed(Compute(0.01, 0.001))),),
    gradient_bytes=assumed(0.0),
    efficiency=assumed(Efficiency(10, 100, 1, 100, (100.0, 300.0), (0.0, 90.0))),
)
"""An iteration takes 10 ms and 1 ms a sample; no exchange. In the first 100 steps of 10 samples
a larger batch is worth nothing more; in the 200 after them 100 samples are worth 5.26 steps."""
ALONE = BatchKind(LEARNER, 1, 10.0, 4)
CATALOGUE = Catalogue([ProfileSet("scene", "scene", "ours", (), (LEARNER, a_model()))])
SHIPPED = [p for p in zoo().values() if p.efficiency is not None]


def test_as_requested_the_phases_end_when_their_steps_are_done() -> None:
    assert goodput.phase_end_s(ALONE, 0.0) == pytest.approx(2.0)
    assert goodput.phase_end_s(ALONE, 1.99) == pytest.approx(2.0)
    assert goodput.phase_end_s(ALONE, 2.0) == INF
    assert goodput.phase_end_s(ALONE, 2.0 - 1e-9) == INF, "a rounded end must be passed"


def test_speed_with_a_larger_batch_by_hand() -> None:
    at = {"gpus": 1, "nodes": 1, "batch": 100, "steps": 1}
    assert goodput.relative_speed(ALONE, 0.0, **at) == pytest.approx(0.02 / 0.11)
    assert goodput.relative_speed(ALONE, 3.0, **at) == pytest.approx(1000 / 190 * 0.02 / 0.11)
    two = goodput.relative_speed(ALONE, 3.0, gpus=2, nodes=1, batch=100, steps=2)
    assert two == pytest.approx(1000 / 190 * 0.02 / 0.07)


def test_the_best_batch_by_hand() -> None:
    early = goodput.best_batches(ALONE, 0.0, 4)
    assert early.batch[1].tolist() == [0, 10, 10, 12, 12]
    assert early.speed[1, 2] == pytest.approx(0.02 / 0.015)
    late = goodput.best_batches(ALONE, 2.0, 4)
    assert late.batch[1, 4] == 60, "B / (90 + B) / (0.01 + 0.00025 B) is greatest at 60"
    assert late.speed[1, 4] == pytest.approx(3.2)
    assert late.speed[2].tolist() == [0.0, 0.0, *late.speed[1, 2:].tolist()]
    assert late.steps[1, 1] == 2, "one GPU must accumulate to know the noise of its gradients"


@settings(max_examples=30)
@given(
    profile=st.sampled_from(SHIPPED),
    requested=st.sampled_from([1, 3, 8, 16]),
    per_node=st.sampled_from([2, 4, 8]),
    progress=st.floats(0, 2),
)
def test_the_best_speed_is_that_of_its_batch_and_no_tried_batch_is_better(
    profile: object, requested: int, per_node: int, progress: float
) -> None:
    model = lookup(profile.full_name)  # type: ignore[attr-defined]
    known = model.efficiency
    assert known is not None
    kind = BatchKind(model, requested, float(model.batch.value.size), per_node)
    done_s = progress * (goodput.phase_end_s(kind, 0.0))
    best = goodput.best_batches(kind, done_s, 24)
    for nodes, gpus in ((1, 1), (1, 2), (2, 2), (2, 8), (3, 7), (3, 24)):
        batch, steps = int(best.batch[nodes, gpus]), int(best.steps[nodes, gpus])
        at = {"gpus": gpus, "nodes": nodes}
        speed = goodput.relative_speed(kind, done_s, **at, batch=batch, steps=steps)
        assert best.speed[nodes, gpus] == pytest.approx(speed)
        assert known.value.initial_batch <= batch <= known.value.max_batch
        assert known.value.least_per_gpu <= batch / gpus / steps <= known.value.most_per_gpu
        for other in np.geomspace(known.value.initial_batch, known.value.max_batch, 7):
            per_gpu = round(other / gpus)
            if known.value.least_per_gpu <= per_gpu <= known.value.most_per_gpu and gpus > 1:
                whole = per_gpu * gpus
                if known.value.initial_batch <= whole <= known.value.max_batch:
                    tried = goodput.relative_speed(kind, done_s, **at, batch=whole, steps=1)
                    assert tried <= speed * 1.02, "candidates are 10 % apart"


def test_as_requested_the_speed_is_one_whatever_the_progress() -> None:
    for profile in SHIPPED:
        batch = profile.batch.value.size
        kind = BatchKind(profile, 4, float(batch), 4)
        for done_s in (0.0, 1e3, 1e9):
            speed = goodput.relative_speed(kind, done_s, gpus=4, nodes=1, batch=batch, steps=1)
            assert speed == pytest.approx(1.0)


def test_without_a_noise_scale_the_batch_stays_and_a_larger_one_helps_least() -> None:
    plain = a_model()
    kind = BatchKind(plain, 2, 64.0, 4)
    best = goodput.best_batches(kind, 0.0, 8)
    assert not best.batch.any()
    for nodes, gpus in ((1, 2), (1, 4), (2, 8)):
        expected = speed_relative(
            plain, gpus=gpus, nodes_used=nodes, requested_gpus=2, gpus_per_node=4
        )
        assert best.speed[nodes, gpus] == pytest.approx(expected)
    same = goodput.relative_speed(kind, 0.0, gpus=2, nodes=1, batch=64, steps=1)
    assert same == pytest.approx(1.0)
    for batch in (16, 32, 128):
        assert goodput.relative_speed(kind, 0.0, gpus=2, nodes=1, batch=batch, steps=1) < 1
    assert goodput.phase_end_s(kind, 0.0) == INF


def test_tables_are_read_only_and_shared() -> None:
    best = goodput.best_batches(ALONE, 0.0, 4)
    with pytest.raises(ValueError, match="read-only"):
        best.speed[1, 1] = 2.0
    assert goodput.best_batches(ALONE, 1.0, 4) is best


def test_a_training_takes_its_iterations_times_their_seconds() -> None:
    found = goodput.training("cifar10", 8, 2048, "pollux")
    assert found is not None
    iterations, seconds = found
    profile = lookup("pollux/cifar10")
    assert profile.efficiency is not None
    assert iterations == profile.efficiency.value.iterations(2048)
    ends = [0.0]
    kind = BatchKind(profile, 8, 2048.0, 4)
    while (end := goodput.phase_end_s(kind, ends[-1])) < INF:
        ends.append(end)
    assert len(ends) == len(profile.efficiency.value.progress)
    assert ends == sorted(ends)
    assert ends[-1] < seconds
    assert goodput.training("no such model", 8, 2048) is None
    assert goodput.training("afs/vgg16", 8, 256) is None, "how it learns is not known"


@dataclass(frozen=True)
class AtBatch:
    """Starts every job on its requested GPUs with one global batch."""

    batch: int

    knows: ClassVar[frozenset[str]] = frozenset()
    powers: ClassVar[frozenset[str]] = frozenset({"change batch"})
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[None] = None

    def decide(self, view: View, memory: object) -> Decision:
        draft = view.plan.draft()
        for job in list(view.waiting):
            draft.place(job, Placement(((0, int(view.jobs.gpus[job])),), batch_size=self.batch))
        return Decision(draft)


@pytest.mark.parametrize(("switching", "lost_s"), [("none", 0.0), ("per-start:5", 5.0)])
def test_a_job_passes_through_its_phases_at_their_speeds(switching: str, lost_s: float) -> None:
    trace = trace_of(Row(1, 6.0, model="scene/learner", batch_size=10))
    physics = placed_physics(trace.jobs, Cluster.parse("1x4"), CATALOGUE)
    facts = Facts()
    policy = AtBatch(100)
    world = SimWorld(scene_of(trace, "1x4", truth=physics, switching=switching), policy, facts)
    run(world, policy)
    world.advance(INF)

    first, then = 0.02 / 0.11, 1000 / 190 * 0.02 / 0.11
    started = [f for f in facts.all if isinstance(f, Started)]
    assert [f.rate for f in started] == pytest.approx([first])
    retimed = [f for f in facts.all if isinstance(f, Retimed)]
    assert [(f.t, f.rate) for f in retimed] == [
        (pytest.approx(lost_s + 2 / first), pytest.approx(then))
    ]
    ended = [f.t for f in facts.all if isinstance(f, Ended)]
    assert ended == [pytest.approx(lost_s + 2 / first + 4 / then)]


def test_physics_answers_for_jobs_with_and_without_a_model() -> None:
    jobs = jobs_of(
        Row(1, 6.0, model="scene/learner", batch_size=10), Row(2, 6.0), Row(2, 6.0, model="plain")
    )
    physics = placed_physics(jobs, Cluster.parse("2x4"), CATALOGUE)
    assert physics.speed.best_batches(0, 3.0, 8).batch[1, 4] == 60
    assert physics.speed.best_batches(1, 3.0, 8).speed.tolist() == [
        [0.0] * 9,
        [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0],
    ]
    assert physics.speed.best_batches(2, 3.0, 8).speed[1, 2] == pytest.approx(1.0)
    assert [physics.batches.phase_end_s(j, 0.0) for j in range(3)] == [pytest.approx(2.0), INF, INF]
    other = Placement(((0, 1),), batch_size=100)
    assert physics.rate(0, other, (), 0.0) == pytest.approx(0.02 / 0.11)
    assert physics.rate(0, Placement(((0, 1),)), (), 3.0) == 1.0


def test_by_count_the_nodes_do_not_matter() -> None:
    kind = BatchKind(lookup("pollux/imagenet"), 8, 6400.0, 4, by_count=True)
    best = goodput.best_batches(kind, 0.0, 16)
    assert best.speed[1, 16] == best.speed[2, 16] == best.speed[3, 16] > 0


def test_a_blurred_belief_keeps_the_batches_and_what_was_seen() -> None:
    jobs = jobs_of(Row(2, 6.0, model="scene/learner", batch_size=10))
    truth = placed_physics(jobs, Cluster.parse("2x4"), CATALOGUE)
    blurred = noisy_physics(truth, jobs, Blur(0.3, 0.3), 1)
    true, seen = truth.speed.best_batches(0, 0.0, 8), blurred.speed.best_batches(0, 0.0, 8)
    assert (seen.batch == true.batch).all()
    assert seen.speed[1, 2] == true.speed[1, 2]
    assert seen.speed[1, 4] != true.speed[1, 4]
    assert seen.speed[2, 8] / true.speed[2, 8] == pytest.approx(
        blurred.rate(0, Placement(((0, 4), (1, 4))), ())
        / truth.rate(0, Placement(((0, 4), (1, 4))), ())
    )
    speeds = linear_physics(jobs).speed.best_batches(0, 0.0, 4).speed
    assert speeds[1].tolist() == [0, 0.5, 1, 1.5, 2]

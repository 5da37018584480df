"""Speeds of interleave sets: rules, contention, floor, unknown stages, and members that leave."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from physics_scene import a_model, assumed

from builders import Row, play_scene, scene_of, trace_of
from dovetail.core.beliefs import Interleaving, Neighbour, Physics
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.messages import Retimed
from dovetail.core.order import Order
from dovetail.core.placement import Interleave, Placement
from dovetail.core.policy import POWERS, Decision
from dovetail.core.view import View
from dovetail.physics.placed import placed_physics
from dovetail.physics.sharing.service_demand import UNKNOWN_DEMAND, well_placed_demand
from dovetail.physics.sharing.turns import (
    ALONE,
    MEASURED_FACTORS,
    InterleaveCycles,
    InterleaveRule,
    MemberStages,
    interleaving_of,
)
from dovetail.physics.speed.throughput import iteration_s
from dovetail.physics.zoo.models import Catalogue, lookup, shipped_sets
from dovetail.physics.zoo.profile import ModelProfile, StageTimes
from dovetail.physics.zoo.profile_file import ProfileSet

PLAIN = "barrier,no-contention,no-floor"


def model(name: str, *stage_s: float) -> ModelProfile:
    """A model of 74 ms an iteration on one GPU with these stages, in hundredths of it."""
    alone_s = iteration_s(a_model(), gpus=1)
    row = StageTimes(1, *(alone_s * t / 100 for t in stage_s))
    return a_model(name=name, stages=assumed((row,)))


DISK, CHIP, WIRE = (
    model("disk", 80, 0, 20, 0),
    model("chip", 0, 10, 90, 0),
    model("wire", 10, 0, 30, 60),
)
BARE = a_model(name="bare")
CATALOGUE = Catalogue(
    [*shipped_sets(), ProfileSet("scene", "s", "s", (), (DISK, CHIP, WIRE, BARE))]
)


def physics(cycle: str, *models: str) -> Physics:
    jobs = trace_of(*(Row(1, 1000, model=m, shareable=True) for m in models)).jobs
    return placed_physics(
        jobs, Cluster.uniform(1, 1), CATALOGUE, interleaving=InterleaveRule.parse(cycle)
    )


def seat(phase: int) -> Placement:
    return Placement(((0, 1),), ((0,),), interleave=Interleave(0, phase))


def speeds(cycle: str, *models: str, phases: tuple[int, ...] = ()) -> list[float]:
    known = physics(cycle, *models)
    seats: list[Neighbour] = [(j, seat(p)) for j, p in enumerate(phases or range(len(models)))]
    return [known.rate(j, where, seats[:j] + seats[j + 1 :]) for j, where in seats]


def test_a_set_runs_at_the_cycle_of_equation_3() -> None:
    # Phase 0: disk 80, chip's CPU 10; 1: chip 90; 2: disk 20; 3: nothing. 190 hundredths.
    assert speeds(PLAIN, "scene/disk", "scene/chip") == pytest.approx([1 / 1.9] * 2)
    # Two slots apart: disk 80 with chip's 90; then 20, and chip's CPU 10, each by itself.
    apart = speeds(PLAIN, "scene/disk", "scene/chip", phases=(0, 2))
    assert apart == pytest.approx([1 / 1.2] * 2)


@pytest.mark.parametrize(("members", "factor"), [(2, 1.31), (3, 1.48), (4, 1.35)])
def test_contention_multiplies_the_cycle_by_members(members: int, factor: float) -> None:
    names = ("scene/disk", "scene/chip", "scene/wire", "scene/disk")[:members]
    plain = speeds(PLAIN, *names)
    slowed = speeds("barrier,no-floor", *names)
    assert slowed == pytest.approx([s / factor for s in plain])
    assert MEASURED_FACTORS[members - 1] == factor and ALONE[members - 1] == 1


def test_no_member_is_faster_than_alone_unless_the_floor_is_taken_away() -> None:
    # Stages of 20 hundredths in all: equation 3 alone would make the jobs five times as fast.
    light = Catalogue([ProfileSet("scene", "s", "s", (), (model("light", 5, 5, 5, 5),))])
    jobs = trace_of(*[Row(1, 9, model="scene/light", shareable=True)] * 2).jobs
    pace = {}
    for words in ("barrier,no-contention", PLAIN):
        rule = InterleaveRule.parse(words)
        one = placed_physics(jobs, Cluster.uniform(1, 1), light, interleaving=rule)
        pace[words] = one.rate(0, seat(0), [(1, seat(1))])
    assert pace == {"barrier,no-contention": 1.0, PLAIN: pytest.approx(5.0)}


def test_the_floor_is_that_of_the_slowest_member() -> None:
    rule = Interleaving(np.empty((0, 4)), np.empty(0), "barrier", ALONE, True)
    cycles, loading = InterleaveCycles(rule), (1.0, 0.0, 0.0, 0.0)
    one, two = MemberStages(loading, 2.0, 0), MemberStages(loading, 6.0, 1)
    # A cycle of 2 s by the stages, but the second needs 6 s alone; the first waits for it.
    assert [cycles.slowdown(one, [two]), cycles.slowdown(two, [one])] == [3.0, 1.0]


def test_three_stages_join_storage_and_cpu() -> None:
    known = physics("three-stages", "scene/disk", "scene/chip").sharing.interleaving
    alone_s = iteration_s(DISK, gpus=1)
    assert known.stage_s.shape == (2, 3)
    assert sorted((known.stage_s[:, 0] / alone_s).tolist()) == pytest.approx([0.1, 0.8])
    # Three phases: 80 with the chip's 90; 20 with nothing; the chip's load, 10.
    joined = speeds(f"{PLAIN},three-stages", "scene/disk", "scene/chip")
    assert joined == pytest.approx([1 / 1.2] * 2)


def test_jobs_of_unknown_stages_take_turns_on_the_whole_gpu() -> None:
    assert speeds("barrier", "scene/disk", "scene/bare", "") == pytest.approx([1 / 3] * 3)
    assert speeds("overlapped", "", "") == [0.5, 0.5]
    times = interleaving_of(
        [well_placed_demand(BARE, 1), UNKNOWN_DEMAND, well_placed_demand(DISK, 1)], InterleaveRule()
    )
    assert times.stage_s[:2].sum() == 0 and times.iteration_s[:2].tolist() == [0, 0]
    assert not times.stage_s.flags.writeable


def test_a_job_with_a_seat_beside_one_without_shares_as_any_pair() -> None:
    known = physics("barrier", "muri/gpt2", "muri/vgg16")
    plain = Placement(((0, 1),), ((0,),))
    shared = known.rate(0, plain, [(1, plain)])
    assert known.rate(0, seat(0), [(1, plain)]) == shared == known.rate(0, plain, [(1, seat(1))])


def chained(*seats: Interleave | None) -> list[Neighbour]:
    """Returns jobs of two GPUs each, of which each meets the next on one."""
    return [(j, Placement(((0, 2),), ((j, j + 1),), interleave=one)) for j, one in enumerate(seats)]


@pytest.mark.parametrize("linear", [True, False])
def test_of_a_chain_each_has_the_slowest_of_its_gpus(linear: bool) -> None:
    models = ("", "", "") if linear else ("muri/gpt2", "muri/vgg16", "muri/bert")
    jobs = trace_of(*(Row(2, 1000, model=m, shareable=True) for m in models)).jobs
    known = placed_physics(jobs, Cluster.uniform(1, 4), CATALOGUE)
    # The first and the last do not meet, so they may sit in one phase.
    first, middle, last = chained(Interleave(0, 0), Interleave(0, 1), Interleave(0, 0))
    beside = [known.rate(*middle, [one]) for one in (first, last)]
    assert known.rate(*middle, [first, last]) == min(beside)
    assert known.rate(*middle, [last, first]) == min(beside)
    # One without a seat competes freely on its GPU, and the set on the other takes turns.
    _, _, free = chained(None, None, None)
    mixed = min(beside[0], known.rate(*middle, [free]))
    assert known.rate(*middle, [first, free]) == mixed


def test_the_overlapped_rule_lets_a_stage_begin_when_the_one_before_is_done() -> None:
    words = "overlapped,no-contention,no-floor"
    # Disk loads 80 beside the chip's GPU 90; then disk's GPU 20 beside the chip's load 10.
    apart = max(0.80, 0.90) + max(0.10, 0.20)
    assert speeds(words, "scene/disk", "scene/chip", phases=(0, 2)) == pytest.approx(
        [1 / apart] * 2
    )


def test_members_of_a_set_use_their_activations_in_turns() -> None:
    # Fixed 0.827, 0.820, 2.790, 2.460 GB; the largest activations are GPT-2's 8.8 GB.
    names = ("muri/shufflenet_v2_x1_0", "muri/a2c", "muri/gpt2", "muri/vgg16")
    known = physics("barrier", *names)
    seats = [(j, seat(j)) for j in range(4)]
    need = 0.82736e9 + 0.8204e9 + 2.7904e9 + 2.46032e9 + 8.8e9
    assert known.memory.fits(seats, need * (1 + 1e-9))
    assert not known.memory.fits(seats, need * (1 - 1e-9))
    plain = Placement(((0, 1),), ((0,),))
    assert not known.memory.fits([(0, plain), (2, plain)], 0.82736e9 + 2.7904e9 + 8.8e9)


# A world run: a member ends, the others keep their phases.


@dataclass(frozen=True)
class Seated:
    """Puts each job where it is told when it waits."""

    where: tuple[Placement, ...]
    powers: frozenset[str] = frozenset(POWERS)
    knows: ClassVar[frozenset[str]] = frozenset()
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[None] = None

    def decide(self, view: View, memory: object) -> Decision:
        draft = view.plan.draft()
        for job in view.waiting:
            draft.place(job, self.where[job])
        return Decision(draft)


def barrier_pace(rows: list[tuple[float, ...]], phases: list[int]) -> float:
    return sum(max(r[(p + j) % 4] for r, p in zip(rows, phases, strict=True)) for j in range(4))


def apart_pace(rows: list[tuple[float, ...]], phases: list[int]) -> float:
    assert phases == [0, 2]
    (load_a, gpu_a, net_a), (load_b, gpu_b, net_b) = [(r[0] + r[1], r[2], r[3]) for r in rows]
    return max(load_a, gpu_b + net_b) + max(load_b, gpu_a + net_a)


@pytest.mark.parametrize(("cycle", "pace"), [("barrier", barrier_pace), ("overlapped", apart_pace)])
def test_the_others_keep_their_phases_when_a_member_ends(
    cycle: str, pace: Callable[[list[tuple[float, ...]], list[int]], float]
) -> None:
    names = ("muri/shufflenet_v2_x1_0", "muri/gpt2", "muri/vgg16")
    profiles = [lookup(name) for name in names]
    trace = trace_of(
        *(Row(1, d, model=n, shareable=True) for n, d in zip(names, (900, 30, 600), strict=True))
    )
    truth = placed_physics(
        trace.jobs, Cluster.uniform(1, 1), CATALOGUE, interleaving=InterleaveRule.parse(cycle)
    )
    policy = Seated((seat(0), seat(1), seat(2)))
    story = play_scene(scene_of(trace, "1x1", truth=truth), policy)

    rows = [p.stage_times(1).of_resources() for p in (profiles[0], profiles[2])]  # type: ignore[union-attr]
    alone = [iteration_s(p, gpus=1) for p in (profiles[0], profiles[2])]
    together = max(1.31 * pace(rows, [0, 2]), *alone)
    retimed = {(f.job, round(f.t)): f.rate for f in story.facts if isinstance(f, Retimed)}
    gone = story.finishes[1]
    assert retimed[0, round(gone)] == pytest.approx(alone[0] / together)
    assert retimed[2, round(gone)] == pytest.approx(alone[1] / together)
    # The last one has the GPU to itself.
    last = max(story.finishes)
    assert [rate for (_, t), rate in retimed.items() if round(gone) < t < last] == [1.0]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("barier", "barrier"),
        ("barrier,overlapped", "contradicts an earlier word"),
        ("floor,no-floor", "contradicts an earlier word"),
        ("", "unknown word"),
    ],
)
def test_rules_that_cannot_be_are_refused(text: str, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        InterleaveRule.parse(text)


def test_what_is_not_said_is_the_default() -> None:
    assert InterleaveRule.parse("overlapped") == InterleaveRule()
    assert InterleaveRule.parse("no-floor") == InterleaveRule("overlapped", floor=False)
    full = InterleaveRule.parse("barrier,no-contention,no-floor,three-stages")
    assert full == InterleaveRule("barrier", ALONE, False, 3)

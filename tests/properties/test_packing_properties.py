"""What packing and defragmentation promise, on any stage."""

import random
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, Stage, jobs_of
from dovetail.core.defragmentation import Stake, defragment
from dovetail.core.legality import violations
from dovetail.core.packing import Unit, arrange
from dovetail.core.placement import Placement
from dovetail.core.policy import POWERS
from dovetail.core.view import View
from spread_physics import spread_physics

ALL = frozenset(POWERS)


@st.composite
def stages(draw: st.DrawFn) -> Stage:
    """Draws a stage: some jobs wait, some run on any GPUs, with names or without."""
    cluster = draw(st.sampled_from(["3x4", "2x2+1x6", "4x3", "2x2x4"]))
    rows = []
    for _ in range(draw(st.integers(2, 8))):
        gpus = draw(st.integers(1, 5))
        low = draw(st.integers(1, gpus))
        rows.append(
            Row(
                gpus,
                draw(st.sampled_from([2.0, 9.0])),
                elastic=True,
                min_gpus=low,
                max_gpus=8,
                shareable=draw(st.booleans()),
                preemptible=draw(st.integers(0, 4)) < 4,
            )
        )
    placing = draw(st.sampled_from(["prefer", "strict", "prefer,repack", "none", "most-free"]))
    jobs = jobs_of(*rows)
    stage = Stage(
        rows, "dovetail", cluster, placing=placing, physics=spread_physics(jobs),
        switching=draw(st.sampled_from(["none", "restart:30", "restart:30,prepared:10"])),
    )  # fmt: skip
    stage.run_jobs(*_scattered(stage, draw(st.integers(0, 2**32))))
    if draw(st.booleans()):
        stage.state.change_nodes([(0, "draining")])
    return stage


def _scattered(stage: Stage, seed: int) -> list[tuple[int, Placement]]:
    rng, installed = random.Random(seed), stage.view.cluster.installed
    idle = [(node, gpu) for node, gpus in enumerate(installed) for gpu in range(gpus)]
    rng.shuffle(idle)
    placed = []
    for job in range(len(stage.view.jobs)):
        need = int(stage.view.jobs.gpus[job])
        if need > len(idle) or rng.random() < 0.25:
            continue
        chosen, idle = idle[:need], idle[need:]
        nodes = sorted({node for node, _ in chosen})
        ids = tuple(tuple(sorted(g for n, g in chosen if n == node)) for node in nodes)
        spans = tuple((node, len(own)) for node, own in zip(nodes, ids, strict=True))
        placed.append((job, Placement(spans, ids)))
    return placed


def stakes_of(view: View, seed: int) -> dict[int, Stake]:
    rng = random.Random(seed)
    times_s = (1.0, 40.0, 400.0, 1e5)
    return {j: Stake(rng.uniform(0.5, 4), rng.choice(times_s)) for j in range(len(view.jobs))}


def worth(view: View, placed: Mapping[int, Placement], stakes: Mapping[int, Stake]) -> float:
    """Returns what jobs that share no GPU make of their time, less their pauses; written plainly.

    A job that keeps GPUs trains on there until the others are ready.
    """
    total = 0.0
    for job, where in placed.items():
        weight, horizon_s = stakes[job]
        before, rate = view.running.get(job), view.physics.rate(job, where)
        if before == where:
            total += weight * rate
            continue
        pause_s, effect_s = (min(s, horizon_s) for s in view.switch_cost(job, where))
        kept = before.kept_in(where) if before is not None else None
        meanwhile = view.physics.rate(job, kept) if kept is not None else 0.0
        made = rate * (horizon_s - effect_s) + meanwhile * (effect_s - pause_s)
        total += weight * made / horizon_s
    return total


@settings(max_examples=60)
@given(stage=stages(), seed=st.integers(0, 2**32))
def test_defragmentation_is_legal_keeps_sizes_and_is_worth_at_least_as_much(
    stage: Stage, seed: int
) -> None:
    view = stage.view
    stakes = stakes_of(view, seed)
    movable = [(job,) for job in view.running if view.preemptible[job]]
    draft = view.plan.draft()
    defragment(view, draft, movable, stakes)
    placed = draft.placed
    assert violations(view, draft.changes(), draft.occupancy, ALL) == []
    assert {j: p.gpus for j, p in placed.items()} == {j: p.gpus for j, p in view.running.items()}
    assert all(len(list(placed[j].named())) == p.gpus for j, p in view.running.items() if p.gpu_ids)
    moved = [c.job for c in draft.changes()]
    assert all(view.preemptible[j] for j in moved)
    stay = worth(view, view.running, stakes)
    assert worth(view, placed, stakes) >= stay * (1 + (1e-6 if moved else -1e-9))


@settings(max_examples=60)
@given(stage=stages(), seed=st.integers(0, 2**32), moves=st.booleans(), named=st.booleans())
def test_arranged_units_are_legal_and_have_their_least(
    stage: Stage, seed: int, moves: bool, named: bool
) -> None:
    view, rng = stage.view, random.Random(seed)
    jobs = [j for j in range(len(view.jobs)) if view.preemptible[j]]
    rng.shuffle(jobs)
    units: list[Unit] = []
    while jobs:
        pair = len(jobs) > 1 and view.jobs.shareable[jobs[:2]].all() and rng.random() < 0.5
        members = tuple(jobs[: 2 if pair else 1])
        jobs = jobs[len(members) :]
        least = int(view.jobs.min_gpus[list(members)].max())
        units.append(Unit(members, rng.randint(least, 8), least))
    draft = arrange(view, units, stakes_of(view, seed), named=named, moves=moves)
    assert violations(view, draft.changes(), draft.occupancy, ALL) == []
    for unit in units:
        placed = [draft.placed[job] for job in unit.jobs if job in draft.placed]
        held = [view.running[job] for job in unit.jobs if job in view.running]
        low = min([unit.least, *(p.gpus for p in held)])
        assert all(low <= p.gpus <= unit.gpus for p in placed)
        if len(placed) == len(unit.jobs) == 2:
            assert placed[0].gpu_ids == placed[1].gpu_ids
    settled = [j for j in view.running if not view.preemptible[j]]
    assert all(draft.placed[j] == view.running[j] for j in settled)

"""A policy that shares, moves, interleaves, resizes and stops at random, in the real world.

Nothing is decided well here; everything the vocabulary can say is said, and every invariant
(rates by neighbours, work, capacity, GPU-seconds) is checked at every instant.
"""

import random
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, play_scene, scene_of, trace_of
from dovetail.core.errors import IllegalPlan
from dovetail.core.legality import violations
from dovetail.core.order import Order
from dovetail.core.placement import Interleave, Placement
from dovetail.core.plan import Draft
from dovetail.core.policy import POWERS, Decision
from dovetail.core.view import View
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.interference import Injected

NODES, GPUS = 2, 3


@dataclass(frozen=True)
class Restless:
    """Tries a few random legal steps at every decision; calms down after `calm_s`."""

    seed: int
    calm_s: float
    knows: ClassVar[frozenset[str]] = frozenset()
    powers: ClassVar[frozenset[str]] = frozenset(POWERS)
    order: ClassVar[Order] = Order(lambda view, jobs: [0.0] * len(jobs))
    initial: ClassVar[int] = 0

    def decide(self, view: View, memory: object) -> Decision:
        draw = random.Random(f"{self.seed}/{view.now}/{memory}")
        draft = view.plan.draft()
        everybody = sorted([*view.running, *view.waiting])
        for _ in range(6 if view.now < self.calm_s else 0):
            _try(view, draft, draw.choice(everybody) if everybody else -1, draw)
        for job in [j for j in everybody if j not in draft.placed]:
            spans = view.placing.find(draft.occupancy, view.shape(job))
            if spans is not None:
                draft.place(job, spans)
        assert isinstance(memory, int)
        wake_s = view.now + 1.0 if view.now < self.calm_s else float("inf")
        return Decision(draft, memory + 1, wake_s)


def _try(view: View, draft: Draft, job: int, draw: random.Random) -> None:
    if job < 0:
        return
    mark = draft.savepoint()
    try:
        if job in draft.placed and draw.random() < 0.3:
            draft.remove(job)
        else:
            draft.place(job, _somewhere(view, job, draw))
    except IllegalPlan:
        return
    if violations(view, draft.changes(), draft.occupancy, frozenset(POWERS)):
        draft.undo_to(mark)


def _somewhere(view: View, job: int, draw: random.Random) -> Placement:
    gpus = view.shape(job).gpus
    if view.jobs.elastic[job]:
        gpus = draw.randint(int(view.jobs.min_gpus[job]), int(view.jobs.max_gpus[job]))
    named = [(n, g) for n in range(NODES) for g in range(GPUS)]
    chosen = sorted(draw.sample(named, min(gpus, len(named))))
    nodes = sorted({n for n, _ in chosen})
    ids = tuple(tuple(g for n, g in chosen if n == node) for node in nodes)
    spans = tuple((node, len(i)) for node, i in zip(nodes, ids, strict=True))
    if draw.random() < 0.25:
        return Placement(spans)
    seat = Interleave(1, job) if draw.random() < 0.3 else None
    fractions = tuple(draw.choice([0.25, 1.0]) for _ in chosen) if draw.random() < 0.3 else ()
    return Placement(spans, ids, draw.choice([1, 1, 2]), fractions, (), seat)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    jobs=st.integers(1, 9),
    switching=st.sampled_from(["none", "restart:2", "per-start:1"]),
    breaks=st.booleans(),
)
def test_whatever_is_shared_the_world_keeps_its_books(
    seed: int, jobs: int, switching: str, breaks: bool
) -> None:
    draw = random.Random(seed)
    times = (0.7 * i for i in count())
    rows = []
    for _ in range(jobs):
        gpus = draw.randint(1, 4)
        elastic = draw.random() < 0.4
        rows.append(
            Row(
                gpus,
                draw.choice([1.0, 3.0, 8.5]),
                submit_s=next(times),
                shareable=draw.random() < 0.8,
                elastic=elastic,
                min_gpus=1 if elastic else gpus,
                max_gpus=5 if elastic else gpus,
                preemptible=draw.random() < 0.9,
            )
        )
    trace = trace_of(*rows)
    capacity = [(4.0, [(0, "down")]), (9.0, [(0, "up")])] if breaks else []
    scene = scene_of(
        trace,
        f"{NODES}x{GPUS}",
        truth=linear_physics(trace.jobs, Injected(1.6)),
        switching=switching,
        capacity=capacity,
    )
    play_scene(scene, Restless(seed, calm_s=25.0))

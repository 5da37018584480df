"""AFS in whole runs: limits of shares, work conserved, and the guarantees of network packing."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, Story, play_scene, scene_of, trace_of
from curved_physics import curved_physics
from dovetail.conformance import PolicyConformance
from dovetail.core.cluster import DOWN, DRAINING, UP
from dovetail.core.messages import Ended, Started, Stopped
from dovetail.core.placement import Placement

NODES, PER_NODE = 3, 4
POLICIES = ["afs-l", "afs-p:unit-s=7", "afs-s:unit-s=7"]
OPTIONS = ["", "packing=network", "estimates=overestimate,measure-s=2"]
CHURN = ((20.0, [(1, DRAINING)]), (40.0, [(0, DOWN)]), (60.0, [(0, UP), (1, UP)]))


class TestPackedAfsL(PolicyConformance):
    policy = "afs-l:packing=network,estimates=overestimate,measure-s=3"


class TestPackedAfsP(PolicyConformance):
    policy = "afs-p:unit-s=20,packing=network"


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    t = 0.0
    made = []
    for _ in range(draw(st.integers(1, 16))):
        t += draw(st.sampled_from([0.0, 0.0, 1.0, 6.5]))
        gpus = draw(st.sampled_from([1, 1, 1, 2, 3, 4, 6]))
        elastic = draw(st.booleans())
        low = draw(st.integers(1, gpus)) if elastic else gpus
        high = draw(st.integers(gpus, 12)) if elastic else gpus
        length_s = draw(st.sampled_from([1.0, 5.0, 12.0, 40.0]))
        made.append(Row(gpus, length_s, t, elastic=elastic, min_gpus=low, max_gpus=high))
    return made


def curves(n: int, seed: int) -> list[list[float]]:
    """Returns a concave curve for each job, some with a peak."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        steps = np.sort(rng.uniform(-0.1, 1.0, 11))[::-1]
        made.append([1.0, *np.maximum(0.2, 1.0 + np.cumsum(steps)).tolist()])
    return made


def with_option(policy: str, option: str) -> str:
    name, _, given_already = policy.partition(":")
    return f"{name}:" + ",".join(filter(None, (given_already, option)))


def plans(story: Story) -> Iterator[dict[int, Placement]]:
    """Yields who runs where after each instant."""
    placed: dict[int, Placement] = {}
    for batch in story.batches:
        for fact in batch:
            if isinstance(fact, Started):
                placed[fact.job] = fact.placement
            elif isinstance(fact, Stopped | Ended):
                placed.pop(fact.job, None)
        yield placed


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=12)
@given(rows=rows(), seed=st.integers(0, 99), churn=st.booleans())
def test_shares_stay_within_limits_and_no_work_is_lost(
    policy: str, option: str, rows: list[Row], seed: int, churn: bool
) -> None:
    trace = trace_of(*rows)
    physics = curved_physics(trace.jobs, curves(len(rows), seed))
    scene = scene_of(
        trace,
        f"{NODES}x{PER_NODE}",
        truth=physics,
        switching="restart:1",
        capacity=CHURN if churn else (),
    )
    story = play_scene(scene, with_option(policy, option))  # adds up every job's work
    assert sorted(story.ended()) == list(range(len(rows)))
    assert set(story.how) == {"completed"}
    for placed in plans(story):
        for job, placement in placed.items():
            row = rows[job]
            low, high = (row.min_gpus, row.max_gpus) if row.elastic else (row.gpus, row.gpus)
            assert low <= placement.gpus <= high
        if "packing" in option:
            assert_no_network_is_shared(placed)


def assert_no_network_is_shared(placed: dict[int, Placement]) -> None:
    talks: list[int] = []
    for placement in placed.values():
        nodes = sorted({node for node, _ in placement.spans})
        assert len(nodes) == -(-placement.gpus // PER_NODE), "more machines than it needs"
        if len(nodes) > 1:
            talks += nodes
    assert len(talks) == len(set(talks)), "two jobs of one machine talk to others"


@settings(max_examples=12)
@given(rows=rows(), seed=st.integers(0, 99))
def test_a_packed_share_is_allowed_unless_the_job_can_run_on_no_allowed_one(
    rows: list[Row], seed: int
) -> None:
    trace = trace_of(*rows)
    physics = curved_physics(trace.jobs, curves(len(rows), seed))
    story = play_scene(
        scene_of(trace, f"{NODES}x{PER_NODE}", truth=physics), "afs-l:packing=network"
    )
    for placed in plans(story):
        for job, placement in placed.items():
            low, high = rows[job].min_gpus, rows[job].max_gpus
            allowed = {s for s in (1, 2, 4, 8, 12) if low <= s <= high}
            if rows[job].elastic and allowed:
                assert placement.gpus in allowed


@settings(max_examples=15)
@given(rows=rows(), seed=st.integers(0, 99))
def test_who_fits_is_never_kept_waiting_by_afs(rows: list[Row], seed: int) -> None:
    """While the least of all fit together, and gangs may be spread, everybody runs."""
    trace = trace_of(*rows)
    physics = curved_physics(trace.jobs, curves(len(rows), seed))
    for policy in POLICIES:
        scene = scene_of(trace, f"{NODES}x{PER_NODE}", truth=physics, placing="none")
        story = play_scene(scene, policy)
        placed: dict[int, Placement] = {}
        present: set[int] = set()
        for batch in story.batches:
            for fact in batch:
                if isinstance(fact, Started):
                    placed[fact.job] = fact.placement
                elif isinstance(fact, Ended):
                    placed.pop(fact.job, None)
                    present.discard(fact.job)
                elif isinstance(fact, Stopped):
                    placed.pop(fact.job)
                elif type(fact).__name__ == "Submitted":
                    present.add(fact.job)  # type: ignore[union-attr]
            least = [rows[j].min_gpus if rows[j].elastic else rows[j].gpus for j in present]
            if sum(least) <= NODES * PER_NODE:
                assert set(placed) == present, policy


@st.composite
def streams(draw: st.DrawFn) -> list[Row]:
    """Returns small jobs that keep four GPUs busy one after another, and some gangs among them."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    t_s = np.cumsum(rng.uniform(0.0, 2.0 * draw(st.sampled_from([2.0, 3.0, 6.0])), 40))
    made = []
    for submit_s in t_s.tolist():
        gpus = int(rng.choice([1, 2, 3, 4], p=[0.85, 0.07, 0.04, 0.04]))
        elastic = bool(rng.random() < 0.3)
        most = 4 if elastic else gpus
        length_s = float(rng.uniform(2.0, 20.0))
        made.append(Row(gpus, length_s, submit_s, elastic=elastic, min_gpus=gpus, max_gpus=most))
    return made


@pytest.mark.parametrize("policy", ["afs-p", "afs-s"])
@settings(max_examples=30)
@given(
    rows=streams(),
    unit_s=st.sampled_from([3.0, 12.0, 7200.0]),
    switching=st.sampled_from(["none", "restart:1"]),
)
def test_a_gang_that_later_jobs_passed_over_starts_within_two_units(
    policy: str, rows: list[Row], unit_s: float, switching: str
) -> None:
    scene = scene_of(trace_of(*rows), "1x4", switching=switching)
    story = play_scene(scene, f"{policy}:unit-s={unit_s}")
    first_s = [story.starts(job)[0][0] for job in range(len(rows))]
    # One gang may have reserved GPUs before it, and then runs for a unit. No unit takes longer
    # than the longest job, which may have to start twice.
    bound_s = 2 * (min(unit_s, 20.0 + 2 * 1.0) + 1.0) + 1e-6
    for job, began_s in enumerate(first_s):
        # From when on nobody who never ran was submitted before it.
        ahead_s = max(first_s[:job], default=0.0)
        passed_s = [t for t in first_s[job + 1 :] if ahead_s <= t < began_s]
        assert began_s <= min(passed_s, default=began_s) + bound_s

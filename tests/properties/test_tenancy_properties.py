"""Promises to tenants over random trees, demands and runs."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import Row, Story, play
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.messages import Ended, Explained, Started, Stopped
from dovetail.core.tenant_tree import TenantTree, weighted_filling
from dovetail.core.tenants import QueueSpec

GPUS = 16
NODES = (NodeGroup("all", 4, 4),)


@st.composite
def trees(draw: st.DrawFn) -> tuple[QueueSpec, ...]:
    """Returns a tree of two to six queues with weights."""
    count = draw(st.integers(2, 6))
    queues: list[QueueSpec] = []
    for number in range(count):
        parent = draw(st.sampled_from(["", *(q.name for q in queues[:2])]))
        queues.append(QueueSpec(f"q{number}", weight=draw(st.integers(1, 4)), parent=parent))
    return tuple(queues)


@given(
    st.lists(st.tuples(st.floats(0, 50), st.floats(0.1, 9)), min_size=1, max_size=8),
    st.floats(0, 100),
)
def test_water_filling_uses_the_pool_and_raises_the_lowest(
    rows: list[tuple[float, float]], pool: float
) -> None:
    caps, weights = (np.array(column) for column in zip(*rows, strict=True))
    shares = weighted_filling(caps, weights, pool)
    assert (shares <= caps + 1e-9).all()
    assert shares.sum() == pytest.approx(min(pool, caps.sum()), abs=1e-6)
    thirsty = shares < caps - 1e-6
    if thirsty.any():
        level = (shares / weights)[thirsty]
        assert level.max() == pytest.approx(level.min(), rel=1e-6, abs=1e-6)
        assert (shares / weights <= level.max() + 1e-6).all()


@given(trees(), st.data())
def test_what_tenants_deserve_adds_up_and_is_never_more_than_they_ask(
    queues: tuple[QueueSpec, ...], data: st.DataObject
) -> None:
    tree = TenantTree(queues, ())
    leaves = [tree.leaf(q.name, "", "") for q in queues]
    demand = np.zeros(len(tree))
    for leaf in leaves:
        demand[leaf] = data.draw(st.integers(0, 30))
    shares = tree.deserved(demand, GPUS)
    assert shares[leaves].sum() == pytest.approx(min(GPUS, demand.sum()))
    assert (shares[leaves] <= demand[leaves] + 1e-9).all()


@dataclass(frozen=True)
class Terms:
    min_run_s: float
    grace_s: float
    budget: int


def random_rows(seed: int, count: int, *, names: tuple[str, ...]) -> list[Row]:
    draw = np.random.default_rng(seed)
    submit = np.sort(draw.uniform(0, 15 * count, count))
    return [
        Row(
            int(draw.choice([1, 1, 2, 4])),
            float(draw.integers(10, 400)),
            submit_s=float(t),
            queue=str(draw.choice(names)),
        )
        for t in submit
    ]


PROMISED = (
    QueueSpec("prod", guaranteed=(("", 8),), tier="guaranteed"),
    QueueSpec("lab", guaranteed=(("", 4),)),
    QueueSpec("dev"),
    QueueSpec("spot", tier="spot"),
)
MAY_WAIT = {"PreemptionBudget", "LenderWaits"}


def longest_unmet_s(story: Story) -> float:
    """Returns how long at most a queue waited in one go for GPUs guaranteed to it and lent.

    Whatever the log names as the reason of a wait does not count.
    """
    rows = story.scene.trace.jobs
    guaranteed = {q.name: sum(g for _, g in q.guaranteed) for q in PROMISED}
    queue, gpus = rows.queue.texts(), rows.gpus.tolist()
    waiting: dict[int, float] = {}
    running: dict[int, int] = {}
    since: dict[str, float] = {}
    longest, excused = 0.0, False
    for batch in story.batches:
        now = batch[0].t
        for fact in batch:
            if isinstance(fact, Started):
                waiting.pop(fact.job, None)
                running[fact.job] = fact.placement.gpus
            elif isinstance(fact, Stopped):
                running.pop(fact.job)
                waiting[fact.job] = now
            elif isinstance(fact, Ended):
                running.pop(fact.job, None)
                waiting.pop(fact.job, None)
            elif isinstance(fact, Explained):
                excused = any(r.code in MAY_WAIT for r in fact.reasons)
            elif type(fact).__name__ == "Submitted":
                waiting[fact.job] = now
        held = dict.fromkeys(guaranteed, 0)
        for job, count in running.items():
            held[queue[job]] += count
        lent = sum(max(0, held[q] - g) for q, g in guaranteed.items())
        for name, most in guaranteed.items():
            # The first in line counts: a tenant's jobs keep their order.
            mine = [job for job in waiting if queue[job] == name]
            unmet = lent and mine and held[name] + gpus[min(mine)] <= most
            if unmet and not excused:
                longest = max(longest, now - since.setdefault(name, now))
            else:
                since.pop(name, None)
    return longest


def check_guarantees(seed: int, inner: str, terms: Terms) -> None:
    rows = random_rows(seed, 40, names=("prod", "lab", "dev", "dev", "spot"))
    policy = f"tenancy:inner={inner},min-run-s={terms.min_run_s:g},grace-s={terms.grace_s:g}"
    policy += f",budget={terms.budget}"
    story = play(rows, policy, Cluster(NODES, queues=PROMISED))
    most = terms.min_run_s + terms.grace_s + 1
    assert longest_unmet_s(story) <= most, (seed, inner, terms)


def check_guard(seed: int, inner: str, guard_s: float) -> None:
    """Nothing that came later overtakes a job that waited too long."""
    rows = random_rows(seed, 40, names=("dev", "lab"))
    queues = (QueueSpec("dev", weight=9), QueueSpec("lab"))
    policy = f"tenancy:inner={inner},guard-s={guard_s:g}"
    story = play(rows, policy, Cluster(NODES[:1], queues=queues))
    longest = max(row.duration_s for row in rows)
    due = {}
    for job, row in enumerate(rows):
        starts = story.starts(job)
        due[job] = row.submit_s + guard_s
        others = sum(
            1
            for other in range(len(rows))
            for at_s, _ in story.starts(other)[:1]
            if due[job] + 1 < at_s < starts[0][0] and rows[other].submit_s > row.submit_s
        )
        assert not others, (seed, inner, job)
        # Those before it were due too; each waits for the jobs that ran when its turn came.
        ahead = sum(1 for other in rows[:job] if other.submit_s + guard_s > due[job] - 4 * longest)
        assert starts[0][0] <= due[job] + (1 + ahead) * longest


INNERS = ("fifo:bypass=skip", "backfill")


@pytest.mark.parametrize("seed", range(24))
def test_guaranteed_gpus_come_back_in_time(seed: int) -> None:
    terms = Terms([0.0, 60.0, 200.0][seed % 3], 0.0, [0, 1][seed // 12])
    check_guarantees(seed, INNERS[seed % 2], terms)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_overtakes_a_job_that_waited_too_long(seed: int) -> None:
    check_guard(seed, ("fifo:bypass=skip", "backfill", "sjf")[seed % 3], [100.0, 400.0][seed % 2])


@pytest.mark.slow
def test_a_thousand_random_runs_keep_the_guard() -> None:
    for seed in range(1000):
        check_guard(
            seed, ("fifo:bypass=skip", "backfill", "sjf")[seed % 3], [100.0, 400.0][seed % 2]
        )


@pytest.mark.slow
def test_hundreds_of_random_runs_keep_the_guarantees() -> None:
    for seed in range(300):
        terms = Terms([0.0, 60.0, 200.0][seed % 3], 0.0, [0, 1][seed % 5 == 0])
        check_guarantees(seed, INNERS[seed % 2], terms)

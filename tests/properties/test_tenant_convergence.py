"""Shares converge to the deserved ones, over random trees of queues and random demands.

Theorem: let every job ask for one GPU, run at most L seconds and fit everywhere, let the GPUs be
G, and let each leaf either ask for clearly more than it deserves throughout, or for less. The inner
policy starts waiting jobs in the order of their turns. Then no GPU idles while a job may use it,
every GPU that gets free goes to a tenant below its share, and what a tenant holds above or below
it is paid back within a few half-lives of use: the mean over a window of many L differs from water
filling by about one GPU a level and L / window of the cluster.

Guaranteed GPUs are taken back by stopping borrowers, so they are held as soon as they are asked
for, whatever L is; what is shared by weight is never taken back and waits for jobs to end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, play
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.tenants import QueueSpec
from tenant_shares import Fairness, held_gpus

GPUS = 8
CLUSTER = (NodeGroup("all", 2, 4),)
LEVELS = 3
LONGEST_S = 60.0
HALF_LIFE_S = 300.0
BEGIN_S, END_S = 1000.0, 3000.0
ABOVE = 1.3
"""How much more than it deserves a greedy tenant asks for."""
TOLERANCE_GPUS = 0.5
"""One GPU at the most at each end of the window, and what the use of the past still outweighs."""
POLICY = f"tenancy:half-life-s={HALF_LIFE_S:g}"


@dataclass(frozen=True)
class Site:
    """A tree of queues, what each leaf asks for in GPUs on average, and a seed of its jobs."""

    queues: tuple[QueueSpec, ...]
    demand: tuple[tuple[str, float], ...]
    seed: int


@st.composite
def sites(draw: st.DrawFn, *, guarantees: bool) -> Site:
    """Returns trees of two to four levels, the root included."""
    queues: list[QueueSpec] = []
    _grow(draw, queues, "", GPUS if guarantees else 0, 1)
    parents = {q.parent for q in queues}
    leaves = [q.name for q in queues if q.name not in parents]
    # Part of the leaves ask for nothing or for less than anybody's fair share.
    modest = {name: draw(st.sampled_from([GPUS, GPUS, 0.0, 0.25, 0.5])) for name in leaves}
    shares = Fairness(queues, dict.fromkeys(leaves, float(GPUS))).shares(GPUS)
    asked = {n: float(GPUS) if part == GPUS else part * shares[n] for n, part in modest.items()}
    deserved = Fairness(queues, asked).shares(GPUS)
    demand = {n: ABOVE * deserved[n] + 1 if modest[n] == GPUS else asked[n] for n in leaves}
    return Site(tuple(queues), tuple(demand.items()), draw(st.integers(0, 999)))


def _grow(draw: st.DrawFn, queues: list[QueueSpec], parent: str, promised: int, level: int) -> None:
    count = draw(st.integers(2, 3)) if level == 1 else draw(st.integers(0, 2))
    for _ in range(count):
        mine = draw(st.integers(0, promised // 2)) if promised else 0
        promised -= mine
        least = max(2, mine)
        queue = QueueSpec(
            f"q{len(queues)}",
            parent=parent,
            weight=draw(st.sampled_from([1, 1, 2, 3, 5])),
            tier=draw(st.sampled_from(["normal", "normal", "normal", "spot"])),
            quota_gpus=draw(st.sampled_from([0, 0, least, least + 3])),
            guaranteed=(("", mine),) if mine else (),
        )
        queues.append(queue)
        if level < LEVELS:
            _grow(draw, queues, queue.name, mine, level + 1)


def jobs_of_site(site: Site) -> list[Row]:
    """Returns arrivals at random, at the rates that leave each leaf its demand."""
    draw = np.random.default_rng(site.seed)
    rows: list[Row] = []
    for name, gpus in site.demand:
        count = round(gpus * END_S / (LONGEST_S * 0.6))
        if not count:
            continue
        # Evenly spread with jitter: means over the window are those of the whole.
        at = (np.arange(count) + draw.uniform(0, 1, count)) * END_S / count
        lengths = draw.uniform(0.2 * LONGEST_S, LONGEST_S, count)
        rows += [
            Row(1, float(s), submit_s=float(t), queue=name)
            for t, s in zip(at, lengths, strict=True)
        ]
    return sorted(rows, key=lambda row: row.submit_s)


def offered_gpus(rows: list[Row], name: str, deserved: float, demand: float) -> float:
    """Returns what a leaf asked for in the window; a greedy one also has a backlog."""
    if demand > deserved + 0.5:
        return float(GPUS)
    mine = [r.duration_s for r in rows if r.queue == name and BEGIN_S <= r.submit_s < END_S]
    return sum(mine) / (END_S - BEGIN_S)


def check_convergence(site: Site, policy: str) -> None:
    rows = jobs_of_site(site)
    if not rows:
        return
    story = play(rows, policy, Cluster(CLUSTER, queues=site.queues), audit_every=1000)
    demand = dict(site.demand)
    first = Fairness(site.queues, demand).shares(GPUS)
    asked = {n: offered_gpus(rows, n, first[n], gpus) for n, gpus in site.demand}
    deserved = Fairness(site.queues, asked).shares(GPUS)
    got = held_gpus(story, BEGIN_S, END_S)
    wrong = {
        n: (round(got.get(n, 0.0), 2), round(deserved[n], 2))
        for n, _ in site.demand
        if got.get(n, 0.0) != pytest.approx(deserved[n], abs=TOLERANCE_GPUS)
    }
    assert not wrong, (wrong, site)


@given(sites(guarantees=False))
@settings(max_examples=5)
def test_shares_by_weight_converge_without_stopping_a_job(site: Site) -> None:
    check_convergence(site, f"{POLICY},reclaim=false")


@given(sites(guarantees=True))
@settings(max_examples=5)
def test_shares_with_guarantees_converge_by_reclaim(site: Site) -> None:
    check_convergence(site, POLICY)


@pytest.mark.slow
@given(st.booleans(), st.data())
@settings(max_examples=100)
def test_shares_converge_over_many_trees(guarantees: bool, data: st.DataObject) -> None:
    site = data.draw(sites(guarantees=guarantees))
    check_convergence(site, POLICY if guarantees else f"{POLICY},reclaim=false")

"""Shares converge for gangs of 1 to 8 GPUs of a type, and for elastic jobs.

Bound: let the longest job be L, the largest gang of a tenant M of the G GPUs, and let every tenant
ask for more than it deserves of each type throughout. Over a window W what a tenant holds differs
from its weight's part of what all hold by at most

    M + G L / W + M L / W

GPUs: M is one largest gang of its own, which it is ahead or behind when a turn is taken; the rest
are the jobs that began before the window or end behind it. The part is of what is held, not of G:
a strict order leaves GPUs idle before a wide gang. An inner policy that lets small jobs pass a wide
one (`fifo:bypass=skip`) keeps no such bound: it is what `guard-s` is for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from builders import Row, play
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.tenants import QueueSpec
from tenant_shares import held_gpus

GROUPS = (NodeGroup("big", 3, 4, "a100"), NodeGroup("small", 2, 4, "v100"))
GPUS_OF = {"a100": 12, "v100": 8}
LONGEST_S, HALF_LIFE_S = 60.0, 300.0
BEGIN_S, END_S = 300.0, 900.0
ELASTIC = ("afs-l", "dovetail")
INNERS = ("fifo", "srtf", *ELASTIC)


@dataclass(frozen=True)
class Site:
    """Queues by weight, what their jobs ask for, and the inner policy."""

    queues: tuple[QueueSpec, ...]
    rows: tuple[Row, ...]
    inner: str


def drawn_site(seed: int, inner: str) -> Site:
    """Returns two to four queues, each with a backlog of gangs of its own sizes on one type."""
    draw = np.random.default_rng(seed)
    count = int(draw.integers(2, 5))
    queues = tuple(QueueSpec(f"q{n}", weight=int(draw.choice([1, 2, 3, 5]))) for n in range(count))
    kind = str(draw.choice(["a100", "v100"]))
    elastic = inner in ELASTIC
    rows = []
    weights = sum(queue.weight for queue in queues)
    for queue in queues:
        sizes = [[1], [1, 2], [1, 2, 4], [2, 4], [8]][int(draw.integers(0, 5))]
        # More than it gets by the end of the window if shares are right.
        left = (1.4 * queue.weight / weights + 0.1) * GPUS_OF[kind] * END_S
        while left > 0:
            gpus, length_s = int(draw.choice(sizes)), float(draw.uniform(0.2, 1) * LONGEST_S)
            left -= gpus * length_s
            least, most = (max(1, gpus // 2), min(8, 2 * gpus)) if elastic else (0, 0)
            rows.append(
                Row(
                    gpus,
                    length_s,
                    submit_s=float(draw.uniform(0, 1)),
                    queue=queue.name,
                    gpu_type=kind,
                    elastic=elastic,
                    min_gpus=least,
                    max_gpus=most,
                    shareable=True,
                )
            )
    return Site(queues, tuple(sorted(rows, key=lambda row: row.submit_s)), inner)


def errors_of(site: Site) -> dict[str, tuple[float, float, float]]:
    """Returns what each queue held, what it deserved of all that was held, and the bound."""
    policy = f"tenancy:inner={site.inner.replace(',', ';')},half-life-s={HALF_LIFE_S:g}"
    story = play(site.rows, policy, Cluster(GROUPS, queues=site.queues), audit_every=1000)
    got = held_gpus(story, BEGIN_S, END_S)
    held, weights = sum(got.values()), sum(q.weight for q in site.queues)
    found = {}
    for queue in site.queues:
        widest = max(max(r.gpus, r.max_gpus) for r in site.rows if r.queue == queue.name)
        edges = LONGEST_S / (END_S - BEGIN_S)
        bound = widest + (held + widest) * edges
        found[queue.name] = got.get(queue.name, 0.0), held * queue.weight / weights, bound
    return found


def check_shares(seed: int, inner: str) -> None:
    site = drawn_site(seed, inner)
    for name, (got, deserved, bound) in errors_of(site).items():
        assert abs(got - deserved) <= bound, (name, got, deserved, bound, seed, inner, site.queues)


@pytest.mark.parametrize(("seed", "inner"), list(enumerate(INNERS)))
def test_shares_of_gangs_converge(seed: int, inner: str) -> None:
    check_shares(seed, inner)


@pytest.mark.slow
@pytest.mark.parametrize(("inner", "runs"), [("fifo", 200), ("srtf", 40), ("afs-l", 30)])
def test_shares_of_gangs_converge_over_many_sites(inner: str, runs: int) -> None:
    for seed in range(3, 3 + runs):
        check_shares(seed, inner)


SHORT_FIRST = ("lucid", "antman", "gandiva:slice=20", "muri-s:tick-s=0", "dovetail:share=false")


@pytest.mark.parametrize("inner", SHORT_FIRST)
def test_shares_hold_around_policies_that_share_gpus(inner: str) -> None:
    """A tenant with short jobs gains nothing under a policy that prefers them."""
    queues = (QueueSpec("short", weight=3), QueueSpec("long"))
    for lengths_s in ((20.0, 60.0), (60.0, 20.0)):
        rows = [
            Row(1, length_s * (0.7 + 0.6 * (n % 7) / 6), queue=queue.name, shareable=True)
            for queue, length_s in zip(queues, lengths_s, strict=True)
            for n in range(int(12 * queue.weight * 500 / length_s / 2))
        ]
        policy = f"tenancy:inner={inner.replace(',', ';')},half-life-s=300"
        story = play(rows, policy, Cluster((NodeGroup("all", 2, 4),), queues=queues))
        got = held_gpus(story, 100.0, 300.0)
        assert got["short"] / sum(got.values()) == pytest.approx(0.75, abs=0.07), (inner, got)

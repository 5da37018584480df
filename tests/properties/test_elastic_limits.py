"""Elastic policies under random limits of tenants: never over one, and no GPU idle below it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import Row, play, policy_of
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.order import Order
from dovetail.core.policy import Decision, Policy
from dovetail.core.tenants import AccountSpec, QosSpec, QueueSpec, UserLimits
from dovetail.core.view import View
from property_size import examples

ELASTIC = ("afs-l", "afs-p", "afs-s", "optimus", "max-min", "srtf-e", "srsf-max", "themis")
CONSERVING = ("afs-l", "afs-s", "optimus", "max-min", "srtf-e")
"""Of these, all but leases, reserved gangs and fixed sizes, which keep GPUs idle on purpose."""


@dataclass
class Watched:
    """A policy whose drafts are held against the limits before the world sees them."""

    inner: Policy
    conserving: bool
    name: str = "watched"
    decisions: list[int] = field(default_factory=list)

    @property
    def knows(self) -> frozenset[str]:
        return self.inner.knows

    @property
    def powers(self) -> frozenset[str]:
        return self.inner.powers

    @property
    def order(self) -> Order:
        return self.inner.order

    @property
    def initial(self) -> object:
        return self.inner.initial

    def decide(self, view: View, memory: object) -> Decision:
        decision = self.inner.decide(view, memory)
        draft = decision.draft
        occupancy = view.plan.occupancy if draft is None else draft.occupancy
        placed = view.running if draft is None else draft.placed
        assert occupancy.tenants is not None
        assert occupancy.tenants.faults(placed) == []
        self.decisions.append(len(placed))
        for job in view.waiting if self.conserving else ():
            whole = getattr(self.inner, "sizes", "") == "left-over"
            least = int((view.jobs.gpus if whole else view.jobs.least_gpus)[job])
            if job not in placed:
                spans = view.placing.find(occupancy, view.shape(job), least)
                assert spans is None, f"job {job} waits beside {spans} at {view.now:g} s"
        return decision


def sites(draw: np.random.Generator) -> Cluster:
    """Returns a cluster of 12 GPUs with limits by queue, account, user and QOS."""
    most = [int(n) for n in draw.integers(1, 9, 6)]
    return Cluster(
        (NodeGroup("all", 3, 4),),
        queues=(QueueSpec("top", most[0] + 3), QueueSpec("a", parent="top"), QueueSpec("b")),
        accounts=(
            AccountSpec("lab", max_gpus=most[1] + 2, max_gpus_per_user=most[2]),
            AccountSpec("vision", parent="lab"),
            AccountSpec("free", max_gpus_per_user=int(draw.choice([0, 3]))),
        ),
        qos=(
            QosSpec("few", max_gpus_per_user=most[3]),
            QosSpec("one", max_jobs_per_user=int(draw.integers(1, 3)), max_gpus=most[4]),
        ),
        users=(UserLimits("any", most[5] + 2), UserLimits("cy", max_jobs=2)),
    )


def rows_of(draw: np.random.Generator, count: int = 18) -> list[Row]:
    rows, t = list[Row](), 0.0
    for _ in range(count):
        t += float(draw.choice([0.0, 1.0, 7.0, 20.0]))
        gpus = int(draw.integers(1, 5))
        elastic = bool(draw.random() < 0.75)
        rows.append(
            Row(
                gpus,
                float(draw.integers(5, 60)),
                submit_s=t,
                elastic=elastic,
                min_gpus=int(draw.integers(1, gpus + 1)) if elastic else gpus,
                max_gpus=int(draw.integers(gpus, 10)) if elastic else gpus,
                queue=str(draw.choice(["a", "b", ""])),
                account=str(draw.choice(["lab", "vision", "free"])),
                user=str(draw.choice(["ann", "bob", "cy"])),
                qos=str(draw.choice(["", "few", "one"])),
            )
        )
    return rows


def fits_alone(row: Row, cluster: Cluster, *, whole: bool) -> bool:
    """Tells whether a job may ever run, on its `whole` request or on its least."""
    least = row.min_gpus if row.elastic and not whole else row.gpus
    limits = [q.quota_gpus for q in cluster.queues if q.name in (row.queue, "top")]
    lab = cluster.accounts[0]
    mine = [a for a in cluster.accounts if a.name == row.account]
    limits += [lab.max_gpus, lab.max_gpus_per_user] if row.account != "free" else []
    limits += [a.max_gpus_per_user for a in mine]
    limits += [u.max_gpus for u in cluster.users if (u.name == "cy") == (row.user == "cy")]
    limits += [
        n for q in cluster.qos if q.name == row.qos for n in (q.max_gpus, q.max_gpus_per_user)
    ]
    return all(least <= most for most in limits if most)


@pytest.mark.parametrize("name", ELASTIC)
@examples(8)
@given(seed=st.integers(0, 2**32))
def test_growing_keeps_all_limits_and_wastes_no_gpu(name: str, seed: int) -> None:
    holds(name, seed)


def holds(name: str, seed: int) -> None:
    draw = np.random.default_rng(seed)
    cluster = sites(draw)
    rows = [row for row in rows_of(draw) if fits_alone(row, cluster, whole=name == "srtf-e")]
    if rows:
        watched = Watched(policy_of(name), name in CONSERVING)
        play(rows, watched, cluster, placing="none")
        assert watched.decisions


@pytest.mark.parametrize("name", ["afs-l", "optimus", "max-min", "srtf-e"])
def test_an_elastic_job_grows_up_to_the_limit_of_its_user_and_not_beyond(name: str) -> None:
    cluster = Cluster(
        (NodeGroup("all", 2, 4),), accounts=(AccountSpec("lab", max_gpus_per_user=3),)
    )
    grows = {"elastic": True, "min_gpus": 1, "max_gpus": 8, "account": "lab"}
    rows = [Row(1, 60, user="ann", **grows), Row(1, 60, user="bob", **grows)]  # type: ignore[arg-type]
    watched = Watched(policy_of(name), True)
    story = play(rows, watched, cluster, placing="none")
    for job in range(2):
        most = max(
            f.placement.gpus
            for f in story.facts
            if getattr(f, "job", -1) == job and hasattr(f, "placement")
        )
        assert most == 3, (job, most)

"""Inside tenancy, under every policy, each job that fits the cluster ends.

Queues that own node groups, GPU types, limits, guarantees and tiers keep jobs from GPUs that are
free by count. A policy that shares out counts must not wait for them.
"""

from __future__ import annotations

import numpy as np
import pytest

from builders import Row, Story, play
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.policy import registered
from dovetail.core.tenants import QueueSpec

GROUPS = (NodeGroup("big", 2, 4, "a100"), NodeGroup("small", 2, 2, "v100"), NodeGroup("old", 1, 2))
QUEUES = (
    QueueSpec("prod", weight=3, guaranteed=(("a100", 4),), tier="guaranteed"),
    QueueSpec("dev", groups=("big",), quota_gpus=6),
    QueueSpec("lab", groups=("small", "old")),
    QueueSpec("spot", tier="spot", limits=(("a100", 4),)),
)
STARTS_NOTHING, HAS_TENANTS = "no-op", {"tenancy", "slurm"}
INNERS = sorted({*registered()} - HAS_TENANTS - {STARTS_NOTHING})


def drawn_rows(seed: int) -> list[Row]:
    """Returns thirty jobs, some of them elastic, that fit the nodes of their queues."""
    draw = np.random.default_rng(seed)
    rows = []
    for submit_s in np.sort(draw.uniform(0, 300, 30)).tolist():
        queue = str(draw.choice([q.name for q in QUEUES]))
        kinds = {"dev": ["", "a100"], "lab": ["", "v100"]}.get(queue, ["", "a100", "v100"])
        kind = str(draw.choice(kinds))
        most = 4 if kind == "v100" or queue in ("lab", "spot") else 6
        gpus = min(most, int(draw.choice([1, 2, 4, 6])))
        elastic = bool(draw.integers(2))
        rows.append(
            Row(
                gpus,
                float(draw.integers(10, 120)),
                submit_s=submit_s,
                queue=queue,
                gpu_type=kind,
                elastic=elastic,
                min_gpus=1 if elastic else 0,
                max_gpus=most if elastic else 0,
                shareable=True,
            )
        )
    return rows


def played(seed: int, inner: str) -> Story:
    text = inner.replace(",", ";")
    return play(drawn_rows(seed), f"tenancy:inner={text}", Cluster(GROUPS, queues=QUEUES))


def check_liveness(seed: int, inner: str) -> None:
    story = played(seed, inner)
    assert sorted(story.ended()) == list(range(30)), (seed, inner)


@pytest.mark.parametrize("inner", INNERS)
def test_every_job_ends_under_every_policy(inner: str) -> None:
    check_liveness(INNERS.index(inner), inner)


@pytest.mark.slow
@pytest.mark.parametrize("inner", INNERS)
def test_every_job_ends_in_many_runs(inner: str) -> None:
    for seed in range(100, 140):
        check_liveness(seed, inner)

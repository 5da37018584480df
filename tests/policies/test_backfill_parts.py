"""Backfill on nodes of several types: a job waits only for jobs that could use its nodes."""

from dataclasses import replace

import numpy as np
import pytest

from builders import Row, cluster_of, play
from dovetail.core.cluster import Cluster
from dovetail.core.tenants import QueueSpec

CLUSTER = "2x4:a100+1x8:v100"
ALONE = {"a100": "2x4:a100", "v100": "1x8:v100"}


def rows(seed: int) -> list[Row]:
    """Returns jobs of two types that crowd their nodes, whose limits differ from their lengths."""
    draw = np.random.default_rng(seed)
    arrivals = np.cumsum(draw.exponential(4.0, 40)).round(1).tolist()
    found = []
    for at_s in arrivals:
        kind = str(draw.choice(["a100", "v100"]))
        gpus = int(draw.choice([1, 2, 4] if kind == "a100" else [1, 3, 8]))
        length_s = float(draw.integers(1, 60))
        limit_s = length_s * float(draw.integers(1, 5))
        found.append(Row(gpus, length_s, at_s, limit_s, gpu_type=kind))
    return found


def owned() -> Cluster:
    """Returns the cluster whose two queues own its nodes, whose types do not count."""
    plain = cluster_of("2x4+1x8")
    groups = tuple(
        replace(group, name=name)
        for group, name in zip(plain.groups, ("a100", "v100"), strict=True)
    )
    queues = tuple(QueueSpec(name, groups=(name,)) for name in ("a100", "v100"))
    return replace(plain, groups=groups, queues=queues)


@pytest.mark.parametrize("placing", ["strict", "none"])
@pytest.mark.parametrize("seed", range(8))
def test_disjoint_parts_of_a_cluster_run_as_if_each_were_alone(seed: int, placing: str) -> None:
    jobs = rows(seed)
    options = {"placing": placing, "forecast": "limit"}
    together = play(jobs, "backfill", CLUSTER, **options).finishes
    in_queues = [replace(job, gpu_type="", queue=job.gpu_type) for job in jobs]
    by_queue = play(in_queues, "backfill", owned(), **options).finishes
    for kind, cluster in ALONE.items():
        own = [i for i, job in enumerate(jobs) if job.gpu_type == kind]
        alone = play([jobs[i] for i in own], "backfill", cluster, **options).finishes
        assert [together[i] for i in own] == alone
        assert [by_queue[i] for i in own] == alone


def test_each_part_has_a_head_with_a_reservation() -> None:
    # Both types are busy until 10 s. The second head (8 V100) is not overtaken by a small job.
    jobs = [
        Row(4, 10, gpu_type="a100"),
        Row(7, 10, gpu_type="v100"),
        Row(8, 5, gpu_type="a100"),
        Row(8, 5, gpu_type="v100"),
        Row(1, 50, gpu_type="v100"),
    ]
    assert play(jobs, "backfill", CLUSTER, placing="none").finishes == [10, 10, 15, 15, 65]


def test_a_job_for_any_type_joins_the_parts() -> None:
    # The job of 16 GPUs could use every node, so there is one head again.
    jobs = [
        Row(4, 10, gpu_type="a100"),
        Row(7, 10, gpu_type="v100"),
        Row(16, 5),
        Row(8, 5, gpu_type="v100"),
        Row(1, 10, gpu_type="v100"),
    ]
    assert play(jobs, "backfill", CLUSTER, placing="none").finishes == [10, 10, 15, 20, 10]

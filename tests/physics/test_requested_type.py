"""A run time is that on the GPUs that the job asked for, also on a cluster of several types."""

import pytest

from builders import Row, jobs_of
from dovetail.core.cluster import Cluster
from dovetail.core.placement import Placement
from dovetail.physics.placed import placed_physics
from dovetail.physics.zoo.device import device
from dovetail.physics.zoo.models import Catalogue, shipped_sets

CLUSTER = Cluster.parse("1x4:v100+1x4:a100+1x7:a100-1g.5gb")
V100, A100, INSTANCE = (Placement(((node, 1),)) for node in range(3))
RATIO = device("a100").speed.value / device("v100").speed.value


@pytest.mark.parametrize(
    ("gpu_type", "placement", "speed"),
    [
        ("", V100, 1.0),
        ("", A100, RATIO),
        ("v100", V100, 1.0),
        ("a100", A100, 1.0),
        ("A100|v100", A100, 1.0),
        ("A100|v100", V100, 1 / RATIO),
        ("v100|a100", A100, RATIO),
        ("h100|a100", A100, 1.0),
        ("a100-1g.5gb", INSTANCE, 1.0),
        ("", INSTANCE, RATIO / 7),
    ],
)
def test_a_job_runs_at_its_recorded_speed_on_the_type_that_it_requests(
    gpu_type: str, placement: Placement, speed: float
) -> None:
    jobs = jobs_of(Row(1, 5, model="afs/googlenet", gpu_type=gpu_type))
    physics = placed_physics(jobs, CLUSTER, Catalogue(shipped_sets()))
    assert physics.rate(0, placement) == pytest.approx(speed)


def test_jobs_that_differ_in_the_requested_type_alone_are_of_two_kinds() -> None:
    jobs = jobs_of(*[Row(1, 5, model="afs/googlenet", gpu_type=t) for t in ("v100", "a100", "")])
    mixed = placed_physics(jobs, CLUSTER, Catalogue(shipped_sets()))
    assert len(set(mixed.kind_of.tolist())) == 3
    alike = placed_physics(jobs, Cluster.parse("2x4:v100"), Catalogue(shipped_sets()))
    assert len(set(alike.kind_of.tolist())) == 1

"""What a live cluster learned becomes a profile set, which says what of it was measured."""

from pathlib import Path

import pytest

from builders import Row, jobs_of
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.placement import Placement
from dovetail.core.reading import SpeedMeasurement
from dovetail.physics.beliefs.learning import Learning
from dovetail.physics.beliefs.measurements import LEAST
from dovetail.physics.linear import linear_physics
from dovetail.physics.placed import placed_physics
from dovetail.physics.sharing.interference import MeasuredInterference
from dovetail.physics.sharing.service_demand import on_one_gpu
from dovetail.physics.speed.throughput import iteration_s
from dovetail.physics.zoo.models import Catalogue
from dovetail.physics.zoo.profile_file import dump_profiles, parse_profiles
from dovetail.profiling.learned_profiles import learned_set

ROWS = [Row(1, 9.0, model="net"), Row(1, 9.0, model="big"), Row(1, 9.0)]


def taught(
    *readings: tuple[int, int, tuple[int, ...], SpeedMeasurement], paced: bool = False
) -> str:
    """Returns what is kept after each reading (job, GPUs, neighbours) was heard three times."""
    jobs = jobs_of(*ROWS)
    learning = Learning(linear_physics(jobs), jobs, paced=paced)
    for job, gpus, beside, reading in readings:
        near = [(other, Placement(((0, gpus),))) for other in beside]
        for _ in range(LEAST):
            learning.observe(job, Placement(((0, gpus),)), near, reading)
    return learning.dump()


def test_the_simulator_runs_at_the_rates_the_cluster_measured() -> None:
    said = taught(
        (0, 1, (), SpeedMeasurement(100.0, 64, 0.64, 5000, (0.0, 0.1, 0.5, 0.0))),
        (0, 2, (), SpeedMeasurement(160.0, 64, 0.4, 3000)),
        (0, 4, (), SpeedMeasurement(200.0, 64, 0.32, 2000)),
        (1, 2, (), SpeedMeasurement(20.0, 10)),
        (2, 1, (), SpeedMeasurement(7.0, 10)),
    )
    made = learned_set(said, family="here", where="a test")
    assert parse_profiles(dump_profiles(made), where="it") == made
    big, net = made.profiles
    assert [iteration_s(net, gpus=n) for n in (1, 2, 4)] == pytest.approx([0.64, 0.4, 0.32])
    assert iteration_s(big, gpus=1) == pytest.approx(1.0)
    assert (str(net.curve.provenance), str(big.curve.provenance)) == ("measured", "derived")  # type: ignore[union-attr]
    assert [s.gpu_s for s in net.stages.value] == [0.5]  # type: ignore[union-attr]
    assert [net.memory.value.used_bytes(b) >= held for b, held in ((64, 5000), (32, 3000))] == [
        True,
        True,
    ]
    jobs = jobs_of(Row(1, 9.0, model="net"))
    physics = placed_physics(jobs, Cluster.uniform(1, 4), Catalogue([made]))
    assert physics.speed.rates(4)[0].tolist()[1:] == pytest.approx([1.0, 1.6, 1.8, 2.0])


def test_measured_pairs_go_along() -> None:
    alone, shared = SpeedMeasurement(100.0, 64), SpeedMeasurement(50.0, 64)
    said = taught((0, 1, (), alone), (1, 1, (), alone), (0, 1, (1,), shared), (1, 1, (0,), alone))
    made = learned_set(said, family="here", where="a test")
    (pair,) = made.pairs
    sides = {pair.first: pair.first_ratio, pair.second: pair.second_ratio}
    assert sides == {"net": 2.0, "big": 1.0}
    big, net = made.profiles
    assert MeasuredInterference([made]).ratio(
        on_one_gpu(net, 64.0), on_one_gpu(big, 64.0)
    ) == pytest.approx(2.0)


@pytest.mark.parametrize(
    "said",
    [
        "",
        taught((2, 1, (), SpeedMeasurement(5.0, 8))),
        taught((0, 1, (), SpeedMeasurement(1000.0, 100)), paced=True),
    ],
    ids=["nothing ran", "no model was named", "clocks"],
)
def test_without_a_measured_model_there_is_nothing_to_write(said: str) -> None:
    with pytest.raises(InputError, match="no model was measured"):
        learned_set(said, family="here", where="a test")


def test_a_cluster_that_is_not_there_is_named(tmp_path: Path) -> None:
    from dovetail.cli.main import run

    assert run(["profile", "--learned", "--home", str(tmp_path / "none")]) == 2

"""The Sia paper: measured tables as physics, on a cluster of three types of GPU."""

from pathlib import Path

import numpy as np
import pytest

from dovetail.core.errors import InputError
from dovetail.core.placement import Placement
from papers.frame.experiment import Results
from papers.frame.scope import Scope
from papers.sia.experiments import SIA, SiaExperiment
from papers.sia.measured import A100, RTX, T4, MeasuredApplication, TypeTimes, even
from papers.sia.workloads import HALVED, HETEROGENEOUS, HOMOGENEOUS

EPOCHS = 100
SPEED = {"aws": 1.0, "rtx": 2.0, "dgx-ext": 4.0}


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Returns tables in which a step takes 1 s and 0.01 s a sample, halved by each better type."""
    folder = tmp_path / "cifar10"
    folder.mkdir()
    for suffix, speed in SPEED.items():
        rows = ["placement,local_bsz,step_time,sync_time"]
        for placement in ("1", "2", "4", "44", "8"):
            for samples in (10, 40):
                rows.append(f"{placement},{samples},{(1 + samples / 100) / speed},{0.5 / speed}")
        (folder / f"placements-{suffix}.csv").write_text("\n".join(rows))
        more = ["num_nodes,num_replicas,local_bsz,step_time,sync_time"]
        more += [f"6,24,{s},{(2 + s / 100) / speed},{0.5 / speed}" for s in (10, 40)]
        (folder / f"scalability-{suffix}.csv").write_text("\n".join(more))
    for batch in (80, 320):
        rows = ["iteration,metric,progress,grad_sqr,grad_var"]
        rows += [f"{e},0.5,{10 * (e + 1)},1.0,{4.0 * (e + 1)}" for e in range(EPOCHS)]
        (folder / f"validation-{batch}.csv").write_text("\n".join(rows))
    return tmp_path


def test_steps_are_interpolated_on_a_placement_and_between_placements(traces: Path) -> None:
    times = TypeTimes(traces / "cifar10", T4)
    one, two = np.array([25.0]), np.array([2.0])
    assert times.of((1,), one, np.ones(1)).tolist() == pytest.approx([1.25])
    # Two micro-batches exchange once.
    assert times.of((1,), one, two).tolist() == pytest.approx([1.25 + 0.75])
    # Five nodes lie between two (8 GPUs) and six (24): three quarters of the way.
    assert times.of((4,) * 5, one, np.ones(1)).tolist() == pytest.approx([1.25 + 0.75])


def test_the_best_batch_depends_on_the_epoch_and_is_allowed(traces: Path) -> None:
    app = MeasuredApplication(traces, "cifar10", (T4, RTX, A100))
    early, late = app.table(0, 0, False), app.table(0, EPOCHS - 1, False)
    assert early.batch[1, 4] < late.batch[1, 4]  # the noise scale grows
    assert late.batch[1, 4] <= 4 * 40 * late.steps[1, 4]
    assert early.speed[1, 3] == 0  # three GPUs are no configuration
    assert app.table(0, 0, True).speed[1, 3] > 0
    assert app.table(2, 0, False).speed[1, 1] == pytest.approx(4 * early.speed[1, 1])


def test_the_clusters_are_those_of_the_paper() -> None:
    assert len(HOMOGENEOUS.nodes) == 16
    assert [n.kind for n in HETEROGENEOUS.nodes] == [0] * 6 + [1] * 3 + [2] * 2
    assert [n.machine for n in HALVED.nodes] == [*range(6), 6, 6, 7, 7, 8, 8, 9, 9, 10, 10]
    assert even(7, 3) == (3, 2, 2)
    assert Placement(((6, 4), (7, 4))).gpus == 8


def test_it_says_where_the_workloads_are_if_they_are_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="siasosp23"):
        SiaExperiment(Scope(tmp_path, "quick", 0), Results(1))


def test_a_quick_look_plays_one_workload_of_one_trace(tmp_path: Path) -> None:
    for name in ("traces", "workloads"):
        (tmp_path / "data/sia-sosp23" / name).mkdir(parents=True)
    planned = SiaExperiment(Scope(tmp_path, "quick", 0), Results(1))
    assert {run.policy for run in planned.runs()} == {SIA}  # type: ignore[attr-defined]
    assert len(planned.runs()) == 2

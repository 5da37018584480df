"""Checkpoints on disk: the newest that can be read counts, and none is taken for another job's."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from dovetail.live.jobs.lineage import (  # noqa: E402
    BEGUN_FROM,
    begin_lineage,
    draft_lineage,
    lineage_folder,
)
from dovetail.train.state.checkpoint import (  # noqa: E402
    KEPT,
    TrainingPosition,
    checkpoint_path,
    list_checkpoints,
    restore,
    snapshot,
    write,
)
from dovetail.train.state.state import TrainingState  # noqa: E402

JOB = {"seed": 0}


def parts() -> TrainingState:
    model = torch.nn.Linear(2, 1)
    return TrainingState(model, torch.optim.SGD(model.parameters(), lr=0.1))


def two_checkpoints(folder: Path) -> TrainingState:
    """Writes the states after 1 and 2 steps, which differ in one weight; returns the first's."""
    first, second = parts(), parts()
    write(folder, 1, snapshot(first, TrainingPosition(1, 10, True), JOB))
    write(folder, 2, snapshot(second, TrainingPosition(2, 20, True), JOB))
    return first


def test_a_damaged_newest_checkpoint_leaves_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = two_checkpoints(tmp_path)
    checkpoint_path(tmp_path, 2).write_bytes(checkpoint_path(tmp_path, 2).read_bytes()[:100])
    mine = parts()
    assert restore(tmp_path, mine, JOB) == TrainingPosition(1, 10, known=True)
    assert mine.digest() == first.digest()
    assert "checkpoint-000000000002.pt cannot be read" in capsys.readouterr().err


def test_if_none_can_be_read_nothing_is_begun_anew_in_silence(tmp_path: Path) -> None:
    two_checkpoints(tmp_path)
    for path in list_checkpoints(tmp_path):
        path.write_bytes(b"")
    with pytest.raises(ValueError, match="remove them to start over"):
        restore(tmp_path, parts(), JOB)


def test_a_checkpoint_of_another_job_is_refused(tmp_path: Path) -> None:
    two_checkpoints(tmp_path)
    with pytest.raises(ValueError, match="of another job"):
        restore(tmp_path, parts(), {"seed": 1})


def test_a_lineage_goes_on_from_the_checkpoint_before_it_whatever_becomes_of_that(
    tmp_path: Path,
) -> None:
    two_checkpoints(tmp_path)
    draft_lineage(tmp_path, 1)
    begin_lineage(tmp_path, 1)
    assert BEGUN_FROM == KEPT == len(list_checkpoints(lineage_folder(tmp_path, 1)))
    # A copy out of reach writes on, and so removes what the lineage began from.
    for step in (3, 4):
        write(tmp_path, step, snapshot(parts(), TrainingPosition(step, 10 * step, True), JOB))
    position = restore(lineage_folder(tmp_path, 1), parts(), JOB)
    assert position == TrainingPosition(2, 20, known=True)

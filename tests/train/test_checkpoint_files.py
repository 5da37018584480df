"""Checkpoints on disk: the newest that can be read counts, and none is taken for another job's."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from dovetail.train.state.checkpoint import (  # noqa: E402
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

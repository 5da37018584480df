from pathlib import Path

import numpy as np
import pytest

from dovetail.core.errors import InputError
from dovetail.physics.batches.efficiency import Efficiency, sample_worth
from dovetail.physics.zoo.models import lookup
from tools.zoo.efficiency import EPOCHS, Trainings, fit_efficiency, read_trainings

TWO_PHASES = Efficiency(10, 100, 1, 100, (100.0, 300.0), (0.0, 90.0))


def test_a_sample_of_a_large_batch_is_worth_less_the_less_noise_there_is() -> None:
    assert sample_worth(90.0, 10.0, 100.0) == pytest.approx(100 / 190)
    assert sample_worth(0.0, 10.0, 100.0) == pytest.approx(0.1)
    assert sample_worth(1e12, 10.0, 100.0) == pytest.approx(1.0)
    assert sample_worth(90.0, 10.0, 10.0) == 1.0


def test_gain_and_iterations_by_hand() -> None:
    assert TWO_PHASES.steps == (100.0, 200.0)
    assert [TWO_PHASES.gain(10, k) for k in (0, 1)] == [1.0, 1.0]
    assert TWO_PHASES.gain(100, 0) == pytest.approx(1.0)
    assert TWO_PHASES.gain(100, 1) == pytest.approx(10 * 100 / 190)
    assert TWO_PHASES.iterations(10) == 300
    assert TWO_PHASES.iterations(100) == pytest.approx(100 + 200 * 19 / 100)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ((10, 9, 1, 9, (1.0,), (1.0,)), "initial_batch to max_batch"),
        ((1, 9, 3, 2, (1.0,), (1.0,)), "batches of a GPU"),
        ((1, 9, 1, 9, (1.0, 1.0), (1.0, 1.0)), "one after the other"),
        ((1, 9, 1, 9, (1.0, 2.0), (1.0,)), "for each phase"),
        ((1, 9, 1, 9, (1.0,), (-1.0,)), "negative"),
    ],
)
def test_an_efficiency_that_cannot_be_is_refused(values: tuple[object, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Efficiency(*values)  # type: ignore[arg-type]


def trainings_of(scales: list[float], batches: tuple[float, ...] = (8, 64, 512)) -> Trainings:
    """Trainings of a hundred steps an epoch whose noise scale is as given, at any batch."""
    sizes, noise = np.array(batches, float)[:, None], np.array([scales])
    gain = sizes / batches[0] * (noise + batches[0]) / (noise + sizes)
    progress = 100.0 * np.arange(1, len(scales) + 1)
    square = np.ones_like(gain)
    return Trainings(sizes[:, 0], progress, square, noise / batches[0] * square, gain)


def test_a_fit_finds_the_phases_that_made_the_trainings() -> None:
    found = fit_efficiency(trainings_of([5.0] * 4 + [300.0] * 6), (2, 32))

    assert (found.initial_batch, found.max_batch) == (8, 512)
    assert (found.least_per_gpu, found.most_per_gpu) == (2, 32)
    assert found.progress[-1] == 1000.0
    assert 400.0 in found.progress
    early = [n for end, n in zip(found.progress, found.noise_scale, strict=True) if end <= 400]
    late = [n for end, n in zip(found.progress, found.noise_scale, strict=True) if end > 400]
    assert early == pytest.approx([5.0] * len(early), rel=1e-3)
    assert late == pytest.approx([300.0] * len(late), rel=1e-3)


def test_a_rising_noise_scale_keeps_the_time_of_the_training() -> None:
    made = trainings_of([float(2**k) for k in range(12)])
    found = fit_efficiency(made, (1, 64))

    assert len(found.progress) == 8
    for row, batch in enumerate(made.batches):
        assert found.iterations(float(batch)) == pytest.approx(
            float((100 / made.gain[row]).sum()), rel=0.02
        )


@pytest.mark.parametrize("model", sorted(EPOCHS))
def test_the_shipped_phases_tell_the_length_of_every_training(data_dir: Path, model: str) -> None:
    folder = data_dir / "data" / "pollux-osdi21" / "traces" / model
    made = read_trainings(folder, EPOCHS[model])
    shipped = lookup(f"pollux/{model}").efficiency
    assert shipped is not None
    steps = np.diff(made.progress, prepend=0.0)
    for row, batch in enumerate(made.batches):
        told = shipped.value.iterations(float(batch))
        assert told == pytest.approx(float((steps / made.gain[row]).sum()), rel=0.045)


def test_a_folder_without_trainings_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="validation-<batch>"):
        read_trainings(tmp_path, 3)

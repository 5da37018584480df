from pathlib import Path

import numpy as np
import pytest

from dovetail.core.errors import InputError
from dovetail.physics.speed.compute import Compute, iteration_s
from tools.zoo.pairs import FITTED_ON, alone_s, config_of, read_pairs
from tools.zoo.sharing import Throughput, infer_ratio

TRUE = Compute(0.02, 0.003)
OVERLAP = 2.0


def rows(xi: float, *, comm_s: float = 0.0, noise: float = 0.0) -> list[Throughput]:
    """Throughputs of a known model at batches of 8 to 64, whole and in two micro-batches."""
    jitter = np.random.default_rng(5)
    found = []
    for batch in (8.0, 16.0, 32.0, 64.0):
        for steps in (1, 2):
            seconds = xi * iteration_s(
                TRUE, batch=batch, steps=steps, comm_s=comm_s, overlap=OVERLAP
            )
            factor = np.exp(noise * jitter.standard_normal())
            found.append(Throughput(batch / seconds * factor, batch, steps, comm_s))
    return found


@pytest.mark.parametrize("xi", [1.0, 1.3, 2.0, 6.0])
def test_the_ratio_that_made_the_rows_is_found(xi: float) -> None:
    found = infer_ratio(rows(1.0), rows(xi))

    assert found.ratio == pytest.approx(xi, rel=1e-3)
    assert found.compute.a_s == pytest.approx(0.02, rel=1e-3)
    assert found.compute.b_s_per_sample == pytest.approx(0.003, rel=1e-3)
    assert found.shared_error.worst < 1e-3


def test_the_overlap_is_found_where_the_all_reduce_was_timed() -> None:
    alone = rows(1.0) + rows(1.0, comm_s=0.05)

    found = infer_ratio(alone, rows(1.7, comm_s=0.05))

    assert found.overlap == pytest.approx(OVERLAP, rel=1e-2)
    assert found.ratio == pytest.approx(1.7, rel=1e-3)


def test_noise_of_two_per_cent_moves_the_ratio_by_little() -> None:
    found = infer_ratio(rows(1.0, noise=0.02), rows(1.6, noise=0.02))

    assert found.ratio == pytest.approx(1.6, rel=0.03)
    assert 0.001 < found.alone_error.mean < 0.04


def test_one_shared_row_is_enough() -> None:
    assert infer_ratio(rows(1.0), rows(2.5)[:1]).ratio == pytest.approx(2.5, rel=1e-3)


def test_a_job_that_ran_faster_shared_has_no_ratio_below_1() -> None:
    assert infer_ratio(rows(1.0), rows(0.9)).ratio == pytest.approx(1.0)


def test_too_few_rows_are_bad_input() -> None:
    with pytest.raises(InputError, match="two batch sizes"):
        infer_ratio(rows(1.0)[:1], rows(1.5))
    with pytest.raises(InputError, match="one row"):
        infer_ratio(rows(1.0), [])


@pytest.mark.parametrize("given", [(0.0, 8.0), (1.0, 0.0), (1.0, 8.0, 0), (1.0, 8.0, 1, -1.0)])
def test_a_throughput_that_cannot_be_is_bad_input(given: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="positive"):
        Throughput(*given)  # type: ignore[arg-type]


def test_on_gavels_rows_sharing_adds_to_the_fixed_part(data_dir: Path) -> None:
    """ResNet-50 beside itself at batch 16: one ratio misfits, since small batches suffer more."""
    pairs = read_pairs(data_dir, FITTED_ON)
    alone = [
        Throughput(batch / seconds, batch)
        for (name, batch), seconds in alone_s(pairs).items()
        if name == "ResNet-50"
    ]
    beside = {}
    for row in pairs:
        for side, other in (("a", "b"), ("b", "a")):
            name, batch = config_of(row[f"model_{side}"])
            if name == "ResNet-50" and row[f"model_{other}"] == "ResNet-50 (batch size 16)":
                rate = float(row[f"shared_{side}_steps_per_s"]) * batch
                beside[batch] = Throughput(rate, batch)
    shared = list(beside.values())

    one = infer_ratio(alone, shared)
    own = infer_ratio(shared, shared).compute

    assert one.ratio == pytest.approx(1.46, abs=0.01)
    assert one.alone_error.mean > 0.03
    assert own.a_s > 3 * infer_ratio(alone, alone).compute.a_s
    assert own.b_s_per_sample < 1.1 * infer_ratio(alone, alone).compute.b_s_per_sample

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.physics.speed.compute import Compute, iteration_s, overlapped_s

seconds = st.floats(0, 10, allow_subnormal=False)
overlaps = st.floats(1, 20) | st.just(math.inf)
steps = st.sampled_from([1, 2, 4, 8])


def test_accumulation_costs_what_the_worked_example_says() -> None:
    compute = Compute(0.02, 0.001)

    at_once = iteration_s(compute, batch=64, steps=1, comm_s=0.06, overlap=1.5)
    in_two = iteration_s(compute, batch=64, steps=2, comm_s=0.06, overlap=1.5)

    assert at_once == pytest.approx(0.11509, abs=5e-6)
    assert in_two == pytest.approx(0.14101, abs=5e-6)


def test_the_newcomer_of_worked_example_four_takes_so_long_alone() -> None:
    compute = Compute(0.02, 0.002)

    alone_s = 200 * iteration_s(compute, batch=32, steps=1, comm_s=0.03, overlap=2)

    assert alone_s == pytest.approx(17.839, abs=5e-4)


def test_without_overlap_times_add_and_with_full_overlap_the_longer_counts() -> None:
    assert overlapped_s(0.3, 0.4, 1) == pytest.approx(0.7)
    assert overlapped_s(0.3, 0.4, 2) == pytest.approx(0.5)
    assert overlapped_s(0.3, 0.4, math.inf) == 0.4
    assert overlapped_s(0.0, 0.0, 2) == 0.0
    assert overlapped_s(1e-200, 1e-201, 50) == pytest.approx(1e-200)


def test_an_overlap_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        overlapped_s(1, 1, 0.5)


def test_negative_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="not negative"):
        Compute(-0.1, 0.1)


@given(a=seconds, b=seconds, comm=seconds, d=overlaps, s=steps)
def test_without_communication_an_iteration_is_its_micro_batches(
    a: float, b: float, comm: float, d: float, s: int
) -> None:
    compute = Compute(a, b)
    expected = s * compute.time_s(32 / s)

    assert iteration_s(compute, batch=32, steps=s, comm_s=0, overlap=d) == pytest.approx(expected)
    assert iteration_s(compute, batch=32, steps=s, comm_s=comm, overlap=d) >= expected - 1e-9


@given(a=seconds, b=seconds, comm=seconds, d=overlaps, s=steps, more=st.floats(1, 4))
def test_more_samples_or_slower_links_never_make_it_faster(
    a: float, b: float, comm: float, d: float, s: int, more: float
) -> None:
    compute = Compute(a, b)
    base = iteration_s(compute, batch=16, steps=s, comm_s=comm, overlap=d)
    slack = 1e-9 * (1 + base)

    assert iteration_s(compute, batch=16 * more, steps=s, comm_s=comm, overlap=d) >= base - slack
    assert iteration_s(compute, batch=16, steps=s, comm_s=comm * more, overlap=d) >= base - slack


@given(a=seconds, b=seconds, comm=seconds, d=overlaps, s=steps)
def test_accumulating_is_never_faster(a: float, b: float, comm: float, d: float, s: int) -> None:
    compute = Compute(a, b)
    coarse = iteration_s(compute, batch=64, steps=s, comm_s=comm, overlap=d)
    fine = iteration_s(compute, batch=64, steps=2 * s, comm_s=comm, overlap=d)

    assert fine >= coarse - 1e-9 * (1 + coarse)


@given(a=seconds, b=seconds, comm=seconds, d=overlaps)
def test_arrays_give_what_floats_give(a: float, b: float, comm: float, d: float) -> None:
    compute = Compute(a, b)
    batches = np.array([1.0, 8.0, 64.0])
    steps_each = np.array([1.0, 2.0, 4.0])

    together = iteration_s(compute, batch=batches, steps=steps_each, comm_s=comm, overlap=d)

    one_by_one = [
        iteration_s(compute, batch=batch, steps=s, comm_s=comm, overlap=d)
        for batch, s in zip(batches.tolist(), steps_each.tolist(), strict=True)
    ]
    np.testing.assert_allclose(together, one_by_one, rtol=1e-12, atol=1e-300)

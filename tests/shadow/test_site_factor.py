"""How an order becomes site factors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.core.errors import InputError
from dovetail.shadow.site_factor import SitePriority, commands, factors, undone


def test_a_factor_puts_each_job_before_the_next() -> None:
    known = {
        "1": SitePriority("1", 2000.0, 0),
        "2": SitePriority("2", 5000.0, 0),
        "3": SitePriority("3", 100.0, 0),
    }
    wanted = factors(["3", "1", "2"], known)
    assert commands(wanted, known) == [
        ("scontrol", "update", "jobid=3", "sitefactor=29400"),
        ("scontrol", "update", "jobid=1", "sitefactor=19600"),
        ("scontrol", "update", "jobid=2", "sitefactor=9800"),
    ]


@given(
    st.dictionaries(st.integers(1, 99).map(str), st.integers(1, 10_000), min_size=1),
    st.randoms(),
    st.integers(-1_000_000, 1_000_000),
)
def test_slurm_then_has_the_order_whatever_factors_were_set_before(
    own: dict[str, int], random: object, before: int
) -> None:
    order = list(own)
    random.shuffle(order)  # type: ignore[attr-defined]
    known = {j: SitePriority(j, float(p + before), before) for j, p in own.items()}
    wanted = factors(order, known)
    assert sorted(own, key=lambda j: -(own[j] + wanted[j])) == order
    # A second time with the same order changes nothing.
    again = {j: SitePriority(j, float(own[j] + wanted[j]), wanted[j]) for j in own}
    assert commands(factors(order, again), again) == []


def test_a_job_without_a_priority_is_passed_over() -> None:
    known = {"2": SitePriority("2", 10.0, 0)}
    assert factors(["1", "2"], known) == {"2": 1000}


def test_too_many_jobs_with_priorities_far_apart_are_refused() -> None:
    known = {str(n): SitePriority(str(n), n * 1e6, 0) for n in range(1000)}
    with pytest.raises(InputError, match="largest site factor"):
        factors(list(known), known)


def test_factors_are_taken_back_where_they_are_set() -> None:
    known = {"1": SitePriority("1", 10.0, 5), "2": SitePriority("2", 10.0, 0)}
    assert commands(undone(known), known) == [("scontrol", "update", "jobid=1", "sitefactor=0")]

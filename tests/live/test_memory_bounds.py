"""Who shares a GPU cannot take the memory of the other."""

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.live.measuring.memory_bounds import bounds


def test_alone_a_job_has_no_bound() -> None:
    assert bounds([30e9], 48e9) == (0,)
    assert bounds([], 48e9) == ()


def test_each_gets_what_it_holds_and_half_of_the_rest() -> None:
    assert bounds([10e9, 30e9], 48e9) == (14 * 10**9, 34 * 10**9)


def test_without_knowledge_the_parts_are_even() -> None:
    assert bounds([0.0, 30e9], 48e9) == (24 * 10**9, 24 * 10**9)
    assert bounds([30e9, 30e9], 48e9) == (24 * 10**9, 24 * 10**9)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.lists(st.floats(0.0, 1e11), min_size=2, max_size=4), st.floats(1e9, 1e11))
def test_bounds_never_exceed_the_memory_and_hold_what_is_believed(
    held: list[float], memory: float
) -> None:
    found = bounds(held, memory)
    assert sum(found) <= memory * (1 + 1e-9)
    if all(held) and sum(held) <= memory:
        assert all(b + 1 >= h for b, h in zip(found, held, strict=True))

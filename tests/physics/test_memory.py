import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.physics.memory import MemoryLaw, interleaved_bytes
from tools.zoo.largest_batch import largest_batch

GB = 1e9
NEWCOMER = MemoryLaw(2 * GB, 0.25 * GB)


def test_the_sub_batch_of_worked_example_four_fits_beside_its_host() -> None:
    assert NEWCOMER.used_bytes(32) == 10 * GB
    assert NEWCOMER.used_bytes(32) + 5 * GB > 11 * GB
    assert NEWCOMER.used_bytes(16) + 5 * GB <= 11 * GB


def test_an_interleave_set_keeps_one_share_of_activations_at_a_time() -> None:
    other = MemoryLaw(1 * GB, 0.5 * GB)
    held = [(m.fixed_bytes, m.used_bytes(b)) for m, b in [(NEWCOMER, 8), (other, 2)]]

    assert interleaved_bytes(held) == 2 * GB + 1 * GB + 2 * GB
    assert interleaved_bytes([]) == 0


def test_the_largest_batch_says_none_when_memory_does_not_limit() -> None:
    assert largest_batch(MemoryLaw(GB, 0.0), 2 * GB) is None
    assert largest_batch(MemoryLaw(3 * GB, 0.0), 2 * GB) == 0
    assert largest_batch(NEWCOMER, 2 * GB) == 0


@given(fixed=st.floats(0, 1e10), each=st.floats(1, 1e9), room=st.floats(0, 1e11))
def test_the_largest_batch_fits_and_the_next_does_not(
    fixed: float, each: float, room: float
) -> None:
    memory = MemoryLaw(fixed, each)

    largest = largest_batch(memory, room)

    assert largest is not None
    assert largest == 0 or memory.used_bytes(largest) <= room
    assert memory.used_bytes(largest + 2) > room


def test_negative_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        MemoryLaw(-1, 0)

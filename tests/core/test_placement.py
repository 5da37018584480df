"""The part of a placement that a job keeps: the manner of the whole, cut to fewer GPUs."""

import pytest

from dovetail.core.placement import Interleave, Placement

SEAT = Interleave(3, 1)
NAMED = Placement(
    ((0, 2), (1, 2)),
    ((0, 1), (2, 3)),
    accumulation_steps=4,
    fractions=(1.0, 0.5, 0.5, 1.0),
    samples=(3, 1, 1, 3),
    interleave=SEAT,
    batch_size=96,
)


def test_what_another_placement_holds_too_keeps_batch_steps_and_seat() -> None:
    part = NAMED.kept_in(Placement(((1, 1), (2, 1)), ((3,), (0,)), batch_size=512))
    # Samples and fractions are one for each worker: cut, they would no longer add up.
    assert part == Placement(((1, 1),), ((3,),), 4, interleave=SEAT, batch_size=96)


def test_where_gpus_have_no_names_counts_decide_and_the_manner_stays() -> None:
    part = NAMED.kept_in(Placement(((1, 4), (0, 1))))
    assert part == Placement(((0, 1), (1, 2)), (), 4, interleave=SEAT, batch_size=96)
    assert Placement(((0, 3),), batch_size=48).kept_in(Placement(((0, 2),))) == Placement(
        ((0, 2),), batch_size=48
    )


def test_who_keeps_all_keeps_samples_and_fractions_too() -> None:
    assert NAMED.kept_in(Placement(((0, 4), (1, 4)))) is NAMED
    assert NAMED.without({2}) is NAMED


def test_nothing_in_common_is_no_part() -> None:
    assert NAMED.kept_in(Placement(((2, 4),))) is None
    assert NAMED.kept_in(Placement(((0, 2),), ((2, 3),))) is None
    assert NAMED.without({0, 1}) is None


@pytest.mark.parametrize(("lost", "span", "names"), [(0, (1, 2), (2, 3)), (1, (0, 2), (0, 1))])
def test_what_is_on_other_nodes_keeps_batch_steps_and_seat(
    lost: int, span: tuple[int, int], names: tuple[int, ...]
) -> None:
    assert NAMED.without({lost}) == Placement((span,), (names,), 4, interleave=SEAT, batch_size=96)

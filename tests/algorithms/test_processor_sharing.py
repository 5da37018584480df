"""Processor sharing: worked by hand, and what must hold for every set."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.algorithms import processor_sharing
from dovetail.algorithms.arrays import Floats
from dovetail.algorithms.processor_sharing import overlaps, slowdowns

ONE_EACH = np.ones((1, 1, 4))


def of_set(
    stages: list[list[float]],
    held: list[list[float]] | None = None,
    weight: list[list[float]] | None = None,
    capacity: Floats = ONE_EACH,
) -> list[float]:
    """Returns the slowdowns of one set, in which whole stages are held and all weigh the same."""
    rows = np.array([stages])
    uses = np.array([held]) if held else rows
    weights = np.array([weight]) if weight else np.ones(rows.shape)
    ratios: list[float] = slowdowns(rows, uses, weights, capacity[..., : rows.shape[-1]])[
        0
    ].tolist()
    return ratios


def test_two_that_are_always_there_get_their_parts_by_weight() -> None:
    assert of_set([[1.0], [1.0]]) == [2.0, 2.0]
    assert of_set([[1.0], [1.0]], weight=[[1.0], [3.0]]) == pytest.approx([4.0, 4 / 3])
    assert of_set([[1.0]] * 4) == [4.0] * 4


def test_two_that_are_there_half_of_the_time_by_hand() -> None:
    # A visit of 1/2 takes (1 + q) / 2 beside a neighbour who is present for a share q, and
    # q = (1 + q) / 2 / (1 / 2 + (1 + q) / 2), so q * q + q = 1.
    present = (5**0.5 - 1) / 2
    assert of_set([[0.5], [0.5]]) == pytest.approx([1 + present / 2] * 2, abs=1e-6)


def test_a_part_of_a_stage_that_holds_nothing_is_not_slowed() -> None:
    # The stage fills the iteration, and its kernels half of it: the same as a stage of a half.
    assert of_set([[1.0]] * 2, held=[[0.5]] * 2) == pytest.approx(of_set([[0.5]] * 2))


def test_a_resource_serves_as_many_as_its_capacity_at_full_speed() -> None:
    three = np.full((1, 1, 1), 3.0)
    assert of_set([[1.0]] * 3, capacity=three) == [1.0] * 3
    assert of_set([[1.0]] * 4, capacity=three) == pytest.approx([4 / 3] * 4)


def test_jobs_of_different_resources_do_not_meet() -> None:
    assert of_set([[1.0, 0.0], [0.0, 1.0]]) == [1.0, 1.0]


def test_stages_that_overlap_hide_each_other() -> None:
    # Both fill the iteration, so they overlap whole; twice the first leaves the second hidden.
    assert overlaps(np.array([1.0, 1.0])) == 1.0
    assert of_set([[1.0, 1.0], [1.0, 0.0]]) == [2.0, 2.0]
    # Half and half follow each other.
    assert overlaps(np.array([0.5, 0.5])) == 0.0
    assert overlaps(np.array([0.2, 0.2])) == 0.0


def test_what_a_neighbour_was_measured_to_add_replaces_what_is_computed() -> None:
    rows = np.ones((1, 2, 1))
    twice = np.zeros((1, 2, 2, 1))
    twice[0, 0, 1] = 1.0
    found = slowdowns(rows, rows, rows, ONE_EACH[..., :1], twice)
    assert found.tolist() == [[3.0, 2.0]]


@st.composite
def sets(draw: st.DrawFn, most: int = 4) -> tuple[Floats, Floats, Floats, Floats]:
    """Draws stages of sets of one size, the parts held, weights, and capacities."""
    members, resources = draw(st.integers(2, most)), draw(st.integers(1, 4))
    share = st.floats(0.0, 1.0).map(lambda x: round(x, 3))

    def table(values: st.SearchStrategy[float]) -> Floats:
        flat = st.lists(values, min_size=members * resources, max_size=members * resources)
        return np.array(draw(flat)).reshape(1, members, resources)

    stages, part, weight = table(share), table(share), table(st.floats(0.2, 5.0))
    capacity = draw(st.lists(st.floats(1.0, 5.0), min_size=resources, max_size=resources))
    return stages, stages * part, weight, np.array([[capacity]])


@settings(max_examples=200, deadline=None)
@given(sets())
def test_with_equal_weights_no_set_gets_more_of_a_resource_than_there_is(
    drawn: tuple[Floats, Floats, Floats, Floats],
) -> None:
    stages, held, _, capacity = drawn
    ratios = slowdowns(stages, held, np.ones(held.shape), capacity)
    used = (held / ratios[..., None]).sum(axis=1)
    assert (ratios >= 1).all()
    assert (used <= capacity[:, 0] * (1 + 1e-3)).all()


@settings(max_examples=100, deadline=None)
@given(sets(), sets())
def test_a_set_has_one_result_in_any_company(
    one: tuple[Floats, Floats, Floats, Floats], other: tuple[Floats, Floats, Floats, Floats]
) -> None:
    if one[0].shape != other[0].shape:
        return
    stages, held, weight = (np.concatenate(both) for both in zip(one[:3], other[:3], strict=True))
    together = slowdowns(stages, held, weight, one[3])
    assert together[:1].tolist() == slowdowns(*one).tolist()


@settings(max_examples=100, deadline=None)
@given(sets(), st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_matter(
    drawn: tuple[Floats, Floats, Floats, Floats], random: object
) -> None:
    stages, held, weight, capacity = drawn
    order = list(range(stages.shape[1]))
    random.shuffle(order)  # type: ignore[attr-defined]
    turned = slowdowns(stages[:, order], held[:, order], weight[:, order], capacity)
    assert turned == pytest.approx(slowdowns(*drawn)[:, order], rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(sets())
def test_on_one_resource_nobody_gets_faster_when_a_member_joins(
    drawn: tuple[Floats, Floats, Floats, Floats],
) -> None:
    stages, held, weight, capacity = (table[..., :1] for table in drawn)
    fewer = slowdowns(stages[:, 1:], held[:, 1:], weight[:, 1:], capacity)
    assert (slowdowns(stages, held, weight, capacity)[:, 1:] >= fewer * (1 - 1e-3)).all()


def test_on_several_a_member_that_joins_may_keep_another_away() -> None:
    # The third slows the second's loading, and the second then meets the first less often.
    two = [[0.0, 1.0], [0.5, 0.5]]
    assert of_set([*two, [1.0, 0.0]])[0] < of_set(two)[0]


@pytest.mark.parametrize(("members", "within"), [(2, 1e-6), (4, 1e-4)])
def test_the_rounds_suffice(members: int, within: float, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(7)
    # Weights as far apart as those of the shipped law.
    stages = draw.dirichlet([0.7] * 4, (500, members))
    weight = np.ones(stages.shape)
    weight[..., 2] = draw.uniform(0.47, 4.6, (500, members))
    held = stages * draw.uniform(0.3, 1.0, stages.shape)
    few = slowdowns(stages, held, weight, ONE_EACH)
    monkeypatch.setattr(processor_sharing, "ROUNDS", 200)
    assert few == pytest.approx(slowdowns(stages, held, weight, ONE_EACH), rel=within)

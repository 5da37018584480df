from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from physics_scene import a_model, assumed, stages

from dovetail.core.errors import InputError
from dovetail.physics.sharing.contention import (
    Contention,
    MeasuredContention,
    load,
    shipped_contention,
)
from dovetail.physics.sharing.pair_law import (
    GpuLoad,
    Injected,
    MeasuredInterference,
    parse_interference,
)
from dovetail.physics.sharing.pairs import PairRatio
from dovetail.physics.speed.compute import Compute
from dovetail.physics.zoo.models import lookup, zoo
from dovetail.physics.zoo.profile import ModelProfile
from dovetail.physics.zoo.profile_file import ProfileSet

LAW = Contention(scale=0.5, growth=1.0, relief=1.0, heaviest=8.0)


def by_law(**changes: object) -> MeasuredContention:
    plain = MeasuredContention(assumed(LAW), 1.25, {}, {}, ())
    return replace(plain, **changes)  # type: ignore[arg-type]


def model(name: str, slope_s: float = 0.01) -> ModelProfile:
    """Computes 10 ms and, unless told, 10 ms a sample: a load of its micro-batch."""
    return a_model(name=name, compute=(("v100", assumed(Compute(0.01, slope_s))),))


ONE, TWO = model("one"), model("two")


def test_the_law_by_hand() -> None:
    measured = MeasuredInterference(known=by_law())

    # Load 1 beside load 4: 1 + 0.5 * 4 / (1 + 1); the other way 1 + 0.5 * 1 / (1 + 4).
    assert measured.ratio(GpuLoad(ONE, 1), GpuLoad(TWO, 4)) == pytest.approx(2.0)
    assert measured.ratio(GpuLoad(TWO, 4), GpuLoad(ONE, 1)) == pytest.approx(1.1)


def test_loads_beyond_the_measured_count_as_the_heaviest() -> None:
    measured = MeasuredInterference(known=by_law())
    no_start = model("no-start")
    object.__setattr__(no_start, "compute", (("v100", assumed(Compute(0.0, 0.01))),))

    assert load(no_start, 3) == float("inf")
    assert (
        measured.ratio(GpuLoad(ONE, 1), GpuLoad(TWO, 50))
        == measured.ratio(GpuLoad(ONE, 1), GpuLoad(TWO, 8))
        == 3.0
    )
    assert measured.ratio(GpuLoad(ONE, 1), GpuLoad(no_start, 3)) == 3.0


def test_a_model_that_works_outside_the_gpu_presses_and_suffers_by_its_share() -> None:
    # Its GPU stage takes 0.1 s of an iteration of 0.01 + 64 * 0.01 s.
    busy = replace(model("busy"), stages=stages())
    known = by_law(shares={TWO.full_name: assumed(0.5)})

    assert known.gpu_share(TWO) == 0.5
    assert known.gpu_share(busy) == pytest.approx(0.1 / 0.65)
    assert known.gpu_share(ONE) == 1.0
    measured = MeasuredInterference(known=known)
    assert measured.ratio(GpuLoad(ONE, 1), GpuLoad(TWO, 4)) == pytest.approx(1.5)
    assert measured.ratio(GpuLoad(TWO, 4), GpuLoad(ONE, 1)) == pytest.approx(1.05)


def test_a_job_without_a_model_has_the_median() -> None:
    measured = MeasuredInterference(known=by_law())

    assert measured.ratio(GpuLoad(None, 1), GpuLoad(ONE, 4)) == 1.25
    assert measured.ratio(GpuLoad(ONE, 4), GpuLoad(None, 1)) == 1.25
    assert MeasuredInterference().ratio(GpuLoad(None, 1), GpuLoad(None, 1)) == pytest.approx(
        1.3989, abs=1e-4
    )


def test_measured_pairs_go_before_the_law() -> None:
    pair = PairRatio("First", 2, "Second", 4, 1.9, 1.3)
    names = {ONE.full_name: assumed("First"), TWO.full_name: assumed("Second")}
    measured = MeasuredInterference(known=by_law(pairs=(pair,), measured_as=names))

    assert measured.ratio(GpuLoad(ONE, 2), GpuLoad(TWO, 4)) == pytest.approx(1.9)
    assert measured.ratio(GpuLoad(TWO, 4), GpuLoad(ONE, 2)) == pytest.approx(1.3)
    assert measured.is_measured(ONE, TWO)
    assert not measured.is_measured(ONE, ONE)


def test_pairs_of_a_users_own_set_go_before_the_shipped() -> None:
    imagenet = lookup("pollux/imagenet")
    mine = PairRatio("imagenet", 64, "imagenet", 64, 1.5, 1.5)
    own = ProfileSet("pollux", "mine", "mine", (), (), (mine,))

    assert MeasuredInterference().ratio(
        GpuLoad(imagenet, 64), GpuLoad(imagenet, 64)
    ) == pytest.approx(2.0525, abs=1e-3)
    assert MeasuredInterference((own,)).ratio(
        GpuLoad(imagenet, 64), GpuLoad(imagenet, 64)
    ) == pytest.approx(1.5)


def test_a_model_whose_time_does_not_grow_can_still_be_measured() -> None:
    flat = model("flat", slope_s=0.0)
    own = ProfileSet("scene", "mine", "mine", (), (), (PairRatio("flat", 1, "one", 1, 1.2, 1.4),))
    measured = MeasuredInterference((own,), by_law())

    assert measured.ratio(GpuLoad(flat, 1), GpuLoad(ONE, 1)) == pytest.approx(1.2)
    assert measured.ratio(GpuLoad(ONE, 1), GpuLoad(flat, 1)) == pytest.approx(1.4)


def test_shipped_pairs_are_as_measured() -> None:
    cifar10, imagenet = lookup("pollux/cifar10"), lookup("pollux/imagenet")
    measured = MeasuredInterference()

    assert measured.ratio(GpuLoad(cifar10, 128), GpuLoad(imagenet, 64)) == pytest.approx(
        1 / 0.3784, abs=1e-4
    )
    assert measured.ratio(GpuLoad(imagenet, 64), GpuLoad(cifar10, 128)) == pytest.approx(
        1 / 0.7129, abs=1e-4
    )


@pytest.mark.parametrize(("text", "xi"), [("1.5", 1.5), (1.0, 1.0), ("2", 2.0), (1, 1.0)])
def test_a_number_is_injected(text: str | float, xi: float) -> None:
    assert parse_interference(text) == Injected(xi)
    assert parse_interference(text).ratio(GpuLoad(ONE, 1), GpuLoad(None, 1)) == xi


def test_the_word_stands_for_what_is_measured() -> None:
    own = ProfileSet("scene", "mine", "mine", (), (), (PairRatio("one", 1, "two", 1, 1.7, 1.2),))

    assert isinstance(parse_interference("measured"), MeasuredInterference)
    assert parse_interference("measured", (own,)).ratio(
        GpuLoad(ONE, 1), GpuLoad(TWO, 1)
    ) == pytest.approx(1.7)


@pytest.mark.parametrize(
    ("text", "says"),
    [("mesured", "measured"), ("", "unknown"), ("0.5", "at least 1"), ("inf", "at least 1"),
     ("nan", "at least 1")],
)  # fmt: skip
def test_anything_else_is_bad_input(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_interference(text)


MODELS = st.sampled_from(sorted(zoo()))
SIZES = st.integers(0, 12).map(lambda power: 2.0**power)


@settings(max_examples=150, deadline=None)
@given(mine=MODELS, other=MODELS, batch=SIZES, beside=SIZES)
def test_over_the_zoo_ratios_are_bounded_and_grow_with_the_neighbours_load(
    mine: str, other: str, batch: float, beside: float
) -> None:
    a, b, measured = zoo()[mine], zoo()[other], MeasuredInterference()
    law = shipped_contention().law.value
    ratio = measured.ratio(GpuLoad(a, batch), GpuLoad(b, beside))

    assert ratio == measured.ratio(GpuLoad(a, batch), GpuLoad(b, beside))
    if measured.is_measured(a, b):
        assert 1 <= ratio < 2 * (1 + law.scale * law.heaviest**law.growth)
    else:
        assert 1 <= ratio <= 1 + law.scale * law.heaviest**law.growth
        assert measured.ratio(GpuLoad(a, batch), GpuLoad(b, 2 * beside)) >= ratio
        assert measured.ratio(GpuLoad(a, 2 * batch), GpuLoad(b, beside)) <= ratio


def test_every_share_and_name_belongs_to_the_zoo() -> None:
    known = shipped_contention()
    measured = {name.value for name in known.measured_as.values()}

    assert set(known.shares) | set(known.measured_as) <= set(zoo())
    assert measured == {name for pair in known.pairs for name in (pair.first, pair.second)}
    assert all(0 < known.gpu_share(profile) <= 1 for profile in zoo().values())

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from physics_scene import a_model, assumed, stages

from dovetail.core.errors import InputError
from dovetail.physics.sharing.contention import (
    Contention,
    KnownContention,
    shipped_contention,
)
from dovetail.physics.sharing.interference import (
    Injected,
    MeasuredInterference,
    parse_interference,
)
from dovetail.physics.sharing.pairs import PairRatio
from dovetail.physics.sharing.service_demand import (
    GPU,
    ServiceDemand,
    Size,
    load,
    on_one_gpu,
    service_demand,
    well_placed_demand,
)
from dovetail.physics.speed.compute import Compute
from dovetail.physics.speed.network import Network, RingLink
from dovetail.physics.zoo.models import lookup, zoo
from dovetail.physics.zoo.profile import ModelProfile, StageTimes
from dovetail.physics.zoo.profile_file import ProfileSet

LAW = Contention(half=1.0, weight_power=0.5, lightest=0.25, heaviest=16.0)


def by_law(**changes: object) -> KnownContention:
    plain = KnownContention(assumed(LAW), assumed(3.0), 1.25, 0.7, {}, ())
    return replace(plain, **changes)  # type: ignore[arg-type]


def model(name: str, slope_s: float = 0.01) -> ModelProfile:
    """Computes 10 ms and, unless told, 10 ms a sample: a load of its micro-batch."""
    return a_model(name=name, compute=(("v100", assumed(Compute(0.01, slope_s))),))


ONE, TWO = model("one"), model("two")


def test_two_jobs_that_fill_the_gpu_get_half_of_it_each() -> None:
    full = MeasuredInterference(known=by_law(law=assumed(Contention(1e-9, 0.5, 0.25, 16.0))))

    assert full.ratio(on_one_gpu(ONE, 4), on_one_gpu(TWO, 4)) == pytest.approx(2.0)


def test_the_law_by_hand() -> None:
    measured = MeasuredInterference(known=by_law())

    # Equal loads of 1 fill half of a stage, with equal weights. The share of time q that each is
    # there: q = (1 + q) / 2 / (1 + q / 2), so q = (5 ** 0.5 - 1) / 2, and the ratio is 1 + q / 2.
    present = (5**0.5 - 1) / 2
    assert measured.ratio(on_one_gpu(ONE, 1), on_one_gpu(TWO, 1)) == pytest.approx(1 + present / 2)


def test_long_kernels_press_and_short_ones_wait() -> None:
    measured = MeasuredInterference(known=by_law())
    light, heavy = on_one_gpu(ONE, 1), on_one_gpu(TWO, 4)

    # Weights 1 and 2, fills 1/2 and 4/5: a = q of the light one, b of the heavy one.
    slow, slight = measured.ratio(light, heavy), measured.ratio(heavy, light)
    b = 2 * (slow - 1) / 2
    a = 2 * (slight - 1) / 0.8
    assert slow > slight > 1
    assert a == pytest.approx(0.5 * (1 + 2 * b) / slow, rel=1e-5)
    assert b == pytest.approx(0.8 * (1 + a / 2) / slight, rel=1e-5)


def test_loads_beyond_the_measured_count_as_the_nearest_measured() -> None:
    measured = MeasuredInterference(known=by_law())
    no_start = model("no-start")
    object.__setattr__(no_start, "compute", (("v100", assumed(Compute(0.0, 0.01))),))

    assert load(no_start, 3) == float("inf")
    one = on_one_gpu(ONE, 1)
    heaviest = measured.ratio(one, on_one_gpu(TWO, 16))
    assert measured.ratio(one, on_one_gpu(TWO, 50)) == heaviest
    assert measured.ratio(one, on_one_gpu(no_start, 3)) == heaviest
    slow, slower = model("slow", 0.0025), model("slower", 0.0001)
    assert measured.ratio(on_one_gpu(slow, 1), one) == measured.ratio(on_one_gpu(slower, 1), one)


def test_a_model_that_works_outside_the_gpu_presses_and_suffers_by_its_share() -> None:
    # Its GPU stage takes 0.1 s of an iteration of 0.01 + 64 * 0.01 s.
    busy = replace(model("busy"), stages=stages())
    measured = MeasuredInterference(known=by_law())

    assert on_one_gpu(busy, 64).shares[GPU] == pytest.approx(0.1 / 0.65)
    assert on_one_gpu(ONE, 64).shares == (0.0, 0.0, 1.0, 0.0)
    other = on_one_gpu(TWO, 64)
    assert measured.ratio(on_one_gpu(busy, 64), other) < measured.ratio(on_one_gpu(ONE, 64), other)
    assert measured.ratio(other, on_one_gpu(busy, 64)) < measured.ratio(other, on_one_gpu(ONE, 64))


def loading(name: str, share: float) -> ModelProfile:
    """Loads for a share of its iteration and computes for the rest, on one GPU."""
    alone_s = 0.65
    row = StageTimes(1, 0.0, share * alone_s, (1 - share) * alone_s, 0.0)
    return replace(model(name), stages=assumed((row,)))


def test_a_host_that_feeds_one_job_at_a_time_slows_two_that_load() -> None:
    one, two = on_one_gpu(loading("reads", 1.0), 64), on_one_gpu(loading("decodes", 1.0), 64)

    roomy = MeasuredInterference(known=by_law())
    assert roomy.ratio(one, two) == pytest.approx(1.0)
    assert roomy.of_set([one, two, one, two]).tolist() == pytest.approx([4 / 3] * 4)
    tight = MeasuredInterference(known=by_law(), host_capacity=1.0)
    assert tight.ratio(one, two) == pytest.approx(2.0)


def test_jobs_over_several_nodes_contend_for_their_links() -> None:
    # On two nodes half of an iteration is the exchange; inside one node it takes no time.
    wire = Network(RingLink(0.0, 1e30), RingLink(0.32, 1e30))
    spread = replace(model("spread"), network=assumed(wire), overlap=assumed(1.0))
    near = service_demand(spread, Size((2,), 63, 1))
    apart = service_demand(spread, Size((1, 1), 63, 1))
    measured = MeasuredInterference(known=by_law())

    assert apart.shares[3] == pytest.approx(0.5) and near.shares[3] == pytest.approx(0.0, abs=1e-9)
    # The GPU is contended for half of the time, and the link for the other half.
    on_gpu = measured.ratio(near, near)
    assert 1 < measured.ratio(apart, apart) < 2
    alone_on_link = replace_shares(apart, (0.0, 0.0, 0.0, 0.5))
    assert measured.ratio(apart, apart) > measured.ratio(alone_on_link, alone_on_link) > 1
    assert on_gpu > 1


def replace_shares(demand: ServiceDemand, shares: tuple[float, ...]) -> ServiceDemand:
    storage, cpu, gpu, network = (share * demand.iteration_s for share in shares)
    return replace(demand, stage_s=(storage, cpu, gpu, network))


def test_a_job_without_a_model_has_the_median() -> None:
    measured = MeasuredInterference(known=by_law())

    assert measured.ratio(on_one_gpu(None, 1), on_one_gpu(ONE, 4)) == 1.25
    assert measured.ratio(on_one_gpu(ONE, 4), on_one_gpu(None, 1)) == 1.25
    unknown = on_one_gpu(None, 1)
    assert MeasuredInterference().ratio(unknown, unknown) == pytest.approx(1.3989, abs=1e-4)
    assert measured.of_set([on_one_gpu(ONE, 4), unknown, unknown]).tolist() == [1.5] * 3


def test_measured_pairs_go_before_the_law() -> None:
    pair = PairRatio("First", 2, "Second", 4, 1.9, 1.3)
    names = {ONE.full_name: assumed("First"), TWO.full_name: assumed("Second")}
    measured = MeasuredInterference(known=by_law(pairs=(pair,), measured_as=names))

    assert measured.ratio(on_one_gpu(ONE, 2), on_one_gpu(TWO, 4)) == pytest.approx(1.9)
    assert measured.ratio(on_one_gpu(TWO, 4), on_one_gpu(ONE, 2)) == pytest.approx(1.3)
    assert measured.is_measured(ONE, TWO)
    assert not measured.is_measured(ONE, ONE)


def test_pairs_of_a_users_own_set_go_before_the_shipped() -> None:
    imagenet = lookup("pollux/imagenet")
    mine = PairRatio("imagenet", 64, "imagenet", 64, 1.5, 1.5)
    own = ProfileSet("pollux", "mine", "mine", (), (), (mine,))

    assert MeasuredInterference().ratio(
        on_one_gpu(imagenet, 64), on_one_gpu(imagenet, 64)
    ) == pytest.approx(2.0525, abs=1e-3)
    assert MeasuredInterference((own,)).ratio(
        on_one_gpu(imagenet, 64), on_one_gpu(imagenet, 64)
    ) == pytest.approx(1.5)


def test_a_model_whose_time_does_not_grow_can_still_be_measured() -> None:
    flat = model("flat", slope_s=0.0)
    own = ProfileSet("scene", "mine", "mine", (), (), (PairRatio("flat", 1, "one", 1, 1.2, 1.4),))
    measured = MeasuredInterference((own,), by_law())

    assert measured.ratio(on_one_gpu(flat, 1), on_one_gpu(ONE, 1)) == pytest.approx(1.2)
    assert measured.ratio(on_one_gpu(ONE, 1), on_one_gpu(flat, 1)) == pytest.approx(1.4)


def test_shipped_pairs_are_as_measured() -> None:
    cifar10, imagenet = lookup("pollux/cifar10"), lookup("pollux/imagenet")
    measured = MeasuredInterference()

    assert measured.ratio(on_one_gpu(cifar10, 128), on_one_gpu(imagenet, 64)) == pytest.approx(
        1 / 0.3784, abs=1e-4
    )
    assert measured.ratio(on_one_gpu(imagenet, 64), on_one_gpu(cifar10, 128)) == pytest.approx(
        1 / 0.7129, abs=1e-4
    )


@pytest.mark.parametrize(("text", "xi"), [("1.5", 1.5), (1.0, 1.0), ("2", 2.0), (1, 1.0)])
def test_a_number_is_injected(text: str | float, xi: float) -> None:
    assert parse_interference(text) == Injected(xi)
    assert parse_interference(text).ratio(on_one_gpu(ONE, 1), on_one_gpu(None, 1)) == xi


def test_the_word_stands_for_what_is_measured() -> None:
    own = ProfileSet("scene", "mine", "mine", (), (), (PairRatio("one", 1, "two", 1, 1.7, 1.2),))

    assert isinstance(parse_interference("measured"), MeasuredInterference)
    assert parse_interference("measured", (own,)).ratio(
        on_one_gpu(ONE, 1), on_one_gpu(TWO, 1)
    ) == pytest.approx(1.7)


@pytest.mark.parametrize(
    ("text", "says"),
    [("mesured", "measured"), ("", "unknown"), ("0.5", "at least 1"), ("inf", "at least 1"),
     ("nan", "at least 1"), ("measured,hots:1", "host:CAPACITY"), ("measured,host:x", "host:"),
     ("measured,host:0.5", "at least 1"), ("measured,", "host:CAPACITY")],
)  # fmt: skip
def test_anything_else_is_bad_input(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_interference(text)


MODELS = st.sampled_from(sorted(zoo()))
SIZES = st.integers(0, 12).map(lambda power: 2.0**power)


@settings(max_examples=150, deadline=None)
@given(mine=MODELS, other=MODELS, batch=SIZES, beside=SIZES)
def test_over_the_zoo_a_ratio_is_at_least_1_and_grows_with_the_neighbours_load(
    mine: str, other: str, batch: float, beside: float
) -> None:
    a, b, measured = zoo()[mine], zoo()[other], MeasuredInterference()
    ratio = measured.ratio(on_one_gpu(a, batch), on_one_gpu(b, beside))

    assert ratio == measured.ratio(on_one_gpu(a, batch), on_one_gpu(b, beside))
    assert ratio >= 1
    fits = all(x.batch.value.max_per_gpu >= 2 * size for x, size in ((a, batch), (b, beside)))
    if not measured.is_measured(a, b) and fits and b.stages is None:
        assert measured.ratio(on_one_gpu(a, batch), on_one_gpu(b, 2 * beside)) >= ratio


@pytest.mark.parametrize("host", [1.0, 2.0, 2.875])
def test_no_pair_of_the_zoo_gets_more_than_there_is(host: float) -> None:
    law, interference = shipped_contention().law.value, MeasuredInterference(host_capacity=host)
    capacity = [host, host, 1.0, 1.0]
    for gpus in (1, 4, 16):
        demands = [well_placed_demand(profile, gpus) for profile in zoo().values()]
        mine, theirs = interference.ratios(demands, demands)
        for i, one in enumerate(demands):
            for j, other in enumerate(demands):
                assert one.model and other.model
                if interference.is_measured(one.model, other.model):
                    continue  # As measured, whatever the law makes of it.
                for resource, most in enumerate(capacity):
                    fill = [law.fill(d.load) if resource == GPU else 1.0 for d in (one, other)]
                    used = one.shares[resource] * fill[0] / mine[i, j]
                    used += other.shares[resource] * fill[1] / theirs[i, j]
                    assert used <= most * (1 + 1e-9), (one.model.full_name, other.model.full_name)


def test_every_name_belongs_to_the_zoo() -> None:
    known = shipped_contention()
    measured = {name.value for name in known.measured_as.values()}

    assert set(known.measured_as) <= set(zoo())
    assert measured == {name for pair in known.pairs for name in (pair.first, pair.second)}

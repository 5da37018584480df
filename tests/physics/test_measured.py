"""A belief that learns: as measured where it was, overestimated where it was not."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, jobs_of
from dovetail.core.beliefs import SizedJob
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.job import JobRequest, JobTable
from dovetail.core.placement import Interleave, Placement
from dovetail.core.reading import SpeedMeasurement
from dovetail.physics.beliefs.learning import Learning
from dovetail.physics.beliefs.measured import SAME, rescale_curve
from dovetail.physics.beliefs.measurements import LEAST, NEWS, MeasurementKey, Measurements
from dovetail.physics.linear import linear_physics
from dovetail.physics.placed import placed_physics
from dovetail.physics.sharing.interference import Injected
from dovetail.physics.zoo.models import shipped

GIB = 1 << 30
ELASTIC = Row(2, 100.0, model="net", elastic=True, min_gpus=1, max_gpus=8)


def on(gpus: int, **more: object) -> Placement:
    return Placement(((0, gpus),), **more)  # type: ignore[arg-type]


def told(
    learning: Learning,
    job: int,
    placement: Placement,
    *beside: tuple[int, Placement],
    rate: float,
    times: int = LEAST,
    **more: object,
) -> bool:
    """Reports a reading as often as it takes to be believed; returns whether it was news."""
    reading = SpeedMeasurement(rate, **more)  # type: ignore[arg-type]
    news = [learning.observe(job, placement, beside, reading) for _ in range(times)]
    return any(news)


def learning_of(*rows: Row, xi: float = 1.0, **more: object) -> Learning:
    jobs = jobs_of(*rows)
    return Learning(linear_physics(jobs, Injected(xi)), jobs, **more)  # type: ignore[arg-type]


def speeds(learning: Learning, job: int, width: int) -> list[float]:
    row = learning.physics.speed.rates(width)[learning.physics.kind_of[job]]
    return [round(float(x), 6) for x in row]


def test_before_anything_is_measured_the_guess_stands() -> None:
    learning = learning_of(ELASTIC)
    assert speeds(learning, 0, 4) == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert learning.solo_rate(0) == 0.0


def test_beyond_the_largest_measured_number_a_job_is_overestimated_linearly() -> None:
    learning = learning_of(ELASTIC)
    told(learning, 0, on(2), rate=100.0)
    told(learning, 0, on(4), rate=120.0)
    assert speeds(learning, 0, 6) == [0.0, 1.0, 1.0, 1.2, 1.2, 1.5, 1.8]
    assert learning.physics.rate(0, on(4), ()) == pytest.approx(1.2)
    assert learning.physics.speed.top(0, 4) == pytest.approx(1.2)
    assert learning.physics.structure.scale(0) == pytest.approx(1.0)


def over(nodes: int, each: int) -> Placement:
    return Placement(tuple((node, each) for node in range(nodes)))


@pytest.mark.parametrize("packed_first", [True, False])
def test_what_is_lost_between_nodes_is_learned_apart(packed_first: bool) -> None:
    learning = learning_of(ELASTIC)
    readings = [(on(4), 200.0), (over(2, 2), 80.0)]
    for placement, rate in readings if packed_first else reversed(readings):
        told(learning, 0, placement, rate=rate)
        told(learning, 0, on(2), rate=100.0)
    speed = learning.physics.speed
    assert speed.whole(0, on(4)) == pytest.approx(2.0)
    assert speed.whole(0, over(2, 2)) == pytest.approx(0.8)
    assert speed.whole(0, over(4, 1)) == pytest.approx(0.8), "not measured: at most as on fewer"
    assert speed.whole(0, over(2, 3)) == pytest.approx(3.0), "not measured: overestimated"
    assert speeds(learning, 0, 4)[4] == pytest.approx(2.0)
    assert told(learning, 0, over(2, 2), rate=160.0, times=20)
    assert learning.physics.speed.whole(0, over(2, 2)) == pytest.approx(1.6)


def test_a_job_that_only_ever_ran_on_several_nodes_is_believed_as_it_ran() -> None:
    learning = learning_of(ELASTIC)
    told(learning, 0, over(2, 1), rate=100.0)
    told(learning, 0, over(3, 1), rate=120.0)
    assert learning.solo_rate(0) == 100.0
    assert speeds(learning, 0, 3) == [0.0, 1.0, 1.0, 1.2]
    assert learning.physics.rate(0, over(3, 1), ()) == pytest.approx(1.2)


def test_no_placement_is_believed_faster_than_the_top_and_the_worst_is_on_a_node_each() -> None:
    learning = learning_of(ELASTIC)
    told(learning, 0, on(2), rate=100.0)
    told(learning, 0, over(2, 1), rate=150.0)
    assert learning.physics.speed.whole(0, over(2, 1)) <= learning.physics.speed.top(0, 2)
    told(learning, 0, over(2, 1), rate=40.0, times=20)
    assert learning.physics.speed.spread(0) == pytest.approx(0.4)


def test_a_ratio_beside_a_neighbour_is_not_taken_for_the_network() -> None:
    learning = learning_of(Row(2, 100.0, model="a"), Row(2, 100.0, model="b"), xi=1.5)
    told(learning, 0, on(2), rate=100.0)
    told(learning, 0, over(2, 1), rate=50.0)
    told(learning, 0, over(2, 1), (1, over(2, 1)), rate=25.0)
    assert learning.ratio(0, 1, 1, 1) == pytest.approx(2.0)


def test_rates_on_several_nodes_are_stored_with_their_number() -> None:
    learning = learning_of(ELASTIC)
    told(learning, 0, on(4), rate=200.0)
    told(learning, 0, over(2, 2), rate=80.0)
    text = learning.dump()
    assert '["rate","net",0,4,200.0],["rate","net",0,4,80.0,2]' in text
    again = learning_of(ELASTIC, stored=text)
    assert again.physics.speed.whole(0, over(2, 2)) == pytest.approx(0.4)
    assert again.dump() == text


def test_one_odd_reading_moves_nothing_and_small_news_are_none() -> None:
    learning = learning_of(ELASTIC)
    assert not told(learning, 0, on(2), rate=100.0, times=2)
    assert learning.solo_rate(0) == 0.0
    told(learning, 0, on(2), rate=100.0, times=1)
    before = learning.physics
    assert not told(learning, 0, on(2), rate=900.0, times=1)
    assert not told(learning, 0, on(2), rate=100.0 * (1 + NEWS / 2), times=20)
    assert learning.physics is before
    assert learning.solo_rate(0) == 100.0
    assert told(learning, 0, on(4), rate=150.0)
    assert told(learning, 0, on(2), rate=150.0, times=20)
    assert learning.physics is not before
    assert learning.solo_rate(0) == 150.0


def test_what_is_measured_as_it_was_believed_is_no_news_but_is_kept() -> None:
    learning = learning_of(ELASTIC, xi=1.05, trusted=None)
    before = learning.physics
    for gpus in (2, 4, 1):
        assert not told(learning, 0, on(gpus), rate=50.0 * gpus)
    assert learning.physics is before
    assert learning.unsaved
    assert '["rate","net",0,4,200.0]' in learning.dump()
    assert not learning.unsaved


def test_a_trusted_guess_keeps_its_shape() -> None:
    jobs = jobs_of(Row(1, 100.0, model="bert", elastic=True, max_gpus=16))
    prior = placed_physics(jobs, Cluster.uniform(4, 4), shipped())
    learning = Learning(prior, jobs, trusted=("bert",))
    told(learning, 0, on(1), rate=50.0)
    told(learning, 0, on(4), rate=float(prior.speed.rates(4)[0, 4]) * 40.0)
    guess, found = prior.speed.rates(16)[0], learning.physics.speed.rates(16)[0]
    assert found[4] / guess[4] == pytest.approx(0.8)
    assert found[16] / guess[16] == pytest.approx(0.8)
    assert found[2] / guess[2] == pytest.approx(1 - 0.2 / 3)


def test_a_guess_that_a_job_cannot_run_where_it_did_is_no_more_trusted() -> None:
    found = rescale_curve(np.array([0.0, 0.0, 1.0, 1.5]), {1: 10.0, 2: 15.0}, trusted=True)
    assert found.tolist() == [0.0, 10.0, 15.0, 22.5]


def test_jobs_of_one_model_and_batch_learn_from_each_other_and_others_do_not() -> None:
    one = Row(1, 9.0, model="net", batch_size=32)
    rows = [one, one, Row(2, 9.0, model="net", batch_size=32), Row(1, 9.0, model="net")]
    learning = learning_of(*rows, Row(1, 9.0), Row(1, 9.0))
    told(learning, 0, on(1), rate=40.0)
    told(learning, 4, on(1), rate=70.0)
    assert [learning.solo_rate(j) for j in range(6)] == [40.0, 40.0, 80.0, 0.0, 70.0, 0.0]
    learning.forget(4)
    learning.forget(0)
    assert [learning.solo_rate(j) for j in (0, 4)] == [40.0, 0.0]


def test_what_only_a_fixed_job_can_use_is_no_news() -> None:
    fixed, elastic = Row(1, 9.0), Row(1, 9.0, elastic=True, max_gpus=2)
    learning = learning_of(fixed, elastic, Row(1, 9.0, shareable=True))
    assert not told(learning, 0, on(1), rate=70.0)
    assert learning.solo_rate(0) == 70.0, "but its progress goes by it"
    assert not told(learning, 0, on(1), rate=70.0, memory_bytes=9)
    assert not learning.unsaved, "nobody else could use it"
    told(learning, 1, on(1), rate=70.0)
    assert told(learning, 1, on(2), rate=80.0)
    assert told(learning, 2, on(1), rate=70.0, memory_bytes=9)


def test_a_job_spread_over_nodes_teaches_what_it_would_do_well_placed() -> None:
    jobs = jobs_of(Row(2, 100.0, model="vgg19"), Row(2, 100.0, model="vgg19"))
    prior = placed_physics(jobs, Cluster.uniform(2, 4), shipped())
    apart = Placement(((0, 1), (1, 1)))
    slower = prior.rate(0, apart, ())
    assert slower < 0.9
    learning = Learning(prior, jobs)
    told(learning, 0, apart, rate=100.0 * slower)
    assert learning.solo_rate(0) == pytest.approx(100.0)
    assert learning.physics.rate(1, on(2), ()) == pytest.approx(1.0)
    assert learning.physics.rate(1, apart, ()) == pytest.approx(slower)


def test_interference_is_measured_against_the_rate_alone() -> None:
    host, guest = Row(1, 9.0, model="a", shareable=True), Row(1, 9.0, model="b", shareable=True)
    learning = learning_of(host, guest, xi=1.05)
    assert not told(learning, 0, on(1), (1, on(1)), rate=50.0), "alone it was never seen"
    told(learning, 0, on(1), rate=100.0)
    assert told(learning, 0, on(1), (1, on(1)), rate=50.0)
    assert learning.physics.sharing.interference(SizedJob(0, 1), SizedJob(1, 1)) == (2.0, 2.0), (
        "nothing better is known"
    )
    told(learning, 1, on(1), rate=30.0)
    told(learning, 1, on(1), (0, on(1)), rate=20.0)
    assert learning.physics.sharing.interference(SizedJob(0, 1), SizedJob(1, 1)) == (2.0, 1.5)
    assert learning.physics.sharing.interference(SizedJob(1, 1), SizedJob(0, 1)) == (1.5, 2.0)
    assert learning.physics.rate(0, on(1), [(1, on(1))]) == pytest.approx(0.5)
    assert learning.physics.rate(1, on(1), [(0, on(1))]) == pytest.approx(1 / 1.5)
    ours, theirs = learning.physics.sharing.interferences(
        [SizedJob(0), SizedJob(1)], [SizedJob(0), SizedJob(1)]
    )
    assert (ours.tolist(), theirs.tolist()) == (
        [[1.05, 2.0], [1.5, 1.05]],
        [[1.05, 1.5], [2.0, 1.05]],
    )
    limited = on(1, fractions=(0.5,))
    assert not told(learning, 0, limited, (1, on(1)), rate=10.0), "a limit is no interference"


def test_a_trusted_guess_of_interference_stands_where_it_was_not_measured() -> None:
    host, guest = Row(1, 9.0, model="a", shareable=True), Row(1, 9.0, model="b", shareable=True)
    learning = learning_of(host, guest, xi=1.05, trusted=("a", "b"))
    told(learning, 0, on(1), rate=100.0)
    told(learning, 0, on(1), (1, on(1)), rate=50.0)
    assert learning.physics.sharing.interference(SizedJob(0, 1), SizedJob(1, 1)) == (2.0, 1.05)
    assert learning.physics.rate(1, on(1), [(0, on(1))]) == pytest.approx(1 / 1.05)


def test_a_trusted_guess_stands_to_the_last_bit_until_something_else_is_measured() -> None:
    host, guest = Row(1, 9.0, model="a", shareable=True), Row(1, 9.0, model="b", shareable=True)
    learning = learning_of(host, guest, xi=1.05, trusted=None)
    told(learning, 0, on(1), rate=100.0)
    told(learning, 0, on(1), (1, on(1)), rate=100.0 / 1.0501)
    assert learning.ratio(0, 1, 1, 1) == pytest.approx(1.0501)
    assert learning.physics.sharing.interference(SizedJob(0, 1), SizedJob(1, 1)) == (1.05, 1.05)


def test_other_accumulation_steps_are_believed_to_be_as_bad_as_the_nearest_measured() -> None:
    learning = learning_of(Row(1, 9.0, model="a"), Row(1, 9.0, model="b"), xi=1.05)
    told(learning, 0, on(1), rate=100.0)
    told(learning, 0, on(1), (1, on(1)), rate=50.0)
    told(learning, 0, on(1), (1, on(1, accumulation_steps=8)), rate=80.0)
    ratio = [
        learning.physics.sharing.interference(SizedJob(0, 1), SizedJob(1, s))[0]
        for s in (1, 2, 4, 8, 16)
    ]
    assert ratio == [2.0, 2.0, 1.25, 1.25, 1.25]


def test_what_a_worker_holds_is_never_believed_to_be_less_than_measured() -> None:
    learning = learning_of(Row(2, 9.0, model="a", batch_size=64))
    assert learning.physics.memory.footprint_bytes(0, 1) == 0.0
    told(learning, 0, on(2), rate=1.0, memory_bytes=800, times=1)
    told(learning, 0, on(2, accumulation_steps=2), rate=1.0, memory_bytes=500, times=1)
    believed = learning.physics
    assert [believed.memory.footprint_bytes(0, s) for s in (1, 2, 4)] == [800, 500, 500]
    assert [believed.memory.held_bytes(0, on(n)) for n in (1, 2, 3, 4)] == [1600, 800, 800, 500]
    assert believed.memory.held_bytes(0, on(2, samples=(16, 48))) == 1600
    assert believed.memory.fixed_bytes(0) == 500
    assert believed.memory.fits([(0, on(2))], 800)
    assert not believed.memory.fits([(0, on(2))], 799)


def fits(learning: Learning, *occupants: tuple[int, Placement], of: float = 16.0) -> bool:
    return learning.physics.memory.fits(occupants, of * GIB)


def held(learning: Learning, job: int, placement: Placement, memory: float) -> None:
    told(learning, job, placement, rate=10.0, memory_bytes=int(memory * GIB))


PAIR = Row(1, 100.0, model="a", shareable=True), Row(1, 100.0, model="b", shareable=True)
THREE = *PAIR, Row(1, 100.0, model="c", shareable=True)


def test_who_ran_out_of_memory_beside_another_does_not_fit_beside_who_holds_as_much() -> None:
    learning = learning_of(*THREE)
    held(learning, 0, on(1), 4.0)
    held(learning, 1, on(1), 6.0)
    held(learning, 2, on(1), 5.0)
    believed = learning.physics
    assert fits(learning, (0, on(1)), (1, on(1)))
    assert learning.ran_out(0, on(1), [(1, on(1))], 16 * GIB)
    assert learning.physics is not believed and learning.unsaved, "plans must be made anew"
    assert not fits(learning, (0, on(1)), (1, on(1)))
    assert fits(learning, (0, on(1)), (2, on(1))), "that one leaves it more than it had"
    assert fits(learning, (0, on(1))), "alone it was never short"
    assert fits(learning, (0, on(1)), (1, on(1)), of=20.0), "where there is more it may"
    smaller = on(1, accumulation_steps=2)
    assert fits(learning, (0, smaller), (1, on(1))), "cut smaller it was never short"
    assert learning.physics.memory.footprint_bytes(0, 1) == 10 * GIB + 1
    assert learning.physics.memory.footprint_bytes(1, 1) == 6 * GIB, "it was not short of anything"


def test_what_is_too_little_for_small_parts_of_a_batch_is_too_little_for_larger_ones() -> None:
    learning = learning_of(*PAIR)
    held(learning, 1, on(1), 6.0)
    cut = on(1, accumulation_steps=4)
    assert learning.ran_out(0, cut, [(1, on(1))], 16 * GIB)
    for steps, fit in ((1, False), (2, False), (4, False), (8, True)):
        there = on(1, accumulation_steps=steps)
        assert fits(learning, (0, there), (1, on(1))) is fit
    held(learning, 0, on(1), 3.0)
    assert not fits(learning, (0, on(1)), (1, on(1))), "it was measured, and it was too little"


@pytest.mark.parametrize("short", [0, 1])
def test_two_of_whom_nothing_is_known_each_need_half_when_one_finds_no_room(short: int) -> None:
    learning = learning_of(*THREE)
    assert learning.ran_out(short, on(1), [(1 - short, on(1))], 16 * GIB)
    assert not fits(learning, (0, on(1)), (1, on(1)))
    assert all(fits(learning, (job, on(1)), (2, on(1))) for job in (0, 1))


def test_who_takes_turns_is_believed_not_to_fit_by_what_never_takes_turns() -> None:
    learning = learning_of(*PAIR)
    held(learning, 0, on(1), 4.0)
    held(learning, 1, on(1), 6.0)
    first, second = (on(1, interleave=Interleave(0, phase)) for phase in (0, 1))
    assert fits(learning, (0, first), (1, second), of=12.0)
    assert learning.ran_out(0, first, [(1, second)], 12 * GIB)
    assert not fits(learning, (0, first), (1, second), of=12.0)


def test_who_ran_out_of_memory_is_known_after_a_restart_if_its_model_has_a_name() -> None:
    learning = learning_of(*PAIR, Row(1, 100.0, shareable=True))
    learning.ran_out(0, on(1), [(1, on(1))], 16 * GIB)
    said = learning.dump()
    again = learning_of(*PAIR, stored=said)
    assert not fits(again, (0, on(1)), (1, on(1))) and again.dump() == said
    learning.ran_out(2, on(1), [(1, on(1))], 16 * GIB)
    assert learning.dump() == said, "that one has no like"
    learning.forget(2)
    assert fits(learning, (2, on(1)), (1, on(1)))


def test_stages_and_batch_come_from_reports() -> None:
    learning = learning_of(Row(1, 9.0, model="a"), Row(2, 9.0, model="a"))
    told(learning, 0, on(1), rate=8.0, batch=16, iteration_s=2.0, stage_s=(0.5, 0.0, 1.0, 0.1))
    believed = learning.physics
    table = believed.sharing.interleaving
    assert table.stage_s[believed.kind_of[0]].tolist() == [0.5, 0.0, 1.0, 0.1]
    assert table.iteration_s[believed.kind_of[0]] == 2.0
    assert table.iteration_s[believed.kind_of[1]] == 0.0, "on two GPUs nobody looked"
    assert believed.sharing.utilization(0) == 0.5
    assert (believed.batches.samples(1), believed.batches.most_steps(1)) == (16, 8)


def test_what_was_learned_of_models_survives_a_restart() -> None:
    rows = [Row(1, 9.0, model="a", batch_size=4), Row(1, 9.0, model="b"), Row(1, 9.0)]
    first = learning_of(*rows, xi=1.05)
    for job in range(3):
        told(first, job, on(1), rate=10.0 + job, memory_bytes=5, batch=7)
    told(first, 0, on(1), (1, on(1)), rate=5.0, iteration_s=1.0)
    told(first, 1, on(1), rate=11.0, iteration_s=2.0, stage_s=(0.0, 0.0, 1.5, 0.0))
    again = learning_of(*rows, xi=1.05, stored=first.dump())
    assert [again.solo_rate(j) for j in range(3)] == [10.0, 11.0, 0.0]
    for ask in (
        lambda p: p.sharing.interference(SizedJob(0, 1), SizedJob(1, 1)),
        lambda p: p.sharing.interleaving.stage_s.tolist(),
        lambda p: [p.memory.footprint_bytes(j, 1) for j in range(2)],
        lambda p: [p.batches.samples(j) for j in range(2)],
    ):
        assert ask(again.physics) == ask(first.physics)
    assert again.dump() == first.dump()


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format":2,"rows":[]}', '{"format":1,"rows":[["x","a",0,1,2]]}']
)
def test_what_was_learned_is_refused_when_it_cannot_be_read(text: str) -> None:
    with pytest.raises(InputError, match="what was measured"):
        Measurements.load(text)


def grown(jobs: JobTable, more: Sequence[Row]) -> None:
    last = jobs_of(*more)
    jobs.append([last.job(i) for i in range(len(last))])


def test_jobs_that_come_later_profit_from_what_was_measured() -> None:
    jobs = jobs_of(Row(1, 9.0, model="a"), Row(1, 9.0))
    learning = Learning(linear_physics(jobs), jobs)
    before = learning.physics.speed.rates(2)
    told(learning, 0, on(1), rate=10.0)
    told(learning, 0, on(2), rate=12.0)
    physics = learning.physics
    first = physics.speed.rates(2)
    grown(jobs, [Row(1, 9.0, model="a"), Row(2, 9.0, model="a"), Row(1, 9.0)])
    physics.structure.admit(jobs)
    assert physics.kind_of.tolist()[:3] == [0, 1, 0]
    assert physics.speed.rates(2) is physics.speed.rates(2)
    assert physics.speed.rates(2)[: len(first)].tolist() == first.tolist()
    assert [round(x, 4) for x in physics.speed.rates(2)[physics.kind_of[3]]] == [0.0, 0.8333, 1.0]
    assert before.tolist() == [[0.0, 1.0, 2.0]] * 2, "an older belief stays as it was"


@st.composite
def concave(draw: st.DrawFn) -> list[float]:
    """Draws a throughput by GPUs that grows ever less and never falls; 0 on none."""
    gains = draw(st.lists(st.floats(0.01, 10.0), min_size=8, max_size=8))
    return [0.0, *np.cumsum(sorted(gains, reverse=True)).tolist()]


@settings(max_examples=100, deadline=None)
@given(concave(), st.sets(st.integers(1, 8), min_size=1))
def test_no_number_of_gpus_is_underestimated_and_measured_ones_are_exact(
    truth: list[float], measured: set[int]
) -> None:
    found = rescale_curve(np.arange(9.0), {n: truth[n] for n in measured}, trusted=False)
    assert all(found[n] >= truth[n] * (1 - 1e-9) for n in range(9))
    assert all(found[n] == truth[n] for n in measured)
    assert all(b >= a * (1 - 1e-9) for a, b in pairwise(found.tolist()))


@settings(max_examples=60, deadline=None)
@given(concave(), st.integers(1, 8), st.permutations(range(1, 9)))
def test_with_exact_reports_it_converges_to_the_truth(
    truth: list[float], requested: int, order: list[int]
) -> None:
    learning = learning_of(Row(requested, 9.0, model="net", elastic=True, min_gpus=1, max_gpus=8))
    for gpus in order:
        told(learning, 0, on(gpus), rate=truth[gpus])
    row = learning.physics.speed.rates(8)[0]
    assert np.allclose(row, np.array(truth) / truth[requested], rtol=2 * SAME)
    assert learning.solo_rate(0) == truth[requested]


def test_keys_tell_models_from_jobs_that_only_know_themselves() -> None:
    jobs = JobTable.build(["7"], np.zeros(1), np.ones(1, np.int64))
    learning = Learning(linear_physics(jobs), jobs)
    jobs.append(
        [
            JobRequest("8", 0.0, 1, 1, 1, model="7"),
            JobRequest("9", 0.0, 1, 1, 1, recurrence="daily"),
        ]
    )
    learning.physics.structure.admit(jobs)
    for job in range(3):
        told(learning, job, on(1), rate=1.0 + job)
    assert learning.measurements.rated() == [
        MeasurementKey("7"),
        MeasurementKey("7", own=True),
        MeasurementKey("~daily"),
    ]

"""What the market of GPUs is made of: values, costs of changes, the pace of events, pairs."""

from dataclasses import dataclass

import numpy as np
import pytest

from builders import Row, Stage, trace_of
from dovetail.core.beliefs import SizedJob
from dovetail.core.cluster import GIB, Cluster, NodeGroup
from dovetail.core.view import Changes
from dovetail.mechanisms.elastic.budget import pool_of
from dovetail.mechanisms.elastic.shares import contenders
from dovetail.mechanisms.pricing.costs import costs_of
from dovetail.mechanisms.pricing.pace import NO_PACE
from dovetail.mechanisms.pricing.pair_rates import OTHER_WAY, STEPS, PairRates
from dovetail.mechanisms.pricing.pairs import Candidates, matched, values_of_pairs
from dovetail.mechanisms.pricing.values import at_held, one_ahead, urgency, with_hysteresis
from dovetail.physics.placed import placed_physics
from dovetail.physics.zoo.models import shipped

NO = -np.inf


def test_a_job_that_runs_loses_by_growing_and_by_being_stopped() -> None:
    values = np.array([[0, 4.0, 6.0, 7.0], [0, 5.0, NO, NO], [0, NO, 3.0, 4.0]])
    held = np.array([1, 0, 2])
    grow, saved = np.array([0.5, 0.5, 1.0]), np.array([0.8, 0.0, 0.0])
    priced = with_hysteresis(values, held, grow=grow, saved=saved)
    # Job 0: half of what two or three GPUs gain is lost; one that keeps any saves 0.8.
    assert priced[0].tolist() == pytest.approx([0, 4.8, 5.8, 6.3])
    assert priced[1].tolist() == [0, 5, NO, NO]  # waits: nothing to lose
    assert priced[2].tolist() == [0, NO, 3, 3]  # growing takes longer than the GPUs would help
    assert values[0, 1] == 4  # the values that were given are as before


def test_what_a_job_makes_of_gpus_that_it_cannot_use_is_nothing() -> None:
    values = np.array([[0, NO, 3.0], [0, 1.0, 2.0]])
    assert at_held(values, np.array([1, 9])).tolist() == [0, 2]


def test_one_gpu_ahead_nothing_behind_a_gpu_that_adds_nothing_is_seen() -> None:
    speeds = np.array([[0, 1.0, 1.0, 4.0], [0, NO, 2.0, 2.5], [0, 1.0, 1.5, 3.0]])
    seen = one_ahead(speeds, np.array([1, 2, 1]))
    assert seen.tolist() == [[0, 1, 1, 1], [0, NO, 2, 2.5], [0, 1, 1.5, 2]]


def test_a_deadline_counts_the_more_the_less_time_it_leaves_and_nothing_once_it_is_lost() -> None:
    to_deadline_s = np.array([np.inf, 200.0, 100.0, 99.0, -5.0])
    factors = urgency(np.full(5, 100.0), to_deadline_s, weight=3.0)
    assert factors.tolist() == pytest.approx([1, 1.75, 4, 1, 1])


def test_a_change_costs_what_the_switching_of_the_run_or_the_restart_of_the_job_does() -> None:
    elastic = Row(1, 100, elastic=True, min_gpus=1, max_gpus=4)
    rows = elastic, Row(1, 100), Row(1, 100, elastic=True, min_gpus=1, max_gpus=4, restart_s=70)
    stage = Stage(rows, "dovetail:share=false", "1x4", switching="restart:30,prepared:10")
    costs = costs_of(stage.view, contenders(stage.view, pool_of(stage.view)))
    assert costs.stop_s.tolist() == [30, 30, 70]
    assert costs.grow_s.tolist() == [0, 0, 70]  # none runs that could tell how long it takes
    stage.run_jobs((0, ((0, 1),)))
    costs = costs_of(stage.view, contenders(stage.view, pool_of(stage.view)))
    assert costs.grow_s.tolist() == pytest.approx([10.004, 10.004, 70])


@dataclass(frozen=True)
class Moment:
    """A view of which only the time and the changes are looked at."""

    now: float
    changes: Changes


def test_the_pace_is_the_mean_gap_between_events_the_latest_ones_most() -> None:
    pace, happened = NO_PACE, Changes(arrived=(0,))
    for now in (100.0, 110.0, 130.0):
        pace = pace.at(Moment(now, happened))  # type: ignore[arg-type]
    assert pace.gap_s == pytest.approx(15)
    assert pace.at(Moment(500.0, Changes())) is pace  # type: ignore[arg-type]
    for now in np.arange(131.0, 231.0):
        pace = pace.at(Moment(float(now), happened))  # type: ignore[arg-type]
    assert pace.gap_s == pytest.approx(1, abs=0.2)


MODELS = ("bert", "cifar10", "imagenet", "ncf", "yolov3")
MEMORY_BYTES = 11 * GIB


def tables() -> PairRates:
    trace = trace_of(*(Row(1 + i % 2, 100, model=m, shareable=True) for i, m in enumerate(MODELS)))
    cluster = Cluster((NodeGroup("all", 2, 4, gpu_memory_bytes=MEMORY_BYTES),))
    physics = placed_physics(trace.jobs, cluster, shipped())
    made = PairRates(physics, MEMORY_BYTES, 8)
    made.rows([0, 1], [0, 1])  # some first, the others later: as jobs arrive
    made.rows([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    return made


def test_tables_hold_the_rates_of_pairs_that_fit_the_memory() -> None:
    made = tables()
    fitted = 0
    for variant, (mine, theirs) in enumerate(STEPS):
        for at, gpus in enumerate(made.counts.tolist()):
            sides = [SizedJob(job, mine, gpus) for job in range(len(MODELS))]
            others = [SizedJob(job, theirs, gpus) for job in range(len(MODELS))]
            one, two = made.physics.pair_rates(sides, others)
            rates = made.rates[:, :, at, variant]
            fits = rates > 0
            assert rates[fits] == pytest.approx(one[fits])
            back = made.rates[:, :, at, OTHER_WAY[variant]].T
            assert back[fits] == pytest.approx(two[fits])
            fitted += int(fits.sum())
    assert 0 < fitted < made.rates.size, "some pairs fit 11 GiB, and some do not"


def candidates(weights: list[float], **more: object) -> Candidates:
    n = len(weights)
    plain = {
        "rows": np.arange(n),
        "kinds": np.arange(n),
        "low": np.ones(n, np.int64),
        "cap": np.full(n, 4),
        "weights": np.array(weights),
        "now": np.zeros(n),
        "held": np.zeros(n, np.int64),
        "partner": np.full(n, -1),
        "wish": np.zeros(n, np.int64),
        "keeps": np.ones(n, bool),
        "stop": np.zeros(n),
        "grow": np.zeros(n),
    }
    return Candidates(**{**plain, **more})  # type: ignore[arg-type]


def test_a_pair_is_worth_what_both_make_with_the_best_steps() -> None:
    made = tables()
    found = values_of_pairs(made, candidates([1.0, 2.0, 3.0, 4.0, 5.0]))
    rates = made.rates
    for i in range(5):
        for j in range(i + 1, 5):
            for at, gpus in enumerate(made.counts.tolist()):
                ways = [
                    (i + 1) * rates[i, j, at, v] + (j + 1) * rates[j, i, at, OTHER_WAY[v]]
                    for v in range(len(STEPS))
                    if rates[i, j, at, v] > 0 and gpus <= 4
                ]
                assert found.values[i, j, at] == pytest.approx(max(ways, default=NO))


def test_pairs_with_other_ranges_or_wishes_are_worth_nothing_unless_they_share() -> None:
    made = tables()
    apart = candidates([1.0, 1.0], low=np.array([1, 3]), cap=np.array([2, 4]))
    assert (values_of_pairs(made, apart).values[0, 1] == NO).all()
    wishes = np.array([0, 1])
    assert (values_of_pairs(made, candidates([1.0, 1.0], wish=wishes)).values[0, 1] == NO).all()
    together = candidates([1.0, 1.0], wish=wishes, partner=np.array([1, 0]))
    assert np.isfinite(values_of_pairs(made, together).values[0, 1]).any()


def test_a_pair_that_shares_already_saves_what_parting_costs() -> None:
    made = tables()
    stop, now = np.array([0.25, 0.5]), np.array([2.0, 1.0])
    fresh = values_of_pairs(made, candidates([1.0, 1.0])).values[0, 1]
    held = np.array([1, 1])
    kept = candidates([1.0, 1.0], now=now, held=held, stop=stop, partner=np.array([1, 0]))
    usable = np.isfinite(fresh)
    saved = values_of_pairs(made, kept).values[0, 1]
    assert saved[usable] == pytest.approx(fresh[usable] + 0.25 * 2.0 + 0.5 * 1.0)


def test_pairs_are_matched_by_the_largest_gain() -> None:
    counts = np.array([1, 2])
    pairs = np.full((4, 4, 2), NO)
    pairs[0, 1] = [6.0, NO]  # gains 6 - 1 - 4 = 1
    pairs[1, 2] = [NO, 10.0]  # 10 - 2 - 4 = 4: first, and then neither 0-1 nor 2-3 is left
    pairs[2, 3] = [7.0, NO]  # 3
    pairs[0, 3] = [4.5, NO]  # 0.5 of 3.5
    nobody = np.full(4, -1)
    found = matched(pairs, counts, np.array([2.0, 2, 2, 1]), 1.0, nobody)
    assert found == [(1, 2), (0, 3)]
    # At a price of 5 no pair is worth more than its jobs apart.
    assert matched(pairs, counts, np.array([2.0, 2, 2, 1]), 5.0, nobody) == []


def test_a_new_pair_must_gain_more_than_a_little() -> None:
    pairs = np.full((2, 2, 1), NO)
    pairs[0, 1, 0] = 4.05
    counts, apart = np.array([1]), np.array([2.0, 2.0])
    assert matched(pairs, counts, apart, 0.0, np.array([-1, -1])) == []
    assert matched(pairs, counts, apart, 0.0, np.array([1, 0])) == [(0, 1)]

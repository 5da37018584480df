"""Themis by hand: finish-time fairness, auction, lease and left-over GPUs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, Stage, play, policy_of
from curved_physics import curved_physics
from dovetail.core.messages import Started, Stopped
from dovetail.core.view import show
from dovetail.mechanisms.elastic.finish_time import Ledger, standing

FLEX = {"elastic": True, "min_gpus": 1, "max_gpus": 4}
X, Y, Z = (1, 1.7, 2.2, 2.5), (1, 1.9, 2.7, 3.4), (1, 1.5, 1.8, 2.0)


def flex(duration_s: float, submit_s: float = 0.0) -> Row:
    return Row(1, duration_s, submit_s=submit_s, **FLEX)  # type: ignore[arg-type]


def shares_of(stage: Stage) -> dict[int, int]:
    decision = stage.policy.decide(stage.view, stage.policy.initial)
    assert decision.draft is not None
    return {job: placement.gpus for job, placement in sorted(decision.draft.placed.items())}


def ledger_of(*steps: tuple[float, list[int]]) -> Ledger:
    """Returns the ledger after these jobs were present from these times on."""
    ledger = Ledger()
    for now_s, jobs in steps:
        ledger = ledger.carried_to(now_s, np.array(jobs, np.int64))
    return ledger


def test_the_crowd_is_averaged_over_the_life_of_each_job() -> None:
    # Two jobs for 10 s, then four for 10 s, of which 1 ends; three for 20 s.
    ledger = ledger_of((100, [0, 1]), (110, [0, 1, 2, 3]), (120, [0, 2, 3]), (140, [0, 2, 3, 4]))
    submit_s = np.array([100.0, 110.0, 110.0, 140.0])
    # 0: (2*10 + 4*10 + 3*20) / 40 = 3; 2 and 3: (4*10 + 3*20) / 30 = 10/3; 4: as it finds it.
    assert ledger.crowd(submit_s).tolist() == pytest.approx([3, 10 / 3, 10 / 3, 4])


def test_rho_is_the_end_here_over_the_end_on_a_share_of_ones_own() -> None:
    # 4 GPUs, two jobs: fair shares of 2, speeds 1.7 and 1.9; lengths 17 and 38 s of one GPU:
    # ideal 10 and 20 s. At 5 s nothing is done; on one GPU rho = 22/10 and 43/20, on four (5 +
    # 17/2.5)/10 and (5 + 38/3.4)/20.
    stage = Stage([flex(17), flex(38)], "themis", "1x4").at(5)
    show(stage.view, physics=curved_physics(stage.trace.jobs, (X, Y)))
    stand = standing(stage.view, ledger_of((0, [0, 1]), (5, [0, 1])))
    assert stand.ideal_s.tolist() == pytest.approx([10, 20])
    assert stand.rho(np.array([1.0, 1.0])).tolist() == pytest.approx([2.2, 2.15])
    assert stand.rho(np.array([2.5, 3.4])).tolist() == pytest.approx([1.18, 0.80882], rel=1e-4)


@pytest.mark.parametrize(
    ("gpus", "jobs", "speed"),
    [
        (1, 2, 0.5),  # half of one GPU's time
        (3, 2, 1.35),  # a GPU and a half: between 1 and 1.7
        (6, 2, 2.2),
        (64, 2, 2.5),  # no more than its most
    ],
)
def test_a_fair_share_need_not_be_whole(gpus: int, jobs: int, speed: float) -> None:
    stage = Stage([flex(10)] * jobs, "themis", f"1x{gpus}")
    show(stage.view, physics=curved_physics(stage.trace.jobs, (X,) * jobs))
    stand = standing(stage.view, ledger_of((0, list(range(jobs)))))
    assert stand.fair_speed.tolist() == pytest.approx([speed] * jobs)


@pytest.mark.parametrize(
    ("gpus", "shares"),
    [
        (2, {0: 1, 1: 1}),
        (3, {0: 1, 1: 1, 2: 1}),
        (4, {0: 1, 1: 2, 2: 1}),
        (5, {0: 2, 1: 2, 2: 1}),
        (6, {0: 2, 1: 2, 2: 2}),
        (7, {0: 2, 1: 3, 2: 2}),
        (8, {0: 3, 1: 3, 2: 2}),
    ],
)
def test_the_auction_maximises_the_product_of_the_inverse_rhos(
    gpus: int, shares: dict[int, int]
) -> None:
    # All bid (f = 0) and have just come, so rho falls by the ratio of speeds, whatever the length:
    # X 1.7, 1.29, 1.14; Y 1.9, 1.42, 1.26; Z 1.5, 1.2, 1.11. In order: Y, X, Z, Y, X.
    stage = Stage([flex(6), flex(12), flex(40)], "themis:f=0", f"1x{gpus}")
    show(stage.view, physics=curved_physics(stage.trace.jobs, (X, Y, Z)))
    assert shares_of(stage) == shares


def test_time_already_lost_makes_a_bid_smaller() -> None:
    # Both scale alike. At 30 s, 3 GPUs: job 0 has 10 s left after 30: 40 to 35 by a second GPU
    # (x 0.875); job 1, just come, halves its 100 s: it gets the third GPU.
    stage = Stage([flex(10), replace(flex(100), submit_s=30)], "themis:f=0", "1x3").at(30)
    ledger = ledger_of((0, [0]))
    decision = stage.policy.decide(stage.view, ledger)
    assert decision.draft is not None
    assert {j: p.gpus for j, p in decision.draft.placed.items()} == {0: 1, 1: 2}


def test_only_the_fraction_that_stands_worst_is_offered_gpus() -> None:
    # Ten jobs, f = 0.8: two bid, those that have waited longest for their length. One GPU.
    rows = [Row(1, 100.0 - 9 * i) for i in range(10)]
    stage = Stage(rows, "themis", "1x1").at(50)
    decision = stage.policy.decide(stage.view, ledger_of((0, list(range(10)))))
    assert decision.draft is not None
    # rho = (50 + 10 length) / (10 length) is largest for the shortest.
    assert list(decision.draft.placed) == [9]


def test_leases_take_turns_by_who_is_behind() -> None:
    # One GPU, two jobs of 100 s, fair speed 1/2, ideal 200 s. At 10 s job 0 stands at (10 +
    # 180)/200 = .95, job 1 at 1.05; at 20 s both at 1 and the earlier has it. So ten turns each.
    story = play([Row(1, 100), Row(1, 100)], "themis:lease=10", "1x1")
    assert story.finishes == [190, 200]
    assert story.stops(0) == [(10.0 + 20 * i, "preempted") for i in range(9)]


def test_a_lease_is_never_shorter_than_two_switches() -> None:
    # Switches of 30 s, lease 10: turns of 60 s, of which 30 are work. Job 0 works 30 to 60 s, job
    # 1 90 to 120, job 0 its last ten 150 to 160, and job 1, at once, 190 to 200.
    rows = [Row(1, 40), Row(1, 40)]
    story = play(rows, "themis:lease=10", "1x1", switching="per-start:30")
    assert story.stops(0) == [(60.0, "preempted")]
    assert story.finishes == [160, 200]


def test_nobody_gives_gpus_back_before_the_lease_ends() -> None:
    rows = [flex(40), flex(8, 2)]
    assert play(rows, "themis", "1x4").finishes == [10, 12]
    # With a lease of 4 s job 1 has waited for 2 when the GPUs are offered at 4 s. Job 0 has 24 s
    # left. One bids (f = 0.8): who stands worse. Fair shares: job 0 4/1.5 = 2.67 (15 s), job 1 4/2
    # = 2 (4 s): rho .87 and 1.5. Job 1 takes all four, to 6 s; job 0 has them again: to 12 s.
    assert play(rows, "themis:lease=4", "1x4").finishes == pytest.approx([12, 6])


def test_what_is_left_goes_to_others_by_lot() -> None:
    # Ten jobs alike on three GPUs: jobs 0 and 1 bid and win; the third GPU is drawn for.
    drawn = []
    for seed in range(40):
        shares = shares_of(Stage([Row(1, 10)] * 10, f"themis:seed={seed}", "1x3"))
        assert len(shares) == 3 and 0 in shares and 1 in shares
        drawn.append(max(shares))
    assert set(drawn) == set(range(2, 10))
    again = shares_of(Stage([Row(1, 10)] * 10, "themis:seed=7", "1x3"))
    assert max(again) == drawn[7]


def test_no_lot_is_given_to_a_job_that_would_not_gain() -> None:
    for seed in range(5):
        stage = Stage([flex(9)] * 2, f"themis:seed={seed}", "1x8")
        show(stage.view, physics=curved_physics(stage.trace.jobs, ((1, 1, 1, 1), (1, 2, 2, 2))))
        assert shares_of(stage) == {0: 1, 1: 2}


def test_a_job_under_lease_grows_and_gives_all_back_when_it_ends() -> None:
    # 4 GPUs, lease 10. Job 0 (2, not elastic, 3 s) and job 1 start at 0; from 3 s on job 1 has
    # four, under the lease it had: at 10 s all are offered again, and job 2 (from 9 s) stands
    # worst.
    rows = [Row(2, 3), flex(100), Row(4, 5, submit_s=9)]
    story = play(rows, "themis:lease=10", "1x4")
    assert story.starts(1)[:2] == [(0.0, "start"), (3.0, "resize")]
    assert story.starts(2) == [(10.0, "start")]
    assert story.stops(1) == [(10.0, "preempted")]


def test_parameters_out_of_range_are_refused() -> None:
    for text in ("f=1", "f=-0.1", "lease=0", "lease=1e-9", "lease=inf"):
        with pytest.raises(Exception, match="themis"):
            policy_of(f"themis:{text}")


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 3),
    f=st.sampled_from([0.0, 0.5, 0.8]),
    lease_s=st.sampled_from([3.0, 10.0]),
    lengths=st.lists(st.integers(1, 30), min_size=2, max_size=12),
)
def test_a_lease_is_kept_whatever_comes(
    seed: int, f: float, lease_s: float, lengths: list[int]
) -> None:
    rows = [
        flex(float(s), float(i)) if s % 2 else Row(1 + s % 3, float(s), submit_s=float(i))
        for i, s in enumerate(lengths)
    ]
    story = play(rows, f"themis:f={f},lease={lease_s:g},seed={seed}", "2x2")
    begun: dict[int, float] = {}
    held: dict[int, int] = {}
    for fact in story.facts:
        if isinstance(fact, Started):
            if fact.how in ("start", "resume"):
                begun[fact.job] = fact.t
            elif fact.t < begun[fact.job] + lease_s:
                assert fact.placement.gpus >= held[fact.job]
            if fact.t >= begun[fact.job] + lease_s:
                begun[fact.job] += lease_s * ((fact.t - begun[fact.job]) // lease_s)
            held[fact.job] = fact.placement.gpus
        elif isinstance(fact, Stopped):
            assert fact.t >= begun[fact.job] + lease_s - 1e-9

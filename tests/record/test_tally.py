"""The fold from facts to sums, by hand; the property tests reckon the same sums slowly."""

from types import SimpleNamespace

import pytest

from builders import Row, play, play_scene, scene_of, tally_of, trace_of
from dovetail.core.messages import (
    Ended,
    Measured,
    NodeChanged,
    Started,
    Stopped,
    Submitted,
    Withdrawn,
)
from dovetail.core.placement import Placement
from dovetail.record.metrics import gpu_seconds, series_frame
from dovetail.record.tally import Tally


def points_of(tally: Tally) -> list[SimpleNamespace]:
    return [SimpleNamespace(**row) for row in series_frame(tally).to_dicts()]


def test_queue_length_and_blocking_index_by_hand() -> None:
    # 1 GPU. Job 0 runs 0-4. Job 1 (2 s of work) waits 1-4, job 2 (4 s) waits 2-6.
    rows = [Row(1, 4), Row(1, 2, submit_s=1), Row(1, 4, submit_s=2)]
    sums = play(rows, "fifo", "1x1").tally.integrals
    assert sums["waiting"] == 3 + 4
    # 1-2: job 1 alone, (t-1)/2: 1/4. 2-4: mean of (t-1)/2 and (t-2)/4: (2 + 0.5)/2 = 1.25.
    # 4-6: job 2 alone, (t-2)/4: 1.5.
    assert sums["blocking"] == pytest.approx(0.25 + 1.25 + 1.5)


def test_blocking_counts_the_remaining_work_on_one_gpu_since_the_last_pending() -> None:
    # Job 0 (2 GPUs, 10 s) is stopped at 4 s by job 1 (2 GPUs, 3 s): 6 s x 2 GPUs are left.
    rows = [Row(2, 10), Row(2, 3, submit_s=4)]
    sums = play(rows, "srtf", "1x2").tally.integrals
    assert sums["waiting"] == 3
    assert sums["blocking"] == pytest.approx(3 * 3 / 2 / 12)


def test_every_gpu_second_has_its_place() -> None:
    # 2 nodes of 2. Node 1 is down 6-9. Jobs: 0 (2 GPUs, 4 s), 1 (4 GPUs, 3 s at 1 s) waits for
    # all, starts at 4, loses node 1 at 6, resumes at 9 with 2 s of switching, ends at 12.
    rows = [Row(2, 4), Row(4, 3, submit_s=1)]
    story = play(
        rows, "fifo", "2x2", switching="restart:2",
        capacity=[(6.0, [(1, "down")]), (9.0, [(1, "up")])],
    )  # fmt: skip
    assert story.finishes == [4, 12]
    assert gpu_seconds(story.tally) == {
        "useful": 4 * 2 + 3 * 4,
        "slowdown": 0,
        "switching": 2 * 4,
        "idle_waiting": 3 * 2 + 3 * 2,
        "idle_empty": 1 * 2,
        "down": 3 * 2,
    }


def test_gpu_seconds_sum_to_what_is_installed() -> None:
    rows = [Row(1 + i % 4, 3.5 + i % 7, submit_s=0.5 * i) for i in range(40)]
    for policy in ("srtf", "tiresias:thresholds=9", "max-min", "backfill"):
        story = play(rows, policy, "2x4", switching="restart:2")
        span_s = max(story.finishes) - rows[0].submit_s
        assert sum(gpu_seconds(story.tally).values()) == pytest.approx(8 * span_s)


def test_the_state_over_time_is_a_step_function() -> None:
    story = play([Row(1, 4), Row(1, 2, submit_s=1)], "fifo", "1x1")
    points = [(p.t_s, p.waiting, p.running, p.held_gpus) for p in points_of(story.tally)]
    assert points == [(0, 0, 1, 1), (1, 1, 1, 1), (4, 0, 1, 1), (6, 0, 0, 0)]
    assert [p.cluster_efficiency for p in points_of(story.tally)] == [1, 1, 1, 0]
    assert [p.blocking_index for p in points_of(story.tally)] == [0, 0, 0, 0]


def test_efficiency_is_zero_while_a_job_switches() -> None:
    story = play([Row(1, 4)], "fifo", "1x1", switching="per-start:3")
    assert [(p.t_s, p.cluster_efficiency) for p in points_of(story.tally)] == [
        (0, 0),
        (3, 1),
        (7, 0),
    ]
    assert story.tally.integrals_efficiency == pytest.approx(4)


def test_stays_are_kept_with_their_progress() -> None:
    story = play([Row(1, 9), Row(1, 2, submit_s=3)], "srtf", "1x1", switching="restart:1")
    segments = [(s.job, s.start_s, s.from_s, s.end_s, s.progress_s) for s in story.tally.segments]
    assert segments == [(0, 0, 0, 3, 3), (1, 3, 3, 5, 2), (0, 5, 6, 12, 6)]


def test_a_job_stopped_in_the_instant_it_started_leaves_no_trace_in_the_sums() -> None:
    tally = tally_of(scene_of(trace_of(Row(1, 4)), "1x1"))
    tally.record([Submitted(0.0, 0, 4.0)])
    tally.record([Started(0.0, 0, "start", Placement(((0, 1),)), 1.0, 0.0)])
    tally.record([Ended(0.0, 0, "cancelled")])
    assert tally.service_gpu_s == [0]
    assert tally.integrals["held"] == 0


def test_a_move_is_counted_and_a_resumption_is_not_one() -> None:
    placed = Placement(((0, 1),))
    tally = tally_of(scene_of(trace_of(Row(1, 9)), "2x1"))
    tally.record([Submitted(0.0, 0, 9.0)])
    tally.record([Started(0.0, 0, "start", placed, 1.0, 0.0)])
    tally.record([Started(2.0, 0, "move", Placement(((1, 1),)), 1.0, 3.0)])
    tally.record([Ended(10.0, 0, "completed")])
    assert (tally.moves, tally.preemptions, tally.resizes) == (1, [0], [0])
    assert tally.done_s == [9]
    assert tally.integrals["held"] == 10


def test_capacity_follows_the_nodes() -> None:
    tally = tally_of(scene_of(trace_of(Row(1, 9)), "2x2"))
    tally.record([Submitted(0.0, 0, 9.0)])
    tally.record([NodeChanged(1.0, 0, "down")])
    tally.record([NodeChanged(3.0, 0, "up")])
    tally.record([Ended(4.0, 0, "cancelled")])
    assert tally.integrals["capacity"] == 4 + 2 * 2 + 4
    assert tally.integrals["down"] == 2 * 2


def test_sums_stay_exact_over_many_small_waits() -> None:
    rows = [Row(1, 0.1, submit_s=0.1 * i) for i in range(3000)]
    tally: Tally = play_scene(scene_of(trace_of(*rows), "1x1"), "fifo").tally
    assert abs(tally.integrals["blocking"]) < 1e-6
    assert all(p.blocking_index < 1e-6 for p in points_of(tally))


def test_blocking_stays_exact_at_an_epoch_clock() -> None:
    # 1.7e9 s: sums of weights times t must not lose the small waits.
    base = 1.7e9
    rows = [Row(1, 4, submit_s=base), Row(1, 2, submit_s=base + 1), Row(1, 4, submit_s=base + 2)]
    sums = play(rows, "fifo", "1x1").tally.integrals
    assert sums["blocking"] == pytest.approx(3.0, rel=1e-6)


def test_one_tiny_job_does_not_spoil_the_blocking_of_others() -> None:
    # A job with 1e-6 s left waits 5 s: index 5e6. After it left, the others' index is exact.
    rows = [Row(1, 5), Row(1, 1e-6, submit_s=0), Row(1, 10, submit_s=6), Row(1, 10, submit_s=7)]
    points = points_of(play(rows, "fifo", "1x1").tally)
    last = [p for p in points if p.t_s >= 7]
    assert last[0].blocking_index == pytest.approx(0, abs=1e-6)


def test_a_report_corrects_progress_and_rate() -> None:
    scene = scene_of(trace_of(Row(2, 10)), "1x2")
    tally = tally_of(scene)
    placement = Placement(((0, 2),))
    tally.record([Submitted(0.0, 0, 10.0), Started(0.0, 0, "start", placement, 1.0, 0.0)])
    tally.record([Measured(4.0, 0, 3.0, 0.5)])
    tally.record([Measured(6.0, 0, 4.5, 2.0)])
    tally.record([Ended(8.75, 0, "completed")])
    assert tally.done_s == [4.5 + 2.0 * 2.75]
    assert [p.cluster_efficiency for p in points_of(tally)] == [1.0, 0.5, 2.0, 0.0]
    # The stay goes on: only what it came to is known better.
    assert [(s.start_s, s.end_s, s.progress_s) for s in tally.segments] == [(0.0, 8.75, 10.0)]


def test_a_report_during_a_switch_says_that_it_is_over() -> None:
    scene = scene_of(trace_of(Row(2, 10)), "1x2")
    tally = tally_of(scene)
    placement = Placement(((0, 2),))
    tally.record([Submitted(0.0, 0, 10.0), Started(0.0, 0, "start", placement, 1.0, 30.0)])
    tally.record([Measured(4.0, 0, 1.0, 1.0)])
    tally.record([Stopped(40.0, 0, "preempted", 37.0)])
    assert tally.done_s == [37.0]
    assert [p.cluster_efficiency for p in points_of(tally)] == [0.0, 1.0, 0.0]


def test_a_withdrawn_job_waits_no_more() -> None:
    tally = tally_of(scene_of(trace_of(Row(1, 10), Row(1, 10)), "1x2"))
    tally.record([Submitted(0.0, 0, 10.0), Submitted(0.0, 1, 10.0)])
    tally.record([Withdrawn(2.0, 0)])
    tally.record([Submitted(5.0, 0, 10.0)])
    assert [p.waiting for p in points_of(tally)] == [2, 1, 2]
    tally.record([Ended(6.0, 0, "cancelled"), Ended(6.0, 1, "cancelled")])
    assert tally.integrals["waiting"] == 2 * 2 + 1 * 3 + 2 * 1

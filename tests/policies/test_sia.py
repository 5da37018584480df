"""Sia by hand: types and numbers of GPUs, rounds, growth, and jobs that restart."""

import pytest

from builders import Row, Story, play, trace_of
from dovetail.core.cluster import Cluster
from dovetail.mechanisms.elastic.configurations import configurations, node_kinds
from dovetail.physics.device_times import stated_times
from dovetail.physics.linear import linear_physics
from dovetail.physics.sharing.interference import Injected

FLEX = {"elastic": True, "min_gpus": 1, "max_gpus": 4}


def test_configurations_are_powers_of_two_in_a_node_and_whole_nodes_above() -> None:
    kinds = node_kinds(Cluster.parse("3x4:a+2x8:b").groups)
    assert [(k.node_count, k.gpus_per_node, k.example) for k in kinds] == [(3, 4, 0), (2, 8, 3)]
    known = configurations(kinds, [3])
    of_kind = [known.gpus[known.kind == k].tolist() for k in (0, 1)]
    assert of_kind == [[1, 2, 3, 4, 8, 12], [1, 2, 3, 4, 8, 16]]
    assert known.gpus[~known.regular].tolist() == [3, 3]


def test_a_job_starts_on_its_least_and_doubles_each_round_at_most() -> None:
    story = play([Row(1, 300, **FLEX)], "sia:restart=0", "1x4")  # type: ignore[arg-type]
    # 1 GPU for 60 s, 2 for 60 s, then 4: 60 + 120 + 4 * 30 = 300.
    assert story.finishes == [150]
    assert [how for _, how in story.starts(0)] == ["start", "resize", "resize"]


def test_newcomers_wait_for_the_next_round() -> None:
    story = play([Row(1, 30, submit_s=10)], "sia", "1x4")
    assert story.starts(0) == [(60.0, "start")]


def test_a_fast_gpu_goes_where_it_gains_most() -> None:
    # Job 1 may run on the fast GPU only. At 1.2 times the speed both run: 1 + 1 costs less than
    # 1.2 ** -0.5 + 1.1. At 4 times job 0 takes it, and job 1 waits for the next round.
    rows = [Row(1, 100, gpu_type="slow|fast"), Row(1, 100, gpu_type="fast")]
    for factor, finishes in ((1.2, [100, 100]), (4.0, [25, 160])):
        story = _on_types(rows, {("slow", "fast"): factor})
        assert story.finishes == finishes


def test_a_restart_must_pay() -> None:
    # The fast GPU is free at 120 s. With d = 30 and an age of 60 s the job keeps 60 / 90 of its
    # speed if it moves: twice as fast is worth it, 1.2 times is not before its end at 210 s.
    rows = [
        Row(1, 100, gpu_type="fast", preemptible=False),
        Row(1, 150, submit_s=60, gpu_type="slow|fast"),
    ]
    for factor, moves in ((2.0, 1), (1.2, 0)):
        story = _on_types(rows, {("slow", "fast"): factor})
        assert [how for _, how in story.starts(1)] == ["start", *["move"] * moves]


def test_a_job_that_restarts_stays_until_it_has() -> None:
    # A restart of 100 s: what was placed at 0 is left alone at 60 s.
    row = Row(1, 400, restart_s=100.0, **FLEX)  # type: ignore[arg-type]
    story = play([row], "sia", "1x4", switching="restart:100")
    assert [t for t, _ in story.starts(0)][:2] == [0.0, 120.0]


def test_a_rigid_job_runs_as_requested_or_waits() -> None:
    rows = [Row(3, 60), Row(3, 60)]
    story = play(rows, "sia", "1x4")
    assert sorted(story.finishes) == [60, 120]


def test_it_is_said_what_is_wrong_with_a_parameter() -> None:
    from dovetail.core.errors import InputError
    from dovetail.core.policy import parse_policy

    for text in ("sia:p=0", "sia:waiting=-1", "sia:growth=0", "sia:interval=0.5"):
        with pytest.raises(InputError, match="sia"):
            parse_policy(text)


def _on_types(rows: list[Row], speeds: dict[tuple[str, str], float]) -> Story:
    jobs = trace_of(*rows).jobs
    physics = linear_physics(jobs, Injected(), stated_times(("slow", "fast"), jobs, speeds))
    return play(rows, "sia", "1x1:slow+1x1:fast", truth=physics)

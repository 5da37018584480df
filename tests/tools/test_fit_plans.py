"""The planner's equations against measured times of mixed parallelism."""

from pathlib import Path

import pytest

from dovetail.algorithms.pipeline_time import Links
from tools.zoo.plans import PlanRow, fit_plans, predicted_s, read_plans
from tools.zoo.predicted_times import PredictedTimes

LINKS = Links(200e9, 16e9, 8)


def test_more_slices_make_an_iteration_shorter_and_split_servers_longer() -> None:
    alone = predicted_s(PlanRow("gpt2", 1, 1, 1, (1,), 1.0), 0.4, LINKS)
    sliced = predicted_s(PlanRow("gpt2", 1, 4, 1, (4,), 1.0), 0.4, LINKS)
    apart = predicted_s(PlanRow("gpt2", 1, 4, 1, (2, 2), 1.0), 0.4, LINKS)
    assert sliced < alone
    assert apart > sliced


def test_replicas_on_servers_of_their_own_wait_for_each_other() -> None:
    together = predicted_s(PlanRow("gpt2", 4, 1, 1, (4,), 1.0), 0.4, LINKS)
    apart = predicted_s(PlanRow("gpt2", 4, 1, 1, (1, 1, 1, 1), 1.0), 0.4, LINKS)
    assert apart > 2 * together


def test_rows_of_mixed_parallelism_are_read(data_dir: Path) -> None:
    rows = read_plans(data_dir)
    assert {row.model for row in rows} == {"gpt2", "t5", "llama7"}
    assert all(row.replicas * row.slices * row.stages == sum(row.nodes) for row in rows)


@pytest.mark.slow
def test_held_out_errors_are_those_the_docs_state(data_dir: Path) -> None:
    held_out = fit_plans(data_dir).held_out
    every_row = PredictedTimes.joined(held_out.values()).error
    assert every_row.rows == 73
    assert every_row.mean < 0.20
    assert held_out["gpt2"].error.mean < 0.06

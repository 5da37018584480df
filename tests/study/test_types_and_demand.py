"""`whatif` with unused GPUs, jobs on a second type, another demand, a site's policy."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from study_scene import busy_trace

from builders import Row, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.job import Labels
from dovetail.core.switching import Switching
from dovetail.core.tenants import QueueSpec
from dovetail.core.trace import ImportRecord, Recorded, Trace
from dovetail.study.cells import Premise
from dovetail.study.changes import Grid, Setting, cells_of
from dovetail.study.demand import NEAR_S, parse_demand, widened, with_demand
from dovetail.study.options import Options
from dovetail.study.recorded import site_policy
from dovetail.study.uncertainty import Interval
from dovetail.study.whatif import Whatif
from dovetail.study.whatif import whatif as run

whatif = partial(run, processes=1)
A100 = [Row(1, 1000.0, gpu_type="a100")] * 2


def asked(trace: Trace, cluster: Cluster, grid: Grid, policy: str = "fifo") -> Whatif:
    options = Options(cluster, switching=Switching.parse("none"))
    cells = cells_of(Setting(cluster, policy), grid, cross=False)
    return whatif(Premise(trace, options), cells)


def test_gpus_that_no_job_may_use_are_said_first() -> None:
    found = asked(trace_of(*A100), Cluster.parse("1x1:a100"), Grid(add="1x4:h100"))
    assert found.notes[0] == (
        "WARNING: no job can use the h100 GPUs of 'add 1x4:h100': all 2 jobs ask for a100; say who "
        "may use them, as in --types-for a100=h100."
    )
    assert found.table["avg_jct_s"].to_list() == [1500.0, 1500.0]


def test_gpus_that_no_queue_owns_are_said_first_too() -> None:
    cluster = replace(Cluster.parse("1x1:a100"), queues=(QueueSpec("gpu", groups=("a100",)),))
    rows = [Row(1, 1000.0, queue="gpu")] * 2
    found = asked(trace_of(*rows), cluster, Grid(add="1x1:h100"))
    assert "no queue of the cluster's file has them" in found.notes[0]


def test_jobs_that_may_use_a_faster_type_do_where_their_own_has_no_room() -> None:
    grid = Grid(add="1x1:h100", types_for="a100=h100@2.0")
    found = asked(trace_of(*A100), Cluster.parse("1x1:a100"), grid)
    # Alone on the A100 they end at 1000 and 2000; beside it one runs for 500 on the H100.
    assert found.table["avg_jct_s"].to_list() == [1500.0, 750.0]
    assert "assumed to be 2 times as fast there (from --types-for" in found.notes[1]
    assert found.first == 2


def test_the_speed_of_a_known_type_is_that_of_the_device_table() -> None:
    rows = [Row(1, 1000.0, gpu_type="V100")] * 2
    found = asked(
        trace_of(*rows), Cluster.parse("1x1:v100"), Grid(add="1x1:k80", types_for="v100=k80")
    )
    second_s = 1000.0 / 0.19
    assert found.table["avg_jct_s"].to_list() == pytest.approx([1500.0, (1000.0 + second_s) / 2])


def test_a_stated_speed_goes_before_the_table_for_jobs_with_a_model() -> None:
    rows = [replace(row, model="resnet50") for row in A100]
    grid = Grid(add="1x1:h100", types_for="a100=h100@4")
    found = asked(trace_of(*rows), Cluster.parse("1x1:a100"), grid)
    assert found.table["avg_jct_s"].to_list() == pytest.approx([1500.0, 625.0], rel=1e-3)


def test_a_type_of_the_base_makes_a_row_of_its_own() -> None:
    rows = [*A100, Row(1, 10.0, gpu_type="v100")]
    found = asked(
        trace_of(*rows), Cluster.parse("1x1:a100+1x1:v100"), Grid(types_for="a100=v100@0.5")
    )
    # First come, first served: the V100's own job waits behind the second job of A100s.
    assert found.table["change"].to_list() == ["as is", "a100 jobs also on v100"]
    assert found.table["avg_jct_s"].to_list() == [
        pytest.approx((1000 + 2000 + 1010) / 3),
        pytest.approx((1000 + 2000 + 2010) / 3),
    ]


def test_the_queue_that_owns_the_nodes_of_a_type_gets_those_of_the_second() -> None:
    cluster = replace(Cluster.parse("1x1:a100"), queues=(QueueSpec("gpu", groups=("a100",)),))
    rows = [replace(row, queue="gpu") for row in A100]
    found = asked(trace_of(*rows), cluster, Grid(add="1x1:h100", types_for="a100=h100@2"))
    assert found.table["avg_jct_s"].to_list() == [1500.0, 750.0]


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        (Grid(types_for="a100=h100"), "no row has h100 GPUs"),
        (Grid(add="1x1:h100", types_for="v100=h100"), "no job asks for 'v100'"),
        (Grid(add="1x1:tpu", types_for="a100=tpu"), "its speed is unknown"),
        (Grid(types_for="a100"), "is not TYPE=TYPE"),
        (Grid(types_for="a100=h100@0"), "is not TYPE=TYPE"),
        (Grid(demand="20%"), "is not another demand"),
        (Grid(demand="-100%"), "is not another demand"),
        (Grid(add="h100:4"), "as in 2x8:h100"),
    ],
)
def test_what_cannot_be_done_is_refused(grid: Grid, said: str) -> None:
    with pytest.raises(InputError, match=said):
        asked(trace_of(*A100), Cluster.parse("1x1:a100"), grid)


def test_all_combinations_of_one_kind_of_change_are_refused() -> None:
    with pytest.raises(InputError, match="one kind of change"):
        cells_of(Setting(Cluster.parse("1x1"), "fifo"), Grid(nodes="+1,+2"), cross=True)


@pytest.mark.parametrize("factor", [0.7, 1.2, 2.0, 3.5])
def test_a_draw_keeps_the_jobs_of_the_log_and_adds_copies_near_them(factor: float) -> None:
    trace = busy_trace()
    drawn, rows = with_demand(trace, factor, seed=3)
    assert len(drawn) == round(factor * len(trace))
    again, same = with_demand(trace, factor, seed=3)
    assert (again.jobs.submit_s == drawn.jobs.submit_s).all()
    assert (same == rows).all()
    kept = rows >= 0
    assert (drawn.jobs.submit_s[rows[kept]] == trace.jobs.submit_s[kept]).all()
    assert [drawn.jobs.job_id[row] for row in rows[kept]] == [
        trace.jobs.job_id[row] for row in np.flatnonzero(kept)
    ]
    assert len(set(drawn.jobs.job_id)) == len(drawn)
    original = {job: row for row, job in enumerate(trace.jobs.job_id)}
    of = [original[job.partition("~")[0]] for job in drawn.jobs.job_id]
    assert np.abs(drawn.jobs.submit_s - trace.jobs.submit_s[of]).max() <= NEAR_S
    assert (drawn.duration_s == trace.duration_s[of]).all()
    assert drawn.jobs.user.texts() == [trace.jobs.user[row] for row in of]


def test_more_demand_makes_the_jobs_of_the_log_wait_longer_and_less_shorter() -> None:
    trace = busy_trace()
    found = asked(trace, Cluster.parse("4x4"), Grid(demand="+30%,-30%"))
    base, more, less = found.table["avg_wait_s"].to_list()
    assert less < base < more
    assert any("Mean of 5 draws (seeds 0 to 4)" in note for note in found.notes[: found.first])
    assert asked(trace, Cluster.parse("4x4"), Grid(demand="+30%,-30%")).table.equals(found.table)


def test_the_spread_of_draws_widens_an_interval_and_equal_draws_do_not() -> None:
    interval = Interval(2.0, 1.0, 4.0)
    same = widened(interval, [7.0] * 5)
    assert (same.low, same.high) == (pytest.approx(1.0), pytest.approx(4.0))
    wide = widened(interval, [6.0, 7.0, 8.0])
    assert wide.low is not None
    assert wide.high is not None
    assert wide.low < 1.0 < 4.0 < wide.high
    assert parse_demand("+20%") == pytest.approx(1.2)


def test_the_site_of_a_log_of_sacct_runs_slurm() -> None:
    trace = trace_of(*A100)
    assert site_policy(trace) == "backfill"
    record = ImportRecord("log.txt", "slurm", {}, 0.0, 0.0)
    n = len(trace)
    starts = Recorded(np.zeros(n), np.ones(n), np.zeros(n), np.zeros(n, np.int64), trace.jobs.queue)
    from_slurm = replace(trace, recorded=starts, imported=record)
    assert site_policy(from_slurm) == "slurm"
    found = asked(from_slurm, Cluster.parse("1x1:a100"), Grid(nodes="+1"), policy="slurm")
    assert "Base: slurm on" in found.notes[0]
    assert "No slurm.conf was given" in found.notes[1]


def test_a_strict_queue_over_two_types_is_cautioned_as_in_compare() -> None:
    rows = [*A100, Row(1, 10.0, gpu_type="v100")]
    found = asked(trace_of(*rows), Cluster.parse("1x1:a100+1x1:v100"), Grid(nodes="+1:a100"))
    assert "under fifo the first job that finds no room" in found.notes[1]
    assert found.first == 2


def test_the_base_stands_beside_the_record_of_the_log() -> None:
    rows = [Row(1, 4000.0, 0.0), Row(1, 4000.0, 0.0)]
    trace = trace_of(*rows)
    # In the log both started at once; on one GPU the second waits for the first.
    zero, end_s = np.zeros(2), np.full(2, 4000.0)
    trace = replace(trace, recorded=Recorded(zero, end_s, zero, zero.astype(int), Labels.none(2)))
    options = Options(Cluster.parse("1x1"), switching=Switching.parse("none"))
    cells = cells_of(Setting(options.cluster, "fifo"), Grid(nodes="+1"), cross=False)
    (note,) = [n for n in whatif(Premise(trace, options), cells).notes if "in the log" in n]
    assert note == (
        "Mean wait in the log 0 s, in the base 33.3 min; far apart for jobs of 1 GPU 0 s and "
        "33.3 min: trust their rows less."
    )

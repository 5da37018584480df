"""What-if grids: small schedules worked by hand, order, pairing, and what is refused."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from study_scene import CLUSTER, busy_trace

from builders import Row, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.switching import Switching
from dovetail.core.tenants import QueueSpec
from dovetail.core.trace import Trace
from dovetail.study.cells import Premise
from dovetail.study.changes import Grid, GridCell, Setting, cells_of
from dovetail.study.compare import compare
from dovetail.study.options import Options
from dovetail.study.prices import GpuPrices
from dovetail.study.whatif import WHATIF_COLUMNS, Whatif, whatif

one_process = partial(whatif, processes=1)


def scene(
    trace: Trace,
    cluster: str,
    grid: Grid,
    *,
    policy: str = "fifo",
    cross: bool = False,
    exempt: bool = False,
) -> tuple[Premise, list[GridCell]]:
    options = Options(Cluster.parse(cluster), switching=Switching.parse("none"))
    cells = cells_of(Setting(options.cluster, policy), grid, cross=cross)
    return Premise(trace, options, exempt), cells


def asked(*rows: Row, cluster: str, grid: Grid, prices: GpuPrices | None = None) -> Whatif:
    return one_process(*scene(trace_of(*rows), cluster, grid), prices)


def test_waits_are_split_by_the_names_of_the_log() -> None:
    # One GPU: a waits 0 s, b 1000 s and 2000 s. Two GPUs: 0, 0 and 1000 s.
    rows = [Row(1, 1000.0, user="a"), Row(1, 1000.0, user="b"), Row(1, 1000.0, user="b")]
    found = one_process(*scene(trace_of(*rows), "1x1", Grid(nodes="+1")), by="user")
    assert found.split is not None
    assert [(row["change"], row["name"], row["jobs"], row["avg_wait_s"], row["p90_wait_s"])
            for row in found.split.to_dicts()] == [
        ("as is", "b", 2, 1500.0, 2000.0), ("as is", "a", 1, 0.0, 0.0),
        ("+1 node", "b", 2, 500.0, 1000.0), ("+1 node", "a", 1, 0.0, 0.0),
    ]  # fmt: skip
    with pytest.raises(InputError, match="name no account"):
        one_process(*scene(trace_of(*rows), "1x1", Grid(nodes="+1")), by="account")


def test_three_jobs_on_one_gpu_and_on_two_as_worked_by_hand() -> None:
    # One GPU: starts at 0, 1000, 2000. Two GPUs: 0, 0, 1000.
    found = asked(*[Row(1, 1000.0)] * 3, cluster="1x1", grid=Grid(nodes="+1"),
                  prices=GpuPrices({}, 2.0))  # fmt: skip
    base, more = found.table.to_dicts()
    assert (base["change"], more["change"]) == ("as is", "+1 node")
    assert (base["avg_jct_s"], more["avg_jct_s"]) == pytest.approx((2000.0, 4000.0 / 3))
    assert more["ratio_to_base"] == pytest.approx(2 / 3)
    assert (base["avg_wait_s"], more["avg_wait_s"]) == pytest.approx((1000.0, 1000.0 / 3))
    assert (base["p90_wait_s"], more["p90_wait_s"]) == (2000.0, 1000.0)
    assert base["one_gpu_jobs_in_10_min"] == pytest.approx(1 / 3)
    assert more["one_gpu_jobs_in_10_min"] == pytest.approx(2 / 3)
    assert (base["gpu_utilization"], more["gpu_utilization"]) == pytest.approx((1.0, 0.75))
    assert (base["cost_per_month"], more["cost_per_month"]) == (1440.0, 2880.0)
    assert (base["extra_cost_per_month"], more["extra_cost_per_month"]) == (0.0, 1440.0)
    # 2 GPUs for 2000 s at 2.00 are paid, and 3000 GPU-seconds are held, all of them useful.
    assert (base["cost_per_gpu_h_used"], more["cost_per_gpu_h_used"]) == pytest.approx((2, 8 / 3))
    assert more["cost_per_gpu_h_useful"] == pytest.approx(8 / 3)


def test_a_job_longer_than_the_limit_is_killed_counted_and_left_out_of_every_mean() -> None:
    found = asked(Row(1, 1000.0), Row(1, 300.0), cluster="1x1", grid=Grid(time_limit="10m"))
    base, limited = found.table.to_dicts()
    assert (base["cut_jobs"], limited["cut_jobs"]) == (0, 1)
    assert limited["cut_jobs_gpu_h"] == pytest.approx(1000 / 3600)
    assert limited["cut_jobs_held_gpu_h"] == pytest.approx(600 / 3600)
    # The second job alone counts: it ends at 1300, or at 900.
    assert (base["avg_jct_s"], limited["avg_jct_s"]) == (1300.0, 900.0)
    assert "'limit 10m' would kill 1 job, after 0.2 of their 0.3 GPU-hours." in found.notes
    assert any("the 1 of 2 jobs that run whole in every row" in note for note in found.notes)


def test_an_exempt_job_keeps_its_own_limit_and_is_said() -> None:
    rows = trace_of(Row(1, 1000.0), Row(1, 300.0))
    found = one_process(*scene(rows, "1x1", Grid(time_limit="10m"), exempt=True))
    assert found.table["cut_jobs"].to_list() == [0, 0]
    assert found.table["avg_jct_s"].to_list() == [1150.0, 1150.0]
    assert any("does not apply to 1 longer job of 0.3" in note for note in found.notes)


def test_a_job_that_hit_its_limit_in_the_log_is_not_cut_again_and_without_limits_is_noted() -> None:
    rows = (Row(1, 500.0, time_limit_s=500.0, end="timeout"), Row(1, 300.0))
    found = asked(*rows, cluster="1x1", grid=Grid(time_limit="1h,none,5m"))
    assert found.table["cut_jobs"].to_list() == [0, 0, 0, 1]
    assert any("1 job ended by a limit in the log" in note for note in found.notes)


def test_a_quota_makes_the_jobs_of_a_queue_wait_for_each_other() -> None:
    rows = [Row(1, 1000.0, queue="research")] * 2
    found = asked(*rows, cluster="1x2", grid=Grid(quota="research=1"))
    assert found.table["change"].to_list() == ["as is", "quota research 1 GPUs"]
    assert found.table["avg_wait_s"].to_list() == [0.0, 500.0]


def test_a_quota_can_be_lifted() -> None:
    cluster = replace(Cluster.parse("1x2"), queues=(QueueSpec("research", 1),))
    rows = trace_of(*[Row(1, 1000.0, queue="research")] * 2)
    cells = cells_of(Setting(cluster, "fifo"), Grid(quota="research=none"), cross=False)
    found = one_process(Premise(rows, Options(cluster)), cells)
    assert found.table["avg_wait_s"].to_list() == [500.0, 0.0]


def test_a_job_that_fits_not_every_row_is_counted_and_left_out_of_every_mean() -> None:
    found = asked(Row(4, 100.0), Row(1, 100.0), cluster="2x2", grid=Grid(nodes="-1"))
    base, less = found.table.to_dicts()
    assert (base["left_out_jobs"], less["left_out_jobs"]) == (0, 1)
    assert less["left_out_gpu_h"] == pytest.approx(400 / 3600)
    # Only the job of one GPU is in both: behind the large one, or alone.
    assert (base["avg_jct_s"], less["avg_jct_s"]) == (200.0, 100.0)
    assert found.notes[0].startswith("WARNING: -1 node: 1 job (50.0% of the jobs")


def test_the_first_line_says_what_decides() -> None:
    found = asked(*[Row(1, 10.0)] * 3, cluster="1x1", grid=Grid(nodes="+1"))
    assert found.notes[0] == (
        "Users do not react: the same 3 jobs are submitted at the same times in every row. Base: "
        "fifo on 1x1, job lengths: not used."
    )


def test_added_nodes_serve_jobs_of_their_type() -> None:
    rows = (Row(1, 100.0, gpu_type="a100"), Row(1, 100.0), Row(1, 100.0))
    found = asked(*rows, cluster="1x1:a100", grid=Grid(add="1x2:h100"))
    assert found.table["gpus"].to_list() == [1, 3]
    assert found.table["avg_wait_s"].to_list() == [100.0, 0.0]


def test_rows_are_one_change_each_in_the_order_of_the_options_or_all_combinations() -> None:
    grid = Grid(nodes="+1,+2", time_limit="1h", policies=("sjf",))
    base = Setting(Cluster.parse("1x1"), "fifo")
    alone = [cell.label for cell in cells_of(base, grid, cross=False)]
    assert alone == ["as is", "+1 node", "+2 nodes", "limit 1h", "sjf"]
    crossed = [cell.label for cell in cells_of(base, grid, cross=True)]
    assert len(crossed) == 3 * 2 * 2
    assert crossed[:4] == ["as is", "sjf", "limit 1h", "limit 1h, sjf"]
    assert crossed[-1] == "+2 nodes, limit 1h, sjf"


def test_a_policy_is_called_by_its_name_unless_two_have_it() -> None:
    policies = ("tiresias:thresholds=3250/7200", "srtf", "fifo:bypass=skip")
    base = Setting(Cluster.parse("1x1"), "fifo")
    labels = [c.label for c in cells_of(base, Grid(policies=policies), cross=False)]
    assert labels == ["as is", "tiresias", "srtf", "fifo:bypass=skip"]
    with pytest.raises(InputError, match="'fifo:bypass=strict' is named twice"):
        cells_of(base, Grid(policies=("fifo:bypass=strict",)), cross=False)


def test_the_number_of_processes_changes_nothing() -> None:
    grid = Grid(nodes="+1", time_limit="6h", policies=("srtf",))
    premise, cells = scene(busy_trace(), CLUSTER, grid, cross=True)
    alone, two = (whatif(premise, cells, processes=p) for p in (1, 2))
    assert alone.table.equals(two.table)
    assert alone.notes == two.notes


def test_policies_are_paired_as_in_a_comparison() -> None:
    premise, cells = scene(busy_trace(), CLUSTER, Grid(policies=("srtf",)))
    found = one_process(premise, cells).table.to_dicts()[1]
    compared = compare(busy_trace(), ["fifo", "srtf"], premise.options, processes=1)
    row = compared.table.to_dicts()[1]
    assert found["avg_jct_s"] == pytest.approx(row["avg_jct_s"])
    assert found["ratio_to_base"] == pytest.approx(row["ratio_to_baseline"])
    assert found["ratio_low"] == pytest.approx(row["ratio_low"])
    assert found["ratio_high"] == pytest.approx(row["ratio_high"])


def test_the_table_has_the_columns_it_promises_and_no_money_without_prices() -> None:
    found = asked(*[Row(1, 10.0)] * 3, cluster="1x1", grid=Grid(nodes="+1"))
    assert dict(found.table.schema) == dict(WHATIF_COLUMNS)
    assert found.table["cost_per_month"].null_count() == 2


def test_progress_grows_to_the_end() -> None:
    premise, cells = scene(busy_trace(), CLUSTER, Grid(nodes="+1"))
    for processes in (1, 2):
        told: list[float] = []
        whatif(premise, cells, processes=processes, progress=told.append)
        assert told == sorted(told)
        assert told[-1] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        (Grid(nodes="two"), "not a number of nodes"),
        (Grid(nodes="+1:b200"), "no group 'b200'"),
        (Grid(nodes="-3:a100"), "takes more nodes than the 2"),
        (Grid(nodes="+1"), "say of which type: a100, h100"),
        (Grid(nodes="+1:a100,+1:a100"), "asked for twice"),
        (Grid(add="2:h100"), "NODESxGPUS"),
        (Grid(time_limit="24"), "lacks a unit"),
        (Grid(time_limit="0s"), "lets no job run"),
        (Grid(time_limit="soon"), "not a duration"),
        (Grid(quota="research"), "not QUEUE=GPUS"),
        (Grid(quota="research=0"), "not QUEUE=GPUS"),
        (Grid(other_clusters="x"), "NODESxGPUS"),
    ],
)
def test_changes_that_cannot_be_made_are_refused(grid: Grid, words: str) -> None:
    base = Setting(Cluster.parse("2x4:a100+1x4:h100"), "fifo")
    with pytest.raises(InputError, match=words):
        cells_of(base, grid, cross=False)


def test_a_grid_of_too_many_rows_is_refused() -> None:
    grid = Grid(nodes=",".join(f"+{n}" for n in range(30)), time_limit="1h,2h,3h,4h,5h,6h,7h,8h,9h",
                policies=("sjf",))  # fmt: skip
    with pytest.raises(InputError, match="620 rows"):
        cells_of(Setting(Cluster.parse("1x1"), "fifo"), grid, cross=True)


def test_no_cluster_is_left_without_nodes() -> None:
    with pytest.raises(InputError, match="leaves no node"):
        cells_of(Setting(Cluster.parse("1x1"), "fifo"), Grid(nodes="-1"), cross=False)


def test_a_quota_of_a_queue_without_jobs_is_refused() -> None:
    with pytest.raises(InputError, match=r"no job is in queue 'reserch'.*did you mean 'research'"):
        asked(Row(1, 10.0, queue="research"), cluster="1x2", grid=Grid(quota="reserch=1"))


def test_node_changes_by_number_do_not_go_with_another_number_of_nodes() -> None:
    premise, cells = scene(busy_trace(), CLUSTER, Grid(nodes="+1"))
    options = replace(premise.options, capacity=((10.0, ((1, "down"),)),))
    with pytest.raises(InputError, match="names nodes by number"):
        one_process(replace(premise, options=options), cells)


def test_a_policy_that_lacks_knowledge_is_refused_before_anything_runs() -> None:
    premise, cells = scene(busy_trace(), CLUSTER, Grid(policies=("srtf",)))
    options = replace(premise.options, forecast="unknown")
    told: list[float] = []
    with pytest.raises(InputError, match="needs to know: length"):
        whatif(replace(premise, options=options), cells, processes=2, progress=told.append)
    assert not told


def test_an_error_in_a_worker_comes_back_as_it_was(tmp_path: Path) -> None:
    # The profile set is missed only when a worker builds the physics.
    trace = trace_of(Row(1, 5.0, model="pollux/bert"), Row(1, 5.0, submit_s=1.0))
    premise, cells = scene(trace, "2x2", Grid(nodes="+1"))
    options = replace(premise.options, profiles=(str(tmp_path / "gone.toml"),))
    with pytest.raises(InputError, match=r"gone\.toml"):
        whatif(replace(premise, options=options), cells, processes=2)


def test_a_row_that_no_job_fits_is_refused() -> None:
    premise, cells = scene(trace_of(Row(4, 5.0), Row(4, 5.0)), "2x2", Grid(nodes="-1"))
    with pytest.raises(InputError, match="no job fits the cluster of '-1 node'"):
        one_process(premise, cells)


def test_other_clusters_keep_the_queues() -> None:
    cluster = replace(Cluster.parse("1x2"), queues=(QueueSpec("research", 1),))
    cells = cells_of(Setting(cluster, "fifo"), Grid(other_clusters="2x2,1x4"), cross=False)
    assert [cell.label for cell in cells] == ["as is", "2x2", "1x4"]
    assert all(cell.setting.cluster.queues == cluster.queues for cell in cells)


def test_intervals_contain_their_ratio() -> None:
    premise, cells = scene(busy_trace(), CLUSTER, Grid(nodes="+1,+2", policies=("sjf",)))
    table = one_process(premise, cells).table
    low, value, high = (table[c].to_numpy() for c in ("ratio_low", "ratio_to_base", "ratio_high"))
    known = np.isfinite(low)
    assert known.sum() >= 2
    assert (low[known] <= value[known]).all()
    assert (value[known] <= high[known]).all()

"""A spot tier, quotas by type and along the tree, and several changes in one row, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from builders import Row, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.switching import Switching
from dovetail.core.tenants import AccountSpec, QueueSpec
from dovetail.core.trace import Trace
from dovetail.study.cells import Premise, outcome_of
from dovetail.study.changes import Grid, GridCell, Setting, cells_of
from dovetail.study.options import Options
from dovetail.study.spot import parse_spot
from dovetail.study.whatif import Whatif, whatif

RESTART = Switching.parse("restart:30")


def cells_on(cluster: Cluster, grid: Grid, policy: str = "fifo") -> list[GridCell]:
    return cells_of(Setting(cluster, policy), grid, cross=False)


def asked(trace: Trace, cluster: Cluster, grid: Grid, policy: str = "fifo") -> Whatif:
    premise = Premise(trace, Options(cluster, switching=RESTART))
    return whatif(premise, cells_on(cluster, grid, policy), processes=1)


def batch_and_ann() -> Trace:
    """A long job of a robot on the only GPU, and one of ann a hundred seconds later."""
    return trace_of(
        Row(1, 1000.0, 0.0, user="robot", queue="batch"), Row(1, 200.0, 100.0, user="ann")
    )


def test_a_spot_job_gives_its_gpu_back_and_pays_for_the_restart() -> None:
    found = asked(batch_and_ann(), Cluster.parse("1x1"), Grid(spot="user=robot"))
    base, spot = found.table.to_dicts()
    assert (base["spot_jobs"], base["spot_stops"]) == (None, None)
    assert (spot["spot_jobs"], spot["spot_stops"]) == (1, 1)
    # As it is, ann waits 900 s for 200 s of work. On spot the robot ends after 1200 s + restart.
    assert spot["others_ratio_to_base"] == pytest.approx(200 / 1100)
    assert spot["spot_ratio_to_base"] == pytest.approx(1230 / 1000)
    assert spot["spot_stopped_gpu_h"] == pytest.approx(30 / 3600)
    assert "1 jobs of 0 GPU-hours run on what the others leave idle" in found.notes[-1]


def test_a_spot_job_that_saves_every_so_often_repeats_half_of_it() -> None:
    grid = Grid(spot="user=robot", checkpoint_s=600.0)
    spot = asked(batch_and_ann(), Cluster.parse("1x1"), grid).table.to_dicts()[1]
    assert spot["spot_ratio_to_base"] == pytest.approx((1200 + 30 + 300) / 1000)
    assert spot["spot_stopped_gpu_h"] == pytest.approx(330 / 3600)


def test_spot_jobs_hold_no_more_gpus_than_they_may() -> None:
    rows = [Row(1, 100.0, user="robot")] * 3 + [Row(1, 100.0, 500.0, user="ann")]
    found = asked(trace_of(*rows), Cluster.parse("1x4"), Grid(spot="user=robot,user=robot@1"))
    assert found.table["avg_wait_s"].to_list() == [0.0, 0.0, pytest.approx((100 + 200) / 4)]


def test_what_the_file_guarantees_stays_and_its_spot_queue_is_used() -> None:
    queues = (QueueSpec("prod", guaranteed=(("", 1),)), QueueSpec("scraps", tier="spot"))
    cluster = replace(Cluster.parse("1x2"), queues=queues)
    tier = parse_spot("queue=batch")
    beside = tier.beside(cluster)
    assert [q.name for q in beside.queues] == ["prod", "scraps"]
    assert beside.queues[0].guaranteed == (("", 1),)
    told = tier.retold(batch_and_ann(), cluster)
    assert told.jobs.queue.texts() == ["scraps", ""]


def test_typed_clusters_guarantee_every_type() -> None:
    beside = parse_spot("queue=batch").beside(Cluster.parse("1x4:a100+2x8:v100"))
    regular = next(q for q in beside.queues if q.name == "regular")
    assert dict(regular.guaranteed) == {"a100": 4, "v100": 16}


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("gpus<=2", [True, False, True]),
        ("gpus<=2&hours>1", [False, False, True]),
        ("user=ann|bob", [True, True, False]),
        ("queue=batch", [False, False, True]),
    ],
)
def test_jobs_are_chosen_by_owner_size_and_length(text: str, rows: list[bool]) -> None:
    trace = trace_of(
        Row(1, 60.0, user="ann"), Row(8, 60.0, user="bob"), Row(2, 7200.0, user="c", queue="batch")
    )
    assert parse_spot(text).rows(trace).tolist() == rows


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("batch", "chooses no jobs"),
        ("queue<batch", "compares names"),
        ("gpus<=many", "not a number of gpus"),
        ("gpus<=2@few", "not a number of GPUs"),
        ("queue=bach", "did you mean 'batch'"),
        ("gpus>64", "no job is meant"),
        ("gpus>=1", "all jobs are meant"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_spot(text).rows(batch_and_ann())


def test_a_quota_by_type_binds_that_type_alone() -> None:
    rows = [Row(1, 100.0, gpu_type=kind, queue="vision") for kind in ("a100", "v100", "a100")]
    cluster = Cluster.parse("1x2:a100+1x2:v100")
    found = asked(trace_of(*rows), cluster, Grid(quota="vision:a100=1"))
    assert found.table["change"][1] == "quota vision 1 a100 GPUs"
    assert found.table["avg_wait_s"].to_list() == [0.0, pytest.approx(100 / 3)]


def test_more_of_a_type_is_added_to_what_the_file_has() -> None:
    queues = (QueueSpec("lab"), QueueSpec("vision", parent="lab", limits=(("a100", 1),)))
    cluster = replace(Cluster.parse("1x4:a100"), queues=queues)
    rows = trace_of(*[Row(1, 100.0, gpu_type="a100", queue="vision")] * 2)
    found = asked(rows, cluster, Grid(quota="vision:a100=+1"))
    assert found.table["change"][1] == "quota vision +1 a100 GPUs"
    assert found.table["avg_wait_s"].to_list() == [50.0, 0.0]


def test_a_quota_that_a_queue_above_bounds_is_said() -> None:
    queues = (QueueSpec("lab", 1), QueueSpec("vision", 1, parent="lab"))
    cluster = replace(Cluster.parse("1x4"), queues=queues)
    found = asked(trace_of(*[Row(1, 100.0, queue="vision")] * 2), cluster, Grid(quota="vision=+3"))
    assert found.table["avg_wait_s"].to_list() == [50.0, 50.0]
    assert any("may have 4 GPUs, but 'lab' above it 1" in note for note in found.notes)


def test_a_quota_of_an_account_holds_along_its_tree() -> None:
    accounts = (AccountSpec("lab", max_gpus=1), AccountSpec("vision", parent="lab"))
    cluster = replace(Cluster.parse("1x4"), accounts=accounts)
    rows = trace_of(*[Row(1, 100.0, account="vision")] * 2)
    found = asked(rows, cluster, Grid(quota="account/lab=+1,account/lab=none"))
    assert found.table["avg_wait_s"].to_list() == [50.0, 0.0, 0.0]


def test_a_guarantee_is_heeded_by_tenants_and_refused_by_others() -> None:
    rows = trace_of(Row(1, 1000.0, queue="batch"), Row(1, 100.0, 10.0, queue="prod"))
    grid = Grid(guarantee="prod=1")
    with pytest.raises(InputError, match="fifo heeds no guarantee"):
        asked(rows, Cluster.parse("1x1"), grid)
    found = asked(rows, Cluster.parse("1x1"), grid, "tenancy:inner=fifo")
    waits = found.table["avg_wait_s"].to_list()
    assert waits[0] == 495.0
    assert waits[1] < 100.0


def test_an_account_has_guarantees_and_quotas_by_type_as_a_queue_of_its_own() -> None:
    rows = [Row(1, 1000.0, account="a"), Row(1, 10.0, 5.0, account="b")]
    cluster = Cluster.parse("1x1:a100")
    found = asked(trace_of(*rows), cluster, Grid(guarantee="account/b=1"), "tenancy")
    assert found.table["avg_wait_s"].to_list() == [(1000 - 5) / 2, (10 + 0) / 2]
    (_, cell) = cells_on(cluster, Grid(quota="account/b:a100=1"))
    (queue,) = cell.setting.cluster.queues
    assert (queue.accounts, queue.limits) == (("b",), (("a100", 1),))
    shared = replace(cluster, queues=(QueueSpec("lab", accounts=("a", "b")),))
    with pytest.raises(InputError, match="shares queue 'lab' with others"):
        cells_on(shared, Grid(guarantee="account/b=1"))


@pytest.mark.parametrize(
    ("option", "grid", "words"),
    [
        ("--guarantee", Grid(guarantee="b=1"), "it is an account: account/b"),
        ("--quota", Grid(quota="b=1"), "it is an account: account/b"),
        ("--quota", Grid(quota="account/c=1"), "known: a, b"),
        ("--quota", Grid(quota="account/c:a100=1"), "known: a, b"),
    ],
)
def test_a_quota_of_nobody_is_refused(option: str, grid: Grid, words: str) -> None:
    rows = [Row(1, 1000.0, account="a"), Row(1, 10.0, 5.0, account="b")]
    with pytest.raises(InputError, match=words) as refused:
        asked(trace_of(*rows), Cluster.parse("1x1:a100"), grid, "tenancy")
    assert refused.value.where == option


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        (Grid(quota="vision:b200=1"), "no GPU type 'b200'"),
        (Grid(quota="vision=+8"), "has none yet"),
        (Grid(quota="a=1+a=2"), "changes a quota twice"),
        (Grid(guarantee="vision:a100=64"), "at most 4"),
        (Grid(together=("--nodes +1",)), "not two changes"),
        (Grid(together=("--nodes +1 --price 2",)), "no change"),
        (Grid(together=("--nodes +1,+2 --time-limit 1h",)), "not two changes"),
    ],
)
def test_changes_that_cannot_be_made_are_refused(grid: Grid, words: str) -> None:
    with pytest.raises(InputError, match=words):
        cells_on(Cluster.parse("1x4:a100"), grid)


def test_one_row_makes_several_changes() -> None:
    grid = Grid(nodes="+1", together=("--nodes +2 --time-limit 1h --policies sjf",))
    cells = cells_on(Cluster.parse("1x1"), grid)
    assert [cell.label for cell in cells] == ["as is", "+1 node", "+2 nodes, limit 1h, sjf"]
    assert cells[2].setting == Setting(Cluster.parse("3x1"), "sjf", 3600.0)


def test_the_first_line_says_what_a_limit_does_and_to_how_many() -> None:
    rows = trace_of(Row(2, 7200.0), Row(1, 60.0))
    found = asked(rows, Cluster.parse("1x2"), Grid(time_limit="1h"))
    assert found.notes[0].endswith(
        "A limit of 1 h: 1 longer job of 4.0 GPU-hours are killed at it and not resubmitted, as "
        "Slurm does."
    )


def test_the_first_line_says_how_many_had_a_longer_limit_or_none() -> None:
    limits_s = (1800.0, 3600.0, 3601.0, 7200.0, float("inf"))
    rows = trace_of(*(Row(1, 60.0, time_limit_s=limit_s) for limit_s in limits_s))
    found = asked(rows, Cluster.parse("1x2"), Grid(time_limit="1h"))
    # An hour is not more than an hour.
    assert "0 longer jobs" in found.notes[0]
    assert "2 jobs had a longer limit and 1 none of their own" in found.notes[0]
    within = trace_of(Row(1, 60.0, time_limit_s=3600.0))
    found = asked(within, Cluster.parse("1x2"), Grid(time_limit="1h"))
    assert "longer limit" not in found.notes[0]


def test_a_row_without_spot_stops_nobody() -> None:
    cell = GridCell("as is", Setting(Cluster.parse("1x1"), "fifo"))
    stops = outcome_of(Premise(batch_and_ann(), Options(cell.setting.cluster)), cell).stops
    assert np.array_equal(stops, [0, 0])

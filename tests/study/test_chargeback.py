"""Who pays for which GPU-second: the rule worked by hand, and nothing lost in any run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import Row, Story, play, play_scene, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.job import Labels
from dovetail.core.placement import Placement
from dovetail.core.policy import parse_policy
from dovetail.core.trace import Recorded, Trace
from dovetail.core.units import DAY_S, HOUR_S
from dovetail.record.tally import Segment
from dovetail.replaying.decisions import read_recording
from dovetail.sim.scene import Scene
from dovetail.study.chargeback import (
    CHARGE_COLUMNS,
    IDLE,
    NOBODY,
    ChargedLabel,
    HeldSpans,
    chargeback,
    holdings_of,
    payers,
    recorded_holdings,
)
from dovetail.study.months import Months, months_of
from dovetail.study.options import Options
from dovetail.study.prices import MONTH_S, GpuPrices
from dovetail.study.run import simulate
from sharing_scenes import scenes

ONE = Cluster.parse("1x1:a100")
RELATIVE = Months(0.0)


def on_gpu(
    job: int, start_s: float, end_s: float, *, gpu: int = 0, fraction: float = 0.0
) -> Segment:
    placement = Placement(((0, 1),), ((gpu,),), fractions=(fraction,) if fraction else ())
    return Segment(job, placement, start_s, start_s, end_s, 0.0, 0)


def paid(held: HeldSpans) -> dict[int, float]:
    """Returns the GPU-seconds that each job pays for."""
    gpu_s = (held.end_s - held.start_s) * held.gpus
    return {int(job): float(gpu_s[held.job == job].sum()) for job in np.unique(held.job)}


def test_two_jobs_divide_a_gpu_while_they_share_it() -> None:
    held = holdings_of([on_gpu(0, 0.0, 100.0), on_gpu(1, 50.0, 150.0)], ONE)
    assert paid(held) == {0: 75.0, 1: 75.0}
    assert held.gpu_s == 150.0


def test_three_jobs_pay_a_third_each() -> None:
    held = holdings_of([on_gpu(job, 0.0, 90.0) for job in range(3)], ONE)
    assert paid(held) == pytest.approx({0: 30.0, 1: 30.0, 2: 30.0})


def test_limited_shares_pay_in_proportion_and_alone_the_whole() -> None:
    quarter, most = on_gpu(0, 0.0, 100.0, fraction=0.25), on_gpu(1, 50.0, 150.0, fraction=0.75)
    assert paid(holdings_of([quarter, most], ONE)) == {0: 50.0 + 12.5, 1: 37.5 + 50.0}
    # A job without a limit counts as a whole GPU: 0.25 to 1.
    free = on_gpu(1, 0.0, 100.0)
    assert paid(holdings_of([quarter, free], ONE)) == pytest.approx({0: 20.0, 1: 80.0})


def test_a_job_pays_for_its_switch() -> None:
    story = play([Row(1, 100.0), Row(1, 50.0, 10.0)], "srtf", "1x1", switching="restart:5")
    assert story.stops(0)
    held = holdings_of(story.tally.segments, story.scene.cluster)
    # Job 0 runs 10 s, waits for job 1, and pays 5 s of its own restart.
    assert paid(held) == pytest.approx({0: 105.0, 1: 50.0})


def test_gpus_of_several_nodes_have_the_types_of_their_nodes() -> None:
    cluster = Cluster.parse("1x2:a100+1x2:h100")
    segment = Segment(0, Placement(((0, 2), (1, 1))), 0.0, 0.0, HOUR_S, 0.0, 0)
    table = chargeback(
        holdings_of([segment], cluster),
        ChargedLabel("user", ["ann"]),
        RELATIVE,
        prices=GpuPrices({"a100": 2.0, "h100": 5.0}),
        to_s=HOUR_S,
    )
    assert table.select("gpu_type", "gpu_hours", "cost").rows() == [
        ("a100", 2.0, 4.0),
        ("h100", 1.0, 5.0),
    ]


POLICIES = ["fifo", "srtf", "sjf-bsbf", "muri-s", "gimbal:inner=sjf-bsbf", "gandiva", "afs-l"]


def checked(story: Story) -> None:
    """Checks that what all jobs pay for is what was held, in all and month by month."""
    held = holdings_of(story.tally.segments, story.scene.cluster)
    whole = story.tally.integrals["held"]
    assert held.gpu_s == pytest.approx(whole, rel=1e-9, abs=1e-9)
    who = ChargedLabel("user", [f"user{job % 3}" for job in range(len(story.scene.trace))])
    months = Months(0.0, epoch_s=1.7112e9, zone="Europe/Berlin")  # ends a month in the run
    table = chargeback(held, who, months)
    assert table["gpu_hours"].sum() * HOUR_S == pytest.approx(whole, rel=1e-9, abs=1e-9)
    assert (table["gpu_hours"] > 0).all()


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=15, deadline=None)
@given(scene=scenes())
def test_what_is_paid_adds_up_to_what_was_held(policy: str, scene: Scene) -> None:
    checked(play_scene(scene, parse_policy(policy)))


@given(
    data=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 30),
            st.integers(1, 20),
            st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_any_stays_on_gpus_add_up_to_the_time_that_somebody_is_there(
    data: list[tuple[int, int, int, float]],
) -> None:
    segments = [
        on_gpu(job, float(start), float(start + length), gpu=gpu, fraction=fraction)
        for job, (gpu, start, length, fraction) in enumerate(data)
    ]
    busy = {(gpu, t) for gpu, start, length, _ in data for t in range(start, start + length)}
    held = holdings_of(segments, Cluster.parse("1x4"))
    assert held.gpu_s == pytest.approx(len(busy))


def test_idle_gpus_are_a_row_or_divided_by_gpu_hours() -> None:
    cluster = Cluster.parse("1x4:a100")
    held = holdings_of(
        [
            Segment(0, Placement(((0, 1),)), 0.0, 0.0, 4 * HOUR_S, 0.0, 0),
            Segment(1, Placement(((0, 3),)), 0.0, 0.0, 2 * HOUR_S, 0.0, 0),
        ],
        cluster,
    )
    who, prices = ChargedLabel("user", ["ann", "bob"]), GpuPrices({}, 2.0)
    # 16 GPU-hours are there, 4 and 6 are held, 6 idle.
    apart, shared = (
        chargeback(
            held,
            who,
            RELATIVE,
            cluster=cluster,
            prices=prices,
            share_idle=share_idle,
            to_s=4 * HOUR_S,
        )
        for share_idle in (False, True)
    )
    assert apart.select("who", "gpu_hours", "idle_gpu_hours", "cost").rows() == [
        ("ann", 4.0, 0.0, 8.0),
        ("bob", 6.0, 0.0, 12.0),
        (IDLE, 0.0, 6.0, 12.0),
    ]
    assert shared.select("who", "idle_gpu_hours").rows() == [
        ("ann", pytest.approx(2.4)),
        ("bob", pytest.approx(3.6)),
    ]
    assert shared["cost"].sum() == pytest.approx(apart["cost"].sum())
    assert dict(shared.schema) == dict(CHARGE_COLUMNS)


def test_a_job_over_midnight_is_divided_between_the_months_of_its_zone() -> None:
    # 2024-03-31 in Berlin has 23 hours: April begins at 22:00 UTC, an hour earlier than March did.
    april_s = 1711922400.0
    segment = Segment(0, Placement(((0, 1),)), april_s - 2 * HOUR_S, 0.0, april_s + HOUR_S, 0.0, 0)
    held = holdings_of([segment], ONE)
    who = ChargedLabel("user", ["ann"])
    local = chargeback(held, who, months_of(april_s, "", "Europe/Berlin"), from_s=april_s)
    assert local.select("month", "gpu_hours").rows() == [("2024-03", 2.0), ("2024-04", 1.0)]
    utc = chargeback(held, who, months_of(april_s, "", ""), from_s=april_s)
    assert utc.select("month", "gpu_hours").rows() == [("2024-03", 3.0)]


def test_the_date_of_second_0_gives_a_trace_its_months() -> None:
    months = months_of(500.0, "2024-12-30", "Europe/Berlin")
    names = [name for name, _, _ in months.between(500.0, 500.0 + 40 * DAY_S)]
    assert names == ["2024-12", "2025-01", "2025-02"]
    (_, _, new_year_s), *_ = months.between(500.0, 600.0)
    assert new_year_s == 2 * DAY_S
    assert "time zone Europe/Berlin" in months.words


def test_without_a_date_months_are_30_days_from_the_first_submission() -> None:
    months = months_of(500.0, "", "")
    assert list(months.between(500.0, 500.0 + MONTH_S + 1)) == [
        ("month 1", 500.0, 500.0 + MONTH_S),
        ("month 2", 500.0 + MONTH_S, 500.0 + 2 * MONTH_S),
    ]
    assert "30 days" in months.words


@pytest.mark.parametrize(
    ("first_s", "start", "zone", "words"),
    [
        (0.0, "March", "", "is not a date"),
        (1.7e9, "2024-03-04", "", "dates already"),
        (0.0, "", "Europe/Berlin", "no calendar months"),
        (0.0, "2024-03-04", "Europe/Berln", "did you mean 'Europe/Berlin'"),
    ],
)
def test_dates_that_cannot_be_used_are_refused(
    first_s: float, start: str, zone: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        months_of(first_s, start, zone)


def recorded_trace(*, gpu_type: str = "") -> Trace:
    """Returns three jobs: one that restarted, one without an end, one that never started."""
    trace = trace_of(*[Row(2, 3600.0, gpu_type=gpu_type)] * 3)
    nothing = Labels.none(3)
    return replace(
        trace,
        recorded=Recorded(
            start_s=np.array([100.0, 50.0, np.nan]),
            end_s=np.array([1100.0, np.nan, np.nan]),
            wait_s=np.array([500.0, np.nan, np.nan]),
            restarts=np.array([1, 0, 0]),
            nodes=nothing,
        ),
    )


def test_a_log_that_records_starts_is_charged_as_it_was() -> None:
    held, never = recorded_holdings(recorded_trace(), ONE, "log.csv")
    # Job 0: 600 s with GPUs of 1100 s in the system; job 1: its run time after its start.
    assert paid(held) == {0: 1200.0, 1: 7200.0}
    assert held.types == ("a100",)
    assert never == 1


def test_a_trace_without_starts_is_refused_with_what_to_do() -> None:
    with pytest.raises(InputError, match=r"dovetail simulate log\.csv"):
        recorded_holdings(trace_of(Row(1, 10.0)), None, "log.csv")


def test_jobs_without_a_type_are_refused_on_a_cluster_of_several() -> None:
    with pytest.raises(InputError, match="3 jobs name no GPU type"):
        recorded_holdings(recorded_trace(), Cluster.parse("1x2:a100+1x2:h100"), "log.csv")


def test_a_cluster_that_is_too_small_for_the_log_is_refused() -> None:
    trace = recorded_trace(gpu_type="a100")
    held, _ = recorded_holdings(trace, ONE, "log.csv")
    with pytest.raises(InputError, match="give the cluster that ran the log"):
        chargeback(held, payers(trace, ""), RELATIVE, cluster=ONE, to_s=3650.0)


def test_the_first_label_that_jobs_name_pays() -> None:
    trace = trace_of(Row(1, 1.0, user="ann", queue="dev"), Row(1, 1.0, user="bob"))
    assert payers(trace, "") == ChargedLabel("queue", ["dev", NOBODY])
    assert payers(trace, "user") == ChargedLabel("user", ["ann", "bob"])
    assert payers(trace_of(Row(1, 1.0)), "") == ChargedLabel("account", [NOBODY])
    with pytest.raises(InputError, match="no job names its account"):
        payers(trace, "account")


def test_a_run_is_charged_from_its_event_log_with_accounts(tmp_path: Path) -> None:
    trace = trace_of(Row(2, 3600.0), Row(1, 7200.0))
    trace = replace(trace, jobs=replace(trace.jobs, account=Labels.of(["vision", "text"])))
    log = tmp_path / "events.jsonl"
    options = Options(Cluster.parse("1x2"))
    result = simulate(trace, parse_policy("fifo"), options, log_to=log)
    recording = read_recording(log)
    held = holdings_of(recording.tally().segments_until(0.0), recording.options.cluster)
    who = payers(recording.trace, "")
    table = chargeback(held, who, RELATIVE)
    assert who.by == "account"
    assert table.select("who", "gpu_hours").rows() == [("text", 2.0), ("vision", 2.0)]
    assert table["gpu_hours"].sum() * HOUR_S == pytest.approx(
        result.jobs.select(pl.col("service_gpu_s").sum()).item()
    )


def test_jobs_that_still_run_are_charged_up_to_the_last_moment() -> None:
    story = play([Row(1, 100.0)], "fifo", "1x1")
    tally = story.tally
    tally.record([fact for fact in story.facts if fact.t == 0.0])
    assert [s.end_s for s in tally.segments_until(150.0)] == [100.0, 150.0]


def test_nobody_holds_anything_and_nothing_is_charged() -> None:
    table = chargeback(holdings_of([], ONE), ChargedLabel("user", []), RELATIVE)
    assert table.is_empty()

"""Why a policy wins: waiting saved by size and length, jobs overtaken, what the policy says."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from builders import Row, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.job import Labels
from dovetail.core.switching import Switching
from dovetail.core.trace import Recorded
from dovetail.record.result import Comparison
from dovetail.report.changes import changes, is_off
from dovetail.report.comparison_tables import OFF, changes_tables
from dovetail.report.report import comparison_report
from dovetail.report.tables import why_view
from dovetail.report.why import Why, overtaken, why
from dovetail.study.compare import compare
from dovetail.study.options import Options

OPTIONS = Options(Cluster.parse("1x1"), switching=Switching.parse("none"))


def long_before_short() -> Comparison:
    """Returns a day's job, then three of 5 minutes and one of two hours, all for one GPU."""
    rows = [Row(1, 86400.0), *[Row(1, 300.0, submit_s=10.0)] * 3, Row(1, 7200.0, submit_s=10.0)]
    return compare(trace_of(*rows), ["fifo", "srtf"], OPTIONS, processes=1)


def found() -> Why:
    reason = why(long_before_short(), "srtf:bypass=skip")
    assert reason is not None
    return reason


def test_the_waiting_saved_is_divided_by_size_and_length_as_worked_by_hand() -> None:
    table = found().table
    # First come: the short jobs start at 86400, 86700, 87000, the longer one at 87300.
    # Shortest first: they run at 10, 310, 610 and 910, and the day's job waits 8100 s for all.
    rows = {row["length"]: row for row in table.to_dicts()}
    assert rows["up to 10 min"]["saved_s"] == pytest.approx(3 * 86390.0)
    assert rows["up to 4 h"]["saved_s"] == pytest.approx(86390.0)
    assert rows["over 4 h"]["saved_s"] == pytest.approx(-8100.0)
    assert table["jobs"].to_list() == [3, 1, 1]
    assert table["share"].sum() == pytest.approx(1.0, abs=1e-5)
    assert (table["gain"].sum(), table["lose"].sum()) == (4, 1)


def test_the_words_name_the_mechanism_and_who_was_overtaken_and_stopped() -> None:
    words = found().words
    assert words.startswith("srtf: Shortest remaining time first")
    assert "Against fifo it saves 94 h of waiting: 4 of 5 jobs wait less, 1 longer." in words
    assert "jobs of 1 GPU that hold them up to 10 min" in words
    assert "runs cut short: 1 (before 0)" in words


@pytest.mark.parametrize("seed", range(5))
def test_overtaken_jobs_are_those_that_a_later_one_started_before(seed: int) -> None:
    random = np.random.default_rng(seed)
    submit_s = np.sort(random.integers(0, 20, 40)).astype(float)
    start_s = submit_s + random.integers(0, 30, 40)
    jobs = pl.DataFrame({"submit_s": submit_s, "start_s": start_s})
    pairs = list(zip(submit_s, start_s, strict=True))
    plain = sum(any(t > s and b < a for t, b in pairs) for s, a in pairs)
    assert overtaken(jobs) == plain


def test_the_page_has_the_table_beside_who_pays_and_the_baseline_none() -> None:
    comparison = long_before_short()
    assert why(comparison, comparison.baseline) is None
    (payer,) = [p for p in changes_tables(comparison) if p.name == "srtf"]
    assert payer.why == found().words
    listed = payer.tables[-1].table
    assert listed.frame is not None
    assert len(listed.rows) == len(listed.frame) == 3


def beside_a_log(site: str = "fifo") -> Comparison:
    """Returns the same on a log whose short jobs never waited: the replay of fifo is far off."""
    rows = [Row(1, 86400.0), *[Row(1, 300.0, submit_s=10.0)] * 3, Row(1, 7200.0, submit_s=10.0)]
    starts_s = [0.0, 10.0, 10.0, 10.0, 86300.0]
    ends_s = [86400.0, 310.0, 310.0, 310.0, 93500.0]
    record = Recorded(
        np.array(starts_s), np.array(ends_s), np.full(5, np.nan), np.zeros(5, int), Labels.none(5)
    )
    logged = replace(trace_of(*rows), recorded=record)
    return compare(logged, ["fifo", "srtf"], OPTIONS, processes=1, site=site)


def test_beside_a_log_the_saving_is_told_from_the_log_too_and_marked_where_the_replay_errs() -> (
    None
):
    reason = why(beside_a_log(), "srtf:bypass=skip")
    assert reason is not None
    rows = {row["length"]: row for row in reason.table.to_dicts()}
    short, longer = rows["up to 10 min"], rows["up to 4 h"]
    # Under srtf the short jobs wait 0, 300 and 600 s, in the log not at all.
    assert (short["recorded_wait_s"], short["recorded_saved_s"]) == (0.0, -900.0)
    assert short["replay_off"]
    # The replay waits 87290 s, the log 86290 s: the replay errs by less than the 86390 s saved.
    assert longer["recorded_wait_s"] == pytest.approx(86290.0)
    assert not longer["replay_off"]
    assert "The replay of fifo waits unlike the log: for jobs with 1 GPU" in reason.words
    assert "may be the replay's error" in reason.words
    assert "Against the log itself it saves 21 h" in reason.words
    console = Console(width=80, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(why_view(reason))
    text = capture.get()
    assert "recorded" in text and "from log" in text and text.count(" *") == 2


def test_a_baseline_that_stands_for_no_site_is_no_replay() -> None:
    reason = why(beside_a_log(site="srtf"), "srtf:bypass=skip")
    assert reason is not None
    assert (
        not reason.table["replay_off"].any() and reason.table["recorded_wait_s"].is_not_null().all()
    )
    assert "replay" not in reason.words


def test_who_pays_names_the_sizes_that_the_replay_misses_and_marks_the_groups() -> None:
    comparison = beside_a_log()
    (payer,) = [p for p in changes_tables(comparison) if p.name == "srtf"]
    listed = payer.tables[-1].table
    assert [row.note for row in listed.rows] == [OFF, "", ""]
    assert {"recorded_wait_s", "replay_off"} <= set(listed.frame.columns)
    assert "against the log" in payer.words
    page = comparison_report(comparison)
    section = page[page.index('id="who-pays"') :]
    assert section.index("The replay of fifo waits unlike the log") < section.index("<details")
    plain = changes_tables(long_before_short())[0].tables[-1].table.frame
    assert plain is not None and "recorded_wait_s" not in plain.columns


def test_changes_of_groups_are_beside_the_log() -> None:
    frame = changes(beside_a_log(), "srtf:bypass=skip", "size_class")
    (row,) = frame.to_dicts()
    # Mean JCT in the log: 86400, three of 300 and 93490 s.
    assert row["recorded_s"] == pytest.approx((86400 + 900 + 93490) / 5)
    assert row["recorded_total_s"] == pytest.approx(row["jct_s"] * 5 - 180790)
    assert row["replay_off"] is True


def test_an_error_of_more_than_half_of_the_change_is_marked() -> None:
    comparison = beside_a_log()
    pairs = pl.DataFrame({"base": [100.0], "ours": [0.0], "recorded": [49.0]})
    for recorded, marked in ((49.0, True), (51.0, False), (151.0, True)):
        frame = pairs.with_columns(pl.lit(recorded).alias("recorded"))
        assert frame.select(is_off(comparison, "base", "ours")).item() == marked

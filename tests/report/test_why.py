"""Why a policy wins: waiting saved by size and length, jobs overtaken, what the policy says."""

import numpy as np
import polars as pl
import pytest

from builders import Row, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.switching import Switching
from dovetail.record.result import Comparison
from dovetail.report.comparison_tables import changes_tables
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

"""How much of the GPUs a log held, by type, hour and weekday, agrees with what happened."""

import io
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from rich.console import Console

from dovetail.core.cluster import Cluster
from dovetail.core.job import JobTable, Labels
from dovetail.core.trace import ImportRecord, Recorded, Trace
from dovetail.core.units import HOUR_S
from dovetail.study.options import Options
from dovetail.study.recorded import recorded_run
from dovetail.study.utilization import utilization
from dovetail.traces.describe import Utilization, describe
from dovetail.traces.describe_text import print_description


def log(start_h: list[float], end_h: list[float], types: list[str], **dated: object) -> Trace:
    """Returns jobs of two GPUs, submitted an hour before their start, on 2x2 of a and 1x2 of b."""
    n = len(start_h)
    start_s, end_s = np.array(start_h) * HOUR_S, np.array(end_h) * HOUR_S
    jobs = JobTable.build(
        [f"j{i}" for i in range(n)],
        start_s - HOUR_S,
        np.full(n, 2),
        gpu_type=Labels.of(types),
    )
    trace = Trace.of(jobs, end_s - start_s, "log")
    record = Recorded(
        start_s, end_s, np.full(n, HOUR_S), np.zeros(n, np.int64), Labels.of([""] * n)
    )
    origin = ImportRecord("log.txt", "slurm", {}, 0.0, 0.0, cluster="2x2:a+1x2:b", **dated)  # type: ignore[arg-type]
    return replace(trace, recorded=record, imported=origin)


def found(trace: Trace) -> Utilization:
    held = utilization(trace)
    assert held is not None
    return held


def test_what_was_held_is_over_the_whole_window_of_the_log() -> None:
    # From the submission at hour 7 to the end at hour 17: type a holds 2 of 4 GPUs for 4 h and
    # for 1.5 h, type b both of its GPUs for 5 h.
    trace = log([8, 10, 12], [12, 11.5, 17], ["A", "a", "b"])
    held = found(trace)
    assert (held.from_s, held.until_s) == (7 * HOUR_S, 17 * HOUR_S)
    assert [(r.gpu_type, r.installed_gpus) for r in held.rows] == [("", 6), ("a", 4), ("b", 2)]
    assert [r.mean for r in held.rows] == pytest.approx([21 / 60, 11 / 40, 10 / 20])
    a = held.rows[1].by_hour_of_day
    assert a[7:13] == pytest.approx((0, 0.5, 0.5, 1, 0.75, 0))
    assert a[6] is None and a[17] is None
    assert held.rows[2].by_weekday == (0.5, *[None] * 6)
    run = recorded_run(trace, Options(Cluster.parse("2x2:a+1x2:b")))
    assert run is not None and run.number("gpu_utilization") == pytest.approx(held.rows[0].mean)


def test_hours_and_weekdays_are_those_of_the_clocks_of_the_site() -> None:
    # Berlin sets its clocks back in the night of 2025-10-26: 24:00 on Saturday is 22:00 UTC.
    midnight = datetime(2025, 10, 25, 22, tzinfo=UTC).timestamp()
    trace = log([1, 3], [2, 5], ["a", "a"], epoch_s=midnight, zone="Europe/Berlin")
    held = found(trace).rows[1]
    # The hours since midnight are 00, 01, 02, 02 again and 03.
    assert held.by_hour_of_day[:5] == pytest.approx((0, 0.5, 0.25, 0.5, None))
    assert held.by_weekday == (*[None] * 6, pytest.approx(0.3))


def test_the_split_adds_up_whatever_the_second_0_of_a_log() -> None:
    trace = log([1.37, 30.1, 31], [55.5, 44.2, 33.3], ["a", "a", "b"], epoch_s=1234.5)
    for row in found(trace).rows:
        assert all(share is None or 0 <= share <= 1 for share in row.by_hour_of_day)
        assert sum(share is not None for share in row.by_weekday) == 3
    assert found(trace).rows[0].mean == pytest.approx(
        2 * (55.5 - 1.37 + 14.1 + 2.3) / (6 * (55.5 - 0.37))
    )


def test_the_text_names_the_clock_and_not_a_second_0_that_has_a_date() -> None:
    def text(trace: Trace) -> str:
        stream = io.StringIO()
        told = replace(describe(trace), utilization=utilization(trace))
        print_description(told, Console(file=stream, width=80))
        assert max(map(len, stream.getvalue().splitlines())) <= 80
        return stream.getvalue()

    undated = text(log([8, 12], [12, 17], ["a", "b"]))
    assert "counted from second 0" in undated and "in use" not in undated
    assert "submission to the last end, 10.0 h" in undated
    dated = text(log([8, 12], [12, 17], ["a", "b"], epoch_s=0.0, zone="Europe/Berlin"))
    assert "on the clocks of Europe/Berlin" in dated and "second 0" not in dated
    zoneless = text(log([8, 12], [12, 17], ["a", "b"], epoch_s=0.0))
    assert "no --timezone" in zoneless and "second 0" not in zoneless


def test_a_log_without_starts_has_no_utilization() -> None:
    assert utilization(replace(log([1], [2], ["a"]), recorded=None)) is None

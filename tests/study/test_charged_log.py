"""The charges of an operator's log (tests/sacct_log.py), to the cent of what its jobs held."""

from collections import Counter
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path

import pytest

from dovetail.core.errors import InputError
from dovetail.core.trace import ImportRecord, Recorded, Trace
from dovetail.core.units import HOUR_S
from dovetail.study.chargeback import chargeback, month_doubt, payers, recorded_holdings
from dovetail.study.months import Months, months_of
from dovetail.study.prices import GpuPrices
from dovetail.traces.importing import import_trace
from dovetail.traces.readers.format import ReadOptions
from sacct_log import ZONE, log_lines, logged_jobs

PRICES = GpuPrices({"a100": 2.10, "v100": 0.80})
NOVEMBER_S = datetime(2025, 11, 1, tzinfo=ZONE).timestamp()
Key = tuple[str, str, str]


@cache
def truth() -> dict[Key, float]:
    """Returns the cost by month, account and type of all runs of all jobs, requeued ones too."""
    spent: Counter[Key] = Counter()
    for job in logged_jobs():
        price = PRICES.per_gpu_h(job.gpu_type) * job.gpus / HOUR_S
        for run in job.attempts:
            before_s = max(0.0, min(run.end_s, NOVEMBER_S) - run.start_s)
            spent["2025-10", job.account, job.gpu_type] += before_s * price
            spent["2025-11", job.account, job.gpu_type] += (
                run.end_s - run.start_s - before_s
            ) * price
    return dict(spent)


def test_accounts_pay_all_runs_of_their_jobs_to_the_cent(tmp_path: Path) -> None:
    trace, months = imported(tmp_path)
    held, _ = recorded_holdings(trace, None, "log")
    table = chargeback(held, payers(trace, "account"), months, prices=PRICES)
    charged = {(month, who, kind): cost for month, who, kind, _, _, cost in table.iter_rows()}
    expected = truth()
    # One job on 16 V100 was cut short in October and ran again in November.
    assert {key for key in expected if abs(charged.get(key, 0.0) - expected[key]) > 0.005} == set()
    assert month_doubt(trace, months) == (0, 0.0)
    unlisted = replace(trace, recorded=replace(recorded(trace), runs=None))
    jobs, gpu_h = month_doubt(unlisted, months)
    assert (jobs, gpu_h > 0) == (1, True)


def recorded(trace: Trace) -> Recorded:
    assert trace.recorded is not None
    return trace.recorded


def imported(folder: Path) -> tuple[Trace, Months]:
    path = folder / "sacct.txt"
    path.write_text("\n".join(log_lines(logged_jobs())) + "\n")
    trace = import_trace([path], options=ReadOptions(timezone="Europe/Berlin"))
    return trace, months_of(float(trace.jobs.submit_s[0]), "2025-10-13", "Europe/Berlin")


def test_a_date_does_not_override_those_of_the_log_and_keeps_its_zone() -> None:
    log = ImportRecord("sacct.txt", "slurm", {}, 0.0, 0.0, epoch_s=1.7e9, zone="Europe/Berlin")
    with pytest.raises(InputError, match="the import recorded the dates of the log"):
        months_of(0.0, "2024-01-01", "", log)
    undated = replace(log, epoch_s=None)
    assert months_of(0.0, "2024-01-01", "", undated).zone == "Europe/Berlin"

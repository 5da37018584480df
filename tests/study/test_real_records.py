"""Real logs with a record: Muri's 400 jobs on 64 GPUs under each policy, and Alibaba's openb.

The replays decide every six minutes and pay measured start-ups, as the testbed did; what remains is
the pace of the real executor (papers/muri/testbed.py tells how far that goes). The testbed's logs
count as executed what some policies waited after the first start, so waits are not compared.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dovetail.core.cluster import Cluster
from dovetail.core.job import Labels
from dovetail.core.switching import Switching
from dovetail.core.trace import Recorded, Trace
from dovetail.record.replay_error import ReplayError
from dovetail.record.result import RECORDED
from dovetail.study.compare import compare
from dovetail.study.options import Options
from dovetail.study.traces import open_traces

TESTBED = Options(
    Cluster.parse("8x8"),
    switching=Switching.parse("per-start:profile"),
    adopt=(("shareable", 1.0),),
)
POLICIES = {
    "SRTF": "ticked:inner=srtf,period-s=360",
    "SRSF": "ticked:inner=srsf,period-s=360",
    "tiresias": "ticked:inner=tiresias:thresholds=3250/7200;inside=list,period-s=360",
    "themis": "ticked:inner=themis,period-s=360",
    "Muri-S": "muri-s:tick-s=360",
    "Muri-L": "muri-l:tick-s=360",
}


def with_log(trace: Trace, log: pl.DataFrame) -> Trace:
    """Returns the trace with the record of a log of Muri's testbed."""
    rows = pl.DataFrame({"job_id": trace.jobs.job_id}).join(
        log.with_columns(pl.col("job_id").cast(pl.String)), on="job_id", maintain_order="left"
    )
    assert len(rows) == len(trace)
    wait_s = (rows["JCT"] - rows["executed_time"]).clip(0.0)
    record = Recorded(
        rows["start_time"].to_numpy(),
        trace.jobs.submit_s + rows["JCT"].to_numpy(),
        wait_s.to_numpy(),
        (rows["job_counter"] - 1).clip(0).to_numpy().astype(np.int64),
        Labels.none(len(trace)),
    )
    return replace(trace, recorded=record)


def replayed(folder: Path, name: str) -> tuple[ReplayError, float]:
    trace = open_traces([folder / "cluster_trace.csv"])
    log = pl.read_csv(folder / "results" / f"{name}.job.csv")
    found = compare(with_log(trace, log), [POLICIES[name]], TESTBED, processes=1)
    assert found.replay_error is not None
    assert found.results[RECORDED].number("avg_jct_s") == pytest.approx(log["JCT"].mean(), rel=1e-6)
    ratio = found.table["ratio_to_baseline"][0]
    return found.replay_error, float(ratio)


@pytest.mark.parametrize(
    ("name", "within"), [("SRTF", 0.05), ("SRSF", 0.08), ("tiresias", 0.08), ("themis", 0.15)]
)
def test_a_replay_of_the_testbed_is_near_its_log(data_dir: Path, name: str, within: float) -> None:
    check(*replayed(data_dir / "data/muri/testbed", name), within)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Muri-S", "Muri-L"])
def test_a_replay_of_interleaving_is_near_its_log(data_dir: Path, name: str) -> None:
    check(*replayed(data_dir / "data/muri/testbed", name), 0.15)


def check(error: ReplayError, ratio: float, within: float) -> None:
    """The replay has the mean of the log, and starts jobs in its order; 1 / ratio is its error."""
    assert error.jobs == 400
    mean = error.number("avg_jct_s")
    assert mean is not None and mean.error is not None
    assert abs(mean.error) < within
    assert ratio == pytest.approx(1 / (1 + mean.error))
    assert error.start_correlation is not None
    assert error.start_correlation > 0.99
    assert sum(group.jobs for group in error.by_size) == 400


def test_openb_is_replayed_against_its_schedule_by_size_and_queue(data_dir: Path) -> None:
    trace = open_traces([data_dir / "traces/alibaba_gpu_v2023/openb_pod_list_default.csv.gz"])
    assert trace.recorded is not None
    table = replace(trace.jobs, gpu_type=Labels.none(len(trace)))
    # The log holds at most this many whole GPUs; its 6,212 are shared with fractions.
    options = Options(Cluster.parse("777x8"))
    found = compare(replace(trace, jobs=table), ["fifo"], options, processes=1)
    error = found.replay_error
    assert error is not None
    assert error.jobs == len(trace)
    assert {group.group for group in error.by_size} >= {"1", "2-4", "5-8"}
    assert len(error.by_queue) > 1
    assert error.near > 0.9

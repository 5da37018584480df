"""The public traces, against the totals their authors published or that were checked before."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dovetail.core.errors import InputError
from dovetail.core.trace import Trace
from dovetail.traces.importing import import_trace
from dovetail.traces.readers.format import ReadOptions
from dovetail.traces.step_times import read_step_times
from dovetail.traces.transform import gpu_seconds, offered_load

VIRTUAL_CLUSTERS = {
    "0e4a51": 2465,
    "103959": 2677,
    "11cb48": 19048,
    "2869ce": 956,
    "51b7ef": 63,
    "6214e9": 51258,
    "6c71a0": 14783,
    "e13805": 938,
    "ed69ec": 1400,
    "ee9e8c": 5452,
}


def open_trace(path: Path) -> Trace:
    """Returns the trace of a file in any known format."""
    return import_trace([path])


@pytest.fixture(scope="module")
def afs_options(data_dir: Path) -> ReadOptions:
    return ReadOptions(read_step_times(data_dir / "traces/profiles/afs/afs_step_times.csv"))


@pytest.fixture(scope="module")
def philly(data_dir: Path, afs_options: ReadOptions) -> Trace:
    files = sorted((data_dir / "traces/philly/afs_vcs").glob("*.csv.gz"))
    return import_trace(files, options=afs_options)


def test_every_afs_job_ran_a_whole_number_of_seconds(philly: Trace) -> None:
    assert philly.counts == {"read": 99040, "usable": 99040}
    assert (philly.duration_s == np.round(philly.duration_s)).all()
    queues = philly.jobs.queue
    counted = np.bincount(queues.codes)
    assert dict(zip(queues.names, counted.tolist(), strict=True)) == VIRTUAL_CLUSTERS


def test_the_service_trap_is_avoided(data_dir: Path, afs_options: ReadOptions) -> None:
    """Philly's own log, one job at a time: same cluster, same second, same GPUs, same run time."""
    log = import_trace([data_dir / "traces/philly/philly.csv.gz"], origin="keep")
    assert log.counts["read"] == 74101

    def keyed(trace: Trace) -> pl.DataFrame:
        key = [
            trace.jobs.queue.texts(),
            np.round(trace.jobs.submit_s).astype(np.int64),
            trace.jobs.gpus,
        ]
        frame = pl.DataFrame([*map(pl.Series, key), pl.Series(trace.duration_s)])
        frame.columns = ["queue", "submit", "gpus", "duration"]
        return frame.filter(~pl.struct("queue", "submit", "gpus").is_duplicated())

    files = sorted((data_dir / "traces/philly/afs_vcs").glob("*.csv.gz"))
    both = keyed(import_trace(files, options=afs_options, origin="keep")).join(
        keyed(log), on=["queue", "submit", "gpus"]
    )
    assert both.height > 50_000
    same = (both["duration"] == both["duration_right"]).mean()
    assert isinstance(same, float) and same > 0.99


def test_winter_time_begins_in_the_middle_of_philly(data_dir: Path) -> None:
    log = open_trace(data_dir / "traces/philly/philly.csv.gz")
    text = pl.read_csv(data_dir / "traces/philly/philly.csv.gz")["timestamp"].drop_nulls()
    naive = text.str.to_datetime("%Y-%m-%d %H:%M:%S").dt.epoch("s").sort()
    elapsed = log.jobs.submit_s[-1] - log.jobs.submit_s[0]
    assert elapsed == naive[-1] - naive[0] + 3600


@pytest.mark.parametrize(
    ("name", "jobs", "load"), [("trace3", 992, 0.8), ("trace4", 2638, 1.6), ("trace2", 5755, 5.4)]
)
def test_muri_offers_the_published_loads_on_64_gpus(
    data_dir: Path, name: str, jobs: int, load: float
) -> None:
    path = data_dir / f"traces/muri/{name}.csv.gz"
    trace = open_trace(path)
    assert len(trace) == trace.counts["read"] == jobs
    assert round(offered_load(trace, 64), 1) == load
    recorded = import_trace([path], options=ReadOptions(work="duration"))
    one_iteration = trace.duration_s / trace.iterations
    assert (np.abs(recorded.duration_s - trace.duration_s) <= one_iteration).all()


def test_itp_has_the_jobs_of_its_eight_clusters(data_dir: Path) -> None:
    files = sorted((data_dir / "traces/itp/raw").glob("*.csv.gz"))
    trace = import_trace(files)
    assert trace.counts == {"read": 55206, "usable": 55206}
    assert trace.duration_s.min() == 600.0
    assert trace.jobs.queue.names == tuple(p.name.removesuffix(".csv.gz") for p in files)
    # The published 1,632,719.7 GPU-hours are of ten clusters; these eight have this much of it.
    assert gpu_seconds(trace) / 3600 == pytest.approx(1_428_276.5, abs=0.1)
    more = import_trace(sorted((data_dir / "traces/itp/elasticflow").glob("cluster*.csv.gz")))
    assert sorted(more.jobs.job_id) == sorted(trace.jobs.job_id)
    assert gpu_seconds(more) == gpu_seconds(trace)
    assert np.isfinite(more.jobs.deadline_s).all()


def test_dirlab_has_users_and_ends(data_dir: Path) -> None:
    philly = open_trace(data_dir / "traces/dirlab/philly_data_training.first12000.csv.gz")
    assert len(philly) == 12000
    assert len(philly.jobs.user.names) == 125
    assert (np.bincount(philly.end) / 12000).round(2).tolist() == [0.58, 0.27, 0.14]
    helios = open_trace(data_dir / "traces/dirlab/helios_data_training.first12000.csv.gz")
    assert (len(helios), helios.counts["rejected: no GPU"]) == (9076, 2924)
    assert helios.jobs.gpus.max() == 160


def test_openb_counts_pods_that_share_and_pods_that_wait(data_dir: Path) -> None:
    trace = open_trace(data_dir / "traces/alibaba_gpu_v2023/openb_pod_list_default.csv.gz")
    assert trace.counts["read"] == 8152
    assert trace.counts["rejected: never scheduled"] == 897
    none, part = trace.jobs.gpu_part == 0, (trace.jobs.gpu_part > 0) & (trace.jobs.gpu_part < 1)
    # 36 of the 1,088 pods without GPU and 505 of the 3,078 with a part of one never ran.
    assert (int(none.sum()), int(part.sum()), len(trace)) == (1052, 2573, 7255)
    with pytest.raises(InputError, match="has no times at all"):
        open_trace(data_dir / "traces/alibaba_gpu_v2023/openb_pod_list_multigpu50.csv.gz")


@pytest.mark.parametrize(
    ("path", "usable"),
    [
        ("traces/alibaba_gpu_v2020/gaia_pai-100k.first80000.csv.gz", 80000),
        ("traces/alibaba_gpu_v2020/gaia_pai_1k.csv", 1000),
        ("traces/format_samples/philly_cluster_job_log.sample.json", 2),
        ("traces/format_samples/helios_cluster_log.sample.csv", 3),
        ("traces/format_samples/acme_trace_seren.sample.csv", 2),
        ("traces/format_samples/acme_trace_kalos.sample.csv", 2),
        ("traces/itp/elasticflow/195job.csv.gz", 195),
        ("data/muri/sim-traces/trace3_pr.csv", 992),
        ("data/muri/testbed/cluster_trace.csv", 400),
        ("data/elasticflow/traces/philly_103959.csv", 876),
    ],
)
def test_the_other_samples_are_read_whole(data_dir: Path, path: str, usable: int) -> None:
    assert len(open_trace(data_dir / path)) == usable


def test_gaia_jobs_last_from_minutes_to_days(data_dir: Path) -> None:
    trace = open_trace(data_dir / "traces/alibaba_gpu_v2020/gaia_pai-100k.first80000.csv.gz")
    assert trace.duration_s.min() >= 300
    assert 2 * 86400 < trace.duration_s.max() < 4 * 86400


def test_afs_simulator_traces_keep_their_jobs(data_dir: Path, afs_options: ReadOptions) -> None:
    path = data_dir / "data/afs-models/afs_trace_2869ce.csv"
    trace = import_trace([path], options=afs_options)
    assert len(trace) == 422
    assert trace.jobs.submit_s[0] == 0.0
    # Its jobs are Philly's, so run times are whole seconds up to the rounding of the iterations.
    assert np.abs(trace.duration_s - np.round(trace.duration_s)).max() < 1e-3


def test_gavel_lists_lose_only_jobs_without_a_measured_rate(data_dir: Path) -> None:
    steps = read_step_times(data_dir / "data/gavel/simulation_throughputs.json")
    path = data_dir / "data/gavel/traces/msr-seed0/ed69ec.trace"
    trace = import_trace([path], options=ReadOptions(steps))
    assert trace.counts == {"read": 951, "usable": 951}


def test_an_inference_log_is_refused(data_dir: Path) -> None:
    with pytest.raises(InputError, match="has an unknown format"):
        open_trace(data_dir / "traces/alibaba_gpu_v2025/disaggregated_DLRM_trace.csv.gz")

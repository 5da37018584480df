"""Whatever the bytes, a reader gives a trace or one InputError that names the file."""

import gzip
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.core.errors import InputError
from dovetail.core.trace import Trace
from dovetail.traces.canonical import read_trace
from dovetail.traces.importing import format_names, import_trace
from dovetail.traces.readers.format import ReadOptions
from dovetail.traces.readers.registry import FORMATS
from property_size import examples

OPTIONS = ReadOptions(
    seconds_per_iteration=lambda model, gpus: 0.5 if gpus < 100 else None,
    job_iterations=lambda model, batch: 100.0,
)

HEADERS = {
    "canonical": "job_id,submit_s,gpus,duration_s,status,elastic,deadline_s,min_gpus,model",
    "philly-csv": "timestamp,duration,num_gpus,gpu_time,cluster",
    "afs": "app_id,submit_time,service,num_jobs,sleep_time,model_name",
    "afs-sim": "jid,submit_s,model,iterations,max_gpus_model,req_gpus",
    "muri": "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,iteration_time",
    "pollux": "name,time,application,num_replicas,batch_size",
    "elasticflow": (
        "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration"
    ),
    "itp": "job_id,submission_time,duration,num_gpu",
    "helios": "job_id,user,vc,gpu_num,cpu_num,state,submit_time,start_time,end_time,duration",
    "acme": "job_id,user,node_num,gpu_num,type,state,submit_time,start_time,end_time,duration",
    "pai": "",
    "pai-sim": "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user",
    "gaia": "arrival_time,length,cpus",
    "openb": (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
        "creation_time,deletion_time,scheduled_time"
    ),
    "dirlab": "u_id,user,gpu_num,cpu_num,interval,run_time,new_status",
    "gavel": "",
    "slurm": "JobID|User|Partition|State|Submit|Start|End|Elapsed|Timelimit|AllocTRES",
    "swf": "; UnixStartTime: 5",
    "philly-json": "[",
    "spot-gpu": (
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,"
        "job_type"
    ),
    "supercloud": (
        "id_job,id_user,partition,state,timelimit,time_submit,time_start,time_end,nodelist,"
        "tres_alloc"
    ),
}
PARQUET = {
    "pm100": (
        "job_id,submit_time,start_time,end_time,run_time,num_gpus_alloc,time_limit,job_state,nodes"
    ),
    "nlr": (
        "job_id,submit_time,start_time,end_time,wallclock_req,wallclock_used,nodes_req,partition,"
        "state_simple,gpus_requested,nodelist"
    ),
    "asi": (
        "pod_id,gpu_spec_public,priority_class,gpu_request,duration_hours,workload_id,"
        "model_type_public,job_type_public,schedule_status"
    ),
}
SEPARATORS = {"gavel": "\t", "slurm": "|", "swf": " "}
WIDTHS = {"pai": 10, "gavel": 7, "swf": 18}

VALUES = st.sampled_from(
    [
        *("0", "1", "2", "8", "-1", "-5", "0.5", "1e9", "1e308", "nan", "inf", "-inf", "", "None"),
        *("x", "ä", '"', '""', "2017-11-05 01:30:00", "2017-03-12 02:30:00", "2024-13-01", "None"),
        *("2023-05-17 11:00:58+00:00", "2024-03-04T10:00:00", "Unknown", "02:00:00", "1-00:00:00"),
        *("cpu=8,gres/gpu=4", "gres/gpu:a100=2", "gres/gpu=999999999999999999999", "COMPLETED"),
        *("CANCELLED by 5", "true", "maybe", "Terminated", "LM (batch size 10)", "100.batch"),
        *("9" * 30, "-0.0", "1_000", " 5 ", "\r", "0x10", "600.0", "V100|T4"),
    ]
)


def test_every_format_is_fuzzed() -> None:
    assert {*HEADERS, *PARQUET} == set(format_names())
    assert set(PARQUET) == {known.name for known in FORMATS if known.parquet}


@st.composite
def table(draw: st.DrawFn, name: str) -> bytes:
    """Draws a table of plausible and implausible values, now and then with ragged rows."""
    separator = SEPARATORS.get(name, ",")
    width = WIDTHS.get(name) or HEADERS[name].count(separator) + 1
    ragged = draw(st.booleans())
    widths = st.integers(0, width + 2) if ragged else st.just(width)
    rows = draw(
        st.lists(widths.flatmap(lambda n: st.lists(VALUES, min_size=n, max_size=n)), max_size=6)
    )
    lines = [HEADERS[name], *(separator.join(row) for row in rows)]
    return ("\n".join(line for line in lines if line) + draw(st.sampled_from(["", "\n"]))).encode()


def read_safely(path: Path, name: str) -> None:
    """Reads, and checks the promise: counts add up, or one error that names the file."""
    outcome = outcome_of(lambda: import_trace([path], name, options=OPTIONS))
    if isinstance(outcome, str):
        assert str(path) in outcome
        assert "\n" not in outcome
        return
    assert len(outcome) == outcome.counts["usable"]
    refused = sum(n for reason, n in outcome.counts.items() if reason.startswith("rejected"))
    assert outcome.counts["read"] == outcome.counts["usable"] + refused


def outcome_of(read: Callable[[], Trace]) -> Trace | str:
    """Returns the trace, or the text of the one error that is allowed."""
    try:
        return read()
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("name", sorted(HEADERS))
def test_tables_of_odd_values_never_surprise(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    path = folder / ("pai_task_table.csv" if name == "pai" else "log.txt")

    @settings(examples(15), suppress_health_check=list(HealthCheck))
    @given(table(name))
    def check(data: bytes) -> None:
        path.write_bytes(data)
        read_safely(path, name)

    check()


@pytest.mark.parametrize("name", sorted(HEADERS))
def test_bytes_of_any_kind_never_surprise(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "pai_task_table.csv"
    header = HEADERS[name].encode()

    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=200), st.sampled_from([b"", header + b"\n"]), st.booleans())
    def check(data: bytes, start: bytes, zipped: bool) -> None:
        path.write_bytes(gzip.compress(start + data) if zipped else start + data)
        read_safely(path, name)

    check()


JSON_VALUES: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8) | VALUES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["jobid", "submitted_time", "attempts", "start_time", "end_time", "detail", "gpus"]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=80, suppress_health_check=list(HealthCheck))
@given(JSON_VALUES)
def test_json_of_any_shape_never_surprises(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    import json

    path = tmp_path_factory.getbasetemp() / "log.json"
    path.write_text(json.dumps([value, {"jobid": "a", "attempts": value}]))
    read_safely(path, "philly-json")


@pytest.mark.parametrize("name", PARQUET)
def test_parquet_columns_of_any_type_never_surprise(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    import polars as pl

    path = tmp_path_factory.mktemp("fuzz") / "log.parquet"
    times = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))
    kinds = (
        *(VALUES, st.floats(), st.integers(-(2**40), 2**40), st.booleans(), times),
        *(st.timedeltas(), st.lists(VALUES, max_size=2)),
    )

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(st.data(), st.integers(0, 4), st.integers(0, 4))
    def check(data: st.DataObject, rows: int, gpus_per_node: int) -> None:
        columns = {}
        for column in PARQUET[name].split(","):
            values = st.none() | data.draw(st.sampled_from(kinds))
            columns[column] = data.draw(st.lists(values, min_size=rows, max_size=rows))
        pl.DataFrame(columns, strict=False).write_parquet(path)
        options = ReadOptions(gpus_per_node=gpus_per_node, spread_days=float(gpus_per_node))
        outcome = outcome_of(lambda: import_trace([path], name, options=options))
        assert isinstance(outcome, Trace) or str(path) in outcome

    check()


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_damaged_parquet_file_never_surprises(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    import polars as pl

    path = tmp_path_factory.getbasetemp() / "t.parquet"
    frame = pl.DataFrame({"job_id": ["a"], "submit_s": [0.0], "gpus": [1], "duration_s": [5.0]})
    frame.write_parquet(path)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        whole[data.draw(st.integers(4, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(whole[: data.draw(st.integers(4, len(whole)))]))
    outcome = outcome_of(lambda: read_trace(path))
    assert isinstance(outcome, Trace) or str(path) in outcome

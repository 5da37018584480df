"""Formats that record starts keep them: start, end, waiting time, restarts, nodes."""

import json
from pathlib import Path

import numpy as np
import pytest

from dovetail.core.trace import Recorded
from dovetail.traces.importing import import_trace

HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,u,vc,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:51:01,2020-06-09 19:51:01,3600,600
2,u,vc,1,1,1,CANCELLED,2020-06-09 18:41:01,None,None,3600,600
"""
OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p,1,1,1,1000,,LS,Succeeded,10,130,30
"""
SWF = "; UnixStartTime: 0\n1 10 20 100 8 -1 -1 8 3600 -1 1 3 1 5 1 -1 -1 -1\n"


def record(path: Path, text: str) -> Recorded:
    path.write_text(text)
    found = import_trace([path], origin="first").recorded
    assert found is not None
    return found


def test_helios_keeps_starts_and_ends(tmp_path: Path) -> None:
    found = record(tmp_path / "cluster_log.csv", HELIOS)
    assert found.start_s[0] == found.wait_s[0] == 600.0 and found.end_s[0] == 4200.0
    assert np.isnan([found.start_s[1], found.end_s[1], found.wait_s[1]]).all()


KALOS = """\
job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue
k,u,8,64,960,,FAILED,2023-05-17 11:00:58Z,2023-05-17 11:01:08Z,2023-05-17 11:01:16Z,18,10
n,u,8,64,960,,FAILED,2023-05-17 11:00:58Z,,,18,10
"""


def test_the_duration_of_acme_is_from_start_to_end_as_its_documentation_says(
    tmp_path: Path,
) -> None:
    path = tmp_path / "trace_kalos.csv"
    path.write_text(KALOS.replace("Z,", "+00:00,"))
    trace = import_trace([path], origin="first")
    assert trace.duration_s.tolist() == [8.0, 18.0]
    assert trace.counts["adjusted: duration from start and end"] == 1


@pytest.mark.parametrize(("name", "text"), [("pods.csv", OPENB), ("log.swf", SWF)])
def test_openb_and_swf_keep_starts_and_ends(tmp_path: Path, name: str, text: str) -> None:
    found = record(tmp_path / name, text)
    shift = 0.0 if found.start_s[0] == 30.0 else 10.0
    assert (found.start_s[0] + shift, found.end_s[0] + shift) == (30.0, 130.0)
    assert found.wait_s.tolist() == [20.0]


def test_philly_attempts_are_starts_of_one_job(tmp_path: Path) -> None:
    def attempt(start: str, end: str | None, node: str) -> dict[str, object]:
        day = "2017-10-02 "
        detail = [{"ip": node, "gpus": ["gpu0", "gpu1"]}]
        return {"start_time": day + start, "end_time": end and day + end, "detail": detail}

    job = {
        "status": "Pass",
        "vc": "a",
        "jobid": "j",
        "user": "u",
        "submitted_time": "2017-10-02 10:00:00",
        "attempts": [
            attempt("10:10:00", "10:20:00", "m1"),
            attempt("10:30:00", "11:30:00", "m2"),
            attempt("11:40:00", None, "m3"),
        ],
    }
    found = record(tmp_path / "cluster_job_log", json.dumps([job]))
    assert (found.start_s[0], found.end_s[0]) == (600.0, 5400.0)
    # Ten minutes before each of two runs.
    assert (found.wait_s[0], found.restarts[0]) == (1200.0, 1)
    assert found.nodes.texts() == ["m2"]
    assert found.runs is not None
    assert found.runs.begin_s.tolist() == [0.0, 1200.0]
    assert found.runs.length_s.tolist() == [600.0, 3600.0]


def test_pai_runs_from_the_first_to_the_last_end_of_its_instances(tmp_path: Path) -> None:
    job, task = tmp_path / "pai_job_table.csv", tmp_path / "pai_task_table.csv"
    job.write_text("a,i,u,Terminated,100,250\n")
    task.write_text("a,worker,1,Terminated,130,240,600,10,100,T4\n")
    found = import_trace([job, task], origin="keep").recorded
    assert found is not None
    assert found.start_s[0] - found.wait_s[0] == 100.0
    assert (found.start_s[0], found.end_s[0], found.wait_s[0]) == (130.0, 240.0, 30.0)

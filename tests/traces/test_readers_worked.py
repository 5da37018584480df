"""Each format on a few rows worked by hand."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from dovetail.core.errors import InputError
from dovetail.core.trace import CANCELLED, COMPLETED, FAILED, TIMEOUT, Trace
from dovetail.traces.importing import import_apart, import_trace, sniff
from dovetail.traces.readers.format import ReadOptions
from dovetail.traces.step_times import StepTimes, read_job_iterations, read_step_times

STEPS = StepTimes({"Big": ((1, 8.0), (2, 5.0), (4, 2.0)), "LM (batch size 10)": ((1, 0.5),)})
OPTIONS = ReadOptions(STEPS, lambda model, batch: 1000.0 if model == "Big" else None)


def imported(tmp_path: Path, name: str, text: str, file: str = "log.csv", **more: str) -> Trace:
    path = tmp_path / file
    path.write_text(text)
    assert sniff(path) == name
    return import_trace([path], options=OPTIONS, **more)  # type: ignore[arg-type]


def rows(trace: Trace) -> list[tuple[str, float, int, float]]:
    jobs = trace.jobs
    columns = (jobs.job_id, jobs.submit_s.tolist(), jobs.gpus.tolist(), trace.duration_s.tolist())
    return list(zip(*columns, strict=True))


def test_muri_is_in_milliseconds_and_its_work_is_iterations(tmp_path: Path) -> None:
    text = (
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,iteration_time,"
        "priority\n"
        "0,4,0,1000,bert,16,90500,90,1\n"
        "1,1,1500,10,vgg16,8,1050,100,0\n"
    )
    trace = imported(tmp_path, "muri", text)
    assert rows(trace) == [("0", 0.0, 4, 90.0), ("1", 1.5, 1, 1.0)]
    assert trace.jobs.model.texts() == ["muri/bert", "muri/vgg16"]
    assert trace.iterations.tolist() == [1000.0, 10.0]
    assert trace.jobs.priority.tolist() == [1.0, 0.0]
    path = tmp_path / "log.csv"
    by_duration = import_trace([path], options=ReadOptions(work="duration"))
    assert by_duration.duration_s.tolist() == [90.5, 1.05]
    with pytest.raises(InputError, match="did you mean 'duration'"):
        import_trace([path], options=ReadOptions(work="durations"))


def test_afs_service_is_work_on_one_gpu_not_gpu_seconds(tmp_path: Path) -> None:
    # 800 s of single-GPU work is 100 iterations of 8 s; on 4 GPUs at 2 s each they take 200 s,
    # on 3 GPUs at 3.5 s (between 5 and 2) 350 s. Dividing by the GPUs would give 200 and 266.7.
    text = (
        "app_id,submit_time,service,num_jobs,sleep_time,model_name\n"
        "0,0.0,800.0,4,0.0,Big\n"
        "1,5.0,800.0000001,3,5.0,Big\n"
        "2,6.0,800.0,8,1.0,Big\n"
    )
    trace = imported(tmp_path, "afs", text, "trace_2869ce.csv")
    assert rows(trace) == [("0", 0.0, 4, 200.0), ("1", 5.0, 3, 350.0)]
    assert trace.iterations.tolist() == pytest.approx([100.0, 100.0])
    assert trace.jobs.queue.names == ("2869ce",)
    assert trace.counts["rejected: no step time for the model at that size"] == 1


def test_afs_simulator_jobs_take_iterations_times_step_time(tmp_path: Path) -> None:
    text = (
        "jid,submit_s,model,iterations,max_gpus_model,req_gpus\n"
        "0,0.0,Big,100,4,2\n"
        "1,3.0,Unknown,100,4,2\n"
    )
    trace = imported(tmp_path, "afs-sim", text)
    assert rows(trace) == [("0", 0.0, 2, 500.0)]
    assert trace.jobs.max_gpus.tolist() == [4]
    assert trace.counts["rejected: no step time for the model at that size"] == 1


def test_work_in_iterations_needs_step_times(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("jid,submit_s,model,iterations,req_gpus\n0,0,Big,100,2\n")
    with pytest.raises(InputError, match="needs the seconds an iteration takes"):
        import_trace([path])


def test_philly_keeps_elapsed_time_when_clocks_go_back(tmp_path: Path) -> None:
    # 2017-11-05: 00:30 PDT, then 01:30 twice, then 02:30 PST, which is 3 h after 00:30.
    text = (
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-11-05 02:30:00,60.0,2,120.0,vc1\n"
        "2017-11-05 00:30:00,30.0,1,30.0,vc2\n"
        "2017-11-05 01:30:00,45.0,1,45.0,vc1\n"
        "\n"
    )
    trace = imported(tmp_path, "philly-csv", text, origin="first")
    assert rows(trace) == [("1", 0.0, 1, 30.0), ("2", 3600.0, 1, 45.0), ("0", 10800.0, 2, 60.0)]
    first_pass = "adjusted: local time in an hour that happened twice, read as its first pass"
    assert trace.counts[first_pass] == 1
    assert trace.counts["read"] == 3
    week = import_trace([tmp_path / "log.csv"])
    # Sunday 00:30 of a week that began on Monday 2017-10-30 00:00 local time.
    assert week.jobs.submit_s.tolist() == [6 * 86400 + 1800, 6 * 86400 + 5400, 6 * 86400 + 12600]


PHILLY_LOG = """\
[
  {"status": "Pass", "vc": "v1", "jobid": "application_1", "user": "ann",
   "submitted_time": "2017-10-09 03:00:00",
   "attempts": [
     {"start_time": "2017-10-09 03:01:00", "end_time": "2017-10-09 03:02:00",
      "detail": [{"ip": "m1", "gpus": ["gpu0"]}]},
     {"start_time": "2017-10-09 03:05:00", "end_time": "None", "detail": []},
     {"start_time": "2017-10-09 04:00:00", "end_time": "2017-10-09 05:00:00",
      "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}]}]},
  {"status": "Killed", "vc": "v2", "jobid": "application_2", "user": "bob",
   "submitted_time": "2017-10-09 03:10:00", "attempts": []},
  {"status": "Failed", "vc": "v2", "jobid": "application_3", "user": "bob",
   "submitted_time": "None",
   "attempts": [{"start_time": null, "end_time": "",
                 "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]},
  {"status": "Failed", "vc": "v1", "jobid": "application_4", "user": "eve",
   "submitted_time": "2017-11-05 00:55:00",
   "attempts": [{"start_time": "2017-11-05 01:50:00", "end_time": "2017-11-05 01:10:00",
                 "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]}
]
"""


def test_philly_json_sums_attempts_and_reads_the_word_none(tmp_path: Path) -> None:
    trace = imported(tmp_path, "philly-json", PHILLY_LOG, "cluster_job_log", origin="first")
    # The last job ran over the repeated hour: 01:50 in its first pass to 01:10 in its second.
    assert rows(trace) == [
        ("application_1", 0.0, 3, 3660.0),
        ("application_4", 27 * 86400 - 7500.0, 1, 1200.0),
    ]
    assert trace.end.tolist() == [COMPLETED, FAILED]
    assert trace.jobs.queue.texts() == ["v1", "v1"]
    assert trace.counts == {
        "read": 4,
        "usable": 2,
        "adjusted: attempt without start or end, left out": 2,
        "adjusted: attempts with different GPU counts, largest kept": 1,
        "rejected: no submission time": 1,
        "rejected: no GPU count": 1,
    }


def test_pollux_needs_iterations_from_outside(tmp_path: Path) -> None:
    text = "name,time,application,num_replicas,batch_size\nbig-0,107,Big,2,64\nx-1,108,small,1,8\n"
    trace = imported(tmp_path, "pollux", text)
    assert rows(trace) == [("big-0", 107.0, 2, 5000.0)]
    assert trace.counts["rejected: no work or step time for the application"] == 1
    with pytest.raises(InputError, match="has neither durations nor iterations"):
        import_trace([tmp_path / "log.csv"])


def test_pollux_reads_a_job_as_a_whole_training(tmp_path: Path) -> None:
    head = "name,time,application,num_replicas,batch_size\n"
    (tmp_path / "log.csv").write_text(head + "a,107,Big,2,64\nb,108,Big,4,128\nc,109,none,1,8\n")

    def training(model: str, gpus: int, batch: int) -> tuple[float, float] | None:
        return (1000.0 * 64 / batch, 5.0 * batch / gpus) if model == "Big" else None

    trace = import_trace([tmp_path / "log.csv"], options=ReadOptions(training=training))
    assert rows(trace) == [("a", 107.0, 2, 160.0), ("b", 108.0, 4, 160.0)]
    assert trace.iterations.tolist() == [1000.0, 500.0]
    assert trace.jobs.batch_size.tolist() == [64, 128]
    assert trace.counts["rejected: no work or step time for the application"] == 1


def test_itp_and_elasticflow(tmp_path: Path) -> None:
    raw = "job_id,submission_time,duration,num_gpu\nu-1,3793,1183,1\n"
    assert rows(imported(tmp_path, "itp", raw)) == [("u-1", 3793.0, 1, 1183.0)]
    more = (
        "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
        "u-1,3793,4847,gpt2,4573,256,1,1183"
    )
    trace = imported(tmp_path, "elasticflow", more)
    assert rows(trace) == [("u-1", 3793.0, 1, 1183.0)]
    assert trace.jobs.deadline_s.tolist() == [4573.0]
    assert trace.iterations.tolist() == [4847.0]
    theirs = (
        "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort\n"
        "0,0,77215,r50,4426,256,1,3930,0\n1,5,100,r50,4426,256,2,30,1\n"
    )
    trace = imported(tmp_path, "elasticflow", theirs)
    assert trace.jobs.deadline_s.tolist() == [4426.0, float("inf")]


def test_helios_has_local_times_and_cpu_jobs(tmp_path: Path) -> None:
    text = (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,"
        "queue\n"
        "7,u1,vcA,4,16,1,CANCELLED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,"
        "249,0\n"
        "8,u2,vcB,0,2,1,COMPLETED,2020-06-09 18:41:30,2020-06-09 18:41:31,2020-06-09 18:41:41,"
        "10,1\n"
        "9,u2,vcB,1,2,1,NODE_FAIL,2020-06-09 18:42:00,2020-06-09 18:43:00,2020-06-09 18:44:30,"
        ",60\n"
    )
    trace = imported(tmp_path, "helios", text)
    tuesday = 86400 + 18 * 3600 + 41 * 60
    assert rows(trace) == [("7", tuesday + 27, 4, 249.0), ("9", tuesday + 60, 1, 90.0)]
    assert trace.end.tolist() == [CANCELLED, FAILED]
    assert trace.counts["rejected: no GPU"] == 1
    assert trace.counts["adjusted: duration from start and end"] == 1
    both = import_trace([tmp_path / "log.csv"], cpu_only="as-one-gpu")
    assert both.jobs.gpus.tolist() == [4, 1, 1]
    assert both.counts["adjusted: CPU-only job given one GPU"] == 1


def test_acme_times_have_offsets(tmp_path: Path) -> None:
    seren = (
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,"
        "duration,queue,gpu_time\n"
        "1,u5,1,8,128,Pretrain,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,"
        "2023-03-01 00:20:51+08:00,117,32,936.0\n"
        "2,u5,1,8,128,Other,COMPLETED,2023-02-28 16:18:23+00:00,,,5,0,40.0\n"
    )
    trace = imported(tmp_path, "acme", seren)
    wednesday = 2 * 86400 + 18 * 60
    assert rows(trace) == [("1", wednesday + 22, 8, 117.0), ("2", wednesday + 23, 8, 5.0)]
    assert trace.jobs.model.texts() == ["Pretrain", "Other"]


def test_pai_tables_have_no_header_and_are_joined_as_far_as_given(tmp_path: Path) -> None:
    tables = {
        "job": "j1,i1,u1,Terminated,100.0,400.0\nj2,i2,u2,Failed,150.0,\nj3,i3,u3,Running,160,\n",
        "task": (
            "j1,worker,2.0,Terminated,110.0,390.0,600.0,29.5,50.0,V100\n"
            "j1,ps,1.0,Terminated,105.0,395.0,100.0,10,,V100\n"
            "j2,worker,3.0,Failed,170.0,200.0,600.0,29.5,100.0,T4\n"
        ),
        "instance": "j2,worker,n1,w1,i2,Failed,180.0,195.0,m1\n",
        "group_tag": "i1,u1,V100,groupA,nmt\n",
    }
    paths = {kind: tmp_path / f"pai_{kind}_table.csv" for kind in tables}
    for kind, text in tables.items():
        paths[kind].write_text(text)
    assert sniff(paths["task"]) == "pai"
    alone = import_trace([paths["task"]])
    assert rows(alone) == [("j1", 105.0, 2, 290.0), ("j2", 170.0, 3, 30.0)]
    assert alone.jobs.gpu_part.tolist() == [0.5, 1.0]
    trace = import_trace(list(paths.values()))
    assert rows(trace) == [("j1", 100.0, 2, 290.0), ("j2", 150.0, 3, 15.0)]
    assert trace.jobs.recurrence.texts() == ["groupA", ""]
    assert trace.jobs.model.texts() == ["nmt", ""]
    assert trace.jobs.gpu_type.texts() == ["V100", "T4"]
    assert trace.jobs.cpus.tolist() == [13.0, 18.0]
    assert trace.end.tolist() == [COMPLETED, FAILED]
    assert trace.counts["rejected: no task of the job is known"] == 1
    with pytest.raises(InputError, match="no GPU counts without the task table"):
        import_trace([paths["job"]])


def test_pai_instances_keep_their_part_of_a_gpu_and_mixed_ones_are_evened_out(
    tmp_path: Path,
) -> None:
    path = tmp_path / "pai_task_table.csv"
    path.write_text(
        "quarter,worker,4.0,Terminated,10,20,600,29,25.0,T4\n"
        "large,worker,2.0,Terminated,11,20,600,29,150.0,P100\n"
        "mixed,worker,3.0,Terminated,12,20,600,29,50.0,T4\n"
        "mixed,chief,1.0,Terminated,12,20,600,29,100.0,T4\n"
        "none,worker,2.0,Terminated,13,20,600,29,,CPU\n"
    )
    trace = import_trace([path])
    jobs = zip(trace.jobs.job_id, trace.jobs.gpus.tolist(), trace.jobs.gpu_part, strict=True)
    assert list(jobs) == [
        ("quarter", 4, 0.25),
        ("large", 4, 0.75),
        ("mixed", 3, 0.833),
        ("none", 1, 0.0),
    ]
    assert trace.jobs.cpus.tolist() == [24.0, 12.0, 24.0, 12.0]
    assert trace.counts["adjusted: parts of a GPU evened out over a job's GPUs"] == 1


def test_the_example_of_pai_s_documentation_asks_for_14_cpus_and_one_gpu(tmp_path: Path) -> None:
    # The README of cluster-trace-gpu-v2020: 600 % + 400 % + 400 % of CPUs, 0 % + 50 % + 50 % of
    # GPUs, in three instances of two tasks.
    path = tmp_path / "pai_task_table.csv"
    path.write_text(
        "job_0,ps,1.0,Terminated,10.0,20.0,600.0,29.296875,0.0,MISC\n"
        "job_0,worker,2.0,Terminated,10.0,20.0,400.0,29.296875,50.0,MISC\n"
    )
    trace = import_trace([path])
    assert trace.jobs.cpus.tolist() == [14.0]
    assert (trace.jobs.gpus.tolist(), trace.jobs.gpu_part.tolist()) == ([2], [0.5])
    assert trace.jobs.asked_gpus.tolist() == [1.0]
    assert trace.jobs.gpu_type.texts() == ["MISC"]


def test_pai_simulator_and_gaia(tmp_path: Path) -> None:
    text = (
        "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user,group\n"
        "5,2,10,6,0.5,T4,30,u1,g1\n6,1,11,6,,CPU,30,u1,\n"
    )
    trace = imported(tmp_path, "pai-sim", text)
    assert rows(trace) == [("5", 10.0, 1, 30.0), ("6", 11.0, 1, 30.0)]
    assert trace.jobs.gpu_part.tolist() == [0.5, 0.0]
    assert trace.jobs.gpu_type.texts() == ["T4", ""]
    assert trace.jobs.recurrence.texts() == ["g1", ""]
    gaia = imported(tmp_path, "gaia", "arrival_time,length,cpus\n0.5,2.0,1\n1.25,0.25,4\n")
    assert rows(gaia) == [("0", 1800.0, 1, 7200.0), ("1", 4500.0, 4, 900.0)]
    assert gaia.counts["adjusted: hours read as seconds"] == 2
    in_seconds = imported(tmp_path, "gaia", "arrival_time,length,cpus\n0.0,6302.0,1\n")
    assert in_seconds.duration_s.tolist() == [6302.0]


def test_openb_pods_share_gpus_and_some_never_run(tmp_path: Path) -> None:
    text = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time\n"
        "p0,12000,2048,1,460,V100|T4,LS,Failed,10,110,20\n"
        "p1,1000,1024,2,1000,T4,BE,Running,11,100,12\n"
        "p2,1000,1024,1,1000,,BE,Pending,12,100,\n"
        "p3,1000,1024,0,0,,BE,Running,12,100,13\n"
    )
    trace = imported(tmp_path, "openb", text)
    assert rows(trace) == [("p0", 10.0, 1, 90.0), ("p1", 11.0, 2, 88.0), ("p3", 12.0, 1, 87.0)]
    assert trace.jobs.gpu_part.tolist() == [0.46, 1.0, 0.0]
    assert trace.jobs.asked_gpus.tolist() == [0.46, 2.0, 0.0]
    assert trace.jobs.gpu_type.texts() == ["V100|T4", "T4", ""]
    assert trace.jobs.memory_bytes.tolist() == [2 * 2**30, 2**30, 2**30]
    assert trace.counts["rejected: never scheduled"] == 1
    again = import_trace([tmp_path / "log.csv"], cpu_only="reject", fractions="round-up")
    assert rows(again) == [("p0", 10.0, 1, 90.0), ("p1", 11.0, 2, 88.0)]
    assert not again.jobs.has_parts
    assert again.counts["adjusted: fraction of a GPU rounded up"] == 1
    assert again.counts["rejected: no GPU"] == 1


def test_dirlab_submissions_are_sums_of_intervals(tmp_path: Path) -> None:
    text = (
        "u_id,user,gpu_num,cpu_num,node_num,interval,run_time,wall_time,new_status\n"
        "0,1,1,0,1,0,84,0,Pass\n1,2,0,1,1,94,87,0,Failed\n2,1,4,0,1,6,5,0,Killed\n"
    )
    trace = imported(tmp_path, "dirlab", text)
    assert rows(trace) == [("0", 0.0, 1, 84.0), ("2", 100.0, 4, 5.0)]
    assert trace.jobs.user.texts() == ["u1", "u1"]
    assert trace.end.tolist() == [COMPLETED, CANCELLED]


def test_gavel_lists_have_three_layouts(tmp_path: Path) -> None:
    msr = "LM (batch size 10)\tpython3 x\t-n\t1\t400\t6.0\t1\n"
    trace = imported(tmp_path, "gavel", msr, "a.trace")
    assert rows(trace) == [("0", 6.0, 1, 200.0)]
    assert trace.jobs.model.texts() == ["LM"]
    assert trace.jobs.batch_size.tolist() == [10]
    physical = (
        "LM (batch size 10)\tx\tdir\t-n\t1\t400\t1\t2\t1.5\t7\n"
        "LM (batch size 10)\tx\tdir\t-n\t1\t400\t1\t1\t-1.000000\t9\n"
        "LM (batch size 10)\tx\tdir\t-n\t1\t400\t2\t1\t-1.000000\t9\n"
    )
    trace = imported(tmp_path, "gavel", physical, "a.trace")
    assert rows(trace) == [("0", 7.0, 1, 200.0), ("1", 9.0, 1, 200.0)]
    assert trace.jobs.deadline_s.tolist() == [307.0, float("inf")]
    assert trace.counts["rejected: no step time for the job type"] == 1
    shockwave = "LM (batch size 10)\tx\tdir\t-n\t1\t400\t2\tgns\t1\t-1.0\t3142\t5\n"
    assert rows(imported(tmp_path, "gavel", shockwave, "a.trace")) == [("0", 5.0, 2, 3142.0)]


SACCT = """\
JobID|User|Account|Partition|JobName|State|Submit|Start|End|Elapsed|Timelimit|NNodes|AllocTRES|ReqTRES
100|ann|lab|gpu|train|COMPLETED|2024-03-04T10:00:00|2024-03-04T10:05:00|2024-03-04T12:05:00|02:00:00|1-00:00:00|1|cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=1|cpu=8
100.batch||lab||batch|COMPLETED|2024-03-04T10:05:00|2024-03-04T10:05:00|2024-03-04T12:05:00|02:00:00||1|cpu=8,gres/gpu=4|
101_1|bob|lab|gpu|sweep|TIMEOUT|2024-03-04T10:00:01|2024-03-04T10:05:00|2024-03-05T10:05:00|1-00:00:00|1-00:00:00|1|cpu=2,gres/gpu=1,mem=8192M|
101_[2-5]|bob|lab|gpu|sweep|PENDING|2024-03-04T10:00:01|Unknown|Unknown|00:00:00|1-00:00:00|1||gres/gpu=1
102|eve|lab|gpu|x|CANCELLED by 1002|2024-03-04T10:01:00|None|2024-03-04T10:02:00|00:00:00|UNLIMITED|1||gres/gpu=1
103|eve|lab|cpu|x|COMPLETED|2024-03-04T10:01:00|2024-03-04T10:01:00|2024-03-04T10:02:00|00:01:00|10:00|1|cpu=2|
104|eve|lab|gpu|a|b|COMPLETED|2024-03-04T10:01:00|2024-03-04T10:01:00|2024-03-04T10:02:00|00:01:00||1|||
105|eve|lab|gpu|x|CANCELLED by 1002|2024-03-04T10:02:00|2024-03-04T10:01:00|2024-03-04T10:02:00|01:00|UNLIMITED|2|gres/gpu:a100=1,gres/gpu:v100=3|
106|eve|lab|gpu|x|RUNNING|2024-03-04T10:02:00|2024-03-04T10:01:00|Unknown|01:00|UNLIMITED|1|gres/gpu=1|
"""  # noqa: E501


def test_slurm_keeps_jobs_and_counts_the_rest(tmp_path: Path) -> None:
    trace = imported(tmp_path, "slurm", SACCT, "sacct.txt")
    ten = 10 * 3600.0
    assert rows(trace) == [
        ("100", ten, 4, 7200.0),
        ("101_1", ten + 1, 1, 86400.0),
        ("105", ten + 120, 4, 60.0),
    ]
    jobs = trace.jobs
    assert jobs.gpu_type.texts() == ["a100", "", ""]
    assert jobs.recurrence.texts() == ["ann/train", "bob/sweep", "eve/x"]
    assert jobs.time_limit_s.tolist() == [86400.0, 86400.0, float("inf")]
    assert jobs.memory_bytes.tolist() == [64 * 2**30, 8 * 2**30, 0]
    assert trace.end.tolist() == [COMPLETED, TIMEOUT, CANCELLED]
    assert trace.counts == {
        "read": 9,
        "usable": 3,
        "rejected: wrong number of values in the line": 1,
        "rejected: job step": 1,
        "rejected: array not started": 1,
        "rejected: not ended yet": 1,
        "rejected: never started": 1,
        "rejected: no GPU": 1,
        "adjusted: several GPU types in a job, any is taken": 1,
        "adjusted: start_s out of range, left out": 1,
        "adjusted: wait_s out of range, left out": 1,
    }


def test_slurm_local_times_use_the_zone_that_is_told(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    line = "{}|COMPLETED|2024-03-31T0{}:30:00|2024-03-31T08:00:00|60|gres/gpu=1\n"
    path.write_text(
        "JobID|State|Submit|Start|ElapsedRaw|AllocTRES\n" + line.format(1, 1) + line.format(2, 3)
    )
    # Clocks in Berlin went forward at 02:00: from 01:30 to 03:30 is one hour.
    berlin = import_trace([path], options=ReadOptions(timezone="Europe/Berlin"))
    assert (berlin.jobs.submit_s[1] - berlin.jobs.submit_s[0]) == 3600.0
    assert (import_trace([path]).jobs.submit_s[1] - import_trace([path]).jobs.submit_s[0]) == 7200.0
    with pytest.raises(InputError, match="did you mean 'Europe/Berlin'"):
        import_trace([path], options=ReadOptions(timezone="Europe/Berlim"))


def test_swf_processors_become_gpus(tmp_path: Path) -> None:
    text = (
        "; Version: 2.2\n; MaxProcs: 128\n"
        "1 0 10 100 8 -1 -1 8 3600 -1 1 3 1 5 1 -1 -1 -1\n"
        "2 5 -1 -1 -1 -1 -1 4 3600 -1 5 3 1 -1 1 -1 -1 -1\n"
        "3 7 1 50 -1 -1 -1 4 -1 -1 0 4 1 -1 2 -1 -1 -1\n"
        "4 7 1 50 4 -1 -1 4 -1 -1 3 4 1 5 2 -1 -1 -1\n"
    )
    trace = imported(tmp_path, "swf", text, "log.swf")
    assert rows(trace) == [("1", 0.0, 8, 100.0), ("3", 7.0, 4, 50.0)]
    assert trace.jobs.recurrence.texts() == ["u3/app5", ""]
    assert trace.jobs.time_limit_s.tolist() == [3600.0, float("inf")]
    assert trace.end.tolist() == [COMPLETED, FAILED]
    assert trace.counts["adjusted: processors read as GPUs"] == 3
    assert trace.counts["rejected: part of a checkpointed job"] == 1
    (tmp_path / "log.swf").write_text("; x\n1 2 3\n")
    with pytest.raises(InputError, match="line 2: has 3 values, 18 expected"):
        import_trace([tmp_path / "log.swf"])
    (tmp_path / "log.swf").write_text("; x\n\n 1 0 10 x" + " 1" * 14 + "\n")
    with pytest.raises(InputError, match="line 3, field 4: 'x' is not a number"):
        import_trace([tmp_path / "log.swf"])


def test_several_files_become_queues_of_one_cluster_and_ids_stay_apart(tmp_path: Path) -> None:
    header = "job_id,submission_time,duration,num_gpu\n"
    for name, text in {"c1": "1,5,10,1\n2,9,10,1\n", "c2": "1,7,10,2\n"}.items():
        (tmp_path / f"{name}.csv").write_text(header + text)
    trace = import_trace([tmp_path / "c1.csv", tmp_path / "c2.csv"])
    assert rows(trace) == [("c1:1", 5.0, 1, 10.0), ("c2:1", 7.0, 2, 10.0), ("c1:2", 9.0, 1, 10.0)]
    assert trace.jobs.queue.texts() == ["c1", "c2", "c1"]
    assert trace.counts == {"read": 3, "usable": 3}


def test_virtual_clusters_can_be_taken_apart_on_one_clock(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-02 00:00:10,60.0,2,120.0,b\n2017-10-02 00:00:20,60.0,0,0,b\n"
        "2017-10-02 00:00:30,60.0,1,60.0,a\n2017-10-02 00:00:40,60.0,0,0,c\n"
    )
    apart = import_apart([path])
    assert {vc: rows(t) for vc, t in apart.items()} == {
        "a": [("2", 30.0, 1, 60.0)],
        "b": [("0", 10.0, 2, 60.0)],
    }
    assert apart["b"].counts["rejected: no GPU"] == 1
    lost = "whole import, rejected: virtual cluster c without a usable job"
    assert apart["a"].counts[lost] == 1


def test_step_times_come_from_a_csv_or_from_gavels_json(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text("model_name,num_gpus,step_time_us\nm,1,8000000\nm,3,4000000\n")
    steps = read_step_times(path)
    assert [steps("m", n) for n in (1, 2, 3, 4)] == [8.0, 6.0, 4.0, None]
    assert steps("other", 1) is None
    path.write_text('{"v100": {"(\'LM (batch size 10)\', 1)": {"null": 4.0}}}')
    assert read_step_times(path)("LM (batch size 10)", 1) == 0.25
    with pytest.raises(InputError, match="has no GPU type 'a100'"):
        read_step_times(path, "a100")
    path.write_text("model,iterations\nm,500\n")
    assert read_job_iterations(path)("m", 64) == 500.0


def test_spot_gpu_jobs_count_gpus_and_cpus_per_worker(tmp_path: Path) -> None:
    text = (
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,"
        "job_type\n"
        "11,3,A10,20,1,1,0,600,HP\n"
        "12,7,A100-SXM4-80GB,15,2,8,100,3600,Spot\n"
    )
    trace = imported(tmp_path, "spot-gpu", text)
    assert rows(trace) == [("11", 0.0, 1, 600.0), ("12", 100.0, 16, 3600.0)]
    assert trace.jobs.account.texts() == ["3", "7"]
    assert trace.jobs.qos.texts() == ["HP", "Spot"]
    assert trace.jobs.cpus.tolist() == [20, 120]
    assert trace.jobs.preemptible.tolist() == [False, True]
    assert trace.recorded is None


def test_supercloud_reads_numbered_states_and_resources(tmp_path: Path) -> None:
    text = (
        "id_job,id_array_job,id_user,partition,state,timelimit,time_submit,time_start,time_end,"
        "nodelist,tres_alloc\n"
        "1,0,77,xeon,3,60,1000,1060,2060,\"['n1', 'n2']\",\"1=80,2=340000,4=2,1002=4\"\n"
        '2,0,77,xeon,6,4294967295,1100,1100,1400,"[\'n1\']","1=20,2=170000,4=1,1001=1"\n'
        "3,0,78,xeon,4,60,1200,0,1300,None,\n"
        '4,0,78,xeon,1,60,1200,1201,0,"[\'n3\']","1=20,1002=1"\n'
        '5,0,78,cpu,3,60,1200,1201,1301,"[\'c1\']","1=20"\n'
    )
    trace = imported(tmp_path, "supercloud", text, origin="keep")
    assert rows(trace) == [("1", 1000.0, 4, 1000.0), ("2", 1100.0, 1, 300.0)]
    assert trace.jobs.gpu_type.texts() == ["volta", "tesla"]
    assert trace.jobs.time_limit_s.tolist() == [3600, float("inf")]
    assert trace.end.tolist() == [COMPLETED, TIMEOUT]
    assert trace.counts["rejected: never started"] == 1
    assert trace.counts["rejected: not ended yet"] == 1
    assert trace.counts["rejected: no GPU"] == 1
    assert trace.recorded is not None
    assert trace.recorded.wait_s.tolist() == [60, 0]
    assert trace.recorded.nodes.texts() == ["n1,n2", "n1"]


def parquet(tmp_path: Path, name: str, columns: dict[str, object], **more: object) -> Trace:
    path = tmp_path / "log.parquet"
    pl.DataFrame(columns).write_parquet(path)
    assert sniff(path) == name
    return import_trace([path], options=ReadOptions(**more), origin="keep")  # type: ignore[arg-type]


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2020, 6, 1, hour, minute, tzinfo=UTC)


def test_pm100_has_allocated_gpus_and_limits_in_minutes(tmp_path: Path) -> None:
    trace = parquet(
        tmp_path,
        "pm100",
        {
            "job_id": [5, 6],
            "submit_time": [at(8), at(9)],
            "start_time": [at(8, 30), at(9)],
            "end_time": [at(9, 30), at(10)],
            "run_time": [3600, 3600],
            "num_gpus_alloc": [8, 0],
            "num_cores_alloc": [256, 4],
            "mem_alloc": [475, 10],
            "time_limit": [120, 4294967295],
            "priority": [22000, 22000],
            "partition": ["1", "1"],
            "qos": ["0", "0"],
            "user_id": [41, 42],
            "nodes": ["['r1n1', 'r1n2']", "['r1n3']"],
            "job_state": ["COMPLETED", "OOM+NODE FAIL"],
        },
    )
    assert rows(trace) == [("5", at(8).timestamp(), 8, 3600.0)]
    assert trace.counts["rejected: no GPU"] == 1
    assert trace.jobs.time_limit_s.tolist() == [7200]
    # Slurm computed it, no user asked for it.
    assert trace.jobs.priority.tolist() == [0.0]
    assert trace.recorded is not None
    assert trace.recorded.wait_s.tolist() == [1800]
    assert trace.recorded.nodes.texts() == ["r1n1,r1n2"]


def test_kestrel_counts_gpus_by_nodes_only_when_told(tmp_path: Path) -> None:
    columns: dict[str, object] = {
        "job_id": ["9", "10"],
        "user_hash": ["u", "u"],
        "account_hash": ["a", "a"],
        "partition": ["gpu-h100", "gpu-h100"],
        "qos": ["normal", "high"],
        "state_simple": ["COMPLETED", "CANCELLED"],
        "submit_time": [at(8), at(9)],
        "start_time": [at(8, 10), None],
        "end_time": [at(9, 10), at(9, 5)],
        "wallclock_req": [timedelta(hours=4)] * 2,
        "wallclock_used": [timedelta(hours=1), None],
        "nodes_req": [2, 1],
        "nodes_used": [2, None],
        "nodelist": [["x1", "x2"], None],
        "gpus_requested": pl.Series([None, None], dtype=pl.Int64),
    }
    with pytest.raises(InputError, match="--gpus-per-node 4"):
        parquet(tmp_path, "nlr", columns)
    trace = parquet(tmp_path, "nlr", columns, gpus_per_node=4)
    assert rows(trace) == [("9", at(8).timestamp(), 8, 3600.0)]
    assert trace.jobs.time_limit_s.tolist() == [4 * 3600]
    assert trace.counts["rejected: never started"] == 1
    assert trace.recorded is not None
    assert trace.recorded.wait_s.tolist() == [600]
    assert trace.recorded.nodes.texts() == ["x1,x2"]
    eagle = {
        "job_id": [1],
        "user": ["u1"],
        "account": ["a1"],
        "partition": ["gpu"],
        "state": ["TIMEOUT"],
        "submit_time": ["2020-06-01 08:00:00"],
        "start_time": ["2020-06-01 08:05:00"],
        "end_time": ["2020-06-01 09:05:00"],
        "wallclock_req": [3600.0],
        "run_time": [3600.0],
        "nodes_req": [1],
        "gpus_req": [2],
    }
    trace = parquet(tmp_path, "nlr", eagle)
    # Mountain Time in June is six hours behind UTC.
    assert rows(trace) == [("1", at(14).timestamp(), 2, 3600.0)]
    assert trace.end.tolist() == [TIMEOUT]


def test_asi_has_no_times_and_draws_them_only_when_told(tmp_path: Path) -> None:
    columns: dict[str, object] = {
        "pod_id": ["p1", "p2", "p3"],
        "workload_id": ["w", None, "w"],
        "gpu_spec_public": ["H20", "A10", "A10"],
        "priority_class": ["HP", "LP", "LP"],
        "job_type_public": ["training", "dev", "dev"],
        "model_type_public": ["genai", "unknown", "dev"],
        "gpu_request": [8.0, 1.0, 1.0],
        "duration_hours": [2.0, 0.5, 0.5],
        "schedule_status": [True, None, False],
    }
    with pytest.raises(InputError, match="--spread-days 185"):
        parquet(tmp_path, "asi", columns)
    trace = parquet(tmp_path, "asi", columns, spread_days=10.0)
    assert trace.duration_s.tolist() == [7200, 1800]
    assert trace.jobs.gpus.tolist() == [8, 1]
    assert trace.jobs.preemptible.tolist() == [False, True]
    assert trace.jobs.recurrence.texts() == ["w", ""]
    assert 0 <= trace.jobs.submit_s[0] < trace.jobs.submit_s[1] < 10 * 86400
    assert trace.counts["adjusted: submission drawn, the table has none"] == 3
    assert trace.counts["rejected: never scheduled"] == 1


def test_swf_counts_gpus_by_whole_nodes_when_told(tmp_path: Path) -> None:
    path = tmp_path / "frontier.swf"
    line = "1 0 5 100 {} -1 -1 {} 200 -1 1 7 1 1 1 1 -1 -1\n"
    header = "; MaxNodes: 9408\n; MaxProcs: 602112\n"
    path.write_text(header + line.format(65, 65))
    trace = import_trace([path], options=ReadOptions(gpus_per_node=8))
    assert trace.jobs.gpus.tolist() == [16]  # 64 processors a node: 65 are on two nodes
    path.write_text(line.format(2, 2))
    with pytest.raises(InputError, match="MaxNodes"):
        import_trace([path], options=ReadOptions(gpus_per_node=8))


def test_a_parquet_file_of_unknown_columns_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pl.DataFrame({"a": [1], "b": [2]}).write_parquet(path)
    with pytest.raises(InputError, match=r"unknown columns \(a, b\)"):
        sniff(path)

"""Runs with parts of GPUs and jobs without GPU: every sum counts parts as parts."""

import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

from builders import Row, trace_of
from dovetail.algorithms.bounds import Powers
from dovetail.cli.main import cli
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import InputError
from dovetail.core.policy import parse_policy
from dovetail.core.trace import Trace
from dovetail.record.timeline import timeline_packets
from dovetail.replaying.decisions import read_recording, replay
from dovetail.report.plots.run import held_seconds
from dovetail.study.bound import bound
from dovetail.study.chargeback import holdings_of
from dovetail.study.compare import compare
from dovetail.study.left_out import check_left_out
from dovetail.study.options import Options
from dovetail.study.run import simulate

HOSTS = Options(Cluster((NodeGroup("a", 1, 2, cpus=8), NodeGroup("c", 1, 0, cpus=2))))


def scene() -> Trace:
    """Three parts on two GPUs, a whole job, and two jobs without GPU, of which one must wait."""
    return trace_of(
        Row(1, 10, gpu_part=0.5, cpus=1),
        Row(1, 10, gpu_part=0.3, cpus=1),
        Row(1, 20, gpu_part=0.4, cpus=1),
        Row(1, 10, cpus=1),
        Row(1, 30, gpu_part=0.0, cpus=2),
        Row(1, 10, gpu_part=0.0, cpus=6),
    )


def test_a_run_counts_what_each_job_holds() -> None:
    run = simulate(scene(), parse_policy("fifo:bypass=skip"), HOSTS, keep_spans=True)
    # 0.5 and 0.3 share GPU 0; 0.4 opens GPU 1; the whole job gets GPU 0 when both have ended. The
    # first job without GPU takes the node without GPUs, the second the CPUs that are left at 10 s.
    assert run.jobs["start_s"].to_list() == [0, 0, 0, 10, 0, 10]
    assert run.jobs["service_gpu_s"].to_list() == pytest.approx([5, 3, 8, 10, 0, 0])
    assert run.jobs["gpu_part"].to_list() == [0.5, 0.3, 0.4, 1.0, 0.0, 0.0]
    assert run.jobs["size_class"].to_list() == ["<1", "<1", "<1", "1", "0", "0"]
    assert sum(run.gpu_seconds.values()) == pytest.approx(2 * 30)
    assert run.gpu_seconds["useful"] == pytest.approx(26)
    assert run.number("gpu_utilization") == pytest.approx(26 / 60)
    assert run.series["held_gpus"].max() == 1.4
    spans = run.spans.select("job_id", "node", "gpu_ids", "gpu_part").rows()
    assert [s for s in spans if s[0] in "012"] == [
        ("0", 0, [0], 0.5),
        ("1", 0, [0], 0.3),
        ("2", 0, [1], 0.4),
    ]
    assert not [s for s in spans if s[0] in "45"]
    timeline = b"".join(timeline_packets(run))
    assert struct.pack("<d", 1.2) in timeline, "the counter of held GPUs is no whole number"
    held = held_seconds(run.spans)
    assert (held["gpus"] * (held["end_s"] - held["start_s"])).sum() == pytest.approx(26)


def test_the_log_of_a_run_gives_the_same_numbers_and_decisions(tmp_path: Path) -> None:
    for policy in ("fifo", "backfill", "srtf", "tiresias", "tenancy:inner=sjf"):
        log = tmp_path / f"{policy}.jsonl"
        run = simulate(scene(), parse_policy(policy), HOSTS, log_to=log)
        recording = read_recording(log)
        assert recording.jobs().equals(run.jobs)
        assert replay(log).differences == ()


def test_charges_are_for_the_part_that_a_job_holds(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    simulate(scene(), parse_policy("fifo:bypass=skip"), HOSTS, log_to=log)
    tally = read_recording(log).tally()
    held = holdings_of(tally.segments, HOSTS.cluster)
    assert held.gpu_s == pytest.approx(26)
    assert set(held.job.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "policy", ["srtf-max", "muri-s", "slurm", "sjf-bsbf", "ticked:inner=afs-l"]
)
def test_a_policy_that_counts_whole_gpus_is_refused_by_name(policy: str) -> None:
    with pytest.raises(InputError) as error:
        simulate(scene(), parse_policy(policy), HOSTS)
    text = str(error.value)
    assert "counts whole GPUs; 3 jobs ask for parts of GPUs and 2 for none" in text
    assert "--fractions round-up" in text


def test_parts_bound_the_mean_as_parts_and_jobs_without_gpu_by_their_run_times() -> None:
    rows = [Row(1, 10, gpu_part=p) for p in (0.5, 0.5, 1.0)] + [Row(1, 5, gpu_part=0.0)]
    least = bound(trace_of(*rows), Options(Cluster.parse("1x1")), Powers())
    bounds = {one.name: one.mean_jct_s for one in least.bounds}
    # One GPU has done 5, 5 and 10 GPU-seconds at the earliest at seconds 5, 10 and 20.
    assert bounds["span"] == pytest.approx((10 + 10 + 10 + 5) / 4)
    assert bounds["squashed area"] == pytest.approx((5 + 10 + 20 + 5) / 4)
    assert least.jobs == 4
    assert least.makespan_s == pytest.approx(20)
    none = bound(trace_of(rows[3]), Options(Cluster.parse("1x1")), Powers())
    assert (none.mean_jct_s, none.makespan_s) == (5.0, 5.0)


def test_the_command_says_what_the_bound_counts(tmp_path: Path) -> None:
    path = tmp_path / "parts.csv"
    path.write_text("job_id,submit_s,gpus,gpu_part,duration_s\na,0,1,0.5,10\nb,0,1,0,5\n")
    result = CliRunner().invoke(cli, ["bound", str(path), "--cluster", "1x1"])
    assert result.exit_code == 0, result.output
    assert "1 hold no GPU; they count in means of times" in result.output
    assert "and in bounds with their run times alone" in result.output
    assert "2 jobs; powers allowed: exclusive, rigid" in result.output


def test_a_comparison_says_what_parts_mean_and_when_nothing_limits_jobs_without_gpu() -> None:
    compared = compare(scene(), ["fifo", "sjf"], HOSTS, processes=1)
    notes = " ".join(compared.notes)
    assert "3 jobs hold parts of GPUs, which do not slow each other" in notes
    assert "and in bounds with their run times alone" in notes
    assert "No bound" not in notes
    assert (compared.table["x_bound"] >= 1.0).all()
    assert check_left_out(scene(), HOSTS) == []
    first = check_left_out(scene(), Options(Cluster.parse("1x2")))
    assert "2 of 6 jobs use no GPU, and the cluster names no CPUs" in " ".join(first)

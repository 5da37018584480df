"""A log replayed: the same policy decides the same, another one differs, and both are told."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from builders import Row, trace_of
from dovetail.control.replay import Difference
from dovetail.core.cluster import Cluster, NodeGroup
from dovetail.core.errors import InputError
from dovetail.core.placement import Placement
from dovetail.core.placing import Placing
from dovetail.core.policy import parse_policy
from dovetail.core.switching import Switching
from dovetail.core.tenants import QueueSpec
from dovetail.replaying.decisions import read_recording, replay
from dovetail.study.options import Options
from dovetail.study.run import simulate

POLICIES = [
    "fifo",
    "backfill",
    "sjf",
    "srtf",
    "srsf",
    "tiresias:thresholds=6/20",
    "tiresias:thresholds=6/20,inside=list",
    "gittins:delta=6,samples-min=3",
    "max-min",
    "max-min:overflow=least-recent",
    "optimus",
    "srsf-e",
    "srtf-max",
    "tiresias-max:thresholds=6/20",
    "themis:f=0.5,lease=5",
    "antman:bypass=skip",
    "gandiva:slice=3",
]
CLUSTER = Cluster(
    (NodeGroup("a", 2, 4, cpus=24.0), NodeGroup("b", 1, 2)), queues=(QueueSpec("q", 3),)
)


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    t = 0.0
    found = []
    for _ in range(draw(st.integers(1, 12))):
        t += draw(st.sampled_from([0.0, 0.5, 1.1, 3.0]))
        gpus = draw(st.integers(1, 4))
        elastic = draw(st.booleans())
        found.append(
            Row(
                gpus,
                draw(st.sampled_from([0.5, 1.3, 5.0, 9.0])),
                submit_s=t,
                elastic=elastic,
                min_gpus=1 if elastic else gpus,
                max_gpus=gpus + 2 if elastic else gpus,
                time_limit_s=draw(st.sampled_from([float("inf"), 3.0])),
                end=draw(st.sampled_from(["completed", "failed", "cancelled"])),
                queue=draw(st.sampled_from(["", "q"])) if gpus <= 3 else "",
                cpus=draw(st.sampled_from([0.0, 3.0 * gpus])),
                preemptible=draw(st.integers(0, 5)) < 5,
            )
        )
    return found


CAPACITY = ((2.0, [(0, "down")]), (4.5, [(1, "draining")]), (7.0, [(0, "up"), (1, "up")]))


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=15, phases=(Phase.generate, Phase.shrink))
@given(
    jobs=rows(),
    placing=st.sampled_from(["", "strict,repack", "none,first-fit", "prefer,most-free,repack"]),
    switching=st.sampled_from(
        ["none", "restart:2", "per-start:1", "restart:2,prepared:1", "prepared:1,one-by-one"]
    ),
    breaks=st.booleans(),
    coalesce_s=st.sampled_from([0.0, 0.0, 1.5]),
    cancelled=st.sampled_from(["work", "clock"]),
)
def test_the_same_policy_decides_the_same_again(
    tmp_path_factory: pytest.TempPathFactory,
    policy: str,
    jobs: list[Row],
    placing: str,
    switching: str,
    breaks: bool,
    coalesce_s: float,
    cancelled: str,
) -> None:
    options = Options(
        CLUSTER,
        placing=Placing.parse(placing),
        switching=Switching.parse(switching),
        capacity=CAPACITY if breaks else (),
        coalesce_s=coalesce_s,
        cancelled=cancelled,
    )
    log = tmp_path_factory.mktemp("replay") / "log"
    result = simulate(trace_of(*jobs), parse_policy(policy), options, log_to=log)
    again = replay(log)
    assert again.differences == ()
    assert again.decisions == result.summary["decisions"]
    recording = read_recording(log)
    tally = recording.tally()
    assert tally.finish_s == result.jobs["finish_s"].to_list()
    assert tally.how == result.jobs["end"].to_list()
    assert tally.service_gpu_s == result.jobs["service_gpu_s"].to_list()


def run_of(tmp_path: Path, rows: list[Row], policy: str = "fifo", **options: object) -> Path:
    log = tmp_path / "log"
    chosen = Options(Cluster.uniform(1, 2), **options)  # type: ignore[arg-type]
    simulate(trace_of(*rows), parse_policy(policy), chosen, log_to=log)
    return log


CASE_14 = [Row(1, 8), Row(2, 4), Row(1, 2, submit_s=1)]


def test_another_policy_differs_where_it_would_have_decided_otherwise(tmp_path: Path) -> None:
    log = run_of(tmp_path, CASE_14)
    found = replay(log, "fifo:bypass=skip").differences
    # FIFO (strict) leaves a GPU idle from 1 s to 8 s; skipping would have started job 2.
    assert found[0] == Difference(1.0, 2, None, Placement(((0, 1),)))
    assert {d.job for d in found} == {2}


def test_one_difference_does_not_hide_the_next(tmp_path: Path) -> None:
    log = run_of(tmp_path, [Row(2, 4), Row(2, 9), Row(2, 1), Row(2, 2)])
    found = replay(log, "sjf").differences
    assert [(d.t, d.job) for d in found] == [(0, 0), (0, 2), (4, 1), (4, 2), (13, 2), (13, 3)][
        : len(found)
    ]
    assert len(found) >= 4


def test_a_log_that_was_tampered_with_shows(tmp_path: Path) -> None:
    log = run_of(tmp_path, CASE_14)
    lines = log.read_text().splitlines()
    for i, line in enumerate(lines):
        record = json.loads(line)
        if record.get("e") == "started" and record["job"] == "1":
            record["t"] += 1.0
            record["from"] += 1.0
            lines[i] = json.dumps(record)
            break
    log.write_text("\n".join(lines) + "\n")
    try:
        differences = replay(log).differences
    except InputError:
        return
    assert differences


def test_a_cluster_that_begins_with_a_closed_node_is_replayed_as_such(tmp_path: Path) -> None:
    log = tmp_path / "log"
    cluster = Cluster.uniform(2, 2).with_nodes([(0, "draining")])
    simulate(trace_of(*CASE_14), parse_policy("fifo"), Options(cluster), log_to=log)
    assert replay(log).differences == ()
    assert read_recording(log).options.cluster == cluster


def test_a_recording_holds_the_requests_as_they_were(tmp_path: Path) -> None:
    rows = [
        Row(2, 8, elastic=True, min_gpus=1, max_gpus=4, user="u", queue="q", cpus=1.5),
        Row(1, 4, submit_s=2, time_limit_s=9, preemptible=False, shareable=True, batch_size=32),
    ]
    log = run_of(tmp_path, rows)
    told = read_recording(log).trace
    made = trace_of(*rows)
    for job in range(2):
        assert replace(told.jobs.job(job)) == made.jobs.job(job)
    assert told.duration_s.tolist() == made.duration_s.tolist()


def test_coalescing_does_not_move_a_submission(tmp_path: Path) -> None:
    rows = [Row(1, 4), Row(1, 4, submit_s=1)]
    log = run_of(tmp_path, rows, coalesce_s=1.5)
    assert read_recording(log).trace.jobs.submit_s.tolist() == [0, 1]


def test_a_log_without_jobs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('{"log":"dovetail","version":1,"manifest":{}}\n{"e":"closed"}\n')
    with pytest.raises(InputError, match="the log contains no jobs"):
        replay(path)

"""The log is the product: what is folded from it equals the run, and a bad one is told as such."""

import json
import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from study_scene import CLUSTER, busy_trace

from benchmarks.run_outcomes import summary_of
from builders import Row, trace_of
from dovetail.core.cluster import Cluster
from dovetail.core.errors import InputError
from dovetail.core.policy import parse_policy
from dovetail.core.switching import Switching
from dovetail.replaying.decisions import read_recording, replay
from dovetail.study.options import Options
from dovetail.study.run import simulate
from dovetail.study.traces import with_models

OPTIONS = Options(
    Cluster.parse(CLUSTER),
    capacity=((9e4, ((0, "down"), (1, "draining"))), (1.5e5, ((0, "up"), (1, "up")))),
)


@pytest.mark.parametrize("policy", ["fifo", "backfill", "srtf", "tiresias", "max-min"])
def test_metrics_folded_from_the_log_are_those_of_the_run(policy: str, tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    trace = with_models(busy_trace(150, 2.0), 3)
    options = replace(OPTIONS, adopt=(("elastic", 0.5),))
    run = simulate(trace, parse_policy(policy), options, log_to=log)
    recording = read_recording(log)
    assert recording.jobs().equals(run.jobs)
    folded = summary_of(recording)
    assert len(folded) > 15
    assert folded == {key: run.summary[key] for key in folded}


def test_the_recorded_policy_decides_the_same_again_and_another_does_not(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    simulate(busy_trace(150, 2.0), parse_policy("srtf"), OPTIONS, log_to=log)
    again, other = replay(log), replay(log, "fifo")
    assert (again.policy, again.differences) == ("srtf:bypass=skip", ())
    assert again.decisions == other.decisions > 300
    assert other.differences


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    log = tmp_path_factory.mktemp("log") / "events.jsonl"
    simulate(busy_trace(40, 1.0), parse_policy("srtf"), OPTIONS, log_to=log)
    return log.read_text().splitlines()


def test_a_log_cut_off_anywhere_is_told(lines: list[str], tmp_path: Path) -> None:
    whole = "\n".join(lines) + "\n"
    for kept in range(0, len(whole) - len(lines[-1]) - 1, len(whole) // 25):
        part = tmp_path / "part.jsonl"
        part.write_text(whole[:kept])
        with pytest.raises(InputError):
            replay(part)


def test_a_damaged_log_is_told_in_one_sentence_or_makes_a_difference(
    lines: list[str], tmp_path: Path
) -> None:
    rng = random.Random(5)
    refused: list[str] = []
    for _ in range(150):
        damaged = list(lines)
        at = rng.randrange(1, len(damaged) - 1)
        record = json.loads(damaged[at])
        match rng.choice(["drop", "twice", "field", "value", "swap", "job"]):
            case "drop":
                del damaged[at]
            case "twice":
                damaged.insert(at, damaged[at])
            case "field":
                del record[rng.choice(list(record))]
                damaged[at] = json.dumps(record)
            case "value":
                record[rng.choice(list(record))] = rng.choice([None, "x", -1, [], {}, 1e300])
                damaged[at] = json.dumps(record)
            case "swap":
                other = rng.randrange(1, len(damaged) - 1)
                damaged[at], damaged[other] = damaged[other], damaged[at]
            case "job":
                damaged[at] = json.dumps({**record, "job": "nobody"})
        part = tmp_path / "damaged.jsonl"
        part.write_text("\n".join(damaged) + "\n")
        try:
            replay(part)
        except InputError as error:
            refused.append(str(error))
    assert len(refused) > 50
    assert not [said for said in refused if "\n" in said or len(said) > 500]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda head, rest: [json.dumps({**head, "version": 99}), *rest], "version 99"),
        (lambda head, rest: [json.dumps({"log": "other"}), *rest], "not a dovetail event log"),
        (
            lambda head, rest: [json.dumps({**head, "manifest": {}}), *rest],
            "a field is missing or invalid",
        ),
        (lambda head, rest: [json.dumps(head), '{"e":"closed"}'], "contains no jobs"),
        (lambda head, rest: [], "cannot be read as an event log"),
    ],
)
def test_what_is_no_log_of_ours_is_told(
    change: object, words: str, lines: list[str], tmp_path: Path
) -> None:
    part = tmp_path / "part.jsonl"
    part.write_text("\n".join(change(json.loads(lines[0]), lines[1:])) + "\n")  # type: ignore[operator]
    with pytest.raises(InputError, match=words):
        replay(part)


RESTLESS = Path(__file__).parents[1] / "properties" / "test_sharing_runs.py"


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("cost", ["none", "restart:2", "per-start:1"])
def test_shared_interleaved_and_resized_jobs_replay_without_a_difference(
    seed: int, cost: str
) -> None:
    draw = random.Random(seed)
    rows = []
    for i in range(draw.randint(1, 9)):
        gpus, elastic = draw.randint(1, 4), draw.random() < 0.4
        rows.append(
            Row(
                gpus,
                draw.choice([1.0, 3.0, 8.5]),
                submit_s=0.7 * i,
                shareable=draw.random() < 0.8,
                elastic=elastic,
                min_gpus=1 if elastic else gpus,
                max_gpus=5 if elastic else gpus,
            )
        )
    options = Options(
        Cluster.parse("2x3"),
        interference=1.3,
        switching=Switching.parse(cost),
        capacity=((4.0, ((1, "down"),)), (7.0, ((1, "up"),))) if draw.random() < 0.5 else (),
    )
    policy = f"{RESTLESS}:Restless:seed={seed},calm-s=9"
    with TemporaryDirectory() as folder:
        log = Path(folder) / "events.jsonl"
        run = simulate(trace_of(*rows), parse_policy(policy), options, log_to=log)
        assert replay(log, policy).differences == ()
        assert read_recording(log).jobs().equals(run.jobs)


def test_a_live_log_may_tell_of_jobs_later_than_they_were_submitted(tmp_path: Path) -> None:
    """A job that depends on another enters the log when that is over, behind younger jobs."""
    log = tmp_path / "events.jsonl"
    rows = [Row(1, 5), Row(1, 5, submit_s=1), Row(1, 5, submit_s=2), Row(1, 5, submit_s=2)]
    simulate(trace_of(*rows), parse_policy("fifo"), OPTIONS, log_to=log)
    header, *lines = log.read_text().splitlines()
    live = json.loads(header)
    live["manifest"]["live"] = True
    told = [json.loads(line) for line in lines]
    told = [line | {"job": str(int(line["job"]) + 9)} if "job" in line else line for line in told]
    held = [line for line in told if line.get("job") in {"10", "11"} and line["e"] == "submitted"]
    rest = [line for line in told if line not in held]
    assert len(held) == 2
    log.write_text("\n".join(map(json.dumps, [live, *rest[:-1], *held[::-1], rest[-1]])) + "\n")
    jobs = read_recording(log).trace.jobs
    assert jobs.job_id == ("9", "10", "11", "12")
    assert jobs.submit_s.tolist() == [0, 1, 2, 2]

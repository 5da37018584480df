"""The event log: every fact goes in and comes out, and a damaged log is refused."""

import json
from io import StringIO
from pathlib import Path

import pytest

from builders import Row, trace_of
from dovetail.core.errors import InputError
from dovetail.core.messages import (
    Ended,
    Explained,
    Fact,
    Foreseen,
    Measured,
    NodeChanged,
    Reason,
    Refused,
    Retimed,
    Started,
    Stopped,
    Submitted,
    Withdrawn,
    Woke,
)
from dovetail.core.placement import Interleave, Placement
from dovetail.physics.linear import linear_physics
from dovetail.record.log import LogLines, LogWriter, fact_of, read_log
from growing_world import empty_table

PLAIN = Placement(((0, 2), (3, 1)))
FANCY = Placement(
    ((1, 2),),
    ((3, 0),),
    accumulation_steps=4,
    fractions=(0.1, 0.30000000000000004),
    samples=(5, 3),
    interleave=Interleave(7, 2),
)
FACTS: list[Fact] = [
    Submitted(0.1, 0, 12.5),
    Submitted(0.1, 1, float("inf")),
    NodeChanged(0.2, 3, "draining"),
    Woke(1 / 3),
    Started(1 / 3, 0, "start", PLAIN, 1.0, 1 / 3),
    Started(1 / 3, 1, "resume", FANCY, 2 / 3, 30.1),
    Retimed(1e9 + 0.1, 0, 0.1 + 0.2),
    Measured(1e9 + 0.1, 0, 0.1 + 0.7, 1 / 7),
    Foreseen(1e9 + 0.1, 0, float("inf")),
    Foreseen(1e9 + 0.1, 0, 0.3),
    Refused(1e9 + 0.1, 'it raised KeyError: "a\\b"\n'),
    Stopped(1e9 + 0.1, 0, "preempted", 1e-12),
    Withdrawn(1e9 + 0.1, 0),
    Explained(
        1e9 + 0.1,
        (Reason("Resources", job=0), Reason("Priority", behind=1), Reason("Quota", shape=2)),
    ),
    Ended(2e9, 1, "timeout"),
]


def written(rows: list[Row], facts: list[Fact], manifest: dict[str, object]) -> str:
    trace = trace_of(*rows)
    file = StringIO()
    writer = LogWriter(file, trace, linear_physics(trace.jobs), manifest)
    writer.record(facts)
    writer.close()
    return file.getvalue()


def read(tmp_path: Path, text: str) -> list[Fact]:
    path = tmp_path / "log.jsonl"
    path.write_text(text, encoding="utf-8")
    return [fact_of(r, {"0": 0, "1": 1}) for r in read_log(path)[1]]


def test_every_fact_comes_back_bit_by_bit(tmp_path: Path) -> None:
    text = written([Row(3, 5), Row(2, 5)], FACTS, {"policy": "fifo"})
    assert read(tmp_path, text) == FACTS


def test_each_line_is_one_json_object_and_the_last_says_closed() -> None:
    lines = written([Row(3, 5), Row(2, 5)], FACTS, {"policy": "fifo"}).splitlines()
    records = [json.loads(line) for line in lines]
    assert records[0] == {"log": "dovetail", "version": 2, "manifest": {"policy": "fifo"}}
    assert records[-1] == {"e": "closed"}
    assert len(records) == len(FACTS) + 2


def test_a_submission_carries_the_request_without_neutral_values() -> None:
    rows = [
        Row(2, 5),
        Row(
            1,
            7.5,
            time_limit_s=60,
            elastic=True,
            max_gpus=4,
            shareable=True,
            preemptible=False,
            cpus=2.5,
            queue='a"b\\c',
            user="ü",
        ),
    ]
    text = written(rows, [Submitted(0.0, 0, 5.0), Submitted(0.0, 1, 7.5)], {})
    plain, full = (json.loads(line) for line in text.splitlines()[1:3])
    assert plain == {
        "t": 0, "e": "submitted", "job": "0", "gpus": 2, "work_s": 5, "length_s": 5,
    }  # fmt: skip
    assert full == {
        "t": 0, "e": "submitted", "job": "1", "gpus": 1, "user": "ü", "queue": 'a"b\\c',
        "cpus": 2.5, "time_limit_s": 60, "min_gpus": 1, "max_gpus": 4, "elastic": True,
        "shareable": True, "preemptible": False, "work_s": 7.5, "length_s": 7.5,
    }  # fmt: skip


def test_an_unknown_length_is_null_in_json_and_infinite_here(tmp_path: Path) -> None:
    text = written([Row(1, 5)], [Submitted(0.0, 0, float("inf"))], {})
    assert '"length_s":null' in text
    assert read(tmp_path, text) == [Submitted(0.0, 0, float("inf"))]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot be read|not a dovetail"),
        ("hello\n", "cannot be read as an event log"),
        ("[1]\n", "line 1: this is not a dovetail event log"),
        ('{"log":"dovetail","version":99,"manifest":{}}\n', "log version 99 is unknown, expected"),
        ('{"log":"dovetail","version":1,"manifest":{}}\n', "the log ends early"),
        ('{"log":"dovetail","version":1,"manifest":{}}\n{"t":0,', "line 2: the record is damaged"),
        ('{"log":"dovetail","version":1,"manifest":{}}\n{"t":0,"e":"woke"}\n', "ends early"),
        ('{"log":"dovetail","version":1}\n{"e":"closed"}\n', "."),
        ('{"log":"dovetail","version":1,"manifest":{}}\n[1]\n{"e":"closed"}\n', "line 2"),
        (
            '{"log":"dovetail","version":1,"manifest":{}}\n{"t":0,"e":"dance"}\n{"e":"closed"}\n',
            "unknown record 'dance'",
        ),
        (
            '{"log":"dovetail","version":1,"manifest":{}}\n{"t":0,"e":"ended"}\n{"e":"closed"}\n',
            ".",
        ),
    ],
)
def test_what_is_no_whole_log_is_refused_in_one_sentence(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        read(tmp_path, text)


def test_a_file_that_is_not_text_or_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read as an event log"):
        read_log(path)
    with pytest.raises(InputError, match="cannot be read as an event log"):
        read_log(tmp_path / "nowhere")


def test_a_large_log_is_written_in_pieces_and_is_whole() -> None:
    facts: list[Fact] = [Woke(float(i)) for i in range(45_000)]
    trace = trace_of(Row(1, 1))
    file = StringIO()
    writer = LogWriter(file, trace, linear_physics(trace.jobs), {})
    for i in range(0, len(facts), 1000):
        writer.record(facts[i : i + 1000])
    assert file.getvalue().count("\n") >= 40_000
    writer.close()
    assert file.getvalue().count("\n") == 45_002


def test_lines_of_jobs_that_are_admitted_later_are_those_of_the_whole_trace() -> None:
    rows = [
        Row(2, 5.0, user="a"),
        Row(1, 6.0, 1.0, queue="q", model="m", time_limit_s=60.0),
        Row(4, 7.0, 2.0, elastic=True, min_gpus=1, max_gpus=8, preemptible=False, cpus=3.0),
    ]
    trace = trace_of(*rows)
    jobs, facts = empty_table(), [Submitted(float(i), i, 1.0) for i in range(3)]
    physics = linear_physics(jobs)
    growing = LogLines(jobs, physics, [])
    for job in range(3):
        jobs.append([trace.jobs.job(job)])
        physics.structure.admit(jobs)
        growing.admit([rows[job].duration_s])
    whole = LogLines(trace.jobs, linear_physics(trace.jobs), trace.duration_s.tolist())
    assert [growing.line(f) for f in facts] == [whole.line(f) for f in facts]
    jobs.append([trace.jobs.job(2)])
    physics.structure.admit(jobs)
    growing.admit([float("inf")])
    assert json.loads(growing.line(Submitted(2.0, 3, 1.0)))["work_s"] is None

"""Two folders of results are the same but for what a mask names; any other change is located."""

import json
from pathlib import Path

import pytest

from tools.compare_checkouts import main
from tools.comparison_diff import MASKS, compare_folders, masked
from tools.comparison_runs import plan

HEADER = {"log": "dovetail", "version": 2, "manifest": {"version": "0.1.0", "policy": "srtf"}}
EVENTS = (
    '{"t":1.5,"e":"submitted","job":"0","gpus":2}',
    '{"t":1.5,"e":"explained","reasons":[{"code": "Resources", "job": "0"}]}',
    '{"t":2.5,"e":"stopped","job":"0","why":"preempted","done_s":1.25}',
)
SUMMARY = ' "avg_jct_s": 7.25,\n "decisions": 12,\n "decision_p99_ms": 0.5,\n "wall_s": 1.25\n'
TABLE = "policy  mean JCT\nsrtf    7.25 s\n"


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return results(tmp_path / "before")


@pytest.fixture
def after(tmp_path: Path) -> Path:
    return results(tmp_path / "after")


def results(folder: Path) -> Path:
    """Writes what one run leaves."""
    (folder / "out").mkdir(parents=True)
    log = "\n".join([json.dumps(HEADER), *EVENTS]) + "\n"
    (folder / "out" / "events.jsonl").write_text(log)
    (folder / "out" / "summary.json").write_text("{\n" + SUMMARY + "}\n")
    (folder / "out" / "jobs.csv").write_text("job_id,jct_s,end\n0,7.25,completed\n")
    (folder / "0.stdout").write_text(TABLE)
    return folder


def change(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / name
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def test_equal_folders_are_the_same(before: Path, after: Path) -> None:
    comparison = compare_folders(before, after)

    assert (comparison.files, comparison.events, comparison.first) == (4, 4, None)


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize(
    ("name", "old", "new", "line"),
    [
        ("out/events.jsonl", '"done_s":1.25', '"done_s":1.26', 4),
        ("out/events.jsonl", '"e":"stopped"', '"e":"ended"', 4),
        ("out/events.jsonl", '"why":"preempted"', '"why":"moved"', 4),
        ("out/events.jsonl", '"gpus":2', '"width":2', 2),
        ("out/events.jsonl", '"version": 2', '"version": 3', 1),
        ("out/summary.json", '"decisions": 12', '"decisions": 13', 3),
        ("out/jobs.csv", "7.25", "7.250000001", 2),
        ("out/jobs.csv", "completed", "failed", 2),
        ("0.stdout", "7.25 s", "7.26 s", 2),
    ],
)
def test_a_changed_digit_or_field_is_located(
    before: Path, after: Path, name: str, old: str, new: str, line: int, words: bool
) -> None:
    change(after, name, old, new)

    first = compare_folders(before, after, words).first

    assert first is not None
    assert (first.file, first.line) == (name, line)
    assert first.before != first.after


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("out/events.jsonl", "Resources", "NoFreeGpus"),
        ("out/events.jsonl", '"policy": "srtf"', '"policy": "shortest-remaining"'),
        ("0.stdout", "mean JCT", "mean completion time"),
    ],
)
def test_a_changed_word_differs_unless_words_may(
    before: Path, after: Path, name: str, old: str, new: str
) -> None:
    change(after, name, old, new)

    assert compare_folders(before, after).first is not None
    assert compare_folders(before, after, words=True).first is None


@pytest.mark.parametrize("words", [False, True])
def test_a_number_inside_a_sentence_is_no_word(before: Path, after: Path, words: bool) -> None:
    change(after, "out/events.jsonl", "Resources", "Resources of 3 nodes")

    assert compare_folders(before, after, words).first is not None


@pytest.mark.parametrize("words", [False, True])
def test_release_and_wall_clock_are_masked(before: Path, after: Path, words: bool) -> None:
    change(after, "out/events.jsonl", "0.1.0", "0.2.0")
    change(after, "out/summary.json", '"wall_s": 1.25', '"wall_s": 9e-05')
    change(after, "out/summary.json", '_ms": 0.5', '_ms": 0.75')

    assert compare_folders(before, after, words).first is None


def test_a_mask_takes_one_value_and_leaves_the_rest_of_the_line() -> None:
    line = '{"version": 2, "manifest": {"version": "0.1.0", "wall_s": 1.5, "makespan_s": 2.5}}'

    assert masked(line, "events.jsonl") == (
        '{"version": 2, "manifest": {"version": "<release>", "wall_s": "<wall clock>",'
        ' "makespan_s": 2.5}}'
    )
    assert masked(line, "jobs.csv") == line
    assert all(mask.why for mask in MASKS)


def test_a_file_on_one_side_only_is_a_difference(before: Path, after: Path) -> None:
    (after / "out" / "jobs.csv").unlink()

    first = compare_folders(before, after, words=True).first

    assert str(first) == "out/jobs.csv\n  before: exists\n  after:  no such file"


def test_every_policy_runs_on_every_trace_under_its_own_name() -> None:
    parts = {part.name: part for part in plan(["fifo", "no-op", "srtf"], Path("/data"))}

    assert len(parts["policies"].runs) == 3 * 4
    for part in parts.values():
        names = [run.name for run in part.runs]
        assert len(names) == len(set(names))


def test_bad_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), str(tmp_path)]) == 2

    message = capsys.readouterr().err
    assert message.startswith(f"compare_checkouts: {tmp_path}: no ")
    assert message.count("\n") == 1

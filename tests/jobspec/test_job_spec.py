"""Job specs in YAML: what each field means, what is refused and where, what cannot be left."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.core.errors import InputError
from dovetail.jobspec import values as job_words
from dovetail.jobspec.files import SpecFile, Submitter, read_command, read_spec
from dovetail.wire.spec import Dependency, JobSpec, Mount

CONTAINER = "command: x\ncontainer_image: a\ncontainer_mounts: "
FULL = """\
name: train resnet
command: [python, train.py, --lr, "0.1", $HOME, "`id`"]
workdir: code
output: logs/%x-%j.log
gpus: 1..4
gpu_type: a100
trains: yes
shareable: true
preemptible: no
queue: research
model: resnet50
recurrence: nightly
priority: -2.5
batch_size: 256
cpus: 8
memory: 64G
time_limit: 1-12:00:00
deadline: 2d
duration: 1h30m
environment:
  EPOCHS: 3
  NAME: no
  PATH_TO: $HOME/`x`
  TAKEN:
after: [afterok:12:13, "afterany:4"]
hold: yes
retries: 1
requeue: no
grace: 30s
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    for name in ("code", "code/logs", "logs"):
        (made / name).mkdir(parents=True)
    return made


def read(folder: Path, text: str, **by: Any) -> SpecFile:
    path = folder / "job.yaml"
    path.write_text(text)
    return read_spec(path, Submitter(folder, **by))


def one(folder: Path, text: str, **by: Any) -> JobSpec:
    (submission,) = read(folder, text, **by).submissions
    return submission.spec


def refused(folder: Path, text: str, **by: Any) -> str:
    with pytest.raises(InputError) as error:
        read(folder, text, **by)
    return str(error.value).replace(str(folder), "")


def test_every_field_says_what_it_says(folder: Path) -> None:
    assert one(folder, FULL, own={"TAKEN": "over", "HOME": "/secret"}) == JobSpec(
        name="train resnet",
        command=("python", "train.py", "--lr", "0.1", "$HOME", "`id`"),
        workdir=str(folder / "code"),
        output=str(folder / "code/logs/train resnet-%j.log"),
        gpus=1,
        min_gpus=1,
        max_gpus=4,
        gpu_type="a100",
        trains=True,
        shareable=True,
        preemptible=False,
        queue="research",
        model="resnet50",
        recurrence="nightly",
        priority=-2.5,
        batch_size=256,
        cpus=8.0,
        memory_bytes=64 * 2.0**30,
        time_limit_s=36 * 3600.0,
        deadline_s=2 * 86400.0,
        duration_s=5400.0,
        environment=(("EPOCHS", "3"), ("NAME", "no"), ("PATH_TO", "$HOME/`x`"), ("TAKEN", "over")),
        after=(Dependency("afterok", 12), Dependency("afterok", 13), Dependency("afterany", 4)),
        hold=True,
        retries=1,
        requeue=False,
        grace_s=30.0,
    )


def test_the_least_spec_is_a_command(folder: Path) -> None:
    assert one(folder, "command: echo 'two words' $HOME") == JobSpec(
        "job", ("echo", "two words", "$HOME"), str(folder)
    )


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("gpus: 2", (2, 2, 2)),
        ("gpus: 2..2", (2, 2, 2)),
        ("gpus: 1..4\ntrains: yes", (1, 1, 4)),
        ("gpus: 2\nmax_gpus: 4\ntrains: yes", (2, 2, 4)),
        ("gpus: 2\nmin_gpus: 1\nmax_gpus: 4\ntrains: yes", (1, 2, 4)),
        ("min_gpus: 2\nmax_gpus: 4\ntrains: yes", (2, 2, 4)),
        ("max_gpus: 4\npaced: yes\nduration: 5s", (1, 1, 4)),
    ],
)
def test_gpus_are_a_number_or_a_range(
    folder: Path, said: str, expected: tuple[int, int, int]
) -> None:
    spec = one(folder, f"command: x\n{said}")
    assert (spec.min_gpus, spec.gpus, spec.max_gpus) == expected


def test_the_command_line_goes_before_the_file(folder: Path) -> None:
    spec = one(
        folder,
        "command: x\ngpus: 2\nmin_gpus: 1\nmax_gpus: 4\ntrains: yes\nenvironment: {A: a, B: b}",
        overrides={"gpus": "3", "name": "other", "time_limit": "30:00", "environment": "C='x,y',D"},
        environment={"A": "changed"},
        own={"D": "d"},
    )
    assert (spec.min_gpus, spec.gpus, spec.max_gpus) == (3, 3, 3)
    assert (spec.name, spec.time_limit_s) == ("other", 1800.0)
    assert dict(spec.environment) == {"A": "changed", "B": "b", "C": "x,y", "D": "d"}
    assert "command line: unknown field 'gpu' (did you mean 'gpus'?)" in refused(
        folder, "command: x", overrides={"gpu": "3"}
    )


def test_several_jobs_share_fields_and_wait_for_each_other_by_name(folder: Path) -> None:
    reading = read(
        folder,
        """\
gpus: 2
environment: {A: a}
jobs:
  - {name: prepare, command: p, gpus: 1}
  - name: train
    command: t
    after: afterok:prepare
    array: 0-2,7
  - name: report
    command: r
    after: [afterok:train, afterany:prepare:55]
---
command: alone
""",
    )
    prepare, train, report, alone = reading.submissions
    assert [s.spec.gpus for s in reading.submissions] == [1, 2, 2, 1]
    assert train.array == (0, 1, 2, 7)
    assert train.spec.after == (Dependency("afterok", -1),)
    assert report.spec.after == (
        Dependency("afterok", -2),
        Dependency("afterany", -1),
        Dependency("afterany", 55),
    )
    assert prepare.spec.environment == (("A", "a"),)
    assert (alone.spec.name, alone.spec.environment) == ("job", ())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("comand: x", "line 1: unknown field 'comand' (did you mean 'command'?)"),
        ("command: x\n\ngpu: 2", "line 3: unknown field 'gpu' (did you mean 'gpus'?)"),
        ("command: x\ngpus: two", "line 2: gpus: 'two' is not a number of GPUs"),
        ("command: x\ngpus: 0", "line 2: gpus: '0' is not a number of GPUs"),
        ("command: x\ngpus: 4..1", "line 2: gpus: '4..1' is not a number of GPUs"),
        ("command: x\ngpus: [1]", "line 2: gpus: expected a text, not a list"),
        (
            "command: x\ngpus: 1..4",
            "line 2: only a program that uses dovetail.train, or",
        ),
        ("command: x\ngpus: 2\nmin_gpus: 3", "line 3: at least 3 GPUs, at most 2"),
        ("command: x\ntime_limit: 30", "line 2: time_limit: 30 lacks a unit: write 30s, 30m"),
        ("command: x\ntime_limit: soon", "line 2: time_limit: 'soon' is not a duration"),
        ("command: x\ntime_limit: -5m", "line 2: time_limit: '-5m' is not a duration, as in 90s"),
        ("command: x\ntime_limit: 0s", "line 2: time_limit: it must be above 0"),
        ("command: x\nmemory: 64", "line 2: memory: 64 lacks a unit"),
        ("command: x\nmemory: 1e400G", "line 2: memory: '1e400G' is not a size"),
        ("command: x\npriority: .nan", "line 2: priority: '.nan' is not a number"),
        ("command: x\npriority: 1e999", "line 2: priority: it must be a finite number"),
        ("command: x\nhold: maybe", "line 2: hold: 'maybe' is neither yes nor no"),
        ("command: x\nname:", "line 2: name: it has no value"),
        ("command: x\nname: a/b", "line 2: name: a name has a character"),
        ("command: x\nname: '..'", "line 2: name: a name has a character"),
        ("command: x\ngrace: 400000000h", "line 2: grace: it must not be over"),
        ("command: 'a", "line 1: this is not valid YAML"),
        ('command: "a \'b"', "line 1: command: cannot split the text into words"),
        ("gpus: 1", "line 1: a job needs a command or a script"),
        ("command: x\ncommand: y", "line 2: field 'command' occurs twice"),
        ("- command: x", "line 1: a job is a mapping of fields"),
        ("jobs: {}", "line 1: jobs: expected a list of jobs"),
        ("jobs: []", "line 1: jobs: expected a list of jobs"),
        ("gpus: 1\njobs:\n- x", "line 3: a job is a mapping of fields"),
        ("", "it contains no jobs"),
        ("---\n---\n", "it contains no jobs"),
        ("command: x\nenvironment: [A]", "line 2: environment: expected a mapping"),
        ("command: x\nenvironment: {A B: c}", "line 2: environment: 'A B' is no name"),
        ("command: x\nenvironment: {DOVETAIL_TOKEN: c}", "line 2: environment: DOVETAIL_TOKEN is"),
        ("command: x\nenvironment: {UNSET: }", "line 2: environment: 'UNSET' has no value"),
        ("command: x\ncontainer_image: -x", "line 2: container_image: it is a name as in"),
        ("command: x\ncontainer_image: 'a b'", "line 2: container_image: it is a name as in"),
        ("command: x\ncontainer_image: /a/../b", "line 2: container_image: a path must be"),
        ("command: x\ncontainer_mounts: /a", "line 2: container_mounts: they are for a container"),
        (CONTAINER + "/a:/b:ro:rw", "container_mounts: '/a:/b:ro:rw' is not SOURCE:DESTINATION"),
        (CONTAINER + "/a:/b:rx", "container_mounts: '/a:/b:rx': 'rx' is not a flag of a mount"),
        (CONTAINER + "'/a:'", "container_mounts: '/a:' is not SOURCE:DESTINATION"),
        (CONTAINER + "data:/b", "container_mounts: data:/b: both paths must be absolute"),
        (CONTAINER + "/a:/../b", "container_mounts: /a:/../b: both paths must be absolute"),
        (CONTAINER + "/a:/", "container_mounts: a mount at / would hide the image"),
        (CONTAINER + "/a:/c,/b:/c", "container_mounts: two mounts have the destination /c"),
        (
            "paced: yes\nduration: 9s\ncontainer_image: a",
            "a synthetic job is a clock and runs in no",
        ),
        ("command: x\nafter: 12", "line 2: after: '12' must begin with one of after, afterok"),
        ("command: x\nafter: afterok", "line 2: after: 'afterok' needs a job"),
        ("command: x\nafter: expand:1", "line 2: after: 'expand:1' must begin with one of"),
        ("command: x\nafter: afterok:1?afterok:2", "line 2: after: alternatives (?)"),
        ("command: x\nafter: afterok:later", "line 2: after: 'later' is neither a job number"),
        ("command: x\nafter: afterok:t_3", "line 2: after: 't_3' is neither a job number"),
        ("command: x\narray: 0-9%x", "line 2: array: '%x' is not a number of tasks"),
        ("command: x\nbegin: 16:00", "line 2: begin: '16:00' is not a duration with units"),
        ("command: x\nbegin: 30", "line 2: begin: '30' is not a duration with units"),
        ("command: x\nkill_on_invalid_dep: 1", "kill_on_invalid_dep: '1' is neither yes nor no"),
        ("command: x\narray: 9-0", "line 2: array: '9-0' is not a range"),
        ("command: x\narray: 0-99999", "line 2: array: '0-99999' has more than 10000 tasks"),
        ("command: x\narray: a", "line 2: array: 'a' is not a list of indices"),
        ("command: x\npaced: yes", "line 2: paced: a synthetic job needs a duration above 0"),
        ("command: &a x\nname: *a", "line 1: anchors and aliases are not supported"),
        ("a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]", "line 1: anchors and aliases"),
        ("command: !!python/object/apply:os.system [id]", "line 1: the tag tag:yaml.org,2002"),
        ("? [a]\n: b", "line 1: the name of a field must be a text"),
        ("command: x\n\tgpus: 2", "line 2: this is not valid YAML"),
        ("[" * 90_000, "nested too deeply"),
        ("user: root\ncommand: x", "unknown field 'user'"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(folder: Path, text: str, sentence: str) -> None:
    assert sentence in refused(folder, text)


def test_a_container_has_an_image_and_mounts_which_may_begin_where_the_file_is(
    folder: Path,
) -> None:
    text = "command: x\ncontainer_image: {}\ncontainer_mounts: [/data:/data:ro, ./in:/in, /scratch]"
    spec = read(folder, text.format("docker.io/library/python:3.11")).submissions[0].spec
    assert spec.container_image == "docker.io/library/python:3.11"
    assert spec.container_mounts == (
        Mount("/data", "/data", read_only=True),
        Mount(str(folder.resolve() / "in"), "/in"),
        Mount("/scratch", "/scratch"),
    )
    assert read(folder, text.format("./a.sif")).submissions[0].spec.container_image == str(
        folder.resolve() / "a.sif"
    )


def test_tasks_of_arrays_are_named_by_their_index(folder: Path) -> None:
    jobs = read(
        folder,
        "jobs:\n  - {name: t, command: x, array: 0-7%2}\n"
        "  - {name: t_9, command: x, begin: 1h30m}\n"
        "  - {name: r, command: x, after: 'afterok:t_3:t_9:12_4:5,singleton'}\n",
    ).submissions
    assert (jobs[0].array, jobs[0].spec.at_once) == (tuple(range(8)), 2)
    assert (jobs[1].spec.begin_s, jobs[1].spec.at_once) == (5400.0, 0)
    assert jobs[2].spec.after == (
        Dependency("afterok", -1, task=3),
        Dependency("afterok", -2),
        Dependency("afterok", 12, task=4),
        Dependency("afterok", 5),
        Dependency("singleton"),
    )


def test_two_jobs_of_one_name_cannot_be_waited_for(folder: Path) -> None:
    text = "jobs:\n- {name: a, command: x}\n- {name: a, command: y}\n- {command: z, after: after:a}"
    assert "line 4: after: two earlier jobs have the name 'a'" in refused(folder, text)


ESCAPES = [
    "workdir: ..",
    "workdir: code/../..",
    "workdir: /",
    "workdir: away",
    "output: ../x.log",
    "output: /etc/x.log",
    "output: away/x.log",
    "output: code/../../x.log",
    "output: link.log",
    "output: dangling.log",
    "script: ../outside.sh",
    "script: away/outside.sh",
    "script: /etc/passwd",
    "name: ..\noutput: '%x/x.log'",
]


@pytest.mark.parametrize("said", ESCAPES)
def test_a_file_cannot_name_what_lies_outside_its_directory(folder: Path, said: str) -> None:
    (folder.parent / "outside.sh").write_text("#!/bin/sh\n")
    (folder / "away").symlink_to(folder.parent)
    (folder / "link.log").symlink_to(folder.parent / "outside.sh")
    (folder / "dangling.log").symlink_to(folder.parent / "not-there-yet")
    said_of = refused(folder, f"{said}\ncommand: x")
    assert "is outside" in said_of or "contains '..'" in said_of


def test_inside_paths_are_free_and_the_command_line_is_trusted(folder: Path) -> None:
    (folder / "here").symlink_to(folder / "code")
    (folder / "go.sh").write_text("#!/bin/sh\necho $HOME\n")
    spec = one(folder, f"script: go.sh\nworkdir: here\noutput: {folder}/logs/x.log")
    assert spec.workdir == str(folder / "code")
    assert spec.output == str(folder / "logs/x.log")
    assert (spec.script, spec.command) == ("#!/bin/sh\necho $HOME\n", ())
    outside = one(
        folder, "command: x", overrides={"workdir": "..", "output": str(folder.parent / "o.log")}
    )
    assert outside.workdir == str(folder.parent)
    assert outside.output == str(folder.parent / "o.log")


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("workdir: nowhere", "'nowhere' is not a directory"),
        ("output: nowhere/x.log", "there is no folder 'nowhere'"),
        ("output: logs/", "is not a file name"),
        ("output: '%j/x.log'", "only the file name may contain a %"),
        ("output: '%N.log'", "'%N' is unknown"),
        ("output: 'x%'", "'%' is unknown"),
        ("script: missing.sh", "there is no file 'missing.sh'"),
        ("script: job.yaml", "its first line must name its interpreter"),
    ],
)
def test_paths_that_cannot_work_are_refused(folder: Path, said: str, sentence: str) -> None:
    assert sentence in refused(folder, f"command: x\n{said}")


def test_the_name_in_an_output_is_not_taken_for_a_pattern(folder: Path) -> None:
    assert one(folder, "command: x\nname: 100%j\noutput: '%x-%%x-%j.log'").output == str(
        folder / "100%%j-%%x-%j.log"
    )


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    by = Submitter(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        read_spec(tmp_path / "missing.yaml", by)
    (tmp_path / "large.yaml").write_text("command: " + "x" * 300_000)
    with pytest.raises(InputError, match="longer than 256 KiB"):
        read_spec(tmp_path / "large.yaml", by)
    (tmp_path / "bytes.yaml").write_bytes(b"command: \xff")
    with pytest.raises(InputError, match="not UTF-8"):
        read_spec(tmp_path / "bytes.yaml", by)
    (tmp_path / "nul.yaml").write_bytes(b"command: a\0b")
    with pytest.raises(InputError, match="not valid YAML"):
        read_spec(tmp_path / "nul.yaml", by)
    (tmp_path / "fine.yaml").write_text("command: x")
    with pytest.raises(InputError, match="only batch scripts take arguments"):
        read_spec(tmp_path / "fine.yaml", by, ["a"])


def test_a_command_needs_no_file(tmp_path: Path) -> None:
    by = Submitter(tmp_path, overrides={"gpus": "2"})
    (submission,) = read_command(["/bin/echo", "$HOME", "a b"], by).submissions
    assert submission.spec == JobSpec(
        "echo", ("/bin/echo", "$HOME", "a b"), str(tmp_path), gpus=2, min_gpus=2, max_gpus=2
    )
    with pytest.raises(InputError):
        read_command([], by)


@given(st.text(max_size=60))
@settings(max_examples=150)
def test_any_text_is_a_job_or_one_clear_error(tmp_path_factory: Any, text: str) -> None:
    folder = tmp_path_factory.getbasetemp()
    path = folder / "any.yaml"
    path.write_text(text, encoding="utf-8", errors="replace", newline="")
    said = ""
    try:
        assert read_spec(path, Submitter(folder)).submissions
    except InputError as error:
        said = str(error)
    assert not said or "any.yaml" in said


WORDS = ("seconds", "some_seconds", "slurm_seconds", "memory_bytes", "size_bytes", "flag", "whole",
         "number", "words", "gpus", "indices", "after")  # fmt: skip


@given(st.sampled_from(WORDS), st.text(max_size=20) | st.text("0123456789.:,-%smhdGM", max_size=12))
@settings(max_examples=200)
def test_words_are_read_or_refused_by_a_value_error(name: str, text: str) -> None:
    with suppress(ValueError):
        getattr(job_words, name)(text)

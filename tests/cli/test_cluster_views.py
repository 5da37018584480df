"""What the commands about a live cluster print, over a cluster whose state is set by hand."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from command_runner import Shell

from cluster_by_hand import ByHand, spec
from dovetail.core.messages import Reason, Started, Submitted
from dovetail.core.placement import Placement
from dovetail.live.edges.protocols import JournalEntry
from dovetail.live.jobs.lifecycle import State
from dovetail.live.server.server import Server
from dovetail.wire.spec import Dependency
from dovetail.wire.submission import Submission
from patience import PATIENCE_S


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def cluster(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ByHand]:
    """Returns a cluster that answers, with a running, a waiting, a held and an ended job."""
    monkeypatch.setenv("DOVETAIL_HOME", str(home))
    by_hand = ByHand(home)
    names = ("train", "next", "later", "old")
    secret = (("API_KEY", "hunter2"),)
    by_hand.intake.submit(
        [Submission(spec(name, environment=secret)) for name in names], key="k", user="ann"
    )
    by_hand.run(1, [(0, 1)], left_s=30.0)
    by_hand.wait([2], Reason("Resources", job=2))
    by_hand.record(3, held=True)
    by_hand.record(
        4,
        state=State.FAILED,
        first_start_s=110.0,
        end_s=175.0,
        ran_s=65.0,
        attained_gpu_s=130.0,
        exit_code=3,
        reason="NonZeroExitCode",
    )
    server = Server(by_hand.desk, by_hand.folder.socket)
    server.start()
    yield by_hand
    server.stop()
    by_hand.close()


def test_ls_prints_a_row_for_each_job(cluster: ByHand, shell: Shell) -> None:
    lines = shell.ok("ls").out.splitlines()
    assert lines[0].split()[:4] == ["job", "name", "state", "time"]
    assert [line.split()[:3] for line in lines[2:]] == [
        ["1", "train", "RUNNING"],
        ["2", "next", "PENDING"],
        ["3", "later", "PENDING"],
    ]
    assert "0:1" in lines[2] and "25%" in lines[2]
    assert lines[3].rstrip().endswith("Resources")
    assert lines[4].rstrip().endswith("JobHeldUser")
    said = shell.ok("ls", "--all", "--json").json
    assert [row["state"] for row in said["jobs"]] == ["RUNNING", "PENDING", "PENDING", "FAILED"]
    assert said["jobs"][1]["end_s"] is None
    assert shell.ok("ls", "--name", "nobody").out == "no such jobs\n"
    first, second = (shell.ok("ls", "--limit", 2, "--page", page).out for page in (1, 2))
    assert first.endswith("showing 2 of 3 (next: --page 2, all: --limit 3)\n")
    assert second.endswith("showing 3 to 3 of 3 (all: --limit 3)\n")
    assert shell.ok("ls", "--limit", 2, "--page", 9).out == "no page 9: the last is 2\n"
    assert "no such state" in shell.refused("ls", "--state", "busy")


def test_ls_has_one_row_for_the_waiting_tasks_of_an_array(cluster: ByHand, shell: Shell) -> None:
    tasks = Submission(spec("sweep"), tuple(range(20)))
    (first,) = cluster.intake.submit([tasks], key="sweep")
    lines = shell.ok("ls", "--name", "sweep").out.splitlines()
    assert [line.split()[:3] for line in lines[2:]] == [[f"{first}_[0-19]", "sweep", "PENDING"]]
    (row,) = shell.ok("ls", "--name", "sweep", "--json").json["jobs"]
    assert (row["array_of"], row["array"]) == (first, None)
    assert (row["tasks"], row["task_count"]) == ("0-19", 20)
    assert len(shell.ok("ls", "--name", "sweep", "-r", "--json").json["jobs"]) == 20


def test_ls_cuts_nothing_where_its_output_is_read_by_a_program(
    cluster: ByHand, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    long = "a-name-of-more-than-twenty-characters-" * 4
    cluster.intake.submit([Submission(spec(long))], key="long", user="somebody-with-a-long-name")
    said = shell.ok("ls", "--name", long).out
    assert long in said and "somebody-with-a-long-name" not in said  # there is one user alone
    assert "somebody-with-a-long-name" in shell.ok("ls").out
    monkeypatch.setenv("COLUMNS", "80")
    assert long not in shell.ok("ls").out


def test_ls_names_users_where_there_are_several(cluster: ByHand, shell: Shell) -> None:
    cluster.intake.submit([Submission(spec("x"))], key="bob", user="bob")
    assert shell.ok("ls").out.splitlines()[0].split()[:3] == ["job", "name", "user"]


def test_names_of_users_are_printed_as_they_are(cluster: ByHand, shell: Shell) -> None:
    cluster.intake.submit([Submission(spec("[red]x[bold]"))], key="n", user="ann")
    assert "[red]x[bold]" in shell.ok("ls", "--name", "[red]x[bold]").out


def test_show_and_why_say_everything_but_secrets(cluster: ByHand, shell: Shell) -> None:
    shown = shell.ok("show", 1).out
    assert "environment  API_KEY" in shown
    assert "where        0:1" in shown
    old = shell.ok("show", 4).out
    assert "waited       0:10" in old and "ran          1:05" in old
    why = shell.ok("why", 2).out.splitlines()
    assert why[0].startswith("job 2 is PENDING (Resources): it is next")
    assert "  - 1 GPU is free, at most 1 on one node" in why
    assert any(line.startswith("  to start: enough GPUs are free") for line in why)
    for words in (("show", 1), ("why", 1), ("ls",), ("history", 1), ("top", "--once"), ("nodes",)):
        for json_too in ((), ("--json",)):
            assert "hunter2" not in shell.ok(*words, *json_too).out, words
    assert "exited with code 3" in shell.ok("why", 4).out


def test_top_prints_one_picture_where_nobody_watches(cluster: ByHand, shell: Shell) -> None:
    picture = shell.ok("top", "--once").out
    assert "1 of 2 GPUs in use" in picture
    assert "1 running, 2 pending, 1 failed" in " ".join(picture.split()).replace(
        "2 pending, 1 running", "1 running, 2 pending"
    )
    assert "[.][1]" in picture
    assert "Resources" in picture
    said = shell.ok("top", "--json").json
    assert sorted(said) == ["cluster", "jobs", "nodes"]


def test_top_draws_anew_on_a_terminal_until_it_is_interrupted(cluster: ByHand) -> None:
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "dovetail", "top", "--every", "0.1"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    ) as watching:
        os.close(theirs)
        seen = b""
        while seen.count(b"RUNNING") < 2:
            seen += os.read(ours, 65536)
        watching.send_signal(signal.SIGINT)
        with suppress(OSError):
            while os.read(ours, 65536):
                pass
        assert watching.wait(PATIENCE_S) == 0
    os.close(ours)


def test_nodes_prints_a_cell_for_each_gpu(cluster: ByHand, shell: Shell) -> None:
    assert "[.][1]" in shell.ok("nodes").out
    assert shell.ok("nodes", "--json").json["nodes"][0]["jobs"] == [[], [1]]


def test_a_task_is_called_everywhere_as_ls_calls_it(cluster: ByHand, shell: Shell) -> None:
    array = Submission(spec("sweep"), (0, 1, 7))
    cluster.intake.submit([array], key="a", user="ann")
    needs = spec("next", after=(Dependency("afterok", 5, 7),))
    cluster.intake.submit([Submission(needs)], key="b", user="ann")
    place = Placement(((0, 1),))
    cluster.store.write(
        JournalEntry(facts=(Submitted(1.0, 5, 5.0), Started(2.0, 5, "start", place, 1.0, 2.0)))
    )
    cluster.run(5, [(0, 0)])
    cluster.run(6, [(0, 0)])
    cluster.wait([2, 7], Reason("Priority", job=7), Reason("Resources", job=2, behind=7))
    assert "5_0" in shell.ok("ls").out
    why = shell.ok("why", "5_0").out
    assert why.startswith("job 5_0 is RUNNING") and "it shares GPUs with job 5_1" in why
    assert "job 5_7 is the first that finds no room" in shell.ok("why", 2).out
    assert shell.ok("why", "5_0", "--json").json["job"] == 5
    assert shell.ok("history", "5_0").out.count(" job 5_0 ") == 2
    assert "[5_0+5_1]" in shell.ok("nodes").out
    assert shell.ok("nodes", "--json").json["nodes"][0]["jobs"][0] == [5, 6]
    assert "afterok:5_7" in shell.ok("show", 8).out
    assert shell.ok("hold", "5_7").out == "job 5_7 will be held\n"


def test_history_can_be_asked_for_some(cluster: ByHand, shell: Shell) -> None:
    cluster.record(3, held=False, state=State.COMPLETED, end_s=95.0)
    cluster.record(4, end_s=60.0)

    def jobs(*words: object) -> list[int]:
        return [row["job"] for row in shell.ok("history", "--json", *words).json["jobs"]]

    assert jobs() == [3, 4]
    assert jobs("--state", "F") == jobs("--state", "failed,to") == [4]
    assert jobs("--name", "later") == jobs("--since", "10s") == [3]
    assert jobs("--user", "ann", "--limit", 1) == [3]
    assert shell.ok("history", "--user", "bob").out == "no such job has ended\n"
    assert "such jobs have not ended" in shell.refused("history", "--state", "R")
    assert "no such state" in shell.refused("history", "--state", "busy")
    assert "select jobs, not events" in shell.refused("history", 4, "--since", "2h")
    assert "'yesterday' is not a duration with units" in shell.refused(
        "history", "--since", "yesterday"
    )


def test_history_lists_what_is_over_and_what_happened(
    cluster: ByHand, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    (row,) = shell.ok("history").out.splitlines()[2:]
    words = ["4", "old", "ann", "FAILED", "1", "0:10", "1:50", "2:55", "1:05", "0.04"]
    assert row.split()[:10] == words
    (job,) = shell.ok("history", "--json").json["jobs"]
    assert (job["start_s"], job["end_s"], job["gpu_hours"]) == (110.0, 175.0, 130.0 / 3600.0)
    place = Placement(((0, 1),))
    cluster.store.write(
        JournalEntry(facts=(Submitted(1.0, 1, 5.0), Started(63.5, 1, "start", place, 1 / 3, 64.25)))
    )
    lines = shell.ok("history", 1).out.splitlines()
    assert lines[0].split()[:4] == ["0:01", "submitted", "job", "1"]
    assert lines[1].strip() == (
        "1:03  started job 1  how start, on 1 on node 0, rate 0.33, from 1:04"
    )
    raw = shell.ok("history", "--events", "--json").out.splitlines()
    assert [json.loads(line)["e"] for line in raw] == ["submitted", "started"]


def test_logs_prints_what_the_job_printed(cluster: ByHand, shell: Shell) -> None:
    (cluster.folder.make_job(4) / "output.log").write_text("one\ntwo\n")
    assert shell.ok("logs", 4).out == "one\ntwo\n"
    assert shell.ok("logs", "-n", 1, 4).out == "two\n"
    followed = shell("logs", "-f", 4)
    assert (followed.code, followed.out, followed.err) == (1, "one\ntwo\n", "job 4 is FAILED\n")
    assert shell.ok("logs", 1).out == ""
    assert "no number of a job" in shell.refused("logs", "../../token")


def test_changes_say_what_will_be_and_refuse_what_cannot(cluster: ByHand, shell: Shell) -> None:
    assert shell.ok("hold", 2).out == "job 2 will be held\n"
    assert shell.ok("release", 2, 3).out == "job 2 will be released\njob 3 will be released\n"
    assert shell.ok("cancel", 1, "--json").json == {"jobs": [1], "left": [], "called": ["1"]}
    assert shell.ok("cancel", "--all", "--json").json["jobs"] == [1, 2, 3]
    assert shell.ok("cancel", "--state", "PD,R", "--name", "nobody").out.startswith("no such jobs")
    some = shell("cancel", 1, 4)
    assert (some.code, some.out) == (1, "job 1 will be cancelled\n")
    assert some.err == "dovetail: job 4: it is over (FAILED)\n"
    assert shell.ok("requeue", 4).out == "job 4 will be requeued\n"
    assert "is over" in shell.refused("cancel", 4)
    shell.ok("hold", 2)
    shell.ok("cancel", 1)
    both = shell.refused("hold", 1, 4)
    assert "job 1: it is on GPUs" in both and "; job 4: it is over (FAILED)" in both
    assert "there is no such job" in shell.refused("hold", 77)
    assert shell.ok("drain", 0).out == "node 0 accepts no new jobs\n"
    assert "no such node" in shell.refused("drain", 3)
    assert "there is no such node (dovetail nodes lists them)" in shell.refused("drain", "n1")


def test_submit_hands_over_a_script_a_file_or_a_command(
    cluster: ByHand, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.sh").write_text("#!/bin/sh\n#SBATCH --job-name=fromscript\nenv\n")
    (tmp_path / "b.yaml").write_text("name: fromyaml\ncommand: ls -l\nhold: yes\n")
    assert shell.ok("submit", "a.sh", "arg").out == "job 5 is submitted\n"
    assert shell.ok("submit", "b.yaml", "--array", "0-2").out == "job 6 is submitted (3 tasks)\n"
    run = ("submit", "--name", "cmd", "--env", "A=b", "--hold", "--json", "--")
    assert shell.ok(*run, "echo", "$HOME;", "ls").json["jobs"] == [9]
    script, array, command = (cluster.store.find(n) for n in (5, 7, 9))
    assert script is not None and array is not None and command is not None
    assert (script.spec.name, script.spec.command) == ("fromscript", ("arg",))
    assert (array.spec.name, array.spec.array, array.spec.array_of) == ("fromyaml", 1, 6)
    assert command.spec.command == ("echo", "$HOME;", "ls")
    assert (command.spec.environment, command.spec.hold) == ((("A", "b"),), True)


def test_a_range_of_gpus_is_asked_for_a_program_that_can_use_it(
    cluster: ByHand, shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "a.sh").write_text("#!/bin/sh\n")
    shell.ok("submit", "--gpus", "1..2", "--", "python", "-u", "train.py", "--lr", "1")
    shell.ok("submit", "--gpus", "1..2", tmp_path / "a.sh", "one", "--", "--two")
    command, script = (cluster.store.find(n) for n in (5, 6))
    assert command is not None and script is not None
    assert command.spec.command == ("python", "-u", "train.py", "--lr", "1")
    assert script.spec.command == ("one", "--two")
    assert command.spec.trains and script.spec.trains
    assert (command.spec.min_gpus, command.spec.max_gpus) == (1, 2)
    assert "Missing FILE, or -- and a command" in shell.refused("submit")


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("command: ls\nworkdir: ../..\n", "workdir"),
        ("command: ls\noutput: ../../escaped.log\n", "output"),
        ("command: ls\noutput: /etc/escaped.log\n", "output"),
        ("script: ../../secret.sh\n", "script"),
        ("command: ls\nuser: root\n", "unknown field 'user'"),
        ("command: ls\ngpus: 64\n", "64 GPUs"),
        ("command: !!python/object/apply:os.system [ls]\n", "line 1"),
        ("name: x\n", "command"),
    ],
)
def test_a_spec_that_reaches_out_of_its_folder_or_makes_no_sense_is_refused(
    cluster: ByHand, shell: Shell, tmp_path: Path, content: str, what: str
) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    (inside / "job.yaml").write_text(content)
    assert what in shell.refused("submit", inside / "job.yaml")
    assert len(cluster.reader.rows()) == 4


def test_without_a_controller_every_command_says_how_to_start_one(
    home: Path, shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "a.sh").write_text("#!/bin/sh\n")
    asked: tuple[tuple[object, ...], ...] = (
        ("ls",), ("show", 1), ("why", 1), ("logs", 1), ("cancel", 1), ("top", "--once"),
        ("nodes",), ("drain", 0), ("history",), ("down",), ("submit", tmp_path / "a.sh"),
    )  # fmt: skip
    for words in asked:
        said = shell(*words, "--home", home)
        assert (said.code, said.out) == (1, ""), words
        assert said.err == (f"dovetail: no controller runs in {home} (dovetail up starts one)\n"), (
            words
        )

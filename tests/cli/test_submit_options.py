"""What users of Slurm type at `submit`, `cancel` and `ls`: taken, or refused with what to do."""

import os
import socket
import threading
from pathlib import Path

import pytest
from command_runner import Shell

from dovetail.cli.job_selection import ABBREVIATIONS, jobs_of, states_of
from dovetail.core.errors import InputError
from dovetail.live.client.client import Client
from dovetail.live.jobs.lifecycle import State
from dovetail.wire.submission import Submission


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the folder of the user, with a script in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH --exclusive\necho\n")
    return tmp_path


@pytest.mark.parametrize(
    ("word", "mend"),
    [
        ("--wrap=echo", "write a command after --"),
        ("-N2", "specify the number of GPUs, as in --gpus 4"),
        ("--gres=gpu:2", "specify the number of GPUs"),
        ("--mem=4G", "--set memory=16G"),
        ("-c4", "--set cpus=8"),
        ("--export=ALL", "--env NAME=VALUE"),
        ("--nodelist=a", "the policy chooses the nodes"),
        ("--wckey=a", "remove it: use is not counted by key"),
        ("--no-requeue", "--set requeue=no"),
        ("--priority=3", "--set priority"),
        ("--signal=USR1", "write it as #SBATCH in the script"),
        ("--epochs=3", "write options of the script after --"),
        ("--arry=0-3", "did you mean '--array'?"),
    ],
)
def test_what_only_sbatch_or_the_script_knows_is_refused_with_what_to_do(
    shell: Shell, work: Path, word: str, mend: str
) -> None:
    said = shell.refused("submit", "job.sh", word)
    assert "submit has no such option" in said and mend in said


@pytest.mark.parametrize(
    "words",
    [
        ("-G", "2", "-t", "10m", "-J", "x", "-a", "0-3%2", "-o", "x.log", "-D", ".", "-p", "q"),
        ("-d", "singleton,afterok:12_3", "-b", "16:00", "-H", "-W"),
        ("--job-name", "x", "--begin", "2h", "--chdir", ".", "--partition", "q"),
    ],
)
def test_options_have_their_names_of_slurm(shell: Shell, work: Path, words: list[str]) -> None:
    said = shell.ok("submit", "--test-only", "job.sh", *words)
    assert said.out.endswith("can be read; nothing was submitted\n")
    assert said.err.startswith("note: job.sh, line 2: --exclusive: no other job shares")


@pytest.mark.parametrize(
    ("said", "kind", "gpus"),
    [("a100:2", "a100", (2, 2)), ("a100:1..3", "a100", (1, 3)), ("2", "", (2, 2))],
)
def test_gpus_are_asked_for_with_their_type(
    shell: Shell,
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    kind: str,
    gpus: tuple[int, int],
) -> None:
    taken: list[Submission] = []

    def take(client: Client, *jobs: Submission) -> tuple[int, ...]:
        taken.extend(jobs)
        return (1,)

    monkeypatch.setattr(Client, "submit", take)
    shell.ok("submit", "--gpus", said, "--", "true")
    (spec,) = [job.spec for job in taken]
    assert (spec.gpu_type, (spec.min_gpus, spec.max_gpus)) == (kind, gpus)


@pytest.mark.parametrize(
    "limit", ["5", "5:30", "1:02:03", "1-2", "1-2:03", "1-2:03:04", "0", "unlimited"]
)
def test_a_time_limit_means_what_it_means_behind_sbatch(
    shell: Shell, work: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    taken: list[Submission] = []

    def take(client: Client, *jobs: Submission) -> tuple[int, ...]:
        taken.extend(jobs)
        return (1,)

    monkeypatch.setattr(Client, "submit", take)
    Path("limited.sh").write_text(f"#!/bin/sh\n#SBATCH -t {limit}\ntrue\n")
    shell.ok("submit", "limited.sh")
    shell.ok("submit", "-t", limit, "--", "true")
    shell.ok("submit", "--time", limit, "job.sh")
    assert len({job.spec.time_limit_s for job in taken}) == 1
    assert taken[0].spec.time_limit_s == LIMITS_S[limit]


LIMITS_S = {
    "5": 300.0,
    "5:30": 330.0,
    "1:02:03": 3723.0,
    "1-2": 93600.0,
    "1-2:03": 93780.0,
    "1-2:03:04": 93784.0,
    "0": float("inf"),
    "unlimited": float("inf"),
}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--time", "30x"), "--time: '30x' is not a duration"),
        (("-t", "0s"), "--time: it must be above 0"),
        (("-G", "0"), "--gpus: '0' is not a number of GPUs"),
        (("-G", "a100:0"), "--gpus: '0' is not a number of GPUs"),
        (("-a", "3-1"), "--array: '3-1' is not a range"),
        (("-J", "a/b"), "--name: a name has"),
        (("-D", "/nowhere"), "--chdir: '/nowhere' is not a directory"),
        (("-o", "/nowhere/x"), "--output: there is no folder"),
        (("-d", "afterok:foo"), "--dependency: 'foo' is neither a job number"),
        (("--set", "time_limit=30"), "time_limit: 30 lacks a unit"),
    ],
)
def test_what_cannot_be_is_named_as_it_was_written(
    shell: Shell, work: Path, words: tuple[str, ...], said: str
) -> None:
    assert f"command line: {said}" in shell.refused("submit", "--test-only", "job.sh", *words)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--job-name=a/b", "--job-name: a name has"),
        ("--array=3-1", "--array: '3-1' is not a range"),
        ("--time=1:x", "--time: '1:x' is not a duration"),
        ("--output=/nowhere/x", "--output: '/nowhere' is outside"),
        ("--gpus=a\tb:1", "--gpus: it must be printable"),
    ],
)
def test_what_cannot_be_in_a_script_is_named_by_its_option(
    shell: Shell, work: Path, line: str, said: str
) -> None:
    (work / "wrong.sh").write_text(f"#!/bin/sh\n#SBATCH '{line}'\n")
    assert f"wrong.sh, line 2: {said}" in shell.refused("submit", "--test-only", "wrong.sh")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--name", ""), "--name: it is empty"),
        (("--time", ""), "--time: '' is not a duration"),
        (("--gpus", ""), "gpus: '' is not a number of GPUs"),
        (("--begin", "25:00"), "--begin: '25:00' is not a date or time, as in now+2hours, 16:00"),
        (("--begin", "2001-01-01"), "--begin: 2001-01-01 is in the past"),
    ],
)
def test_an_empty_value_is_not_taken_for_none(
    shell: Shell, work: Path, words: tuple[str, ...], what: str
) -> None:
    assert what in shell.refused("submit", "--test-only", "job.sh", *words)


def test_a_command_without_dashes_is_told_where_it_goes(shell: Shell, work: Path) -> None:
    said = shell.refused("submit", "python", "x.py")
    assert "there is no such file (write a command after --" in said


def test_jobs_are_named_as_scancel_takes_them() -> None:
    assert jobs_of(["12", "14,15_3", "16_[1-3,7]", "12"]) == (
        "12", "14", "15_3", "16_1", "16_2", "16_3", "16_7",
    )  # fmt: skip
    with pytest.raises(InputError, match=r"16_\[a\].*not a list of indices"):
        jobs_of(["16_[a]"])


def test_states_are_named_as_squeue_takes_them() -> None:
    assert states_of(["pd,R", "COMPLETED"]) == ("PENDING", "RUNNING", "COMPLETED")
    assert set(ABBREVIATIONS.values()) == set(State)


def test_cancel_wants_jobs_or_a_choice(shell: Shell) -> None:
    assert "specify either jobs, or --all" in shell.refused("cancel")
    assert "specify either jobs, or --all" in shell.refused("cancel", "3", "--state", "PD")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["job.sh"], True),
        (["--", "./loop.sh"], True),
        (["--", "python", "train.py"], False),
        (["--", "/opt/bin/python3", "-m", "train"], False),
    ],
)
def test_a_range_of_gpus_for_what_may_be_no_training_is_told(
    shell: Shell, work: Path, words: list[str], *, told: bool
) -> None:
    said = shell.ok("submit", "--test-only", "--gpus", "1..2", *words)
    assert ("a range of GPUs is for programs that use dovetail.train" in said.err) is told
    assert "a range of GPUs" not in shell.ok("submit", "--test-only", *words).err


@pytest.mark.parametrize("name", ["fifo", "fifo.yaml"])
def test_a_script_that_is_a_fifo_is_refused_and_not_waited_for(
    shell: Shell, work: Path, name: str
) -> None:
    os.mkfifo(name)
    # A reader would wait for this writer, and find nothing.
    writer = threading.Thread(target=lambda: os.close(os.open(name, os.O_WRONLY)), daemon=True)
    writer.start()
    said = shell.refused("submit", name)
    assert f"{name}: it is a FIFO, not a file" in said and "specify a batch script" in said
    reader = os.open(name, os.O_RDWR)
    writer.join()
    os.close(reader)


def test_a_script_that_is_no_file_is_refused(shell: Shell, work: Path) -> None:
    (work / "folder.sh").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.sh")
        for name, kind in (
            ("folder.sh", "a folder"),
            ("socket.sh", "a socket"),
            ("/dev/zero", "a device"),
        ):
            assert f"{name}: it is {kind}, not a file" in shell.refused("submit", name)


def test_a_script_may_come_from_what_the_shell_opened(shell: Shell, work: Path) -> None:
    told, tell = os.pipe()
    os.write(tell, b"#!/bin/sh\necho\n")
    os.close(tell)
    assert "can be read" in shell.ok("submit", "--test-only", f"/dev/fd/{told}").out
    os.close(told)


@pytest.mark.parametrize(
    "output",
    [
        "home/token",
        "home/new-%j.log",
        "./home/jobs/7/../8/output.log",
        "elsewhere/../home/store.db",
        "link/token",
        "to-token",
    ],
)
def test_no_output_goes_into_the_folder_of_the_cluster(
    shell: Shell, work: Path, output: str
) -> None:
    for folder in ("home/jobs/7", "home/jobs/8", "elsewhere"):
        (work / folder).mkdir(parents=True)
    (work / "link").symlink_to("home")
    (work / "to-token").symlink_to("home/token")
    submit = ("submit", "--test-only", "--home", "home", "job.sh")
    said = shell.refused(*submit, "--output", output)
    assert "inside the folder of the cluster" in said and "choose a file elsewhere" in said
    assert "can be read" in shell.ok(*submit, "--output", "elsewhere/%j.log").out
    assert "can be read" in shell.ok(*submit, "--output", "/dev/null").out
    os.mkfifo(work / "fifo")
    for no_file in ("fifo", "elsewhere"):
        assert f"{no_file} is no file" in shell.refused(*submit, "--output", no_file)

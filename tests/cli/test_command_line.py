"""The entry point: help with an example everywhere, one line of trouble, and a light start."""

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import click
import pytest
from command_runner import Shell

from dovetail import __version__
from dovetail.cli import progress
from dovetail.cli.main import COMMANDS, cli, run
from dovetail.core.errors import DovetailError
from dovetail.study.option_texts import DEFAULTS
from patience import PATIENCE_S, is_there, until

ROOT = Path(__file__).resolve().parents[2]
OURS = [
    "simulate",
    "compare",
    "whatif",
    "chargeback",
    "bound",
    "policies",
    "models",
    "profile",
    "cluster",
    "trace",
    "replay",
    "shadow",
    "up",
    "down",
    "backup",
    "restore",
    "submit",
    "run",
    "ls",
    "show",
    "logs",
    "why",
    "top",
    "cancel",
    "requeue",
    "hold",
    "release",
    "nodes",
    "tenants",
    "drain",
    "history",
    "agent",
    "demo",
]


def leaves(name: str) -> list[str]:
    """Returns the commands of a group, or one empty word for a command by itself."""
    command = cli.get_command(click.Context(cli), name)
    return list(command.commands) if isinstance(command, click.Group) else [""]


def test_every_command_is_listed_and_has_help_with_an_example(shell: Shell) -> None:
    assert list(COMMANDS) == OURS
    listed = shell.ok("--help").out
    for name in OURS:
        assert f"\n  {name} " in listed
        for words in ([name, leaf] if leaf else [name] for leaf in leaves(name)):
            said = shell.ok(*words, "--help").out
            assert "Example:\n    " in said, words
            assert f"dovetail {' '.join(words)}" in said.split("Example:")[1]
            assert max(map(len, said.splitlines())) <= 100


def test_every_command_of_ours_prints_json_on_demand() -> None:
    context = click.Context(cli)
    for name in OURS:
        if name in ("agent", "run"):
            continue  # Their output is a log, and that of programs.
        command = cli.get_command(context, name)
        assert command is not None
        leaves = command.commands.values() if isinstance(command, click.Group) else [command]
        for leaf in leaves:
            assert any("--json" in p.opts for p in leaf.params), f"{name} {leaf.name}"


@pytest.mark.parametrize("name", ["simulate", "compare", "bound"])
def test_the_command_line_and_the_notebook_have_the_same_defaults(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    defaults = {p.name: p.get_default(click.Context(command)) for p in command.params}
    for key, value in DEFAULTS.items():
        if key != "profiles":  # may be given many times: nothing at all by default
            assert defaults[key] == value


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["simulat"], "did you mean 'simulate'?"),
        (["polices"], "did you mean 'policies'?"),
        (["trace", "imprt"], "import"),
        (["xyzzy"], "No such command 'xyzzy'"),
        (["squeue"], "dovetail: squeue is `dovetail ls`; see"),
        (["reproduce", "afs"], "dovetail: 'reproduce' is no longer a command: run `python -m pap"),
        (["sinfo", "-N"], "sinfo is `dovetail nodes`"),
        (["sacct"], "sacct is `dovetail history`"),
        (["scancel", "12"], "scancel is `dovetail cancel JOB`"),
        (["sbatch", "job.sh"], "sbatch is `dovetail submit SCRIPT`"),
        (["--verison"], "--version"),
    ],
)
def test_a_word_that_is_not_known_gets_the_nearest_one(
    words: list[str], expected: str, shell: Shell
) -> None:
    assert expected in shell.refused(*words)


def test_the_version_is_said(shell: Shell) -> None:
    assert shell.ok("--version").out.strip() == f"dovetail, version {__version__}"


@pytest.mark.parametrize(
    ("trouble", "code", "words"),
    [
        (DovetailError("it broke"), 1, "it broke"),
        (MemoryError(), 1, "out of memory"),
        (OSError(13, "Permission denied", "file.csv"), 2, "file.csv: Permission denied"),
        (KeyboardInterrupt(), 130, "stopped"),
    ],
)
def test_trouble_becomes_one_line_and_an_exit_code(
    trouble: BaseException,
    code: int,
    words: str,
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise trouble

    monkeypatch.setattr("dovetail.study.traces.open_rows", fail)
    said = shell("bound", "file.csv")
    assert (said.code, said.out) == (code, "")
    assert said.err.splitlines()[-1] == f"dovetail: {said.err.splitlines()[-1][10:]}"
    assert words in said.err


def test_starting_imports_nothing_heavy() -> None:
    script = (
        "import sys, dovetail, dovetail.cli.main;"
        "heavy = {'numpy', 'polars', 'scipy', 'matplotlib', 'rich'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_help_returns_zero_and_usage_errors_two() -> None:
    assert run(["--help"]) == 0
    assert run(["simulate"]) == 2


def test_output_cut_off_by_a_pager_ends_quietly(month: Path) -> None:
    words = f"{sys.executable} -m dovetail policies | head -1"
    said = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False)
    assert said.stdout.strip()
    assert said.stderr == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_is_ended_leaves_no_folder_and_no_worker(
    number: signal.Signals, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "dovetail", "demo", "--jobs", "15000", "--processes", "2"]
    with subprocess.Popen(
        [*command, "-o", str(tmp_path / "out")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as process:
        while len(children(process.pid)) < 3:  # two workers and the resource tracker
            assert process.poll() is None
            time.sleep(0.05)
        workers = children(process.pid)
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        assert process.stderr is not None
        said = process.stderr.read()
        code = process.wait(timeout=PATIENCE_S)
    assert code == (143 if number == signal.SIGTERM else 130)
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []
    until(lambda: not any(map(is_there, workers)), lambda: "a worker was left behind")


def children(pid: int) -> list[int]:
    """Returns the processes that a process started."""
    try:
        return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def test_the_installed_command_is_a_function_that_exists() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    module, _, function = scripts["dovetail"].partition(":")
    script = (
        f"from {module} import {function} as main; import sys; sys.argv[1:] = ['policies']; main()"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "srtf" in said.stdout


def test_a_bar_with_the_time_left_is_shown_where_a_person_watches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(progress, "SHOW_AFTER_S", 0.0)
    monkeypatch.setattr(progress, "REFRESH_S", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.bar("weighing", 4.0) as show:
        show(1.0)
        show(9.0)
    said = capsys.readouterr().err
    with progress.busy("pondering"):
        until(lambda: "pondering" in capsys.readouterr().err)
    assert "weighing" in said
    assert "100 %" in said


def test_nothing_is_shown_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.bar("weighing", 4.0) as show, progress.busy("pondering"):
        show(1.0)
    assert capsys.readouterr().err == ""

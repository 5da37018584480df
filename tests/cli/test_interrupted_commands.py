"""Ctrl-C while a command waits: what was asked for goes on, and that is said."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_runner import Shell

from dovetail.cli import up
from dovetail.live.client.client import Client


def interrupted(*_: object, **__: object) -> Iterator[object]:
    """Stands for whatever waits while a user types Ctrl-C."""
    raise KeyboardInterrupt


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a script; a controller takes it, and ends nothing."""
    monkeypatch.setattr(Client, "submit", lambda self, *jobs: (7,))
    monkeypatch.setattr(Client, "wait", interrupted)
    path = tmp_path / "job.sh"
    path.write_text("#!/bin/sh\n")
    monkeypatch.chdir(tmp_path)
    return path


def test_an_interrupted_wait_has_told_the_number_of_the_job(shell: Shell, script: Path) -> None:
    said = shell("submit", "--wait", script)
    assert (said.code, said.out) == (130, "job 7 is submitted\n")
    assert said.err == "\ndovetail: stopped waiting; the submitted jobs continue\n"
    said = shell("submit", "--wait", "--json", script)
    assert (said.code, said.json["jobs"]) == (130, [7])


def test_an_interrupted_end_of_a_cluster_goes_on(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Few:
        counts = (("RUNNING", 1),)

    monkeypatch.setattr(Client, "jobs", lambda self, **_: Few)
    monkeypatch.setattr(Client, "down", lambda self, **_: None)
    monkeypatch.setattr(up, "_await_end", interrupted)
    said = shell("down", "--drain", "--home", tmp_path)
    assert (said.code, said.out) == (130, "")
    assert "stops after the running jobs" in said.err

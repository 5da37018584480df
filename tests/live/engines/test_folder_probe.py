"""A folder that hangs holds back the start of its own job, and nothing else of the node."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.live.engines import folder_probe
from dovetail.live.engines.folder_probe import FolderProbe
from dovetail.live.engines.processes import ProcessLauncher
from dovetail.live.node.launcher import StartDeferred
from dovetail.wire.agent import StartWorker
from patience import PATIENCE_S, until


class Hangs:
    """A file system of which one folder answers when the test lets it."""

    def __init__(self, folder: str) -> None:
        self.folder, self.answers, self.looks = folder, threading.Event(), 0

    def look(self, folder: str) -> None:
        if folder == self.folder:
            self.looks += 1
            self.answers.wait(PATIENCE_S)


@pytest.fixture
def hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hangs:
    monkeypatch.setattr(folder_probe, "ANSWERS_S", 0.01)
    return Hangs(str(tmp_path / "hung"))


def test_a_folder_that_hangs_is_asked_once_until_it_answers(hangs: Hangs) -> None:
    probe = FolderProbe(hangs.look)
    for _ in range(3):
        assert probe.hanging(("/", hangs.folder)) == hangs.folder
    assert hangs.looks == 1
    hangs.answers.set()
    until(lambda: probe.hanging((hangs.folder,)) == "")


def test_a_folder_that_is_not_there_answers() -> None:
    assert FolderProbe().hanging(("/", "/does/not/exist")) == ""


def test_a_worker_starts_when_its_folder_answers_and_others_do_not_wait(
    hangs: Hangs, tmp_path: Path
) -> None:
    launcher = ProcessLauncher(tmp_path / "workers", probe=FolderProbe(hangs.look))
    hung = StartWorker(1, 0, 1, 0, ("true",), hangs.folder, "out", str(tmp_path))
    try:
        with pytest.raises(StartDeferred, match="hung does not answer"):
            launcher.start(hung, "secret", 0.0)
        assert launcher.alive == 0
        launcher.start(replace(hung, job=2, folder=str(tmp_path / "other")), "secret", 0.0)
        until(launcher.poll)
        hangs.answers.set()

        def starts() -> bool:
            try:
                launcher.start(hung, "secret", 0.0)
            except StartDeferred:
                return False
            return True

        until(starts)
        until(launcher.poll)
    finally:
        hangs.answers.set()
        launcher.close()

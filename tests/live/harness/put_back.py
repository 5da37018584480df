"""Scenes in which the controller's machine is lost, and an old backup of its store takes over."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import time

from harness.killing import Killed
from harness.scene import Outcome, Scene
from harness.story import Story

from dovetail.live.controller.node_monitor import DRAINED
from dovetail.live.edges.protocols import BACKUP
from dovetail.live.jobs.lifecycle import TERMINAL
from dovetail.live.store.queries import StoreReader
from store_reads import all_jobs

_LATE = re.compile(r"worker \d+/\d{1,5} of generation \d{1,5} starts and is not on record")


class PutBack(Scene):
    """A scene with a backup at one time, and the loss of all that was written since at another."""

    def __init__(self, story: Story, path: Path, *, backup_s: float, lost_s: float) -> None:
        super().__init__(story, path)
        self._backup = path.with_name("backup.db")
        self._is_lost = False
        self.epochs: list[int] = []
        self.line.at(backup_s, self._back_up)
        self.line.at(lost_s, self._lose)

    def play(self) -> Outcome:
        """Plays the story; orders that the lost controller had sent may still come late."""
        outcome = super().play()
        wrong = tuple(text for text in outcome.wrong if not _LATE.search(text))
        return replace(outcome, wrong=wrong)

    def _back_up(self) -> None:
        if not self.path.exists():
            return
        with StoreReader(self.path) as reader, closing(sqlite3.connect(self._backup)) as copy:
            reader.copy_to(copy)
            copy.execute("PRAGMA journal_mode=DELETE")
            with copy:
                copy.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (BACKUP, repr(time())))

    def _lose(self) -> None:
        if not self._backup.exists():
            return
        self._is_lost = True
        if self._inbox is not None:
            raise Killed("its machine is lost")

    def _pass_without(self) -> None:
        super()._pass_without()
        if not self._is_lost:
            return
        self._is_lost = False
        self.truth.say("a backup is put back")
        for name in (self.path.name, f"{self.path.name}-wal", f"{self.path.name}-shm"):
            self.path.with_name(name).unlink(missing_ok=True)
        self._backup.rename(self.path)
        self.trouble(0.0)
        self._forget()

    def _forget(self) -> None:
        """Releases the users from what only the lost store knew."""
        with StoreReader(self.path) as reader:
            kept = {job.number: job.record for job in all_jobs(reader)}
            drained = json.loads(reader.meta(DRAINED) or "[]")
        promises = self.users.promises
        # Nobody waits for what only the lost store had accepted.
        promises.given_up.update(s for s, n in promises.numbers.items() if n not in kept)
        promises.numbers = {s: n for s, n in promises.numbers.items() if n in kept}
        for verb in (promises.cancelled_s, promises.requeued):
            for number in list(verb):
                if number not in kept:
                    del verb[number]
        self.truth.records = kept
        self.truth.drain_anew(drained)
        for number, record in kept.items():
            if record.members:
                self.truth.size[number] = len({m.worker for m in record.members})
            # What had ended since may run once more, as if its owner had requeued it.
            if record.state not in TERMINAL:
                promises.requeued[number] = promises.requeued.get(number, 0) + 1

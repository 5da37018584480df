"""The client of a cluster without a controller: it reads the past from the folder.

The folder has the jobs, their ends, their history and their output. The present state of running
jobs is not known until a controller has asked their agents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from dovetail.live.client.client import Client, ControllerAbsent
from dovetail.live.jobs.lifecycle import TERMINAL
from dovetail.live.jobs.status_snapshot import StatusSnapshot
from dovetail.live.server.messages.cluster import Pong
from dovetail.live.server.messages.output import Logs, LogText
from dovetail.live.server.messages.reason import JobExplanation
from dovetail.live.server.request_handler import RequestHandler, ServerInfo
from dovetail.live.server.requests import Question
from dovetail.live.store.folder import Folder
from dovetail.live.store.queries import StoreReader
from dovetail.wire.submission import Submission

R = TypeVar("R")


class OfflineClient(Client):
    """Answers requests about the past from the folder. Raises InputError without a store.

    Whatever needs a controller raises NoController.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        folder = Folder(self.home)
        with StoreReader(folder.store) as reader:
            now_s = reader.last_s()
        picture = StatusSnapshot(now_s, "", now_s, nodes=())
        info = ServerInfo(Pong(0, 0, "", "", "", "", now_s), folder)
        self._handler = RequestHandler(
            info, ReadOnlyIntake(self.home), lambda: picture, lambda: now_s
        )

    def _ask(self, question: Question, cls: type[R]) -> R:
        (reply,) = self._handler.answer(question, "")
        if isinstance(reply, JobExplanation) and reply.state not in TERMINAL:
            # Only a controller knows what a job waits for.
            raise ControllerAbsent(self.home)
        assert isinstance(reply, cls)
        return reply

    def _pieces(self, asked: Logs) -> Iterator[LogText]:
        for piece in self._handler.answer(replace(asked, follow=False), ""):
            assert isinstance(piece, LogText)
            yield piece


class ReadOnlyIntake:
    """Refuses every change: there is no controller to carry it out."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def submit(
        self, submissions: Sequence[Submission], *, key: str, user: str = ""
    ) -> tuple[int, ...]:
        """Raises NoController."""
        raise ControllerAbsent(self._home)

    def request(
        self,
        verb: str,
        *,
        jobs: Sequence[int] = (),
        node: int = -1,
        argument: str = "",
        key: str,
    ) -> tuple[int, ...]:
        """Raises NoController."""
        raise ControllerAbsent(self._home)

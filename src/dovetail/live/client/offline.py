"""The client of a cluster without a controller: it reads the folder of the cluster.

The folder has the jobs, their records, history and output. Whether running jobs still run is
unknown until a controller has requested the inventories of their agents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from dovetail.live.client.client import Client, ControllerDown
from dovetail.live.jobs.lifecycle import TERMINAL
from dovetail.live.jobs.status_snapshot import StatusSnapshot
from dovetail.live.server.messages.changes import Down, Drain, JobChange, Submit
from dovetail.live.server.messages.cluster import PingReply
from dovetail.live.server.messages.output import Logs, LogsReply
from dovetail.live.server.messages.reason import ExplainReply
from dovetail.live.server.request_handler import RequestHandler, ServerInfo
from dovetail.live.server.requests import Question
from dovetail.live.store.folder import Folder
from dovetail.live.store.queries import StoreReader

R = TypeVar("R")


class OfflineClient(Client):
    """Answers requests from the store alone. Raises InputError without a store.

    Requests that need a controller raise NoController.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        folder = Folder(self.home)
        with StoreReader(folder.store) as reader:
            now_s = reader.last_s()
        snapshot = StatusSnapshot(now_s, "", now_s, nodes=())
        info = ServerInfo(PingReply(0, 0, "", "", "", "", now_s), folder)
        self._handler = RequestHandler(info, None, lambda: snapshot, lambda: now_s)

    def _ask(self, request: Question, cls: type[R]) -> R:
        if isinstance(request, Submit | JobChange | Drain | Down):
            raise ControllerDown(self.home)
        (reply,) = self._handler.answer(request, "")
        if isinstance(reply, ExplainReply) and reply.state not in TERMINAL:
            # Only a controller knows what a job waits for.
            raise ControllerDown(self.home)
        assert isinstance(reply, cls)
        return reply

    def _pieces(self, request: Logs) -> Iterator[LogsReply]:
        for piece in self._handler.answer(replace(request, follow=False), ""):
            assert isinstance(piece, LogsReply)
            yield piece

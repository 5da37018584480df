"""What the folder of a cluster tells while no controller runs: what has been, not what is.

Everything is on disk: which jobs there were, how they ended, what happened to them, what they
printed. Where running jobs are by now nobody knows before a controller has asked their agents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dovetail.live.client.client import Absent, Client
from dovetail.live.jobs.lifecycle import TERMINAL
from dovetail.live.jobs.status_snapshot import StatusSnapshot
from dovetail.live.server.messages.cluster import Pong
from dovetail.live.server.messages.output import Logs
from dovetail.live.server.messages.reason import Explained
from dovetail.live.server.request_handler import Desk, ServerInfo
from dovetail.live.store.folder import Folder
from dovetail.live.store.queries import Reader
from dovetail.wire.submission import Submission


class Stored(Client):
    """Answers from the folder what a client asks about the past. Raises InputError without a store.

    Whatever needs a controller raises NoController.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        folder = Folder(self.home)
        with Reader(folder.store) as reader:
            now_s = reader.last_s()
        picture = StatusSnapshot(now_s, "", 0, now_s, nodes=())
        house = ServerInfo(Pong(0, 0, "", "", "", "", now_s), folder)
        self._desk = Desk(house, Nobody(self.home), lambda: picture, lambda: now_s)

    def _ask(self, question: Any, cls: Any) -> Any:
        (reply,) = self._desk.answer(question, "")
        if isinstance(reply, Explained) and reply.state not in TERMINAL:
            # Only a controller knows what a job waits for.
            raise Absent(self.home)
        return reply

    def _pieces(self, asked: Logs) -> Iterator[Any]:
        return self._desk.answer(replace(asked, follow=False), "")


class Nobody:
    """Takes nothing: no controller would hear of it."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def submit(
        self, submissions: Sequence[Submission], *, key: str, user: str = ""
    ) -> tuple[int, ...]:
        """Raises NoController."""
        raise Absent(self._home)

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
        raise Absent(self._home)

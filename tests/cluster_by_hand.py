"""A cluster whose store and published picture a test fills by hand; no controller runs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from dovetail.core.cluster import Cluster
from dovetail.core.messages import Reason
from dovetail.core.placement import Placement
from dovetail.core.tenants import QueueSpec
from dovetail.live.edges.protocols import Incoming, JournalEntry
from dovetail.live.jobs.lifecycle import State
from dovetail.live.jobs.record import GangMember, JobRecord
from dovetail.live.jobs.status_snapshot import JobStatus, NodeStatus, StatusSnapshot
from dovetail.live.server.messages.cluster import PingReply
from dovetail.live.server.request_handler import RequestHandler, ServerInfo
from dovetail.live.server.requests import Question, Reply
from dovetail.live.store.database import Database
from dovetail.live.store.folder import Folder
from dovetail.live.store.group_commit import GroupCommit
from dovetail.live.store.intake import Intake
from dovetail.live.store.queries import StoreReader
from dovetail.live.store.store import Store
from dovetail.wire.spec import JobSpec

PONG = PingReply(7, 1, "0", "srtf", "local:4", "declared", 0.0)
IDLE = StatusSnapshot(100.0, "srtf", 99.0, (NodeStatus(0, "up", ("a", "b"), 99.5),))


@dataclass
class StillClock:
    """A clock that a test sets."""

    now_s: float = 100.0

    def now(self) -> float:
        """Returns the time set."""
        return self.now_s


@dataclass
class ByHand:
    """Desk, intake and store over a folder; `picture` is what the desk sees as published."""

    home: Path
    picture: StatusSnapshot | None = IDLE
    nodes: int = 1
    gpus: int = 2
    paced: bool = False
    queues: tuple[QueueSpec, ...] = ()
    come: list[Incoming] = field(default_factory=list)
    clock: StillClock = field(default_factory=StillClock)

    def __post_init__(self) -> None:
        self.folder = Folder(self.home)
        self.folder.make()
        committer = GroupCommit(Database(self.folder.store))
        self.reader = StoreReader(self.folder.store)
        self.store = Store(committer, self.reader)
        self.intake = Intake(
            committer,
            clock=self.clock,
            cluster=replace(Cluster.uniform(self.nodes, self.gpus), queues=self.queues),
            put=self.come.append,
        )
        info = ServerInfo(PONG, self.folder, self.paced)
        self.desk = RequestHandler(info, self.intake, lambda: self.picture, self.clock.now)
        self._committer = committer

    def close(self) -> None:
        """Closes the store."""
        self.reader.close()
        self._committer.close()

    def ask(self, question: Question, user: str = "ann") -> Reply:
        """Returns the one reply to a question."""
        (reply,) = self.desk.answer(question, user)
        return reply

    def record(self, number: int, **changes: object) -> JobRecord:
        """Writes a job's record with changes."""
        found = self.store.find(number)
        assert found is not None
        record = replace(found.record, **changes)  # type: ignore[arg-type]
        self.store.write(JournalEntry(records=(record,)))
        return record

    def run(self, number: int, seats: Sequence[tuple[int, int]], **status: float) -> JobStatus:
        """Makes a job run on GPUs, in the store and in the picture."""
        members = tuple(GangMember(i, node, gpu) for i, (node, gpu) in enumerate(seats))
        placement = Placement(((seats[0][0], len(seats)),))
        self.record(
            number, state=State.RUNNING, members=members, placement=placement, first_start_s=90.0
        )
        said = {"done_s": 10.0, "rate": 1.0, "since_s": 100.0, **status}
        found = self.store.find(number)
        assert found is not None
        name = found.spec.called(number)
        run = JobStatus(number, placement, members, **said, called=name)
        assert self.picture is not None
        self.picture = replace(self.picture, running=(*self.picture.running, run))
        return run

    def wait(self, numbers: Sequence[int], *reasons: Reason) -> None:
        """Makes jobs wait in this order, for these reasons."""
        assert self.picture is not None
        self.picture = replace(self.picture, waiting=tuple(numbers), reasons=reasons)


def spec(name: str = "job", **fields: object) -> JobSpec:
    """Returns a request with what matters to the test."""
    given = {"command": ("true",), "workdir": "/", **fields}
    return JobSpec(name=name, **given)  # type: ignore[arg-type]


@contextmanager
def by_hand(*queues: str) -> Iterator[ByHand]:
    """Gives a cluster in a folder whose name is short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
    cluster = ByHand(folder, queues=tuple(map(QueueSpec, queues)))
    try:
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(folder)

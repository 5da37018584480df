"""An agent that is root, within the process of a test, and the folders that it shares out."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic

from accounts import Accounts
from dovetail.live.access.user_entry import UserEntry
from dovetail.live.access.user_list import UserList
from dovetail.live.engines.cgroup import ControlGroups
from dovetail.live.engines.devices import slots
from dovetail.live.engines.local import LocalNodes
from dovetail.live.engines.user_processes import UserJobs, UserProcessSettings
from dovetail.live.join.shared_folder import SharedFolder
from dovetail.live.node.transport import EventLoop
from dovetail.wire.agent import AgentOrder, AgentReport, StartWorker, WorkerEnded
from patience import until

NO_GROUPS = ControlGroups(0, None, None)


class Scene:
    """An agent that is root, and the folders that it shares with users.

    With a `shared` folder it is one of several nodes, which keep the folders of jobs there.
    """

    def __init__(self, home: Path, people: Accounts, shared: SharedFolder | None = None) -> None:
        self.home, self.people = home, people
        own = home / "jobs"
        self.jobs = own if shared is None else shared.path
        self.log: list[str] = []
        self.users = UserList(
            Path("users.toml"), people.service, frozenset((people.ann.name, people.bob.name))
        )
        own.mkdir(mode=0o711)
        (home / "agent").mkdir(mode=0o711)
        self.loop = EventLoop()
        user_jobs = UserJobs(lambda: self.users, own, self.log.append, shared is not None)
        self.nodes = LocalNodes(
            [home / "agent" / "0"],
            [slots(2)],
            self.loop,
            monotonic,
            NO_GROUPS,
            settings=partial(UserProcessSettings, user_jobs),
        )
        self.nodes.watch_folder(shared)
        self.ended: dict[int, WorkerEnded] = {}
        self._job = 0

    def order(self, user: str, script: str, **fields: object) -> StartWorker:
        self._job += 1
        own = self.jobs / str(self._job)
        given = {
            "command": ("/bin/sh", str(own / "script")),
            "folder": str(own),
            "output": str(own / "output.log"),
            "workdir": "/",
            "user": user,
            "script": script,
            **fields,
        }
        return StartWorker(self._job, 0, 0, 0, **given)  # type: ignore[arg-type]

    def start(self, order: StartWorker) -> None:
        self._hear(self.nodes.handle(0, AgentOrder(1, start=order), monotonic()))

    def run(self, user: UserEntry, script: str, **fields: object) -> str:
        """Returns what the script of a user's job wrote to the folder of that job."""
        order = self.order(user.name, script, **fields)
        self.end(order)
        output = Path(order.folder, "output.log")
        return output.read_text() if output.exists() else ""

    def end(self, order: StartWorker) -> WorkerEnded:
        """Starts a worker, and returns its end."""
        self.start(order)
        until(lambda: self.turn() or order.job in self.ended)
        return self.ended[order.job]

    def turn(self) -> None:
        self.loop.wait(0.02)
        self._hear(self.nodes.tick(monotonic()))

    def _hear(self, reports: list[AgentReport]) -> None:
        self.ended.update({r.ended.job: r.ended for r in reports if r.ended is not None})

    def worker_pid(self, job: int) -> int:
        """Returns the process of a worker, once its program runs."""
        pid = 0

        def found() -> bool:
            nonlocal pid
            self.turn()
            kept = self.nodes._launchers[0]._kept.get((job, 0))
            if kept is None or kept.child is None:
                return False
            children = Path(f"/proc/{kept.child.pid}/task/{kept.child.pid}/children").read_text()
            pid = int(children.split()[0]) if children.split() else 0
            return pid > 0 and b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()

        until(found)
        return pid


@contextmanager
def user_scene(people: Accounts, shared: SharedFolder | None = None) -> Iterator[Scene]:
    """Gives a scene in a folder that all may pass, unlike that of pytest."""
    home = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
    home.chmod(0o755)
    made = Scene(home, people, shared)
    yield made
    made.nodes.end_all(0.0, monotonic())
    until(lambda: made.turn() or not made.nodes.alive)
    made.nodes.close()
    made.loop.close()
    shutil.rmtree(home)

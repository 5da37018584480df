"""A cluster of several users whose nodes join: root's agents and a controller without rights."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from accounts import Accounts, as_user
from dovetail.live.access.user_entry import UserEntry
from dovetail.live.client.client import Client
from dovetail.wire.spec import JobSpec
from joined_cluster import JoinedCluster
from patience import PATIENCE_S

PATH = os.pathsep.join(
    entry
    for entry in sys.path
    if os.path.isdir(entry) and not entry.startswith(sysconfig.get_paths()["stdlib"])
)
"""Where another interpreter of this version finds our packages."""
UP = {"n1": "up", "n2": "up"}


class UsersCluster(JoinedCluster):
    """Two nodes for ann and bob, whom eve operates; `users` is the file of all machines."""

    def __init__(self, root: Path, people: Accounts, python: str) -> None:
        super().__init__(root, {"n1": 2, "n2": 2})
        self.people, self.python = people, python
        self.dovetail = [python, "-m", "dovetail"]
        self.environment["PYTHONPATH"] = PATH
        self.users = root / "etc" / "users.toml"
        self.users.parent.mkdir(mode=0o755)
        self.write_users(self.users)
        self.client = Client(self.home / "controller", patience_s=PATIENCE_S)

    def write_users(self, file: Path, *, users: str = "", more: str = "") -> None:
        """Writes the file of who may use the cluster, or a node of it."""
        both = f'"{self.people.ann.name}", "{self.people.bob.name}"'
        file.write_text(
            f'controller = "{self.people.service.name}"\nusers = [{users or both}]\n'
            f'operators = ["{self.people.eve.name}"]\n{more}'
        )

    def start(self, *words: str) -> None:
        super().start("--users", str(self.users), *words)

    def until(self, true: Callable[[], object], what: str) -> None:
        def true_or_dead() -> object:
            assert self.controller is None or self.controller.poll() is None, self.said()
            return true()

        super().until(true_or_dead, what)

    def word_of(self, name: str) -> Path:
        # As an operator copies it to the node, where it is root's.
        given, own = self.home / "controller" / "join" / name, self.root / f"{name}.word"
        self.until(given.exists, f"there is a word for {name}")
        own.write_text(given.read_text())
        own.chmod(0o600)
        return own

    def join_as_root(self, name: str, *prefix: str, users: Path | None = None) -> None:
        """Starts root's agent of a node, which goes by a file of users of its own."""
        rule = ["--users", str(users or self.users)]
        self.join(name, self.word_of(name), *prefix, options=rule)

    def ask(self, user: UserEntry, do: Callable[[Client], object]) -> str:
        """Returns what a user gets from a client of theirs, as text; or their error."""
        return as_user(user, lambda: do(Client(self.home, patience_s=PATIENCE_S)))

    def runs_as(self, user: UserEntry) -> tuple[str, ...]:
        """Returns the beginning of a command line of a user's: `dovetail run`."""
        groups = ",".join(map(str, user.groups))
        who = ("setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", f"--groups={groups}", "--")
        return (*who, "env", f"PYTHONPATH={PATH}", *self.dovetail, "run")

    def submit(self, user: UserEntry, spec: JobSpec) -> int:
        """Returns the number of a user's job."""
        said = self.ask(user, lambda client: client.submit(spec)[0])
        assert said.isdecimal(), f"{said}\n{self.said()}"
        return int(said)

    def end_of(self, user: UserEntry, job: int) -> tuple[str, str]:
        """Returns how a user's job ended, and its output."""

        def ended(client: Client) -> str:
            (end,) = client.wait(job, timeout_s=PATIENCE_S)
            return json.dumps([str(end.state), "".join(piece.text for piece in client.logs(job))])

        said = self.ask(user, ended)
        assert said.startswith("["), f"{said}\n{self.said()}"
        state, text = json.loads(said)
        return state, text


def python_of_all(user: UserEntry) -> str:
    """Returns an interpreter of our version that every user may run, or skips the test."""
    asks = "import sys, dovetail, numpy; print(sys.version_info[:2] == {})"
    words = ["-c", asks.format(tuple(sys.version_info[:2]))]
    for python in (sys.executable, "/usr/bin/python3"):

        def said(python: str = python) -> str:
            env = {"PYTHONPATH": PATH, "PATH": os.defpath}
            run = subprocess.run([python, *words], env=env, capture_output=True, text=True, cwd="/")
            return run.stdout.strip()

        if as_user(user, said) == "True":
            return python
    pytest.skip("other users may run no interpreter of this version here")


@contextmanager
def users_cluster(people: Accounts) -> Iterator[UsersCluster]:
    """Gives a cluster in a folder that all may pass, with nothing running yet."""
    python = python_of_all(people.ann)
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="du"))
    root.chmod(0o755)
    cluster = UsersCluster(root, people, python)
    try:
        yield cluster
    finally:
        cluster.close()
        shutil.rmtree(root, ignore_errors=True)

"""Users of other machines: ssh forwards the controller's socket, the kernel says who they are."""

from __future__ import annotations

import logging
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from accounts import Accounts, accounts
from cluster_by_hand import ByHand, spec
from dovetail.cli.main import run
from dovetail.core.errors import InputError
from dovetail.live.access.user_list import UserList
from dovetail.live.client.client import Client
from dovetail.live.server.server import Server, UserAdmission
from dovetail.live.server.user_guard import UserGuard
from patience import PATIENCE_S, until
from ssh_machines import SshMachines


@pytest.fixture(scope="module")
def people() -> Iterator[Accounts]:
    with accounts() as made:
        for user in (made.ann, made.mal):
            # No password opens the account, and sshd does not take it for a locked one.
            subprocess.run(["usermod", "--password", "*", user.name], check=True)
        yield made


@pytest.fixture
def root() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def cluster(root: Path, people: Accounts) -> Iterator[ByHand]:
    """A controller of several users on the machine to which they have accounts."""
    users = UserList(Path("users.toml"), people.service, frozenset((people.ann.name,)))
    by_hand = ByHand(root / "controller")
    guard = UserGuard(by_hand.desk, lambda: users, by_hand.folder.store)
    door = UserAdmission(root / "api.sock", users.why_not_admitted)
    server = Server(guard, by_hand.folder.socket, door=door)
    server.start()
    yield by_hand
    server.stop()
    by_hand.close()


@pytest.fixture
def machine(root: Path) -> Iterator[SshMachines]:
    made = SshMachines(root / "ssh", ["127.0.0.2"])
    yield made
    made.close()


@contextmanager
def forwarded(machine: SshMachines, user: str, root: Path) -> Iterator[Path]:
    """Gives the folder that the guide makes on a user's own machine."""
    home = root / f"home-{user}"
    home.mkdir(mode=0o700)
    words = [str(machine.client / "ssh"), "-N", "-o", "ExitOnForwardFailure=yes"]
    words += ["-L", f"{home}/api.sock:{root}/api.sock", "-p", str(machine.port)]
    ssh = subprocess.Popen([*words, "-l", user, "127.0.0.2"], stderr=subprocess.PIPE)
    try:
        until(lambda: (home / "api.sock").exists() or ssh.poll() is not None)
        assert ssh.poll() is None, f"{ssh.stderr.read() if ssh.stderr else ''}{machine.said()}"
        yield home
    finally:
        ssh.kill()
        ssh.communicate()


def test_who_comes_by_ssh_is_whom_sshd_let_in(
    cluster: ByHand,
    machine: SshMachines,
    people: Accounts,
    root: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ann, mal = people.ann, people.mal
    # The process of this client is root's: what counts is the account on the controller's machine.
    with forwarded(machine, ann.name, root) as home:
        (job,) = Client(home, patience_s=PATIENCE_S).submit(spec())
        stored = cluster.store.find(job)
        assert stored is not None and stored.spec.user == ann.name
        assert run(["why", str(job), "--home", str(home)]) == 0
        assert capsys.readouterr().out
        with pytest.raises(InputError, match="is for operators"):
            Client(home, patience_s=PATIENCE_S).drain(0)
    with caplog.at_level(logging.WARNING), forwarded(machine, mal.name, root) as home:
        with pytest.raises(InputError, match=r"is not in users\.toml"):
            Client(home, patience_s=PATIENCE_S).jobs()
        assert f"refused: user {mal.name} connected" in caplog.text

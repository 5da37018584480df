"""Files of several users travel with their owners' rights, whatever is in their folders."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from accounts import Accounts, accounts
from dovetail.live.access.file_access import file_access_of
from dovetail.live.access.user_entry import UserEntry
from dovetail.live.engines.user_processes import owner_access
from dovetail.live.shipping.shipper import Shipper
from dovetail.live.shipping.shipping_store import ShippedJob, ShippingStore
from dovetail.wire.agent import StartWorker
from dovetail.wire.shipping import SHIPPING_REPLIES, SHIPPING_REQUESTS
from patience import until

SECRET = "root's own\n"


@pytest.fixture(scope="module")
def people() -> Iterator[Accounts]:
    with accounts() as made:
        yield made


class Line:
    """A connection to the store of a controller, without a network."""

    def __init__(self, store: ShippingStore) -> None:
        # In a thread of its own, as the controller has other rights than this node's.
        self._store, self._controller = store, ThreadPoolExecutor(1)

    def send(self, line: bytes, timeout_s: float) -> None:
        request = SHIPPING_REQUESTS.decode(line)
        reply = self._controller.submit(self._store.answer, 0, request).result()
        self._reply = SHIPPING_REPLIES.encode(reply)

    def read_line(self, timeout_s: float) -> bytes:
        return self._reply

    def close(self) -> None: ...


class Scene:
    """The shipper of a node, on which ann's job 1 and bob's job 2 run."""

    def __init__(self, root: Path, people: Accounts) -> None:
        self.root, self.people = root, people
        self.kept, self.node = root / "controller", root / "node"
        for folder in (self.kept, self.node):
            folder.mkdir(mode=0o711)
        self.log: list[str] = []
        self.store = ShippingStore(
            self.kept, lambda job: ShippedJob(False, self.kept / str(job) / "output.log")
        )
        for job, user in ((1, people.ann), (2, people.bob)):
            (self.kept / str(job)).mkdir()
            (self.kept / str(job) / "script").write_text("echo hello\n")
            self.store.allow(0, job)
            self.own(job).mkdir(mode=0o700)
            os.chown(self.own(job), user.uid, user.gid)
        (root / "secret").write_text(SECRET)
        (root / "secret").chmod(0o600)
        line = Line(self.store)
        self.shipper = Shipper(self.node, lambda: line, self.log.append, owner_access)  # type: ignore[arg-type, return-value]

    def own(self, job: int) -> Path:
        return self.node / str(job)

    def wants(self, job: int) -> str:
        order = StartWorker(*(job, 0, 1, 0, (), str(self.own(job)), "", "/"), ships=True)
        return self.shipper.must_wait(order)

    def output(self, job: int) -> str:
        path = self.kept / str(job) / "output.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def scene(people: Accounts) -> Iterator[Scene]:
    root = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
    root.chmod(0o755)
    groups = os.getgroups()
    os.setgroups([])
    made = Scene(root, people)
    yield made
    made.shipper.close()
    os.setgroups(groups)
    shutil.rmtree(root)


def test_what_comes_is_the_owners_and_what_goes_is_what_the_owner_may_read(scene: Scene) -> None:
    ann, bob = scene.people.ann, scene.people.bob
    until(lambda: not (scene.wants(1) or scene.wants(2)))
    for job, user in ((1, ann), (2, bob)):
        seen = (scene.own(job) / "script").stat()
        assert (seen.st_uid, seen.st_gid, seen.st_mode & 0o777) == (user.uid, user.gid, 0o700)
    (scene.own(2) / "output.log").write_text("of bob\n")
    os.chown(scene.own(2) / "output.log", bob.uid, bob.gid)
    until(lambda: scene.output(2) == "of bob\n", lambda: str(scene.log))


@pytest.mark.parametrize(
    "trick",
    [
        "a link",
        "a link as a checkpoint",
        "a pipe",
        "a pipe as a checkpoint",
        "modes",
    ],
)
def test_no_trick_of_a_user_lets_root_read_for_them_or_keeps_others_waiting(
    scene: Scene, trick: str
) -> None:
    ann, bob, own = scene.people.ann, scene.people.bob, scene.own(1)
    until(lambda: not (scene.wants(1) or scene.wants(2)))
    with file_access_of(ann.uid, ann.gid):
        match trick:
            case "a link":
                (own / "output.log").symlink_to(scene.root / "secret")
            case "a link as a checkpoint":
                (scene.own(1) / "checkpoint-000000000001.pt").symlink_to(scene.root / "secret")
            case "a pipe":
                os.mkfifo(own / "output.log")
            case "a pipe as a checkpoint":
                os.mkfifo(own / "checkpoint-000000000001.pt")
            case "modes":
                own.chmod(0o000)
    (scene.own(2) / "output.log").write_text("of bob\n")
    os.chown(scene.own(2) / "output.log", bob.uid, bob.gid)
    until(lambda: scene.output(2) == "of bob\n", lambda: str(scene.log))
    sent = [path.read_text() for path in (scene.kept / "1").rglob("*") if path.is_file()]
    assert not any(SECRET in text for text in sent)


def test_a_thread_has_no_more_rights_on_files_than_the_user(scene: Scene) -> None:
    def refused(user: UserEntry, path: Path) -> bool:
        with file_access_of(user.uid, user.gid):
            try:
                path.read_text()
            except PermissionError:
                return True
        return False

    ann, bob = scene.people.ann, scene.people.bob
    assert refused(ann, scene.root / "secret") and refused(bob, scene.own(1) / "script")
    assert (scene.root / "secret").read_text() == SECRET, "root has its rights back"
    assert owner_access(scene.node) is None, "a folder that is not given to a user yet"
    assert owner_access(scene.root / "missing") is None

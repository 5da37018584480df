"""The shared folder of a cluster: whose it is, and who may join with which."""

import json
import os
import queue
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.core.errors import InputError
from dovetail.live.engines.node_registry import NodeRegistry
from dovetail.live.join import dial, shared_folder
from dovetail.live.join.dial import Joiner, NodeRefused
from dovetail.live.join.gate import Gate
from dovetail.live.join.identity import ControllerIdentity
from dovetail.live.join.shared_folder import (
    CHECKS,
    MARK,
    FolderMonitor,
    SharedFolder,
    answer_check,
    declare,
)
from dovetail.live.join.word import JoinWord
from dovetail.live.store.folder import Folder
from dovetail.live.store.job_output import check_output
from dovetail.live.system.bounded_wait import BoundedWait
from dovetail.wire.join import ANSWERS, ENTRANCES, Join, JoinRefused, NodeDevices
from dovetail.wire.spec import JobSpec
from patience import until

pytest.importorskip("cryptography")
DEVICES = NodeDevices(("slot-0",), "cpu", 1e9, 1.0, 1e9)


@pytest.fixture
def shared(tmp_path: Path) -> SharedFolder:
    """The declared folder `jobs` of the cluster in `home`."""
    Folder(tmp_path / "home").make()
    (tmp_path / "jobs").mkdir(mode=0o700)
    return declare(tmp_path / "home", tmp_path / "jobs")


def test_jobs_have_their_folders_in_the_declared_one(shared: SharedFolder, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "home")
    assert folder.job(7) == tmp_path / "jobs" / "7"
    assert declare(tmp_path / "home", shared.path) == shared, "the next start finds its own"
    spec = JobSpec("a", ("true",), "/", output=str(shared.path / "7" / "log"))
    with pytest.raises(InputError, match="inside the folder of the cluster"):
        check_output("job", spec, tmp_path / "home")


def test_a_folder_of_another_cluster_or_of_other_files_is_refused(
    shared: SharedFolder, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    Folder(other).make()
    with pytest.raises(InputError, match="belongs to another cluster"):
        declare(other, shared.path)
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(InputError, match="has other files"):
        declare(other, tmp_path / "mine")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(InputError, match="other users may write"):
        declare(other, tmp_path / "open")
    with pytest.raises(InputError, match="is no folder"):
        declare(other, tmp_path / "missing")
    with pytest.raises(InputError, match="own folder"):
        declare(other, other / "jobs")


def test_folders_of_jobs_are_not_left_behind(tmp_path: Path) -> None:
    folder, target = Folder(tmp_path / "home"), tmp_path / "jobs"
    folder.make()
    folder.make_job(3)
    target.mkdir(mode=0o700)
    with pytest.raises(InputError, match="1 jobs have their folders in") as refused:
        declare(folder.home, target)
    assert "mv " in str(refused.value)
    folder.job(3).rename(target / "3")
    declare(folder.home, target)
    assert Folder(folder.home).newest_job() == 3


class Door:
    """A gate of a cluster with a shared folder, at which the agent of n1 joins."""

    def __init__(self, root: Path, shared: SharedFolder) -> None:
        identity = ControllerIdentity.of(root / "gate")
        self.registry = NodeRegistry(root / "registry.json")
        self.registry.expect(("n1",), keeps=False)
        self.shared = shared
        self.gate = Gate(
            socket.create_server(("127.0.0.1", 0)), identity, self.registry, shared=shared
        )
        host, port = self.gate.address
        self.word = root / "word"
        JoinWord(host, port, identity.fingerprint, "n1", identity.secret_of("n1")).write(self.word)

    def join(self, *, busy: bool = False) -> SharedFolder | None:
        joined = Joiner(self.word, "a", DEVICES, lambda: busy).join()
        joined.link.close()
        return joined.shared

    def files(self) -> list[str]:
        return [path.name for path in (self.shared.path / CHECKS).iterdir()]


@pytest.fixture
def door(tmp_path: Path, shared: SharedFolder) -> Iterator[Door]:
    made = Door(tmp_path, shared)
    yield made
    made.gate.close()


def test_an_agent_with_the_same_folder_is_admitted(door: Door) -> None:
    assert door.join() == door.shared
    until(lambda: not door.files(), lambda: "a check leaves nothing behind")


def test_an_agent_with_another_folder_is_refused_in_words(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "copy"
    (other / CHECKS).mkdir(parents=True)
    monkeypatch.setattr(dial, "answer_check", lambda path, name: answer_check(other, name))
    with pytest.raises(NodeRefused, match="another folder, or an old copy; mount") as refused:
        door.join()
    assert str(door.shared.path) in str(refused.value)
    assert "n1: the shared folder" in caplog.text and not door.registry.has_any


def test_an_agent_that_cannot_write_is_refused(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    # It claims to have written: the controller looks for itself.
    def read_only(path: Path, name: str) -> tuple[str, str]:
        return (path / CHECKS / name).read_text(), ""

    monkeypatch.setattr(dial, "answer_check", read_only)
    with pytest.raises(NodeRefused, match="has not what the agent wrote"):
        door.join()
    monkeypatch.setattr(dial, "answer_check", lambda path, name: ("made up", ""))
    with pytest.raises(NodeRefused, match="another file"):
        door.join()


def test_a_node_with_workers_keeps_its_place_while_its_folder_is_away(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dial, "answer_check", lambda path, name: ("", "did not answer"))
    with pytest.raises(NodeRefused, match="did not answer"):
        door.join()
    assert door.join(busy=True) == door.shared


def test_the_controllers_own_folder_is_named_when_it_fails(door: Door) -> None:
    (door.shared.path / CHECKS).rename(door.shared.path / "away")
    with pytest.raises(NodeRefused, match="cannot be written by the controller"):
        door.join()


@pytest.mark.parametrize("second", ["Join", "FolderChecked"])
def test_a_check_that_was_not_asked_for_is_refused(door: Door, second: str) -> None:
    from dovetail.live.join.gate_stream import called
    from dovetail.wire.connection import LineConnection
    from dovetail.wire.join import FolderChecked

    word = JoinWord.read(door.word)
    link = called(word.host, word.port, word.fingerprint, 10.0)
    lines = LineConnection(link)
    join = Join(4, "0", "n1", word.secret, "a", DEVICES)
    if second == "Join":
        lines.send(ENTRANCES.encode(join))
        assert lines.read_line(10.0)
        lines.send(ENTRANCES.encode(join))
    else:
        lines.send(ENTRANCES.encode(FolderChecked("x")))
    answer = ANSWERS.decode(lines.read_line(10.0) or b"")
    link.close()
    assert isinstance(answer, JoinRefused)


# Later on.


def test_a_folder_that_vanishes_is_replaced_or_hangs_is_named(
    shared: SharedFolder, tmp_path: Path
) -> None:
    now = [0.0]
    watch = FolderMonitor(shared, every_s=0.01, clock=lambda: now[0])
    assert watch.wrong == ""
    mark = shared.path / MARK
    content = mark.read_text()
    mark.unlink()
    until(lambda: "is gone" in watch.wrong, lambda: watch.wrong)
    mark.write_text(json.dumps({"cluster": "other"}))
    until(lambda: "another folder" in watch.wrong, lambda: watch.wrong)
    mark.write_text(content)
    until(lambda: watch.wrong == "", lambda: watch.wrong)
    # To open a pipe that nobody writes to waits for ever, as does a file of a server that is away.
    mark.unlink()
    os.mkfifo(mark)
    until(lambda: not now.append(now.pop() + 1.0) and "not answer" in watch.wrong, lambda: "")
    threading.Thread(target=lambda: mark.write_text(content), daemon=True).start()
    until(lambda: watch.wrong == "", lambda: watch.wrong)
    watch.close()


def test_an_answer_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_folder, "CHECK_S", 0.05)
    (tmp_path / CHECKS).mkdir()
    os.mkfifo(tmp_path / CHECKS / "n")
    assert answer_check(tmp_path, "n") == ("", "did not answer within 0.05 s")
    assert "another folder" in answer_check(tmp_path, "../n2")[1]


def test_a_call_that_hangs_is_waited_for_once() -> None:
    io, begun, go_on = BoundedWait(0.01), queue.Queue[int](), threading.Event()

    def hang() -> None:
        begun.put(1)
        go_on.wait()

    for _ in range(3):
        with pytest.raises(TimeoutError):
            io.call(hang)
    assert begun.qsize() == 1 and io.hangs
    go_on.set()
    until(lambda: not io.hangs, lambda: "it came back")
    assert io.call(lambda: 3) == 3
    with pytest.raises(FileNotFoundError):
        io.call(Path("/nowhere").stat)

"""Jobs that run as their submitters: what their processes may do, and whom root refuses to run."""

from __future__ import annotations

import os
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest

from accounts import Accounts, accounts, as_user
from dovetail.live.access.user_entry import UserEntry
from dovetail.live.engines import worker_user
from dovetail.live.engines.agent_server import AgentServer
from dovetail.live.engines.agent_terminals import keeper_of
from dovetail.live.engines.controller_links import LocalLinks
from dovetail.live.engines.output_bound import shorten
from dovetail.live.engines.processes import OUT_OF_MEMORY
from dovetail.live.node.transport import EventLoop, LinkTerminal
from dovetail.wire.agent import AgentOrder, EndWorker
from dovetail.wire.connection import LineConnection
from dovetail.wire.terminal import DONE, FROM_KEEPER, OUTPUT, Attach, FrameBuffer, attach, frame
from dovetail.wire.worker import FROM_WORKER, Hello
from patience import PATIENCE_S, until
from user_scene import Scene, user_scene


@pytest.fixture(scope="module")
def people() -> Iterator[Accounts]:
    with accounts() as made:
        yield made


@pytest.fixture
def scene(people: Accounts) -> Iterator[Scene]:
    with user_scene(people) as made:
        yield made


@pytest.fixture
def home(scene: Scene) -> Path:
    return scene.home


def test_a_job_runs_as_its_submitter_in_their_groups_with_no_way_back(scene: Scene) -> None:
    ann = scene.people.ann
    said = scene.run(
        ann,
        "grep -E '^(Uid|Gid|Groups|CapEff|CapPrm|CapAmb):' /proc/self/status; umask; "
        "echo $HOME $USER $LOGNAME; env",
    )
    lines = dict(line.split(":\t") for line in said.splitlines() if ":\t" in line)
    assert lines["Uid"].split() == [str(ann.uid)] * 4, "real, effective, saved and of files"
    assert lines["Gid"].split() == [str(ann.gid)] * 4
    assert lines["Groups"].split() == [str(g) for g in ann.groups]
    assert {int(lines[name], 16) for name in ("CapEff", "CapPrm", "CapAmb")} == {0}
    assert f"/ {ann.name} {ann.name}" in said
    inherited = {line.partition("=")[0] for line in said.splitlines() if "=" in line}
    assert not {"SUDO_USER", "MAIL", "PYTHONPATH", "DOVETAIL_DATA"} & inherited


def test_the_terminal_of_an_interactive_job_is_its_users(scene: Scene) -> None:
    """Root holds the other end, and the socket at which the client comes in is root's alone."""
    ann = scene.people.ann
    command = ("sh", "-c", "id -un; stat -c '%U %a' $(tty); echo ends")
    order = scene.order(ann.name, "", command=command, terminal="pty", output="")
    scene.start(order)
    frames, said = FrameBuffer(FROM_KEEPER), b""
    ours = None
    give_up_s = monotonic() + PATIENCE_S
    while b"ends" not in said:
        assert monotonic() < give_up_s
        scene.turn()
        if ours is None:
            # Again until its keeper listens: the controller does the same.
            ours, theirs = socket.socketpair()
            ours.settimeout(0.1)
            ours.sendall(attach(Attach(b"k" * 16, 0)))
            scene.nodes.open_terminal(LinkTerminal(0, order.job, 0), LineConnection(theirs))
        piece = b""
        with suppress(ConnectionResetError):
            try:
                piece = ours.recv(1 << 16)
            except TimeoutError:
                continue
        frames.add(piece)
        if not piece:
            ours.close()
            ours = None
        while (found := frames.take()) is not None:
            said += found.content if found.kind == OUTPUT else b""
    assert ours is not None
    ours.sendall(frame(DONE))
    assert said.split() == [ann.name.encode(), ann.name.encode(), b"600", b"ends"]
    place = scene.home / "agent" / "0" / "workers" / f"{order.job}-0"
    for user in (ann, scene.people.bob):
        assert "Permission denied" in as_user(user, lambda: keeper_of(place))
    until(lambda: scene.turn() or order.job in scene.ended)
    ours.close()
    assert scene.ended[order.job].exit_code == 0


def test_a_worker_cannot_become_root_again(scene: Scene) -> None:
    def back() -> str:
        refused = []
        user: worker_user.WorkerUser = {
            "uid": ann.uid, "gid": ann.gid, "groups": list(ann.groups), "script": "", "path": "",
        }  # fmt: skip
        worker_user.become(user)
        for act in (
            lambda: os.setuid(0),
            lambda: os.seteuid(0),
            lambda: os.setresuid(-1, 0, -1),
            lambda: os.setgid(0),
            lambda: os.setgroups([0]),
        ):
            try:
                act()
            except PermissionError as error:
                refused.append(error.strerror)
        return f"{len(refused)} {os.getresuid()}"

    ann = scene.people.ann
    root = UserEntry("root", 0, 0, (0,), "/root", "/bin/sh")
    assert as_user(root, back) == f"5 {(ann.uid,) * 3}"


@pytest.mark.parametrize("member", ["root", "stranger", "service", "daemon", "unknown"])
def test_jobs_of_the_system_of_strangers_and_of_nobody_known_are_refused_and_logged(
    scene: Scene, member: str
) -> None:
    name = {"stranger": scene.people.mal.name, "service": scene.people.service.name}
    user = name.get(member, member)
    end = scene.end(scene.order(user, "id"))
    assert end.exit_code == 126
    assert user in end.why
    assert len(scene.log) == 1 and scene.log[0].startswith(f"refused: job 1 of user '{user}'")
    assert not list(scene.jobs.iterdir()), "nothing is made for whom nothing runs"


def test_the_agent_goes_by_its_own_list_whatever_the_controller_orders(scene: Scene) -> None:
    scene.users = replace(scene.users, users=frozenset((scene.people.bob.name,)))
    end = scene.end(scene.order(scene.people.ann.name, "id"))
    assert "is not in users.toml" in end.why


def test_the_keeper_itself_runs_nobody_as_root() -> None:
    for user in ({"uid": 0, "gid": 1000}, {"uid": 1000, "gid": 0}):
        with pytest.raises(ValueError, match="root"):
            worker_user.become({**user, "groups": [1000], "script": "", "path": ""})  # type: ignore[typeddict-item]
    with pytest.raises(ValueError, match="root"):
        worker_user.become({"uid": 1, "gid": 1, "groups": [1, 0], "script": "", "path": ""})


def test_a_job_has_a_folder_of_its_own_that_the_controllers_group_may_read(scene: Scene) -> None:
    ann, service = scene.people.ann, scene.people.service
    assert scene.run(ann, "echo mine") == "mine\n"
    seen, output = (scene.jobs / "1").stat(), (scene.jobs / "1" / "output.log").stat()
    assert (seen.st_uid, seen.st_gid, stat.S_IMODE(seen.st_mode)) == (ann.uid, service.gid, 0o2750)
    assert (output.st_uid, output.st_gid, stat.S_IMODE(output.st_mode)) == (
        ann.uid, service.gid, 0o640,
    )  # fmt: skip
    script = (scene.jobs / "1" / "script").stat()
    assert (script.st_uid, stat.S_IMODE(script.st_mode)) == (ann.uid, 0o700)
    read = as_user(scene.people.bob, lambda: (scene.jobs / "1" / "output.log").read_text())
    assert read.startswith("PermissionError")
    assert as_user(service, lambda: (scene.jobs / "1" / "output.log").read_text()) == "mine\n"


@pytest.mark.parametrize("through", ["the file", "a folder above"])
def test_a_link_does_not_make_root_write_for_a_user(scene: Scene, through: str) -> None:
    ann = scene.people.ann
    treasure = scene.home / "treasure"
    treasure.write_text("gold")
    own = scene.home / "ann"
    own.mkdir()
    os.chown(own, ann.uid, ann.gid)
    output = own / "log" if through == "the file" else own / "down" / "treasure"
    link, target = (own / "log", treasure) if through == "the file" else (own / "down", scene.home)
    assert as_user(ann, lambda: os.symlink(target, link)) == "None"
    end = scene.end(scene.order(ann.name, "echo lead", output=str(output)))
    assert end.exit_code in (125, 126) and end.why
    assert treasure.read_text() == "gold"


def test_root_gives_no_folder_that_is_another_users_or_another_jobs(scene: Scene) -> None:
    ann, bob = scene.people.ann, scene.people.bob
    assert scene.run(ann, "echo of ann") == "of ann\n"
    first = scene.order(bob.name, "cat output.log", workdir=str(scene.jobs / "1"))
    theirs = replace(first, job=1, folder=str(scene.jobs / "1"), worker=1)
    assert "belongs to another user" in scene.end(theirs).why
    end = scene.end(scene.order(bob.name, "id", folder=str(scene.jobs / "1")))
    assert "is not the folder of its job" in end.why
    end = scene.end(scene.order(bob.name, "id", folder="/etc/cron.d"))
    assert "is not the folder of its job" in end.why
    assert [line for line in scene.log if line.startswith("refused: job")] == scene.log
    assert len(scene.log) == 3


def test_a_user_cannot_move_away_or_replace_the_folder_of_a_job(scene: Scene) -> None:
    scene.run(scene.people.ann, "true")
    own = scene.jobs / "1"
    moved = as_user(scene.people.ann, lambda: os.rename(own, scene.jobs / "9"))
    assert moved.startswith("PermissionError")
    assert as_user(scene.people.ann, lambda: os.listdir(scene.jobs)).startswith("PermissionError")


def test_what_root_knows_of_a_worker_is_closed_to_its_user_and_to_others(scene: Scene) -> None:
    ann, bob = scene.people.ann, scene.people.bob
    order = scene.order(ann.name, "exec sleep 1000", trains=True)
    scene.start(order)
    pid = scene.worker_pid(order.job)
    environ = Path(f"/proc/{pid}/environ")
    token = dict(entry.split("=", 1) for entry in environ.read_text().split("\0") if "=" in entry)[
        "DOVETAIL_TOKEN"
    ]
    stored = scene.home / "agent" / "0" / "workers" / f"{order.job}-0" / "order.json"
    assert token in stored.read_text()
    for user in (ann, bob):
        assert as_user(user, stored.read_text).startswith("PermissionError")
    assert as_user(bob, environ.read_text).startswith("PermissionError")
    assert as_user(bob, lambda: os.kill(pid, signal.SIGKILL)).startswith("PermissionError")
    keeper_pid = os.stat(f"/proc/{pid}") and int(
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    )
    for user in (ann, bob):
        assert as_user(user, lambda: os.kill(keeper_pid, 9)).startswith("PermissionError")
    assert token == as_user(ann, environ.read_text).partition("DOVETAIL_TOKEN=")[2].split("\0")[0]

    def says_hello() -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(5.0)
            link.connect(os.fspath(scene.home / "agent" / "0" / "agent.sock"))
            try:
                link.sendall(FROM_WORKER.encode(Hello(f"{order.job}/0", token, 1)))
                return link.recv(4096).decode()
            except TimeoutError:
                return "connected"
            except OSError:
                return "closed"

    assert in_turn(scene, bob, says_hello) in ("", "closed"), "no worker here runs as bob"
    scene.start(other := scene.order(bob.name, "exec sleep 1000", trains=True))
    scene.worker_pid(other.job)
    assert "this is no worker of mine" in in_turn(scene, bob, says_hello), "the secret is not bob's"
    assert in_turn(scene, ann, says_hello) == "connected"
    scene.nodes.handle(0, AgentOrder(1, end=EndWorker(order.job, 0, 0.0)), 0.0)
    until(lambda: scene.turn() or order.job in scene.ended)
    assert scene.ended[order.job].exit_code == -9


def in_turn(scene: Scene, user: UserEntry, act: Callable[[], str]) -> str:
    """Returns what a process of a user says while the agent is serving."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, as_user(user, act).encode() or b"-")
        os._exit(0)
    os.close(write_end)
    until(lambda: scene.turn() or os.waitpid(child, os.WNOHANG)[0] == child)
    with os.fdopen(read_end, encoding="utf-8") as pipe:
        return pipe.read().removeprefix("-")


def test_what_a_users_job_leaves_behind_is_ended_with_it(scene: Scene) -> None:
    ann = scene.people.ann
    said = scene.run(ann, "setsid sh -c 'trap \"\" TERM HUP; sleep 1000' & echo $!; sleep 0.2")
    assert not Path(f"/proc/{int(said)}/environ").exists()


def test_a_failure_for_want_of_memory_is_known_by_the_output_of_the_user_alone(
    scene: Scene,
) -> None:
    ann = scene.people.ann
    lacks = "echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1"
    assert scene.end(scene.order(ann.name, lacks)).why == OUT_OF_MEMORY
    secret = scene.home / "secret"
    secret.write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    secret.chmod(0o600)
    order = scene.order(ann.name, f"mv output.log old; ln -s {secret} output.log; exit 1")
    order = replace(order, workdir="/", script=f"cd {order.folder}; {order.script}")
    assert scene.end(order).why == "", "root does not tell a user what another's file says"


def test_only_root_and_the_controllers_account_command_the_agent(
    scene: Scene, home: Path, people: Accounts
) -> None:
    log: list[str] = []
    path = home / "agents.sock"
    with closing(EventLoop()) as loop:
        links = LocalLinks(loop, path, log.append, people.service.uid)
        server = AgentServer(loop, links, scene.nodes, (0,), lambda: 0.0, log=log.append)

        def connected() -> bool:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
                link.settimeout(0.5)
                link.connect(os.fspath(path))
                try:
                    return link.recv(1) != b""
                except TimeoutError:
                    return True
                except OSError:
                    return False

        def served(user: UserEntry) -> str:
            child_done = False
            read_end, write_end = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(write_end, as_user(user, connected).encode())
                os._exit(0)
            while not child_done:
                loop.wait(0.02)
                child_done = os.waitpid(child, os.WNOHANG)[0] == child
            os.close(write_end)
            with os.fdopen(read_end, encoding="utf-8") as pipe:
                return pipe.read()

        assert served(people.ann) == "False"
        assert log == [f"another user (uid {people.ann.uid}) connected and was refused"]
        assert served(people.service) == "True"
        server.close()


@pytest.mark.parametrize("trick", ["ln -s", "ln"])
def test_what_root_writes_for_a_job_changes_no_file_of_another(
    scene: Scene, home: Path, trick: str
) -> None:
    secret = home / "secret"
    secret.write_text("whole\n" * (1 << 14))
    secret.chmod(0o600)
    ann = scene.people.ann
    order = scene.order(ann.name, "exec sleep 60")
    scene.start(order)
    scene.worker_pid(order.job)
    output = Path(order.folder, "output.log")
    output.unlink()
    # Where the kernel protects hard links ann cannot make one; here she could.
    if trick == "ln":
        os.link(secret, output)
    else:
        output.symlink_to(secret)
    launcher = scene.nodes._launchers[0]
    assert launcher.outputs() == {output: ann.uid}
    launcher.warn(order.job, 0, "idle")
    with pytest.raises(OSError, match=r"plain file|another user"):
        shorten(output, 1 << 10, ann.uid)
    # Nor by the name of the copy: that is a new file, and hers.
    output.unlink()
    output.write_text("x" * (1 << 12))
    os.chown(output, ann.uid, ann.gid)
    older = output.with_name("output.log.1")
    os.link(secret, older)
    shorten(output, 1 << 10, ann.uid)
    assert older.stat().st_uid == ann.uid and older.read_text() == "x" * (1 << 9)
    assert secret.read_text() == "whole\n" * (1 << 14)

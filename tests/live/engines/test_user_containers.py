"""Containers of several users: podman without root, as the submitter of each job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from accounts import Accounts, accounts, as_user
from dovetail.live.access.user_entry import UserEntry, user_entry
from dovetail.live.engines import containers
from dovetail.live.engines.containers import ContainerOrder
from dovetail.live.engines.keeper_terminal import SOCKET
from dovetail.wire.spec import Mount
from dovetail.wire.terminal import DONE, EXIT, INPUT, OUTPUT, Attach, attach, exit_of, frame
from keeper_line import line_of
from patience import until
from podman_here import podman_for
from user_scene import Scene, user_scene

TOOLS = (Mount("/usr", "/usr", read_only=True),)
SAYS_HELLO = """
import json, os, socket
link = socket.socket(socket.AF_UNIX)
link.settimeout(1.0)
link.connect(os.environ["DOVETAIL_SOCKET"])
hello = {"m": "Hello", "worker": os.environ["DOVETAIL_WORKER"], "pid": 1}
link.sendall((json.dumps(hello | {"token": os.environ["DOVETAIL_TOKEN"]}) + "\\n").encode())
try:
    print(link.recv(4096).decode() or "closed")
except TimeoutError:
    print("admitted")
"""
SEEN = "id -u; id -g; readlink /proc/self/ns/user; ls /; echo here >written"


@pytest.fixture(scope="module")
def people() -> Iterator[Accounts]:
    with accounts() as made:
        yield made


@pytest.fixture
def scene(people: Accounts) -> Iterator[Scene]:
    with user_scene(people) as made:
        yield made


@pytest.fixture
def rootfs(scene: Scene) -> Iterator[Path]:
    """A root file system of ann's, whose podman runs from a home directory of hers."""
    with podman_for(scene.people.ann, scene.home) as made:
        yield made


def test_a_container_runs_as_the_user_and_root_in_it_is_nobody_outside(
    scene: Scene, rootfs: Path
) -> None:
    ann = scene.people.ann
    work = scene.home / "work"
    work.mkdir()
    os.chown(work, ann.uid, ann.gid)
    image = {"container_image": str(rootfs), "container_mounts": TOOLS, "workdir": str(work)}
    order = scene.order(ann.name, "", command=("sh", "-c", SEEN), **image)
    scene.start(order)
    until(lambda: scene.turn() or order.job in scene.ended, lambda: str(scene.log))
    text = Path(order.folder, "output.log").read_text()
    assert scene.ended[order.job].exit_code == 0, text
    uid, gid, namespace, *names = text.splitlines()
    assert (uid, gid) == (str(ann.uid), str(ann.gid)), text
    assert namespace != os.readlink("/proc/self/ns/user"), "root in it is nobody outside"
    assert "work" not in names and "etc" in names, "it sees its image"
    assert (work / "written").stat().st_uid == ann.uid
    assert podman(ann, "ps", "--all", "--format={{.Names}}") == "", "nothing is left of it"


def test_a_worker_in_a_container_of_a_user_reaches_its_agent(scene: Scene, rootfs: Path) -> None:
    image = {"container_image": str(rootfs), "container_mounts": TOOLS, "workdir": "/tmp"}
    python = ("/usr/bin/python3", "-c", SAYS_HELLO)
    order = scene.order(scene.people.ann.name, "", command=python, trains=True, **image)
    end = scene.end(order)
    text = Path(order.folder, "output.log").read_text()
    assert (end.exit_code, text) == (0, "admitted\n"), (end, text)


def test_an_interactive_job_in_a_container_has_a_terminal_of_its_users(
    scene: Scene, rootfs: Path
) -> None:
    ann = scene.people.ann
    image = {"container_image": str(rootfs), "container_mounts": TOOLS, "workdir": "/tmp"}
    program = ("sh", "-c", "echo ready; read word; echo $word; id -u; stty size; exit 7")
    order = scene.order(ann.name, "", command=program, terminal="pty", output="", **image)
    scene.start(order)
    place = scene.home / "agent" / "0" / "workers" / f"{order.job}-0"
    until(lambda: scene.turn() or (place / SOCKET).exists(), lambda: str(scene.log))
    line = line_of(place).say(attach(Attach(b"k" * 16, 0, 31, 97)))
    said = b""
    while b"ready" not in said:
        said += line.until(OUTPUT).content
    line.say(frame(INPUT, b"typed\n"))
    while (found := line.until(OUTPUT, EXIT)).kind == OUTPUT:
        said += found.content
    line.say(frame(DONE)).link.close()
    assert exit_of(found.content) == 7, said
    assert said.split() == [b"ready", b"typed", b"typed", str(ann.uid).encode(), b"31", b"97"]
    until(lambda: scene.turn() or order.job in scene.ended)
    assert scene.ended[order.job].exit_code == 7


def podman(user: UserEntry, *words: str) -> str:
    now = user_entry(user.name)
    assert now is not None
    env = containers.home_of(now)

    def run() -> str:
        done = subprocess.run(["podman", *words], env=env, capture_output=True, text=True, cwd="/")
        return done.stdout if done.returncode == 0 else done.stderr

    return as_user(user, run)


def test_what_ends_a_killed_containers_rest_is_no_root_with_variables_of_a_job(
    scene: Scene,
) -> None:
    ann = scene.people.ann
    given = ContainerOrder(("podman",), {"GCONV_PATH": "/home/ann"}, ("podman", "rm"), "/began")
    order = containers.as_user(given, ann)
    assert order.environment["HOME"] == ann.home
    setpriv, *words = order.removal
    assert Path(setpriv).name == "setpriv" and words[-2:] == ["podman", "rm"]
    said = subprocess.run([setpriv, *words[:-2], "id", "-u"], capture_output=True, text=True)
    assert said.stdout.strip() == str(ann.uid)
    assert set(containers.home_of(ann)) == {"PATH", "HOME", "USER", "LOGNAME"}


def test_no_runtime_is_asked_as_somebody_who_may_run_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(runtime: str, user: UserEntry | None) -> None:
        raise AssertionError("podman was started")

    monkeypatch.setattr(containers, "_probe", asked)
    end = scene.end(scene.order("daemon", "id", container_image="/image"))
    assert "is not a person's" in end.why

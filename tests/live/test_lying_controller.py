"""A controller in wrong hands, and root's agent: it does nothing that its own node forbids."""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest

from accounts import Accounts, accounts
from dovetail.live.access.shared_jobs import make_shared_jobs
from dovetail.live.join.dial import NodeRefused
from dovetail.live.join.shared_folder import CHECKS, MARK, SharedFolder
from dovetail.wire.agent import (
    AgentOrder,
    AgentReport,
    InventoryRequest,
    Renew,
    StartWorker,
    WorkerEnded,
)
from dovetail.wire.site import SiteSettings
from gate_scene import GateScene
from patience import PATIENCE_S, until

pytest.importorskip("cryptography")


@pytest.fixture(scope="module")
def people() -> Iterator[Accounts]:
    with accounts() as made:
        yield made


@pytest.fixture
def root() -> Iterator[Path]:
    # Not below the folder of pytest, which others may not pass.
    made = Path(tempfile.mkdtemp(prefix="dl-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


class Node:
    """The agent of a node of several users, and the controller that it serves, which lies."""

    def __init__(self, root: Path, people: Accounts, scene: GateScene, *prefix: str) -> None:
        self.root, self.people, self.scene = root, people, scene
        self.rule = root / "users.toml"
        self.rule.write_text(
            f'controller = "{people.service.name}"\nusers = ["{people.ann.name}"]\n'
        )
        command = [*prefix, sys.executable, "-m", "dovetail", "agent", "--slots", "2"]
        command += ["--join", str(scene.word("n1")), "--folder", str(root / "agent")]
        with (root / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--users", str(self.rule)], stdout=log, stderr=log
            )
        self.jobs = root / "agent" / "jobs"
        self._job, self._leased = 0, False

    def said(self) -> str:
        return (self.root / "log").read_text()

    def logs(self, text: str) -> None:
        until(lambda: text in self.said(), self.said)

    def order(self, user: str, **fields: object) -> StartWorker:
        self._job += 1
        order = StartWorker(
            *(self._job, 0, 0, 0, ("/usr/bin/id",)),
            folder=str(self.jobs / str(self._job)),
            output=str(self.jobs / str(self._job) / "output.log"),
            workdir="/",
            user=user,
            ships=True,
        )
        return replace(order, **fields)  # type: ignore[arg-type]

    def end_of(self, order: StartWorker) -> WorkerEnded:
        """Orders a start, and returns how it ended."""
        until(lambda: self.scene.gate.joined() == {0: "n1"}, self.said)
        self.scene.gate.send(0, AgentOrder(1, hail=InventoryRequest(1)))
        ordered, give_up_s = False, monotonic() + PATIENCE_S
        if self._leased:
            ordered = self._send(order)
        while monotonic() < give_up_s:
            with suppress(queue.Empty):
                come = self.scene.come.get(timeout=1.0)
                if not isinstance(come, AgentReport):
                    continue
                if come.alive is not None and not ordered:
                    # A node starts workers only while it has a lease.
                    beat, self._leased = come.alive, True
                    renew = Renew(600.0, 10.0, beat.incarnation, beat.sent_s)
                    self.scene.gate.send(0, AgentOrder(1, renew=renew))
                    ordered = self._send(order)
                if come.ended is not None and come.ended.job == order.job:
                    return come.ended
        raise AssertionError(self.said())

    def _send(self, order: StartWorker) -> bool:
        self.scene.gate.send(0, AgentOrder(1, start=order))
        return True

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.scene.close()


@pytest.fixture
def node(root: Path, people: Accounts) -> Iterator[Node]:
    made = Node(root, people, GateScene(root, has_users=True))
    yield made
    made.close()


def test_it_starts_nothing_as_root_a_service_or_a_user_whom_its_node_does_not_list(
    node: Node,
) -> None:
    # bob is a user of the cluster, says the controller; this node lists ann alone.
    for user in ("root", "www-data", "daemon", node.people.bob.name, node.people.service.name):
        end = node.end_of(node.order(user))
        assert end.exit_code == 126 and user in end.why
        node.logs(f"refused: job {end.job} of user '{user}'")
    assert "uid 33 is not a person's" in node.said()
    assert not list(node.jobs.iterdir()), "nothing is made for whom nothing runs"


def test_it_starts_nobody_who_is_another_person_on_this_node(node: Node) -> None:
    ann = node.people.ann
    end = node.end_of(node.order(ann.name, uid=ann.uid + 1))
    assert f"{ann.name} has uid {ann.uid} on this node, and {ann.uid + 1} on" in end.why


def test_root_makes_no_folder_where_root_has_not_said_so(node: Node) -> None:
    ann = node.people.ann
    marked = node.root / "marked"
    (marked / CHECKS).mkdir(parents=True)
    for own in (Path("/etc/cron.d"), marked):
        order = node.order(ann.name, ships=False)
        end = node.end_of(replace(order, folder=str(own / str(order.job))))
        assert "is not the folder of its job" in end.why
    assert not (marked / "1").exists()


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        ({"prolog": "/sbin/poweroff"}, "the prolog /sbin/poweroff is not a file of root's in"),
        ({"health_check": "{ann}"}, "the health check {ann} is not a file of root's in"),
        ({"container_runtime": "{ann}"}, "the container runtime '{ann}' is none"),
    ],
    ids=["a program of root's", "a user's script", "a user's runtime"],
)
def test_root_runs_no_program_that_a_controller_names(
    root: Path, people: Accounts, lie: dict[str, str], says: str
) -> None:
    script = root / "podman"
    script.write_text(f"#!/bin/sh\ntouch {root}/ran\n")
    script.chmod(0o777)
    site = SiteSettings(**{k: v.replace("{ann}", str(script)) for k, v in lie.items()})  # type: ignore[arg-type]
    node = Node(root, people, GateScene(root, site, has_users=True))
    try:
        node.logs(f"cannot join: refused: {says.replace('{ann}', str(script))}")
        assert not (root / "ran").exists()
    finally:
        node.close()


def shared_by_root(root: Path, people: Accounts) -> SharedFolder:
    folder = root / "shared"
    folder.mkdir()
    make_shared_jobs(folder, people.service)
    return SharedFolder(folder, "a")


def test_a_shared_folder_is_one_that_root_has_shared_out(root: Path, people: Accounts) -> None:
    ann = people.ann
    theirs = root / "theirs"
    (theirs / CHECKS).mkdir(parents=True)
    (theirs / MARK).write_text('{"cluster": "a"}')
    os.chown(theirs, ann.uid, ann.gid)
    node = Node(root, people, GateScene(root, has_users=True, shared=SharedFolder(theirs, "a")))
    try:
        node.logs(f"the shared folder {theirs} cannot be used: root has not shared it out")
    finally:
        node.close()


def test_a_folder_in_which_root_may_give_nothing_away_is_refused_in_words(
    root: Path, people: Accounts
) -> None:
    # Root without the right to give files away is what NFS makes of it with root_squash.
    shared = shared_by_root(root, people)
    squashed = ("setpriv", "--bounding-set=-chown", "--inh-caps=-chown")
    node = Node(root, people, GateScene(root, has_users=True, shared=shared), *squashed)
    try:
        node.logs("root may give no folder to users there (NFS: export it with no_root_squash)")
    finally:
        node.close()


def test_the_controllers_account_is_the_same_on_all_machines(root: Path, people: Accounts) -> None:
    # The controller of this test is root, which the node's file does not say.
    node = Node(root, people, GateScene(root, has_users=True, shared=shared_by_root(root, people)))
    try:
        service = people.service
        node.logs(f"user {service.name} is {service.uid}:{service.gid} on this node, and 0:0 on")
    finally:
        node.close()


def test_an_agent_of_one_user_does_not_join_several_nor_the_other_way_round(
    root: Path, people: Accounts
) -> None:
    several = GateScene(root, has_users=True)
    with pytest.raises(NodeRefused, match="several users, and its agent runs all jobs as one"):
        several.join("n1")
    several.close()
    node = Node(root, people, GateScene(root))
    try:
        node.logs("one user, and its agent runs jobs as several; start it as root with")
    finally:
        node.close()

"""Leases with real processes: keepers end workers without an agent; lineages have a folder."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.live.engines import local
from dovetail.live.engines.cgroup import ControlGroups
from dovetail.live.engines.devices import slots
from dovetail.live.engines.keeper import Keeper, KeeperOrder
from dovetail.live.engines.local import LocalProcessSettings
from dovetail.live.engines.processes import ProcessLauncher, ProcessSettings
from dovetail.live.engines.stored_lease import StoredLease, boot_s
from dovetail.live.node.agent import Agent
from dovetail.live.node.launcher import WorkerExit
from dovetail.wire.agent import AgentOrder, Renew, StartWorker
from patience import until

SLEEPS = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


class Leased(ProcessSettings):
    """Settings of workers whose keepers heed a lease."""

    def __init__(self, lease: StoredLease) -> None:
        self.lease = lease

    def prepare(self, order: StartWorker, token: str, folder: Path) -> KeeperOrder:
        prepared = super().prepare(order, token, folder)
        prepared["lease"] = str(self.lease.path)
        prepared["lease_over_s"] = self.lease.until_s + self.lease.grace_s
        return prepared


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder; whatever still runs from it is killed."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="dl"))
    yield path
    launcher = ProcessLauncher(path / "workers")
    for found in launcher.adopt():
        launcher.signal(found.order.job, found.order.worker, signal.SIGKILL)
    until(lambda: (launcher.poll(), not launcher.alive)[1])
    shutil.rmtree(path)


def order(folder: Path) -> StartWorker:
    command = (sys.executable, "-c", SLEEPS)
    return StartWorker(7, 0, 1, 0, command, str(folder), str(folder / "out.log"), str(folder))


def renew(agent: Agent, lease_s: float) -> None:
    beat = agent.heartbeat(boot_s()).alive
    assert beat is not None
    answer = Renew(lease_s, 0.2, beat.incarnation, beat.sent_s)
    agent.handle(AgentOrder(1, renew=answer), boot_s())


def agent_of(folder: Path) -> tuple[Agent, ProcessLauncher]:
    lease = StoredLease(folder / "lease.json")
    launcher = ProcessLauncher(folder / "workers", Leased(lease))
    return Agent(0, ("a",), launcher, lease=lease), launcher


def test_a_worker_whose_agent_is_gone_ends_with_the_lease(folder: Path) -> None:
    agent, launcher = agent_of(folder)
    renew(agent, 1.0)
    agent.handle(AgentOrder(1, start=order(folder)), boot_s())
    assert agent.alive == ((7, 0),)
    # That agent never runs again: no tick of it looks at the lease.
    later = ProcessLauncher(folder / "workers")
    ends = [found.exit for found in later.adopt() if found.exit is not None]
    until(lambda: ends.extend(later.poll()) or ends)
    assert ends == [WorkerExit(7, 0, -signal.SIGKILL)]
    assert agent.lease is not None and boot_s() >= agent.lease.until_s
    until(launcher.poll)


def test_a_lease_that_is_renewed_keeps_the_worker(folder: Path) -> None:
    agent, launcher = agent_of(folder)
    renew(agent, 0.5)
    renew(agent, 600.0)
    agent.handle(AgentOrder(1, start=order(folder)), boot_s())
    deadline_s = boot_s() + 2.5
    # More than two looks of the keeper after the end of the first lease.
    until(lambda: boot_s() > deadline_s)
    agent.tick(boot_s())
    assert launcher.poll() == [] and agent.alive == ((7, 0),)
    launcher.signal(7, 0, signal.SIGKILL)
    until(launcher.poll)


def no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_keeper_whose_lease_was_never_written_kills_when_it_is_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "write_whole", no_room)
    agent, launcher = agent_of(folder)
    renew(agent, 1.0)
    assert not (folder / "lease.json").exists()
    agent.handle(AgentOrder(1, start=order(folder)), boot_s())
    later = ProcessLauncher(folder / "workers")
    ends = [found.exit for found in later.adopt() if found.exit is not None]
    until(lambda: ends.extend(later.poll()) or ends)
    assert ends == [WorkerExit(7, 0, -signal.SIGKILL)]
    until(launcher.poll)


def test_on_a_full_disk_a_lease_is_renewed_in_its_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = StoredLease(folder / "lease.json")
    lease.renew(Renew(60.0, 5.0, "x", 100.0), "x", 101.0)
    monkeypatch.setattr(local, "write_whole", no_room)
    lease.renew(Renew(60.0, 5.0, "x", 123456.789), "x", 123457.0)
    lease.renew(Renew(60.0, 5.0, "x", 123460.0), "x", 123461.0)
    stored = json.loads(lease.path.read_text())
    assert stored["until_s"] == stored["again_s"] == 123520.0


def test_a_lease_that_is_read_while_it_is_written_over_gives_no_time(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    whole = {"until_s": 1e9, "grace_s": 0.0, "again_s": 1e9}
    keeper = Keeper.__new__(Keeper)
    keeper._child, keeper._lease, keeper._lease_over_s, keeper._unsent = 0, str(path), 5.0, 0
    path.write_text(json.dumps({**whole, "again_s": 1e8}))
    keeper._look(0, None)
    assert keeper._lease_over_s == 5.0
    path.write_text(json.dumps(whole))
    keeper._look(0, None)
    assert keeper._lease_over_s == 1e9


def test_over_the_lease_an_agent_kills_a_worker_that_ignores_it(folder: Path) -> None:
    agent, _ = agent_of(folder)
    renew(agent, 0.5)
    agent.handle(AgentOrder(1, start=order(folder)), boot_s())
    ended = []

    def look() -> bool:
        ended.extend(r.ended for r in agent.tick(boot_s()) if r.ended is not None)
        time.sleep(0.01)
        return bool(ended)

    until(look)
    assert (ended[0].exit_code, ended[0].why) == (-9, "no controller was heard for 0.5 s")


def test_a_later_agent_finds_the_lease_unless_the_machine_was_started_anew(tmp_path: Path) -> None:
    lease = StoredLease(tmp_path / "lease.json")
    lease.renew(Renew(60.0, 5.0, "x", 100.0), "x", 101.0)
    again = StoredLease(tmp_path / "lease.json")
    assert (again.until_s, again.length_s, again.grace_s) == (160.0, 60.0, 5.0)
    stored = json.loads(lease.path.read_text())
    lease.path.write_text(json.dumps({**stored, "boot": "another"}))
    assert not StoredLease(tmp_path / "lease.json").holds(0.0)
    lease.path.write_text("{")
    assert not StoredLease(tmp_path / "lease.json").holds(0.0)


def test_a_worker_of_a_lineage_finds_its_checkpoints_or_does_not_start(tmp_path: Path) -> None:
    groups = ControlGroups(0, None, None)
    setting = LocalProcessSettings(slots(1), tmp_path / "socket", groups, {})
    trains = replace(order(tmp_path), trains=True)
    assert setting.prepare(trains, "t", tmp_path)["environment"]["DOVETAIL_FOLDER"] == str(tmp_path)
    with pytest.raises(FileNotFoundError, match="lineage-2"):
        setting.prepare(replace(trains, lineage=2), "t", tmp_path)
    (tmp_path / "lineage-2").mkdir()
    environment = setting.prepare(replace(trains, lineage=2), "t", tmp_path)["environment"]
    assert environment["DOVETAIL_FOLDER"] == str(tmp_path / "lineage-2")

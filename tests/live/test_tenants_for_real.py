"""Tenants on real processes: guarantees, budgets and shares, also over a controller's death."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.client.client import Client
from dovetail.live.server.messages.tenants import TenantRow
from dovetail.live.server.server import user_name
from dovetail.live.store.queries import StoreReader
from dovetail.wire.spec import JobSpec
from patience import PATIENCE_S, until
from store_audit import audit

SLEEPS = ("/bin/sleep", "600")
ME = user_name(os.getuid())
QUEUES = """
[[queue]]
name = "prod"
guaranteed = 1

[[queue]]
name = "spot"
tier = "spot"

[[account]]
name = "lab"

[[account]]
name = "ops"
users = ["nobody-else"]
"""


class Site:
    """A live cluster of two slots with a cluster file, in a folder of its own."""

    def __init__(self, home: Path, policy: str, file: str) -> None:
        self.home, self.policy = home, policy
        self.file = home / "site.toml"
        self.file.write_text(file)
        self.client = Client(home, patience_s=PATIENCE_S)
        self.controller: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        words = ["up", "--foreground", "--engine", "local:2", "--home", str(self.home)]
        words += ["--policy", self.policy, "--cluster", str(self.file)]
        with (self.home / "said").open("ab") as said:
            self.controller = subprocess.Popen(
                [sys.executable, "-m", "dovetail", *words], stdout=said, stderr=said
            )
        until(self.answers, self.said)

    def answers(self) -> bool:
        assert self.controller is not None and self.controller.poll() is None, self.said()
        try:
            return self.client.ping().pid == self.controller.pid
        except DovetailError:
            return False

    def kill(self) -> None:
        assert self.controller is not None
        self.controller.kill()
        self.controller.wait()

    def said(self) -> str:
        files = (self.home / "said", self.home / "controller.log")
        return "\n".join(f.read_text() for f in files if f.exists())

    def submit(self, name: str, queue: str, **more: object) -> int:
        words: dict[str, object] = {"account": "lab", "command": SLEEPS, **more}
        spec = JobSpec(name, workdir=str(self.home), queue=queue, **words)  # type: ignore[arg-type]
        (job,) = self.client.submit(spec, key=name)
        return job

    def is_(self, job: int, state: str) -> None:
        until(lambda: self.client.show(job).row.state == state, self.said)

    def tenants(self) -> dict[tuple[str, ...], TenantRow]:
        return {row.path: row for row in self.client.tenants().tenants}

    def end(self) -> None:
        if self.controller is not None and self.controller.poll() is None:
            for row in self.client.jobs().jobs:
                self.client.change("cancel", row.job)
            self.client.down()
            self.controller.wait(PATIENCE_S)
        shutil.rmtree(self.home, ignore_errors=True)


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_a_guarantee_a_budget_and_shares_outlive_a_killed_controller(home: Path) -> None:
    site = Site(home, "tenancy:inner=fifo,budget=1,half-life-s=100000", QUEUES)
    try:
        site.up()
        first, second = site.submit("a", "spot"), site.submit("b", "spot")
        site.is_(first, "RUNNING")
        site.is_(second, "RUNNING")
        for number, victim in ((1, second), (2, first)):
            # Lent GPUs come back; the one whose budget is spent is spared the second time.
            prod = site.submit(f"p{number}", "prod")
            site.is_(prod, "RUNNING")
            site.is_(victim, "PENDING")
            assert site.client.show(victim).stops == 1
            site.client.cancel(prod)
            site.is_(victim, "RUNNING")
        waiting = site.submit("p3", "prod")
        until(lambda: site.client.why(waiting).code == "PreemptionBudget", site.said)
        assert "as often as they may be" in site.client.why(waiting).sentence
        before, age_s = site.tenants(), site.client.show(waiting).waits_s
        site.kill()
        site.up()
        until(lambda: site.client.why(waiting).code == "PreemptionBudget", site.said)
        after = site.tenants()
        assert after.keys() == before.keys()
        # Forgotten use would be all but nothing after a restart; it halves in 28 hours.
        assert all(after[path].used_gpus > 0.9 * before[path].used_gpus > 0 for path in before)
        assert [after[path].held_gpus for path in after] == [before[p].held_gpus for p in after]
        assert [site.client.show(job).stops for job in (first, second)] == [1, 1]
        assert site.client.show(waiting).waits_s >= age_s
        assert site.client.show(waiting).row.state == "PENDING"
        with StoreReader(home / "store.db") as reader:
            assert audit(reader, acknowledged=(first, second, waiting)) == []
    finally:
        site.end()


@pytest.mark.slow
def test_a_reservation_keeps_a_node_and_users_are_refused_by_name(home: Path) -> None:
    now = datetime.now(UTC)
    window = f"""
[[reservation]]
name = "course"
start = "{(now - timedelta(hours=1)).isoformat()}"
end = "{(now + timedelta(seconds=25)).isoformat()}"
nodes = [0]
accounts = ["ops"]
"""
    site = Site(home, "tenancy:inner=fifo", QUEUES + window)
    try:
        site.up()
        refused = f"user '{ME}' may not use account 'ops'"
        with pytest.raises(InputError, match=refused):
            site.submit("mine", "spot", account="ops")
        with pytest.raises(InputError, match="'course' is not for account 'lab'"):
            site.submit("course", "spot", reservation="course")
        job = site.submit("late", "spot")
        until(lambda: site.client.why(job).code != "None", site.said)
        assert site.client.why(job).code == "Reservation"
        assert "nodes that it could use are kept for course" in site.client.why(job).evidence
        # The window ends, and the node opens by itself.
        site.is_(job, "RUNNING")
    finally:
        site.end()

"""What a site has set reaches the agents of other machines: a real agent, joined to a gate."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.wire.agent import (
    WIRE_VERSION,
    AgentOrder,
    AgentReport,
    InventoryRequest,
    Renew,
    StartWorker,
)
from dovetail.wire.join import ANSWERS, ENTRANCES, Join, Welcome
from dovetail.wire.site import AS_USUAL, SiteSettings
from gate_scene import DEVICES, GateScene
from patience import PATIENCE_S

pytest.importorskip("cryptography")
SET = SiteSettings("/site/check", output_bytes_max=70_000, container_runtime="podman")


@pytest.mark.parametrize("wire", [WIRE_VERSION, WIRE_VERSION - 1])
def test_an_agent_that_joins_is_told_what_the_site_has_set(tmp_path: Path, wire: int) -> None:
    tmp_path.chmod(0o700)
    scene = GateScene(tmp_path, SET)
    join = Join(wire, "0", "n1", scene.identity.secret_of("n1"), "a", DEVICES)
    lines = scene.raw()
    lines.send(ENTRANCES.encode(join))
    answer = lines.read_line(PATIENCE_S) or b""
    scene.close()
    welcome = ANSWERS.decode(answer)
    assert isinstance(welcome, Welcome) and welcome.site == SET


class RealAgent:
    """A process of `dovetail agent`, and a controller that knows no more than a test needs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, scene: GateScene) -> None:
        word = scene.word("n1")
        command = [sys.executable, "-m", "dovetail", "agent", "--join", str(word), "--slots", "1"]
        with (self.root / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--folder", str(self.root / "agent")], stdout=log, stderr=log
            )


class PlayedController:
    """Renews the lease of the node whenever it is heard, and waits for what it reports."""

    def __init__(self, scene: GateScene, epoch: int, root: Path) -> None:
        self.scene, self.epoch, self.root = scene, epoch, root
        self.is_heard = False
        scene.gate.send(0, AgentOrder(epoch, hail=InventoryRequest(epoch, 1)))

    def until(self, true: Callable[[AgentReport], object]) -> None:
        while True:
            report = self.scene.come.get(timeout=PATIENCE_S)
            if isinstance(report, AgentReport):
                if (alive := report.alive) is not None:
                    self.is_heard = True
                    renewal = Renew(600.0, 10.0, alive.incarnation, alive.sent_s)
                    self.scene.gate.send(0, AgentOrder(self.epoch, renew=renewal))
                if true(report):
                    return

    def run(self, job: int, program: str) -> None:
        folder = self.root / "jobs" / str(job)
        folder.mkdir(parents=True)
        words = ("/bin/sh", "-c", program)
        order = StartWorker(
            job, 0, 1, 0, words, str(folder), str(folder / "out"), str(self.root), begun=False
        )
        if not self.is_heard:
            self.until(lambda report: report.alive)
        self.scene.gate.send(0, AgentOrder(self.epoch, start=order, serial=1))
        self.until(lambda report: report.ended is not None and report.ended.job == job)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[RealAgent]:
    tmp_path.chmod(0o700)
    agent = RealAgent(tmp_path)
    yield agent
    if agent.process is not None:
        agent.process.send_signal(signal.SIGKILL)
        agent.process.wait()


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_joined_agent_runs_the_sites_scripts_and_later_those_of_the_next_controller(
    tmp_path: Path, agent: RealAgent
) -> None:
    log = tmp_path / "said"
    site = SiteSettings(
        script(tmp_path / "check", "echo fan is loud; exit 1"),
        script(tmp_path / "prolog", f'echo "prolog $DOVETAIL_JOB" >> {log}'),
        script(tmp_path / "epilog", f'echo "epilog $DOVETAIL_JOB" >> {log}'),
        output_bytes_max=70_000,
    )
    scene = GateScene(tmp_path, site)
    agent.start(scene)
    controller = PlayedController(scene, 1, tmp_path)
    faults: list[str] = []
    controller.until(
        lambda said: said.health and faults.extend(f.what for f in said.health.faults) is None
    )
    assert faults == ["health check: fan is loud"]
    bounded = f"until [ -e {tmp_path}/jobs/7/out.1 ]; do sleep 0.05; done"
    controller.run(7, f"echo runs >> {log}; head -c 200000 /dev/zero; {bounded}")
    controller.run(8, "true")
    assert log.read_text().splitlines()[:4] == ["prolog 7", "runs", "epilog 7", "prolog 8"]
    place = scene.gate.address[1]
    scene.close()

    later = GateScene(tmp_path, replace(AS_USUAL, reclaim_idle_s=60.0), place)
    PlayedController(later, 2, tmp_path).run(9, f"echo alone >> {log}")
    later.close()
    assert "prolog 9" not in log.read_text()
    assert log.read_text().splitlines()[-1] == "alone"

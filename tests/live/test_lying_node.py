"""A node that has joined and lies, beside a real agent under a real controller."""

from __future__ import annotations

import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dovetail.live.join.dial import Joiner
from dovetail.live.node.transport import TO_AGENTS, Addressed
from dovetail.wire.agent import REPORTS, AgentReport, Heartbeat, Inventory, WorkerEnded, WorkerState
from dovetail.wire.connection import LineConnection
from dovetail.wire.join import NodeDevices
from dovetail.wire.spec import JobSpec
from joined_cluster import JoinedCluster
from patience import PATIENCE_S, until

pytest.importorskip("cryptography")
pytestmark = pytest.mark.slow
DEVICES = NodeDevices(("slot-0",), "cpu", 1e9, 1.0, 1e9)
WAITS = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.05)"


class Liar:
    """An agent that answers as an empty node does, and says whatever it is told to say."""

    def __init__(self, word: Path) -> None:
        joined = Joiner(word, secrets.token_hex(8), DEVICES).join()
        self.number, self.lines = joined.number, LineConnection(joined.link)
        self.rows: tuple[WorkerState, ...] = ()
        self.answered = 0
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def say(self, report: AgentReport) -> None:
        self.lines.send(REPORTS.encode(report), PATIENCE_S)

    def _answer(self) -> None:
        with suppress(OSError):
            while (line := self.lines.read_line(PATIENCE_S)) is not None:
                message = TO_AGENTS.decode(line)
                asked = message.order.hail if isinstance(message, Addressed) else None
                if asked is None:
                    continue
                all_rows = Inventory(
                    self.number, "liar", DEVICES.names, self.rows, asked.epoch, asked.serial
                )
                self.say(AgentReport(self.number, inventory=all_rows))
                self.say(AgentReport(self.number, alive=Heartbeat(self.number, "liar", 1.0)))
                self.answered += 1

    def close(self) -> None:
        with suppress(OSError):
            self.lines._link.shutdown(2)
        self._thread.join()
        self.lines.close()


@pytest.fixture
def cluster() -> Iterator[JoinedCluster]:
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="dj"))
    cluster = JoinedCluster(root, {"n1": 2, "n2": 1})
    yield cluster
    cluster.close()
    shutil.rmtree(root, ignore_errors=True)


def test_a_lying_node_ends_no_job_of_another_under_a_real_controller(
    cluster: JoinedCluster,
) -> None:
    cluster.start("--policy", "fifo")
    cluster.join("n1")
    cluster.until((cluster.home / "join" / "n2").exists, "there is a word for n2")
    liar = Liar(cluster.home / "join" / "n2")
    try:
        cluster.until(cluster.answers, "a controller answers")
        go_on = cluster.root / "go"
        command = (sys.executable, "-c", WAITS, str(go_on))
        spec = JobSpec("a", command, str(cluster.root), gpus=2, min_gpus=2, max_gpus=2)
        (job,) = cluster.client.submit(spec)
        cluster.until(lambda: cluster.client.show(job).row.state == "RUNNING", "the job runs")
        for worker in range(3):
            for code in (0, 1):
                end = WorkerEnded(job, worker, 1, code)
                liar.say(AgentReport(liar.number, ended=end))
        liar.rows = tuple(WorkerState(job, n, 1, 0, exit_code=0) for n in range(3))
        before = liar.answered
        until(lambda: liar.answered > before + 1)
        cluster.until(lambda: "reports on job" in cluster.said(), "it is logged")
        assert cluster.client.show(job).row.state == "RUNNING"
        go_on.touch()
        (end_row,) = cluster.client.wait(job, timeout_s=PATIENCE_S)
        assert end_row.state == "COMPLETED", cluster.said()
    finally:
        liar.close()

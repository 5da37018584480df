"""What programs of a node may do to the socket of its workers: the agent lives and answers."""

import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from dovetail.live.edges.protocols import Incoming
from dovetail.live.edges.wall_clock import WallClock
from dovetail.live.engines.agent_server import LINKS_MAX
from dovetail.live.engines.local_engine import LocalEngine, control_socket, worker_socket
from dovetail.live.engines.worker_hub import STRANGERS_MAX
from dovetail.live.node.transport import TO_AGENTS, Addressed
from dovetail.wire.agent import AgentOrder, AgentReport, InventoryRequest
from dovetail.wire.worker import FROM_WORKER, Hello, Ready
from patience import PATIENCE_S, until
from random_messages import random_message

FILES_MAX = STRANGERS_MAX + LINKS_MAX + 40


@pytest.fixture
def home() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="dt"))
    yield path
    LocalEngine("local:1", path).stop_agents(end=True)
    shutil.rmtree(path)


def attack(path: Path, rng: Random, said: list[bytes], kept: list[socket.socket]) -> None:
    link = socket.socket(socket.AF_UNIX)
    kept.append(link)
    with suppress(OSError):
        link.settimeout(PATIENCE_S)
        link.connect(os.fspath(path))
        link.setblocking(False)
        link.send(rng.choice(said))
        if rng.random() < 0.3:
            link.shutdown(rng.choice((socket.SHUT_RD, socket.SHUT_WR)))
    if len(kept) > 600:
        kept.pop(rng.randrange(len(kept))).close()


def test_the_agent_outlives_what_is_said_on_its_sockets_and_answers_its_controller(
    home: Path,
) -> None:
    engine, rng, kept = LocalEngine("local:1", home), Random(4), list[socket.socket]()
    engine.start_agents()
    come: list[Incoming] = []
    post = engine.connect(come.append, WallClock())
    log = (home / "nodes" / "agent.log").read_text()
    agents = re.search(r"process (\d+)", log)
    assert agents is not None
    files = Path(f"/proc/{agents[1]}/fd")

    def answers(serial: int) -> None:
        post.send(0, AgentOrder(1, hail=InventoryRequest(1, serial)))
        until(
            lambda: any(
                isinstance(c, AgentReport) and c.inventory and c.inventory.serial == serial
                for c in come
            )
        )

    answers(1)
    order = TO_AGENTS.encode(Addressed(0, AgentOrder(1, hail=InventoryRequest(1))))
    wrong = [
        b"",
        rng.randbytes(500),
        b"9" * 200_000,
        b"[" * 90_000 + b"\n",
        order[:-9],
        b"{}\n" * 9,
    ]
    as_worker = [
        *wrong,
        *(
            FROM_WORKER.encode(Hello(name, "x", 1))
            for name in ("1/0", "/", "9" * 400 + "/0", "é/é")
        ),
        *(FROM_WORKER.encode(random_message(rng, Ready)) for _ in range(3)),
    ]
    for _ in range(200):
        attack(control_socket(home), rng, [b""], kept)
    answers(2)
    assert len(os.listdir(files)) <= FILES_MAX
    for number in range(3, 602):
        attack(worker_socket(home / "nodes" / "0"), rng, as_worker, kept)
        if number % 10 == 0:
            attack(control_socket(home), rng, wrong, kept)
        if number % 100 == 0:
            answers(number)
            assert len(os.listdir(files)) <= FILES_MAX
    for link in kept:
        link.close()
    answers(1000)
    post.close()

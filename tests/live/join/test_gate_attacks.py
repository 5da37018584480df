"""Whatever comes to the gate, from strangers and from a node: it lives, and serves the others."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from dovetail.live.join.dial import Joiner, NodeRefused
from dovetail.live.join.gate_stream import GateStream, called
from dovetail.live.join.identity import ControllerIdentity
from dovetail.live.join.word import CLIENT, JoinWord
from dovetail.live.node.transport import TO_AGENTS, Addressed
from dovetail.wire.agent import REPORTS, AgentReport, Heartbeat
from dovetail.wire.connection import LineConnection
from dovetail.wire.join import ENTRANCES, CarryTerminal, Enter, Join
from gate_scene import DEVICES
from patience import PATIENCE_S
from random_messages import random_message

pytest.importorskip("cryptography")
HERE = Path(__file__).parents[2]
FILES_MAX = 256 + 60
"""Strangers, and what the process itself has open."""
GROWTH_BYTES_MAX = 150 << 20
LOG_BYTES_MAX = 100_000
CLIENT_HELLO = bytes.fromhex("16030100c8010000c40303")


class GateProcess:
    """A gate in another process, and the word of any of its nodes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.identity = ControllerIdentity.of(folder / "gate")
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "gate_process.py"), str(folder)],
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self.process.stdout is not None
        with self.process.stdout as out:
            self.address = "127.0.0.1", int(out.readline())
        self.place = Path(f"/proc/{self.process.pid}")

    def word(self, name: str, **changed: str) -> JoinWord:
        secret = self.identity.secret_of(name)
        return replace(JoinWord(*self.address, self.identity.fingerprint, name, secret), **changed)

    def join(self, name: str, incarnation: str = "a") -> LineConnection:
        path = self.folder / name
        self.word(name).write(path)
        return LineConnection(Joiner(path, incarnation, DEVICES).join().link)

    def secured(self) -> GateStream:
        return called(*self.address, self.identity.fingerprint, PATIENCE_S)

    def files(self) -> int:
        return len(os.listdir(self.place / "fd"))

    def rss_bytes(self) -> int:
        return int((self.place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[GateProcess]:
    tmp_path.chmod(0o700)
    gate = GateProcess(tmp_path)
    yield gate
    gate.process.kill()
    gate.process.wait()


def serves(lines: LineConnection, serial: int) -> None:
    """Has a heartbeat of an honest node answered."""
    lines.send(REPORTS.encode(AgentReport(0, alive=Heartbeat(0, "a", float(serial)))))
    while True:
        order = TO_AGENTS.decode(lines.read_line(PATIENCE_S) or b"")
        assert isinstance(order, Addressed)
        if order.order.hail is not None and order.order.hail.serial == serial:
            return


def wrong_values(rng: Random) -> bytes:
    """Returns a line of valid JSON that is no first line."""
    values: list[object] = [None, -1, 1e400, 10**40, "x" * 9000, [], {}, True, "\ud800", [[1]] * 50]
    join = json.loads(ENTRANCES.encode(random_message(rng, Join)))
    for name in rng.sample(sorted(join), rng.randrange(1, len(join))):
        join[name] = rng.choice(values)
    return json.dumps(rng.choice([join, values, {"m": join}])).encode() + b"\n"


def plain(rng: Random, gate: GateProcess, kept: list[socket.socket]) -> None:
    """Comes without TLS, or with the beginning of it."""
    link = socket.create_connection(gate.address, PATIENCE_S)
    kept.append(link)
    line = ENTRANCES.encode(random_message(rng, Join))
    said = [b"", rng.randbytes(300), line, CLIENT_HELLO, CLIENT_HELLO + rng.randbytes(400)]
    link.sendall(rng.choice(said))
    if rng.random() < 0.3:
        link.shutdown(rng.choice((socket.SHUT_WR, socket.SHUT_RD)))


def stranger(rng: Random, gate: GateProcess, kept: list[socket.socket]) -> None:
    """Comes with TLS, and says something that is no secret of anyone."""
    link = gate.secured()
    kept.append(link.link)
    whole = ENTRANCES.encode(Join(4, "0", "n1", "0" * 64, "b", DEVICES))
    link.sendall(
        rng.choice(
            [
                rng.randbytes(1000) + b"\n",
                b"",
                whole[: rng.randrange(len(whole))],
                whole,
                whole * 20,
                b"9" * 70_000,
                b"[" * 60_000 + b"\n",
                b'{"a":' * 10_000 + b"\n",
                wrong_values(rng),
                ENTRANCES.encode(Enter("0", gate.identity.secret_of("n1"))),
                ENTRANCES.encode(Join(4, "0", CLIENT, "é", "b", DEVICES)),
                ENTRANCES.encode(random_message(rng, CarryTerminal)),
                ENTRANCES.encode(CarryTerminal("0", "n2", gate.identity.secret_of("n2"), "0" * 32)),
            ]
        )
    )
    if rng.random() < 0.3:
        link.shutdown(socket.SHUT_WR)


def lying_node(rng: Random, gate: GateProcess, kept: list[socket.socket]) -> None:
    """Joins as n2 with its right secret, and then says what no agent says."""
    try:
        lines = gate.join("n2", "b")
    except NodeRefused:
        return  # An earlier one of these has the place.
    with lines:
        lines.send(
            rng.choice(
                [
                    rng.randbytes(5000) + b"\n",
                    b"9" * ((1 << 20) + 9),
                    b"[" * 900_000 + b"\n",
                    REPORTS.encode(random_message(rng, AgentReport)),
                    REPORTS.encode(AgentReport(0, alive=Heartbeat(0, "a", 1.0))),
                    b"".join(REPORTS.encode(random_message(rng, AgentReport)) for _ in range(50)),
                ]
            )
        )


def attacked(
    gate: GateProcess, seed: int, attacks: int, ways: list[Callable[..., None]], kept_max: int
) -> None:
    rng = Random(seed)
    honest, kept = gate.join("n1"), list[socket.socket]()
    serves(honest, 0)
    before_bytes = gate.rss_bytes()
    for number in range(1, attacks + 1):
        with suppress(OSError):
            rng.choice(ways)(rng, gate, kept)
        if len(kept) > kept_max:
            kept.pop(rng.randrange(len(kept))).close()
        if number % 50 == 0:
            serves(honest, number)
            assert gate.files() <= FILES_MAX
    for link in kept:
        link.close()
    serves(honest, attacks + 1)
    with gate.join("n2", "c"), pytest.raises(NodeRefused, match="connected"):
        gate.join("n1", "other")
    assert gate.process.poll() is None
    assert gate.rss_bytes() - before_bytes < GROWTH_BYTES_MAX
    said = gate.log.read_text()
    assert "127.0.0.1 refused" in said and len(said) < LOG_BYTES_MAX, said[-2000:]
    assert "Traceback" not in said
    honest.close()


def test_thousands_of_connections_do_not_keep_a_node_from_its_controller(gate: GateProcess) -> None:
    attacked(gate, 1, 1000, [plain], kept_max=400)


def test_what_strangers_say_is_refused_and_honest_nodes_are_served(gate: GateProcess) -> None:
    attacked(gate, 2, 120, [plain, stranger, stranger], kept_max=100)


def test_what_a_node_says_that_is_no_report_costs_it_its_connection_alone(
    gate: GateProcess,
) -> None:
    attacked(gate, 3, 40, [lying_node, stranger], kept_max=20)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_the_gate_outlives_long_attacks(gate: GateProcess, seed: int) -> None:
    attacked(gate, seed, 1500, [plain, stranger, lying_node], kept_max=400)

"""A gate for two nodes, within the process of a test, and who comes to it."""

from __future__ import annotations

import queue
import socket
from dataclasses import replace
from pathlib import Path

from dovetail.live.edges.protocols import Incoming
from dovetail.live.engines.node_registry import NodeRegistry
from dovetail.live.join.dial import JoinedNode, Joiner
from dovetail.live.join.gate import Gate
from dovetail.live.join.gate_stream import GateStream, called
from dovetail.live.join.identity import ControllerIdentity
from dovetail.live.join.shared_folder import SharedFolder
from dovetail.live.join.word import JoinWord
from dovetail.wire.connection import LineConnection
from dovetail.wire.join import ANSWERS, JoinRefused, NodeDevices, Welcome
from dovetail.wire.site import AS_USUAL, SiteSettings
from patience import PATIENCE_S

DEVICES = NodeDevices(("slot-0", "slot-1"), "cpu", 1e9, 2.0, 2e9)


class GateScene:
    """A gate for the nodes n1 and n2, and who comes."""

    def __init__(
        self,
        folder: Path,
        site: SiteSettings = AS_USUAL,
        port: int = 0,
        *,
        has_users: bool = False,
        shared: SharedFolder | None = None,
    ) -> None:
        self.folder = folder
        self.identity = ControllerIdentity.of(folder / "gate")
        self.registry = NodeRegistry(folder / "registry.json")
        self.registry.expect(("n1", "n2"), keeps=False)
        listener = socket.create_server(("127.0.0.1", port))
        self.gate = Gate(
            *(listener, self.identity, self.registry),
            site=site,
            has_users=has_users,
            shared=shared,
        )
        self.come: queue.Queue[Incoming] = queue.Queue()
        self.gate.report_to(self.come.put)
        self.open: list[GateStream | socket.socket] = []

    def word(self, name: str, **changed: str) -> Path:
        host, port = self.gate.address
        secret = self.identity.secret_of(name)
        word = JoinWord(host, port, self.identity.fingerprint, name, secret)
        path = self.folder / "word"
        replace(word, **changed).write(path)
        return path

    def join(
        self, name: str, incarnation: str = "a", devices: NodeDevices = DEVICES, **changed: str
    ) -> JoinedNode:
        joined = Joiner(self.word(name, **changed), incarnation, devices).join()
        self.open.append(joined.link)
        return joined

    def raw(self) -> LineConnection:
        """A TLS connection that has not said who it is."""
        link = called(*self.gate.address, self.identity.fingerprint, PATIENCE_S)
        self.open.append(link)
        return LineConnection(link)

    def says(self, line: bytes) -> Welcome | JoinRefused:
        lines = self.raw()
        lines.send(line)
        answer = lines.read_line(PATIENCE_S)
        assert answer is not None
        return ANSWERS.decode(answer)

    def close(self) -> None:
        for link in self.open:
            link.close()
        self.gate.close()

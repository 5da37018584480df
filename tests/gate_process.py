"""A gate in a process of its own, which answers each heartbeat of a node with an order.

Used as `python tests/gate_process.py FOLDER`; it prints its port and serves until it is killed.
"""

from __future__ import annotations

import logging
import socket
import sys
from pathlib import Path
from threading import Event

from dovetail.live.edges.protocols import Incoming
from dovetail.live.engines.node_registry import NodeRegistry
from dovetail.live.join.gate import BACKLOG, Gate
from dovetail.live.join.identity import ControllerIdentity
from dovetail.wire.agent import AgentOrder, AgentReport, InventoryRequest


def main(folder: Path) -> None:
    """Serves the nodes n1 and n2."""
    logging.basicConfig(level=logging.WARNING)
    registry = NodeRegistry(folder / "registry.json")
    registry.expect(("n1", "n2"), keeps=False)
    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    gate = Gate(listener, ControllerIdentity.of(folder / "gate"), registry)

    def answer(incoming: Incoming) -> None:
        if isinstance(incoming, AgentReport) and incoming.alive is not None:
            serial = int(incoming.alive.sent_s)
            gate.send(incoming.node, AgentOrder(1, hail=InventoryRequest(1, serial)))

    gate.report_to(answer)
    print(gate.address[1], flush=True)
    Event().wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The address of a node as other nodes reach it, and the free ports of it that jobs ask for."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable

from dovetail.wire.agent import FindPort, PortFound

LOOPBACK = "127.0.0.1"
LATELY = 256
"""Ports given out lately, which are given to no other job: a process may still be starting."""
JOBS_KEPT = 1000
"""Jobs whose last answer is kept, for a request that is repeated."""


def free_port(host: str) -> int:
    """Returns a port of an address that nobody has. Raises OSError.

    NOTE: Linux takes ports of one parity for `bind` and of the other for `connect`, while there are
    enough. So a connection that is made until the port is used hardly ever takes it.
    """
    with socket.create_server((host, 0), family=_family(host)) as probe:
        port: int = probe.getsockname()[1]
        return port


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class RendezvousAddresses:
    """Finds free ports on the address of a node, `host`; `free` returns any free one."""

    def __init__(self, host: str = LOOPBACK, free: Callable[[str], int] = free_port) -> None:
        self.host = host
        self._free = free
        self._found: dict[int, PortFound] = {}
        self._lately: deque[int] = deque(maxlen=LATELY)

    def find(self, request: FindPort) -> PortFound:
        """Returns a port; the same one to a repeated request."""
        known = self._found.get(request.job)
        if known is not None and known.generation == request.generation:
            return known
        try:
            port = self._another()
        except OSError as error:
            # Not kept: the controller asks again, and the address may be there by then.
            cause = os.strerror(error.errno) if error.errno else str(error)
            why = f"the node has no free port on {self.host}: {cause}"
            return PortFound(request.job, request.generation, why=why)
        host = f"[{self.host}]" if ":" in self.host else self.host
        found = PortFound(request.job, request.generation, f"{host}:{port}")
        self._found.pop(request.job, None)
        self._found[request.job] = found
        if len(self._found) > JOBS_KEPT:
            del self._found[next(iter(self._found))]
        return found

    def _another(self) -> int:
        """Returns a port that was not given out lately, unless there are hardly any others."""
        port = self._free(self.host)
        for _ in range(LATELY):
            if port not in self._lately:
                break
            port = self._free(self.host)
        self._lately.append(port)
        return port

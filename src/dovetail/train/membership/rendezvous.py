"""The rendezvous of the members of a generation, in the background while the old one trains.

The first member hosts a small store and announces its address. Every member registers there. When
the last one has, the meeting is on; a member that learns of a newer order before that calls it off.
The store decides which came first, so that all do the same: no member connects to one that has
turned away.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import PrefixStore

from dovetail.train.membership.agent_connection import AgentChannel
from dovetail.train.membership.mailbox import Mailbox
from dovetail.train.process.background import ready, start
from dovetail.train.sync.process_group import WorkerGroup, connect, first_line
from dovetail.wire.generation import JoinFailed, Send
from dovetail.wire.worker import Meeting, Ready, Regroup

STORE_TIMEOUT = timedelta(seconds=30)
"""The longest that the store may take to answer: its process may get no CPU for a while."""
LOOK_S = 0.005
"""How often a waiting member polls whether all have registered."""
LOOK_S_MAX = 0.05
ON, OFF = b"on", b"off"


class RendezvousServer:
    """The store that this process hosts when it is the first member; opened when needed."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._store: TCPStore | None = None
        self._lock = threading.Lock()

    def address(self) -> str:
        """Returns where the store listens: on the worker's own address, never on all."""
        with self._lock:
            if self._store is None:
                ear = socket.create_server((self._host, 0))
                port = ear.getsockname()[1]
                self._store = TCPStore(
                    self._host,
                    port,
                    None,
                    True,
                    STORE_TIMEOUT,
                    wait_for_workers=False,
                    master_listen_fd=ear.detach(),
                )
            return f"{self._host}:{self._store.port}"


def call(address: str) -> TCPStore:
    """Returns a connection of its own to a store. Raises RuntimeError, OSError."""
    host, _, port = address.rpartition(":")
    # A store is opened before it is announced: if nothing answers now, its process is gone. The
    # store's own client would retry for half a minute.
    socket.create_connection((host, int(port)), STORE_TIMEOUT.total_seconds()).close()
    return TCPStore(host, int(port), None, False, STORE_TIMEOUT, wait_for_workers=False)


class GroupBuilder:
    """Builds the process group of one generation on a thread of its own; `take` returns it."""

    def __init__(
        self,
        regroup: Regroup,
        me: int,
        *,
        mailbox: Mailbox,
        agent: AgentChannel,
        server: RendezvousServer,
        own_address: str,
        device: torch.device,
    ) -> None:
        self.regroup, self._me = regroup, me
        self._mailbox, self._agent = mailbox, agent
        self._server, self._own_address = server, own_address
        self._device = device
        self._lock = threading.Lock()
        self._group: WorkerGroup | None = None
        self._unwanted = False
        self.done = False
        self.trouble = ""
        self._began_s = time.monotonic()

    def start(self) -> None:
        """Starts the thread."""
        ready()
        start(f"build-{self.generation}", self._run)

    @property
    def generation(self) -> int:
        """Returns the generation it builds."""
        return self.regroup.generation

    @property
    def built(self) -> bool:
        """Returns whether the group can be entered."""
        return self._group is not None

    def take(self) -> WorkerGroup:
        """Returns the group, which the caller owns from now on."""
        with self._lock:
            assert self._group is not None
            group, self._group = self._group, None
            return group

    def drop(self) -> None:
        """Discards the group, whether it is built already or only later."""
        with self._lock:
            self._unwanted = True
            group, self._group = self._group, None
        if group is not None:
            group.discard()

    def _run(self) -> None:
        try:
            group = self._build()
        except (RuntimeError, OSError, ValueError) as error:
            self.trouble = first_line(error)
            group = None
        with self._lock:
            if group is not None and not self._unwanted:
                # `Ready` is sent before the group can be taken, and so before `Entered`.
                if self._send(Ready(self.generation, time.monotonic() - self._began_s)):
                    self._group, group = group, None
            elif not self._unwanted:
                why = f"not built: {self.trouble}" if self.trouble else ""
                self._send(JoinFailed(self.generation, why))
            self.done = True
        if group is not None:
            group.discard()

    def _send(self, event: Ready | JoinFailed) -> bool:
        """Passes an event to the protocol; returns whether the generation is still open."""
        messages = [i.message for i in self._mailbox.handle(event) if isinstance(i, Send)]
        for message in messages:
            self._agent.send(message)
        return bool(messages)

    def _build(self) -> WorkerGroup | None:
        members = self.regroup.members
        size, rank = len(members), members.index(self._me)
        if size == 1:
            return WorkerGroup(self.generation, 0, 1)
        address = self._address(first=rank == 0)
        if address is None:
            return None
        client = call(address)
        meeting = PrefixStore(str(self.generation), client)
        if self._decided(meeting, size) == OFF:
            return None
        return connect(
            lambda what: PrefixStore(what, meeting),
            generation=self.generation,
            rank=rank,
            size=size,
            host=self._own_address,
            device=self._device,
        )

    def _address(self, *, first: bool) -> str | None:
        if first:
            address = self._server.address()
            self._agent.send(Meeting(self.generation, address))
            return address
        if self._until(lambda: self._mailbox.address_of(self.generation) is not None):
            return self._mailbox.address_of(self.generation)
        return None

    def _decided(self, meeting: PrefixStore, size: int) -> bytes:
        """Returns ON if all members registered before one turned away, else OFF."""
        if meeting.add("there", 1) == size:
            return meeting.compare_set("fate", "", ON.decode())
        if self._until(lambda: meeting.check(["fate"])):
            return meeting.get("fate")
        return meeting.compare_set("fate", "", OFF.decode())

    def _until(self, so: Callable[[], bool]) -> bool:
        """Waits until it is so; returns False once a newer order overtakes this generation."""
        pause_s = LOOK_S
        while not so():
            if self._unwanted or self._mailbox.is_overtaken(self.generation):
                return so()
            self._mailbox.wait(pause_s)
            pause_s = min(1.2 * pause_s, LOOK_S_MAX)
        return True

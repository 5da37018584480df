"""The rendezvous of the members of a generation, in the background while the old one trains.

The first member hosts a small store and announces its address. Every member registers there. The
last one to register confirms the meeting; a member that learns of a newer order before that cancels
it. The store decides which came first, so that all members do the same: none connects to a member
that has turned away.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import PrefixStore

from dovetail.train.membership.mailbox import Mailbox
from dovetail.train.process.background import ready, start
from dovetail.train.sync.process_group import WorkerGroup, connect, first_line
from dovetail.wire.generation import JoinFailed, Send
from dovetail.wire.worker import FromWorker, Meeting, Ready, Regroup

STORE_TIMEOUT = timedelta(seconds=30)
"""The longest that the store may take to answer: its process may get no CPU for a while."""
POLL_S, POLL_S_MAX = 0.005, 0.05
"""How often a waiting member polls whether all have registered: less and less often."""
REGISTERED, OUTCOME = "there", "fate"
"""Keys of the store: how many members have registered, and which of the two below came first."""
CONFIRMED, CANCELLED = "on", "off"


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
                # The store would listen on all addresses of the host. It gets a socket instead.
                listener = socket.create_server((self._host, 0))
                port = listener.getsockname()[1]
                self._store = TCPStore(
                    self._host,
                    port,
                    None,
                    True,
                    STORE_TIMEOUT,
                    wait_for_workers=False,
                    master_listen_fd=listener.detach(),
                )
            return f"{self._host}:{self._store.port}"


def connect_store(address: str) -> TCPStore:
    """Returns a new connection to a store. Raises RuntimeError, OSError."""
    host, _, port = address.rpartition(":")
    # A store is opened before it is announced: if nothing answers now, its process is gone. The
    # store's own client would retry for half a minute.
    socket.create_connection((host, int(port)), STORE_TIMEOUT.total_seconds()).close()
    return TCPStore(host, int(port), None, False, STORE_TIMEOUT, wait_for_workers=False)


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What this worker needs to meet others, for as long as its process lives.

    `send` passes a message to the agent and never waits for it.
    """

    me: int
    send: Callable[[FromWorker], None]
    mailbox: Mailbox
    server: RendezvousServer
    address: str
    stall_s: float


class GroupBuilder:
    """Builds the process group of one generation on a thread of its own; `take` returns it."""

    def __init__(self, regroup: Regroup, context: WorkerContext, device: torch.device) -> None:
        self.regroup, self._context, self._device = regroup, context, device
        self._lock = threading.Lock()
        self._group: WorkerGroup | None = None
        self._unwanted = False
        self._began_s = time.monotonic()

    def start(self) -> None:
        """Starts the thread."""
        # A group that is dropped needs the disposal thread, and starting one may take 15 ms: here
        # that does not hold up a training step.
        ready()
        start(f"build-{self.regroup.generation}", self._run)

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
        group, problem = None, ""
        try:
            group = self._build()
        except (RuntimeError, OSError, ValueError) as error:
            problem = f"not built: {first_line(error)}"
        generation = self.regroup.generation
        # Under the lock, or `drop` could come between the check and the assignment: nobody would
        # discard the group then.
        with self._lock:
            if group is not None and not self._unwanted:
                # `Ready` is sent before the group can be taken, and so before `Entered`: the
                # protocol allows no other order.
                if self._report(Ready(generation, time.monotonic() - self._began_s)):
                    self._group, group = group, None
            elif not self._unwanted:
                self._report(JoinFailed(generation, problem))
        if group is not None:
            group.discard()

    def _report(self, event: Ready | JoinFailed) -> bool:
        """Passes an event to the protocol; returns whether the generation is still open."""
        instructions = self._context.mailbox.handle(event)
        messages = [i.message for i in instructions if isinstance(i, Send)]
        for message in messages:
            self._context.send(message)
        return bool(messages)

    def _build(self) -> WorkerGroup | None:
        """Returns the connected group, or None if a member cancelled the meeting."""
        generation, members = self.regroup.generation, self.regroup.members
        size, rank = len(members), members.index(self._context.me)
        if size == 1:
            return WorkerGroup(generation, 0, 1)
        address = self._find_address(first=rank == 0)
        if address is None:
            return None
        # Keys are prefixed by the generation: the store of a worker serves all that it hosts.
        meeting = PrefixStore(str(generation), connect_store(address))
        if not self._is_confirmed(meeting, size):
            return None
        return connect(
            lambda purpose: PrefixStore(purpose, meeting),
            generation=generation,
            rank=rank,
            size=size,
            host=self._context.address,
            device=self._device,
        )

    def _find_address(self, *, first: bool) -> str | None:
        """Returns where the members meet; None once a newer order overtakes this generation."""
        context, generation = self._context, self.regroup.generation
        if first:
            address = context.server.address()
            context.send(Meeting(generation, address))
            return address

        def announced() -> str | None:
            with context.mailbox.lock:
                return context.mailbox.generations.address_of(generation)

        self._wait_until(lambda: announced() is not None)
        return announced()

    def _is_confirmed(self, meeting: PrefixStore, size: int) -> bool:
        """Registers; returns whether all members did so before one cancelled the meeting."""
        # `compare_set` writes only the first outcome and returns that one to everybody. A member
        # that cancels just after the last one has registered connects like the others.
        if meeting.add(REGISTERED, 1) == size:
            outcome = meeting.compare_set(OUTCOME, "", CONFIRMED)
        elif self._wait_until(lambda: meeting.check([OUTCOME])):
            outcome = meeting.get(OUTCOME)
        else:
            outcome = meeting.compare_set(OUTCOME, "", CANCELLED)
        return outcome == CONFIRMED.encode()

    def _wait_until(self, condition: Callable[[], bool]) -> bool:
        """Waits for a condition; returns False once a newer order overtakes this generation."""
        mailbox, pause_s = self._context.mailbox, POLL_S
        while not condition():
            with mailbox.lock:
                overtaken = mailbox.generations.is_overtaken(self.regroup.generation)
            if self._unwanted or overtaken:
                # It may have come true just before: the others then count on this member.
                return condition()
            mailbox.wait(pause_s)
            pause_s = min(1.2 * pause_s, POLL_S_MAX)
        return True

"""Clients that hold connections: whatever strangers do over TCP, the owner's socket answers."""

import contextlib
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from time import sleep

import pytest

from dovetail.live.client.client import Client, NoController
from dovetail.live.server.messages.cluster import PingReply
from dovetail.live.server.messages.listing import JobList, JobRow, ListJobs
from dovetail.live.server.messages.output import Logs, LogsReply
from dovetail.live.server.requests import Question, Reply
from dovetail.live.server.server import Server, ServerLimits
from patience import PATIENCE_S, until

TOKEN = "s3cret"
LISTED = JobList(1.0, (JobRow(1, "train", "ann", "PENDING", 1, 1, 1, 0.0),))
LONG_TEXT = LogsReply("x" * (8 << 20), end=True)
"""More than the buffers of a connection hold."""
LIMITS = ServerLimits(connections=4, tcp_connections=6, first_line_s=1.0, line_s=1.0, send_s=1.0)
ATTACKERS = 80
"""More than both listeners have places together."""


class Lists:
    """Answers `ls` with one job, and `logs` with a long text."""

    def answer(self, question: Question, user: str) -> Iterator[Reply]:
        if isinstance(question, ListJobs):
            yield LISTED
        elif isinstance(question, Logs):
            yield LONG_TEXT
        else:
            yield PingReply(1, 1, "0", "fifo", "local", "unknown", 0.0)


@pytest.fixture
def home() -> Iterator[Path]:
    """Returns a folder with a short path, as sockets need, and the token of its owner."""
    folder = Path(tempfile.mkdtemp(prefix="dv-", dir="/tmp"))
    (folder / "token").write_text(TOKEN)
    yield folder
    shutil.rmtree(folder)


@contextlib.contextmanager
def listening(home: Path, limits: ServerLimits = LIMITS) -> Iterator[tuple[str, int]]:
    """Gives the TCP address of a server that also listens in a folder."""
    server = Server(Lists(), home / "api.sock", token=TOKEN, limits=limits)
    server.start("127.0.0.1:0")
    try:
        host, port = server.address.split(":")
        yield host, int(port)
    finally:
        server.stop()


def owner_lists(home: Path) -> None:
    """Asks once over the Unix socket, as `dovetail ls` does."""
    client = Client(home, patience_s=PATIENCE_S)
    assert client.jobs() == LISTED
    client.close()


def ended(connection: socket.socket) -> bytes:
    """Returns what was said until the server ended a connection."""
    connection.settimeout(PATIENCE_S)
    said = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            said += piece
    return said


def test_strangers_on_tcp_hold_no_place_of_the_owners_socket(home: Path) -> None:
    limits = replace(LIMITS, first_line_s=PATIENCE_S)
    with listening(home, limits) as address, contextlib.ExitStack() as stack:
        for _ in range(ATTACKERS):
            one = stack.enter_context(socket.create_connection(address))
            with contextlib.suppress(ConnectionError):
                one.sendall(b"{")
        owner_lists(home)


def test_a_client_beyond_the_limit_is_told_that_there_are_too_many(home: Path) -> None:
    limits = replace(LIMITS, first_line_s=PATIENCE_S)
    with listening(home, limits) as address, contextlib.ExitStack() as stack:
        said = b""
        # A connection whose byte has not arrived yet gives way to a new one.
        while b"too many clients at once" not in said:
            one = stack.enter_context(socket.create_connection(address))
            one.settimeout(0.1)
            with contextlib.suppress(TimeoutError):
                one.sendall(b"{")
                said = one.recv(4096)
        with pytest.raises(NoController, match=r"127.0.0.1:\d+ has too many clients at once"):
            Client(home, address="{}:{}".format(*address), patience_s=0.3).ping()


@pytest.mark.parametrize("sent", [b"", b"{", b'{"verb":"ping","token":"s3cret"}', b"x" * 70_000])
def test_a_client_without_a_whole_first_line_is_dropped(home: Path, sent: bytes) -> None:
    with listening(home) as address, socket.create_connection(address) as one:
        one.sendall(sent)
        said = ended(one)
    assert b'"ok":true' not in said
    assert (b"did not come in time" in said) == bool(sent)


def test_a_client_that_sends_a_byte_now_and_then_is_dropped_as_soon(home: Path) -> None:
    limits = replace(LIMITS, first_line_s=0.5)
    with listening(home, limits) as address, socket.create_connection(address) as drip:
        gone = threading.Event()

        def send() -> None:
            with contextlib.suppress(OSError):
                while not gone.wait(0.002):
                    drip.sendall(b" ")

        sender = threading.Thread(target=send)
        sender.start()
        said = ended(drip)
        gone.set()
        sender.join()
    assert b"did not come in time" in said


def test_a_half_closed_connection_gets_its_reply_and_ends(home: Path) -> None:
    with listening(home) as address, socket.create_connection(address) as one:
        one.sendall(b'{"verb":"ping","token":"s3cret"}\n{"verb":')
        one.shutdown(socket.SHUT_WR)
        said = ended(one)
    assert said.count(b"\n") == 1 and b'"ok":true' in said


def test_a_first_line_without_end_is_refused_and_the_refusal_arrives(home: Path) -> None:
    limits = replace(LIMITS, first_line_s=PATIENCE_S, line_bytes=100_000)
    with listening(home, limits) as address, socket.create_connection(address) as one:
        with contextlib.suppress(ConnectionError):
            one.sendall(b"9" * 1_000_000)
        assert b"a line is over 100000 bytes" in ended(one)


def test_clients_that_read_no_reply_lose_their_places(home: Path) -> None:
    with listening(home) as address, contextlib.ExitStack() as stack:
        for _ in range(LIMITS.tcp_connections):
            deaf = stack.enter_context(socket.socket())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(address)
            deaf.sendall(b'{"verb":"logs","job":"1","token":"s3cret"}\n')
        owner_lists(home)
        over_tcp = Client(home, address="{}:{}".format(*address), patience_s=PATIENCE_S)

        def answered() -> bool:
            with contextlib.suppress(NoController):
                return over_tcp.jobs() == LISTED
            return False

        until(answered)


def attack(address: tuple[str, int], seed: int, over: threading.Event) -> None:
    """Opens connections and does to each something that holds it, until it is over."""
    rng = Random(seed)
    kept: list[socket.socket] = []
    while not over.is_set():
        if len(kept) > 40:
            kept.pop(rng.randrange(len(kept))).close()
        with contextlib.suppress(OSError):
            one = socket.create_connection(address, timeout=0.2)
            kept.append(one)
            token = rng.choice([TOKEN, "guess", ""])
            whole = b'{"verb":"logs","job":"1","token":"%s"}\n' % token.encode()
            one.sendall(
                rng.choice(
                    [b"", b"{", whole[:-1], whole, whole * 9, rng.randbytes(500), b"9" * 300_000]
                )
            )
            if rng.random() < 0.3:
                one.shutdown(rng.choice([socket.SHUT_WR, socket.SHUT_RD]))
            elif rng.random() < 0.2:
                one.close()
        if kept and rng.random() < 0.5:
            with contextlib.suppress(OSError):
                kept[rng.randrange(len(kept))].sendall(b" ")
    for one in kept:
        one.close()


def test_the_owner_is_answered_while_strangers_do_their_worst(home: Path) -> None:
    over = threading.Event()
    with listening(home) as address:
        strangers = [threading.Thread(target=attack, args=(address, n, over)) for n in range(4)]
        for one in strangers:
            one.start()
        try:
            for _ in range(40):
                owner_lists(home)
                sleep(0.01)
        finally:
            over.set()
            for one in strangers:
                one.join(PATIENCE_S)
        over_tcp = Client(home, address="{}:{}".format(*address), patience_s=PATIENCE_S)
        assert over_tcp.jobs() == LISTED

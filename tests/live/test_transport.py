"""Lines over a socket: nobody waits for anybody, and nobody fills anybody's memory."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.live.node.agent_link import AgentLink
from dovetail.live.node.transport import EventLoop, LineChannel
from dovetail.wire.codec import LINE_BYTES_MAX
from dovetail.wire.connection import Stream
from patience import PATIENCE_S


class End:
    """One end of a connection on a loop, and the plain socket at the other."""

    def __init__(self, loop: EventLoop, **bounds: int) -> None:
        here, self.there = socket.socketpair()
        self.there.settimeout(PATIENCE_S)
        self.lines: list[bytes] = []
        self.closed = 0
        self.channel = LineChannel(loop, here, self.lines.append, self._close, **bounds)

    def _close(self) -> None:
        self.closed += 1


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    loop = EventLoop()
    yield loop
    loop.close()


@pytest.fixture
def end(loop: EventLoop) -> Iterator[End]:
    end = End(loop, waiting_bytes_max=100_000)
    yield end
    end.channel.close()
    end.there.close()


def test_lines_are_cut_where_they_end(loop: EventLoop, end: End) -> None:
    end.there.sendall(b"one\ntw")
    loop.wait(1.0)
    assert end.lines == [b"one"]
    end.there.sendall(b"o\n\nthree")
    loop.wait(1.0)
    assert end.lines == [b"one", b"two", b""]


def test_a_line_without_end_closes_the_connection(loop: EventLoop, end: End) -> None:
    end.there.settimeout(0.0)
    for _ in range(100):
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            end.there.send(b"x" * (1 << 16))
        loop.wait(0.0)
        if end.closed:
            break
    assert end.closed == 1 and end.lines == []
    assert LINE_BYTES_MAX < 100 << 16


def test_who_does_not_read_loses_the_connection_and_nobody_waits(loop: EventLoop, end: End) -> None:
    for _ in range(1000):
        end.channel.send(b"y" * 9_999 + b"\n")
    assert end.closed == 1 and not end.channel.open
    end.channel.send(b"into the void\n")


def test_what_could_not_be_sent_at_once_follows(loop: EventLoop) -> None:
    end = End(loop, waiting_bytes_max=10 << 20)
    sent = b"z" * 999 + b"\n"
    for _ in range(3000):
        end.channel.send(sent)
    got = 0
    while got < 3000 * len(sent):
        loop.wait(0.0)
        got += len(end.there.recv(1 << 16))
    assert end.closed == 0
    end.channel.close()
    end.there.close()


def test_a_paused_connection_is_read_later_and_drained_at_the_end(
    loop: EventLoop, end: End
) -> None:
    end.channel.pause()
    end.there.sendall(b"one\ntwo\n")
    loop.wait(0.0)
    assert end.lines == []
    end.channel.drain()
    assert end.lines == [b"one", b"two"]
    end.channel.pause()
    end.there.sendall(b"three\n")
    end.there.close()
    end.channel.drain()
    assert end.lines[2:] == [b"three"] and end.closed == 1


def test_a_connection_closed_by_another_in_the_same_round_is_left_alone(loop: EventLoop) -> None:
    ends = [End(loop), End(loop)]
    for mine, other in (ends, ends[::-1]):
        mine.channel._on_line = lambda line, other=other: other.channel.close()  # type: ignore[misc]
        mine.there.sendall(b"close the other\n")
    loop.wait(1.0)
    assert sorted(e.closed for e in ends) == [0, 1]
    for e in ends:
        e.channel.close()
        e.there.close()


def test_what_a_peer_said_before_it_was_gone_is_read_though_nothing_can_be_sent_to_it(
    loop: EventLoop, end: End
) -> None:
    def answer(line: bytes) -> None:
        end.lines.append(line)
        end.channel.send(b"done\n")

    end.channel._on_line = answer
    end.there.sendall(b"one\ntwo\n" + b"x" * (1 << 16) + b"\nlast\n")
    end.there.close()
    end.channel.send(b"nobody reads this\n")
    for _ in range(5):
        loop.wait(0.0)
    assert [line[:4] for line in end.lines] == [b"one", b"two", b"xxxx", b"last"]
    assert end.closed == 1


def test_a_link_whose_thread_ends_before_it_is_woken_closes_all_the_same(tmp_path: Path) -> None:
    link = AgentLink(tmp_path / "agents.sock", range(1), lambda incoming: None)
    link._closing = True  # as `close` does, before it wakes the thread
    link._thread.join(PATIENCE_S)
    link.close()


class Broken:
    """A connection over TLS whose peer is gone: sending fails in a frame that has the data."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link

    def __getattr__(self, name: str) -> object:
        return getattr(self.link, name)

    def send(self, data: memoryview) -> int:
        raise BrokenPipeError(f"{len(data)} bytes")


def test_over_tls_a_peer_that_is_gone_ends_the_connection_and_not_the_agent(
    loop: EventLoop,
) -> None:
    here, there = socket.socketpair()
    closed: list[bool] = []
    broken: Stream = Broken(here)  # type: ignore[assignment]
    channel = LineChannel(loop, broken, lambda line: None, lambda: closed.append(True))
    channel.send(b"a report\n")
    there.close()
    loop.wait(1.0)
    assert closed == [True] and not channel.open

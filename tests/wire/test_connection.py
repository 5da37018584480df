"""Lines over a socket: cut where they end, bounded, and never waited for longer than asked."""

import socket
import threading
from collections.abc import Iterator
from select import select

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.wire.connection import PIECE_BYTES, LineBuffer, LineConnection, LineTooLong
from patience import PATIENCE_S


@pytest.fixture
def pair() -> Iterator[tuple[LineConnection, socket.socket]]:
    here, there = socket.socketpair()
    there.settimeout(PATIENCE_S)
    with LineConnection(here, line_bytes_max=100_000) as connection, there:
        yield connection, there


@given(
    lines=st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"")), max_size=10),
    rest=st.binary(max_size=10).map(lambda b: b.replace(b"\n", b"")),
    cuts=st.lists(st.integers(min_value=1, max_value=30), min_size=1),
)
def test_lines_come_out_as_they_went_in_however_they_were_cut(
    lines: list[bytes], rest: bytes, cuts: list[int]
) -> None:
    stream = b"".join(line + b"\n" for line in lines) + rest
    buffer, taken, at = LineBuffer(40), list[bytes](), 0
    while at < len(stream):
        step = cuts[at % len(cuts)]
        buffer.add(stream[at : at + step])
        at += step
        while (line := buffer.take()) is not None:
            taken.append(line)
    assert taken == lines
    assert buffer.is_empty == (rest == b"")


def test_a_line_as_long_as_allowed_is_taken_and_a_longer_one_is_refused() -> None:
    buffer = LineBuffer(3)
    buffer.add(b"abc\n")
    assert buffer.take() == b"abc"
    buffer.add(b"abc")
    assert buffer.take() is None
    buffer.add(b"d")
    with pytest.raises(LineTooLong, match=r"^a line is over 3 bytes$"):
        buffer.take()
    whole = LineBuffer(3)
    whole.add(b"abcd\n")
    with pytest.raises(LineTooLong):
        whole.take()


def test_a_line_that_was_cut_off_by_the_end_does_not_count(
    pair: tuple[LineConnection, socket.socket],
) -> None:
    connection, there = pair
    there.sendall(b"one\n\ntwo\nthr")
    there.close()
    assert list(connection.lines(PATIENCE_S)) == [b"one", b"", b"two"]
    assert not connection.is_empty
    assert connection.read_line(PATIENCE_S) is None


def test_waiting_ends_at_the_time_that_was_given(
    pair: tuple[LineConnection, socket.socket],
) -> None:
    connection, there = pair
    for timeout_s in (0.0, 0.001):
        with pytest.raises(TimeoutError):
            connection.receive(timeout_s)
    there.sendall(b"half a li")
    with pytest.raises(TimeoutError):
        connection.read_line(0.001)
    there.sendall(b"ne\n")
    assert connection.read_line(PATIENCE_S) == b"half a line"


def test_a_quiet_connection_is_open_and_has_nothing_to_read(
    pair: tuple[LineConnection, socket.socket],
) -> None:
    connection, there = pair
    assert connection.is_quiet()
    there.sendall(b"one\ntwo\n")
    assert not connection.is_quiet()
    assert connection.read_line(PATIENCE_S) == b"one"
    assert not connection.is_quiet(), "a second line was not asked for"
    assert connection.read_line(PATIENCE_S) == b"two"
    assert connection.is_quiet()
    there.close()
    assert not connection.is_quiet()


def test_what_is_queued_goes_out_as_the_peer_takes_it(
    pair: tuple[LineConnection, socket.socket],
) -> None:
    connection, there = pair
    sent = b"x" * (64 * PIECE_BYTES) + b"\n"
    connection.queue(sent)
    connection.flush()
    assert 0 < connection.unsent_bytes < len(sent)
    received = bytearray()
    while len(received) < len(sent):
        select([], [connection] if connection.unsent_bytes else [], [], 0)
        connection.flush()
        received += there.recv(1 << 20)
    assert received == sent and connection.unsent_bytes == 0
    there.close()
    connection.queue(b"nobody reads this\n")
    with pytest.raises(BrokenPipeError):
        connection.flush()
    connection.drop_unsent()
    assert connection.unsent_bytes == 0


class Secured:
    """A stream as `ssl` makes them: frames of Python that hold what they were to send."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.settimeout, self.gettimeout = link.settimeout, link.gettimeout
        self.fileno, self.close, self.shutdown = link.fileno, link.close, link.shutdown
        self.recv, self.sendall = link.recv, link.sendall

    def send(self, data: memoryview, /) -> int:
        return self.link.send(data)


def test_what_is_queued_is_dropped_where_the_failure_to_send_is_handled() -> None:
    here, there = socket.socketpair()
    with LineConnection(Secured(here)) as connection:
        there.close()
        connection.queue(b"nobody reads this\n")
        try:
            connection.flush()
        except BrokenPipeError:
            connection.drop_unsent()
        assert connection.unsent_bytes == 0


def test_a_line_is_sent_whole_to_a_slow_peer_or_not_in_time(
    pair: tuple[LineConnection, socket.socket],
) -> None:
    connection, there = pair
    line = b"y" * (1 << 22) + b"\n"

    def read_all() -> None:
        left = len(line)
        while left:
            left -= len(there.recv(left))

    reader = threading.Thread(target=read_all)
    reader.start()
    connection.send(line, PATIENCE_S)
    reader.join(PATIENCE_S)
    assert not reader.is_alive()
    with pytest.raises(TimeoutError):
        connection.send(line, 0.001)

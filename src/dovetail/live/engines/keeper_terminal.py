"""The keeper's end of an interactive job: a pseudo-terminal or pipes, and the client at a socket.

The socket is in the folder of the worker, which is the agent's alone; agent and controller carry
bytes between it and the client. The first client to come is the only one: whoever comes later must
have its key. When nobody is there for too long, the process is hung up as by a modem that lost its
line. Output that the client has not taken is kept, and no more is read than there is room for, so
that a slow client slows the process down and fills nobody's memory.

It is imported by keepers, and imports the standard library and `wire.terminal` alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import termios
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypedDict

from dovetail.wire.terminal import (
    ACCEPTED,
    ATTACH,
    ATTACHED,
    DONE,
    ERROR_OUTPUT,
    FROM_CLIENT,
    INPUT,
    INPUT_BYTES_MAX,
    INPUT_END,
    OUTPUT,
    OUTPUT_BYTES_MAX,
    PIECE_BYTES,
    PTY,
    REFUSED,
    RETURN_S,
    SIGNAL,
    TAKEN,
    WINDOW,
    Attach,
    Frame,
    FrameBuffer,
    FrameError,
    attach_of,
    count,
    count_of,
    exit_frame,
    frame,
    frames,
    signal_of,
    window_of,
)

SOCKET, WARNING = "terminal", "warning"
"""In the folder of a worker: its socket, and what its agent has to say to its user."""
NOBODY_CAME = "no client came to its terminal"
NOBODY_BACK = "its client did not come back to its terminal"
"""Why a worker was ended, or never executed."""
TAKEN_ELSEWHERE = b"another client has the terminal of this job"
LOOK_S = 0.5
"""How often it looks for processes to reap, and for what is due."""
QUIET_S = 1.0
"""How long nothing must come on a stream that is open though all known processes are gone."""
LAST_S, LAST_S_MAX = 10.0, 60.0
"""How long the last output waits for a client that takes none of it, and for one that does."""
SIGNALS = frozenset(
    (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
)
"""What a client may send: what a program may be told by its terminal or a batch system."""
ENDING = {signal.SIGTERM, signal.SIGUSR1}
"""What an agent sends to a keeper whose worker is to end, or to be killed."""
IUTF8 = 0o40000
"""Erases a character of several bytes as one (termios(3)); Python has no name for it."""
BROKEN = (errno.EIO, errno.EPIPE, errno.EBADF)
"""What a terminal or pipe says when nobody has its other end."""


class TerminalOrder(TypedDict):
    """What a keeper needs of an interactive job; `owner` is the uid of its process, -1 ours."""

    kind: str
    grace_s: float
    owner: int


class Terminal:
    """The terminal of one worker. `tell` passes a signal of the client on to its process."""

    def __init__(self, order: TerminalOrder, tell: Callable[[int], None]) -> None:
        self._order, self._tell = order, tell
        self.is_pty = order["kind"] == PTY
        self._mine: dict[int, int] = {}
        """Our end of each stream of the process: its standard input, output, and error."""
        self._theirs: dict[int, int] = {}
        self._open_pty(order["owner"]) if self.is_pty else self._open_pipes()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(SOCKET)
        self._listener.listen(4)
        self._listener.setblocking(False)
        self._line: _Line | None = None
        """The connection of the client."""
        self._stranger: _Line | None = None
        """A newer connection, which has not said who it is."""
        self._key = b""
        self._kept: deque[tuple[int, bytearray]] = deque()
        """Output that the client has not taken, from byte `_taken` on."""
        self._taken = self._made = 0
        self._input = bytearray()
        self._received = 0
        self._input_ended = False
        self._lost_s = time.monotonic()
        self._is_done = self._has_exited = self._is_given_up = False
        self._exit: int | None = None
        self._read_again_s = 0.0

    def _open_pty(self, owner: int) -> None:
        ours, theirs = os.openpty()
        modes = termios.tcgetattr(theirs)
        modes[0] |= IUTF8
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
        if owner >= 0:
            os.fchown(theirs, owner, -1)
        os.fchmod(theirs, 0o600)
        os.set_blocking(ours, False)
        self._mine = {0: ours, 1: ours}
        self._theirs = {0: theirs, 1: theirs, 2: theirs}

    def _open_pipes(self) -> None:
        self._theirs[0], self._mine[0] = os.pipe()
        for number in (1, 2):
            self._mine[number], self._theirs[number] = os.pipe()
        for ours in self._mine.values():
            os.set_blocking(ours, False)

    # Before and at the start of the process.

    def await_client(self, is_over: Callable[[], object]) -> str:
        """Returns once a client is there, or it `is_over` before; why not, if none came."""
        while not self._key and not is_over():
            if time.monotonic() - self._lost_s > RETURN_S:
                self._is_given_up = True
                return NOBODY_CAME
            self._turn(LOOK_S)
        return ""

    def take_over(self, workdir: str) -> None:
        """Makes the streams those of this process, the leader of a new session, before `exec`."""
        if self.is_pty:
            fcntl.ioctl(self._theirs[0], termios.TIOCSCTTY, 0)
        for number in (0, 1, 2):
            os.dup2(self._theirs[number], number)
        # Last, so that the client sees what is wrong with it.
        os.chdir(workdir)

    def started(self) -> None:
        """Lets go of what belongs to the process: the end of its streams must be seen."""
        for theirs in dict.fromkeys(self._theirs.values()):
            os.close(theirs)

    # While it runs.

    def serve_until_exit(self, child: int, reap: Callable[[int, int], bool]) -> str:
        """Serves until the process has exited; returns why it was hung up, if so.

        `reap` reaps all that has exited but the process itself, and tells whether that has.
        """
        ends = os.pidfd_open(child)
        kill_s, why = float("inf"), ""
        try:
            while not reap(child, os.WNOHANG):
                self._turn(LOOK_S, ends)
                self._pass_warning_on()
                now = time.monotonic()
                if self._line is None and not why and now - self._lost_s > RETURN_S:
                    why, kill_s = NOBODY_BACK, now + self._order["grace_s"]
                    self._is_given_up = True
                    self.hang_up()
                if now >= kill_s:
                    kill_s = now + 1.0
                    self._tell(signal.SIGKILL)
        finally:
            os.close(ends)
        return why

    def hang_up(self) -> None:
        """Tells the process that its terminal is gone, as the kernel does for a lost line."""
        self._tell(signal.SIGHUP)
        if self.is_pty and 0 in self._mine:
            # The foreground group may be another than that of the leader of the session.
            with contextlib.suppress(OSError):
                os.killpg(os.tcgetpgrp(self._mine[0]), signal.SIGHUP)

    def hang_up_if_deaf(self, child: int) -> None:
        """Hangs up a process that ignores SIGTERM: shells do so, and end when they are hung up."""
        with contextlib.suppress(OSError, StopIteration, ValueError):
            with open(f"/proc/{child}/status", encoding="ascii", errors="replace") as file:
                ignored = next(line for line in file if line.startswith("SigIgn:")).split()[1]
            if int(ignored, 16) >> (signal.SIGTERM - 1) & 1:
                self.hang_up()

    def finish(self, code: int, *, is_told_to_end: bool) -> None:
        """Delivers what is left of the output, and the exit code: nothing writes any more.

        A client that is away is waited for: agent or controller may begin anew. Not if it was given
        up, or if the worker was told to end: signals are blocked by now, so that those that say it
        are pending.
        """
        self._has_exited, self._read_again_s = True, 0.0
        self._input.clear()
        self._close_stream(0)
        now = moved_s = time.monotonic()
        give_up_s, before = now + LAST_S_MAX, (-1, -1)
        while not self._is_done:
            is_told_to_end = is_told_to_end or bool(signal.sigpending() & ENDING)
            if self._line is None and (is_told_to_end or self._is_given_up):
                break
            now = time.monotonic()
            if now > min(give_up_s, moved_s + LAST_S):
                break
            if self._mine and now > moved_s + QUIET_S and self._has_room:
                # Held open by what no signal of ours reaches.
                for number in (1, 2):
                    self._close_stream(number)
            if not self._mine and self._exit is None:
                self._exit = code
                if self._line is not None:
                    self._line.unsent += exit_frame(code)
            self._turn(LOOK_S)
            if (self._taken, self._made) != before:
                before, moved_s = (self._taken, self._made), time.monotonic()
        self._leave()
        self._listener.close()

    @property
    def _has_room(self) -> bool:
        return self._made - self._taken < OUTPUT_BYTES_MAX

    # One turn.

    def _turn(self, timeout_s: float, *others: int) -> None:
        """Waits for one of its files, or the other ones, and does what can be done."""
        wanted = self._wanted()
        poll = select.poll()
        for file, events in wanted.items():
            poll.register(file, events)
        for file in others:
            poll.register(file, select.POLLIN)
        ready = {file for file, _ in poll.poll(timeout_s * 1000)}
        if self._listener.fileno() in ready:
            self._accept()
        for line in (self._line, self._stranger):
            if line is not None and line.fileno() in ready:
                self._serve(line)
        for number in [n for n in (1, 2) if self._mine.get(n) in ready]:
            self._read(number)
        if self._mine.get(0) in ready:
            self._write()

    def _wanted(self) -> dict[int, int]:
        wanted = {self._listener.fileno(): select.POLLIN}
        for line in (self._line, self._stranger):
            if line is not None:
                wanted[line.fileno()] = select.POLLIN | (select.POLLOUT if line.unsent else 0)
        if self._has_room and time.monotonic() >= self._read_again_s:
            for number in (1, 2):
                if number in self._mine:
                    wanted[self._mine[number]] = select.POLLIN
        if self._input and 0 in self._mine:
            wanted[self._mine[0]] = wanted.get(self._mine[0], 0) | select.POLLOUT
        return wanted

    def _read(self, number: int) -> None:
        if not self._has_room:
            return
        try:
            data = os.read(self._mine[number], PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno not in BROKEN:
                raise
            data = b""
        if not data and self.is_pty and not self._has_exited:
            # The process has closed its terminal, and may open it again.
            self._read_again_s = time.monotonic() + LOOK_S
            return
        if not data:
            self._close_stream(number)
            return
        kind = OUTPUT if number == 1 else ERROR_OUTPUT
        self._keep(kind, data)

    def _pass_warning_on(self) -> None:
        with contextlib.suppress(OSError):
            with open(WARNING, "rb") as file:
                text = file.read(PIECE_BYTES)
            os.unlink(WARNING)
            self._keep(OUTPUT if self.is_pty else ERROR_OUTPUT, text)

    def _keep(self, kind: int, data: bytes) -> None:
        """Keeps a piece of output until the client has taken it, and sends it."""
        if self._kept and self._kept[-1][0] == kind:
            # One piece, or a program that writes byte by byte would cost a hundred times as much.
            self._kept[-1][1].extend(data)
        else:
            self._kept.append((kind, bytearray(data)))
        self._made += len(data)
        if self._line is not None:
            self._line.unsent += frame(kind, data)

    def _write(self) -> None:
        if not self._input or 0 not in self._mine:
            return
        try:
            sent = os.write(self._mine[0], self._input[:PIECE_BYTES])
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno not in BROKEN:
                raise
            # Nobody reads it; a program may end its input early.
            sent = len(self._input)
        del self._input[:sent]
        if self._line is not None:
            self._line.unsent += count(ACCEPTED, self._received - len(self._input))
        if self._input_ended and not self._input:
            self._close_stream(0)

    def _close_stream(self, number: int) -> None:
        """Closes our end of a stream; of a terminal only its output ends, and with it all."""
        if number not in self._mine or (self.is_pty and number == 0):
            return
        os.close(self._mine.pop(number))
        if self.is_pty:
            del self._mine[0]

    # The client.

    def _accept(self) -> None:
        try:
            link, _ = self._listener.accept()
        except OSError:
            return
        if self._stranger is not None:
            self._stranger.close()
        self._stranger = _Line(link)

    def _serve(self, line: _Line) -> None:
        """Reads what came in and sends what is unsent; of a broken line it lets go."""
        try:
            line.send()
            is_open = line.receive()
            while (message := line.frames.take()) is not None:
                self._take(line, message)
            line.send()
        except (OSError, FrameError):
            is_open = False
        if not is_open:
            self._leave(line)

    def _leave(self, line: _Line | None = None) -> None:
        """Closes a line that ended, or all of them."""
        if self._stranger is not None and line in (None, self._stranger):
            self._stranger.close()
            self._stranger = None
        if self._line is not None and line in (None, self._line):
            self._line.close()
            self._line, self._lost_s = None, time.monotonic()

    def _take(self, line: _Line, message: Frame) -> None:
        """Takes a frame of the client. Raises FrameError if it does not belong here."""
        if message.kind == ATTACH:
            self._attach(line, attach_of(message.content))
            return
        if line is not self._line:
            raise FrameError("it did not say who it is")
        if message.kind == INPUT:
            self._take_input(message.content)
        elif message.kind == INPUT_END:
            self._input_ended = True
            if not self._input:
                self._close_stream(0)
        elif message.kind == TAKEN:
            self._forget_until(count_of(message.content))
        elif message.kind == WINDOW:
            self._set_window(*window_of(message.content))
        elif message.kind == SIGNAL and signal_of(message.content) in SIGNALS:
            self._tell(signal_of(message.content))
        elif message.kind == DONE and self._exit is not None:
            self._is_done = True

    def _take_input(self, data: bytes) -> None:
        if len(self._input) + len(data) > INPUT_BYTES_MAX:
            raise FrameError("more input than there is room for")
        if self._input_ended:
            raise FrameError("input after its end")
        self._received += len(data)
        self._input += data
        self._write()

    def _attach(self, line: _Line, who: Attach) -> None:
        if self._key and who.key != self._key:
            line.unsent += frame(REFUSED, TAKEN_ELSEWHERE)
            line.send()
            raise FrameError("another client")
        if line is self._line:
            raise FrameError("it says twice who it is")
        self._forget_until(who.output_at)
        if self._line is not None:
            self._line.close()
        self._key, self._line, self._stranger = who.key, line, None
        self._set_window(who.rows, who.columns)
        line.unsent += count(ATTACHED, self._received)
        line.unsent += count(ACCEPTED, self._received - len(self._input))
        line.unsent += b"".join(frames(kind, bytes(data)) for kind, data in self._kept)
        if self._exit is not None:
            line.unsent += exit_frame(self._exit)

    def _forget_until(self, taken: int) -> None:
        """Drops output that the client has. Raises FrameError for what it cannot have."""
        if not self._taken <= taken <= self._made:
            raise FrameError("output that was never sent, or was taken before")
        while self._taken < taken:
            data = self._kept[0][1]
            had = min(len(data), taken - self._taken)
            self._taken += had
            del data[:had]
            if not data:
                self._kept.popleft()

    def _set_window(self, rows: int, columns: int) -> None:
        if self.is_pty and 0 in self._mine and rows and columns:
            with contextlib.suppress(OSError):
                # The kernel tells the foreground process, if that is another size than before.
                size = struct.pack("HHHH", rows, columns, 0, 0)
                fcntl.ioctl(self._mine[0], termios.TIOCSWINSZ, size)


class _Line:
    """One connection of the client, and what is still to be sent on it."""

    def __init__(self, link: socket.socket, sizes: Mapping[int, tuple[int, int]] = FROM_CLIENT):
        link.setblocking(False)
        self._link = link
        self.frames = FrameBuffer(sizes)
        self.unsent = bytearray()

    def fileno(self) -> int:
        """Returns the descriptor to wait for."""
        return self._link.fileno()

    def receive(self) -> bool:
        """Reads what came in; False at the end of the connection. Raises OSError."""
        try:
            piece = self._link.recv(PIECE_BYTES)
        except BlockingIOError:
            return True
        self.frames.add(piece)
        return bool(piece)

    def send(self) -> None:
        """Sends what the other end takes now. Raises OSError."""
        with contextlib.suppress(BlockingIOError):
            while self.unsent:
                del self.unsent[: self._link.send(self.unsent[: 1 << 16])]

    def close(self) -> None:
        """Closes the connection."""
        self._link.close()

"""The client's end of an interactive job, between local files and the frames of its keeper.

One loop, which never waits for one of them alone. A connection that ends is opened anew with the
same key, and both ends go on where they were. It knows no terminal: whoever calls sets up the local
one.
"""

from __future__ import annotations

import os
import select
import signal
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, sleep

from dovetail.core.errors import DovetailError, InputError
from dovetail.live.client.client import Client, ConnectionBroken, NoController
from dovetail.live.server.messages.terminal import AttachReply
from dovetail.wire.connection import Stream
from dovetail.wire.terminal import (
    ACCEPTED,
    ATTACHED,
    DONE,
    ERROR_OUTPUT,
    EXIT,
    FROM_KEEPER,
    INPUT,
    INPUT_BYTES_MAX,
    INPUT_END,
    KEY_BYTES,
    OUTPUT,
    OUTPUT_BYTES_MAX,
    PIECE_BYTES,
    REFUSED,
    RETURN_S,
    TAKEN,
    Attach,
    Frame,
    FrameBuffer,
    FrameError,
    a_signal,
    attach,
    count,
    count_of,
    exit_of,
    frame,
    frames,
    window,
)

AGAIN_S = 0.25
"""The pause between two attempts to connect."""
LOOK_S = 1.0
WRITE_BYTES = 4096
"""What a pipe or a terminal that is ready takes at once, so that writing never waits."""
LAST_S = 2.0
"""How long the other end may take to close the connection of a session that is over."""
INTERRUPT = b"\x03"


@dataclass(frozen=True, slots=True)
class TerminalExit:
    """How a session ended: with the exit code of the process, or as `reply` says.

    The code is -N after signal N. `stopped_by` is the signal of ours that ended it, 0 if none did.
    """

    exit_code: int | None = None
    reply: AttachReply | None = None
    stopped_by: int = 0


@dataclass(slots=True)
class LocalStreams:
    """The local ends: descriptors to read from and to write to, and one with numbers of signals.

    `window` returns rows and columns, of a terminal alone. `attached` is called whenever the
    session begins to carry input, `notice` with a line for the user.
    """

    read: int
    write: int
    write_errors: int
    signals: int
    window: Callable[[], tuple[int, int]] | None
    attached: Callable[[], None]
    notice: Callable[[str], None]


class TerminalClient:
    """The session of one job."""

    def __init__(self, client: Client, job: int, files: LocalStreams) -> None:
        self._client, self._job, self._files = client, job, files
        self._key = os.urandom(KEY_BYTES)
        self._stream: Stream | None = None
        self._frames = FrameBuffer(FROM_KEEPER)
        self._unsent = bytearray()
        self._is_attached = self._was_attached = False
        self._is_late = False
        # Input that the keeper has not accepted, from byte `_accepted` on.
        self._input = bytearray()
        self._accepted = 0
        self._input_ended = False
        self._output: deque[tuple[int, bytearray]] = deque()
        self._taken = self._got = 0
        """Bytes of output that were written here, and that have come."""
        self._signals: list[int] = []
        self._waits = _Waiting()
        self._end: TerminalExit | None = None

    def run(self) -> TerminalExit:
        """Carries bytes until the job is over. Raises DovetailError if it cannot be reached."""
        lost_s = monotonic()
        try:
            while self._end is None:
                if self._stream is None:
                    self._connect()
                if self._stream is not None:
                    lost_s = monotonic()
                elif monotonic() - lost_s > RETURN_S:
                    what = f"the controller did not answer for {RETURN_S:.0f} s"
                    raise NoController(f"{what}; job {self._job} is hung up")
                if self._end is None:
                    self._turn()
            if self._end.exit_code is not None:
                self._write_rest()
            return self._end
        finally:
            self._hang_up()

    # The connection.

    def _connect(self) -> None:
        try:
            reply, stream, early = self._client.attach(self._job)
        except InputError:
            raise
        except (DovetailError, ConnectionBroken, OSError) as error:
            self._be_late(str(error) or "the controller is away")
            return
        if reply.over:
            self._end = TerminalExit(reply=reply)
            return
        assert stream is not None
        stream.settimeout(0.0)
        self._stream, self._frames = stream, FrameBuffer(FROM_KEEPER)
        self._frames.add(early)
        rows, columns = self._files.window() if self._files.window else (0, 0)
        self._unsent = bytearray(attach(Attach(self._key, self._got, rows, columns)))

    def _be_late(self, why: str) -> None:
        """Tells the user, once, that it takes longer."""
        if not self._is_late:
            self._is_late = True
            self._files.notice(f"{why}; trying again (Ctrl-C gives up)")

    def _hang_up(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream, self._is_attached = None, False

    def _lose(self) -> None:
        """Lets go of a connection that ended; the next turn opens another."""
        if self._is_attached:
            self._be_late("the connection is lost")
        self._hang_up()
        sleep(AGAIN_S)

    # One turn.

    def _turn(self) -> None:
        ready = self._ready()
        if self._files.signals in ready:
            for number in os.read(self._files.signals, 64):
                self._take_signal(number)
        if self._output and self._target in ready:
            self._write()
        if self._files.read in ready:
            self._read()
        if self._stream is not None:
            self._exchange(self._stream)
        if not self._was_attached:
            self._say_why()

    def _ready(self) -> set[int]:
        """Waits until something can be done; returns the descriptors that are ready."""
        poll, files = select.poll(), self._files
        poll.register(files.signals, select.POLLIN)
        if self._wants_input:
            poll.register(files.read, select.POLLIN)
        if self._output:
            poll.register(self._target, select.POLLOUT)
        if self._stream is not None:
            out = select.POLLOUT if self._unsent else 0
            poll.register(self._stream, select.POLLIN | out)
        timeout_s = LOOK_S if self._stream is not None else AGAIN_S
        return {file for file, _ in poll.poll(timeout_s * 1000)}

    @property
    def _wants_input(self) -> bool:
        """True if local input is read: none before the process is there, none without end.

        Without a connection a terminal is read for Ctrl-C alone.
        """
        if self._is_attached:
            return not self._input_ended and len(self._input) < INPUT_BYTES_MAX
        return self._was_attached and self._files.window is not None

    def _read(self) -> None:
        room = INPUT_BYTES_MAX - len(self._input)
        try:
            data = os.read(self._files.read, min(PIECE_BYTES, max(1, room)))
        except OSError:
            data = b""
        if not self._is_attached:
            if INTERRUPT in data or not data:
                self._end = TerminalExit(stopped_by=signal.SIGINT)
        elif data:
            self._input += data
            self._unsent += frame(INPUT, data)
        else:
            self._input_ended = True
            self._unsent += frame(INPUT_END)

    @property
    def _target(self) -> int:
        """The file to which the output that is next is written."""
        return self._files.write if self._output[0][0] == OUTPUT else self._files.write_errors

    def _write(self) -> None:
        """Writes a piece of the output that is next. Raises OSError if nobody reads it."""
        data = self._output[0][1]
        sent = os.write(self._target, data[:WRITE_BYTES])
        del data[:sent]
        if not data:
            self._output.popleft()
        self._taken += sent
        if self._is_attached:
            self._unsent += count(TAKEN, self._taken)

    def _exchange(self, stream: Stream) -> None:
        """Sends and receives what is possible now."""
        try:
            self._send(stream)
            is_open = self._receive(stream)
            while (message := self._frames.take()) is not None and self._end is None:
                self._take(message)
            if is_open:
                self._send(stream)
        except FrameError as error:
            raise DovetailError(f"job {self._job} answers in another protocol: {error}") from None
        except OSError:
            is_open = False
        if not is_open and self._end is None:
            self._lose()

    def _send(self, stream: Stream) -> None:
        with suppress(BlockingIOError):
            while self._unsent:
                with memoryview(self._unsent) as unsent:
                    sent = stream.send(unsent[: 1 << 16])
                del self._unsent[:sent]

    def _receive(self, stream: Stream) -> bool:
        """Reads all that is here; False at the end of the connection. Raises OSError."""
        with suppress(BlockingIOError):
            # To the last byte: over TLS some may be here that no descriptor shows.
            while piece := stream.recv(1 << 16):
                self._frames.add(piece)
            return False
        return True

    # Frames.

    def _take(self, message: Frame) -> None:
        if message.kind == ATTACHED:
            self._attach(count_of(message.content))
        elif message.kind in (OUTPUT, ERROR_OUTPUT):
            self._keep(message.kind, message.content)
        elif message.kind == ACCEPTED:
            accepted = count_of(message.content)
            if not self._accepted <= accepted <= self._accepted + len(self._input):
                raise FrameError("input was accepted that was never sent")
            del self._input[: accepted - self._accepted]
            self._accepted = accepted
        elif message.kind == EXIT:
            self._end = TerminalExit(exit_of(message.content))
            self._unsent += frame(DONE)
        elif message.kind == REFUSED:
            why = message.content.decode("ascii", "replace")
            raise DovetailError(f"job {self._job}: {why}")

    def _keep(self, kind: int, data: bytes) -> None:
        self._got += len(data)
        if self._got - self._taken > OUTPUT_BYTES_MAX + PIECE_BYTES:
            raise FrameError("more output than there is room for")
        if self._output and self._output[-1][0] == kind:
            self._output[-1][1].extend(data)
        else:
            self._output.append((kind, bytearray(data)))

    def _attach(self, input_at: int) -> None:
        """Goes on where the input was, with what the keeper has not received of it."""
        if not self._accepted <= input_at <= self._accepted + len(self._input):
            raise FrameError("it counts other input than was sent")
        self._is_attached = self._was_attached = True
        if self._is_late:
            self._is_late = False
            self._files.notice("connected again")
        self._files.attached()
        self._unsent += frames(INPUT, bytes(self._input[input_at - self._accepted :]))
        if self._input_ended:
            self._unsent += frame(INPUT_END)
        for number in self._signals:
            self._unsent += a_signal(number)
        self._signals.clear()

    def _write_rest(self) -> None:
        """Writes the last output, and waits for the other end to let go of the connection first."""
        while self._output:
            self._write()
        give_up_s = monotonic() + LAST_S
        with suppress(OSError):
            while self._stream is not None and monotonic() < give_up_s:
                self._send(self._stream)
                poll = select.poll()
                poll.register(self._stream, select.POLLIN)
                poll.poll(100)
                if not self._receive(self._stream):
                    return

    # Signals.

    def _take_signal(self, number: int) -> None:
        if number in (signal.SIGWINCH, signal.SIGCONT):
            if number == signal.SIGCONT and self._was_attached:
                # Whoever stopped this process had the terminal meanwhile.
                self._files.attached()
            if self._is_attached and self._files.window is not None:
                self._unsent += window(*self._files.window())
            return
        is_forwarded = self._files.window is None and number != signal.SIGHUP
        if self._was_attached and is_forwarded and not self._waits.is_repeated(number):
            if self._is_attached:
                self._unsent += a_signal(number)
            else:
                self._signals.append(number)
            return
        self._end = TerminalExit(stopped_by=number)

    # While it waits.

    def _say_why(self) -> None:
        """Tells the user why the job waits, once for each reason."""
        if not self._waits.is_due():
            return
        asker = Client(self._client.home, patience_s=LOOK_S)
        with suppress(DovetailError, OSError):
            why = asker.why(self._job)
            if why.state == "PENDING" and self._waits.is_news(why.sentence):
                self._files.notice(f"job {why.called} waits: {why.sentence}")
        asker.close()


@dataclass(slots=True)
class _Waiting:
    """What was told to the user, and what of them was passed on."""

    due_s: float = field(default_factory=lambda: monotonic() + 0.5)
    told: str = ""
    interrupts: int = 0

    def is_due(self) -> bool:
        """Returns whether it is time to ask again."""
        if monotonic() < self.due_s:
            return False
        self.due_s = monotonic() + LOOK_S
        return True

    def is_news(self, text: str) -> bool:
        """Returns whether a reason is another than the last one."""
        is_news, self.told = text != self.told, text
        return is_news

    def is_repeated(self, number: int) -> bool:
        """Returns whether a signal is the second interrupt: the user does not want to wait."""
        self.interrupts += number == signal.SIGINT
        return number == signal.SIGINT and self.interrupts > 1

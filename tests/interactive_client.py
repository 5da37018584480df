"""`dovetail run` in a real terminal or between pipes, as its user has it."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from time import monotonic

from patience import PATIENCE_S

RUN = (sys.executable, "-m", "dovetail", "run")


class InTerminal:
    """`dovetail run --pty` whose terminal is ours."""

    def __init__(
        self,
        home: Path,
        *command: str,
        options: tuple[str, ...] = (),
        size: tuple[int, int],
        run: tuple[str, ...] = RUN,
    ) -> None:
        self.ours, theirs = os.openpty()
        self._set_size(*size)
        self.modes = termios.tcgetattr(self.ours)
        words = [*run, "--home", str(home), *options, "--pty", "--", *command]
        environment = {**os.environ, "PS1": "$ ", "TERM": "xterm", "BASH_SILENCE": "1"}
        self.process = subprocess.Popen(
            words,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.seen = b""
        self._at = 0

    def _set_size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows: int, columns: int) -> None:
        """Changes the window; the kernel sends SIGWINCH to the client."""
        self._set_size(rows, columns)

    def type(self, keys: str | bytes) -> None:
        """Types keys."""
        os.write(self.ours, keys.encode() if isinstance(keys, str) else keys)

    def expect(self, text: str) -> str:
        """Returns what came up to a text, from what was returned before on."""
        wanted, give_up_s = text.encode(), monotonic() + PATIENCE_S
        while (found := self.seen.find(wanted, self._at)) < 0:
            assert monotonic() < give_up_s, f"never {text!r}: {self.seen!r}"
            if select.select([self.ours], [], [], 1.0)[0]:
                try:
                    piece = os.read(self.ours, 1 << 16)
                except OSError:
                    piece = b""
                assert piece, f"it ended without {text!r}: {self.seen!r}"
                self.seen += piece
        before = self.seen[self._at : found]
        self._at = found + len(wanted)
        return before.decode("utf-8", "replace")

    def says(self, command: str) -> str:
        """Returns the output of a command of the shell."""
        # The echo of what is typed shows neither of the two marks.
        self.type(f"echo BE''GIN; {command}; echo EN''D\n")
        self.expect("BEGIN\r\n")
        return self.expect("END\r\n").strip()

    def job(self) -> int:
        """Returns the number of the job."""
        self.expect("dovetail: job ")
        return int(self.expect(" is submitted"))

    def end(self) -> int:
        """Returns the exit code, once it has ended; its terminal is as it was then."""
        with suppress(OSError):
            while select.select([self.ours], [], [], PATIENCE_S)[0]:
                piece = os.read(self.ours, 1 << 16)
                if not piece:
                    break
                self.seen += piece
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        """Ends what runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)


class BetweenPipes:
    """`dovetail run` whose input and outputs are pipes."""

    def __init__(self, home: Path, *command: str, options: tuple[str, ...] = ()) -> None:
        self.process = subprocess.Popen(
            [*RUN, "--home", str(home), *options, "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            # Whoever runs the tests may have it ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        self.output, self.errors = self.process.stdout, self.process.stderr

    def __enter__(self) -> BetweenPipes:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()

    def job(self) -> int:
        """Returns the number of the job."""
        return int(self.errors.readline().split()[2])

    def rest(self, given: bytes = b"") -> tuple[bytes, bytes, int]:
        """Returns both outputs and the exit code, once it has ended."""
        output, errors = self.process.communicate(given, PATIENCE_S)
        return output, errors, self.process.returncode
